//! [`Pool`] as a [`BufferAllocator`]: blocks for callers that bring back nothing but a pointer.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;

use super::{BufferAllocator, empty, relocate};
use crate::block::{self, Block, LENT, MAPPED, PAGE_MAP, WORLD};
use crate::error::{AllocError, AllocErrorKind};
use crate::pool::Pool;
use crate::report::{self, Report};
use crate::tiers::{self, Taken};
use crate::watch;

impl Pool {
    /// Makes a taken block findable by its address and counts it as lent; how long it is for the
    /// caller.
    fn lend(&self, taken: Taken, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: just taken: ours alone.
        let label = unsafe { taken.block.label() };
        if label.flags & MAPPED == 0
            && PAGE_MAP
                .insert(block::map_key(taken.base.addr().get()), taken.block.index())
                .is_err()
        {
            // SAFETY: just taken: ours alone.
            unsafe { block::give(taken.block) };
            return Err(AllocError::new(
                AllocErrorKind::Unsupported,
                layout.size(),
                layout.align(),
                tiers::NAME,
            ));
        }
        // SAFETY: just taken: ours alone.
        unsafe { taken.block.set_flags(MAPPED | LENT, 0) };
        Ok(NonNull::slice_from_raw_parts(
            taken.base,
            self.capacity(layout),
        ))
    }

    /// Makes a lent block longer or shorter, in place while its class stays the same.
    ///
    /// # Safety
    /// `ptr` is a block lent by this pool (or an empty one), not given back yet, and `old` fits it.
    unsafe fn resize(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let bytes = self.capacity(new);
        let in_place = bytes == self.capacity(old) && new.align() <= old.align();
        if in_place && old.size() > 0 && new.size() > 0 {
            return Ok(NonNull::slice_from_raw_parts(ptr, bytes));
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { relocate(self, ptr, old, new) }
    }
}

/// The block that was lent at `ptr`, or a report.
fn lent(ptr: NonNull<u8>, layout: Layout) -> Option<&'static Block> {
    let address = ptr.addr().get();
    let block = PAGE_MAP
        .get(block::map_key(address))
        .and_then(|index| WORLD.blocks.get(index))
        // SAFETY: the caller of the allocator says that the block is lent to it, and so its alone.
        .filter(|block| unsafe { block.payload(|payload| payload.base.addr()) } == address);
    // SAFETY: the caller of the allocator says that the block is lent to it, and so its alone.
    let Some((block, label)) = block.map(|block| (block, unsafe { block.label() })) else {
        report::emit(&Report::ForeignPointer { address });
        return None;
    };
    if label.flags & LENT == 0 {
        report::emit(&Report::DoubleDeallocation {
            address,
            // SAFETY: as above; if it rests instead, nothing but its record is looked at.
            history: unsafe { watch::history(block) },
        });
        return None;
    }
    // SAFETY: as above.
    let capacity = unsafe { block.payload(|payload| payload.capacity) };
    if layout.size() > capacity || layout.align() > 1 << label.align {
        report::emit(&Report::WrongLayout {
            address,
            size: layout.size(),
            align: layout.align(),
            capacity,
            // SAFETY: as above.
            history: unsafe { watch::history(block) },
        });
    }
    Some(block)
}

// SAFETY: a lent block is its borrower's until it comes back, wherever that happens; blocks know
// their own class and charge, so any layout may come back; capacities are pure functions of the
// class table and the page size; nothing unwinds.
unsafe impl BufferAllocator for Pool {
    fn capacity(&self, layout: Layout) -> usize {
        // SAFETY: `self` is a handle of the pool.
        let backing = unsafe { self.core().backing() };
        tiers::capacity(backing, layout.size(), layout.align())
    }

    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let (size, align) = (layout.size(), layout.align());
        if size == 0 {
            return Ok(empty(layout));
        }
        // SAFETY: `self` is a handle of the pool.
        let taken = unsafe { tiers::take(self.core(), self.place(), size, align) }?;
        self.lend(taken, layout)
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let (size, align) = (layout.size(), layout.align());
        if size == 0 {
            return Ok(empty(layout));
        }
        // SAFETY: `self` is a handle of the pool.
        let taken = unsafe { tiers::take_zeroed(self.core(), self.place(), size, align) }?;
        self.lend(taken, layout)
    }

    /// A pointer that this process's pools have not lent, or a second deallocation, is reported
    /// (see [`report`]) and otherwise ignored.
    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        if layout.size() == 0 {
            return;
        }
        if let Some(block) = lent(ptr, layout) {
            // SAFETY: the caller gives the block back: it is ours alone.
            unsafe { block.set_flags(0, LENT) };
            // SAFETY: as above.
            unsafe { block::give(block) };
        }
    }

    unsafe fn grow(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.resize(ptr, old, new) }
    }

    unsafe fn shrink(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.resize(ptr, old, new) }
    }
}
