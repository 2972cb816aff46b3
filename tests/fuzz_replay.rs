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

#[cfg(feature = "ndarray")]
#[test]
fn array() {
    replay("array", targets::array::run);
}

#[cfg(feature = "ndarray")]
#[test]
fn random_arrays() {
    random(targets::array::run);
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

/// A small generator.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Runs inputs that no coverage has guided; `NDPOOL_RANDOM_INPUTS` says how many.
fn random(run: impl Fn(&[u8])) {
    let inputs = std::env::var("NDPOOL_RANDOM_INPUTS");
    let inputs = inputs.map_or(200, |inputs| inputs.parse().expect("a number"));
    let mut state = 1;
    for _ in 0..inputs {
        let len = 8 + next(&mut state) % 600;
        let input: Vec<u8> = (0..len).map(|_| next(&mut state) as u8).collect();
        run(&input);
    }
}

#[test]
fn random_lifecycles() {
    random(targets::lifecycle::run);
}

#[cfg(feature = "shuttle")]
#[test]
fn random_schedules() {
    random(targets::schedule::run);
}
