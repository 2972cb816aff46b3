//! To rest and to wake: how blocks get into the depot and out of it again, with their bytes.

#![allow(unsafe_code)]

use super::backing::{Backing, Note};
use super::block::Block;
use super::cache::Cache;
use super::core::Core;
use super::magazine::Magazine;

impl<S: Backing> Core<S> {
    /// Puts a magazine into the depot, or kills its rounds if the depot is at its cap. An empty
    /// one goes to the arena.
    ///
    /// # Safety
    /// The magazine and its rounds, of this class and pool, are the caller's; it gives them up.
    pub unsafe fn rest_magazine(&self, class: usize, magazine: &Magazine<S>) {
        let world = self.world();
        // SAFETY: the caller's magazine.
        let len = unsafe { magazine.len() };
        if len == 0 {
            world.magazines.release(magazine.index());
            return;
        }
        let fits = {
            // SAFETY: the magazine holds a block of the pool.
            let backing = unsafe { self.backing() };
            self.rest(backing, class, len)
        };
        if !fits {
            // SAFETY: the caller's magazine.
            unsafe { self.kill_rounds(magazine) };
            return;
        }
        self.numbers_of(class).exchanges.add(1);
        // SAFETY: the caller's magazine.
        unsafe { self.depot(class).push_magazine(&world.magazines, magazine) };
        self.settle(class);
    }

    /// Puts a single block into the depot, or kills it if the depot is at its cap.
    ///
    /// # Safety
    /// The block, of this class and pool, is the caller's; it gives it up.
    pub unsafe fn rest_block(&self, class: usize, block: &Block<S>) {
        let fits = {
            // SAFETY: the block keeps the pool alive.
            let backing = unsafe { self.backing() };
            self.rest(backing, class, 1)
        };
        if !fits {
            // SAFETY: the caller's block.
            unsafe { self.death(block) };
            return;
        }
        self.numbers_of(class).exchanges.add(1);
        // SAFETY: the caller's block.
        unsafe { self.depot(class).push_block(&self.world().blocks, block) };
        self.settle(class);
    }

    /// Charges blocks that come to rest in the depot, if the cap allows.
    fn rest(&self, backing: &S, class: usize, blocks: u32) -> bool {
        let bytes = backing.class_charge(class) * blocks as usize;
        let fits = self.rest_bytes(backing, bytes);
        if fits {
            let class = class as u8;
            backing.note(Note::Rest {
                class,
                blocks,
                bytes,
            });
        }
        fits
    }

    /// Charges bytes that count as resting in the depot, if the cap allows.
    pub(super) fn rest_bytes(&self, backing: &S, bytes: usize) -> bool {
        let before = self.ledger.rest(bytes, backing.policy());
        stir(backing, before)
    }

    /// Charges room for `bytes` in a thread's cache, if the cap allows.
    pub(super) fn stock(&self, backing: &S, bytes: usize) -> bool {
        let before = self.ledger.stock(bytes, backing.policy());
        stir(backing, before)
    }

    /// Takes a magazine for a user out of the depot.
    ///
    /// # Safety
    /// The caller holds a handle or a block of the pool.
    pub unsafe fn wake_magazine(&self, class: usize) -> Option<&Magazine<S>> {
        let magazine = self.depot(class).pop_magazine(&self.world().magazines)?;
        // SAFETY: just popped: the caller's.
        let len = unsafe { magazine.len() };
        // SAFETY: the caller's promise.
        let backing = unsafe { self.backing() };
        self.wake(backing, class, len);
        Some(magazine)
    }

    /// Takes a single block for a user out of the depot.
    ///
    /// # Safety
    /// The caller holds a handle or a block of the pool.
    pub unsafe fn wake_block(&self, class: usize) -> Option<&Block<S>> {
        let block = self.depot(class).pop_block(&self.world().blocks)?;
        // SAFETY: the caller's promise.
        let backing = unsafe { self.backing() };
        self.wake(backing, class, 1);
        Some(block)
    }

    /// Takes blocks that go to a user off the books of the depot.
    fn wake(&self, backing: &S, class: usize, blocks: u32) {
        let bytes = backing.class_charge(class) * blocks as usize;
        self.ledger.wake(bytes, backing.policy());
        self.depot(class).note_wake(self.ledger.ticks());
        self.numbers_of(class).exchanges.add(1);
        backing.note(Note::Wake {
            class: class as u8,
            blocks,
            bytes,
        });
    }

    /// Moves everything in a cache to the depot.
    ///
    /// # Safety
    /// As [`kill_cache`](Self::kill_cache).
    pub unsafe fn rest_cache(&self, cache: &Cache<S>) {
        // SAFETY: the caller's promise.
        let (shelves, charged) = unsafe { cache.empty_all() };
        // The room first, so that what takes it in the depot is not refused for the cap; but what
        // counted as resting does so until it does in the depot.
        self.ledger.unstock(charged.total());
        for (class, emptied) in shelves.iter().enumerate() {
            for magazine in emptied.magazines() {
                // SAFETY: it came out of a cache that is the caller's.
                unsafe { self.rest_magazine(class, magazine) };
            }
        }
        self.ledger.rouse(charged.beyond);
    }
}

/// Tells whoever ages the pool if something begins to rest: `before` is what did until now, `None` if
/// the cap has refused what was to come. Whether it has not.
fn stir<S: Backing>(backing: &S, before: Option<u64>) -> bool {
    if before == Some(0) || before.is_some() && backing.is_unattended() {
        backing.stirred();
    }
    before.is_some()
}
