//! [`System`]: the process's heap as a [`BufferAllocator`].

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;

use super::{BufferAllocator, empty, relocate};
use crate::error::{AllocError, AllocErrorKind};

/// The process's heap, `std::alloc`. Blocks are exactly as long as asked; a block of 0 bytes never
/// reaches the heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct System;

/// The block that the heap answered with.
fn block(base: *mut u8, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
    let kind = AllocErrorKind::SourceFailed;
    let base = NonNull::new(base)
        .ok_or_else(|| AllocError::new(kind, layout.size(), layout.align(), "system"))?;
    Ok(NonNull::slice_from_raw_parts(base, layout.size()))
}

impl System {
    /// Makes a block longer or shorter, in place where the heap can.
    ///
    /// # Safety
    /// `ptr` is a block of the heap (or an empty one), not given back yet, and `old` its layout.
    unsafe fn resize(
        self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if old.size() == 0 || new.size() == 0 || old.align() != new.align() {
            // SAFETY: the caller's promise, passed on.
            return unsafe { relocate(&self, ptr, old, new) };
        }
        // SAFETY: `ptr` was allocated with `old`; the new size is above 0 and, with the same
        // alignment, within what a layout allows.
        let base = unsafe { std::alloc::realloc(ptr.as_ptr(), old, new.size()) };
        block(base, new)
    }
}

// SAFETY: the heap keeps these promises; the returned length is the one asked for, so only the
// layout asked for fits a block.
unsafe impl BufferAllocator for System {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(empty(layout));
        }
        // SAFETY: the size is above 0.
        block(unsafe { std::alloc::alloc(layout) }, layout)
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(empty(layout));
        }
        // SAFETY: the size is above 0.
        block(unsafe { std::alloc::alloc_zeroed(layout) }, layout)
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: by the caller's promise `ptr` was allocated above, with this layout.
            unsafe { std::alloc::dealloc(ptr.as_ptr(), layout) };
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
