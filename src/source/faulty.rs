//! [`Faulty`]: a source that fails when told to.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;
use std::sync::Arc;

use super::{Memory, Source};
use crate::error::{AllocError, AllocErrorKind};
use crate::sync::Counter;

/// Which calls fail: those of which any rule says so.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// Every so many; 0 for none.
    every: u64,
    /// The one with this number; 0 for none.
    at: u64,
    /// Those for which a hash of seed and number is at most the threshold; 0 for none.
    threshold: u64,
    seed: u64,
    /// Those that would take the sum of bytes above this.
    most_bytes: u64,
    /// Smaller ones are no concern of the rules.
    least_size: usize,
    /// So many fail, and none after.
    most_failures: u64,
}

/// Wraps a source and makes some of its allocations fail, by rules that a test can repeat: for
/// tests of what programs do when memory is short.
///
/// A failed call never reaches the source inside. Calls are numbered across threads, from 1; which
/// thread gets which number is not determined, how many fail is. Rules are combined by the methods
/// that begin with `and_`; a call fails if any of them says so.
///
/// ```
/// use std::sync::Arc;
/// use ndpool::source::{Faulty, Os};
/// use ndpool::{AllocErrorKind, Pool};
///
/// let source = Arc::new(Faulty::every(Os::new(), 3).and_after_bytes(1 << 20));
/// let pool = Pool::builder().source(Arc::clone(&source)).build();
/// let first = pool.filled(1000, 1.0f64)?;
/// let second = pool.filled(1000, 2.0f64)?;
/// let third = pool.filled(1000, 3.0f64).unwrap_err();
/// assert_eq!(third.kind, AllocErrorKind::SourceFailed);
/// drop(second);
/// assert!(pool.filled(1000, 4.0f64).is_ok(), "what rests needs no source");
/// assert!(pool.filled(1 << 20, 5.0f64).is_err(), "above all bytes");
/// assert_eq!((source.calls(), source.failures()), (4, 2));
/// # drop(first);
/// # Ok::<(), ndpool::AllocError>(())
/// ```
#[derive(Debug)]
pub struct Faulty<S> {
    inner: S,
    rules: Rules,
    /// 1 while the rules are out of force.
    paused: Counter,
    calls: Counter,
    /// Calls that the rules were asked about.
    numbered: Counter,
    bytes: Counter,
    failures: Counter,
}

impl<S: Source> Faulty<S> {
    /// Fails no call; counts them.
    pub fn never(inner: S) -> Self {
        Self {
            inner,
            rules: Rules {
                every: 0,
                at: 0,
                threshold: 0,
                seed: 0,
                most_bytes: u64::MAX,
                least_size: 0,
                most_failures: u64::MAX,
            },
            paused: Counter::new(),
            calls: Counter::new(),
            numbered: Counter::new(),
            bytes: Counter::new(),
            failures: Counter::new(),
        }
    }

    /// Fails every `k`-th call: `k` = 1 fails all of them, `k` = 0 none.
    pub fn every(inner: S, k: u64) -> Self {
        Self::never(inner).and_every(k)
    }

    /// Fails each call with `probability` (clamped to 0..=1). The calls that fail depend on `seed`
    /// and on their number only.
    pub fn with_probability(inner: S, probability: f64, seed: u64) -> Self {
        Self::never(inner).and_with_probability(probability, seed)
    }

    /// Fails every call that would take the sum of all bytes ever asked for (by calls that were
    /// let through) above `bytes`.
    pub fn after_bytes(inner: S, bytes: u64) -> Self {
        Self::never(inner).and_after_bytes(bytes)
    }

    /// Fails also every `k`-th call; 0 takes the rule away.
    #[must_use]
    pub fn and_every(mut self, k: u64) -> Self {
        self.rules.every = k;
        self
    }

    /// Fails also call number `n`, from 1; 0 takes the rule away.
    #[must_use]
    pub fn and_at(mut self, n: u64) -> Self {
        self.rules.at = n;
        self
    }

    /// Fails also each call with `probability`, as [`with_probability`](Self::with_probability).
    #[must_use]
    pub fn and_with_probability(mut self, probability: f64, seed: u64) -> Self {
        // A float cast saturates: 1.0 becomes the largest threshold, and NaN no failure.
        self.rules.threshold = (probability.clamp(0.0, 1.0) * u64::MAX as f64) as u64;
        self.rules.seed = seed;
        self
    }

    /// Fails also what [`after_bytes`](Self::after_bytes) fails.
    #[must_use]
    pub fn and_after_bytes(mut self, bytes: u64) -> Self {
        self.rules.most_bytes = bytes;
        self
    }

    /// Lets calls for fewer than `size` bytes through; they have no number.
    #[must_use]
    pub fn sparing_below(mut self, size: usize) -> Self {
        self.rules.least_size = size;
        self
    }

    /// Fails `failures` calls at most; then memory is to be had again.
    #[must_use]
    pub fn at_most(mut self, failures: u64) -> Self {
        self.rules.most_failures = failures;
        self
    }

    /// Takes the rules out of force, or puts them back: for what a test does before and after the
    /// part that is to fail. Calls meanwhile have no number.
    pub fn pause(&self, paused: bool) {
        self.paused.replace(u64::from(paused));
    }

    /// The source inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Calls of `alloc` so far, failed ones included.
    pub fn calls(&self) -> u64 {
        self.calls.get()
    }

    /// Calls failed by the rules so far.
    pub fn failures(&self) -> u64 {
        self.failures.get()
    }

    /// Whether the next call, for `size` bytes, is to fail.
    fn fails(&self, size: usize) -> bool {
        self.calls.add(1);
        if size < self.rules.least_size || self.paused.get() != 0 {
            return false;
        }
        let number = self.numbered.tick(1) + 1;
        let picked = self.rules.pick(number)
            || self
                .bytes
                .try_add(size as u64, self.rules.most_bytes)
                .is_none();
        picked && self.failures.try_add(1, self.rules.most_failures).is_some()
    }
}

impl<S: Source> Faulty<Arc<S>> {
    /// Runs `program` once for each call that it makes of its source: in the first run the first
    /// call fails, in the second run the second, until a run has no failure. Returns that run's
    /// number: calls plus 1. Each run gets a wrapper of its own around the same source.
    ///
    /// The program is to make the same calls until one fails, and to come to an end.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use ndpool::source::{Faulty, Os};
    /// use ndpool::{AllocError, Pool};
    ///
    /// let runs = Faulty::in_turn(Arc::new(Os::new()), |source| {
    ///     let pool = Pool::builder().source(source).build();
    ///     let program = || -> Result<f64, AllocError> {
    ///         let x = pool.filled(1000, 1.0f64)?;
    ///         let y = pool.copied(&x)?;
    ///         Ok(y.iter().sum())
    ///     };
    ///     assert!(program().is_ok_and(|sum| sum == 1000.0) || pool.audit().is_ok());
    /// });
    /// assert_eq!(runs, 3);
    /// ```
    pub fn in_turn(inner: Arc<S>, mut program: impl FnMut(Arc<Self>)) -> u64 {
        let mut run = 1;
        loop {
            let source = Arc::new(Self::never(Arc::clone(&inner)).and_at(run));
            program(Arc::clone(&source));
            if source.failures() == 0 {
                return run;
            }
            run += 1;
        }
    }
}

impl Rules {
    /// Whether the rules that go by number pick a call.
    fn pick(&self, number: u64) -> bool {
        let every = self.every > 0 && number.is_multiple_of(self.every);
        let by_chance =
            self.threshold > 0 && splitmix(self.seed.wrapping_add(number)) <= self.threshold;
        every || by_chance || number == self.at
    }
}

/// A well-mixed 64-bit function of `x` (Steele, Lea and Flood's splitmix64).
pub(crate) fn splitmix(x: u64) -> u64 {
    let x = x.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

// SAFETY: every block is the inner source's; failing more often breaks no promise.
unsafe impl<S: Source> Source for Faulty<S> {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn footprint(&self, layout: Layout) -> usize {
        self.inner.footprint(layout)
    }

    fn alloc(&self, layout: Layout, zeroed: bool) -> Result<Memory, AllocError> {
        if self.fails(layout.size()) {
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

    unsafe fn discard(&self, base: NonNull<u8>, layout: Layout, token: usize, len: usize) -> bool {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.inner.discard(base, layout, token, len) }
    }
}
