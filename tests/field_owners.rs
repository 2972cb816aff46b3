//! Field cases A: two owners of one buffer, and lock-free free lists that lose or double their
//! items. Each test is named for the behaviour, with the number of the report.

#![allow(unsafe_code)]

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use ndpool::kernel::arena::{Arena, Cell};
use ndpool::kernel::stack::IndexStack;
use ndpool::{Pool, SharedBuffer, StaleReason, Token};

mod field;
use field::{Stop, Watched, at_once, is_nightly, rounds, stamp_once, watched};

#[path = "trace_generators/random.rs"]
mod random;
use random::Random;

/// F1: four threads, a pool that keeps four buffers, 40,000 acquires, an owner stamp swapped in and
/// out. (Send and Sync are asserted in `bounds.rs`.)
#[test]
fn four_threads_on_four_buffers_never_share_one_f1() {
    let source = Watched::new();
    let pool = Pool::builder()
        .source(Arc::clone(&source))
        .cache_budget(0)
        .cap(4 * 256)
        .build();
    at_once(4, |id| {
        for round in 0..10_000 {
            stamp_once(&pool, 16, id as u64 + 1, round % 64 == 0);
        }
    });
    assert!(source.births() < 40_000, "nothing was reused");
    pool.trim();
    assert_eq!(source.live(), 0);
}

/// F2: the same with 16 threads; a minute of it at night.
#[test]
fn sixteen_threads_never_share_a_buffer_f2() {
    for budget in [0, 8 << 20] {
        let source = Watched::new();
        let pool = Pool::builder()
            .source(Arc::clone(&source))
            .cache_budget(budget)
            .build();
        let end = Instant::now() + Duration::from_secs(30);
        at_once(16, |id| {
            let mut round = 0u64;
            while round < 4_000 || (is_nightly() && Instant::now() < end) {
                stamp_once(&pool, 8, id as u64 + 1, round.is_multiple_of(256));
                round += 1;
            }
        });
        pool.trim();
        assert_eq!(source.live(), 0, "an item was lost or doubled");
    }
}

/// F3: magazines of one round, and none at all, send operations to the global stack, where an untagged
/// one would show its ABA. A cache keeps two blocks at most, and three are held at a time.
#[test]
fn magazines_of_one_round_hide_nothing_f3() {
    const WORDS: usize = 8;
    const THREADS: usize = 8;
    let charge = {
        let pool = Pool::builder().source(Watched::new()).build();
        let _buffer = pool.filled(WORDS, 0u64).unwrap();
        pool.ledger().2
    };
    for room in [0, 1] {
        let source = Watched::new();
        let pool = Pool::builder()
            .source(Arc::clone(&source))
            // A class is charged for the loaded magazine, the previous one, and one in flight.
            .cache_budget(3 * room * charge)
            .build();
        let four: Vec<_> = (0..4).map(|_| pool.filled(WORDS, 0u64).unwrap()).collect();
        drop(four);
        let audit = pool.audit().unwrap();
        let cached = 2 * room as u64;
        assert_eq!((audit.cached, audit.depot), (cached, 4 - cached));
        let rounds = rounds(4_000, 1_000_000);
        at_once(THREADS, |id| {
            for round in 0..rounds {
                // Others beside it, so that blocks change their order in the stack.
                let others = [0, 1].map(|_| pool.allocate::<u64>(WORDS).unwrap());
                stamp_once(&pool, WORDS, id as u64 + 1, round % 128 == 0);
                drop(others);
            }
        });
        let stats = pool.stats();
        assert!(stats.exchanges >= THREADS as u64 * rounds, "{stats}");
        pool.trim();
        assert_eq!(source.live(), 0);
    }
}

/// A cell that knows its holder.
struct Held(AtomicU32);

impl Cell for Held {
    const PER_SLAB: usize = 64;
    fn new(_index: u32) -> Self {
        Self(AtomicU32::new(0))
    }
}

/// An arena of `items` claimed cells, and their indices.
fn cells(items: usize) -> (Arena<Held>, Vec<u32>) {
    let arena = Arena::new();
    let indices = (0..items).map(|_| arena.claim().unwrap().0).collect();
    (arena, indices)
}

/// F7: every item that goes into the depot's stack comes out exactly once, while threads push and
/// pop at once. (The stack has no index that could wrap; what wraps there is a tag of 40 bits and
/// more, which a model narrows: see `loom-tests`.)
#[test]
fn every_item_comes_out_of_the_stack_exactly_once_f7() {
    const ITEMS: usize = 64;
    const THREADS: usize = 8;
    let (arena, indices) = cells(ITEMS);
    let stack = IndexStack::new();
    // Pops of each item less its pushes by the threads.
    let balances: Vec<AtomicI64> = indices.iter().map(|_| AtomicI64::new(0)).collect();
    indices.iter().for_each(|&index| stack.push(&arena, index));
    let counts = at_once(THREADS, |id| {
        let mut held = Vec::new();
        let (mut pops, mut pushes) = (0u64, 0u64);
        for round in 0..rounds(20_000, 2_000_000) {
            for _ in 0..=(round as usize + id) % 5 {
                // The threads hold 40 at most.
                let index = stack.pop(&arena).expect("24 items at least are in");
                let before = arena.at(index).0.swap(id as u32 + 1, Ordering::Relaxed);
                assert_eq!(before, 0, "item {index} popped twice");
                balances[index as usize].fetch_add(1, Ordering::Relaxed);
                held.push(index);
                pops += 1;
            }
            if round % 97 == 0 {
                thread::yield_now();
            }
            for index in held.drain(..) {
                let before = arena.at(index).0.swap(0, Ordering::Relaxed);
                assert_eq!(before, id as u32 + 1, "item {index} changed hands");
                balances[index as usize].fetch_sub(1, Ordering::Relaxed);
                stack.push(&arena, index);
                pushes += 1;
            }
        }
        (pops, pushes)
    });
    for (pops, pushes) in counts {
        assert!(pops > 0 && pops == pushes);
    }
    assert!(balances.iter().all(|n| n.load(Ordering::Relaxed) == 0));
    let mut left: Vec<u32> = std::iter::from_fn(|| stack.pop(&arena)).collect();
    left.sort_unstable();
    assert_eq!(left, indices, "an item was lost or doubled");
}

/// On one thread the stack answers each push and pop as a vector does, whatever the program.
#[test]
fn the_stack_is_a_vector_to_one_thread() {
    const ITEMS: usize = 16;
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let (arena, mut out) = cells(ITEMS);
        let (stack, mut oracle) = (IndexStack::new(), Vec::new());
        for _ in 0..500 {
            if !out.is_empty() && random.below(2) == 0 {
                let index = out.swap_remove(random.below(out.len()));
                stack.push(&arena, index);
                oracle.push(index);
            } else {
                let popped = stack.pop(&arena);
                assert_eq!(popped, oracle.pop(), "seed {seed}");
                out.extend(popped);
            }
            assert_eq!(stack.is_empty_estimate(), oracle.is_empty());
        }
    }
}

/// Threads that push what is theirs and pop what comes get out of the stack what they get out of
/// crossbeam's queue: each item once, by whomever.
#[test]
fn the_stack_hands_on_what_crossbeams_queue_hands_on() {
    const EACH: usize = 128;
    const THREADS: usize = 8;
    for round in 0..rounds(50, 5_000) as usize {
        let (arena, indices) = cells(EACH * THREADS);
        let stack = IndexStack::new();
        let queue = ArrayQueue::new(indices.len());
        let taken = at_once(THREADS, |id| {
            let (mut of_stack, mut of_queue) = (Vec::new(), Vec::new());
            for (n, &index) in indices[id * EACH..][..EACH].iter().enumerate() {
                stack.push(&arena, index);
                queue.push(index).unwrap();
                if (n + id + round) % 3 > 0 {
                    of_stack.extend(stack.pop(&arena));
                    of_queue.extend(queue.pop());
                }
            }
            (of_stack, of_queue)
        });
        let (mut of_stack, mut of_queue): (Vec<_>, Vec<_>) = taken.into_iter().unzip();
        of_stack.push(std::iter::from_fn(|| stack.pop(&arena)).collect());
        of_queue.push(std::iter::from_fn(|| queue.pop()).collect());
        let [mut of_stack, mut of_queue] = [of_stack.concat(), of_queue.concat()];
        of_stack.sort_unstable();
        of_queue.sort_unstable();
        assert_eq!(of_stack, of_queue, "round {round}");
        assert_eq!(of_stack, indices, "round {round}");
    }
}

/// F8: a pool is closed and dropped while other threads take from its tiers: nothing is used after
/// it went, nothing is left behind. (Control blocks, magazines and caches are never unmapped, so an
/// unlink has nothing to wait for; run under AddressSanitizer this is the use-after-free test.)
#[test]
fn a_pool_that_dies_while_others_take_loses_nothing_f8() {
    for round in 0..rounds(60, 5_000) {
        let source = Watched::new();
        let pool = Pool::builder()
            .source(Arc::clone(&source))
            .cache_budget(if round % 2 == 0 { 0 } else { 1 << 20 })
            .build();
        at_once(4, |id| {
            let pool = pool.clone();
            if id == 0 {
                pool.close();
                return;
            }
            for _ in 0..200 {
                stamp_once(&pool, 16, id as u64, false);
            }
            let mut survivor = pool.filled(16, id).unwrap();
            drop(pool);
            assert!(survivor.iter().all(|&word| word == id));
            survivor.fill(0);
        });
        drop(pool);
        assert_eq!(source.live(), 0, "round {round}");
    }
}

/// F13: two threads release the same token at the same moment: exactly one succeeds.
#[test]
fn two_threads_release_one_token_and_one_succeeds_f13() {
    const BATCH: usize = 32;
    let (pool, source) = watched();
    let shared = pool.filled(8, 1u64).unwrap().share();
    let tokens: Vec<AtomicU64> = (0..BATCH).map(|_| AtomicU64::new(0)).collect();
    let successes = AtomicU64::new(0);
    let meet = Barrier::new(2);
    let batches = rounds(2_000, 1_000_000 / BATCH as u64 + 1);
    at_once(2, |id| {
        for _ in 0..batches {
            if id == 0 {
                for place in &tokens {
                    let token = shared.clone().into_token().unwrap();
                    place.store(token.to_bits(), Ordering::Relaxed);
                }
                successes.store(0, Ordering::Relaxed);
            }
            meet.wait();
            for place in &tokens {
                let token = Token::from_bits(place.load(Ordering::Relaxed));
                match token.release() {
                    Ok(()) => {
                        successes.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => assert_eq!(error.reason, StaleReason::Gone),
                }
            }
            meet.wait();
            assert_eq!(successes.load(Ordering::Relaxed), BATCH as u64);
            assert_eq!(shared.owners(), 1);
            meet.wait();
        }
    });
    drop(shared);
    pool.trim();
    assert_eq!(source.live(), 0);
}

/// F14, literally: return one buffer three times, then rent four. There the rents are 3, 3, 3, 4;
/// here the second and third return are errors, and the four rents are distinct.
#[test]
fn three_returns_of_one_buffer_and_four_rents_f14() {
    let pool = Pool::new();
    let token = pool.filled(32, 0u8).unwrap().share().into_token().unwrap();
    assert_eq!(token.release(), Ok(()));
    let second = token.release().unwrap_err();
    assert_eq!(
        (second.token, second.reason),
        (token.to_bits(), StaleReason::Gone)
    );
    assert!(token.release().is_err());
    let rents: Vec<_> = (0..4)
        .map(|n| {
            let shared = pool.filled(32, n as u8).unwrap().share();
            (shared.as_ptr().addr(), shared.into_token().unwrap())
        })
        .collect();
    // A fourth return, now that the memory is rented again: an error still.
    assert!(token.release().is_err());
    let addresses: HashSet<_> = rents.iter().map(|rent| rent.0).collect();
    assert_eq!(addresses.len(), 4);
    for (n, (_, token)) in rents.into_iter().enumerate() {
        let shared = token.redeem::<u8>().unwrap();
        assert!(shared.iter().all(|&byte| byte == n as u8));
    }
}

/// F15, as far as it needs no scope: one owner goes back by two different paths, whichever comes
/// first. The second is an error, and the memory is in the pool once.
#[test]
fn one_owner_goes_back_by_one_path_only_f15() {
    let (pool, source) = watched();
    let lease = || pool.filled(8, 7u32).unwrap().share().into_token().unwrap();
    let token = lease();
    let redeemed = token.redeem::<u32>().unwrap();
    assert!(token.release().is_err());
    assert!(token.redeem::<u32>().is_err());
    assert_eq!(redeemed.owners(), 1);
    drop(redeemed);
    assert!(token.release().is_err());

    let token = lease();
    token.release().unwrap();
    assert!(token.redeem::<u32>().is_err());
    assert!(token.clone_token().is_err());

    let token = lease();
    let shared = token.redeem::<u32>().unwrap();
    // SAFETY: the only owner, which does not act afterwards.
    unsafe { shared.force_release() }.unwrap();
    assert!(token.release().is_err());
    // In turn, one block serves all of these.
    let places: HashSet<_> = (0..3)
        .map(|_| lease().redeem::<u32>().unwrap().as_ptr().addr())
        .collect();
    assert_eq!(places.len(), 1);
    let first = pool.filled(8, 1u32).unwrap();
    let second = pool.filled(8, 2u32).unwrap();
    assert_ne!(first.as_ptr(), second.as_ptr());
    drop((first, second));
    pool.trim();
    assert_eq!(source.live(), 0);
}

/// F9: looking at a pool's numbers while eight threads churn never underflows: this build checks
/// overflow.
#[test]
fn looking_at_numbers_during_churn_never_underflows_f9() {
    let (pool, _source) = watched();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&done);
        let churn: Vec<_> = (1..=8)
            .map(|id| {
                let pool = &pool;
                scope.spawn(move || {
                    for round in 0..rounds(3_000, 300_000) {
                        let words = 1 << (round % 12);
                        stamp_once(pool, words, id, round % 512 == 0);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let stats = pool.stats();
                assert!(stats.held_bytes <= 64 << 20, "{stats}");
                assert!(stats.hits + stats.misses < 1 << 32, "{stats}");
                assert!((0.0..=1.0).contains(&stats.hit_rate()));
                assert!(stats.resting_depot_bytes <= 64 << 20 && stats.live_bytes <= 64 << 20);
                assert!(stats.headroom_bytes == usize::MAX && !stats.to_string().is_empty());
                thread::yield_now();
            }
        });
        for thread in churn {
            thread.join().unwrap();
        }
    });
}

/// F6: what one thread wrote into a buffer before it dropped it does not reach the next owner as
/// anything but what that owner writes. (The race itself is a model's: see `loom-tests`.)
#[test]
fn a_payload_handed_on_by_the_pool_is_the_new_owners_f6() {
    let (pool, _source) = watched();
    at_once(4, |id| {
        for round in 0..rounds(5_000, 500_000) {
            let value = (id as u64) << 32 | round;
            let mut buffer = pool.allocate::<u64>(64).unwrap().fill_value(value);
            buffer[63] = !value;
            let shared: SharedBuffer<u64> = buffer.share();
            let part = shared.slice(60..).unwrap();
            drop(shared);
            assert_eq!(&part[..], [value, value, value, !value]);
        }
    });
}
