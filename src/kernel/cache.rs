//! A thread's cache of one pool: per class a loaded and a previous magazine, behind the
//! owner-biased lock. Caches are type-stable and belong to a pair of thread slot and pool index.
//!
//! A class too large for magazines has berths instead: its loaded magazine holds single blocks, and
//! never goes to the depot. Beyond half of the budget, a berth's bytes are the ledger's as if they
//! rested in the depot, whether or not a block is in: so no promise depends on how large they are.

#![allow(unsafe_code)]

use core::ptr::{self, NonNull};

use super::arena::Cell;
use super::backing::Backing;
use super::berths::Look;
use super::block::Block;
use super::core::Core;
use super::ledger::Charged;
use super::magazine::Magazine;
use super::reach::Bias;
use super::sync::{Counter, Tally, UnsafeCell, array, const_fn};
use super::tuning::{CLASSES, MAGAZINES_PER_SHELF};

/// What one class keeps in a cache. `loaded` may be null, and then `len` and `room` are 0.
pub(super) struct Shelf<S: Backing> {
    pub(super) loaded: *const Magazine<S>,
    pub(super) len: u32,
    pub(super) room: u32,
}

/// A class's place in the cache, all that a hit touches: 32 bytes, so that its address is a shift.
pub(super) struct Place<S: Backing> {
    pub(super) shelf: UnsafeCell<Shelf<S>>,
    pub(super) takes: Tally,
    gives: Tally,
}

/// Places of a cache: one a class, and one that is never stocked, for everything without a class.
const PLACES: usize = CLASSES + 1;

/// The cache.
pub struct Cache<S: Backing> {
    /// Who may touch the shelves.
    pub bias: Bias,
    core: UnsafeCell<*const Core<S>>,
    pub(super) charged: UnsafeCell<Charged>,
    /// Number of berths; changed by who has the cache, and looked at from outside.
    pub(super) berthed: Counter,
    /// When the berths of each class were last seen to have served.
    pub(super) looks: UnsafeCell<[Look; CLASSES]>,
    /// Blocks of each class that the owner took elsewhere, and for which it may have a berth.
    pub(super) credits: UnsafeCell<[u8; CLASSES]>,
    life: Tally,
    /// Sum of the counts when a trimmer last looked.
    last_use: Counter,
    pub(super) places: [Place<S>; PLACES],
    /// The previous magazine of each class, or null; null where none is loaded.
    previous: UnsafeCell<[*const Magazine<S>; CLASSES]>,
}

/// A class's index into a cache, checked once: at most `CLASSES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(usize);

impl Class {
    /// What has no class: its place is never stocked.
    pub const NONE: Self = Self(CLASSES);

    /// The class, or none where `class` is out of the table.
    #[inline(always)]
    pub fn new(class: usize) -> Self {
        Self(if class < CLASSES { class } else { CLASSES })
    }

    /// The index.
    #[inline(always)]
    pub fn index(self) -> usize {
        self.0
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
                charged: UnsafeCell::new(Charged::NOTHING),
                berthed: Counter::new(),
                looks: UnsafeCell::new([Look::NEVER; CLASSES]),
                credits: UnsafeCell::new([0; CLASSES]),
                life: Tally::new(),
                last_use: Counter::new(),
                places: array![Place {
                    shelf: UnsafeCell::new(Shelf {
                        loaded: ptr::null(),
                        len: 0,
                        room: 0,
                    }),
                    takes: Tally::new(),
                    gives: Tally::new(),
                }; PLACES],
                previous: UnsafeCell::new([ptr::null(); CLASSES]),
            }
        }
    }

    #[inline(always)]
    fn place(&self, class: Class) -> &Place<S> {
        // SAFETY: a `Class` is at most `CLASSES`, and there is one place more than that.
        unsafe { self.places.get_unchecked(class.index()) }
    }

    /// The previous magazine of a class.
    ///
    /// # Safety
    /// The caller has the cache to itself.
    unsafe fn previous(&self, class: usize) -> *const Magazine<S> {
        // SAFETY: the caller's promise.
        self.previous
            .with(|previous| unsafe { (&*previous)[class] })
    }

    /// # Safety
    /// As [`previous`](Self::previous).
    unsafe fn replace_previous(
        &self,
        class: usize,
        magazine: *const Magazine<S>,
    ) -> *const Magazine<S> {
        self.previous.with_mut(|previous| {
            // SAFETY: the caller's promise.
            let previous = unsafe { &mut *previous };
            core::mem::replace(&mut previous[class], magazine)
        })
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
        let place = self.place(class);
        let pushed = place.shelf.with_mut(|shelf| {
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
        place.gives.add(1);
        self.bias.leave();
        true
    }

    /// Owner: brings the previous magazine forward if it suits: a non-empty one for a take, an
    /// empty one for a give. Bonwick and Adams' rule, which bounds the trips to the depot.
    pub fn swap_previous(&self, class: usize, for_take: bool) -> bool {
        let swap = |shelf: *mut Shelf<S>| {
            // SAFETY: the owner is inside: nobody else touches the shelf.
            let shelf = unsafe { &mut *shelf };
            // SAFETY: the owner is inside.
            let kept = unsafe { self.previous(class) };
            // SAFETY: the shelf's own magazine.
            let Some(previous) = (unsafe { kept.as_ref() }) else {
                return false;
            };
            // SAFETY: as above.
            let len = unsafe { previous.len() };
            if (len == 0) == for_take {
                return false;
            }
            // SAFETY: the loaded magazine exists where a previous one does.
            let loaded = unsafe { &*shelf.loaded };
            // SAFETY: the shelf's own magazine, with `len` rounds.
            unsafe { loaded.set_len(shelf.len) };
            // SAFETY: the owner is inside.
            unsafe { self.replace_previous(class, shelf.loaded) };
            shelf.loaded = kept;
            shelf.len = len;
            true
        };
        self.inside(|| self.places[class].shelf.with_mut(swap))
            .unwrap_or(false)
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
        // SAFETY: the owner is inside.
        let (room, charged) = self.inside(|| unsafe { self.room_and_charged(class) })?;
        if room > 0 {
            return Some(ShelfState::Stocked { room });
        }
        let left = budget.saturating_sub(charged.within_budget());
        let affordable = left / (MAGAZINES_PER_SHELF * charge.max(1));
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
        // SAFETY: the caller's magazine.
        let len = unsafe { magazine.len() };
        let exchange = |shelf: *mut Shelf<S>| {
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
            // SAFETY: the owner is inside.
            let displaced = unsafe { self.replace_previous(class, shelf.loaded) };
            shelf.loaded = magazine;
            shelf.len = len;
            shelf.room = room;
            // SAFETY: the owner is inside.
            self.charged
                .with_mut(|charged| unsafe { (*charged).shelves += cost });
            Some(displaced)
        };
        self.inside(|| self.places[class].shelf.with_mut(exchange))
            .flatten()
    }

    /// Rounds that a shelf has room for, and what the cache has room for.
    ///
    /// # Safety
    /// As [`empty`](Self::empty).
    pub(super) unsafe fn room_and_charged(&self, class: usize) -> (u32, Charged) {
        let place = &self.places[class];
        // SAFETY: the caller's promise.
        let room = place.shelf.with(|shelf| unsafe { (*shelf).room });
        // SAFETY: as above.
        (room, unsafe { self.charged() })
    }

    /// Owner: runs `f` inside the lock. `None` if the lock was refused.
    pub fn inside<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        if !self.bias.enter() {
            return None;
        }
        let result = f();
        self.bias.leave();
        Some(result)
    }

    /// What the cache has room for.
    ///
    /// # Safety
    /// As [`empty`](Self::empty).
    pub unsafe fn charged(&self) -> Charged {
        // SAFETY: the caller's promise.
        self.charged.with(|charged| unsafe { *charged })
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
            // SAFETY: the caller's promise.
            let previous = unsafe { self.replace_previous(class, ptr::null()) };
            let magazines = [shelf.loaded, previous];
            *shelf = Shelf {
                loaded: ptr::null(),
                len: 0,
                room: 0,
            };
            Emptied { magazines }
        })
    }

    /// Takes everything out of the cache, and with it all that is charged.
    ///
    /// # Safety
    /// As [`empty`](Self::empty).
    pub unsafe fn empty_all(&self) -> ([Emptied<S>; CLASSES], Charged) {
        // SAFETY: the caller's promise.
        let emptied = core::array::from_fn(|class| unsafe { self.empty(class) });
        self.berthed.replace(0);
        let charged = self.charged.with_mut(|charged| {
            // SAFETY: the caller's promise.
            core::mem::take(unsafe { &mut *charged })
        });
        (emptied, charged)
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
            // SAFETY: the caller's promise.
            let previous = unsafe { self.previous(class) };
            // SAFETY: the shelf's own magazine.
            if let Some(previous) = unsafe { previous.as_ref() } {
                // SAFETY: as above.
                let len = unsafe { previous.len() };
                // SAFETY: slots below the length hold blocks.
                (0..len).for_each(|slot| f(unsafe { previous.round(slot) }));
            }
        });
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
        self.charged
            .with_mut(|place| unsafe { *place = Charged::NOTHING });
        // A former thread's counts stay where they are while the pool is the same.
        // SAFETY: the caller holds a handle or a block of the pool.
        let life = unsafe { &*core }.life();
        if self.life.get() != life {
            for place in &self.places {
                place.takes.reset();
                place.gives.reset();
            }
            // SAFETY: as above.
            self.credits
                .with_mut(|credits| unsafe { *credits = [0; CLASSES] });
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
        let now = self.places.iter().fold(0u64, |sum, place| {
            sum.wrapping_add(place.takes.get())
                .wrapping_add(place.gives.get())
        });
        self.last_use.replace(now) != now
    }

    /// Takes and gives of `class` that this cache has served.
    pub fn tallies(&self, class: usize) -> (u64, u64) {
        let place = &self.places[class];
        (place.takes.get(), place.gives.get())
    }
}
