//! Field cases C: bloat and retention. What rests is bounded by configuration and not by the size
//! of the machine, and it goes: on demand, with time, from every tier. Each test is named for the
//! behaviour, with the number of the report.

#![cfg(target_os = "linux")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use ndpool::source::{Mmap, Os, Source};
use ndpool::{Buffer, Pool, PoolBuilder, Stats};

mod field;
use field::{Watched, alone, at_once, eventually, resident, rounds};

#[path = "trace_generators/random.rs"]
mod random;
use random::Random;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn watched() -> (PoolBuilder, Arc<Watched>) {
    let source = Watched::new();
    (Pool::builder().source(Arc::clone(&source)), source)
}

fn resting(stats: &Stats) -> usize {
    stats.resting_cached_bytes + stats.resting_depot_bytes
}

/// Takes and drops one block of every class from `least` to `most` bytes.
fn walk(pool: &Pool, least: usize, most: usize) {
    let classes = ndpool::class::TABLE.iter();
    for &bytes in classes.filter(|&&bytes| bytes >= least && bytes <= most) {
        drop(pool.allocate::<u8>(bytes).unwrap());
    }
}

/// F29: a walk over sizes up to 1 GiB keeps nothing for ever: a trim leaves nothing, and so do two
/// intervals of the background trimmer. On the way the promise bounds what is held to little more
/// than the largest block.
#[test]
fn a_walk_over_all_sizes_keeps_nothing_f29() {
    let (builder, source) = watched();
    let pool = builder.build();
    walk(&pool, MIB, 1 << 30);
    assert!(
        source.highest_bytes() <= (3 << 29) as i64,
        "{}",
        pool.stats()
    );
    assert!(resting(&pool.stats()) > 0);
    pool.trim();
    assert_eq!((resting(&pool.stats()), source.live()), (0, 0));

    let (builder, source) = watched();
    let pool = builder.trimmer(Duration::from_millis(20)).build();
    walk(&pool, 64, 1 << 30);
    eventually("everything ages", || source.live() == 0);
    assert_eq!(resting(&pool.stats()), 0);
}

/// F30: what rests is measured against the configured cap, not against the machine: it never
/// exceeds it, in caches and depot together, while 16 threads give back at once.
#[test]
fn what_rests_never_exceeds_the_cap_f30_f99() {
    const CAP: usize = 3 * MIB;
    let (builder, source) = watched();
    let pool = builder.cap(CAP).build();
    let most = AtomicUsize::new(0);
    let barrier = Barrier::new(16);
    at_once(16, |id| {
        let mut random = Random::new(id as u64);
        for _ in 0..rounds(30, 1_000) {
            let take = |_| pool.allocate::<u8>(random.size(64, 512 * KIB)).unwrap();
            let burst: Vec<_> = (0..20).map(take).collect();
            barrier.wait();
            drop(burst);
            barrier.wait();
            // Nobody is at it now: the numbers are exact.
            most.fetch_max(resting(&pool.stats()), Ordering::Relaxed);
            barrier.wait();
        }
    });
    let most = most.load(Ordering::Relaxed);
    assert!(most <= CAP, "{most} bytes rested");
    // Caches count with all their room, of which not every byte is used.
    assert!(most > CAP / 4, "{most}: the cap was not met");
    let places = pool.audit().unwrap();
    assert_eq!(source.live(), places.cached + places.depot);
    assert!(source.live_bytes() <= CAP as i64);
}

/// F31: after a burst of ten thousand buffers and with a hundredth of that load, in another class,
/// what is held falls below a twentieth within a few intervals, though the class of the burst sees
/// no request at all.
#[test]
fn a_burst_is_forgotten_without_traffic_in_its_class_f31() {
    let (builder, _source) = watched();
    let pool = builder.build();
    let burst: Vec<_> = (0..10_000)
        .map(|_| pool.allocate::<u8>(8 * KIB).unwrap())
        .collect();
    drop(burst);
    let peak = pool.stats().peak_held_bytes;
    assert!(peak >= 80_000 * KIB);
    for _interval in 0..3 {
        let mut kept = Vec::new();
        for _ in 0..1_000 {
            kept.push(pool.allocate::<u8>(1_000).unwrap());
            if kept.len() == 100 {
                kept.clear();
            }
        }
        pool.age();
    }
    let held = pool.stats().held_bytes;
    assert!(held < peak / 20, "{held} of {peak}\n{}", pool.stats());
}

/// F32: a trim covers every tier and every class: small and large, own cache, other threads' caches,
/// the depot, blocks that came from other threads, blocks of exited threads.
#[test]
fn a_trim_covers_every_tier_and_class_f32() {
    let (builder, source) = watched();
    let pool = builder.build();
    let (ready, done) = (Barrier::new(3), Barrier::new(3));
    at_once(2, |_| walk(&pool, 64, 4 * MIB));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                walk(&pool, 64, 4 * MIB);
                ready.wait();
                done.wait();
            });
        }
        walk(&pool, 64, 4 * MIB);
        ready.wait();
        // More than a thread's cache takes of one class.
        let held: Vec<_> = (0..6).map(|_| pool.filled(100 * KIB, 1u8)).collect();
        assert!(held.iter().all(Result::is_ok));
        drop(held);
        let before = pool.stats();
        assert!(before.resting_cached_bytes > 0 && before.resting_depot_bytes > 0);
        assert_eq!(pool.trim(), resting(&before));
        let after = pool.stats();
        for row in &after.classes {
            assert_eq!((row.cached, row.depot, row.live), (0, 0, 0), "{row:?}");
        }
        assert_eq!((after.held_bytes, source.live()), (0, 0));
        assert_eq!(after.trimmed_bytes, resting(&before) as u64);
        done.wait();
    });
}

/// F34: through a long random program the part of what is held that is in use keeps a floor: the
/// promise turned around.
#[test]
fn a_long_random_program_uses_what_it_holds_f34() {
    let pool = Pool::builder().floor(0).build();
    let mut random = Random::new(34);
    let mut kept: Vec<Buffer<_>> = Vec::new();
    let (mut live_sum, mut held_sum) = (0.0, 0.0);
    for _ in 0..rounds(8_000, 200_000) {
        kept.push(pool.allocate::<u8>(random.size(64, MIB)).unwrap());
        if kept.len() > 400 {
            kept.swap_remove(random.below(kept.len()));
        }
        let live: usize = kept.iter().map(|buffer| buffer.retained_bytes()).sum();
        let held = pool.ledger().2;
        assert!(live <= held);
        live_sum += live as f64;
        held_sum += held as f64;
    }
    let used = live_sum / held_sum;
    assert!(used >= 0.5, "{used:.2} of what is held is in use");
}

/// F35: every way back is counted once: what users gave is what rests and what went to the source,
/// by every path, the cache, the depot, beyond the cap, too large for a class, from a thread without
/// a cache, from a closed pool.
#[test]
fn every_way_back_is_counted_once_f35() {
    let (builder, source) = watched();
    let pool = builder.cap(MIB).max_class(512 * KIB).build();
    let mut random = Random::new(35);
    let mut abroad = Vec::new();
    for n in 0..2_000 {
        let buffer = pool.allocate::<u8>(random.size(1, MIB)).unwrap();
        match n % 3 {
            0 => abroad.push(buffer),
            1 => drop(buffer),
            _ => drop(buffer.share_after_fill()),
        }
    }
    thread::scope(|scope| scope.spawn(|| drop(abroad)).join().unwrap());
    let check = |pool: &Pool| {
        let stats = pool.stats();
        let mut taken = 0;
        for row in &stats.classes {
            assert_eq!(row.births - row.deaths, row.live + row.cached + row.depot);
            assert_eq!(row.live, 0, "{row:?}");
            taken += row.takes;
        }
        assert_eq!(taken, stats.hits + stats.misses);
        assert_eq!(
            (stats.births, stats.deaths),
            (source.births(), source.deaths())
        );
        taken
    };
    assert_eq!(check(&pool), 2_000);
    let last = pool.allocate::<u8>(1_000).unwrap();
    pool.close();
    drop(last);
    assert_eq!(check(&pool), 2_001);
    assert_eq!(source.live(), 0);
}

trait ShareAfterFill {
    fn share_after_fill(self) -> ndpool::SharedBuffer<u8>;
}

impl ShareAfterFill for Buffer<std::mem::MaybeUninit<u8>> {
    fn share_after_fill(self) -> ndpool::SharedBuffer<u8> {
        self.fill_value(1).share()
    }
}

/// F36: one block on each of 64 threads costs 64 blocks, not 64 arenas: a thread has no minimum.
#[test]
fn sixty_four_threads_with_a_block_each_hold_sixty_four_blocks_f36() {
    let (builder, source) = watched();
    let pool = builder.build();
    let barrier = Barrier::new(64);
    at_once(64, |_| {
        let buffer = pool.allocate::<u8>(1_000).unwrap();
        barrier.wait();
        let (_, _, held) = pool.ledger();
        let each = Os::new().footprint(std::alloc::Layout::from_size_align(1_024, 128).unwrap());
        assert_eq!(held, 64 * each);
        barrier.wait();
        drop(buffer);
        barrier.wait();
        assert_eq!(pool.ledger().2, 64 * each, "{}", pool.stats());
        barrier.wait();
    });
    assert_eq!(source.births(), 64);
}

/// F41: a small view of a large buffer keeps all of it, and says how much; a compact copy lets it
/// go.
#[test]
fn a_small_view_says_what_it_retains_f41() {
    let (builder, source) = watched();
    let pool = builder.cap(0).build();
    let whole = pool.filled(2 * MIB, 7u8).unwrap().share();
    let view = whole.slice(100..132).unwrap();
    drop(whole);
    assert_eq!(view.len(), 32);
    assert!(view.retained_bytes() >= 2 * MIB);
    assert_eq!(source.live(), 1);
    let compact = pool.copied(&view).unwrap().share();
    drop(view);
    assert_eq!(&compact[..], &[7; 32]);
    assert!(compact.retained_bytes() < KIB);
    assert_eq!(source.live(), 1);
    assert!(source.live_bytes() < KIB as i64);
}

/// F42: a hundred thousand different sizes retain no more than the cap, and no more kinds of block
/// than there are classes.
#[test]
fn a_hundred_thousand_sizes_retain_no_more_than_the_cap_f42() {
    const CAP: usize = 32 * MIB;
    let (builder, _source) = watched();
    let pool = builder.cap(CAP).build();
    let mut random = Random::new(42);
    let count = rounds(20_000, 100_000);
    for n in 0..count {
        let bytes = random.size(1, 64 * MIB);
        drop(pool.allocate::<u8>(bytes).unwrap());
        if n % 512 == 0 {
            assert!(resting(&pool.stats()) <= CAP, "{}", pool.stats());
        }
    }
    let stats = pool.stats();
    assert!(stats.classes.len() <= ndpool::class::of(64 * MIB) + 1);
    assert_eq!(stats.hits + stats.misses, count);
    assert!(resting(&stats) <= CAP, "{stats}");
}

/// F73: counts are of 64 bits and balance after quiescence: live, cached and returned are what was
/// allocated, also where bytes pass 2^32.
#[test]
fn sums_balance_and_pass_two_to_the_thirty_second_f73() {
    // Address space only: nothing is touched.
    let pool = Pool::builder()
        .source(Mmap::new())
        .max_class(8 << 30)
        .build();
    let huge: Vec<_> = (0..3)
        .map(|_| pool.allocate::<u8>(3 << 30).unwrap())
        .collect();
    let stats = pool.stats();
    assert!(stats.live_bytes >= 9 << 30 && stats.held_bytes >= 9 << 30);
    drop(huge);
    let trimmed = pool.trim();
    let stats = pool.stats();
    assert!(trimmed as u64 >= 3 << 30, "{stats}");
    assert_eq!(stats.held_bytes, 0);
    assert!(stats.trimmed_bytes > u64::from(u32::MAX));
    assert!(stats.peak_held_bytes >= 9 << 30);

    let pool = Pool::builder().cap(MIB).build();
    at_once(4, |id| {
        let mut random = Random::new(id as u64);
        for _ in 0..rounds(5_000, 500_000) {
            drop(pool.allocate::<u8>(random.size(1, 64 * KIB)).unwrap());
        }
    });
    let stats = pool.stats();
    let sums = stats.classes.iter().fold((0, 0, 0), |sum, row| {
        (
            sum.0 + row.births,
            sum.1 + row.deaths,
            sum.2 + row.live + row.cached + row.depot,
        )
    });
    assert_eq!((sums.0, sums.1), (stats.births, stats.deaths));
    assert_eq!(stats.births - stats.deaths, sums.2);
    let bytes = stats.live_bytes + resting(&stats);
    assert_eq!(stats.held_bytes, bytes, "{stats}");
    pool.audit().unwrap();
}

/// A walk up the sizes never lets small requests eat large blocks for ever: reuse is bounded to the
/// configured number of classes, and a block that served a smaller request goes home to its class.
#[test]
fn large_blocks_serve_smaller_requests_within_a_bound_and_go_home() {
    let (builder, source) = watched();
    let pool = builder.cache_budget(0).build();
    drop(pool.allocate::<u8>(1_792 * KIB).unwrap());
    for bytes in [MIB, 1_280 * KIB, 1_536 * KIB, 1_792 * KIB] {
        let buffer = pool.allocate::<u8>(bytes).unwrap();
        assert_eq!(source.births(), 1, "{bytes}");
        assert!(buffer.retained_bytes() >= 1_792 * KIB);
    }
    // One class further down is too far.
    let small = pool.allocate::<u8>(896 * KIB).unwrap();
    assert_eq!(source.births(), 2);
    let row = |stats: &Stats, capacity| {
        let row = stats.classes.iter().find(|row| row.capacity == capacity);
        row.map_or((0, 0), |row| (row.live, row.depot))
    };
    let stats = pool.stats();
    assert_eq!(row(&stats, 1_792 * KIB), (0, 1));
    assert_eq!(row(&stats, 896 * KIB), (1, 0));
    drop(small);
}

/// F39: resident memory agrees with the counters, within 4 MiB on the mapping source, at the peak
/// of a program and when it is idle. Alone in its process: `VmRSS` is everybody's.
#[test]
fn resident_memory_agrees_with_the_counters_f39() {
    const NAME: &str = "resident_memory_agrees_with_the_counters_f39";
    if !alone(NAME, false) {
        return;
    }
    let pool = Pool::builder().source(Mmap::new()).build();
    let mut random = Random::new(39);
    let mut kept = Vec::new();
    let start = resident();
    let agree = |what: &str| {
        let (now, held) = (resident() - start.min(resident()), pool.ledger().2);
        let apart = now.abs_diff(held);
        assert!(apart <= 4 * MIB, "{what}: {now} resident, {held} held");
    };
    for n in 0..2_000 {
        // Whole pages of whole classes, touched to the end.
        let class = ndpool::class::of(random.size(16 * KIB, 2 * MIB));
        kept.push(pool.filled(ndpool::class::capacity(class), 1u8).unwrap());
        if kept.len() > 60 {
            kept.swap_remove(random.below(kept.len()));
        }
        if n % 100 == 99 {
            agree("under way");
        }
    }
    drop(kept);
    agree("dropped");
    pool.age();
    pool.trim();
    assert_eq!(pool.ledger().2, 0);
    agree("idle");
}
