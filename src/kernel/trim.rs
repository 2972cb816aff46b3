//! What rests goes back to its source: on demand and by age.

#![allow(unsafe_code)]

use core::ptr;

use super::backing::{Backing, Note};
use super::cache::Cache;
use super::core::Core;
use super::reach::Steal;
use super::tuning::CLASSES;

/// Who has a cache to itself.
#[derive(Clone, Copy)]
pub(super) enum By {
    /// Its owner, inside its lock for each step: a source that is called in between may come back.
    Owner,
    /// A trimmer that has stolen it.
    Trimmer,
}

impl By {
    /// One step on the cache; nothing if its owner finds it requested.
    fn of<S: Backing, R: Default>(self, cache: &Cache<S>, step: impl FnOnce() -> R) -> R {
        match self {
            Self::Owner => cache.inside(step).unwrap_or_default(),
            Self::Trimmer => step(),
        }
    }
}

/// What went with a berth, in bytes.
pub(super) struct Gone {
    /// Of the block that was in it.
    killed: usize,
    /// That counted as resting in the depot.
    pub(super) beyond: usize,
}

impl<S: Backing> Core<S> {
    /// Gives every resting block back to its source: the calling thread's, the other threads',
    /// the depot's. The bytes that went, none if the calling thread trims the pool already. Trimmers
    /// take turns; no hit, give or take from the depot waits for them.
    ///
    /// # Safety
    /// The caller holds a handle of the pool.
    pub unsafe fn trim(&self, own: Option<&Cache<S>>) -> usize {
        let bytes = self.in_turn(own, || {
            let own_bytes = own.map_or(0, |own| {
                // What an earlier trimmer left to this thread is answered by the same.
                let _answered = own.bias.accept_flush();
                self.kill_own(own)
            });
            own_bytes + self.kill_others(own, |_| false) + self.drain_depots()
        });
        bytes.map_or(0, |bytes| self.count_trim(bytes))
    }

    /// Ends an interval: kills, of each class of the depot, as many blocks as were never needed
    /// during it, and everything in the caches of threads that made no use of theirs. The bytes
    /// that went. Takes the trimmers' turn, or does nothing if somebody else has it.
    ///
    /// # Safety
    /// The caller holds a handle or a block of the pool; `own` is its thread's cache, if any.
    pub unsafe fn age(&self, own: Option<&Cache<S>>) -> Option<usize> {
        let aged = self.try_in_turn(own, || {
            let mut bytes = self.kill_others(own, Cache::was_used);
            bytes += self.kill_unused_berths(own);
            for class in 0..CLASSES {
                bytes += self.evict_blocks(class, self.depot(class).unused());
            }
            self.ledger.turn_window();
            bytes
        });
        aged.map(|bytes| self.count_trim(bytes))
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
            if cache.bias.steal(true) == Steal::Taken {
                // SAFETY: the lock has given the cache to us until `restore`.
                bytes += unsafe { self.kill_cache(cache) };
                self.restore_cache(cache);
            }
        }
        bytes
    }

    /// Kills, in all caches, what is in berths that served no take since the last such call. The
    /// bytes that went. The turn is the caller's.
    fn kill_unused_berths(&self, own: Option<&Cache<S>>) -> usize {
        let kill = |cache: &Cache<S>, by: By| {
            let classes = (0..CLASSES).filter(|&class| self.berths_serve(class));
            // SAFETY: `reach` gives a cache that is ours.
            let unused =
                classes.filter(|&class| by.of(cache, || unsafe { cache.is_unused(class) }));
            let mut bytes = 0;
            for class in unused {
                // SAFETY: as above.
                while let Some(gone) = unsafe { self.unberth(cache, by, class, false) } {
                    bytes += gone.killed;
                }
            }
            bytes
        };
        let reached = self
            .berthed_caches()
            .map(|cache| self.reach(cache, own, kill));
        reached.map(Option::unwrap_or_default).sum()
    }

    /// Whether a class has berths in caches, and no magazines.
    pub(super) fn berths_serve(&self, class: usize) -> bool {
        // SAFETY: callers hold a handle or a block.
        unsafe { self.backing() }.rounds(class) == 0
    }

    pub(super) fn berthed_caches(&self) -> impl Iterator<Item = &Cache<S>> {
        self.caches().filter(|cache| cache.has_berths())
    }

    /// Runs `f` on a cache that is the calling thread's `own`, or that it can steal. The turn is the
    /// caller's.
    pub(super) fn reach<R>(
        &self,
        cache: &Cache<S>,
        own: Option<&Cache<S>>,
        f: impl FnOnce(&Cache<S>, By) -> R,
    ) -> Option<R> {
        if own.is_some_and(|own| ptr::eq(own, cache)) {
            return Some(f(cache, By::Owner));
        }
        if cache.bias.steal(false) != Steal::Taken {
            return None;
        }
        let result = f(cache, By::Trimmer);
        self.give_back_cache(cache);
        Some(result)
    }

    /// Gives a cache that was taken from its owner, and not emptied, back; if that has exited in the
    /// meantime, what is in it goes home.
    pub(super) fn give_back_cache(&self, cache: &Cache<S>) {
        if !cache.bias.give_back() {
            // SAFETY: the owner's exit has left the cache to us, with its share of the pool.
            unsafe { self.rest_cache(cache) };
            self.restore_cache(cache);
        }
    }

    /// Takes one berth of `class` away, a vacant one if there is one, and kills what is in it.
    ///
    /// # Safety
    /// The cache is the caller's, as `by` says.
    pub(super) unsafe fn unberth(
        &self,
        cache: &Cache<S>,
        by: By,
        class: usize,
        vacant: bool,
    ) -> Option<Gone> {
        // SAFETY: callers hold a handle or a block.
        let charge = unsafe { self.backing() }.class_charge(class);
        // SAFETY: the caller's promise.
        let berth = by.of(cache, || unsafe { cache.unberth(class, charge, vacant) })?;
        // SAFETY: magazines are arena cells, never unmapped.
        if let Some(magazine) = unsafe { berth.magazine.as_ref() } {
            self.world().magazines.release(magazine.index());
        }
        // SAFETY: blocks are arena cells, never unmapped.
        let killed = unsafe { berth.block.as_ref() }.map_or(0, |block| {
            // SAFETY: it came out of a cache that is the caller's.
            unsafe { self.death(block) }
        });
        self.ledger.vacate(berth.charged);
        Some(Gone {
            killed,
            beyond: berth.charged.beyond,
        })
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

    /// Trimmer: gives an emptied cache back to its owner, or retires it if that has exited.
    pub(super) fn restore_cache(&self, cache: &Cache<S>) {
        if !cache.bias.restore() {
            // SAFETY: the cache's share, left to us by its owner's exit.
            unsafe { self.drop_share() };
        }
    }

    /// Owner: kills everything in its own cache, once it is out of it: a source that is called may
    /// come back.
    pub fn kill_own(&self, own: &Cache<S>) -> usize {
        // SAFETY: the owner is inside.
        let Some((shelves, charged)) = own.inside(|| unsafe { own.empty_all() }) else {
            return 0;
        };
        // SAFETY: they came out of the caller's own cache.
        unsafe { self.kill_shelves(&shelves, charged) }
    }
}
