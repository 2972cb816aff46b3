//! [`Faulty`]: a source that fails when told to.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;

use super::{Memory, Source};
use crate::error::{AllocError, AllocErrorKind};
use crate::sync::Counter;

/// When a [`Faulty`] source fails.
#[derive(Clone, Copy, Debug)]
enum Rule {
    Never,
    Every(u64),
    Chance { threshold: u64, seed: u64 },
    AfterBytes(u64),
}

/// Wraps a source and makes some of its allocations fail, by a rule that a test can repeat.
///
/// A failed call never reaches the source inside. Calls are numbered across threads, from 1; which
/// thread gets which number is not determined, how many fail is.
#[derive(Debug)]
pub struct Faulty<S> {
    inner: S,
    rule: Rule,
    calls: Counter,
    bytes: Counter,
    failures: Counter,
}

impl<S: Source> Faulty<S> {
    fn new(inner: S, rule: Rule) -> Self {
        Self {
            inner,
            rule,
            calls: Counter::new(),
            bytes: Counter::new(),
            failures: Counter::new(),
        }
    }

    /// Fails no call; counts them.
    pub fn never(inner: S) -> Self {
        Self::new(inner, Rule::Never)
    }

    /// Fails every `k`-th call: `k` = 1 fails all of them, `k` = 0 none.
    pub fn every(inner: S, k: u64) -> Self {
        Self::new(inner, if k == 0 { Rule::Never } else { Rule::Every(k) })
    }

    /// Fails each call with `probability` (clamped to 0..=1). The calls that fail depend on `seed`
    /// and on their number only.
    pub fn with_probability(inner: S, probability: f64, seed: u64) -> Self {
        // A float cast saturates: 1.0 becomes the largest threshold.
        let threshold = (probability.clamp(0.0, 1.0) * u64::MAX as f64) as u64;
        Self::new(inner, Rule::Chance { threshold, seed })
    }

    /// Fails every call that would take the sum of all bytes ever asked for (by calls that were
    /// let through) above `bytes`.
    pub fn after_bytes(inner: S, bytes: u64) -> Self {
        Self::new(inner, Rule::AfterBytes(bytes))
    }

    /// The source inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Calls of `alloc` so far, failed ones included.
    pub fn calls(&self) -> u64 {
        self.calls.get()
    }

    /// Calls failed by the rule so far.
    pub fn failures(&self) -> u64 {
        self.failures.get()
    }

    /// Whether the next call, for `size` bytes, is to fail.
    fn fails(&self, size: usize) -> bool {
        let call = self.calls.tick(1) + 1;
        match self.rule {
            Rule::Never => false,
            Rule::Every(k) => call.is_multiple_of(k),
            Rule::Chance { threshold, seed } => {
                threshold > 0 && splitmix(seed.wrapping_add(call)) <= threshold
            }
            Rule::AfterBytes(most) => !self.bytes.try_add(size as u64, most),
        }
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
            self.failures.add(1);
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
