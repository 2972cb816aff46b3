//! Bursts and what is left of them: resident memory of the process, by the operating system's
//! count, and what rests, by the pool's. What is measured runs in a process of its own.

#![cfg(target_os = "linux")]

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ndpool::{Buffer, Pool};

mod field;
use field::{Stop, alone, eventually, resident};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// A buffer whose every page is touched.
fn touched(pool: &Pool, bytes: usize) -> Buffer<u8> {
    pool.filled(bytes, 1u8).unwrap()
}

/// Resident memory comes back to within `most` bytes over `start`; the system counts with delay.
fn settles(start: usize, most: usize) {
    let until = Instant::now() + Duration::from_secs(5);
    while resident() > start + most {
        let more = resident().saturating_sub(start);
        assert!(Instant::now() < until, "{} KiB over the start", more / KIB);
        thread::sleep(Duration::from_millis(10));
    }
}

/// A burst of 1 GiB, dropped by a thread that then sleeps: with the background trimmer, two seconds
/// later no more is resident than the budget, without a single request in between.
#[test]
fn a_burst_goes_back_by_itself_while_its_thread_sleeps() {
    if !alone("a_burst_goes_back_by_itself_while_its_thread_sleeps", false) {
        return;
    }
    let pool = Pool::builder().trimmer(Duration::from_millis(250)).build();
    let (freed, done) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        let start = resident();
        scope.spawn(|| {
            let large: Vec<_> = (0..60).map(|_| touched(&pool, 16 * MIB)).collect();
            let small: Vec<_> = (0..512).map(|_| touched(&pool, 128 * KIB)).collect();
            drop((large, small));
            freed.wait();
            done.wait();
        });
        freed.wait();
        assert!(pool.stats().peak_held_bytes >= 1 << 30);
        thread::sleep(Duration::from_secs(2));
        let stats = pool.stats();
        assert!(stats.held_bytes <= stats.budget_bytes, "{stats}");
        assert!(stats.budget_bytes <= 6 * MIB, "{stats}");
        let more = resident().saturating_sub(start);
        assert!(
            more <= stats.budget_bytes,
            "{} KiB resident\n{stats}",
            more / KIB
        );
        done.wait();
    });
}

/// Without the trimmer: after one trim, by a thread that did not fill anything, nothing rests
/// anywhere, though 64 idle threads had filled their caches; and what they had mapped is not
/// resident any more.
#[test]
fn one_trim_empties_sixty_four_idle_threads() {
    if !alone("one_trim_empties_sixty_four_idle_threads", false) {
        return;
    }
    const THREADS: usize = 64;
    let pool = Pool::new();
    let step = Barrier::new(THREADS + 1);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                // The heap's own pages, and the stacks, are there before the start.
                drop(touched(&pool, 40 * KIB));
                drop(touched(&pool, 200));
                step.wait();
                step.wait();
                for bytes in [128 * KIB, 192 * KIB, 300 * KIB, MIB] {
                    drop((touched(&pool, bytes), touched(&pool, bytes)));
                }
                step.wait();
                step.wait();
            });
        }
        step.wait();
        let start = resident();
        step.wait();
        step.wait();
        let stats = pool.stats();
        assert!(stats.resting_cached_bytes >= THREADS * 128 * KIB, "{stats}");
        let trimmed = pool.trim();
        let after = pool.stats();
        assert!(trimmed >= stats.resting_cached_bytes, "{after}");
        assert_eq!(
            (after.resting_cached_bytes, after.resting_depot_bytes),
            (0, 0),
            "{after}"
        );
        assert_eq!((after.held_bytes, after.live_bytes), (0, 0), "{after}");
        settles(start, 4 * MIB);
        pool.audit().unwrap();
        step.wait();
    });
}

/// Where membarrier is refused, a trim leaves idle threads what they keep, at most the cache budget
/// each; at its next operation a thread gives it back, at its exit it hands it to the depot.
#[test]
fn without_membarrier_idle_threads_flush_when_they_move_or_exit() {
    if !alone(
        "without_membarrier_idle_threads_flush_when_they_move_or_exit",
        true,
    ) {
        return;
    }
    const THREADS: usize = 8;
    let (pool, source) = field::watched();
    let step = Barrier::new(THREADS + 1);
    thread::scope(|scope| {
        let owners: Vec<_> = (0..THREADS)
            .map(|id| {
                let (pool, step) = (&pool, &step);
                scope.spawn(move || {
                    for bytes in [1_000, 16 * KIB, 64 * KIB] {
                        drop((touched(pool, bytes), touched(pool, bytes)));
                    }
                    step.wait();
                    step.wait();
                    if id % 2 == 0 {
                        drop(touched(pool, 1_000));
                    }
                    step.wait();
                    step.wait();
                })
            })
            .collect();
        step.wait();
        pool.trim();
        let stats = pool.stats();
        assert_eq!(stats.resting_depot_bytes, 0, "{stats}");
        assert!(stats.resting_cached_bytes >= THREADS * 80 * KIB, "{stats}");
        assert!(stats.resting_cached_bytes <= THREADS * 2 * MIB, "{stats}");
        step.wait();
        step.wait();
        // Half of them have moved: they keep the one block that they took, and nothing else.
        let half = pool.stats();
        assert_eq!(
            source.live(),
            6 * THREADS as u64 / 2 + THREADS as u64 / 2,
            "{half}"
        );
        step.wait();
        owners.into_iter().for_each(|owner| owner.join().unwrap());
        let exited = pool.stats();
        assert_eq!(exited.resting_cached_bytes, 0, "{exited}");
        pool.trim();
        assert_eq!((pool.ledger().2, source.live()), (0, 0));
    });
}

/// An owner that never rests is not waited for: it is asked, and flushes what it keeps of every
/// class by itself, whether or not the system has membarrier.
fn a_busy_owner_flushes() {
    let (pool, source) = field::watched();
    let (ready, stop) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        let stopping = Stop(&stop);
        let owner = scope.spawn(|| {
            drop((0..20).map(|_| touched(&pool, 3_000)).collect::<Vec<_>>());
            ready.wait();
            while !stop.load(Ordering::Relaxed) {
                drop(pool.allocate::<u8>(500).unwrap());
            }
        });
        ready.wait();
        assert!(source.live() >= 20);
        for _ in 0..20 {
            let start = Instant::now();
            pool.trim();
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "waited for an owner"
            );
            eventually("the owner has flushed", || source.live() <= 1);
        }
        drop(stopping);
        owner.join().unwrap();
    });
    pool.audit().unwrap();
}

#[test]
fn a_busy_owner_flushes_by_itself() {
    a_busy_owner_flushes();
}

#[test]
fn a_busy_owner_flushes_by_itself_without_membarrier() {
    if alone("a_busy_owner_flushes_by_itself_without_membarrier", true) {
        a_busy_owner_flushes();
    }
}
