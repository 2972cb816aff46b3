//! Magazines: fixed-capacity LIFOs of blocks that move between threads as one. No atomics: a
//! magazine always has exactly one owner.

#![allow(unsafe_code)]

use core::ptr;

use super::arena::Cell;
use super::backing::Backing;
use super::block::Block;
use super::sync::UnsafeCell;
use super::tuning::MAGAZINE_ROUNDS;

/// A magazine at rest: `len` rounds, the last one on top. In a cache its loaded magazine's length
/// is kept beside it, so that a hit does not have to look it up here.
pub struct Magazine<S: Backing> {
    index: u32,
    rounds: UnsafeCell<Rounds<S>>,
}

struct Rounds<S: Backing> {
    len: u32,
    slots: [*const Block<S>; MAGAZINE_ROUNDS],
}

// SAFETY: a magazine is only touched by its one owner; the arena's stack or the cache's lock
// hands it over.
unsafe impl<S: Backing> Send for Magazine<S> {}
// SAFETY: as above.
unsafe impl<S: Backing> Sync for Magazine<S> {}

impl<S: Backing> Cell for Magazine<S> {
    const PER_SLAB: usize = S::MAGAZINES_PER_SLAB;

    fn new(index: u32) -> Self {
        Self {
            index,
            rounds: UnsafeCell::new(Rounds {
                len: 0,
                slots: [ptr::null(); MAGAZINE_ROUNDS],
            }),
        }
    }
}

impl<S: Backing> Magazine<S> {
    /// Index of the magazine in its arena.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Rounds in the magazine.
    ///
    /// # Safety
    /// The caller owns the magazine.
    #[allow(clippy::len_without_is_empty)]
    pub unsafe fn len(&self) -> u32 {
        // SAFETY: only the owner touches a magazine.
        self.rounds.with(|rounds| unsafe { (*rounds).len })
    }

    /// Records how many rounds are valid.
    ///
    /// # Safety
    /// The caller owns the magazine, and its first `len` slots hold blocks.
    pub unsafe fn set_len(&self, len: u32) {
        debug_assert!(len as usize <= MAGAZINE_ROUNDS);
        // SAFETY: only the owner touches a magazine.
        self.rounds
            .with_mut(|rounds| unsafe { (*rounds).len = len });
    }

    /// The block in slot `slot`.
    ///
    /// # Safety
    /// The caller owns the magazine, and `slot` is below its length.
    #[inline(always)]
    pub unsafe fn round(&self, slot: u32) -> *const Block<S> {
        self.rounds.with(|rounds| {
            // SAFETY: only the owner touches a magazine.
            let slots = unsafe { &raw const (*rounds).slots };
            // SAFETY: the length never exceeds the number of slots.
            let place = unsafe { slots.cast::<*const Block<S>>().add(slot as usize) };
            // SAFETY: in bounds, written when the round was pushed.
            unsafe { place.read() }
        })
    }

    /// Puts a block into slot `slot`.
    ///
    /// # Safety
    /// The caller owns the magazine and the block; `slot < MAGAZINE_ROUNDS`.
    #[inline(always)]
    pub unsafe fn set_round(&self, slot: u32, block: *const Block<S>) {
        self.rounds.with_mut(|rounds| {
            // SAFETY: only the owner touches a magazine.
            let slots = unsafe { &raw mut (*rounds).slots };
            // SAFETY: the caller's bound.
            let place = unsafe { slots.cast::<*const Block<S>>().add(slot as usize) };
            // SAFETY: in bounds.
            unsafe { place.write(block) };
        });
    }

    /// Pops the top round.
    ///
    /// # Safety
    /// The caller owns the magazine.
    pub unsafe fn pop(&self) -> Option<*const Block<S>> {
        // SAFETY: the caller owns the magazine.
        let len = unsafe { self.len() }.checked_sub(1)?;
        // SAFETY: as above.
        unsafe { self.set_len(len) };
        // SAFETY: `len` was a valid slot.
        Some(unsafe { self.round(len) })
    }
}
