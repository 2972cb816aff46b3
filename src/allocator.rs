//! [`BufferAllocator`]: how array types get their memory, whoever serves it.
//!
//! An array type that is generic over the trait (or holds an `Arc<dyn BufferAllocator>`) runs on
//! [`System`] memory, on a pool, on someone else's allocator, or on any of them behind adaptors:
//! [`Limited`] refuses above a limit in bytes, [`Tracked`] counts and finds misuse. Adaptors nest.
//! Implementors check themselves with [`conformance`](crate::conformance).
//!
//! ```
//! use std::{alloc::Layout, sync::Arc};
//! use ndpool::allocator::{BufferAllocator, Limited, System, Tracked};
//!
//! let node = Arc::new(Tracked::new(Limited::new("images", 1 << 20, System)));
//! let layout = Layout::array::<f64>(1000)?;
//! let block = node.allocate_zeroed(layout)?;
//! assert_eq!(node.report().live_bytes, 8000);
//!
//! let refused = node.allocate(Layout::array::<f64>(1 << 20)?).unwrap_err();
//! assert_eq!((refused.refused_by, refused.in_use, refused.limit), ("images", 8000, 1 << 20));
//!
//! // SAFETY: the block is from this allocator, with this layout, and goes back once.
//! unsafe { node.deallocate(block.cast(), layout) };
//! assert_eq!(node.inner().used(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;
use std::sync::Arc;

use crate::error::AllocError;

mod ledger;
mod limited;
mod pool;
mod system;
mod tracked;

pub use ledger::{Misuse, MisuseKind};
pub use limited::Limited;
pub use system::System;
pub use tracked::{Report, Tracked};

/// Memory for array types.
///
/// The trait is object-safe, and fallible throughout: an allocator never panics for load. All
/// sizes are in bytes.
///
/// # Safety
/// Implementors promise that
/// - a block that was allocated stays valid, and belongs to the caller alone, until it is passed to
///   [`deallocate`](Self::deallocate), [`grow`](Self::grow) or [`shrink`](Self::shrink);
/// - it is at least as long as the returned slice says, which is at least `layout.size()`, and
///   aligned to at least `layout.align()`;
/// - any layout whose size lies between the one asked for and the returned length (inclusive), with
///   the alignment asked for, may be passed back for the block ("fits" the block);
/// - a block may be passed back on any thread, and through any clone of the allocator; moving the
///   allocator does not invalidate it;
/// - [`capacity`](Self::capacity) keeps the rules that it states;
/// - no method unwinds.
pub unsafe trait BufferAllocator: Send + Sync {
    /// Length that every block for `layout` has at least; by this, not by the size asked for, do
    /// adaptors charge and discharge. Pure; at least `layout.size()`; never falls when the size
    /// rises; and the same for every size between `layout.size()` and itself, so that it does not
    /// matter which of the layouts that fit a block comes back with it.
    fn capacity(&self, layout: Layout) -> usize {
        layout.size()
    }

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

/// A block of no bytes, well aligned, that belongs to no allocator.
pub(crate) fn empty(layout: Layout) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(layout.dangling_ptr(), 0)
}

/// The block, cut to what its allocator promises for every layout that fits it.
fn cut(block: NonNull<[u8]>, capacity: usize) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(block.cast(), block.len().min(capacity))
}

/// Forwards every method of [`BufferAllocator`] to `**self`.
macro_rules! forward {
    ($($pointer:ty),*) => {$(
        // SAFETY: every promise is the pointee's; the pointer adds nothing.
        unsafe impl<A: BufferAllocator + ?Sized> BufferAllocator for $pointer {
            #[inline]
            fn capacity(&self, layout: Layout) -> usize {
                (**self).capacity(layout)
            }

            #[inline]
            fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
                (**self).allocate(layout)
            }

            #[inline]
            fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
                (**self).allocate_zeroed(layout)
            }

            #[inline]
            unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
                // SAFETY: the caller's promise, passed on.
                unsafe { (**self).deallocate(ptr, layout) }
            }

            #[inline]
            unsafe fn grow(
                &self,
                ptr: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, AllocError> {
                // SAFETY: the caller's promise, passed on.
                unsafe { (**self).grow(ptr, old, new) }
            }

            #[inline]
            unsafe fn shrink(
                &self,
                ptr: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, AllocError> {
                // SAFETY: the caller's promise, passed on.
                unsafe { (**self).shrink(ptr, old, new) }
            }
        }
    )*};
}

forward!(&A, Box<A>, Arc<A>);
