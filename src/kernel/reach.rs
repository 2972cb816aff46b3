//! Reach: an owner-biased lock, by which a trimmer empties the cache of a thread that may sleep.
//!
//! The owner enters and leaves with plain stores and one load; nobody makes it wait. A trimmer
//! raises a request, makes every thread execute a barrier, and then looks whether the owner is
//! inside; if it stays inside, the trimmer leaves the work to the owner instead.
//!
//! The proof is by cases. The owner stores `busy` and then loads `request`; the trimmer swaps
//! `request` and then loads `busy`, each with a barrier in between (light on the owner's side,
//! heavy on the trimmer's). So at least one of the two sees the other: either the owner sees the
//! request and does not touch the cache, or the trimmer sees `busy` and waits.

use super::sync::{AtomicU32, Ordering, const_fn, heavy_barrier, light_barrier, pause};
use super::tuning::BUSY_LOOKS;

/// A trimmer has, or is about to have, the cache.
pub const STEAL: u32 = 1;
/// The owner shall give everything back to the source at its next operation.
pub const FLUSH: u32 = 2;
/// The owner has exited, or not arrived yet.
pub const DEAD: u32 = 4;
/// The pool is closed, for ever as far as this cache is concerned.
pub const CLOSED: u32 = 8;

/// How a trimmer fared.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steal {
    /// The cache is the trimmer's until [`Bias::restore`].
    Taken,
    /// The owner is inside or cannot be watched; it will empty the cache at its next operation.
    LeftToOwner,
    /// The cache has no owner, or a closed pool, or another trimmer: nothing to do.
    Vacant,
}

/// The lock of one cache.
#[derive(Debug)]
pub struct Bias {
    /// Written by the owner only: 1 while it is inside.
    busy: AtomicU32,
    /// Changed by read-modify-writes only: any of the bits above, or 0.
    request: AtomicU32,
}

impl Bias {
    const_fn! {
        /// A lock whose cache has no owner yet.
        pub fn vacant() -> Bias {
            Bias { busy: AtomicU32::new(0), request: AtomicU32::new(DEAD) }
        }
    }

    /// Owner: goes inside, unless somebody requests something. The region up to
    /// [`leave`](Self::leave) is straight-line code.
    #[inline(always)]
    pub fn enter(&self) -> bool {
        // Ordering: Relaxed - E5, with `steal`: ordered before the load of `request` by the
        // light barrier, which pairs with the trimmer's heavy one.
        self.busy.store(1, Ordering::Relaxed);
        light_barrier();
        // Ordering: Acquire - E6, with `restore`: what the trimmer did to the cache.
        if self.request.load(Ordering::Acquire) == 0 {
            return true;
        }
        self.leave();
        false
    }

    /// Owner: comes out again.
    #[inline(always)]
    pub fn leave(&self) {
        // Ordering: Release - E7, with `steal`: what the owner did to the cache.
        self.busy.store(0, Ordering::Release);
    }

    /// What is requested now, or was shortly before.
    pub fn request(&self) -> u32 {
        // Ordering: Relaxed - a look; whoever acts on it does so by an RMW.
        self.request.load(Ordering::Relaxed)
    }

    /// Owner: takes the request to flush back, and owes the flush. `false` if there is none, or a
    /// trimmer has come for the cache itself.
    pub fn accept_flush(&self) -> bool {
        // Ordering: Acquire - E6, with `restore`: a trimmer may have had the cache before.
        self.request
            .compare_exchange(FLUSH, 0, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Owner: exits. `true` if the owner still has to empty the cache; else a trimmer or the
    /// closing pool has it in hand.
    #[must_use]
    pub fn exit(&self) -> bool {
        // Ordering: AcqRel - E8, with `steal` and `restore`: a trimmer that holds the cache sees
        // what the owner did to it; the owner sees what an earlier trimmer did.
        let before = self.request.fetch_or(DEAD, Ordering::AcqRel);
        if before & DEAD != 0 {
            return false;
        }
        if before & CLOSED != 0 {
            return self.claim_close_flush();
        }
        before & STEAL == 0
    }

    /// A new owner takes a vacant cache, after `bind` has written what only owners read. `false`
    /// while somebody is still emptying it, or if it is not vacant.
    #[must_use]
    pub fn adopt(&self, bind: impl FnOnce()) -> bool {
        // Ordering: Acquire - E6, with `restore`: the cache is empty, and nobody is at it.
        let seen = self.request.load(Ordering::Acquire);
        if seen & STEAL != 0 || seen & (DEAD | CLOSED) == 0 {
            return false;
        }
        bind();
        // Ordering: AcqRel - E6, with `steal`: the cache as bound; and with a pool that closes in
        // between: that it is closed.
        self.request
            .compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Owner: gives a just adopted, still empty cache up again because the pool has closed.
    /// `false` if the closer has found the cache: then it, or a later answer, retires it.
    #[must_use]
    pub fn renounce(&self) -> bool {
        // Ordering: AcqRel - E6, with `adopt`: nothing was put in; E8: what the closer did.
        let before = self.request.fetch_or(CLOSED, Ordering::AcqRel);
        before & CLOSED == 0
    }

    /// Trimmer: asks for the cache. Trimmers of one pool take turns (see `Core::trim`).
    pub fn steal(&self) -> Steal {
        let seen = self.request() & FLUSH;
        // Ordering: Acquire - E6, with `restore`: an earlier trimmer's work on the cache.
        let raised =
            self.request
                .compare_exchange(seen, STEAL, Ordering::Acquire, Ordering::Relaxed);
        if raised.is_err() {
            return Steal::Vacant;
        }
        if self.wait_until_out() {
            return Steal::Taken;
        }
        // Ordering: Release, on failure Acquire - E8, with `exit`: the owner may have exited in
        // between and left its cache to us.
        match self
            .request
            .compare_exchange(STEAL, FLUSH, Ordering::Release, Ordering::Acquire)
        {
            Ok(_) => Steal::LeftToOwner,
            Err(_) => Steal::Taken,
        }
    }

    /// Trimmer: gives the emptied cache back to its owner. `false` if that has exited in the
    /// meantime and left it to the trimmer, which then retires it.
    #[must_use]
    pub fn restore(&self) -> bool {
        // Ordering: Release - E6, with `enter`, `adopt` and `accept_flush`: the cache as emptied.
        let before = self.request.fetch_and(!STEAL, Ordering::Release);
        before & DEAD == 0
    }

    /// The closing pool: marks the cache for ever. `Taken` if the closer has to empty it now;
    /// `LeftToOwner` if the owner does so at its next operation or exit.
    /// The owner itself may close: then it is outside, and no barrier is needed.
    pub fn close(&self, by_owner: bool) -> Steal {
        // Ordering: AcqRel - E8, with `exit`; E6, with `restore`: as in `steal`.
        let before = self.request.fetch_or(CLOSED | FLUSH, Ordering::AcqRel);
        if before & (DEAD | CLOSED | STEAL) != 0 {
            return Steal::Vacant;
        }
        if !by_owner && !self.wait_until_out() {
            return Steal::LeftToOwner;
        }
        // The owner does not touch the cache any more once it has seen the request, unless it
        // claims the flush first: whoever takes the FLUSH bit away empties the cache.
        if self.claim_close_flush() {
            Steal::Taken
        } else {
            Steal::LeftToOwner
        }
    }

    /// Owner or closer of a closed pool: whoever gets `true` empties the cache.
    #[must_use]
    pub fn claim_close_flush(&self) -> bool {
        // Ordering: AcqRel - E7 and E8, with `leave` and `exit`: the cache as its owner left it.
        let before = self.request.fetch_and(!FLUSH, Ordering::AcqRel);
        before & FLUSH != 0
    }

    /// In a forked child, where the owner's thread does not exist: takes the cache from it for good.
    /// `Taken` if it is whole and to be emptied; `LeftToOwner` if the owner, or a trimmer, was at
    /// it, and then nobody may touch it again.
    pub fn bury(&self) -> Steal {
        let seen = self.request();
        if seen & DEAD != 0 {
            return Steal::Vacant;
        }
        // Ordering: Relaxed - the child has one thread; fork ordered everything before it.
        let broken = seen & STEAL != 0 || self.busy.load(Ordering::Relaxed) != 0;
        let grave = if broken { DEAD | STEAL } else { DEAD };
        // Ordering: AcqRel - E8, with later owners of the cache, as for an exit.
        self.request.fetch_or(grave, Ordering::AcqRel);
        if broken {
            Steal::LeftToOwner
        } else if seen & CLOSED != 0 && seen & FLUSH == 0 {
            Steal::Vacant
        } else {
            Steal::Taken
        }
    }

    /// Waits a bounded time for the owner to be outside. `false` also where no barrier is to be had.
    fn wait_until_out(&self) -> bool {
        if !heavy_barrier() {
            return false;
        }
        for _ in 0..BUSY_LOOKS {
            // Ordering: Acquire - E7, with `leave`: what the owner did to the cache.
            if self.busy.load(Ordering::Acquire) == 0 {
                return true;
            }
            pause();
        }
        false
    }
}
