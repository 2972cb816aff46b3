//! Take and give, the slow halves: mirror loops through cache, depot and source. The hit is
//! `Cache::pop` and `Cache::push`; these are called when it refuses.
//!
//! | step | take | give |
//! |---|---|---|
//! | 1 | answer a request on the cache, pop again | answer a request on the cache, push again |
//! | 2 | bring a non-empty previous magazine forward, pop | bring an empty previous magazine forward, push |
//! | 3 | load a magazine from the depot, pop | load an empty magazine, send the full one to the depot, push |
//! | 4 | a single block from the depot | a single block to a new berth, if the class has no magazines, else to the depot |
//! | 5 | birth, by the caller | death, if the pool is closed or the depot at its cap |

#![allow(unsafe_code)]

use core::ptr::{self, NonNull};

use super::backing::Backing;
use super::block::Block;
use super::cache::{Cache, Class, ShelfState};
use super::core::{Core, World};
use super::ledger::Charged;
use super::magazine::Magazine;
use super::reach::{CLOSED, DEAD, FLUSH, STEAL, Steal};
use super::slots::{Hold, Slot};
use super::sync::{Ordering, fence, is_reachable};
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
        let block: *const Block<S> = match block {
            Some(block) => block.as_ptr(),
            None => {
                // SAFETY: the caller holds a handle.
                let block = unsafe { self.wake_block(class) }?;
                self.numbers_of(class).takes.add(1);
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
    ) -> Option<NonNull<Block<S>>> {
        // SAFETY: the caller holds a handle.
        let rounds = unsafe { self.backing() }.rounds(class);
        let cache = self.usable(cache, rounds);
        if let Some(cache) = cache {
            if let Some(block) = cache.pop(Class::new(class)) {
                return Some(block);
            }
            if cache.swap_previous(class, true)
                && let Some(block) = cache.pop(Class::new(class))
            {
                return Some(block);
            }
        }
        // SAFETY: the caller holds a handle.
        let magazine = unsafe { self.wake_magazine(class) }?;
        if let Some(cache) = cache.filter(|_| rounds > 0)
            // SAFETY: just popped: ours, and of this class and pool.
            && unsafe { self.load(cache, class, magazine, rounds) }
        {
            return cache.pop(Class::new(class));
        }
        // SAFETY: the magazine is ours and has one round at least.
        let block = unsafe { magazine.pop() }.and_then(|block| NonNull::new(block.cast_mut()));
        self.numbers_of(class).takes.add(1);
        // SAFETY: the rest of it is ours still.
        unsafe { self.rest_magazine(class, magazine) };
        block
    }

    /// Step 4 for a class whose own tiers are empty: a resting block of one of the classes up to
    /// `last`, nearest first. It goes home to its own class.
    ///
    /// # Safety
    /// As [`take_slow`](Self::take_slow).
    pub unsafe fn take_larger(
        &self,
        cache: Option<&Cache<S>>,
        class: usize,
        last: usize,
    ) -> Option<&Block<S>> {
        for larger in class + 1..=last {
            if let Some(block) = cache.and_then(|cache| cache.pop(Class::new(larger))) {
                // SAFETY: blocks are arena cells, never unmapped.
                return Some(unsafe { &*block.as_ptr() });
            }
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
        // What comes back from inside of a trim, out of a source that it called, is to go, not to rest.
        if class >= CLASSES || self.is_closed() || self.has_turn() {
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
        self.numbers_of(class).gives.add(u64::from(rounds));
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
        let Some(cache) = self.usable(cache, rounds) else {
            return false;
        };
        // SAFETY: the caller's block, and its thread's cache of the same pool.
        if unsafe { cache.push(Class::new(class), block) } {
            return true;
        }
        // SAFETY: as above.
        if cache.swap_previous(class, false) && unsafe { cache.push(Class::new(class), block) } {
            return true;
        }
        if rounds == 0 {
            // SAFETY: the caller's block, of this pool; if it has a berth now, so has the cache.
            return self.add_berth(cache, class) && unsafe { cache.push(Class::new(class), block) };
        }
        let Ok((_, empty)) = self.world().magazines.claim() else {
            return false;
        };
        // The displaced magazine goes first: while `block` is ours, the pool lives.
        // SAFETY: just claimed: ours, and free magazines are empty.
        if !unsafe { self.load(cache, class, empty, rounds) } {
            self.world().magazines.release(empty.index());
            return false;
        }
        // SAFETY: the caller's block, and its thread's cache of the same pool.
        unsafe { cache.push(Class::new(class), block) }
    }

    /// One berth more for a class without magazines, if the cache may have it and the cap allows.
    fn add_berth(&self, cache: &Cache<S>, class: usize) -> bool {
        // SAFETY: callers hold a block.
        let backing = unsafe { self.backing() };
        let charge = backing.class_charge(class);
        let Some(cost) = cache.berth_cost(class, charge, backing.berths(), backing.budget()) else {
            return false;
        };
        // What lies beyond the budget has to be within reach.
        let Charged { berths, beyond, .. } = cost.charged;
        if beyond > 0 && !is_reachable() || !self.stock(backing, berths) {
            return false;
        }
        let rests = self.rest_bytes(backing, beyond);
        let magazines = &self.world().magazines;
        let magazine = if rests && cost.first {
            magazines.claim().ok().map(|(_, magazine)| magazine)
        } else {
            None
        };
        let place = magazine.map_or(ptr::null(), ptr::from_ref);
        let ready = rests && magazine.is_some() == cost.first;
        let now = self.ledger.ticks();
        // SAFETY: just claimed: ours, and free magazines are empty.
        if ready && unsafe { cache.add_berth(class, cost, place, now) } {
            return true;
        }
        self.ledger.unstock(berths);
        if rests {
            self.ledger.unrest(beyond);
        }
        if let Some(magazine) = magazine {
            magazines.release(magazine.index());
        }
        false
    }

    /// Loads a magazine into the cache if budget and cap have room, and sends the one that it
    /// displaces to the depot. `false`: the magazine is the caller's still.
    ///
    /// # Safety
    /// The magazine is the caller's, of this class and pool; the cache is its thread's.
    unsafe fn load(
        &self,
        cache: &Cache<S>,
        class: usize,
        magazine: &Magazine<S>,
        rounds: u32,
    ) -> bool {
        // SAFETY: callers hold a handle or a block.
        let backing = unsafe { self.backing() };
        let charge = backing.class_charge(class);
        let (room, cost) = match cache.shelf_state(class, rounds, charge, backing.budget()) {
            Some(ShelfState::Stocked { room }) => (room, 0),
            Some(ShelfState::Affordable { room, cost }) if self.stock(backing, cost) => {
                (room, cost)
            }
            _ => return false,
        };
        // SAFETY: the caller's promise.
        unsafe { self.shed(class, magazine, room) };
        // SAFETY: the caller's promise; the magazine now fits the room.
        let Some(displaced) = (unsafe { cache.load(class, magazine, room, cost) }) else {
            self.ledger.unstock(cost);
            return false;
        };
        // SAFETY: it came out of this thread's cache.
        unsafe { self.rest_displaced(class, displaced) };
        true
    }

    /// Sends the rounds of a magazine beyond `room` to the depot: another thread, with more of its
    /// budget left, has filled it.
    ///
    /// # Safety
    /// As [`load`](Self::load).
    unsafe fn shed(&self, class: usize, magazine: &Magazine<S>, room: u32) {
        // SAFETY: the caller's magazine.
        while unsafe { magazine.len() } > room {
            // SAFETY: as above.
            let Some(block) = (unsafe { magazine.pop() }) else {
                return;
            };
            // SAFETY: a round is a block, and blocks are never unmapped.
            let block = unsafe { &*block };
            // SAFETY: the round is ours, of this class and pool.
            unsafe { self.rest_block(class, block) };
        }
    }

    /// # Safety
    /// `magazine` is null, or came out of the calling thread's cache of this pool.
    unsafe fn rest_displaced(&self, class: usize, magazine: *const Magazine<S>) {
        // SAFETY: magazines are arena cells, never unmapped.
        if let Some(magazine) = unsafe { magazine.as_ref() } {
            // SAFETY: the caller's promise.
            unsafe { self.rest_magazine(class, magazine) };
        }
    }

    fn count_give(&self, class: usize) {
        self.numbers_of(class).gives.add(1);
    }

    /// The cache if it can keep blocks of a class, of which a magazine holds `rounds`, now: step 1.
    fn usable<'a>(&self, cache: Option<&'a Cache<S>>, rounds: u32) -> Option<&'a Cache<S>> {
        // SAFETY: callers hold a handle or a block.
        let kept = rounds > 0 || unsafe { self.backing() }.berths() > 0;
        cache.filter(|cache| kept && self.answer(cache))
    }

    /// Step 1: does what is requested of the cache. `false`: the cache cannot be used now.
    fn answer(&self, cache: &Cache<S>) -> bool {
        let request = cache.bias.request();
        if request & CLOSED != 0 {
            // SAFETY: the thread is the cache's owner.
            unsafe { answer_close(cache) };
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
        // The cache's share is there before a closer can find the cache.
        self.add_share();
        // SAFETY: the slot is ours and the cache is vacant while `bind` runs.
        if !cache.bias.adopt(|| unsafe { cache.bind(self) }) {
            // SAFETY: added just above.
            unsafe { self.drop_share() };
            return (cache.bias.request() & (CLOSED | DEAD) == 0).then_some(cache);
        }
        // Ordering: SeqCst - E13, with `close`: either this sees the pool closed, or the closer
        // sees the adopted cache.
        fence(Ordering::SeqCst);
        if self.is_closed() {
            if cache.bias.renounce() {
                // SAFETY: the share that was added above; the closer has not seen the cache.
                unsafe { self.drop_share() };
            }
            return None;
        }
        Some(cache)
    }
}

/// Owner: empties the cache of a closed pool whose closer could not reach it.
///
/// # Safety
/// The calling thread is the cache's owner.
unsafe fn answer_close<S: Backing>(cache: &Cache<S>) {
    if cache.bias.claim_close_flush() {
        // SAFETY: the thread is the owner.
        let core = unsafe { cache.core() };
        // SAFETY: cores are arena cells, never unmapped, and an owned cache is bound to one.
        let core = unsafe { &*core };
        // SAFETY: the flush is ours to do, and the cache is bound to this pool.
        unsafe { core.kill_cache(cache) };
        // SAFETY: the cache's share, given up once.
        unsafe { core.drop_share() };
    }
}

/// A thread answers every closed pool that waits for it: pools without a handle, on which it would
/// never operate again.
///
/// # Safety
/// The caller's thread holds the slot.
pub unsafe fn answer_all<S: Backing>(slot: &Slot<S>) {
    for cache in slot.caches() {
        let request = cache.bias.request();
        if request & CLOSED != 0 && request & FLUSH != 0 && request & DEAD == 0 {
            // SAFETY: the thread is the owner of its slot's caches.
            unsafe { answer_close(cache) };
        }
    }
}

/// A thread begins: claims a slot.
pub fn arrive<S: Backing>(world: &World<S>) -> Option<&Slot<S>> {
    let (_, slot) = world.slots.claim().ok()?;
    slot.set_hold(Hold::Held);
    Some(slot)
}

/// A thread exits: its caches go to their depots, its slot to the next thread.
///
/// # Safety
/// The caller's thread holds the slot and does not use it again.
pub unsafe fn exit<S: Backing>(world: &World<S>, slot: &Slot<S>) {
    slot.set_hold(Hold::Leaving);
    for cache in slot.caches() {
        if cache.bias.exit() {
            // SAFETY: the lock has left the cache to us.
            unsafe { retire(cache) };
        }
    }
    slot.set_hold(Hold::Free);
    world.slots.release(slot.index());
}

/// Empties a cache into the depot and gives up its share of the pool.
///
/// # Safety
/// The caller has the cache to itself, and it had an owner.
unsafe fn retire<S: Backing>(cache: &Cache<S>) {
    // SAFETY: the caller has taken over from the owner.
    let core = unsafe { cache.core() };
    // SAFETY: cores are arena cells, never unmapped, and an owned cache is bound to one.
    let core = unsafe { &*core };
    // SAFETY: the cache's share keeps the pool alive.
    unsafe { core.rest_cache(cache) };
    // SAFETY: the cache's share, given up once.
    unsafe { core.drop_share() };
}

/// In a forked child: the other threads do not exist here. What they kept goes to the depots, but
/// for caches that one of them, or a trimmer, was at in that instant: those are abandoned, the
/// forking thread's own included. Returns how many. Nothing waits.
///
/// # Safety
/// Called in the child, before any other operation; `own` is the slot of the thread that forked,
/// which looks its caches up afresh afterwards.
pub unsafe fn after_fork<S: Backing>(world: &World<S>, own: Option<&Slot<S>>) -> u64 {
    let mut abandoned = 0;
    for core in world.cores.iter() {
        core.end_turn();
    }
    for slot in world.slots.iter() {
        if own.is_some_and(|own| ptr::eq(own, slot)) {
            for cache in slot.caches() {
                if cache.bias.request() & STEAL != 0 && cache.bias.bury() == Steal::LeftToOwner {
                    // SAFETY: the cache had an owner, and nobody touches it any more.
                    unsafe { abandon(slot, cache) };
                    abandoned += 1;
                }
            }
            continue;
        }
        match slot.hold() {
            Hold::Free => {}
            // Its caches may be half-way home: the slot is never used again.
            Hold::Leaving => abandoned += slot.caches().count() as u64,
            Hold::Held => {
                for cache in slot.caches() {
                    match cache.bias.bury() {
                        // SAFETY: the owner does not exist here, and nobody was at the cache.
                        Steal::Taken => unsafe { retire(cache) },
                        Steal::LeftToOwner => {
                            // SAFETY: as for the own slot.
                            unsafe { abandon(slot, cache) };
                            abandoned += 1;
                        }
                        Steal::Vacant => {}
                    }
                }
                slot.set_hold(Hold::Free);
                world.slots.release(slot.index());
            }
        }
    }
    abandoned
}

/// Takes a cache that may be half-way through an operation out of its slot, which will build
/// another. Its counts and its room stay known; what it kept is lost.
///
/// # Safety
/// The cache had an owner; the caller, alone in its process, is the last to touch it.
unsafe fn abandon<S: Backing>(slot: &Slot<S>, cache: &Cache<S>) {
    // SAFETY: the caller's promise.
    let core = unsafe { cache.core() };
    // SAFETY: cores are arena cells, never unmapped, and an owned cache is bound to one.
    let core = unsafe { &*core };
    for class in 0..CLASSES {
        let (takes, gives) = cache.tallies(class);
        let numbers = core.numbers_of(class);
        numbers.takes.add(takes);
        numbers.gives.add(gives);
    }
    // SAFETY: the caller's promise.
    core.ledger.vacate(unsafe { cache.charged() });
    slot.forget(cache);
}
