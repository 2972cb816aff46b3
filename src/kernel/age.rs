//! Ageing: what stayed unused through a whole interval goes back to its source.

#![allow(unsafe_code)]

use super::cache::Cache;
use super::core::{Backing, Core};
use super::reach::Steal;
use super::tuning::CLASSES;

impl<S: Backing> Core<S> {
    /// Ends an interval: kills, of each class of the depot, as many blocks as were never needed
    /// during it, and everything in the caches of threads that made no use of theirs. The bytes
    /// that went. Takes the trimmers' turn, or does nothing if somebody else has it.
    ///
    /// # Safety
    /// The caller holds a handle or a block of the pool; `own` is its thread's cache, if any.
    pub unsafe fn age(&self, own: Option<&Cache<S>>) -> usize {
        if !self.try_turn() {
            return 0;
        }
        let mut bytes = 0;
        for slot in self.world().slots.iter() {
            let Some(cache) = slot.cache(self.index()) else {
                continue;
            };
            let is_own = own.is_some_and(|own| core::ptr::eq(own, cache));
            if cache.was_used() || is_own {
                continue;
            }
            if cache.bias.steal() == Steal::Taken {
                // SAFETY: the lock has given the cache to us until `restore`.
                bytes += unsafe { self.kill_cache(cache) };
                self.restore_cache(cache);
            }
        }
        for class in 0..CLASSES {
            bytes += self.evict_blocks(class, self.depot(class).unused());
        }
        self.ledger.turn_window();
        self.end_turn();
        self.numbers.trims.add(1);
        self.numbers.trimmed_bytes.add(bytes as u64);
        bytes
    }

    /// Kills at least `blocks` blocks of `class`, in whole magazines, while any rest in the depot.
    fn evict_blocks(&self, class: usize, blocks: u64) -> usize {
        if blocks == 0 {
            return 0;
        }
        // SAFETY: the caller of `age` holds a handle or a block.
        let charge = unsafe { self.backing() }.class_charge(class);
        let wanted = charge * blocks as usize;
        let mut bytes = 0;
        while bytes < wanted
            && let Some(evicted) = self.evict(class)
        {
            bytes += evicted;
        }
        bytes
    }
}
