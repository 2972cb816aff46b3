//! Replays what the fuzzer found, and its seeds: `fuzz/corpus/<target>/` and `fuzz/seeds/<target>/`.

use std::path::Path;

// The targets themselves, as the fuzzer runs them.
#[path = "../fuzz/src/lib.rs"]
mod targets;

/// Runs every kept input of a target; there must be one.
fn replay(target: &str, run: impl Fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let mut count = 0;
    for kept in ["corpus", "seeds"] {
        let Ok(folder) = fuzz.join(kept).join(target).read_dir() else {
            continue;
        };
        for entry in folder {
            let path = entry.expect("a readable folder").path();
            println!("{}", path.display());
            run(&std::fs::read(&path).expect("a readable input"));
            count += 1;
        }
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
