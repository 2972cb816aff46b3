//! Field cases E: the pool's own limit. Never exceeded, refused only when nothing is left to
//! reclaim, with the numbers. Each test is named for the behaviour, with the number of the report.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use ndpool::allocator::Limited;
use ndpool::source::{Faulty, Heap, Mmap, Os, Source};
use ndpool::{AllocError, AllocErrorKind, Buffer, BufferAllocator, Pool, PoolBuilder};

mod field;
use field::{Stop, Watched, alone, at_once, rounds, stamp_once, within};

#[path = "trace_generators/random.rs"]
mod random;
use random::Random;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn footprint(bytes: usize, align: usize) -> usize {
    Os::new().footprint(Layout::from_size_align(bytes, align).unwrap())
}

fn watched(limit: usize) -> (PoolBuilder, Arc<Watched>) {
    let source = Watched::new();
    let builder = Pool::builder().source(Arc::clone(&source)).limit(limit);
    (builder, source)
}

/// The numbers of a refusal add up: what was reserved, and the block, are more than the limit.
fn check_refusal(error: &AllocError, limit: usize) {
    assert_eq!(error.kind, AllocErrorKind::LimitExceeded, "{error}");
    assert_eq!((error.limit, error.refused_by), (limit, "pool"), "{error}");
    let reserved = error.in_use + error.resting;
    assert!(reserved <= limit, "{error}");
    assert!(
        reserved + footprint(error.requested, error.align) > limit,
        "{error}"
    );
}

/// F64: whatever eight threads do, neither the ledger nor the source ever sees more than the limit;
/// what is refused is refused with numbers that add up.
#[test]
fn eight_threads_never_get_more_than_the_limit_f64() {
    const LIMIT: usize = 4 * MIB;
    let (builder, source) = watched(LIMIT);
    let pool = builder.build();
    let (highest, refused) = (AtomicUsize::new(0), AtomicU64::new(0));
    at_once(8, |id| {
        let mut random = Random::new(id as u64);
        let mut kept: Vec<Buffer<_>> = Vec::new();
        for _ in 0..rounds(2_000, 200_000) {
            let bytes = random.size(64, 3 * MIB);
            match pool.allocate::<u8>(bytes) {
                Ok(buffer) => kept.push(buffer),
                Err(error) => {
                    check_refusal(&error, LIMIT);
                    refused.fetch_add(1, Ordering::Relaxed);
                    kept.clear();
                }
            }
            highest.fetch_max(pool.ledger().2, Ordering::Relaxed);
            if kept.len() > 6 {
                kept.swap_remove(random.below(kept.len()));
            }
        }
    });
    assert!(highest.load(Ordering::Relaxed) <= LIMIT);
    assert!(source.highest_bytes() <= LIMIT as i64);
    assert!(refused.load(Ordering::Relaxed) > 0, "the limit was not met");
    pool.audit().unwrap();
    pool.trim();
    assert_eq!((pool.stats().held_bytes, source.live()), (0, 0));
}

/// F65: of two requests for more than half of the limit that start at once, exactly one is served,
/// also where the block of the last round still rests.
#[test]
fn of_two_requests_for_more_than_half_at_once_one_is_served_f65() {
    let bytes = 640 * KIB;
    let (builder, source) = watched(2 * bytes - 1);
    let pool = builder.build();
    let barrier = Barrier::new(2);
    let rounds = rounds(500, 50_000);
    let served = at_once(2, |_| {
        let mut served = 0u64;
        for _ in 0..rounds {
            barrier.wait();
            let buffer = pool.allocate::<u8>(bytes);
            served += u64::from(buffer.is_ok());
            barrier.wait();
        }
        served
    });
    assert_eq!(served.iter().sum::<u64>(), rounds);
    assert!(source.highest_bytes() < 2 * bytes as i64);
}

/// F71, F76: what rests is never a reason to refuse, wherever it rests: in the own cache, in the
/// depot, in the caches of other, idle threads, in small pieces.
#[test]
fn whatever_rests_goes_before_anything_is_refused_f71_f76() {
    const LIMIT: usize = 8 * MIB;
    let (builder, source) = watched(LIMIT);
    let pool = builder.build();
    let fill = || {
        for class in [200, 1_000, 5_000, 16 * KIB, 300 * KIB] {
            let blocks: Vec<_> = (0..8).map(|_| pool.allocate::<u8>(class)).collect();
            assert!(blocks.iter().all(Result::is_ok));
        }
    };
    let (ready, done) = (Barrier::new(4), Barrier::new(4));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                fill();
                ready.wait();
                done.wait();
            });
        }
        ready.wait();
        fill();
        let stats = pool.stats();
        assert!(stats.resting_cached_bytes > 300 * KIB, "{stats}");
        assert!(stats.resting_depot_bytes >= 300 * KIB, "{stats}");
        // All of it, though every byte that rests has to go for it.
        let whole = pool.allocate::<u8>(LIMIT).unwrap();
        assert_eq!(source.live(), 1, "{}", pool.stats());
        drop(whole);
        done.wait();
    });
    pool.audit().unwrap();
}

/// F76: a producer whose blocks are freed into another thread's cache is never refused while what
/// is in use leaves room, whatever the sizes are.
#[test]
fn a_producer_at_the_limit_gets_what_the_consumer_freed_f76() {
    const LIMIT: usize = 4 * MIB;
    let (builder, _source) = watched(LIMIT);
    let pool = builder.build();
    let (send, receive) = std::sync::mpsc::sync_channel::<Buffer<_>>(4);
    thread::scope(|scope| {
        scope.spawn(|| receive.into_iter().for_each(drop));
        let send = send;
        let mut random = Random::new(76);
        for _ in 0..rounds(3_000, 300_000) {
            // Six at most are out at once, of 1/8 of the limit at most.
            let buffer = pool.allocate::<u8>(random.size(1_000, LIMIT / 8));
            send.send(buffer.unwrap()).unwrap();
        }
    });
    pool.audit().unwrap();
}

/// Two trimmers at full speed beside allocations that need what the trimmers have in their hands:
/// none of these is refused, since live bytes leave room for all of them.
#[test]
fn two_trimmers_beside_allocations_at_the_limit_refuse_nothing() {
    const EACH: usize = 256 * KIB;
    let (builder, source) = watched(5 * EACH);
    let pool = builder.reuse_classes(0).build();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    pool.trim();
                    thread::yield_now();
                }
            });
        }
        // Two at a time of two sizes: 512 KiB and 448 KiB at most, and one more on its way home.
        at_once(2, |id| {
            for n in 0..rounds(2_000, 200_000) as usize {
                let bytes = if n % 2 == id { EACH } else { EACH - 32 * KIB };
                if let Err(error) = pool.allocate::<u8>(bytes) {
                    panic!("{error}\n{}", pool.stats());
                }
            }
        });
    });
    assert!(source.highest_bytes() <= 5 * EACH as i64);
}

type Shelf = Arc<Mutex<Vec<Buffer<u8>>>>;

/// The reclaim callback is called with no lock held: it may drop buffers of the pool, allocate from
/// it, trim it and look at it; it is called for as long as it says that it freed something; then
/// the refusal has the numbers.
#[test]
fn the_callback_may_use_the_pool_and_is_called_until_it_frees_nothing() {
    let shelf = Shelf::default();
    let (calls, wanted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
    let place: Arc<OnceLock<Pool>> = Arc::default();
    let (builder, source) = watched(4 * MIB);
    let pool = {
        let (shelf, calls, wanted) = (shelf.clone(), calls.clone(), wanted.clone());
        let place = place.clone();
        builder
            .on_reclaim(move |bytes| {
                calls.fetch_add(1, Ordering::Relaxed);
                wanted.store(bytes, Ordering::Relaxed);
                let one = shelf.lock().unwrap().pop();
                let freed = one.is_some();
                drop(one);
                let pool = place.get().unwrap();
                pool.trim();
                pool.audit().unwrap();
                assert!(pool.stats().held_bytes <= 4 * MIB);
                assert!(pool.filled(100, 1u8).is_ok());
                freed
            })
            .build()
    };
    place.set(pool.clone()).unwrap();
    for _ in 0..7 {
        shelf.lock().unwrap().push(pool.zeroed(512 * KIB).unwrap());
    }
    let one_and_a_half = pool.allocate::<u8>(3 * MIB / 2).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2, "one for each half");
    assert_eq!(wanted.load(Ordering::Relaxed), 3 * MIB / 2);
    assert_eq!(shelf.lock().unwrap().len(), 5);
    let error = pool.allocate::<u8>(4 * MIB).unwrap_err();
    assert_eq!(
        calls.load(Ordering::Relaxed),
        2 + 6,
        "five, and one in vain"
    );
    check_refusal(&error, 4 * MIB);
    assert_eq!(error.requested, 4 * MIB);
    assert!(error.in_use >= 3 * MIB / 2 && error.in_use < 3 * MIB / 2 + 64 * KIB);
    drop(one_and_a_half);
    assert!(source.highest_bytes() <= 4 * MIB as i64);
    // The callback owns a handle of its own pool.
    pool.close();
}

/// A callback that itself asks for more than there is gets its refusal, and does not call itself.
#[test]
fn a_callback_that_meets_the_limit_itself_is_refused_at_once() {
    let place: Arc<OnceLock<Pool>> = Arc::default();
    let calls = Arc::new(AtomicU64::new(0));
    let pool = {
        let (place, calls) = (place.clone(), calls.clone());
        Pool::builder()
            .limit(MIB)
            .on_reclaim(move |_| {
                let call = calls.fetch_add(1, Ordering::Relaxed);
                assert!(call < 10, "the callback calls itself");
                let pool = place.get().unwrap();
                let error = pool.allocate::<u8>(MIB).unwrap_err();
                assert_eq!(error.kind, AllocErrorKind::LimitExceeded);
                false
            })
            .build()
    };
    place.set(pool.clone()).unwrap();
    let _half = pool.allocate::<u8>(512 * KIB).unwrap();
    let error = pool.allocate::<u8>(MIB).unwrap_err();
    check_refusal(&error, MIB);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    pool.close();
}

/// A refusal says what was asked, in use, resting and allowed, and who refused.
#[test]
fn a_refusal_has_the_numbers() {
    let pool = Pool::builder().limit(MIB).build();
    let half = pool.allocate::<u8>(512 * KIB).unwrap();
    drop(pool.allocate::<u8>(256 * KIB).unwrap());
    assert_eq!(pool.stats().headroom_bytes, 256 * KIB);
    let error = pool.allocate::<u64>(96 * KIB).unwrap_err();
    assert_eq!(error.kind, AllocErrorKind::LimitExceeded);
    assert_eq!(error.requested, 768 * KIB);
    assert_eq!((error.in_use, error.resting), (512 * KIB, 0));
    assert_eq!((error.limit, error.refused_by), (MIB, "pool"));
    let text = error.to_string();
    for number in ["786432", "524288", "1048576", "pool"] {
        assert!(text.contains(number), "{text}");
    }
    assert_eq!(half.len(), 512 * KIB);
    assert_eq!(pool.stats().headroom_bytes, 512 * KIB);
}

/// F69: a source that fails after the limit has let a request through leaves no charge behind.
#[test]
fn a_source_that_fails_after_the_limit_leaves_no_charge_f69() {
    let source = Faulty::every(Os::new(), 3);
    let pool = Pool::builder().source(source).limit(MIB).build();
    let mut failed = 0;
    for n in 0..300 {
        match pool.allocate::<u8>(600 * KIB) {
            Ok(buffer) => drop(buffer),
            Err(error) => {
                assert_eq!(error.kind, AllocErrorKind::SourceFailed, "round {n}");
                failed += 1;
            }
        }
        pool.trim();
        assert_eq!(pool.ledger().2, 0, "round {n}");
        assert_eq!(pool.stats().headroom_bytes, MIB);
    }
    assert_eq!(failed, 100);
}

/// F68: for random sizes and alignments, what a birth charges is the footprint of the class, and
/// what the death discharges is the same.
#[test]
fn charge_and_discharge_are_the_footprint_f68() {
    let (builder, source) = watched(usize::MAX);
    // Nothing rests: every request is a birth, every drop a death.
    let pool = builder.cap(0).build();
    let mut random = Random::new(68);
    for _ in 0..rounds(3_000, 100_000) {
        let bytes = random.size(1, 64 * MIB);
        let before = pool.ledger().2;
        let buffer = pool.allocate::<u8>(bytes).unwrap();
        let charged = pool.ledger().2 - before;
        assert_eq!(source.live_bytes(), charged as i64, "{bytes}");
        assert!(charged >= buffer.retained_bytes());
        drop(buffer);
        assert_eq!(
            (pool.ledger().2, source.live_bytes()),
            (before, 0),
            "{bytes}"
        );
    }
}

/// Limits nest over a pool with its own: the error names the node that refused, and a refusal
/// leaves no charge at the nodes above it.
#[test]
fn nested_limits_name_the_node_that_refused() {
    let pool = Pool::builder().limit(MIB).build();
    let inner = Limited::new("tenant", 2 * MIB, pool.clone());
    let outer = Limited::new("request", 3 * MIB, &inner);
    let refuse = |bytes| {
        let layout = Layout::from_size_align(bytes, 8).unwrap();
        let error = outer.allocate(layout).unwrap_err();
        assert_eq!(error.kind, AllocErrorKind::LimitExceeded);
        assert_eq!((outer.used(), inner.used(), pool.ledger().2), (0, 0, 0));
        (error.refused_by, error.limit)
    };
    assert_eq!(refuse(4 * MIB), ("request", 3 * MIB));
    assert_eq!(refuse(5 * MIB / 2), ("tenant", 2 * MIB));
    assert_eq!(refuse(3 * MIB / 2), ("pool", MIB));
    let layout = Layout::from_size_align(MIB, 8).unwrap();
    let block = outer.allocate(layout).unwrap();
    // SAFETY: the block is this allocator's, of this layout.
    unsafe { outer.deallocate(block.cast(), layout) };
    assert_eq!((outer.used(), inner.used()), (0, 0));
}

/// One program on two threads under a low limit: random sizes, a few kept.
fn program(pool: &Pool, limit: usize) {
    at_once(2, |id| {
        let mut random = Random::new(72 + id as u64);
        let mut kept = Vec::new();
        for n in 0..60 {
            match pool.allocate::<u8>(random.size(1, limit / 2)) {
                Ok(buffer) => kept.push(buffer),
                Err(error) => {
                    assert_eq!(error.kind, AllocErrorKind::LimitExceeded, "{error}");
                    kept.clear();
                }
            }
            if kept.len() > 4 {
                kept.swap_remove(random.below(kept.len()));
            }
            if n % 20 == 19 {
                pool.age();
            }
            assert!(pool.ledger().2 <= limit);
        }
    });
}

/// F72: every combination of the options, and so every pair, under a low limit: no assertion, no
/// hang, no byte too many, and everything goes back.
#[test]
fn all_combinations_of_options_work_under_a_low_limit_f72() {
    const LIMIT: usize = MIB;
    fn sourced(kind: usize) -> PoolBuilder {
        match kind {
            0 => Pool::builder().source(Os::new()),
            1 => Pool::builder().source(Heap::new()),
            _ => Pool::builder().source(Mmap::new()),
        }
    }
    let mut random = Random::new(7);
    for case in 0..3 * 3 * 3 * 32 {
        let (source, budget, cap) = (case % 3, case / 3 % 3, case / 9 % 3);
        let bits = case / 27;
        let pick = |bit: u32, no: usize, yes: usize| if bits >> bit & 1 == 1 { yes } else { no };
        let mut builder = sourced(source)
            .limit(LIMIT)
            .cache_budget([0, 64 * KIB, 2 * MIB][budget])
            .cap([0, 256 * KIB, usize::MAX][cap])
            .slack(pick(0, 0, 1) as f64)
            .floor(pick(1, 0, 6 * MIB))
            .reuse_classes(pick(2, 0, 3))
            .max_class(pick(3, 32 * KIB, 1 << 30))
            .window(pick(0, 1, 20_000) as u64)
            .interval(Duration::from_millis(pick(1, 0, 1_000) as u64));
        if bits >> 4 & 1 == 1 {
            builder = builder.trimmer(Duration::from_millis(1 + random.below(3) as u64));
        }
        let pool = builder.build();
        program(&pool, LIMIT);
        let stats = pool.stats();
        assert!(stats.peak_held_bytes <= LIMIT, "case {case}: {stats}");
        pool.trim();
        field::eventually("everything goes home", || pool.ledger().2 == 0);
        pool.audit().unwrap();
    }
}

/// F75: a trim at full speed beside eight threads that allocate at the limit: no block has two
/// owners, none is lost.
#[test]
fn trims_beside_eight_threads_at_the_limit_lose_nothing_f75() {
    within(Duration::from_secs(120), "trims at the limit", || {
        let (builder, source) = watched(2 * MIB);
        let pool = builder.build();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let _stop = Stop(&stop);
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    pool.trim();
                    pool.age();
                }
            });
            at_once(8, |id| {
                let mut random = Random::new(id as u64);
                for n in 0..rounds(3_000, 1_000_000) {
                    // Eight at 128 KiB at most: there is always room.
                    let len = [16, 100, 2_000, 16_000][random.below(4)];
                    stamp_once(&pool, len, n * 8 + id as u64 + 1, n % 64 == 0);
                }
            });
        });
        assert!(source.highest_bytes() <= 2 * MIB as i64);
        pool.audit().unwrap();
        pool.trim();
        assert_eq!(source.live(), 0);
    });
}

/// Without membarrier an idle thread's cache is out of reach: it counts against the limit, with at
/// most the cache budget, until that thread's next operation or its exit; then it goes.
#[test]
fn without_membarrier_an_idle_cache_counts_until_its_owner_moves() {
    const NAME: &str = "without_membarrier_an_idle_cache_counts_until_its_owner_moves";
    if !alone(NAME, true) {
        return;
    }
    let (builder, source) = watched(MIB);
    let pool = builder.build();
    let step = Barrier::new(2);
    thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let blocks: Vec<_> = (0..8).map(|_| pool.allocate::<u8>(16 * KIB)).collect();
            assert!(blocks.iter().all(Result::is_ok));
            drop(blocks);
            step.wait();
            step.wait();
            // Any operation that reaches the cache answers: it flushes first.
            drop(pool.allocate::<u8>(100).unwrap());
            step.wait();
            step.wait();
        });
        step.wait();
        let error = pool.allocate::<u8>(MIB).unwrap_err();
        check_refusal(&error, MIB);
        assert!(source.live_bytes() > 0 && source.live_bytes() <= 2 * MIB as i64);
        step.wait();
        step.wait();
        drop(pool.allocate::<u8>(896 * KIB).unwrap());
        step.wait();
        owner.join().unwrap();
    });
    drop(pool.allocate::<u8>(MIB).unwrap());
    pool.audit().unwrap();
}
