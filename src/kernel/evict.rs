//! To evict: how blocks that rest go to their source, from the depot and out of thread caches, when a pool
//! makes room, trims or closes.

#![allow(unsafe_code)]

use super::backing::{Backing, Note};
use super::cache::{Cache, Emptied};
use super::core::Core;
use super::ledger::Charged;
use super::magazine::Magazine;
use super::tuning::CLASSES;

impl<S: Backing> Core<S> {
    /// Kills one magazine or block of `class` that rests in the depot; the bytes that went.
    pub fn evict(&self, class: usize) -> Option<usize> {
        if let Some(magazine) = self.depot(class).pop_magazine(&self.world().magazines) {
            // SAFETY: just popped: the caller's.
            let len = unsafe { magazine.len() };
            // SAFETY: the magazine is the caller's.
            let kill = || unsafe { self.kill_rounds(magazine) };
            // SAFETY: the magazine's rounds, which `kill` kills.
            return Some(unsafe { self.leave_depot(class, len, kill) });
        }
        let block = self.depot(class).pop_block(&self.world().blocks)?;
        // SAFETY: just popped: the caller's.
        let kill = || unsafe { self.death(block) };
        // SAFETY: the block that `kill` kills.
        Some(unsafe { self.leave_depot(class, 1, kill) })
    }

    /// Kills blocks that were evicted, and takes them off the books of the depot: only then, since
    /// until it is gone what they hold is not in use, and must not look so. They may be all that
    /// keeps this life of the core: it lasts until the books are right.
    ///
    /// # Safety
    /// The blocks are of this pool, and alive until `kill` is called.
    unsafe fn leave_depot(&self, class: usize, blocks: u32, kill: impl FnOnce() -> usize) -> usize {
        // SAFETY: the blocks keep the pool alive.
        let backing = unsafe { self.backing() };
        let bytes = backing.class_charge(class) * blocks as usize;
        backing.note(Note::Evict {
            class: class as u8,
            blocks,
            bytes,
        });
        self.add_share();
        let killed = kill();
        self.ledger.unrest(bytes);
        // SAFETY: added just above.
        unsafe { self.drop_share() };
        killed
    }

    /// Kills everything of `class` that rests in the depot.
    pub(super) fn drain_depot(&self, class: usize) -> usize {
        core::iter::from_fn(|| self.evict(class)).sum()
    }

    pub(super) fn drain_depots(&self) -> usize {
        (0..CLASSES).map(|class| self.drain_depot(class)).sum()
    }

    /// Kills every round of a magazine and gives the magazine to the arena.
    ///
    /// # Safety
    /// The magazine and its rounds are the caller's; it gives them up.
    pub unsafe fn kill_rounds(&self, magazine: &Magazine<S>) -> usize {
        let world = self.world();
        let mut bytes = 0;
        // SAFETY: the caller's magazine.
        while let Some(block) = unsafe { magazine.pop() } {
            // SAFETY: a round is a block, and blocks are never unmapped.
            let block = unsafe { &*block };
            // SAFETY: the rounds are the caller's.
            bytes += unsafe { self.death(block) };
        }
        world.magazines.release(magazine.index());
        bytes
    }

    /// Kills what came out of a shelf.
    ///
    /// # Safety
    /// The magazines and their rounds are the caller's; it gives them up.
    pub(super) unsafe fn kill_shelf(&self, emptied: &Emptied<S>) -> usize {
        let mut bytes = 0;
        for magazine in emptied.magazines() {
            // SAFETY: the caller's promise.
            bytes += unsafe { self.kill_rounds(magazine) };
        }
        bytes
    }

    /// Kills everything in a cache.
    ///
    /// # Safety
    /// The caller has the cache to itself, and it is bound to this pool, of which the caller holds a
    /// handle or a share.
    pub unsafe fn kill_cache(&self, cache: &Cache<S>) -> usize {
        // SAFETY: the caller's promise.
        let (shelves, charged) = unsafe { cache.empty_all() };
        // SAFETY: they came out of a cache that is the caller's.
        unsafe { self.kill_shelves(&shelves, charged) }
    }

    /// Kills what came out of a cache. What was charged for it goes last: what counts as resting does
    /// so until it is gone.
    ///
    /// # Safety
    /// As [`kill_shelf`](Self::kill_shelf); the caller holds a handle or a share of the pool.
    pub(super) unsafe fn kill_shelves(&self, shelves: &[Emptied<S>], charged: Charged) -> usize {
        let mut bytes = 0;
        for emptied in shelves {
            // SAFETY: the caller's promise.
            bytes += unsafe { self.kill_shelf(emptied) };
        }
        self.ledger.vacate(charged);
        bytes
    }
}
