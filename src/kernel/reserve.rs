//! The reservation word of a limit: bytes charged, never above the limit that a charge names.

use super::sync::{AtomicUsize, Ordering, const_fn};

/// Bytes charged so far. Check and charge are one CAS, so no two charges can pass one check.
#[derive(Debug)]
#[repr(transparent)]
pub struct Reserve(AtomicUsize);

impl Reserve {
    const_fn! {
        /// Nothing is charged.
        pub fn new() -> Reserve {
            Reserve(AtomicUsize::new(0))
        }
    }

    /// Charges `n` bytes if the sum stays within `limit`: `Ok` with the sum, or `Err` with the
    /// bytes that were charged when it was refused. Lock-free.
    #[inline]
    pub fn try_reserve(&self, n: usize, limit: usize) -> Result<usize, usize> {
        let mut seen = self.used();
        loop {
            let sum = seen.checked_add(n).filter(|&sum| sum <= limit);
            // A refusal is a CAS too, which changes nothing: a look alone may be out of date.
            // Ordering: Acquire - E40, with `release`: the memory whose charge makes room for this
            // one is back at its source, so what is really held stays within the limit as well.
            match self.0.compare_exchange_weak(
                seen,
                sum.unwrap_or(seen),
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return sum.ok_or(seen),
                Err(now) => seen = now,
            }
        }
    }

    /// Takes back a charge of `n` bytes; the memory must be back already. Wait-free.
    #[inline]
    pub fn release(&self, n: usize) {
        // Ordering: Release - E40, with `try_reserve`: the memory went back before its charge.
        let before = self.0.fetch_sub(n, Ordering::Release);
        debug_assert!(before >= n, "took back {n} bytes of {before} charged");
    }

    /// Bytes charged now, or shortly before.
    #[inline]
    pub fn used(&self) -> usize {
        // Ordering: Relaxed - a look; every decision is made again by the RMW that follows it.
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for Reserve {
    fn default() -> Self {
        Self::new()
    }
}
