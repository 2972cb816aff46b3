//! Random programs on real threads, with ownership stamps, over pools that are wide and narrow;
//! two seconds by default. `NDPOOL_STRESS_SECONDS` makes it longer, `NDPOOL_STRESS_SEED` others;
//! with `--cfg ndpool_narrow` control blocks retire after a few lives.

use std::time::{Duration, Instant};

use arbitrary::{Arbitrary, Unstructured};
use ndpool::{Buffer, Pool, PoolBuilder};

#[allow(dead_code)]
#[path = "../fuzz/src/lib.rs"]
mod targets;

use targets::source::Watched;
use targets::threads::{Op, configured, play, strict};

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
        play(&programs, 3, &|| configured(rounds as u8));
        rounds += 1;
    }
    println!("{rounds} rounds");
    assert!(rounds > 0);
}

/// Elements of the buffers of narrow pools: all of one class.
const LEN: usize = 8;

/// A pool for `threads` threads, whose magazines and whose depot have room for so many buffers of
/// `LEN` elements; `None` is the default.
fn narrow(threads: usize, magazine: Option<usize>, depot: Option<usize>) -> PoolBuilder {
    // Bytes that one buffer counts for.
    let charge = {
        let pool = Pool::builder().source(Watched::default()).build();
        let _buffer = pool.filled(LEN, 0u64).unwrap();
        pool.ledger().2
    };
    // A thread's cache counts with the magazine loaded, the one before it, and one in flight.
    let cache = |rounds: usize| 3 * rounds * charge;
    let mut builder = Pool::builder();
    if let Some(rounds) = magazine {
        builder = builder.cache_budget(cache(rounds));
    }
    if let Some(blocks) = depot {
        // As many rounds as the default has room for.
        let caches = threads * cache(magazine.unwrap_or(63));
        builder = builder.cap(caches + blocks * charge);
    }
    builder
}

const ROOMS: [Option<usize>; 4] = [Some(0), Some(1), Some(2), None];

/// Full magazines and nothing else, whatever a magazine has room for.
const GIVEN: u64 = 6 * 63;

#[test]
fn narrow_pools_have_the_room_that_they_say() {
    for magazine in ROOMS {
        for depot in ROOMS {
            let builder = narrow(1, magazine, depot)
                .slack(100.0)
                .floor(usize::MAX / 2);
            let pool = builder.source(Watched::default()).build();
            let buffers: Vec<Buffer<u64>> =
                (0..GIVEN).map(|n| pool.filled(LEN, n).unwrap()).collect();
            drop(buffers);
            let audit = pool.audit().unwrap();
            let magazine_holds = magazine.unwrap_or(63) as u64;
            let cached = 2 * magazine_holds;
            let in_depot = match depot.map(|blocks| blocks as u64) {
                // Magazines go there whole, or home.
                Some(blocks) => blocks - blocks % magazine_holds.max(1),
                None => GIVEN - cached,
            };
            assert_eq!(
                (audit.live, audit.cached, audit.depot),
                (0, cached, in_depot),
                "magazines of {magazine:?}, a depot of {depot:?}"
            );
        }
    }
}

/// Threads that meet at the same few buffers, in magazines and depots of none, one, two, and all
/// that they have room for by default; with the floor of the promise, and without.
#[test]
fn random_programs_on_narrow_pools_find_their_own_stamps() {
    let mut state = number("NDPOOL_STRESS_SEED", 2);
    let end = Instant::now() + Duration::from_secs(number("NDPOOL_STRESS_SECONDS", 2));
    let mut rounds = 0;
    while rounds < 2 * ROOMS.len() * ROOMS.len() || Instant::now() < end {
        let threads = 2 + next(&mut state) as usize % 3;
        let programs: Vec<Vec<Op>> = (0..threads)
            .map(|_| {
                let drawn = drawn(&mut state, 150).into_iter();
                drawn
                    .map(|op| match op {
                        // The first of the sizes.
                        Op::Take(_) => Op::Take(0),
                        other => other,
                    })
                    .collect()
            })
            .collect();
        let (magazine, depot) = (ROOMS[rounds % 4], ROOMS[rounds / 4 % 4]);
        let promise: fn(PoolBuilder) -> PoolBuilder = match rounds / 16 % 2 {
            0 => |wide| wide,
            _ => strict,
        };
        play(&programs, 3, &|| promise(narrow(threads, magazine, depot)));
        rounds += 1;
    }
    println!("{rounds} rounds");
}

/// Programs that trim, age and close nothing, on pools without a floor and without a cap: what dies of
/// their blocks makes room for a birth.
#[test]
fn births_evict_what_rests_under_the_promise_and_at_the_limit() {
    let mut state = number("NDPOOL_STRESS_SEED", 3);
    let end = Instant::now() + Duration::from_secs(number("NDPOOL_STRESS_SECONDS", 2));
    // The first is out of reach: there the promise evicts.
    const LIMITS: [usize; 3] = [256 << 20, 96 << 10, 384 << 10];
    let (mut evicted, mut refused) = ([0; LIMITS.len()], [0; LIMITS.len()]);
    let mut rounds = 0;
    while rounds < 4 * LIMITS.len() || Instant::now() < end {
        let threads = 2 + next(&mut state) as usize % 4;
        let programs: Vec<Vec<Op>> = (0..threads)
            .map(|_| {
                let drawn = drawn(&mut state, 300).into_iter();
                let mut size = || next(&mut state) as u8;
                drawn
                    .map(|op| match op {
                        Op::Lease(_) | Op::Trim => Op::Take(size()),
                        Op::Redeem(with) => Op::Drop(with),
                        Op::Age | Op::Close => Op::Drop(size()),
                        other => other,
                    })
                    .collect()
            })
            .collect();
        let limit = rounds % LIMITS.len();
        // No cap, caches that keep magazines, nothing, and berths beyond their budget.
        let budget = [8 << 20, 0, 4096, 64 << 10][rounds / LIMITS.len() % 4];
        let played = play(&programs, 3, &|| {
            strict(Pool::builder().cache_budget(budget))
                .limit(LIMITS[limit])
                .interval(Duration::from_secs(3600))
        });
        let stats = played.stats;
        // At the limit an allocation trims before it is refused.
        assert!(limit > 0 || stats.trims == 0, "{stats}");
        assert!(stats.peak_held_bytes <= LIMITS[limit], "{stats}");
        evicted[limit] += stats.deaths;
        refused[limit] += played.refused;
        rounds += 1;
    }
    println!("{rounds} rounds, {evicted:?} evicted, {refused:?} refused");
    assert!(evicted.iter().all(|&blocks| blocks > 0), "{evicted:?}");
    assert_eq!(refused[0], 0, "refused below the limit");
    assert!(refused[1] > 0, "the limit was out of reach");
}

/// A control block retires at its last generation, which comes soon under `--cfg ndpool_narrow`, and
/// takes four thousand million shares without it.
#[test]
fn control_blocks_retire_at_their_last_generation() {
    let mut state = number("NDPOOL_STRESS_SEED", 4);
    let mut retired = 0;
    for with in 0..16 {
        let programs: Vec<Vec<Op>> = (0..4)
            .map(|_| {
                let drawn = drawn(&mut state, 300).into_iter();
                // All that happens is counted by the first pool.
                drawn.filter(|op| !matches!(op, Op::Close)).collect()
            })
            .collect();
        retired += play(&programs, 3, &|| configured(with << 2)).stats.retired;
    }
    println!("{retired} retired");
    assert_eq!(retired > 0, cfg!(ndpool_narrow), "{retired} retired");
}
