//! [`AllocatorApi`]: collections of `allocator-api2` on any [`BufferAllocator`].

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;

use ::allocator_api2::alloc::{AllocError, Allocator};

use crate::allocator::{BufferAllocator, empty};

/// A [`BufferAllocator`] as the `Allocator` of `allocator-api2` 0.2: for its `Vec` and `Box`, for
/// hashbrown's maps, and for every other collection that takes one.
///
/// The trait's error carries nothing, so the numbers of ours are lost here. Growing stays in place
/// where the allocator's does. Blocks of no bytes never reach the allocator: some collections forget
/// them.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use ndpool::allocator::{Limited, System};
/// use ndpool::integrate::AllocatorApi;
///
/// let node = Limited::new("node", 1000, System);
/// let mut numbers = Vec::new_in(AllocatorApi(&node));
/// numbers.try_reserve_exact(100)?;
/// numbers.extend(0u64..100);
/// assert_eq!(node.used(), 800);
/// assert!(numbers.try_reserve_exact(1).is_err());
/// drop(numbers);
/// assert_eq!(node.used(), 0);
/// # Ok::<(), allocator_api2::collections::TryReserveError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorApi<A>(pub A);

// SAFETY: blocks stay valid until they are passed back, wherever the allocator is moved, and may be
// passed back through any clone: `BufferAllocator` promises as much. Sizes between the one asked
// for and the returned one fit a block there as here.
unsafe impl<A: BufferAllocator> Allocator for AllocatorApi<A> {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(empty(layout));
        }
        self.0.allocate(layout).map_err(|_| AllocError)
    }

    #[inline]
    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(empty(layout));
        }
        let block = self.0.allocate_zeroed(layout).map_err(|_| AllocError)?;
        // All of what is returned must be zero, and only the size asked for surely is.
        Ok(NonNull::slice_from_raw_parts(block.cast(), layout.size()))
    }

    #[inline]
    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: the caller's promise is the same.
            unsafe { self.0.deallocate(ptr, layout) }
        }
    }

    #[inline]
    unsafe fn grow(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if old.size() == 0 {
            return self.allocate(new);
        }
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.grow(ptr, old, new) }.map_err(|_| AllocError)
    }

    #[inline]
    unsafe fn grow_zeroed(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if old.size() == 0 {
            return self.allocate_zeroed(new);
        }
        // SAFETY: the caller's promise is the same.
        let block = unsafe { self.0.grow(ptr, old, new) }.map_err(|_| AllocError)?;
        // SAFETY: `old.size() <= new.size()`, which the block has at least.
        let rest = unsafe { block.cast::<u8>().add(old.size()) };
        // SAFETY: that is the rest of the block's first `new.size()` bytes, and the block is ours.
        unsafe { rest.write_bytes(0, new.size() - old.size()) };
        Ok(NonNull::slice_from_raw_parts(block.cast(), new.size()))
    }

    #[inline]
    unsafe fn shrink(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if new.size() == 0 {
            // SAFETY: the caller's promise is the same.
            unsafe { self.deallocate(ptr, old) };
            return Ok(empty(new));
        }
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.shrink(ptr, old, new) }.map_err(|_| AllocError)
    }
}

// SAFETY: as for the wrapper, which serves every call.
unsafe impl Allocator for crate::Pool {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        AllocatorApi(self).allocate(layout)
    }

    #[inline]
    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        AllocatorApi(self).allocate_zeroed(layout)
    }

    #[inline]
    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise is the same.
        unsafe { AllocatorApi(self).deallocate(ptr, layout) }
    }

    #[inline]
    unsafe fn grow(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise is the same.
        unsafe { AllocatorApi(self).grow(ptr, old, new) }
    }

    #[inline]
    unsafe fn shrink(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise is the same.
        unsafe { AllocatorApi(self).shrink(ptr, old, new) }
    }
}
