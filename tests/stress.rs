//! Random programs on real threads, with ownership stamps, over pools that are wide and narrow;
//! two seconds by default. `NDPOOL_STRESS_SECONDS` makes it longer, `NDPOOL_STRESS_SEED` others.

use std::time::{Duration, Instant};

use arbitrary::{Arbitrary, Unstructured};

#[allow(dead_code)]
#[path = "../fuzz/src/lib.rs"]
mod targets;

use targets::threads::{Op, configured, play};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

/// A small generator.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

fn drawn(state: &mut u64, len: usize) -> Vec<Op> {
    let bytes: Vec<u8> = (0..len * 8).map(|_| next(state) as u8).collect();
    let mut u = Unstructured::new(&bytes);
    let ops = std::iter::from_fn(|| Op::arbitrary(&mut u).ok());
    // A closed pool is the end of sharing between the threads, so closing is kept rare.
    let mut closes = 0;
    ops.filter(|op| {
        closes += u32::from(matches!(op, Op::Close));
        !matches!(op, Op::Close) || closes % 16 == 0
    })
    .take(len)
    .collect()
}

#[test]
fn random_programs_find_their_own_stamps() {
    let mut state = number("NDPOOL_STRESS_SEED", 1);
    let end = Instant::now() + Duration::from_secs(number("NDPOOL_STRESS_SECONDS", 2));
    let mut rounds = 0u64;
    while Instant::now() < end {
        let threads = 2 + next(&mut state) as usize % 5;
        let programs: Vec<_> = (0..threads).map(|_| drawn(&mut state, 300)).collect();
        play(&programs, 3, configured(rounds as u8));
        rounds += 1;
    }
    println!("{rounds} rounds");
    assert!(rounds > 0);
}
