//! Field cases C and E on the pool itself: memory that only grows, and limits that do not hold. Each
//! test is named for the behaviour, with the number of the report. (Adaptors have their own, in
//! `adaptors.rs`; traces in `footprint.rs`.)

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use ndpool::source::Faulty;
use ndpool::{AllocErrorKind, Buffer, Pool, class};

mod field;
use field::{Watched, at_once, eventually, rounds};

const MIB: usize = 1 << 20;

fn watched_with(
    build: impl FnOnce(ndpool::PoolBuilder) -> ndpool::PoolBuilder,
) -> (Pool, Arc<Watched>) {
    let source = Watched::new();
    let pool = build(Pool::builder().source(Arc::clone(&source))).build();
    (pool, source)
}

/// One untouched buffer of every class from 1 KiB to 256 MiB, one after the other.
fn walk(pool: &Pool) {
    for bytes in (0..class::COUNT).map(class::capacity) {
        if (1 << 10..=256 * MIB).contains(&bytes) {
            drop(pool.allocate::<u8>(bytes).unwrap());
        }
    }
}

/// F29: a walk over all sizes does not keep the sum of them for ever: one trim takes all of it, and
/// with the background thread it goes by itself.
#[test]
fn a_walk_over_all_sizes_goes_back_f29() {
    let (pool, source) = watched_with(|builder| builder);
    walk(&pool);
    assert!(source.live() > 0);
    pool.trim();
    assert_eq!((source.live(), pool.stats().held_bytes), (0, 0));
    let (pool, source) = watched_with(|builder| builder.trimmer(Duration::from_millis(20)));
    walk(&pool);
    eventually("the walk ages", || source.live() == 0);
    assert_eq!(pool.stats().held_bytes, 0);
}

/// F30: pressure is measured by the pool's own cap, not by the machine: what rests never exceeds
/// it, whatever the host has.
#[test]
fn what_rests_stays_within_the_cap_on_any_host_f30() {
    const CAP: usize = 200 * MIB;
    let (pool, source) = watched_with(|builder| builder.cap(CAP).slack(1000.0));
    for round in 0..20 {
        let burst: Vec<_> = (0..40)
            .map(|n| pool.allocate::<u8>((1 + (n + round) % 13) * MIB).unwrap())
            .collect();
        drop(burst);
        assert!(source.live_bytes() <= CAP as i64, "{}", source.live_bytes());
    }
    assert!(
        source.live_bytes() > CAP as i64 / 2,
        "the cap was never met"
    );
}

/// F31: a burst of ten thousand buffers, then hardly any load, and none in the burst's class: what
/// rests of it falls below a twentieth with time.
#[test]
fn what_a_burst_left_goes_with_time_and_without_traffic_f31() {
    let (pool, source) = watched_with(|builder| builder.trimmer(Duration::from_millis(20)));
    let burst: Vec<_> = (0..10_000)
        .map(|_| pool.allocate::<u8>(4096).unwrap())
        .collect();
    drop(burst);
    let peak = source.live_bytes();
    assert!(peak >= 40 << 20);
    eventually("the burst goes back", || {
        drop(pool.filled(100, 1u8).unwrap());
        source.live_bytes() * 20 < peak
    });
}

/// F32: a trim covers every tier and every size: small and large, magazines of other threads that
/// sleep, and the depot.
#[test]
fn a_trim_covers_every_tier_and_size_f32() {
    let (pool, source) = watched_with(|builder| builder);
    let (ready, done) = (Barrier::new(5), Barrier::new(5));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let held: Vec<_> = (6..22)
                    .flat_map(|shift| (0..3).map(move |n| (1usize << shift) + n))
                    .map(|bytes| pool.allocate::<u8>(bytes).unwrap())
                    .collect();
                drop(held);
                ready.wait();
                done.wait();
            });
        }
        ready.wait();
        assert!(source.live() > 50);
        assert!(pool.trim() > 0);
        assert_eq!((source.live(), source.live_bytes()), (0, 0));
        done.wait();
    });
}

/// F36: a thread costs the pool what it allocates, not a minimum per thread or core.
#[test]
fn idle_threads_cost_what_they_allocated_f36() {
    let (pool, source) = watched_with(|builder| builder);
    let (ready, done) = (Barrier::new(65), Barrier::new(65));
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                drop(pool.filled(1000, 1u8).unwrap());
                ready.wait();
                done.wait();
            });
        }
        ready.wait();
        assert!(source.births() <= 64);
        assert!(source.live_bytes() <= 64 * 2048, "{}", source.live_bytes());
        done.wait();
    });
}

/// F42: a hundred thousand distinct sizes up to 64 MiB, each freed: there an exact-size key keeps
/// them all; here what rests stays within the cap.
#[test]
fn distinct_sizes_do_not_pile_up_f42() {
    const CAP: usize = 64 * MIB;
    let (pool, source) = watched_with(|builder| builder.cap(CAP));
    let total = rounds(10_000, 100_000) as usize;
    for n in 1..=total {
        let bytes = n.wrapping_mul(0x9E37_79B9) % (64 * MIB) + 1;
        drop(pool.allocate::<u8>(bytes).unwrap());
        assert!(source.live_bytes() <= CAP as i64, "after {bytes} bytes");
    }
}

/// F64: eight threads hammer the pool's limit: what the source has given out never exceeds it, and
/// the limit is really met.
#[test]
fn the_pools_limit_is_never_exceeded_f64() {
    const LIMIT: usize = MIB;
    let (pool, source) = watched_with(|builder| builder.limit(LIMIT));
    let refused = AtomicUsize::new(0);
    at_once(8, |id| {
        for round in 0..rounds(1_000, 100_000) as usize {
            let mut held: Vec<Buffer<u8>> = Vec::new();
            for n in 0..6 {
                match pool.filled((1 + (round + id + n) % 9) * 20_000, 1u8) {
                    Ok(buffer) => held.push(buffer),
                    Err(error) => {
                        assert_eq!(
                            (error.kind, error.limit),
                            (AllocErrorKind::LimitExceeded, LIMIT)
                        );
                        assert!(error.in_use + error.resting <= LIMIT, "{error}");
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
    });
    assert!(
        source.highest_bytes() <= LIMIT as i64,
        "{}",
        source.highest_bytes()
    );
    assert!(pool.stats().peak_held_bytes <= LIMIT);
    assert!(refused.into_inner() > 0, "the limit was never met");
    pool.trim();
    assert_eq!((source.live(), pool.stats().headroom_bytes), (0, LIMIT));
    pool.audit().unwrap();
}

/// F65: two requests of more than half the limit at the same moment: never both.
#[test]
fn of_two_requests_for_more_than_half_never_both_are_served_f65() {
    const LIMIT: usize = MIB;
    let (pool, source) = watched_with(|builder| builder.limit(LIMIT));
    let (served, meet) = (AtomicUsize::new(0), Barrier::new(2));
    at_once(2, |_| {
        for _ in 0..rounds(2_000, 200_000) {
            meet.wait();
            let got = pool.allocate::<u8>(LIMIT / 2 + 1);
            served.fetch_add(usize::from(got.is_ok()), Ordering::SeqCst);
            meet.wait();
            assert_eq!(served.load(Ordering::SeqCst), 1, "one fits, two do not");
            drop(got);
            meet.wait();
            served.store(0, Ordering::SeqCst);
        }
    });
    assert!(source.highest_bytes() <= LIMIT as i64);
}

/// F71: the limit is reached while blocks rest in a sleeping thread's magazines: they are reclaimed
/// before anybody is refused, whether they fit or have to make room.
#[test]
fn sleeping_threads_magazines_are_reclaimed_before_a_refusal_f71() {
    const LIMIT: usize = 2 * MIB;
    let (pool, source) = watched_with(|builder| builder.limit(LIMIT).slack(1000.0));
    let (ready, done) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let held: Vec<_> = (0..48)
                .map(|_| pool.filled(32 << 10, 1u8).unwrap())
                .collect();
            drop(held);
            ready.wait();
            done.wait();
        });
        ready.wait();
        assert!(source.live_bytes() > LIMIT as i64 / 2);
        let same: Vec<_> = (0..40)
            .map(|_| pool.filled(32 << 10, 2u8).expect("blocks rest elsewhere"))
            .collect();
        drop(same);
        let other = pool
            .filled(3 * MIB / 2, 3u8)
            .expect("resting blocks make room");
        assert!(source.highest_bytes() <= LIMIT as i64);
        let error = pool.filled(MIB, 4u8).unwrap_err();
        assert_eq!(error.kind, AllocErrorKind::LimitExceeded);
        assert!(error.in_use >= 3 * MIB / 2, "{error}");
        drop(other);
        done.wait();
    });
}

/// F72: every pair of options under a low limit, with a source that fails now and then: requests
/// are served or refused by type, and the accounts agree.
#[test]
fn options_in_pairs_hold_under_a_low_limit_f72() {
    const LIMIT: usize = MIB;
    type Option = fn(ndpool::PoolBuilder) -> ndpool::PoolBuilder;
    let options: [(&str, Option); 11] = [
        ("none", |b| b),
        ("cap 0", |b| b.cap(0)),
        ("cap", |b| b.cap(100_000)),
        ("no cache", |b| b.cache_budget(0)),
        ("large cache", |b| b.cache_budget(64 * MIB)),
        ("slack 0", |b| b.slack(0.0).floor(0)),
        ("short window", |b| b.window(1)),
        ("small classes", |b| b.max_class(10_000)),
        ("no reuse", |b| b.reuse_classes(0)),
        ("interval 0", |b| b.interval(Duration::ZERO)),
        ("trimmer", |b| b.trimmer(Duration::from_millis(1))),
    ];
    for (first, one) in &options {
        for (second, other) in &options {
            let source = Arc::new(Faulty::with_probability(Watched::default(), 0.05, 3));
            let builder = Pool::builder().source(Arc::clone(&source)).limit(LIMIT);
            let pool = other(one(builder)).build();
            let served: usize = at_once(2, |id| {
                let mut held: Vec<Buffer<u8>> = Vec::new();
                let mut served = 0;
                for round in 0..200usize {
                    let bytes = 1usize << (6 + (round * 7 + id) % 13);
                    match pool.filled(bytes, id as u8) {
                        Ok(buffer) => {
                            served += 1;
                            held.push(buffer);
                        }
                        Err(error) => assert!(
                            matches!(
                                error.kind,
                                AllocErrorKind::LimitExceeded | AllocErrorKind::SourceFailed
                            ),
                            "{error}"
                        ),
                    }
                    if round % 3 == 0 {
                        held.truncate(held.len() / 2);
                    }
                    assert!(held.iter().all(|buffer| buffer[0] == id as u8));
                }
                served
            })
            .into_iter()
            .sum();
            let watched = source.inner();
            assert!(served > 100, "{first} + {second}: {served}");
            assert!(
                watched.highest_bytes() <= LIMIT as i64,
                "{first} + {second}"
            );
            eventually("the accounts agree", || {
                pool.trim();
                watched.live() == 0 && pool.stats().held_bytes == 0
            });
        }
    }
}
