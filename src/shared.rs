//! [`SharedBuffer`]: counted, sliceable, read-only.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::any::TypeId;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Bound, Deref, DerefMut, RangeBounds};
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;
use core::slice;
use std::sync::Arc;

use bytemuck::{AnyBitPattern, NoUninit};

use crate::allocator::System;
use crate::block::{self, Block, ElementTag, Kind, READ_ONLY, RECORDED};
use crate::buffer::{Buffer, Callback};
use crate::element::Element;
use crate::error::AllocError;
use crate::handle::Handle;
use crate::tiers;
use crate::tuning::LAST_GENERATION;
use crate::watch::record;

/// A counted, read-only view of `len` elements of a buffer.
///
/// A clone adds an owner, a slice is an owner of the whole buffer; the memory goes back the
/// instant the last owner is dropped, on that thread. Clone and drop are one atomic operation
/// each, and wait-free unless the drop is the last.
pub struct SharedBuffer<T: Element> {
    ptr: NonNull<T>,
    len: usize,
    block: &'static Block,
}

// SAFETY: owners give out shared slices only; elements are `Sync`, and `Send` for the last drop.
unsafe impl<T: Element> Send for SharedBuffer<T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for SharedBuffer<T> {}
// Nobody writes through a shared buffer, so a panic leaves nothing half-done.
impl<T: Element> UnwindSafe for SharedBuffer<T> {}
impl<T: Element> RefUnwindSafe for SharedBuffer<T> {}

/// A shared buffer, lent out to be written; see [`SharedBuffer::make_mut`].
pub struct Writable<'a, T: Element> {
    buffer: ManuallyDrop<Buffer<T>>,
    home: &'a mut SharedBuffer<T>,
}

impl<T: Element> Writable<'_, T> {
    /// First element, for writing.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.buffer.as_mut_ptr()
    }
}

impl<T: Element> Drop for Writable<'_, T> {
    fn drop(&mut self) {
        // SAFETY: taken once, here; the guard is not used again.
        let buffer = unsafe { ManuallyDrop::take(&mut self.buffer) };
        *self.home = buffer.share();
    }
}

impl<T: Element> Deref for Writable<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.buffer
    }
}

impl<T: Element> DerefMut for Writable<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.buffer
    }
}

impl<T: Element + fmt::Debug> fmt::Debug for Writable<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A view was asked for that does not fit; carries the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The range does not lie within the buffer.
    #[error("range {start}..{end} does not lie within {len} elements")]
    OutOfRange {
        /// First element asked for.
        start: usize,
        /// End of the range asked for.
        end: usize,
        /// Elements there are.
        len: usize,
    },
    /// The bytes are not a whole number of the other elements.
    #[error("{bytes} bytes are not a whole number of elements of {size} bytes")]
    Size {
        /// Bytes there are.
        bytes: usize,
        /// Bytes of the other element.
        size: usize,
    },
    /// The bytes are not aligned for the other elements.
    #[error("address {address:#x} is not aligned to {align} bytes")]
    Align {
        /// Address of the first element.
        address: usize,
        /// Alignment of the other element.
        align: usize,
    },
}

impl<T: Element> SharedBuffer<T> {
    pub(crate) fn from_unique(buffer: Buffer<T>) -> Self {
        let (block, mut ptr, len) = buffer.into_parts();
        // SAFETY: the buffer owned its block uniquely.
        let base = unsafe { block.payload(|payload| payload.base) }.cast::<T>();
        if base != ptr.as_ptr() {
            // The buffer was once a slice: handles name a block from its base.
            // SAFETY: `len` valid elements lie in the block, so they fit at its base as well.
            unsafe { base.copy_from(ptr.as_ptr(), len) };
            // SAFETY: the base of a block is not null.
            ptr = unsafe { NonNull::new_unchecked(base) };
        }
        // SAFETY: the buffer owned its block uniquely.
        unsafe { publish(block, len, TypeId::of::<T>) };
        enter(block);
        Self { ptr, len, block }
    }

    /// A share that the caller already counts.
    ///
    /// # Safety
    /// The caller owns a share of the block and gives it up; `ptr` is valid for `len` elements.
    pub(crate) unsafe fn from_share(block: &'static Block, ptr: NonNull<T>, len: usize) -> Self {
        Self { ptr, len, block }
    }

    /// Gives up the view without releasing its share.
    pub(crate) fn into_parts(self) -> (&'static Block, NonNull<T>, usize) {
        let this = ManuallyDrop::new(self);
        (this.block, this.ptr, this.len)
    }

    /// The control block; the view owns a share of it.
    pub(crate) fn block(&self) -> &'static Block {
        self.block
    }

    /// Borrows static memory: immortal, read-only, each borrow with a state of its own. Takes one
    /// control block (64 bytes) for the life of the process, so borrow once and clone.
    ///
    /// # Errors
    /// [`AllocError`] if no control block is left.
    pub fn from_static(data: &'static [T]) -> Result<Self, AllocError> {
        let ptr = NonNull::from(data).cast::<T>();
        let block = tiers::borrowed(ptr.cast(), size_of_val(data), align_of::<T>())?;
        // SAFETY: the block was just made.
        unsafe { publish(block, data.len(), TypeId::of::<T>) };
        let entered = block.state.share_saturated();
        debug_assert!(
            entered.is_ok(),
            "a block that is born has a generation left"
        );
        Ok(Self {
            ptr,
            len: data.len(),
            block,
        })
    }

    /// Shares foreign memory that `owner` keeps, without a copy; read-only. The last drop drops
    /// the owner, once, on that thread; a panic in it is caught, counted and reported.
    ///
    /// # Errors
    /// [`AllocError`] if no control block is left; the owner is dropped then.
    pub fn from_owner<O>(owner: O) -> Result<Self, AllocError>
    where
        O: AsRef<[T]> + Send + Sync + 'static,
    {
        /// Keeps the owner where it is: a box that moves would invalidate what points into it.
        struct Keeper<O>(NonNull<O>);
        // SAFETY: the keeper is the only way to the owner but for shared slices.
        unsafe impl<O: Send> Send for Keeper<O> {}
        impl<O> Drop for Keeper<O> {
            fn drop(&mut self) {
                // SAFETY: made from a box below, and dropped once.
                drop(unsafe { Box::from_raw(self.0.as_ptr()) });
            }
        }

        let keeper = Keeper(NonNull::from(Box::leak(Box::new(owner))));
        // SAFETY: the owner lives until the keeper is dropped, with the last view.
        let data = unsafe { keeper.0.as_ref() }.as_ref();
        let (ptr, len) = (NonNull::from(data).cast::<T>(), data.len());
        let bytes = size_of_val(data);
        let keeper = Box::new(keeper);
        let block = tiers::foreign(ptr.cast(), bytes, align_of::<T>(), keeper, READ_ONLY)?;
        // SAFETY: the block was just made for this memory.
        Ok(unsafe { Self::from_fresh(block, ptr, len) })
    }

    /// Shares foreign memory, read-only, given back by `release`, which is called exactly once, on
    /// the thread of the last drop. A panic in it is caught, counted and reported.
    ///
    /// # Safety
    /// `ptr` is aligned and valid for reads of `len` initialised elements, which nobody writes,
    /// until `release` is called.
    ///
    /// # Errors
    /// [`AllocError`] if no control block is left; `release` has been called then.
    pub unsafe fn from_raw_parts(
        ptr: NonNull<T>,
        len: usize,
        release: impl FnOnce(NonNull<T>, usize) + Send + 'static,
    ) -> Result<Self, AllocError> {
        let holder = Box::new(Callback::new(ptr, len, release));
        let bytes = len * size_of::<T>();
        let block = tiers::foreign(ptr.cast(), bytes, align_of::<T>(), holder, READ_ONLY)?;
        // SAFETY: the block was just made for this memory.
        Ok(unsafe { Self::from_fresh(block, ptr, len) })
    }

    /// # Safety
    /// The block was just made for `len` elements at `ptr`, and is the caller's alone.
    unsafe fn from_fresh(block: &'static Block, ptr: NonNull<T>, len: usize) -> Self {
        // SAFETY: the caller's promise.
        unsafe { publish(block, len, TypeId::of::<T>) };
        enter(block);
        Self { ptr, len, block }
    }

    /// Elements in this view.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether this view holds no element.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// First element of this view.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.ptr.as_ptr()
    }

    /// Owners of the buffer now, or shortly before: views, clones, tokens.
    #[must_use]
    pub fn owners(&self) -> u32 {
        self.block.state.load().owners()
    }

    /// Bytes of the whole buffer that this view keeps alive.
    #[must_use]
    pub fn retained_bytes(&self) -> usize {
        // SAFETY: the view owns a share.
        unsafe { self.block.payload(|payload| payload.capacity) }
    }

    /// Whether the memory may never be written: borrowed, or an owner's.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        // SAFETY: the view owns a share.
        let label = unsafe { self.block.label() };
        label.flags & READ_ONLY != 0
    }

    /// Whether the pool remembers who allocated the buffer.
    #[inline]
    pub(crate) fn is_recorded(&self) -> bool {
        // SAFETY: the view owns a share.
        let label = unsafe { self.block.label() };
        label.flags & RECORDED != 0 && Kind::of(label) == Kind::Pooled
    }

    /// A view of `len` elements of this one is made.
    #[inline]
    pub(crate) fn note_view(&self, len: usize) {
        if self.is_recorded() {
            record::viewed(self.block.index(), len * size_of::<T>());
        }
    }

    /// A view of a part of this one, in elements; it is an owner of its own.
    ///
    /// # Errors
    /// [`ViewError::OutOfRange`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self, ViewError> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len,
        };
        if start > end || end > self.len {
            return Err(ViewError::OutOfRange {
                start,
                end,
                len: self.len,
            });
        }
        self.note_view(end - start);
        let mut view = self.clone();
        // SAFETY: `start` is at most the length.
        view.ptr = unsafe { view.ptr.add(start) };
        view.len = end - start;
        Ok(view)
    }

    /// The same bytes as other plain elements; an owner of its own.
    ///
    /// # Errors
    /// [`ViewError::Size`] or [`ViewError::Align`].
    pub fn reinterpret<U>(&self) -> Result<SharedBuffer<U>, ViewError>
    where
        T: NoUninit,
        U: Element + AnyBitPattern,
    {
        let bytes = self.len * size_of::<T>();
        let size = size_of::<U>();
        if size == 0 || !bytes.is_multiple_of(size) {
            return Err(ViewError::Size { bytes, size });
        }
        let address = self.ptr.addr().get();
        if !address.is_multiple_of(align_of::<U>()) {
            return Err(ViewError::Align {
                address,
                align: align_of::<U>(),
            });
        }
        let (block, ptr, _) = self.clone().into_parts();
        Ok(SharedBuffer {
            ptr: ptr.cast(),
            len: bytes / size,
            block,
        })
    }

    /// Takes the buffer back as unique if this is its only owner; handles of this life are stale
    /// from then on.
    ///
    /// # Errors
    /// The view itself, unchanged, when there are other owners or the memory is read-only.
    pub fn try_unique(self) -> Result<Buffer<T>, Self> {
        if !self.take_back() {
            return Err(self);
        }
        let (block, ptr, len) = self.into_parts();
        // SAFETY: the transition made the block ours alone.
        Ok(unsafe { Buffer::from_claimed(block, ptr, len) })
    }

    /// First byte of the block.
    fn base(&self) -> *mut u8 {
        // SAFETY: the view owns a share.
        unsafe { self.block.payload(|payload| payload.base) }
    }

    /// T7, where the block can be shared again after: not in its last generation, nor if its base,
    /// to which a part moves when it is shared, is not aligned for the elements. Then the view
    /// stays shared, and whoever wants to write copies.
    fn take_back(&self) -> bool {
        !self.is_read_only()
            && self.base().addr().is_multiple_of(align_of::<T>())
            && self.block.state.load().generation() < LAST_GENERATION
            && self.block.state.try_unique()
    }

    /// Whether this view begins where its block does.
    #[cfg(feature = "ndarray")]
    pub(crate) fn is_whole(&self) -> bool {
        self.base().addr() == self.ptr.addr().get()
    }

    /// A view of nothing.
    fn nothing() -> Self {
        Self {
            ptr: NonNull::dangling(),
            len: 0,
            block: &block::NOTHING,
        }
    }

    /// The elements, writable: in place if this is the only owner (handles of this life are stale
    /// from then on), else in a copy, taken from the pool of the original. While the guard lives,
    /// the buffer is unique and nothing names it; its drop shares it again. A guard that is
    /// forgotten takes the buffer with it: the view is then empty.
    ///
    /// # Errors
    /// [`AllocError`] of the copy; this view is unchanged then.
    pub fn make_mut(&mut self) -> Result<Writable<'_, T>, AllocError> {
        let buffer = if self.take_back() {
            let (block, ptr, len) = core::mem::replace(self, Self::nothing()).into_parts();
            // SAFETY: the transition made the block ours alone.
            unsafe { Buffer::from_claimed(block, ptr, len) }
        } else {
            let copy = self.copied()?;
            *self = Self::nothing();
            copy
        };
        Ok(Writable {
            buffer: ManuallyDrop::new(buffer),
            home: self,
        })
    }

    /// A copy of the elements in a buffer of its own, from the pool of this one (for foreign
    /// memory from the system allocator).
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn copied(&self) -> Result<Buffer<T>, AllocError> {
        let bytes = self.len * size_of::<T>();
        // SAFETY: the view owns a share.
        let pooled = !unsafe { self.block.core() }.is_null();
        if !pooled {
            return system_copy(self);
        }
        // SAFETY: the view owns a share of the block.
        let taken = unsafe { tiers::beside(self.block, bytes, align_of::<T>()) }?;
        // SAFETY: just taken, and the elements are written before they are read.
        let mut copy = unsafe { Buffer::<T>::from_taken(taken, self.len) };
        // SAFETY: two blocks of `len` elements at least.
        unsafe {
            copy.as_mut_ptr()
                .copy_from_nonoverlapping(self.as_ptr(), self.len);
        }
        Ok(copy)
    }

    /// A name of the buffer that owns nothing: copyable, 64 bits, safe to ask for ever.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::new(self.block.index(), self.block.state.load().generation())
    }

    /// Releases the buffer whatever its count: its memory goes back now, every handle is stale.
    ///
    /// # Safety
    /// No owner of this buffer, in any form, acts on it afterwards, not even by being dropped.
    ///
    /// # Errors
    /// The view itself if the memory is borrowed for ever.
    pub unsafe fn force_release(self) -> Result<(), Self> {
        let generation = self.block.state.load().generation();
        match self.block.state.force_release(generation) {
            Ok(crate::kernel::state::Released::Last { retire }) => {
                let (block, ..) = self.into_parts();
                // SAFETY: the transition claimed the block.
                unsafe { block::give_last(block, retire) };
                Ok(())
            }
            _ => Err(self),
        }
    }
}

/// A copy of foreign memory, which has no pool, from the system allocator.
fn system_copy<T: Element>(view: &SharedBuffer<T>) -> Result<Buffer<T>, AllocError> {
    let layout = Layout::for_value::<[T]>(view);
    let copy = Buffer::<u8>::new_in(layout, Arc::new(System))?;
    let (block, ptr, _) = copy.into_parts();
    // SAFETY: the block is ours, large enough and aligned for the elements, and zero.
    let mut copy = unsafe { Buffer::from_claimed(block, ptr.cast::<T>(), view.len()) };
    copy.copy_from_slice(view);
    Ok(copy)
}

/// T1 for a block that its unique owner has written.
#[inline]
fn enter(block: &'static Block) {
    let entered = block.state.share();
    // Blocks at their last generation retire at their last release, and are not taken back before.
    debug_assert!(entered.is_ok(), "a unique block has a generation left");
}

/// Writes what shared owners read of a block.
///
/// # Safety
/// The block is the caller's alone.
unsafe fn publish(block: &'static Block, len: usize, element: ElementTag) {
    // SAFETY: the caller's promise.
    unsafe {
        block.payload_mut(|payload| {
            payload.len = len;
            payload.element = element;
        });
    }
}

impl<T: Element> Clone for SharedBuffer<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.block.state.add();
        Self {
            ptr: self.ptr,
            len: self.len,
            block: self.block,
        }
    }
}

impl<T: Element> Drop for SharedBuffer<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the view owned one share.
        unsafe { block::release(self.block) };
    }
}

impl<T: Element> Deref for SharedBuffer<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the share keeps the elements, which nobody writes.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: Element> AsRef<[T]> for SharedBuffer<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T: Element> From<Buffer<T>> for SharedBuffer<T> {
    fn from(buffer: Buffer<T>) -> Self {
        buffer.share()
    }
}

impl<T: Element + fmt::Debug> fmt::Debug for SharedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

static_assertions::assert_impl_all!(SharedBuffer<u8>: Send, Sync, Clone, UnwindSafe, RefUnwindSafe, AsRef<[u8]>);
static_assertions::assert_not_impl_any!(SharedBuffer<u8>: AsMut<[u8]>, core::ops::DerefMut);
static_assertions::const_assert_eq!(size_of::<SharedBuffer<u8>>(), 24);
