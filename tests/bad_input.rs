//! Bad input, and sources that fail at each step: typed errors, nothing charged, nothing lost.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ndpool::source::{Faulty, Memory, Os, Source};
use ndpool::{AllocError, AllocErrorKind, Buffer, Pool, SharedBuffer, ViewError};

mod field;
use field::{Stop, Watched, at_once, watched};

const MOST: usize = isize::MAX as usize;

/// What a pool over a source of our own holds, by its own account and the source's.
fn assert_nothing_held(pool: &Pool, source: &Watched) {
    assert_eq!(pool.stats().held_bytes, 0, "{pool:?}");
    assert_eq!((source.live(), source.live_bytes()), (0, 0));
}

#[test]
fn sizes_that_cannot_be_are_typed_errors_without_a_source_call_f78() {
    let (pool, source) = watched();
    let bytes = [
        (usize::MAX, AllocErrorKind::Overflow),
        (usize::MAX - 1, AllocErrorKind::Overflow),
        (usize::MAX - 100, AllocErrorKind::Overflow),
        (MOST + 1, AllocErrorKind::Overflow),
        (MOST, AllocErrorKind::TooLarge),
        (MOST - 1, AllocErrorKind::TooLarge),
        (MOST - 4096, AllocErrorKind::TooLarge),
    ];
    for (len, kind) in bytes {
        let errors = [
            pool.allocate::<u8>(len).unwrap_err(),
            pool.zeroed::<u8>(len).unwrap_err(),
            pool.filled(len, 1u8).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind, kind, "{len:#x}");
            assert!(!error.to_string().is_empty());
        }
    }
    assert_eq!(source.births(), 0);
    assert_nothing_held(&pool, &source);
}

#[test]
fn counts_whose_bytes_overflow_are_typed_errors() {
    let (pool, source) = watched();
    for len in [
        usize::MAX,
        usize::MAX / 8,
        usize::MAX / 8 + 1,
        usize::MAX / 8 + 2,
        MOST / 8 + 1,
    ] {
        let error = pool.allocate::<u64>(len).unwrap_err();
        assert_eq!(error.kind, AllocErrorKind::Overflow, "{len:#x}");
        assert_eq!((error.requested, error.align), (usize::MAX, 8));
        assert!(pool.zeroed::<[u64; 1024]>(len).is_err());
        let mut small = pool.filled(3, 1u64).unwrap();
        let place = small.as_ptr();
        assert_eq!(
            small.resize(len, 2).unwrap_err().kind,
            AllocErrorKind::Overflow
        );
        assert_eq!((small.as_ptr(), &small[..]), (place, &[1u64, 1, 1][..]));
    }
    pool.trim();
    assert_nothing_held(&pool, &source);
}

/// An iterator that promises more than there can be.
struct Liar;

impl Iterator for Liar {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        None
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

#[test]
fn iterators_that_lie_are_errors_or_harmless() {
    let (pool, source) = watched();
    assert_eq!(
        pool.collect(Liar).unwrap_err().kind,
        AllocErrorKind::Overflow
    );
    let few = pool.collect((0..1000u64).filter(|n| n % 7 == 0)).unwrap();
    assert_eq!(few.len(), 143);
    assert!(few.iter().enumerate().all(|(n, &x)| x == n as u64 * 7));
    drop(few);
    pool.trim();
    assert_nothing_held(&pool, &source);
}

/// Elements without bytes: any number of them fits, and none costs anything, time included.
#[test]
fn elements_without_bytes_cost_nothing() {
    let (pool, source) = watched();
    let mut units = pool.zeroed::<()>(usize::MAX).unwrap();
    assert_eq!((units.len(), units.capacity()), (usize::MAX, usize::MAX));
    units.truncate(3);
    units.resize(usize::MAX - 1, ()).unwrap();
    assert_eq!(units.len(), usize::MAX - 1);
    // More than the lower bound of the size hint.
    let collected = pool
        .collect((0..10).filter(|n| n % 2 == 0).map(|_| ()))
        .unwrap();
    assert_eq!(collected.len(), 5);
    let shared = collected.share();
    let handle = shared.handle();
    assert_eq!(shared.slice(1..4).unwrap().len(), 3);
    assert_eq!(handle.upgrade::<()>().unwrap().len(), 5);
    assert_eq!(source.births(), 0);
}

/// Size 0: a buffer like any other, that never touches the source.
#[test]
fn nothing_is_a_size_like_any_other_f77() {
    let (pool, source) = watched();
    at_once(8, |_| {
        for round in 0..2_000 {
            let empty = pool.allocate::<u64>(0).unwrap();
            assert!(empty.is_empty());
            assert!(empty.as_ptr().addr().is_multiple_of(ndpool::MIN_ALIGN));
            let mut zeroed = pool.zeroed::<u8>(0).unwrap();
            assert_eq!(zeroed.as_mut(), [0u8; 0]);
            let shared = zeroed.share();
            assert_eq!(shared.owners(), 1);
            assert!(shared.handle().upgrade::<u8>().unwrap().is_empty());
            assert!(shared.try_unique().is_ok());
            if round % 100 == 0 {
                let mut grown = pool.copied::<u32>(&[]).unwrap();
                assert_eq!(grown.capacity(), 0);
                grown.resize(3, 7).unwrap();
                assert_eq!(&grown[..], [7, 7, 7]);
            }
        }
    });
    assert!(
        source.births() <= 8,
        "one block a thread, of the grown ones"
    );
    pool.trim();
    assert_nothing_held(&pool, &source);
}

/// A request that can never be served leaves no trace: neither in what is held, nor in the peak
/// from which the footprint promise is computed, nor in the blocks that rest.
#[test]
fn a_failed_giant_does_not_void_the_footprint_promise() {
    const MIB: usize = 1 << 20;
    let source = Watched::new();
    let pool = Pool::builder()
        .source(Arc::clone(&source))
        .slack(0.0)
        .cache_budget(0)
        .build();
    for len in [MOST / 2, MOST / 4, 1 << 50] {
        let error = pool.allocate::<u8>(len).unwrap_err();
        assert_eq!(error.kind, AllocErrorKind::SourceFailed, "{error}");
        assert_eq!(error.requested, len.next_multiple_of(4096));
    }
    // Blocks of many sizes in turn, one at a time: with no slack, what is held stays within the
    // recent peak of what is in use, rounded to classes: 16 MiB here.
    for mib in (1..=16).chain((1..=16).rev()) {
        drop(pool.zeroed::<u8>(mib * MIB).unwrap());
    }
    let highest = source.highest_bytes() as usize;
    assert!(highest <= 20 * MIB, "{} MiB were held", highest / MIB);
    pool.trim();
    assert_nothing_held(&pool, &source);
}

/// Two mebibytes are asked for on one thread while others ask for what cannot be: they do not
/// refuse each other's requests.
#[test]
fn giants_beside_ordinary_requests_fail_alone() {
    let (pool, source) = watched();
    let done = AtomicBool::new(false);
    at_once(3, |id| {
        if id == 0 {
            let _stop = Stop(&done);
            for round in 0..500 {
                let held: Vec<_> = (0..4)
                    .map(|n| pool.zeroed::<u8>((round % 8 + n + 1) << 18).unwrap())
                    .collect();
                drop(held);
            }
        }
        while id > 0 && !done.load(Ordering::Relaxed) {
            assert!(pool.allocate::<u8>(MOST / 2).is_err());
        }
    });
    pool.trim();
    assert_nothing_held(&pool, &source);
}

/// A source that serves blocks of 64 KiB at most, and says so.
struct Small(Os);

// SAFETY: every block is the inner source's.
unsafe impl Source for Small {
    fn name(&self) -> &'static str {
        "small"
    }

    fn footprint(&self, layout: Layout) -> usize {
        if layout.size() > 64 << 10 {
            usize::MAX
        } else {
            self.0.footprint(layout)
        }
    }

    fn alloc(&self, layout: Layout, zeroed: bool) -> Result<Memory, AllocError> {
        if layout.size() > 64 << 10 {
            let kind = AllocErrorKind::TooLarge;
            return Err(AllocError::new(
                kind,
                layout.size(),
                layout.align(),
                "small",
            ));
        }
        self.0.alloc(layout, zeroed)
    }

    unsafe fn dealloc(&self, base: NonNull<u8>, layout: Layout, token: usize) {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.0.dealloc(base, layout, token) }
    }
}

/// A source may say of a layout that it cannot serve it: `usize::MAX` is its footprint.
#[test]
fn a_source_that_cannot_serve_a_size_makes_it_a_typed_error() {
    let pool = Pool::builder().source(Small(Os::new())).build();
    let small = pool.filled(60_000, 1u8).unwrap();
    for len in [(64 << 10) + 1, 1 << 20, 2 << 30] {
        let error = pool.allocate::<u8>(len).unwrap_err();
        assert_eq!(error.kind, AllocErrorKind::TooLarge, "{error}");
    }
    // What rests was not sent home for it.
    let place = small.as_ptr();
    drop(small);
    assert!(pool.allocate::<u8>(1 << 20).is_err());
    assert_eq!(pool.allocate::<u8>(60_000).unwrap().as_ptr().cast(), place);
}

/// A program that takes, shares, grows, copies and writes; fails at whatever step the source does.
fn program(pool: &Pool) -> Result<u64, AllocError> {
    let mut buffer = pool.collect(0..100u64)?;
    buffer.resize(10_000, 1)?;
    let shared = buffer.share();
    let mut copy = shared.clone();
    copy.make_mut()?[0] = 5;
    let oversized = pool.zeroed::<u64>(1 << 20)?;
    let own = shared.copied()?;
    let empty = pool.zeroed::<u64>(0)?;
    let token = copy.into_token().expect("leases are not the source's");
    let copy = token.redeem::<u64>().expect("a live token");
    Ok(copy.iter().sum::<u64>() + own[99] + oversized[0] + empty.len() as u64)
}

/// The source fails at its first call, at its second, and so on: each time a typed error, nothing
/// charged and nothing lost; and then the same pool serves the same program.
#[test]
fn a_source_that_fails_at_each_step_loses_nothing_f27() {
    let total = {
        let source = Arc::new(Faulty::never(Watched::default()));
        let pool = builder().source(Arc::clone(&source)).build();
        assert_eq!(program(&pool), Ok(4950 + 9_900 + 5 + 99));
        source.calls()
    };
    assert!(total >= 4, "{total} source calls");
    for step in 1..=total {
        let source = Arc::new(FailsAt::new(step as usize));
        let pool = builder().source(Arc::clone(&source)).build();
        let error = program(&pool).unwrap_err();
        assert_eq!(error.kind, AllocErrorKind::SourceFailed, "step {step}");
        assert_eq!(error.refused_by, "fails at");
        pool.trim();
        assert_nothing_held(&pool, &source.inner);
        assert_eq!(
            program(&pool),
            Ok(4950 + 9_900 + 5 + 99),
            "after step {step}"
        );
        pool.trim();
        assert_nothing_held(&pool, &source.inner);
    }
}

fn builder() -> ndpool::PoolBuilder {
    Pool::builder().max_class(1 << 20)
}

/// Fails its `step`-th call, and only that.
struct FailsAt {
    inner: Watched,
    step: usize,
    calls: AtomicUsize,
}

impl FailsAt {
    fn new(step: usize) -> Self {
        Self {
            inner: Watched::default(),
            step,
            calls: AtomicUsize::new(0),
        }
    }
}

// SAFETY: every block is the inner source's; failing more often breaks no promise.
unsafe impl Source for FailsAt {
    fn name(&self) -> &'static str {
        "fails at"
    }

    fn footprint(&self, layout: Layout) -> usize {
        self.inner.footprint(layout)
    }

    fn alloc(&self, layout: Layout, zeroed: bool) -> Result<Memory, AllocError> {
        if self.calls.fetch_add(1, Ordering::Relaxed) + 1 == self.step {
            let kind = AllocErrorKind::SourceFailed;
            return Err(AllocError::new(
                kind,
                layout.size(),
                layout.align(),
                self.name(),
            ));
        }
        self.inner.alloc(layout, zeroed)
    }

    unsafe fn dealloc(&self, base: NonNull<u8>, layout: Layout, token: usize) {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.inner.dealloc(base, layout, token) }
    }
}

/// Failures by chance, on four threads at once: whatever failed, the accounts agree afterwards.
#[test]
fn a_source_that_fails_by_chance_under_threads_loses_nothing() {
    let source = Arc::new(Faulty::with_probability(Watched::default(), 0.3, 7));
    let pool = builder().source(Arc::clone(&source)).build();
    let done: usize = at_once(4, |_| {
        (0..200)
            .filter(|round| {
                if round % 16 == 0 {
                    pool.trim();
                }
                program(&pool).is_ok()
            })
            .count()
    })
    .into_iter()
    .sum();
    assert!(source.failures() > 0);
    assert!(done > 0 && done < 800, "{done} of 800");
    pool.trim();
    assert_nothing_held(&pool, source.inner());
}

/// Every alignment that a type can have, up to the largest ones: served, or refused by type.
#[test]
fn over_aligned_elements_are_aligned() {
    macro_rules! check {
        ($($align:literal)*) => {$({
            #[derive(Clone, Copy)]
            #[repr(align($align))]
            struct Wide(#[allow(dead_code)] u8);
            // SAFETY: plain bytes, valid when zero.
            unsafe impl bytemuck::Zeroable for Wide {}
            let (pool, source) = watched();
            for _ in 0..3 {
                let wide = pool.zeroed::<Wide>(3).unwrap();
                assert!(wide.as_ptr().addr().is_multiple_of($align));
                assert_eq!(wide.len(), 3);
                let shared = wide.share();
                assert!(shared.as_ptr().addr().is_multiple_of($align));
                let copy = shared.copied().unwrap();
                assert!(copy.as_ptr().addr().is_multiple_of($align));
            }
            pool.trim();
            assert_nothing_held(&pool, &source);
        })*};
    }
    check!(1 2 64 128 256 4096 8192 2097152 4194304);
}

#[test]
fn a_builder_takes_any_numbers() {
    for (max_class, cap, limit, slack, window, budget) in [
        (0, 0, 0, f64::NAN, 0, 0),
        (
            usize::MAX,
            usize::MAX,
            usize::MAX,
            f64::INFINITY,
            u64::MAX,
            usize::MAX,
        ),
        (1, 1, 1, -1.0, 1, 1),
        (MOST + 1, MOST, MOST, 1e300, 2, MOST),
    ] {
        let source = Watched::new();
        let pool = Pool::builder()
            .source(Arc::clone(&source))
            .max_class(max_class)
            .cap(cap)
            .limit(limit)
            .slack(slack)
            .window(window)
            .cache_budget(budget)
            .build();
        for len in [0, 1, 64, 65, 5000, 1 << 20] {
            for _ in 0..3 {
                match pool.filled(len, 9u8) {
                    Ok(buffer) => assert!(buffer.iter().all(|&byte| byte == 9)),
                    Err(error) => {
                        assert_eq!(error.kind, AllocErrorKind::LimitExceeded);
                        assert!(limit < 128 && len > 0, "{error}");
                        assert_eq!(error.limit, limit);
                    }
                }
            }
        }
        pool.trim();
        assert_nothing_held(&pool, &source);
    }
}

#[test]
fn ranges_and_types_that_do_not_fit_are_typed_errors() {
    let pool = Pool::new();
    let shared = pool.filled(10, 0u16).unwrap().share();
    for (start, end) in [
        (0, 11),
        (11, 11),
        (5, 4),
        (usize::MAX, usize::MAX),
        (0, usize::MAX),
    ] {
        let error = shared.slice(start..end).unwrap_err();
        assert_eq!(
            error,
            ViewError::OutOfRange {
                start,
                end,
                len: 10
            }
        );
    }
    assert!(shared.slice(0..=usize::MAX).is_err());
    assert!(
        shared
            .slice((
                std::ops::Bound::Excluded(usize::MAX),
                std::ops::Bound::Unbounded
            ))
            .is_err()
    );
    assert_eq!(shared.slice(10..).unwrap().len(), 0);
    assert!(matches!(
        shared.reinterpret::<[u8; 3]>(),
        Err(ViewError::Size { bytes: 20, size: 3 })
    ));
    assert!(matches!(
        shared.reinterpret::<()>(),
        Err(ViewError::Size { size: 0, .. })
    ));
    let odd = shared.slice(1..9).unwrap();
    assert!(matches!(
        odd.reinterpret::<u64>(),
        Err(ViewError::Align { align: 8, .. })
    ));
    assert_eq!(shared.owners(), 2, "refused views count nobody");
}

#[test]
fn initialisers_that_panic_give_the_memory_back() {
    let (pool, source) = watched();
    for _ in 0..3 {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            pool.allocate::<u32>(1000)
                .unwrap()
                .fill_with(|index| if index == 500 { panic!("planted") } else { 1 })
        }));
        assert!(panicked.is_err());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            pool.allocate::<u32>(1000)
                .unwrap()
                .write_copy_of(&[1, 2, 3])
        }));
        assert!(panicked.is_err());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            pool.collect((0..1000u32).inspect(|&n| assert!(n < 500, "planted")))
        }));
        assert!(panicked.is_err());
    }
    assert_eq!(source.births(), 1, "the same memory served all of them");
    pool.trim();
    assert_nothing_held(&pool, &source);
}

/// Release code that panics: on this drop and the next, what the pool counts is right, and each
/// piece of foreign memory is released once.
#[test]
fn release_code_that_panics_is_counted_and_called_once() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    static DATA: [u8; 4] = [1, 2, 3, 4];
    struct Panicky(Vec<u8>);
    impl Drop for Panicky {
        fn drop(&mut self) {
            CALLS.fetch_add(1, Ordering::Relaxed);
            panic!("planted");
        }
    }
    impl AsRef<[u8]> for Panicky {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let before = ndpool::report::emitted();
    let shared = SharedBuffer::from_owner(Panicky(vec![1, 2, 3])).unwrap();
    let (handle, clone) = (shared.handle(), shared.clone());
    drop(shared);
    assert_eq!((CALLS.load(Ordering::Relaxed), clone[2]), (0, 3));
    drop(clone);
    assert!(handle.is_released());
    let ptr = NonNull::from(&DATA[..]).cast::<u8>();
    let release = |_, _| {
        CALLS.fetch_add(1, Ordering::Relaxed);
        panic!("planted");
    };
    // SAFETY: static data, read only.
    let raw = unsafe { SharedBuffer::from_raw_parts(ptr, 4, release) }.unwrap();
    let token = raw.into_token().unwrap();
    assert_eq!(token.release(), Ok(()));
    assert!(token.release().is_err());
    assert_eq!(CALLS.load(Ordering::Relaxed), 2);
    assert!(ndpool::report::emitted() >= before + 2);
    let buffer: Buffer<u8> = Pool::new().filled(4, 1u8).unwrap();
    assert_eq!(buffer[3], 1);
}
