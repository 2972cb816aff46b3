//! The thread's side: a const-initialised table of caches without a destructor, so that a hit
//! costs one load, and a second thread-local whose destructor sends the caches home.

#![allow(unsafe_code)]

use core::cell::Cell;

use crate::block::{Block, Cache, Core, Slot, WORLD};
use crate::constants::kernel::POOLS_PER_TABLE;
use crate::kernel::cache::Class;
use crate::kernel::reach::{CLOSED, DEAD};
use crate::kernel::tiers;

/// A cache that never has an owner: where no cache is registered, the hit path finds this one,
/// refuses, and needs no further test.
static VACANT: Cache = Cache::vacant();

/// Place in the inline table for pools beyond it: always vacant, so they take the slow table.
const BEYOND: usize = POOLS_PER_TABLE - 1;

struct Hot {
    table: [Cell<&'static Cache>; POOLS_PER_TABLE],
    slot: Cell<Option<&'static Slot>>,
    exited: Cell<bool>,
}

struct Leaver;

thread_local! {
    static HOT: Hot = const {
        Hot {
            table: [const { Cell::new(&VACANT) }; POOLS_PER_TABLE],
            slot: Cell::new(None),
            exited: Cell::new(false),
        }
    };
    static LEAVER: Leaver = const { Leaver };
}

/// Place of a pool in the inline table: below its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(usize);

impl Place {
    /// A place where nothing is ever registered.
    pub(crate) const NONE: Self = Self(BEYOND);

    /// The place of a pool.
    #[inline]
    pub(crate) fn of(core: &Core) -> Self {
        Self((core.index() as usize).min(BEYOND))
    }
}

impl Hot {
    #[inline(always)]
    fn cache(&self, place: Place) -> &'static Cache {
        // SAFETY: a `Place` is at most `BEYOND`, the last index of the table.
        unsafe { self.table.get_unchecked(place.0) }.get()
    }
}

/// Pops a block of `class` from this thread's cache for the pool at `place`. The hit path.
#[inline(always)]
pub(crate) fn pop(place: Place, class: Class) -> Option<&'static Block> {
    HOT.with(|hot| {
        let block = hot.cache(place).pop(class)?;
        // SAFETY: blocks are cells of a static arena.
        Some(unsafe { block.as_ref() })
    })
}

/// Pushes a block into this thread's cache for the pool at `place`. The hit path. `false` hands
/// the block back.
///
/// # Safety
/// The block is of `class` and of a pool whose place this is, and the caller's alone.
#[inline(always)]
pub(crate) unsafe fn push(place: Place, class: Class, block: &'static Block) -> bool {
    HOT.with(|hot| {
        // SAFETY: a cache that accepts is bound to the pool that has this index now; and that is
        // the block's own, since a pool with a live block keeps its index.
        unsafe { hot.cache(place).push(class, block) }
    })
}

/// This thread's cache for the pool of `core`; registers the thread if need be. `None` if the
/// thread is exiting, the pool closed, or memory short. The cache of a watched pool is found here
/// only: the hit path never sees it.
///
/// # Safety
/// The caller holds a handle or a block of the pool.
#[cold]
pub(crate) unsafe fn cache(core: &'static Core) -> Option<&'static Cache> {
    HOT.with(|hot| {
        let slot = match hot.slot.get() {
            Some(slot) => slot,
            None => claim(hot)?,
        };
        if let Some(cache) = slot.cache(core.index())
            && cache.bias.request() & (CLOSED | DEAD) == 0
        {
            // SAFETY: the caller holds a handle or a block.
            unsafe { remember(hot, core, cache) };
            return Some(cache);
        }
        // A new pool: the place to see to those that have gone.
        // SAFETY: the thread holds the slot.
        unsafe { tiers::answer_all(slot) };
        // SAFETY: the thread holds the slot, and the caller a handle or a block.
        let cache = unsafe { core.register(slot) }?;
        // SAFETY: the caller holds a handle or a block.
        unsafe { remember(hot, core, cache) };
        Some(cache)
    })
}

/// This thread's cache for the pool of `core` if it has registered one already.
pub(crate) fn existing_cache(core: &Core) -> Option<&'static Cache> {
    HOT.with(|hot| {
        let cache = hot.slot.get()?.cache(core.index())?;
        (cache.bias.request() & DEAD == 0).then_some(cache)
    })
}

/// Enters a cache into the inline table; for a watched pool the vacant one, since the table may
/// still name this very cache as bound to an earlier pool of the same index.
///
/// # Safety
/// The caller holds a handle or a block of the pool.
unsafe fn remember(hot: &Hot, core: &Core, cache: &'static Cache) {
    let place = Place::of(core);
    if place != Place::NONE {
        // SAFETY: the caller's promise.
        let watched = unsafe { core.backing() }.watch.is_some();
        let found = if watched { &VACANT } else { cache };
        hot.table[place.0].set(found);
    }
}

/// Claims a slot for this thread, unless its thread-locals are going already.
fn claim(hot: &Hot) -> Option<&'static Slot> {
    if hot.exited.get() || LEAVER.try_with(|_| ()).is_err() {
        return None;
    }
    let slot = tiers::arrive(&WORLD)?;
    hot.slot.set(Some(slot));
    Some(slot)
}

/// Forgets where this thread's caches are; each is looked up again when it is needed.
pub(crate) fn forget_caches() {
    HOT.with(|hot| {
        for entry in &hot.table {
            entry.set(&VACANT);
        }
    });
}

/// Whether this thread's thread-locals are going.
pub(crate) fn has_exited() -> bool {
    HOT.with(|hot| hot.exited.get())
}

/// The slot of this thread, if it has one.
pub(crate) fn slot() -> Option<&'static Slot> {
    HOT.with(|hot| hot.slot.get())
}

/// A number of this thread that no other living one has.
pub(crate) fn number() -> usize {
    HOT.with(|hot| core::ptr::from_ref(hot).addr())
}

impl Drop for Leaver {
    /// Later drops on this thread find the vacant cache, and never register again.
    fn drop(&mut self) {
        HOT.with(|hot| {
            hot.exited.set(true);
            for entry in &hot.table {
                entry.set(&VACANT);
            }
            if let Some(slot) = hot.slot.take() {
                // SAFETY: the thread held the slot, and has forgotten it.
                unsafe { tiers::exit(&WORLD, slot) };
            }
        });
    }
}
