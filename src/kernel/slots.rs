//! Thread slots: process-wide, type-stable, claimed by one thread after another. A slot keeps the
//! caches of its threads, one a pool index, where trimmers find them.

#![allow(unsafe_code)]

use core::ptr;

use super::arena::{Arena, Cell, Exhausted};
use super::backing::Backing;
use super::cache::Cache;
use super::sync::{AtomicPtr, Counter, Ordering, array};
use super::tuning::POOLS_PER_TABLE;

/// How a slot is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// By nobody.
    Free = 0,
    /// By a thread.
    Held = 1,
    /// By a thread that exits and is sending its caches home.
    Leaving = 2,
}

/// A thread slot.
pub struct Slot<S: Backing> {
    index: u32,
    /// A [`Hold`]; what a forked child needs to know.
    held: Counter,
    caches: Table<S>,
}

/// Caches of a run of pool indices, and the table of the next run.
struct Table<S: Backing> {
    caches: [AtomicPtr<Cache<S>>; POOLS_PER_TABLE],
    next: AtomicPtr<Table<S>>,
}

// SAFETY: the pointers are to arena cells and to tables that live as long as the slot.
unsafe impl<S: Backing> Send for Slot<S> {}
// SAFETY: as above.
unsafe impl<S: Backing> Sync for Slot<S> {}

impl<S: Backing> Cell for Slot<S> {
    const PER_SLAB: usize = S::SLOTS_PER_SLAB;

    fn new(index: u32) -> Self {
        Self {
            index,
            held: Counter::new(),
            caches: Table::new(),
        }
    }
}

impl<S: Backing> Slot<S> {
    /// Index of the slot in its arena.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// A thread takes, leaves, or has given up, the slot.
    pub fn set_hold(&self, hold: Hold) {
        self.held.replace(hold as u64);
    }

    /// Who holds the slot now, or did shortly before.
    pub fn hold(&self) -> Hold {
        match self.held.get() {
            0 => Hold::Free,
            1 => Hold::Held,
            _ => Hold::Leaving,
        }
    }

    /// The cache that this slot's threads use for pool `pool`, if there is one.
    pub fn cache(&self, pool: u32) -> Option<&Cache<S>> {
        let mut table = &self.caches;
        for _ in 0..pool as usize / POOLS_PER_TABLE {
            // Ordering: Acquire - E9, with `ensure_cache`: the table is initialised.
            let next = table.next.load(Ordering::Acquire);
            // SAFETY: a table lives as long as its slot.
            table = unsafe { next.as_ref() }?;
        }
        // Ordering: Acquire - E9, with `ensure_cache`: the cache is initialised.
        let cache = table.caches[pool as usize % POOLS_PER_TABLE].load(Ordering::Acquire);
        // SAFETY: caches are arena cells, never unmapped.
        unsafe { cache.as_ref() }
    }

    /// The cache for pool `pool`, built if it is missing. Only the slot's thread may call this.
    pub fn ensure_cache(&self, arena: &Arena<Cache<S>>, pool: u32) -> Result<&Cache<S>, Exhausted> {
        if let Some(cache) = self.cache(pool) {
            return Ok(cache);
        }
        let mut table = &self.caches;
        for _ in 0..pool as usize / POOLS_PER_TABLE {
            // Ordering: Acquire - E9; only this thread writes here.
            let mut next = table.next.load(Ordering::Acquire);
            if next.is_null() {
                next = Box::into_raw(Box::new(Table::new()));
                // Ordering: Release - E9, with `cache`: the table is initialised.
                table.next.swap(next, Ordering::Release);
            }
            // SAFETY: a table lives as long as its slot.
            table = unsafe { &*next };
        }
        let (_, cache) = arena.claim()?;
        let place = &table.caches[pool as usize % POOLS_PER_TABLE];
        // Ordering: Release - E9, with `cache`: the cache is initialised.
        place.swap(ptr::from_ref(cache).cast_mut(), Ordering::Release);
        // SAFETY: caches are arena cells, never unmapped while the slot is.
        Ok(unsafe { &*ptr::from_ref(cache) })
    }

    /// Every cache of this slot.
    pub fn caches(&self) -> impl Iterator<Item = &Cache<S>> {
        let mut table = Some(&self.caches);
        core::iter::from_fn(move || {
            let this = table?;
            // Ordering: Acquire - E9, with `ensure_cache`: the table is initialised.
            // SAFETY: a table lives as long as its slot.
            table = unsafe { this.next.load(Ordering::Acquire).as_ref() };
            Some(this)
        })
        .flat_map(|table| table.caches.iter())
        .filter_map(|cache| {
            // Ordering: Acquire - E9, with `ensure_cache`: the cache is initialised.
            let cache = cache.load(Ordering::Acquire);
            // SAFETY: caches are arena cells, never unmapped.
            unsafe { cache.as_ref() }
        })
    }
}

impl<S: Backing> Table<S> {
    fn new() -> Self {
        Self {
            caches: array![AtomicPtr::new(ptr::null_mut()); POOLS_PER_TABLE],
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

impl<S: Backing> Drop for Table<S> {
    /// Only a model's slots ever drop; the process-wide ones live in a static.
    fn drop(&mut self) {
        // Ordering: Acquire - E9; exclusive access orders the rest.
        let next = self.next.load(Ordering::Acquire);
        if !next.is_null() {
            // SAFETY: built by `ensure_cache`, owned by this table.
            drop(unsafe { Box::from_raw(next) });
        }
    }
}
