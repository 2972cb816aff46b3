//! The state word of a control block: who owns it, and which life of the block it is.
//!
//! 64 bits: `owners - 1` in the high half, generation in the low half. "Released" is literally -1,
//! so the last release is the transition 0 -> -1 and is itself the claim: one `fetch_sub`,
//! wait-free, with no window between the decrement and the claim. Neither under- nor overflow of
//! the high half reaches the generation. Each method is one row of [`TABLE`].

use super::sync::{AtomicU64, Ordering, before_fence, const_fn, fence, set};
use super::tuning::{LAST_GENERATION, OWNERS_LIMIT};

/// One owner, in the high half.
const ONE: u64 = 1 << 32;
/// Stored count (owners - 1) of a saturated block: far from both ends of its band.
const SATURATED: u32 = OWNERS_LIMIT + OWNERS_LIMIT / 2;
/// How far concurrent adds and releases may drift from [`SATURATED`] before it is written anew.
const DRIFT: u32 = OWNERS_LIMIT / 4;

/// One row of the transition table, as documented in `docs/protocol.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Number of the transition.
    pub id: &'static str,
    /// Owners and generation before.
    pub from: &'static str,
    /// What happens.
    pub operation: &'static str,
    /// Owners and generation after.
    pub to: &'static str,
    /// The atomic operation.
    pub how: &'static str,
}

const fn row(
    id: &'static str,
    from: &'static str,
    operation: &'static str,
    to: &'static str,
    how: &'static str,
) -> Row {
    Row {
        id,
        from,
        operation,
        to,
        how,
    }
}

/// Every transition that a state word can make.
pub const TABLE: [Row; 10] = [
    row(
        "T1",
        "released, g",
        "share a unique buffer",
        "1 owner, g+1",
        "store",
    ),
    row("T2", "n >= 1, g", "owner adds", "n+1, g", "fetch_add"),
    row(
        "T3",
        "n >= 1, g",
        "upgrade of a handle of generation g",
        "n+1, g",
        "CAS",
    ),
    row(
        "T4",
        "other generation, or released",
        "upgrade",
        "unchanged: stale",
        "load",
    ),
    row("T5", "n >= 2, g", "owner releases", "n-1, g", "fetch_sub"),
    row(
        "T6",
        "1, g",
        "owner releases: the claim",
        "released, g",
        "fetch_sub",
    ),
    row("T7", "1, g", "take back unique", "released, g", "CAS"),
    row("T8", "n >= 1, g", "forced release", "released, g", "CAS"),
    row("T9", "n at the limit", "owner adds", "saturated, g", "swap"),
    row(
        "T10",
        "released, last generation",
        "towards a next generation",
        "the control block retires",
        "none",
    ),
];

/// A decoded state word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot(u64);

impl Snapshot {
    const fn pack(stored: u32, generation: u32) -> u64 {
        ((stored as u64) << 32) | generation as u64
    }

    /// Owners minus one; -1 is released.
    #[inline]
    #[must_use]
    pub const fn stored(self) -> i32 {
        (self.0 >> 32) as i32
    }

    /// Life of the control block.
    #[inline]
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.0 as u32
    }

    /// Whether nobody owns a share of the block. (A unique buffer may.)
    #[inline]
    #[must_use]
    pub const fn is_released(self) -> bool {
        self.stored() < 0
    }

    /// Whether the block is immortal: borrowed for ever, or its count reached the limit.
    #[inline]
    #[must_use]
    pub const fn is_saturated(self) -> bool {
        self.stored() >= OWNERS_LIMIT as i32
    }

    /// Number of owners; 0 when released.
    #[inline]
    #[must_use]
    pub const fn owners(self) -> u32 {
        if self.is_released() {
            0
        } else {
            self.stored() as u32 + 1
        }
    }
}

/// What the caller owes after a release.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// Others own the block still, or it is immortal: nothing.
    Shared,
    /// That was the last owner: the caller gives the block back.
    Last {
        /// The block has had its last generation and must retire (T10).
        retire: bool,
    },
}

/// The handle's block is in another life, or released: refused without a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale;

/// The block has had its last generation (T10): it must retire, and its payload get a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// The state word.
#[derive(Debug)]
#[repr(transparent)]
pub struct State(AtomicU64);

impl State {
    const_fn! {
        /// A word that is released, in generation 0.
        pub fn new() -> State {
            State(AtomicU64::new(Snapshot::pack(u32::MAX, 0)))
        }

        /// A word that is released, in `generation`; for tests of the last generations.
        pub fn at_generation(generation: u32) -> State {
            State(AtomicU64::new(Snapshot::pack(u32::MAX, generation)))
        }
    }

    const_fn! {
        /// A word that is immortal from the start.
        pub fn immortal() -> State {
            State(AtomicU64::new(Snapshot::pack(SATURATED, 1)))
        }
    }

    /// The word now, or shortly before.
    #[inline]
    pub fn load(&self) -> Snapshot {
        // Ordering: Relaxed - a look; every decision is made again by the RMW that follows it.
        Snapshot(self.0.load(Ordering::Relaxed))
    }

    /// Goes on to a later generation at once; for tests of the last ones.
    #[cfg(test)]
    pub fn skip_to(&self, generation: u32) {
        debug_assert!(self.load().is_released(), "a block that has owners");
        let later = Snapshot::pack(u32::MAX, generation);
        // Ordering: Relaxed - the block is its unique owner's, who publishes it by `enter`.
        set(&self.0, later, Ordering::Relaxed);
    }

    /// T1, T10: the unique owner, who has written the block's shared fields, becomes its first
    /// counted owner in a new generation, if there is one left.
    #[inline]
    pub fn share(&self) -> Result<u32, Exhausted> {
        self.enter(0)
    }

    /// T1 with T9: like [`share`](Self::share), but immortal from the start.
    pub fn share_saturated(&self) -> Result<u32, Exhausted> {
        self.enter(SATURATED)
    }

    /// T1: begins the next generation with `stored + 1` owners.
    #[inline]
    fn enter(&self, stored: u32) -> Result<u32, Exhausted> {
        let before = self.load();
        debug_assert!(before.is_released(), "shared a block that has owners");
        let last = before.generation();
        if last == LAST_GENERATION {
            return Err(Exhausted);
        }
        let first = Snapshot::pack(stored, last + 1);
        // Ordering: Release - E1, with `upgrade`: publishes length, element type and payload. Nobody
        // else changes a released word: what may be stale compares first.
        set(&self.0, first, Ordering::Release);
        Ok(last + 1)
    }

    /// T2, T9: an owner adds one. Wait-free.
    #[inline]
    pub fn add(&self) {
        // Ordering: Relaxed - the new owner is handed over by the old one, with what it can see.
        let before = Snapshot(self.0.fetch_add(ONE, Ordering::Relaxed));
        debug_assert!(!before.is_released(), "added an owner to a released block");
        if before.stored() >= OWNERS_LIMIT as i32 - 1 {
            self.saturate(before);
        }
    }

    /// T3, T4: an owner more, if the block is still in `generation` and has one.
    #[inline]
    pub fn upgrade(&self, generation: u32) -> Result<(), Stale> {
        let mut seen = self.load();
        loop {
            if seen.generation() != generation || seen.is_released() {
                return Err(Stale);
            }
            // Ordering: Acquire - E1, with `enter`: length, element type and payload are visible,
            // though the handle may have come by a channel that orders nothing.
            match self.0.compare_exchange_weak(
                seen.0,
                seen.0 + ONE,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    if seen.stored() >= OWNERS_LIMIT as i32 - 1 {
                        self.saturate(seen);
                    }
                    return Ok(());
                }
                Err(now) => seen = Snapshot(now),
            }
        }
    }

    /// T5, T6: an owner releases; the last one has thereby claimed the block.
    #[inline]
    pub fn release(&self) -> Released {
        // Ordering: Release - E2, with the last release: what this owner did to the payload is
        // done before the block is given back.
        let before = Snapshot(self.0.fetch_sub(ONE, Ordering::Release));
        debug_assert!(!before.is_released(), "released a block that nobody owned");
        // Only a stored 0 is a claim: a release too many can free nothing twice.
        if before.stored() != 0 {
            if before.is_saturated() {
                self.saturate(before);
            }
            return Released::Shared;
        }
        before_fence!(self.0);
        // Ordering: Acquire - E2, with every earlier release: they are done with the payload.
        fence(Ordering::Acquire);
        Released::Last {
            retire: before.generation() == LAST_GENERATION,
        }
    }

    /// T7: the only owner takes the block back as unique; handles of this generation are stale
    /// from here on. `false` when there are other owners, or a handle is being upgraded.
    #[inline]
    pub fn try_unique(&self) -> bool {
        let seen = Snapshot::pack(0, self.load().generation());
        // Ordering: Acquire - E2, with earlier releases: they are done with the payload. A load of
        // the count would not do: a handle could be upgraded behind it.
        self.0
            .compare_exchange(
                seen,
                seen.wrapping_sub(ONE),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// T8: releases the block whatever its count, if it is still in `generation`.
    pub fn force_release(&self, generation: u32) -> Result<Released, Stale> {
        let mut seen = self.load();
        loop {
            if seen.generation() != generation || seen.is_released() || seen.is_saturated() {
                return Err(Stale);
            }
            // Ordering: Acquire - E2, with earlier releases: they are done with the payload.
            match self.0.compare_exchange_weak(
                seen.0,
                Snapshot::pack(u32::MAX, generation),
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    return Ok(Released::Last {
                        retire: generation == LAST_GENERATION,
                    });
                }
                Err(now) => seen = Snapshot(now),
            }
        }
    }

    /// T9: keeps an immortal word in the middle of its band. Its generation cannot change any
    /// more, so the swap loses nothing but counts that no longer matter.
    #[cold]
    #[inline(never)]
    fn saturate(&self, before: Snapshot) {
        let drift = (before.stored() as u32).abs_diff(SATURATED);
        if drift > DRIFT {
            let word = Snapshot::pack(SATURATED, before.generation());
            // Ordering: Relaxed - as an RMW it continues the release sequence that `enter` began;
            // nothing is ever given back, so earlier releases do not matter.
            self.0.swap(word, Ordering::Relaxed);
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}
