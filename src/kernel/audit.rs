//! The audit: every block of a quiet pool is in exactly one place, and the sums say so.

#![allow(unsafe_code)]

use std::collections::HashSet;

use super::backing::Backing;
use super::block::Block;
use super::cache::Cache;
use super::core::Core;
use super::reach::Steal;
use super::slots::Hold;
use super::sync::pause;
use super::tuning::{AUDIT_LOOKS, CLASSES};

/// Where the blocks of a pool are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Blocks with users.
    pub live: u64,
    /// Blocks in thread caches.
    pub cached: u64,
    /// Blocks in the depot.
    pub depot: u64,
}

/// What does not add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The calling thread trims the pool: what called back from there cannot audit it.
    Busy,
    /// A block rests in two places, or in a place of another class or pool.
    Misplaced {
        /// Index of the control block.
        block: u32,
        /// Class of the place.
        class: usize,
    },
    /// Blocks that exist are not those with users and those that rest.
    Blocks {
        /// The class, or `CLASSES` for what has none.
        class: usize,
        /// Births minus deaths.
        exist: u64,
        /// Takes minus gives.
        live: u64,
        /// Found in caches and depot.
        resting: u64,
    },
    /// The ledger's resting bytes are not those found in the depot and beyond the caches' budgets.
    Resting {
        /// The ledger's bytes.
        ledger: u64,
        /// Bytes found.
        found: u64,
    },
    /// The ledger holds fewer bytes than the blocks that exist.
    Held {
        /// The ledger's bytes.
        ledger: u64,
        /// Bytes of the blocks that exist.
        found: u64,
    },
}

impl<S: Backing> Core<S> {
    /// Finds every resting block and compares with the counts. Meaningful when the pool is quiet;
    /// takes the trimmers' turn, and puts everything back where it was.
    ///
    /// # Safety
    /// The caller holds a handle of the pool; `own` is its thread's cache of it, if there is one.
    pub unsafe fn audit(&self, own: Option<&Cache<S>>) -> Result<Places, Mismatch> {
        self.in_turn(own, || {
            // All caches are held from before the first count to after the last: a thread that exits
            // in between leaves its own to us, where it is.
            let caches = self.hold_caches(own);
            // SAFETY: the caller's promise.
            let result = unsafe { self.audit_in_turn(&caches) };
            self.release_caches(own, &caches);
            result
        })
        .unwrap_or(Err(Mismatch::Busy))
    }

    /// # Safety
    /// As [`audit`](Self::audit), and the turn and the caches are the caller's.
    unsafe fn audit_in_turn(&self, caches: &[&Cache<S>]) -> Result<Places, Mismatch> {
        // SAFETY: the caller holds a handle.
        let backing = unsafe { self.backing() };
        let mut seen = Seen::<S>::new(self);
        let mut cached = [0; CLASSES];
        let mut beyond_bytes = 0;
        for cache in caches {
            // SAFETY: the lock has given the cache to us.
            beyond_bytes += unsafe { cache.charged() }.beyond as u64;
            for (class, count) in cached.iter_mut().enumerate() {
                // SAFETY: the lock has given the cache to us.
                unsafe { cache.inspect(class, |block| *count += seen.note(block, class)) };
            }
        }
        let mut places = Places::default();
        let (mut resting_bytes, mut held_bytes) = (0, 0u64);
        for (class, &cached) in cached.iter().enumerate() {
            // SAFETY: the caller holds a handle.
            let depot = unsafe { self.audit_depot(class, &mut seen) };
            let numbers = self.numbers_of(class);
            let exist = numbers.births.get().wrapping_sub(numbers.deaths.get());
            let (takes, gives) = self.traffic(class);
            let live = takes.wrapping_sub(gives);
            let resting = cached + depot;
            if exist != live.wrapping_add(resting) {
                return Err(Mismatch::Blocks {
                    class,
                    exist,
                    live,
                    resting,
                });
            }
            places.live = places.live.wrapping_add(live);
            places.cached += cached;
            places.depot += depot;
            if exist > 0 {
                let charge = backing.class_charge(class) as u64;
                resting_bytes += depot * charge;
                held_bytes = exist.wrapping_mul(charge).wrapping_add(held_bytes);
            }
        }
        let (births, deaths) = (self.unclassed.births.get(), self.unclassed.deaths.get());
        places.live = places.live.wrapping_add(births.wrapping_sub(deaths));
        if let Some((block, class)) = seen.misplaced {
            return Err(Mismatch::Misplaced { block, class });
        }
        self.audit_ledger(resting_bytes + beyond_bytes, held_bytes)?;
        Ok(places)
    }

    /// Takes every thread cache to itself, the auditing thread's `own` included. Waits a bounded
    /// time for threads that are on their way out: what they keep is nowhere to be found meanwhile.
    fn hold_caches(&self, own: Option<&Cache<S>>) -> Vec<&Cache<S>> {
        let mut held = Vec::new();
        let mut looks = AUDIT_LOOKS;
        for slot in self.world().slots.iter() {
            while let Some(cache) = slot.cache(self.index()) {
                let is_own = own.is_some_and(|own| core::ptr::eq(own, cache));
                let reached = if is_own {
                    cache.bias.enter()
                } else {
                    cache.bias.steal(false) == Steal::Taken
                };
                if reached {
                    held.push(cache);
                }
                if reached || slot.hold() != Hold::Leaving || looks == 0 {
                    break;
                }
                looks -= 1;
                pause(AUDIT_LOOKS - looks);
            }
        }
        held
    }

    /// Gives the caches back as they were; those whose owner has exited meanwhile go home.
    fn release_caches(&self, own: Option<&Cache<S>>, held: &[&Cache<S>]) {
        for cache in held {
            if own.is_some_and(|own| core::ptr::eq(own, *cache)) {
                cache.bias.leave();
            } else {
                self.give_back_cache(cache);
            }
        }
    }

    /// Compares the ledger with the bytes that were found.
    fn audit_ledger(&self, resting_bytes: u64, held_bytes: u64) -> Result<(), Mismatch> {
        let ledger = self.ledger.resting() as u64;
        if ledger != resting_bytes {
            return Err(Mismatch::Resting {
                ledger,
                found: resting_bytes,
            });
        }
        let ledger = self.ledger.held() as u64;
        let exact = self.unclassed.births.get() == self.unclassed.deaths.get();
        if ledger < held_bytes || exact && ledger != held_bytes {
            return Err(Mismatch::Held {
                ledger,
                found: held_bytes,
            });
        }
        Ok(())
    }

    /// Counts the depot's blocks of `class`: takes everything out and puts it back in order.
    ///
    /// # Safety
    /// The caller holds a handle of the pool.
    unsafe fn audit_depot(&self, class: usize, seen: &mut Seen<'_, S>) -> u64 {
        let (world, depot) = (self.world(), self.depot(class));
        let mut count = 0;
        let mut magazines = Vec::new();
        while let Some(magazine) = depot.pop_magazine(&world.magazines) {
            // SAFETY: just popped: ours.
            for slot in 0..unsafe { magazine.len() } {
                // SAFETY: below the length.
                count += seen.note(unsafe { magazine.round(slot) }, class);
            }
            magazines.push(magazine);
        }
        for magazine in magazines.into_iter().rev() {
            // SAFETY: popped above, with a round at least.
            unsafe { depot.push_magazine(&world.magazines, magazine) };
        }
        let mut blocks = Vec::new();
        while let Some(block) = depot.pop_block(&world.blocks) {
            count += seen.note(block, class);
            blocks.push(block);
        }
        for block in blocks.into_iter().rev() {
            // SAFETY: popped above.
            unsafe { depot.push_block(&world.blocks, block) };
        }
        count
    }
}

/// Blocks met so far.
struct Seen<'a, S: Backing> {
    core: &'a Core<S>,
    blocks: HashSet<u32>,
    misplaced: Option<(u32, usize)>,
}

impl<'a, S: Backing> Seen<'a, S> {
    fn new(core: &'a Core<S>) -> Self {
        Self {
            core,
            blocks: HashSet::new(),
            misplaced: None,
        }
    }

    /// Notes a block that rests in a place of `class`; always counts as one.
    fn note(&mut self, block: *const Block<S>, class: usize) -> u64 {
        // SAFETY: rounds are blocks, arena cells that are never unmapped; resting in a place that
        // the auditor has to itself, this one is the auditor's.
        let block = unsafe { &*block };
        // SAFETY: as above.
        let label = unsafe { block.label() };
        // SAFETY: as above.
        let at_home = core::ptr::eq(unsafe { block.core() }, self.core);
        let released = block.state.load().is_released();
        let new = self.blocks.insert(block.index());
        if !(at_home && released && new && usize::from(label.class) == class) {
            self.misplaced = Some((block.index(), class));
        }
        1
    }
}
