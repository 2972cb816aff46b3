//! Field cases D: threads that come and go, producers and consumers, thread-locals that are torn
//! down. Each test is named for the behaviour, with the number of the report.

use std::cell::RefCell;
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use ndpool::{Buffer, Pool};

mod field;
use field::{Watched, at_once, eventually, is_nightly, rounds, stamp_once, watched, within};

/// F45: a thread allocates and exits; its buffer is dropped afterwards, elsewhere. The memory
/// reaches the queue that all threads take from, not a dead thread's cache.
#[test]
fn memory_of_an_exited_thread_comes_home_to_others_f45() {
    let (pool, source) = watched();
    let buffer = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            // Its cache is in use before it exits.
            (0..100).for_each(|_| drop(pool.filled(100, 0u64).unwrap()));
            pool.filled(100, 0u64).unwrap()
        });
        worker.join().unwrap()
    });
    let address = buffer.as_ptr().addr();
    thread::scope(|scope| {
        scope.spawn(move || drop(buffer)).join().unwrap();
    });
    let again = pool.allocate::<u64>(100).unwrap();
    assert_eq!(again.as_ptr().addr(), address);
    assert_eq!(source.births(), 1);
    drop(again);
    pool.trim();
    assert_eq!(source.live(), 0);
}

/// F46: ten thousand short threads with ten allocations each: what rests stays within the cap
/// and nothing is counted as live.
#[test]
fn ten_thousand_short_threads_leave_no_more_than_the_cap_f46() {
    const CAP: usize = 1 << 20;
    let source = Watched::new();
    let pool = Pool::builder()
        .source(Arc::clone(&source))
        .cap(CAP)
        .cache_budget(64 << 10)
        .build();
    for _ in 0..rounds(500, 2_500) {
        at_once(4, |id| {
            let held: Vec<_> = (1..=10)
                .map(|n| pool.filled(n * 1000, id as u8).unwrap())
                .collect();
            assert!(held.iter().all(|buffer| buffer[999] == id as u8));
        });
        assert!(source.live_bytes() <= CAP as i64, "{}", source.live_bytes());
    }
    pool.trim();
    assert_eq!((source.live(), source.live_bytes()), (0, 0));
}

/// F48: one thread produces 1 KiB buffers, another only frees them. Then the second goes idle, and
/// the first gets the memory back: more than nine in ten requests are hits.
#[test]
fn a_producer_gets_back_what_an_idle_consumer_freed_f48() {
    let (pool, source) = watched();
    let total = rounds(100_000, 1_000_000);
    let (send, receive) = sync_channel::<Buffer<u8>>(256);
    let (idle, wake) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        let (idle, wake) = (&idle, &wake);
        scope.spawn(move || {
            receive.iter().for_each(drop);
            idle.wait();
            wake.wait();
        });
        for n in 0..total {
            send.send(pool.filled(1024, n as u8).unwrap()).unwrap();
        }
        drop(send);
        let streaming = source.births();
        assert!(
            streaming * 10 < total,
            "{streaming} births of {total} while streaming"
        );
        idle.wait();
        // The consumer is alive, asleep, and keeps two magazines at most.
        let held: Vec<_> = (0..streaming)
            .map(|_| pool.filled(1024, 1u8).unwrap())
            .collect();
        let missed = source.births() - streaming;
        assert!(
            missed <= 2 * 63,
            "{missed} of {streaming} did not come back"
        );
        drop(held);
        assert!(pool.trim() > 0);
        assert_eq!(source.live(), 0, "the idle thread's cache included");
        wake.wait();
    });
}

/// F49: what was freed on a thread that then sleeps is returned by a trim from a third thread.
#[test]
fn a_third_thread_trims_what_an_idle_one_keeps_f49() {
    let (pool, source) = watched();
    let (idle, wake) = (Barrier::new(3), Barrier::new(2));
    let buffers: Vec<_> = (0..50).map(|_| pool.filled(3000, 1u8).unwrap()).collect();
    thread::scope(|scope| {
        let (idle, wake, pool, source) = (&idle, &wake, &pool, &source);
        scope.spawn(move || {
            drop(buffers);
            idle.wait();
            wake.wait();
        });
        let trimmer = scope.spawn(move || {
            idle.wait();
            pool.trim()
        });
        idle.wait();
        let bytes = trimmer.join().unwrap();
        assert!(bytes >= 50 * 3000, "{bytes}");
        assert_eq!((source.live(), source.live_bytes()), (0, 0));
        wake.wait();
    });
}

/// F50: storms of exiting threads, with a watchdog.
#[test]
fn storms_of_exiting_threads_end_f50() {
    let (pool, source) = watched();
    within(Duration::from_secs(300), "an exit storm", || {
        for _ in 0..rounds(20, 1_000) {
            at_once(64, |id| {
                for _ in 0..5 {
                    stamp_once(&pool, 16 << (id % 8), id as u64 + 1, false);
                }
            });
        }
    });
    pool.trim();
    assert_eq!(source.live(), 0);
}

/// F52: a thread that only frees keeps no more than its budget, however much passes through it.
#[test]
fn a_thread_that_only_frees_keeps_no_more_than_its_budget_f52() {
    const BUDGET: usize = 256 << 10;
    let source = Watched::new();
    let pool = Pool::builder()
        .source(Arc::clone(&source))
        .cache_budget(BUDGET)
        .cap(0)
        .build();
    let (send, receive) = channel::<Buffer<u8>>();
    let (idle, wake) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        let (idle, wake) = (&idle, &wake);
        scope.spawn(move || {
            receive.iter().for_each(drop);
            idle.wait();
            wake.wait();
        });
        for n in 0..20_000 {
            send.send(pool.filled(64 << (n % 7), 1u8).unwrap()).unwrap();
        }
        drop(send);
        idle.wait();
        // The producer keeps nothing: it never frees.
        let kept = source.live_bytes();
        assert!(kept <= BUDGET as i64, "{kept} bytes");
        wake.wait();
    });
}

/// F53: a policy, asserted: buffers are cached where they are dropped, and reach the thread that
/// allocates through the depot. So its requests hit although others do all the freeing.
#[test]
fn the_allocating_thread_hits_while_others_free_f53() {
    let (pool, source) = watched();
    let total = 20_000;
    let (sends, receives): (Vec<_>, Vec<_>) =
        (0..3).map(|_| sync_channel::<Buffer<u64>>(64)).unzip();
    thread::scope(|scope| {
        for receive in receives {
            scope.spawn(move || receive.iter().for_each(drop));
        }
        for n in 0..total {
            sends[n % 3].send(pool.filled(100, 0u64).unwrap()).unwrap();
        }
        drop(sends);
    });
    let missed = source.births() as f64 / total as f64;
    assert!(missed < 0.1, "{missed:.3} of the requests missed");
}

thread_local! {
    static FIRST: RefCell<Vec<(Pool, Buffer<u8>)>> = const { RefCell::new(Vec::new()) };
    static SECOND: RefCell<Vec<(Pool, Buffer<u8>)>> = const { RefCell::new(Vec::new()) };
}

/// A thread-local whose destructor drops a buffer, allocates another one, and drops that.
struct Busy(RefCell<Option<(Pool, Buffer<u8>)>>);

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some((pool, buffer)) = self.0.take() {
            assert_eq!(buffer[0], 3);
            drop(buffer);
            let mut again = pool.filled(5000, 4u8).unwrap();
            again.resize(100_000, 5).unwrap();
            drop(pool.zeroed::<u8>(70).unwrap());
            assert_eq!((again[4999], again[99_999]), (4, 5));
        }
    }
}

thread_local! {
    static BUSY: Busy = const { Busy(RefCell::new(None)) };
}

/// F54: buffers are dropped, and allocated, inside another thread-local's destructor, whichever of
/// the two was registered first: no panic, no leak.
#[test]
fn buffers_in_thread_local_destructors_go_home_f54() {
    for busy_first in [true, false] {
        let (pool, source) = watched();
        let worker = thread::spawn({
            let pool = pool.clone();
            move || {
                let buffer = |len| pool.filled(len, 3u8).unwrap();
                if busy_first {
                    // Registered before this thread ever touches the pool.
                    BUSY.with(|_| ());
                    FIRST.with_borrow_mut(Vec::clear);
                }
                drop(buffer(5000));
                BUSY.with(|busy| busy.0.replace(Some((pool.clone(), buffer(5000)))));
                FIRST.with_borrow_mut(|kept| kept.push((pool.clone(), buffer(70))));
                SECOND.with_borrow_mut(|kept| kept.push((pool.clone(), buffer(1 << 20))));
            }
        });
        worker.join().unwrap();
        assert!(source.births() >= 4);
        pool.trim();
        assert_eq!(source.live(), 0, "registered first: {busy_first}");
    }
}

/// F54: a thread whose only use of a pool is inside a destructor.
#[test]
fn a_thread_that_first_meets_the_pool_in_a_destructor_leaves_nothing_f54() {
    let (pool, source) = watched();
    for _ in 0..20 {
        let buffer = pool.filled(5000, 3u8).unwrap();
        let worker = thread::spawn({
            let pool = pool.clone();
            move || BUSY.with(|busy| busy.0.replace(Some((pool, buffer))))
        });
        worker.join().unwrap();
    }
    pool.trim();
    assert_eq!(source.live(), 0);
}

/// Resident bytes of this process.
#[cfg(target_os = "linux")]
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// F56: short-lived threads leave nothing behind for each of them: resident memory does not grow
/// with their number.
#[cfg(target_os = "linux")]
#[test]
fn resident_memory_does_not_grow_with_the_number_of_threads_f56() {
    let (pool, source) = watched();
    let storm = |threads: u64| {
        for id in 1..=threads {
            let pool = pool.clone();
            thread::spawn(move || {
                for words in [8, 100, 1000, 100_000] {
                    stamp_once(&pool, words, id, false);
                }
            })
            .join()
            .unwrap();
        }
    };
    storm(200);
    let births = source.births();
    let before = resident();
    let threads = rounds(2_000, 100_000);
    storm(threads);
    // Other tests of this process allocate meanwhile: the allowance is a page for two threads, and
    // 32 MiB for them.
    let grown = resident().saturating_sub(before);
    assert!(
        grown < (32 << 20) + 2048 * threads as usize,
        "{grown} bytes after {threads} threads"
    );
    assert!(
        source.births() - births < 10,
        "threads do not reuse each other's blocks"
    );
    pool.trim();
    assert_eq!(source.live(), 0);
}

/// F101: one thread uses several pools in turn and exits: every one of them gets its blocks back.
/// There the cleaner is built once per thread, so the second arena never sees an exit.
#[test]
fn an_exiting_thread_flushes_every_pool_it_used_f101() {
    // More pools than the inline table of a thread has places.
    let pools: Vec<_> = (0..70).map(|_| watched()).collect();
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            for _ in 0..3 {
                for (pool, _) in &pools {
                    stamp_once(pool, 500, 1, false);
                }
            }
            pools
                .iter()
                .map(|(pool, _)| pool.allocate::<u64>(500).unwrap().as_ptr().addr())
                .collect::<Vec<_>>()
        });
        let addresses = worker.join().unwrap();
        for ((pool, source), address) in pools.iter().zip(addresses) {
            assert_eq!(pool.allocate::<u64>(500).unwrap().as_ptr().addr(), address);
            assert_eq!(source.births(), 1);
            pool.trim();
            assert_eq!(source.live(), 0);
        }
    });
}

/// A pool beyond the inline table of a thread serves a dropped buffer's memory to the next request
/// like any other.
#[test]
fn a_pool_beyond_the_inline_table_reuses_at_once() {
    let pools: Vec<_> = (0..100).map(|_| watched()).collect();
    for _ in 0..10 {
        for (pool, _) in &pools {
            stamp_once(pool, 100, 1, false);
        }
    }
    for (n, (pool, source)) in pools.iter().enumerate() {
        assert_eq!(source.births(), 1, "pool {n}");
        // Two at a time, so that order matters too: last in, first out.
        let (first, second) = (
            pool.filled(100, 0u64).unwrap(),
            pool.filled(100, 0u64).unwrap(),
        );
        let address = first.as_ptr();
        drop(second);
        drop(first);
        assert_eq!(
            pool.allocate::<u64>(100).unwrap().as_ptr().cast(),
            address,
            "pool {n}"
        );
        assert_eq!(source.births(), 2, "pool {n}");
    }
}

/// F103: what a free costs does not grow with the number of threads that the pool has seen: nobody
/// searches their caches. Counted in source calls and judged by a generous factor in time.
#[test]
fn a_foreign_free_costs_the_same_however_many_threads_there_are_f103() {
    let (pool, source) = watched();
    let free_elsewhere = |count: usize| {
        let buffers: Vec<_> = (0..count)
            .map(|_| pool.filled(100, 0u64).unwrap())
            .collect();
        thread::scope(|scope| {
            let work = scope.spawn(move || {
                let start = Instant::now();
                drop(buffers);
                start.elapsed()
            });
            work.join().unwrap()
        })
    };
    let measure = || (0..9).map(|_| free_elsewhere(2000)).min().unwrap();
    let alone = measure();
    let (ready, done) = (Barrier::new(201), Barrier::new(201));
    thread::scope(|scope| {
        for id in 1..=200 {
            let (pool, ready, done) = (&pool, &ready, &done);
            scope.spawn(move || {
                stamp_once(pool, 100, id, false);
                ready.wait();
                done.wait();
            });
        }
        ready.wait();
        let crowded = measure();
        done.wait();
        // A search of 200 caches would be a factor of tens.
        assert!(
            crowded < alone * 8 + Duration::from_micros(200),
            "{alone:?} -> {crowded:?}"
        );
    });
    assert!(source.births() >= 2000);
}

/// A trim that meets threads in the middle of their work makes none of them wait, and what it
/// could not take is gone a moment later.
#[test]
fn trims_at_full_speed_beside_allocating_threads_lose_nothing() {
    let (pool, source) = watched();
    let end = Instant::now() + Duration::from_secs(if is_nightly() { 30 } else { 1 });
    within(Duration::from_secs(120), "trim beside churn", || {
        at_once(5, |id| {
            let mut round = 0u64;
            while Instant::now() < end {
                if id == 0 {
                    pool.trim();
                } else {
                    stamp_once(&pool, 8 << (round % 14), id as u64, false);
                }
                round += 1;
            }
        });
    });
    eventually("all blocks are home", || {
        pool.trim();
        source.live() == 0
    });
}

/// Pools that come and go while one thread uses each of them: their indices, and what was kept for
/// them, are used again.
#[test]
fn pools_that_come_and_go_beside_a_living_thread_are_reused() {
    let (send, receive) = sync_channel::<Pool>(0);
    let (done, used) = sync_channel::<Pool>(0);
    let source = Watched::new();
    thread::scope(|scope| {
        scope.spawn(move || {
            for pool in receive {
                for words in [8, 100, 5000] {
                    stamp_once(&pool, words, 1, false);
                }
                done.send(pool).unwrap();
            }
        });
        let mut indices = std::collections::HashSet::new();
        for _ in 0..rounds(2_000, 200_000) {
            let pool = Pool::builder().source(Arc::clone(&source)).build();
            indices.insert(index_of(&pool));
            stamp_once(&pool, 100, 2, false);
            send.send(pool).unwrap();
            drop(used.recv().unwrap());
            assert_eq!(source.live(), 0, "a dead pool keeps nothing");
        }
        drop(send);
        // Other tests of this process have pools of their own.
        assert!(indices.len() < 500, "{} indices", indices.len());
    });
}

fn index_of(pool: &Pool) -> u32 {
    let text = format!("{pool:?}");
    let digits = text.split("index: ").nth(1).unwrap();
    digits.split(',').next().unwrap().parse().unwrap()
}
