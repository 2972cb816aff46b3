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
    /// The owner is inside or cannot be watched; if asked, it empties the cache at its next operation.
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
        // Ordering: Relaxed - E5, with `wait_until_out`: ordered before the load of `request` by the
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
        // Ordering: Release - E7, with `wait_until_out`: what the owner did to the cache.
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
        // Ordering: Relaxed - the owner enters before it touches the cache, and `enter` orders that.
        self.request
            .compare_exchange(FLUSH, 0, Ordering::Relaxed, Ordering::Relaxed)
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
    /// while somebody is still emptying it, or if it is not vacant. A cache of a closed pool is
    /// vacant once its flush was claimed, or if it had no owner when the pool closed.
    #[must_use]
    pub fn adopt(&self, bind: impl FnOnce()) -> bool {
        // Ordering: Acquire - E6, with `restore`: the cache is empty, and nobody is at it.
        let seen = self.request.load(Ordering::Acquire);
        let vacant = seen & DEAD != 0 || seen & (CLOSED | FLUSH) == CLOSED;
        if seen & STEAL != 0 || !vacant {
            return false;
        }
        bind();
        // Ordering: Release - E6, with `steal` and `close`: the cache as bound.
        self.request
            .compare_exchange(seen, 0, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// Owner: gives a just adopted, still empty cache up again because the pool has closed.
    /// `false` if the closer has found the cache: then it, or a later answer, retires it.
    #[must_use]
    pub fn renounce(&self) -> bool {
        // Ordering: Relaxed - nothing was put in, and only this thread adopts the cache again.
        let before = self.request.fetch_or(CLOSED, Ordering::Relaxed);
        before & CLOSED == 0
    }

    /// Trimmer: asks for the cache. Trimmers of one pool take turns (see `Core::trim`). With `flush`, an
    /// owner that cannot be waited for is left the request to empty it; else it is left alone.
    pub fn steal(&self, flush: bool) -> Steal {
        let seen = self.request() & FLUSH;
        // Ordering: Acquire - E6, with `adopt`: the cache as bound, by an owner that may not have
        // been inside yet. (Trimmers see each other's work by their turn.)
        let raised =
            self.request
                .compare_exchange(seen, STEAL, Ordering::Acquire, Ordering::Relaxed);
        if raised.is_err() {
            return Steal::Vacant;
        }
        if self.wait_until_out() {
            return Steal::Taken;
        }
        let left = if flush { FLUSH } else { seen };
        // Ordering: Relaxed, on failure Acquire - E8, with `exit`: nothing was done to the cache; or
        // the owner has exited in between and left it to us.
        match self
            .request
            .compare_exchange(STEAL, left, Ordering::Relaxed, Ordering::Acquire)
        {
            Ok(_) => Steal::LeftToOwner,
            Err(_) => Steal::Taken,
        }
    }

    /// Trimmer: gives the emptied cache back to its owner. `false` if that has exited in the
    /// meantime and left it to the trimmer, which then retires it.
    #[must_use]
    pub fn restore(&self) -> bool {
        // Ordering: Release - E6, with `enter`, `adopt` and `claim_close_flush`; E8, with `exit`: the
        // cache as emptied.
        let before = self.request.fetch_and(!STEAL, Ordering::Release);
        before & DEAD == 0
    }

    /// Auditor: gives the cache back as it was. `false` if its owner has exited in the meantime: then
    /// the cache is still the auditor's, to be emptied and [`restore`](Self::restore)d.
    #[must_use]
    pub fn give_back(&self) -> bool {
        let mut seen = self.request();
        while seen & DEAD == 0 {
            // Ordering: Release, on failure Acquire - E6, with `enter` and `claim_close_flush`: the cache
            // as it was looked at; E8, with `exit`: what the owner did to the cache.
            match self.request.compare_exchange_weak(
                seen,
                seen & !STEAL,
                Ordering::Release,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// The closing pool: marks the cache for ever. `Taken` if the closer has to empty it now and
    /// then [`restore`](Self::restore) it; `LeftToOwner` if the owner empties it at its next
    /// operation or exit. The owner itself may close: then it is outside, and no barrier is needed.
    pub fn close(&self, by_owner: bool) -> Steal {
        let mut seen = self.request();
        loop {
            // A flush is requested of a living cache only: on one that was left, or that kept the
            // mark of an earlier pool, somebody would take it for a flush of its own.
            let vacant = seen & (DEAD | CLOSED | STEAL) != 0;
            let marked = seen | CLOSED | if vacant { 0 } else { FLUSH };
            // Ordering: Acquire - E6, with `adopt`: the cache as bound.
            match self.request.compare_exchange_weak(
                seen,
                marked,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) if vacant => return Steal::Vacant,
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        if !by_owner && !self.wait_until_out() {
            return Steal::LeftToOwner;
        }
        // The owner does not touch the cache any more once it has seen the request, unless it
        // claims the flush first: whoever takes the FLUSH bit away empties the cache. The closer
        // holds STEAL instead meanwhile, so that nobody adopts the cache under it.
        let mut seen = self.request();
        while seen & FLUSH != 0 {
            // Ordering: Relaxed - `wait_until_out` has shown the cache as its owner left it.
            match self.request.compare_exchange_weak(
                seen,
                seen ^ (FLUSH | STEAL),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Steal::Taken,
                Err(now) => seen = now,
            }
        }
        Steal::LeftToOwner
    }

    /// Owner of a closed pool's cache: `true` if it has to empty it.
    #[must_use]
    pub fn claim_close_flush(&self) -> bool {
        // Ordering: Acquire - E6, with `restore`: what an earlier trimmer did to the cache.
        let before = self.request.fetch_and(!FLUSH, Ordering::Acquire);
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
        for looks in 0..BUSY_LOOKS {
            // Ordering: Acquire - E7, with `leave`: what the owner did to the cache; E5, with
            // `enter`: a 0 behind the barrier means that the owner will see the request.
            if self.busy.load(Ordering::Acquire) == 0 {
                return true;
            }
            pause(looks);
        }
        false
    }
}
