//! Room for a birth within promise and limit: what rests goes, the coldest first.

#![allow(unsafe_code)]

use super::backing::Backing;
use super::cache::Cache;
use super::core::Core;
use super::trim::By;
use super::tuning::CLASSES;

/// The class to evict from.
#[derive(Clone, Copy)]
struct Coldest {
    class: usize,
    /// Bytes times the pool's ticks.
    coldness: u128,
}

impl<S: Backing> Core<S> {
    /// Charges a birth of `bytes`; while promise or limit is in the way, blocks that rest go. In the
    /// trimmers' turn: what another thread is just giving back is still held, and will not be there
    /// after. May wait.
    ///
    /// # Errors
    /// The limit is reached, and nothing rests within reach but in the caches of threads; the bytes
    /// that were reserved at that moment.
    pub fn admit(&self, bytes: usize, own: Option<&Cache<S>>) -> Result<(), usize> {
        // SAFETY: callers hold a handle or a block.
        let policy = unsafe { self.backing() }.policy();
        if self.ledger.admit(bytes, policy) {
            return Ok(());
        }
        self.with_room(own, |make_room| {
            while !self.ledger.admit(bytes, policy) {
                if !make_room() {
                    return self.ledger.admit_bare(bytes, policy);
                }
            }
            Ok(())
        })
    }

    /// Runs `f` in the trimmers' turn, and gives it one step towards room for a birth, which says `false`
    /// if nothing rests within reach. May wait. Where the calling thread has the turn already, caches may
    /// be in its hands, and only the depot is within reach.
    pub fn with_room<R>(&self, own: Option<&Cache<S>>, f: impl Fn(&dyn Fn() -> bool) -> R) -> R {
        self.in_turn(own, || f(&|| self.make_room(own)))
            .unwrap_or_else(|| f(&|| self.evict_coldest(None)))
    }

    /// What counts as resting and does not comes first, then the depot and the caller's own berths, then
    /// those of others.
    fn make_room(&self, own: Option<&Cache<S>>) -> bool {
        self.drop_vacant(own) || self.evict_coldest(own) || self.evict_berth(own)
    }

    /// The vacant berths of the caller's `own` cache go, which sets right what counts as resting.
    /// `false` if none of them was beyond the budget.
    fn drop_vacant(&self, own: Option<&Cache<S>>) -> bool {
        // SAFETY: the cache is the caller's.
        own.is_some_and(|own| own.has_berths() && unsafe { self.unberth_vacant(own, By::Owner) })
    }

    /// Kills one magazine or block of the class where most bytes have rested for longest, measured
    /// as their product: in the depot, or in a berth of the caller's `own` cache. `false` if nothing
    /// rests there.
    fn evict_coldest(&self, own: Option<&Cache<S>>) -> bool {
        if self.ledger.resting() == 0 {
            return false;
        }
        let now = self.ledger.ticks();
        let depot = self.coldest_in_depot(now);
        let berth = own.and_then(|own| Some((own, self.coldest_berth(own, now)?)));
        if let Some((own, coldest)) = berth
            && depot.is_none_or(|depot| depot.coldness <= coldest.coldness)
        {
            // SAFETY: the cache is the caller's.
            let gone = unsafe { self.unberth(own, By::Owner, coldest.class, false) };
            return gone.is_some();
        }
        // Somebody else may have emptied it in the meantime: then any other will do.
        depot.is_some_and(|depot| self.evict(depot.class).is_some())
            || (0..CLASSES).any(|class| self.evict(class).is_some())
    }

    /// The class of the depot where most bytes have rested for longest.
    fn coldest_in_depot(&self, now: u64) -> Option<Coldest> {
        let resting = (0..CLASSES).filter(|&class| self.depot_estimate(class) > 0);
        let cold = resting.map(|class| {
            let blocks = self.depot_estimate(class);
            self.coldness(class, blocks, self.depot(class).idle(now))
        });
        cold.max_by_key(|cold| cold.coldness)
    }

    /// The class in whose berths a block has rested for longest, by bytes; some may be vacant.
    fn coldest_berth(&self, own: &Cache<S>, now: u64) -> Option<Coldest> {
        if !own.has_berths() {
            return None;
        }
        let classes = (0..CLASSES).filter(|&class| self.berths_serve(class));
        let cold = classes.filter_map(|class| {
            // SAFETY: the owner is inside.
            let idle = unsafe { own.idle(class, now) }?;
            Some(self.coldness(class, 1, idle))
        });
        own.inside(|| cold.max_by_key(|cold| cold.coldness))?
    }

    fn coldness(&self, class: usize, blocks: u64, idle: u64) -> Coldest {
        // SAFETY: callers hold a handle or a block.
        let charge = unsafe { self.backing() }.class_charge(class);
        let bytes = u128::from(blocks) * charge as u128;
        Coldest {
            class,
            coldness: bytes * (1 + u128::from(idle)),
        }
    }

    /// When nothing rests in the depot and the caller's `own` berths any more: other threads' berths
    /// beyond the budget count as if they did, so the vacant ones of a cache go, and if it has none,
    /// one block. The turn is the caller's. `false` if nothing is within reach.
    fn evict_berth(&self, own: Option<&Cache<S>>) -> bool {
        if self.ledger.resting() == 0 {
            return false;
        }
        // What an earlier trimmer has left to this thread keeps it out of its cache until answered.
        if own.is_some_and(|own| own.bias.accept_flush() && self.kill_own(own) > 0) {
            return true;
        }
        let evict = |cache: &Cache<S>, by: By| {
            // SAFETY: `reach` gives a cache that is ours.
            let vacant = unsafe { self.unberth_vacant(cache, by) };
            // SAFETY: as above.
            vacant || unsafe { self.unberth_one(cache, by) }
        };
        self.berthed_caches()
            .any(|cache| self.reach(cache, own, evict) == Some(true))
    }

    /// Takes all vacant berths away. `false` if none of them was beyond the budget.
    ///
    /// # Safety
    /// The cache is the caller's, as `by` says.
    unsafe fn unberth_vacant(&self, cache: &Cache<S>, by: By) -> bool {
        let mut beyond = 0;
        for class in (0..CLASSES).filter(|&class| self.berths_serve(class)) {
            // SAFETY: the caller's promise.
            while let Some(gone) = unsafe { self.unberth(cache, by, class, true) } {
                beyond += gone.beyond;
            }
        }
        beyond > 0
    }

    /// Takes one berth of the largest class away, and kills what is in it. `false` if there is none.
    ///
    /// # Safety
    /// The cache is the caller's, as `by` says.
    unsafe fn unberth_one(&self, cache: &Cache<S>, by: By) -> bool {
        let mut classes = (0..CLASSES).rev().filter(|&class| self.berths_serve(class));
        // SAFETY: the caller's promise.
        classes.any(|class| unsafe { self.unberth(cache, by, class, false) }.is_some())
    }
}
