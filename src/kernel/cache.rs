//! A thread's cache of one pool: per class a loaded and a previous magazine, behind the
//! owner-biased lock. Caches are type-stable and belong to a pair of thread slot and pool index.

#![allow(unsafe_code)]

use core::ptr;

use super::arena::Cell;
use super::block::Block;
use super::core::{Backing, Core};
use super::magazine::Magazine;
use super::reach::Bias;
use super::sync::{Tally, UnsafeCell, array, const_fn};
use super::tuning::CLASSES;

/// What one class keeps in a cache. `loaded` may be null, and then `len` and `room` are 0.
struct Shelf<S: Backing> {
    loaded: *const Magazine<S>,
    len: u32,
    room: u32,
    previous: *const Magazine<S>,
}

/// A class's place in the cache.
struct Place<S: Backing> {
    shelf: UnsafeCell<Shelf<S>>,
    takes: Tally,
    gives: Tally,
}

/// The cache.
pub struct Cache<S: Backing> {
    /// Who may touch the shelves.
    pub bias: Bias,
    core: UnsafeCell<*const Core<S>>,
    /// Bytes of the budget that the touched classes have charged.
    charged: UnsafeCell<usize>,
    places: [Place<S>; CLASSES],
}

// SAFETY: the shelves are touched only by who is inside the lock; the rest is atomic.
unsafe impl<S: Backing> Send for Cache<S> {}
// SAFETY: as above.
unsafe impl<S: Backing> Sync for Cache<S> {}

impl<S: Backing> Cell for Cache<S> {
    const PER_SLAB: usize = S::CACHES_PER_SLAB;

    fn new(_index: u32) -> Self {
        Self::vacant()
    }
}

/// What came out of a shelf: up to two magazines with their lengths recorded in them.
pub struct Emptied<S: Backing> {
    /// Magazines, null where there was none.
    pub magazines: [*const Magazine<S>; 2],
}

impl<S: Backing> Cache<S> {
    const_fn! {
        /// A cache without an owner.
        pub fn vacant() -> Cache<S> {
            Cache {
                bias: Bias::vacant(),
                core: UnsafeCell::new(ptr::null()),
                charged: UnsafeCell::new(0),
                places: array![Place {
                    shelf: UnsafeCell::new(Shelf {
                        loaded: ptr::null(),
                        len: 0,
                        room: 0,
                        previous: ptr::null(),
                    }),
                    takes: Tally::new(),
                    gives: Tally::new(),
                }; CLASSES],
            }
        }
    }

    /// Owner: pops a block of `class` from the loaded magazine. The hit path.
    #[inline(always)]
    pub fn pop(&self, class: usize) -> Option<*const Block<S>> {
        let place = self.places.get(class)?;
        if !self.bias.enter() {
            return None;
        }
        let block = place.shelf.with_mut(|shelf| {
            // SAFETY: the owner is inside: nobody else touches the shelf.
            let shelf = unsafe { &mut *shelf };
            if shelf.len == 0 {
                return None;
            }
            shelf.len -= 1;
            // SAFETY: with a length above 0 there is a loaded magazine, and it is the shelf's.
            let loaded = unsafe { &*shelf.loaded };
            // SAFETY: the slot is below the length that was.
            Some(unsafe { loaded.round(shelf.len) })
        });
        if block.is_some() {
            place.takes.add(1);
        }
        self.bias.leave();
        block
    }

    /// Owner: pushes a block of `class` onto the loaded magazine. The hit path. `false` hands the
    /// block back.
    ///
    /// # Safety
    /// The block is of this class and of this cache's pool, and the caller's alone.
    #[inline(always)]
    pub unsafe fn push(&self, class: usize, block: *const Block<S>) -> bool {
        let Some(place) = self.places.get(class) else {
            return false;
        };
        if !self.bias.enter() {
            return false;
        }
        let pushed = place.shelf.with_mut(|shelf| {
            // SAFETY: the owner is inside: nobody else touches the shelf.
            let shelf = unsafe { &mut *shelf };
            if shelf.len == shelf.room {
                return false;
            }
            // SAFETY: with room above 0 there is a loaded magazine, and it is the shelf's.
            let loaded = unsafe { &*shelf.loaded };
            // SAFETY: the room is at most the magazine's number of slots.
            unsafe { loaded.set_round(shelf.len, block) };
            shelf.len += 1;
            true
        });
        if pushed {
            place.gives.add(1);
        }
        self.bias.leave();
        pushed
    }

    /// Owner: brings the previous magazine forward if it suits: a non-empty one for a take, an
    /// empty one for a give. Bonwick and Adams' rule, which bounds the trips to the depot.
    pub fn swap_previous(&self, class: usize, for_take: bool) -> bool {
        let place = &self.places[class];
        if !self.bias.enter() {
            return false;
        }
        let swapped = place.shelf.with_mut(|shelf| {
            // SAFETY: the owner is inside: nobody else touches the shelf.
            let shelf = unsafe { &mut *shelf };
            if shelf.previous.is_null() {
                return false;
            }
            // SAFETY: the shelf's own magazine.
            let previous = unsafe { &*shelf.previous };
            // SAFETY: as above.
            let len = unsafe { previous.len() };
            if (len == 0) == for_take {
                return false;
            }
            // SAFETY: the loaded magazine exists where a previous one does.
            let loaded = unsafe { &*shelf.loaded };
            // SAFETY: the shelf's own magazine, with `len` rounds.
            unsafe { loaded.set_len(shelf.len) };
            core::mem::swap(&mut shelf.loaded, &mut shelf.previous);
            shelf.len = len;
            true
        });
        self.bias.leave();
        swapped
    }

    /// Owner: whether the shelf has magazines, or the budget has room for `cost` bytes more.
    pub fn admits(&self, class: usize, cost: usize, budget: usize) -> bool {
        if !self.bias.enter() {
            return false;
        }
        // SAFETY: the owner is inside: nobody else touches the shelf.
        let touched = self.places[class]
            .shelf
            .with(|shelf| unsafe { (*shelf).room > 0 });
        // SAFETY: as above.
        let charged = self.charged.with(|charged| unsafe { *charged });
        self.bias.leave();
        touched || charged.saturating_add(cost) <= budget
    }

    /// Owner: loads `magazine`, moves the loaded one to previous, and hands out the previous one
    /// (null if there was none). A shelf touched for the first time charges `cost` bytes. `None`
    /// if the lock was refused: the magazine is the caller's still.
    ///
    /// # Safety
    /// The magazine is the caller's, its rounds are of this class and pool; `room` is at most its
    /// number of slots and at least its length.
    pub unsafe fn load(
        &self,
        class: usize,
        magazine: &Magazine<S>,
        room: u32,
        cost: usize,
    ) -> Option<*const Magazine<S>> {
        let place = &self.places[class];
        // SAFETY: the caller's magazine.
        let len = unsafe { magazine.len() };
        if !self.bias.enter() {
            return None;
        }
        let (displaced, first) = place.shelf.with_mut(|shelf| {
            // SAFETY: the owner is inside: nobody else touches the shelf.
            let shelf = unsafe { &mut *shelf };
            let first = shelf.loaded.is_null();
            if !first {
                // SAFETY: the shelf's own magazine.
                let loaded = unsafe { &*shelf.loaded };
                // SAFETY: as above, with `len` rounds.
                unsafe { loaded.set_len(shelf.len) };
            }
            let displaced = core::mem::replace(&mut shelf.previous, shelf.loaded);
            shelf.loaded = magazine;
            shelf.len = len;
            shelf.room = room;
            (displaced, first)
        });
        if first {
            // SAFETY: the owner is inside.
            self.charged.with_mut(|charged| unsafe { *charged += cost });
        }
        self.bias.leave();
        Some(displaced)
    }

    /// Owner: empties a shelf. `None` if the lock was refused.
    pub fn empty_by_owner(&self, class: usize) -> Option<Emptied<S>> {
        if !self.bias.enter() {
            return None;
        }
        // SAFETY: the owner is inside.
        let emptied = unsafe { self.empty(class) };
        self.bias.leave();
        Some(emptied)
    }

    /// Takes both magazines out of a shelf.
    ///
    /// # Safety
    /// The caller has the cache to itself: the owner inside the lock or after its exit, a trimmer
    /// that has stolen it, or whoever claimed the flush of a closed pool.
    pub unsafe fn empty(&self, class: usize) -> Emptied<S> {
        self.places[class].shelf.with_mut(|shelf| {
            // SAFETY: the caller's promise.
            let shelf = unsafe { &mut *shelf };
            if !shelf.loaded.is_null() {
                // SAFETY: the shelf's own magazine.
                let loaded = unsafe { &*shelf.loaded };
                // SAFETY: as above, with `len` rounds.
                unsafe { loaded.set_len(shelf.len) };
            }
            let magazines = [shelf.loaded, shelf.previous];
            *shelf = Shelf {
                loaded: ptr::null(),
                len: 0,
                room: 0,
                previous: ptr::null(),
            };
            Emptied { magazines }
        })
    }

    /// Shows every block of `class` in the cache to `f`.
    ///
    /// # Safety
    /// As [`empty`](Self::empty).
    pub unsafe fn inspect(&self, class: usize, mut f: impl FnMut(*const Block<S>)) {
        self.places[class].shelf.with(|shelf| {
            // SAFETY: the caller's promise.
            let shelf = unsafe { &*shelf };
            // SAFETY: the shelf's own magazine.
            if let Some(loaded) = unsafe { shelf.loaded.as_ref() } {
                // SAFETY: slots below the length hold blocks.
                (0..shelf.len).for_each(|slot| f(unsafe { loaded.round(slot) }));
            }
            // SAFETY: the shelf's own magazine.
            if let Some(previous) = unsafe { shelf.previous.as_ref() } {
                // SAFETY: as above.
                let len = unsafe { previous.len() };
                // SAFETY: slots below the length hold blocks.
                (0..len).for_each(|slot| f(unsafe { previous.round(slot) }));
            }
        });
    }

    /// Nothing is charged any more: every shelf was emptied.
    ///
    /// # Safety
    /// As [`empty`](Self::empty).
    pub unsafe fn discharge(&self) {
        // SAFETY: the caller's promise.
        self.charged.with_mut(|charged| unsafe { *charged = 0 });
    }

    /// Owner: [`discharge`](Self::discharge) inside the lock.
    pub fn discharge_by_owner(&self) {
        if self.bias.enter() {
            // SAFETY: the owner is inside.
            unsafe { self.discharge() };
            self.bias.leave();
        }
    }

    /// New owner: binds the cache to a pool, with nothing charged.
    ///
    /// # Safety
    /// The caller has just claimed the thread slot and holds the cache vacant.
    pub unsafe fn bind(&self, core: *const Core<S>) {
        // SAFETY: nobody reads the binding of a vacant cache.
        self.core.with_mut(|place| unsafe { *place = core });
        // SAFETY: as above.
        self.charged.with_mut(|place| unsafe { *place = 0 });
        self.reset_tallies();
    }

    /// The pool's core that the owner has bound.
    ///
    /// # Safety
    /// The caller is the owner.
    pub unsafe fn core(&self) -> *const Core<S> {
        // SAFETY: written by the owner only.
        self.core.with(|core| unsafe { *core })
    }

    /// Owner: counts from 0 again.
    pub fn reset_tallies(&self) {
        for place in &self.places {
            place.takes.reset();
            place.gives.reset();
        }
    }

    /// Takes and gives of `class` that this cache has served.
    pub fn tallies(&self, class: usize) -> (u64, u64) {
        let place = &self.places[class];
        (place.takes.get(), place.gives.get())
    }
}
