//! [`BufferAllocator`]: how array types get their memory, whoever serves it.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;

use crate::error::AllocError;

/// Memory for array types.
///
/// The trait is object-safe, and fallible throughout: an allocator never panics for load.
///
/// # Safety
/// Implementors promise that
/// - a block that was allocated stays valid, and belongs to the caller alone, until it is passed to
///   [`deallocate`](Self::deallocate), [`grow`](Self::grow) or [`shrink`](Self::shrink);
/// - it is at least as long as the returned slice says, which is at least `layout.size()`, and
///   aligned to at least `layout.align()`;
/// - any layout whose size lies between the one asked for and the returned length (inclusive), with
///   the alignment asked for, may be passed back for the block ("fits" the block);
/// - a block may be passed back on any thread, and through any clone of the allocator;
/// - no method unwinds.
pub unsafe trait BufferAllocator: Send + Sync {
    /// Allocates `layout.size()` bytes or more, with unspecified contents. A size of 0 is allowed.
    ///
    /// # Errors
    /// [`AllocError`] with the numbers; nothing was charged.
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError>;

    /// Like [`allocate`](Self::allocate), with the first `layout.size()` bytes (at least) zero.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let block = self.allocate(layout)?;
        // SAFETY: the block was just allocated for us, `layout.size()` bytes long at least.
        unsafe { block.cast::<u8>().write_bytes(0, layout.size()) };
        Ok(block)
    }

    /// Gives a block back.
    ///
    /// # Safety
    /// `ptr` is a block of this allocator, not given back yet, and `layout` fits it.
    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout);

    /// Makes a block longer; the bytes of `old` are kept, the rest is unspecified. The block may
    /// move, and then the old one is gone; it may as well stay where it is.
    ///
    /// # Safety
    /// As [`deallocate`](Self::deallocate) for `ptr` and `old`; `new.size() >= old.size()`.
    ///
    /// # Errors
    /// [`AllocError`]; the old block is still the caller's, unchanged.
    unsafe fn grow(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise, passed on.
        unsafe { relocate(self, ptr, old, new) }
    }

    /// Makes a block shorter; the bytes of `new` are kept.
    ///
    /// # Safety
    /// As [`deallocate`](Self::deallocate) for `ptr` and `old`; `new.size() <= old.size()`.
    ///
    /// # Errors
    /// [`AllocError`]; the old block is still the caller's, unchanged.
    unsafe fn shrink(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise, passed on.
        unsafe { relocate(self, ptr, old, new) }
    }
}

/// Allocates for `new`, moves what fits, gives the old block back.
///
/// # Safety
/// `ptr` is a block of `allocator`, not given back yet, and `old` fits it.
unsafe fn relocate<A: BufferAllocator + ?Sized>(
    allocator: &A,
    ptr: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Result<NonNull<[u8]>, AllocError> {
    let block = allocator.allocate(new)?;
    let bytes = old.size().min(new.size());
    // SAFETY: both blocks are ours, `bytes` long at least, and the new one does not overlap a
    // block that was not given back yet.
    unsafe { block.cast::<u8>().copy_from_nonoverlapping(ptr, bytes) };
    // SAFETY: the caller's promise.
    unsafe { allocator.deallocate(ptr, old) };
    Ok(block)
}
