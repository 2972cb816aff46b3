//! Replays the inputs that are kept of each fuzz target, in `fuzz/corpus/<target>/`.

use std::path::Path;

// The targets themselves, as the fuzzer runs them.
#[path = "../fuzz/src/lib.rs"]
mod targets;

/// Runs every kept input of a target; there must be one.
fn replay(target: &str, run: impl Fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut count = 0;
    for entry in corpus.join(target).read_dir().expect("a folder of inputs") {
        let path = entry.expect("a readable folder").path();
        println!("{}", path.display());
        run(&std::fs::read(&path).expect("a readable input"));
        count += 1;
    }
    assert!(count > 0, "no input of {target} is kept");
    println!("{count} inputs");
}

#[test]
fn lifecycle() {
    replay("lifecycle", targets::lifecycle::run);
}

#[test]
fn class() {
    replay("class", targets::class::run);
}

#[test]
fn threads() {
    replay("threads", targets::threads::run);
}

#[cfg(feature = "shuttle")]
#[test]
fn schedule() {
    replay("schedule", targets::schedule::run);
}
