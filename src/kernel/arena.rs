//! Cells that are never unmapped and never change their type, named by a dense index: what makes a
//! stale or forged name safe to look up.
//!
//! Two levels: a fixed directory of slabs, and the cells of a slab with their links behind them.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::ptr;
use std::alloc::{alloc_zeroed, dealloc};

use super::stack::{IndexStack, Links, MAX_CELLS};
use super::sync::{AtomicPtr, AtomicU32, Ordering, array, const_fn};
use super::tuning::SLABS;

/// What an arena holds.
pub trait Cell: Sized {
    /// Cells of one slab; a power of two.
    const PER_SLAB: usize;
    /// The cell of `index`, before its first use.
    fn new(index: u32) -> Self;
}

/// Every index of the arena is taken, or memory for a further slab was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// A type-stable arena: cells are claimed and given back, never unmapped while the arena lives.
pub struct Arena<T: Cell> {
    slabs: [AtomicPtr<T>; SLABS],
    /// Cells from here on have never been claimed.
    fresh: AtomicU32,
    free: IndexStack,
}

// SAFETY: an arena hands out shared references to its cells, on any thread, and owns them.
unsafe impl<T: Cell + Send + Sync> Sync for Arena<T> {}
// SAFETY: as above.
unsafe impl<T: Cell + Send + Sync> Send for Arena<T> {}

impl<T: Cell> Arena<T> {
    const LINKS_AT: usize = {
        assert!(T::PER_SLAB.is_power_of_two());
        assert!(T::PER_SLAB * SLABS <= MAX_CELLS + 1);
        (size_of::<T>() * T::PER_SLAB).next_multiple_of(align_of::<AtomicU32>())
    };

    const LAYOUT: Layout = {
        let align = if align_of::<T>() > align_of::<AtomicU32>() {
            align_of::<T>()
        } else {
            align_of::<AtomicU32>()
        };
        let size = Self::LINKS_AT + size_of::<AtomicU32>() * T::PER_SLAB;
        match Layout::from_size_align(size, align) {
            Ok(layout) => layout,
            Err(_) => panic!("a slab fits in memory"),
        }
    };

    const_fn! {
        /// An arena without a slab.
        pub fn new() -> Arena<T> {
            Arena {
                slabs: array![AtomicPtr::new(ptr::null_mut()); SLABS],
                fresh: AtomicU32::new(0),
                free: IndexStack::new(),
            }
        }
    }

    /// Claims a cell; it is the caller's until it is given to [`release`](Self::release).
    pub fn claim(&self) -> Result<(u32, &T), Exhausted> {
        if let Some(index) = self.free.pop(self) {
            return Ok((index, self.at(index)));
        }
        loop {
            // Ordering: Relaxed - the CAS below decides; the cells are published by their slab.
            let fresh = self.fresh.load(Ordering::Relaxed);
            let slab = fresh as usize / T::PER_SLAB;
            if slab >= SLABS || fresh as usize >= MAX_CELLS {
                return Err(Exhausted);
            }
            self.ensure(slab)?;
            // Ordering: Release - E31, with `iter`: the slab behind the number is installed.
            let claimed =
                self.fresh
                    .compare_exchange(fresh, fresh + 1, Ordering::Release, Ordering::Relaxed);
            if claimed.is_ok() {
                return Ok((fresh, self.at(fresh)));
            }
        }
    }

    /// Gives cell `index` back; whoever claims it next sees what was done to it.
    pub fn release(&self, index: u32) {
        self.free.push(self, index);
    }

    /// Cell `index`, if there ever was one: any number may be asked for.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        let slab = self.slabs.get(index as usize / T::PER_SLAB)?;
        // Ordering: Acquire - E4, with `ensure`: the slab's cells are initialised.
        let cells = slab.load(Ordering::Acquire);
        if cells.is_null() {
            return None;
        }
        // SAFETY: the slab holds `PER_SLAB` cells and the remainder is below that.
        let cell = unsafe { cells.add(index as usize % T::PER_SLAB) };
        // SAFETY: cells are initialised before their slab is installed and stay for ever.
        Some(unsafe { &*cell })
    }

    /// Cell `index`, which was claimed once.
    #[inline]
    pub fn at(&self, index: u32) -> &T {
        self.get(index)
            .expect("an index that was claimed has a cell")
    }

    /// Every cell that was ever claimed.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        // Ordering: Acquire - E31, with `claim`: the slabs of all these cells are installed. Of cells
        // claimed from now on nothing is seen.
        (0..self.fresh.load(Ordering::Acquire)).map(|index| self.at(index))
    }

    /// Installs slab `slab` if it is missing.
    fn ensure(&self, slab: usize) -> Result<(), Exhausted> {
        // Ordering: Acquire - E4, with the installation below.
        if !self.slabs[slab].load(Ordering::Acquire).is_null() {
            return Ok(());
        }
        // SAFETY: the layout's size is not 0, it holds `PER_SLAB` links at least.
        let cells = unsafe { alloc_zeroed(Self::LAYOUT) }.cast::<T>();
        if cells.is_null() {
            return Err(Exhausted);
        }
        for cell in 0..T::PER_SLAB {
            // SAFETY: the block holds `PER_SLAB` cells.
            let place = unsafe { cells.add(cell) };
            // SAFETY: in bounds and aligned by the layout; nobody else has the block yet.
            unsafe { place.write(T::new((slab * T::PER_SLAB + cell) as u32)) };
            // SAFETY: the links lie behind the cells in the same block.
            let link = unsafe { Self::link_of(cells, cell) };
            // SAFETY: as above.
            unsafe { link.write(AtomicU32::new(0)) };
        }
        // Ordering: Release, on failure Relaxed - E4, with `get`: the cells are initialised.
        let installed = self.slabs[slab].compare_exchange(
            ptr::null_mut(),
            cells,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if installed.is_err() {
            // SAFETY: built just above, and installed nowhere.
            unsafe { Self::destroy(cells) };
        }
        Ok(())
    }

    /// The link of cell `cell` of a slab.
    ///
    /// # Safety
    /// `cells` is a slab's block, and `cell < PER_SLAB`.
    unsafe fn link_of(cells: *mut T, cell: usize) -> *mut AtomicU32 {
        let offset = Self::LINKS_AT + cell * size_of::<AtomicU32>();
        // SAFETY: the block's layout has room for `PER_SLAB` links at `LINKS_AT`.
        unsafe { cells.byte_add(offset) }.cast()
    }

    /// Drops a slab's cells and links and frees its block.
    ///
    /// # Safety
    /// `cells` is a fully built slab that nobody else refers to.
    unsafe fn destroy(cells: *mut T) {
        for cell in 0..T::PER_SLAB {
            // SAFETY: the caller's promise.
            let link = unsafe { Self::link_of(cells, cell) };
            // SAFETY: built by `ensure`, dropped once.
            unsafe { link.drop_in_place() };
            // SAFETY: in bounds.
            let place = unsafe { cells.add(cell) };
            // SAFETY: built by `ensure`, dropped once.
            unsafe { place.drop_in_place() };
        }
        // SAFETY: allocated by `ensure` with this layout.
        unsafe { dealloc(cells.cast(), Self::LAYOUT) };
    }
}

impl<T: Cell> Links for Arena<T> {
    fn link(&self, index: u32) -> &AtomicU32 {
        // Ordering: Acquire - E4, with `ensure`: the slab's links are initialised.
        let cells = self.slabs[index as usize / T::PER_SLAB].load(Ordering::Acquire);
        assert!(!cells.is_null(), "a stacked index has a cell");
        // SAFETY: an installed slab, and a remainder below `PER_SLAB`.
        let link = unsafe { Self::link_of(cells, index as usize % T::PER_SLAB) };
        // SAFETY: initialised before the slab was installed, never unmapped.
        unsafe { &*link }
    }
}

impl<T: Cell> Drop for Arena<T> {
    /// Only a model's arena ever drops; the process-wide ones are statics.
    fn drop(&mut self) {
        for slab in &self.slabs {
            // Ordering: Acquire - E4, with `ensure`; exclusive access orders the rest.
            let cells = slab.load(Ordering::Acquire);
            if !cells.is_null() {
                // SAFETY: an installed slab is fully built, and `&mut self` is the last reference.
                unsafe { Self::destroy(cells) };
            }
        }
    }
}
