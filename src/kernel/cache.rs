//! A thread's cache of one pool: per class a loaded and a previous magazine, behind the
//! owner-biased lock. Caches are type-stable and belong to a pair of thread slot and pool index.

#![allow(unsafe_code)]

use core::ptr::{self, NonNull};

use super::arena::Cell;
use super::backing::Backing;
use super::block::Block;
use super::core::Core;
use super::magazine::Magazine;
use super::reach::Bias;
use super::sync::{Counter, Tally, UnsafeCell, array, const_fn};
use super::tuning::{CLASSES, MAGAZINES_PER_SHELF};

/// What one class keeps in a cache. `loaded` may be null, and then `len` and `room` are 0.
struct Shelf<S: Backing> {
    loaded: *const Magazine<S>,
    previous: *const Magazine<S>,
    len: u32,
    room: u32,
}

/// A class's place in the cache: 32 bytes, so that its address is a shift.
struct Place<S: Backing> {
    shelf: UnsafeCell<Shelf<S>>,
    takes: Tally,
}

/// Places of a cache: one a class, and one that is never stocked, for everything without a class.
const PLACES: usize = CLASSES + 1;

/// The cache.
pub struct Cache<S: Backing> {
    /// Who may touch the shelves.
    pub bias: Bias,
    core: UnsafeCell<*const Core<S>>,
    /// Bytes of the budget that the touched classes have charged.
    charged: UnsafeCell<usize>,
    life: Tally,
    /// Sum of the counts when a trimmer last looked.
    last_use: Counter,
    places: [Place<S>; PLACES],
    gives: [Tally; PLACES],
}

/// A class's index into a cache, checked once: at most `CLASSES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(u8);

impl Class {
    /// What has no class: its place is never stocked.
    pub const NONE: Self = Self(CLASSES as u8);

    /// The class, or none where `class` is out of the table.
    #[inline(always)]
    pub fn new(class: usize) -> Self {
        Self(if class < CLASSES {
            class as u8
        } else {
            CLASSES as u8
        })
    }

    /// The index.
    #[inline(always)]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

const _: () = assert!(PLACES <= 256);

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

/// Whether a class may use its shelf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShelfState {
    /// It has magazines.
    Stocked {
        /// Rounds that each may hold.
        room: u32,
    },
    /// It has none, and the budget has room for them.
    Affordable {
        /// Rounds that each may hold: fewer than the class's own where the budget is short.
        room: u32,
        /// Bytes to be charged.
        cost: usize,
    },
    /// It has none, and the budget is spent.
    OverBudget,
}

/// What came out of a shelf: up to two magazines with their lengths recorded in them.
pub struct Emptied<S: Backing> {
    /// Null where there was none.
    magazines: [*const Magazine<S>; 2],
}

impl<S: Backing> Emptied<S> {
    /// The magazines that there were.
    pub fn magazines(&self) -> impl Iterator<Item = &Magazine<S>> {
        self.magazines.iter().filter_map(|magazine| {
            // SAFETY: magazines are arena cells, never unmapped.
            unsafe { magazine.as_ref() }
        })
    }
}

impl<S: Backing> Cache<S> {
    const_fn! {
        /// A cache without an owner.
        pub fn vacant() -> Cache<S> {
            Cache {
                bias: Bias::vacant(),
                core: UnsafeCell::new(ptr::null()),
                charged: UnsafeCell::new(0),
                life: Tally::new(),
                last_use: Counter::new(),
                places: array![Place {
                    shelf: UnsafeCell::new(Shelf {
                        loaded: ptr::null(),
                        previous: ptr::null(),
                        len: 0,
                        room: 0,
                    }),
                    takes: Tally::new(),
                }; PLACES],
                gives: array![Tally::new(); PLACES],
            }
        }
    }

    #[inline(always)]
    fn place(&self, class: Class) -> &Place<S> {
        // SAFETY: a `Class` is at most `CLASSES`, and there is one place more than that.
        unsafe { self.places.get_unchecked(class.index()) }
    }

    /// Owner: pops a block of `class` from the loaded magazine. The hit path.
    #[inline(always)]
    pub fn pop(&self, class: Class) -> Option<NonNull<Block<S>>> {
        if !self.bias.enter() {
            return None;
        }
        let place = self.place(class);
        let block = place.shelf.with_mut(|shelf| {
            // SAFETY: the owner is inside: nobody else touches the shelf.
            let shelf = unsafe { &mut *shelf };
            let len = shelf.len.checked_sub(1)?;
            shelf.len = len;
            // SAFETY: with a length above 0 there is a loaded magazine, and it is the shelf's.
            let loaded = unsafe { &*shelf.loaded };
            // SAFETY: the slot is below the length that was.
            let block = unsafe { loaded.round(len) };
            // SAFETY: a round is a block.
            Some(unsafe { NonNull::new_unchecked(block.cast_mut()) })
        });
        let Some(block) = block else {
            self.bias.leave();
            return None;
        };
        place.takes.add(1);
        self.bias.leave();
        Some(block)
    }

    /// Owner: pushes a block of `class` onto the loaded magazine. The hit path. `false` hands the
    /// block back.
    ///
    /// # Safety
    /// The block is of this class and of this cache's pool, and the caller's alone.
    #[inline(always)]
    pub unsafe fn push(&self, class: Class, block: *const Block<S>) -> bool {
        if !self.bias.enter() {
            return false;
        }
        let pushed = self.place(class).shelf.with_mut(|shelf| {
            // SAFETY: the owner is inside: nobody else touches the shelf.
            let shelf = unsafe { &mut *shelf };
            let len = shelf.len;
            if len == shelf.room {
                return false;
            }
            // SAFETY: with room above 0 there is a loaded magazine, and it is the shelf's.
            let loaded = unsafe { &*shelf.loaded };
            // SAFETY: the room is at most the magazine's number of slots.
            unsafe { loaded.set_round(len, block) };
            shelf.len = len + 1;
            true
        });
        if !pushed {
            self.bias.leave();
            return false;
        }
        // SAFETY: a `Class` is at most `CLASSES`, and there is one tally more than that.
        unsafe { self.gives.get_unchecked(class.index()) }.add(1);
        self.bias.leave();
        true
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

    /// Owner: the room that a shelf has, or could have for `rounds` rounds at most of `charge`
    /// bytes each: two magazines and one in flight have to fit what is left of `budget`. `None` if
    /// the lock was refused.
    pub fn shelf_state(
        &self,
        class: usize,
        rounds: u32,
        charge: usize,
        budget: usize,
    ) -> Option<ShelfState> {
        if !self.bias.enter() {
            return None;
        }
        // SAFETY: the owner is inside: nobody else touches the shelf.
        let room = self.places[class]
            .shelf
            .with(|shelf| unsafe { (*shelf).room });
        // SAFETY: as above.
        let charged = self.charged.with(|charged| unsafe { *charged });
        self.bias.leave();
        if room > 0 {
            return Some(ShelfState::Stocked { room });
        }
        let affordable = budget.saturating_sub(charged) / (MAGAZINES_PER_SHELF * charge.max(1));
        Some(
            match rounds.min(u32::try_from(affordable).unwrap_or(u32::MAX)) {
                0 => ShelfState::OverBudget,
                room => ShelfState::Affordable {
                    room,
                    cost: MAGAZINES_PER_SHELF * room as usize * charge,
                },
            },
        )
    }

    /// Owner: loads `magazine`, moves the loaded one to previous, and hands out the previous one
    /// (null if there was none). `cost` bytes, which the caller has stocked, are charged. `None` if
    /// the lock was refused, or if a cost was named for a shelf that was stocked in the meantime or
    /// none for one that was emptied: magazine and cost are the caller's still.
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
        let displaced = place.shelf.with_mut(|shelf| {
            // SAFETY: the owner is inside: nobody else touches the shelf.
            let shelf = unsafe { &mut *shelf };
            let first = shelf.loaded.is_null();
            if first != (cost > 0) {
                return None;
            }
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
            Some(displaced)
        });
        if displaced.is_some() {
            // SAFETY: the owner is inside.
            self.charged.with_mut(|charged| unsafe { *charged += cost });
        }
        self.bias.leave();
        displaced
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
                previous: ptr::null(),
                len: 0,
                room: 0,
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

    /// Nothing is charged any more: every shelf was emptied. Returns what was charged.
    ///
    /// # Safety
    /// As [`empty`](Self::empty).
    pub unsafe fn discharge(&self) -> usize {
        self.charged.with_mut(|charged| {
            // SAFETY: the caller's promise.
            core::mem::take(unsafe { &mut *charged })
        })
    }

    /// Owner: [`discharge`](Self::discharge) inside the lock.
    pub fn discharge_by_owner(&self) -> usize {
        if !self.bias.enter() {
            return 0;
        }
        // SAFETY: the owner is inside.
        let charged = unsafe { self.discharge() };
        self.bias.leave();
        charged
    }

    /// New owner: binds the cache to a pool, with nothing charged.
    ///
    /// # Safety
    /// The caller has the thread slot, the cache is vacant, and the caller holds a handle or a
    /// block of the pool.
    pub unsafe fn bind(&self, core: *const Core<S>) {
        // SAFETY: nobody reads the binding of a vacant cache.
        self.core.with_mut(|place| unsafe { *place = core });
        // SAFETY: as above.
        self.charged.with_mut(|place| unsafe { *place = 0 });
        // A former thread's counts stay where they are while the pool is the same.
        // SAFETY: the caller holds a handle or a block of the pool.
        let life = unsafe { &*core }.life();
        if self.life.get() != life {
            for (place, gives) in self.places.iter().zip(&self.gives) {
                place.takes.reset();
                gives.reset();
            }
            self.life.reset();
            self.life.add(life);
        }
    }

    /// The pool's core that the owner has bound.
    ///
    /// # Safety
    /// The caller is the owner.
    pub unsafe fn core(&self) -> *const Core<S> {
        // SAFETY: written by the owner only.
        self.core.with(|core| unsafe { *core })
    }

    /// Number of the pool that the counts are of.
    pub fn life(&self) -> u64 {
        self.life.get()
    }

    /// Trimmer: whether the owner has used the cache since the last call. Trimmers take turns.
    pub fn was_used(&self) -> bool {
        let takes = self.places.iter().map(|place| place.takes.get());
        let gives = self.gives.iter().map(Tally::get);
        let now = takes.chain(gives).fold(0u64, u64::wrapping_add);
        self.last_use.replace(now) != now
    }

    /// Takes and gives of `class` that this cache has served.
    pub fn tallies(&self, class: usize) -> (u64, u64) {
        (self.places[class].takes.get(), self.gives[class].get())
    }
}
