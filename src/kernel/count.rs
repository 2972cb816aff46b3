//! The published count, cured: for control cells that are *never* recycled.
//!
//! One signed number: owners, or -1 once released. A release decrements first; who brings the
//! count to 0 then claims the cell by exchanging 0 for -1, and only the claimant frees. Between
//! the two steps a racing add may take the cell back, and the claim fails. A release by someone
//! who owns nothing (a *stray*) finds 0 or less and takes its decrement back.
//!
//! As published this leaks: a stray's decrement between the two steps makes the claim fail, and
//! its compensation restores a 0 that nobody looks at. The cure: whoever compensates and arrives
//! at 0 tries the claim itself, and counts start at 1, so that a 0 is always somebody's to claim.
//!
//! What no count can cure: a stray while others own takes the place of one of their releases. And
//! on a recycled word the decrement and its compensation may fall on two lives of it; such a word
//! leaks, or gets two owners. Blocks of the pool are recycled, so they count by
//! [`State`](super::state::State) instead, whose owners cannot release twice.

use super::sync::{AtomicU32, Ordering, const_fn};
use super::tuning::OWNERS_LIMIT;

/// The count of a released cell.
const RELEASED: u32 = -1_i32 as u32;
/// The count of an immortal cell, as far from the limit as from the end of its band, so that
/// decrements begun before it was written cannot leave the band.
const IMMORTAL: u32 = OWNERS_LIMIT + OWNERS_LIMIT / 2;

/// What the caller of [`RefCount::release`] owes.
#[must_use = "who is told `Claimed` must free what the count guards"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The cell is this caller's to free: it is told so exactly once per cell.
    Claimed,
    /// Others own the cell, or will claim it, or it is immortal: nothing.
    Shared,
    /// Nothing was owned: the release was one too many and has been taken back.
    Stray,
}

/// The add was refused: the cell is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the counted cell is released")]
pub struct Refused;

/// A count of owners that knows who frees. Lives as long as its cell may be asked, which may be
/// longer than what it guards.
///
/// ```
/// use ndpool::count::{RefCount, Released};
///
/// let count = RefCount::new();
/// count.try_add().unwrap();
/// assert_eq!(count.count(), 2);
/// assert_eq!(count.release(), Released::Shared);
/// assert_eq!(count.release(), Released::Claimed);
/// assert_eq!(count.release(), Released::Stray);
/// assert_eq!(count.count(), -1);
/// assert!(count.try_add().is_err());
/// ```
#[derive(Debug)]
#[repr(transparent)]
pub struct RefCount(AtomicU32);

impl RefCount {
    const_fn! {
        /// A cell with one owner: the caller.
        pub fn new() -> RefCount {
            RefCount(AtomicU32::new(1))
        }

        /// A cell around memory that is never freed: every add is granted, no release counts.
        pub fn immortal() -> RefCount {
            RefCount(AtomicU32::new(IMMORTAL))
        }
    }

    /// An owner more, unless the cell is released. Lock-free. At 2^30 owners the cell becomes
    /// immortal: it leaks, but is never freed under an owner.
    ///
    /// # Errors
    /// [`Refused`] once released. A stray that is being taken back can have the same effect on a
    /// cell without owners, which is about to be claimed.
    pub fn try_add(&self) -> Result<(), Refused> {
        let mut seen = self.load();
        loop {
            if is_immortal(seen) {
                return Ok(());
            }
            if is_negative(seen) {
                return Err(Refused);
            }
            let next = if seen + 1 >= OWNERS_LIMIT {
                IMMORTAL
            } else {
                seen + 1
            };
            // Ordering: Relaxed - who can reach the cell sees what was written before it was
            // handed out; an owner more orders nothing.
            match self
                .0
                .compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }

    /// An owner releases. Wait-free.
    #[inline]
    pub fn release(&self) -> Released {
        if is_immortal(self.load()) {
            return Released::Shared;
        }
        // Ordering: Release - E30, with `claim`: what this owner did is done before the free.
        let before = self.0.fetch_sub(1, Ordering::Release);
        match before as i32 {
            ..=0 => self.compensate(),
            1 if self.claim() => Released::Claimed,
            _ => Released::Shared,
        }
    }

    /// Releases the cell whatever its count. Owners that are left find their releases stray, and
    /// every add is refused from here on; whoever puts memory behind a count must see to it, as
    /// an unsafe operation, that none of them touches it. An immortal cell stays as it is.
    pub fn force_release(&self) -> Released {
        let mut seen = self.load();
        loop {
            if is_immortal(seen) {
                return Released::Shared;
            }
            if is_negative(seen) {
                return Released::Stray;
            }
            // Ordering: Acquire - E30, with `release`: who has released is done.
            match self
                .0
                .compare_exchange_weak(seen, RELEASED, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Released::Claimed,
                Err(now) => seen = now,
            }
        }
    }

    /// Whether the cell was released, now or shortly before. While a stray is being taken back
    /// from a cell without owners, it may read so a moment too early.
    #[must_use]
    pub fn is_released(&self) -> bool {
        is_negative(self.load())
    }

    /// Whether adds and releases no longer count.
    #[must_use]
    pub fn is_immortal(&self) -> bool {
        is_immortal(self.load())
    }

    /// Number of owners, now or shortly before; -1 when released, 2^30 or more when immortal.
    #[must_use]
    pub fn count(&self) -> i32 {
        (self.load() as i32).max(-1)
    }

    /// Number of owners, now or shortly before; 0 when released.
    #[must_use]
    pub fn owners(&self) -> u32 {
        self.count().max(0) as u32
    }

    fn load(&self) -> u32 {
        // Ordering: Relaxed - a look; every decision is made again by the RMW that follows it.
        self.0.load(Ordering::Relaxed)
    }

    /// 0 -> -1: `true` for the one who frees.
    fn claim(&self) -> bool {
        // Ordering: Acquire - E30, with every `release` before: those owners are done.
        self.0
            .compare_exchange(0, RELEASED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes a stray decrement back. If that restores a 0, a claim may have failed meanwhile.
    #[cold]
    fn compensate(&self) -> Released {
        // Ordering: Relaxed - undoes a number; `claim` orders what it needs itself.
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        if cfg!(planted_leak) {
            // As published: what the fuzzer must find, see `ci/planted`.
            return Released::Stray;
        }
        if before == RELEASED && self.claim() {
            Released::Claimed
        } else {
            Released::Stray
        }
    }
}

impl Default for RefCount {
    fn default() -> Self {
        Self::new()
    }
}

const fn is_negative(count: u32) -> bool {
    (count as i32) < 0
}

const fn is_immortal(count: u32) -> bool {
    count as i32 >= OWNERS_LIMIT as i32
}
