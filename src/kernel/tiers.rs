//! Take and give, the slow halves: mirror loops through cache, depot and source. The hit is
//! `Cache::pop` and `Cache::push`; these are called when it refuses.
//!
//! | step | take | give |
//! |---|---|---|
//! | 1 | answer a request on the cache, pop again | answer a request on the cache, push again |
//! | 2 | bring a non-empty previous magazine forward, pop | bring an empty previous magazine forward, push |
//! | 3 | load a magazine from the depot, pop | load an empty magazine, send the full one to the depot, push |
//! | 4 | a single block from the depot | a single block to the depot |
//! | 5 | birth, by the caller | death, if the pool is closed or the depot at its cap |

#![allow(unsafe_code)]

use core::ptr;

use super::block::Block;
use super::cache::Cache;
use super::core::{Backing, Core};
use super::reach::{CLOSED, DEAD, FLUSH, STEAL};
use super::slots::Slot;
use super::sync::{Ordering, fence};
use super::tuning::CLASSES;

impl<S: Backing> Core<S> {
    /// Steps 1 to 4 of a take. `None`: nothing of this class rests where this thread can reach it.
    ///
    /// # Safety
    /// The caller holds a handle of the pool; `cache`, if any, is its thread's, bound to the pool.
    #[cold]
    pub unsafe fn take_slow(&self, cache: Option<&Cache<S>>, class: usize) -> Option<&Block<S>> {
        // SAFETY: the caller's promise, passed on.
        let block = unsafe { self.take_cached(cache, class) };
        let block = match block {
            Some(block) => block,
            None => {
                // SAFETY: the caller holds a handle.
                let block = unsafe { self.wake_block(class) }?;
                self.class_numbers[class].takes.add(1);
                block
            }
        };
        // SAFETY: blocks are arena cells, never unmapped.
        Some(unsafe { &*block })
    }

    /// Steps 1 to 3 of a take.
    ///
    /// # Safety
    /// As [`take_slow`](Self::take_slow).
    unsafe fn take_cached(
        &self,
        cache: Option<&Cache<S>>,
        class: usize,
    ) -> Option<*const Block<S>> {
        // SAFETY: the caller holds a handle.
        let rounds = unsafe { self.backing() }.rounds(class);
        let cache = cache.filter(|cache| rounds > 0 && self.answer(cache));
        if let Some(cache) = cache {
            if let Some(block) = cache.pop(class) {
                return Some(block);
            }
            if cache.swap_previous(class, true)
                && let Some(block) = cache.pop(class)
            {
                return Some(block);
            }
        }
        // SAFETY: the caller holds a handle.
        let magazine = unsafe { self.wake_magazine(class) }?;
        if let Some(cache) = cache
            && cache.admits(class, self.cost(class, rounds), self.budget())
        {
            // SAFETY: just popped: ours, and of this class and pool.
            let loaded = unsafe { cache.load(class, magazine, rounds, self.cost(class, rounds)) };
            if let Some(displaced) = loaded {
                // SAFETY: it came out of this thread's cache.
                unsafe { self.rest_displaced(class, displaced) };
                return cache.pop(class);
            }
        }
        // SAFETY: the magazine is ours and has one round at least.
        let block = unsafe { magazine.pop() };
        self.class_numbers[class].takes.add(1);
        // SAFETY: the rest of it is ours still.
        unsafe { self.rest_magazine(class, magazine) };
        block
    }

    /// Step 4 for a class whose own tiers are empty: a resting block of one of the classes up to
    /// `last`, nearest first. It goes home to its own class.
    ///
    /// # Safety
    /// As [`take_slow`](Self::take_slow).
    pub unsafe fn take_larger(&self, class: usize, last: usize) -> Option<&Block<S>> {
        for larger in class + 1..=last {
            if self.depot_estimate(larger) == 0 {
                continue;
            }
            // SAFETY: the caller holds a handle.
            if let Some(block) = unsafe { self.take_slow(None, larger) } {
                return Some(block);
            }
        }
        None
    }

    /// Steps 1 to 5 of a give.
    ///
    /// # Safety
    /// The block, of this pool, is the caller's; it gives it up. `cache` as in
    /// [`take_slow`](Self::take_slow).
    #[cold]
    pub unsafe fn give_slow(&self, cache: Option<&Cache<S>>, block: &Block<S>) {
        // SAFETY: the caller's block.
        let class = usize::from(unsafe { block.label() }.class);
        if class >= CLASSES || self.is_closed() {
            self.count_give(class);
            // SAFETY: the caller's block.
            unsafe { self.death(block) };
            return;
        }
        // SAFETY: the caller's promise, passed on.
        if unsafe { self.give_cached(cache, class, block) } {
            return;
        }
        self.count_give(class);
        // SAFETY: the caller's block.
        unsafe { self.rest_block(class, block) };
    }

    /// A give of as many blocks as a magazine holds, in one exchange with the depot: step 3 without
    /// the cache. `false`: nothing was asked of `next`, the blocks are the caller's still.
    ///
    /// # Safety
    /// The next `rounds` blocks, of this class and pool, are the caller's; it gives them up.
    /// `rounds` is at most what a magazine of the class holds, and not 0.
    pub unsafe fn give_magazine<'a>(
        &self,
        class: usize,
        rounds: u32,
        mut next: impl FnMut() -> &'a Block<S>,
    ) -> bool
    where
        S: 'a,
    {
        if self.is_closed() {
            return false;
        }
        let Ok((_, magazine)) = self.world().magazines.claim() else {
            return false;
        };
        for slot in 0..rounds {
            // SAFETY: just claimed: ours, and so are the blocks.
            unsafe { magazine.set_round(slot, next()) };
        }
        // SAFETY: as many rounds were set.
        unsafe { magazine.set_len(rounds) };
        self.class_numbers[class].gives.add(u64::from(rounds));
        // SAFETY: the magazine is ours, with its rounds.
        unsafe { self.rest_magazine(class, magazine) };
        true
    }

    /// Steps 1 to 3 of a give. `false`: the block is the caller's still.
    ///
    /// # Safety
    /// As [`give_slow`](Self::give_slow).
    unsafe fn give_cached(&self, cache: Option<&Cache<S>>, class: usize, block: &Block<S>) -> bool {
        // SAFETY: the caller's block keeps the pool alive.
        let rounds = unsafe { self.backing() }.rounds(class);
        let Some(cache) = cache.filter(|cache| rounds > 0 && self.answer(cache)) else {
            return false;
        };
        // SAFETY: the caller's block, and its thread's cache of the same pool.
        if unsafe { cache.push(class, block) } {
            return true;
        }
        // SAFETY: as above.
        if cache.swap_previous(class, false) && unsafe { cache.push(class, block) } {
            return true;
        }
        if !cache.admits(class, self.cost(class, rounds), self.budget()) {
            return false;
        }
        let Ok((_, empty)) = self.world().magazines.claim() else {
            return false;
        };
        // SAFETY: just claimed: ours, and free magazines are empty.
        let loaded = unsafe { cache.load(class, empty, rounds, self.cost(class, rounds)) };
        let Some(displaced) = loaded else {
            self.world().magazines.release(empty.index());
            return false;
        };
        // The displaced magazine goes first: while `block` is ours, the pool lives.
        // SAFETY: it came out of this thread's cache.
        unsafe { self.rest_displaced(class, displaced) };
        // SAFETY: the caller's block, and its thread's cache of the same pool.
        unsafe { cache.push(class, block) }
    }

    /// # Safety
    /// `magazine` is null, or came out of the calling thread's cache of this pool.
    unsafe fn rest_displaced(&self, class: usize, magazine: *const super::magazine::Magazine<S>) {
        // SAFETY: magazines are arena cells, never unmapped.
        if let Some(magazine) = unsafe { magazine.as_ref() } {
            // SAFETY: the caller's promise.
            unsafe { self.rest_magazine(class, magazine) };
        }
    }

    fn count_give(&self, class: usize) {
        self.numbers_of(class).gives.add(1);
    }

    /// What two magazines of `class` can hold, in bytes. Called with the pool held alive.
    fn cost(&self, class: usize, rounds: u32) -> usize {
        // SAFETY: callers hold a handle or a block.
        2 * rounds as usize * unsafe { self.backing() }.class_charge(class)
    }

    fn budget(&self) -> usize {
        // SAFETY: callers hold a handle or a block.
        unsafe { self.backing() }.budget()
    }

    /// Step 1: does what is requested of the cache. `false`: the cache cannot be used now.
    fn answer(&self, cache: &Cache<S>) -> bool {
        let request = cache.bias.request();
        if request & CLOSED != 0 {
            if cache.bias.claim_close_flush() {
                self.settle_tallies(cache);
                // SAFETY: the flush is ours to do, and the cache is bound to this pool.
                unsafe { self.kill_cache(cache) };
            }
            return false;
        }
        if request & FLUSH != 0 && cache.bias.accept_flush() {
            self.kill_own(cache);
        }
        request & STEAL == 0
    }
}

/// Registration of threads.
impl<S: Backing> Core<S> {
    /// The cache of this pool for the thread that holds `slot`, adopted if need be. `None` if the
    /// pool is closed, memory is short, or a trimmer is still emptying the cache.
    ///
    /// # Safety
    /// The caller's thread holds the slot, and a handle or a block of the pool.
    pub unsafe fn register<'a>(&self, slot: &'a Slot<S>) -> Option<&'a Cache<S>> {
        if self.is_closed() {
            return None;
        }
        // SAFETY: the world of a pool outlives the slots that are in it.
        let caches = unsafe { &*ptr::from_ref(&self.world().caches) };
        let cache = slot.ensure_cache(caches, self.index()).ok()?;
        // SAFETY: the slot is ours and the cache is vacant while `bind` runs.
        if !cache.bias.adopt(|| unsafe { cache.bind(self) }) {
            return (cache.bias.request() & (CLOSED | DEAD) == 0).then_some(cache);
        }
        // Ordering: SeqCst - E13, with `close`: either this sees the pool closed, or the closer
        // sees the adopted cache.
        fence(Ordering::SeqCst);
        if self.is_closed() {
            cache.bias.renounce();
            return None;
        }
        Some(cache)
    }
}

/// A thread exits: its caches go to their depots, its slot to the next thread.
///
/// # Safety
/// The caller's thread holds the slot and does not use it again.
pub unsafe fn exit<S: Backing>(world: &super::core::World<S>, slot: &Slot<S>) {
    for cache in slot.caches() {
        // SAFETY: the thread is the owner of the slot's caches.
        let core = unsafe { cache.core() };
        // SAFETY: cores are arena cells, never unmapped.
        let Some(core) = (unsafe { core.as_ref() }) else {
            continue;
        };
        let closed = cache.bias.request() & CLOSED != 0;
        if !closed && cache.bias.request() & DEAD == 0 {
            core.settle_tallies(cache);
            cache.reset_tallies();
        }
        if cache.bias.exit() {
            if closed {
                core.settle_tallies(cache);
            }
            // SAFETY: the lock has left the cache to us; its blocks keep the pool alive.
            unsafe { core.flush_cache(cache) };
        }
    }
    world.slots.release(slot.index());
}
