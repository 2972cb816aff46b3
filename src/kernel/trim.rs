//! What rests goes back to its source: on demand, by age, and to make room for a birth.

#![allow(unsafe_code)]

use core::ptr;

use super::backing::{Backing, Note};
use super::cache::Cache;
use super::core::Core;
use super::reach::Steal;
use super::tuning::CLASSES;

impl<S: Backing> Core<S> {
    /// Gives every resting block back to its source: the calling thread's, the other threads',
    /// the depot's. The bytes that went. Trimmers take turns; owners are never made to wait.
    ///
    /// # Safety
    /// The caller holds a handle of the pool.
    pub unsafe fn trim(&self, own: Option<&Cache<S>>) -> usize {
        self.take_turn();
        let mut bytes = own.map_or(0, |own| {
            // What an earlier trimmer left to this thread is answered by the same.
            let _answered = own.bias.accept_flush();
            self.kill_own(own)
        });
        bytes += self.kill_others(own, |_| false);
        bytes += self.drain_depots();
        self.end_turn();
        self.count_trim(bytes)
    }

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
        let mut bytes = self.kill_others(own, Cache::was_used);
        for class in 0..CLASSES {
            bytes += self.evict_blocks(class, self.depot(class).unused());
        }
        self.ledger.turn_window();
        self.end_turn();
        self.count_trim(bytes)
    }

    /// Kills everything in the caches of other threads than the caller's, but for those that
    /// `spare` chooses; it sees the caller's own as well. The turn is the caller's.
    fn kill_others(&self, own: Option<&Cache<S>>, spare: impl Fn(&Cache<S>) -> bool) -> usize {
        let mut bytes = 0;
        for cache in self.caches() {
            let is_own = own.is_some_and(|own| ptr::eq(own, cache));
            if spare(cache) || is_own {
                continue;
            }
            if cache.bias.steal() == Steal::Taken {
                // SAFETY: the lock has given the cache to us until `restore`.
                bytes += unsafe { self.kill_cache(cache) };
                self.restore_cache(cache);
            }
        }
        bytes
    }

    fn count_trim(&self, bytes: usize) -> usize {
        self.numbers.trims.add(1);
        self.numbers.trimmed_bytes.add(bytes as u64);
        if bytes > 0 {
            // SAFETY: the callers hold a handle or a block.
            unsafe { self.backing() }.note(Note::Trim { bytes });
        }
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

    /// Kills one magazine or block of the class where most bytes have rested for longest, measured
    /// as their product. `false` if nothing rests in the depot. In a pool with a limit this takes
    /// the trimmers' turn: nobody is refused for bytes that are on their way home.
    pub fn evict_coldest(&self) -> bool {
        if self.ledger.resting() == 0 {
            return false;
        }
        // SAFETY: callers hold a handle or a block.
        let limited = unsafe { self.backing() }.policy().limit < usize::MAX;
        if limited {
            self.take_turn();
        }
        let evicted = self.evict_coldest_in_turn();
        if limited {
            self.end_turn();
        }
        evicted
    }

    fn evict_coldest_in_turn(&self) -> bool {
        let now = self.ledger.ticks();
        let victim = (0..CLASSES)
            .filter(|&class| self.depot_estimate(class) > 0)
            .max_by_key(|&class| {
                // SAFETY: what rests keeps the pool alive, and callers hold a handle or a block.
                let charge = unsafe { self.backing() }.class_charge(class);
                let bytes = u128::from(self.depot_estimate(class)) * charge as u128;
                bytes * (1 + u128::from(self.depot(class).idle(now)))
            });
        // Somebody else may have emptied it in the meantime: then any other will do.
        victim.is_some_and(|class| self.evict(class).is_some())
            || (0..CLASSES).any(|class| self.evict(class).is_some())
    }

    /// Trimmer: gives an emptied cache back to its owner, or retires it if that has exited.
    pub(super) fn restore_cache(&self, cache: &Cache<S>) {
        if !cache.bias.restore() {
            // SAFETY: the cache's share, left to us by its owner's exit.
            unsafe { self.drop_share() };
        }
    }

    /// Owner: kills everything in its own cache, class by class inside the lock.
    pub fn kill_own(&self, own: &Cache<S>) -> usize {
        let mut bytes = 0;
        for class in 0..CLASSES {
            let Some(emptied) = own.empty_by_owner(class) else {
                return bytes;
            };
            // SAFETY: it came out of the caller's own cache.
            bytes += unsafe { self.kill_shelf(&emptied) };
        }
        self.ledger.unstock(own.discharge_by_owner());
        bytes
    }
}
