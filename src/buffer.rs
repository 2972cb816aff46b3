//! [`Buffer`]: unique and writable.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::{Deref, DerefMut};
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;
use core::slice;
use std::sync::Arc;

use crate::allocator::BufferAllocator;
use crate::block::{self, Block};
use crate::class;
use crate::element::Element;
use crate::error::AllocError;
use crate::kernel::cache::Class;
use crate::shared::SharedBuffer;
use crate::thread::{self, Place};
use crate::tiers::{self, Taken};

/// A unique, writable buffer of `len` elements.
///
/// It owns its memory and may be dropped on any thread, also after the pool's last handle: the
/// memory goes back to the pool's tiers at once, or to its source when the pool is closed. A drop
/// does not unwind, and on a hit it neither locks nor writes shared memory.
pub struct Buffer<T: Element> {
    ptr: NonNull<T>,
    len: usize,
    block: &'static Block,
    class: Class,
    place: Place,
}

// SAFETY: the buffer owns its memory; elements are `Send`.
unsafe impl<T: Element> Send for Buffer<T> {}
// SAFETY: a shared buffer gives out shared slices only; elements are `Sync`.
unsafe impl<T: Element> Sync for Buffer<T> {}
// The source behind the block may be any trait object, which would hide these: a panic can leave
// elements half-written, as in a `Vec`, but not the buffer.
impl<T: Element> UnwindSafe for Buffer<T> {}
impl<T: Element> RefUnwindSafe for Buffer<T> {}

impl<T: Element> Buffer<T> {
    /// A buffer of `len` elements in a block that was just taken.
    ///
    /// # Safety
    /// The block is the caller's, large enough and aligned, and its first `len` elements are valid.
    #[inline]
    pub(crate) unsafe fn from_taken(taken: Taken, len: usize) -> Self {
        Self {
            ptr: taken.base.cast(),
            len,
            block: taken.block,
            class: taken.class,
            place: taken.place,
        }
    }

    /// A unique buffer over a part of a block that the caller has claimed.
    ///
    /// # Safety
    /// The block is the caller's alone, and `ptr` is valid for `len` elements within it.
    pub(crate) unsafe fn from_claimed(block: &'static Block, ptr: NonNull<T>, len: usize) -> Self {
        // SAFETY: the caller's block.
        let class = unsafe { block.label() }.class;
        // SAFETY: as above.
        let core = unsafe { block.core() };
        // SAFETY: cores are cells of a static arena.
        let core = unsafe { core.as_ref() };
        Self {
            ptr,
            len,
            block,
            class: Class::new(class.into()),
            place: core.map_or(Place::NONE, Place::of),
        }
    }

    /// Gives up the buffer without giving its block back.
    pub(crate) fn into_parts(self) -> (&'static Block, NonNull<T>, usize) {
        let this = ManuallyDrop::new(self);
        (this.block, this.ptr, this.len)
    }

    /// The control block; the buffer owns it.
    #[cfg(feature = "ndarray")]
    #[inline]
    pub(crate) fn block(&self) -> &'static Block {
        self.block
    }

    /// Whether the buffer starts where its block does, so that sharing it moves nothing.
    #[cfg(feature = "ndarray")]
    pub(crate) fn is_at_base(&self) -> bool {
        // SAFETY: the buffer owns its block.
        let base = unsafe { self.block.payload(|payload| payload.base) };
        base.addr() == self.ptr.addr().get()
    }

    /// Elements in the buffer.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer holds no element.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// First element, for reading; aligned to [`MIN_ALIGN`](crate::MIN_ALIGN) at least in a fresh
    /// pooled buffer.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.ptr.as_ptr()
    }

    /// First element, for writing.
    #[inline]
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.ptr.as_ptr()
    }

    /// Bytes from the first element to the end of the memory that is the buffer's.
    fn room(&self) -> usize {
        // SAFETY: the buffer owns its block.
        let end = unsafe { self.block.payload(|p| p.base.addr() + p.capacity) };
        end.saturating_sub(self.ptr.addr().get())
    }

    /// Elements that fit without moving: what the class of the present length holds, even where a
    /// larger block serves it; `usize::MAX` for elements without a size.
    #[must_use]
    pub fn capacity(&self) -> usize {
        let Some(size) = core::num::NonZero::new(size_of::<T>()) else {
            return usize::MAX;
        };
        let room = self.room();
        let class = class::of(self.len * size.get());
        let bytes = if class < class::COUNT {
            room.min(class::capacity(class))
        } else {
            room
        };
        bytes / size
    }

    /// Bytes of the whole block that this buffer keeps: its class's, or a larger one's that served
    /// it.
    #[must_use]
    pub fn retained_bytes(&self) -> usize {
        // SAFETY: the buffer owns its block.
        unsafe { self.block.payload(|payload| payload.capacity) }
    }

    /// Shares the buffer: counted from here on, and read-only while there is more than one owner.
    /// Handles of the block's earlier lives stay stale. One atomic store.
    #[inline]
    #[must_use]
    pub fn share(self) -> SharedBuffer<T> {
        SharedBuffer::from_unique(self)
    }

    /// Changes the length to `len` elements; new ones are `value`. In place while the memory of
    /// the buffer is large enough, else in a new buffer of the same pool.
    ///
    /// # Errors
    /// [`AllocError`]; the buffer is unchanged then.
    pub fn resize(&mut self, len: usize, value: T) -> Result<(), AllocError> {
        let bytes = tiers::bytes_of::<T>(len)?;
        let old = self.len;
        if bytes > self.room() {
            // SAFETY: the buffer's block is alive.
            let taken = unsafe { tiers::beside(self.block, bytes, align_of::<T>()) }?;
            // SAFETY: just taken and large enough; the elements are written before they are read.
            let mut grown = unsafe { Self::from_taken(taken, old) };
            // SAFETY: two blocks, each with `old` elements at least.
            unsafe {
                grown
                    .as_mut_ptr()
                    .copy_from_nonoverlapping(self.as_ptr(), old);
            }
            *self = grown;
        }
        for index in old..len {
            // SAFETY: there is room for `len` elements.
            let place = unsafe { self.ptr.add(index) };
            // SAFETY: in bounds and ours.
            unsafe { place.write(value) };
        }
        self.len = len;
        Ok(())
    }

    /// Keeps the first `len` elements.
    ///
    /// # Panics
    /// If `len` is above the present length.
    pub fn truncate(&mut self, len: usize) {
        assert!(
            len <= self.len,
            "truncate to {len} of {} elements",
            self.len
        );
        self.len = len;
    }

    /// Drops the buffer; the same as letting it go out of scope.
    pub fn dispose(self) {}
}

impl Buffer<u8> {
    /// A buffer of `layout.size()` zeroed bytes in memory of any allocator, which must be
    /// `'static` so that the buffer may outlive every scope.
    ///
    /// # Errors
    /// [`AllocError`] of the allocator, or if no control block is left.
    pub fn new_in(layout: Layout, allocator: Arc<dyn BufferAllocator>) -> Result<Self, AllocError> {
        struct Held {
            ptr: NonNull<u8>,
            layout: Layout,
            allocator: Arc<dyn BufferAllocator>,
        }
        // SAFETY: the memory is this holder's alone, and allocators serve any thread.
        unsafe impl Send for Held {}
        impl Drop for Held {
            fn drop(&mut self) {
                // SAFETY: allocated below with this layout, given back once.
                unsafe { self.allocator.deallocate(self.ptr, self.layout) };
            }
        }

        let memory = allocator.allocate_zeroed(layout)?;
        let held = Held {
            ptr: memory.cast(),
            layout,
            allocator,
        };
        let (ptr, len) = (held.ptr, layout.size());
        // SAFETY: the holder keeps `len` zeroed bytes at `ptr`, ours alone.
        unsafe { Self::foreign(ptr, len, Box::new(held), layout.align()) }
    }
}

impl<T: Element> Buffer<T> {
    /// A writable buffer over foreign memory; dropping `holder` gives the memory back.
    ///
    /// # Safety
    /// `ptr` is valid for reads and writes of `len` elements, and nobody else's, until the holder
    /// is dropped.
    ///
    /// # Errors
    /// [`AllocError`] if no control block is left; the holder is dropped then.
    unsafe fn foreign(
        ptr: NonNull<T>,
        len: usize,
        holder: block::Holder,
        align: usize,
    ) -> Result<Self, AllocError> {
        let block = tiers::foreign(ptr.cast(), len * size_of::<T>(), align, holder, 0)?;
        // SAFETY: the block was just made for this memory.
        Ok(unsafe { Self::from_claimed(block, ptr, len) })
    }

    /// A writable buffer over foreign memory, given back by `release`, which is called exactly
    /// once, on the thread of the last drop. A panic in it is caught, counted and reported.
    ///
    /// # Safety
    /// `ptr` is aligned and valid for reads and writes of `len` initialised elements, and nobody
    /// else's, until `release` is called.
    ///
    /// # Errors
    /// [`AllocError`] if no control block is left; `release` has been called then.
    pub unsafe fn from_raw_parts(
        ptr: NonNull<T>,
        len: usize,
        release: impl FnOnce(NonNull<T>, usize) + Send + 'static,
    ) -> Result<Self, AllocError> {
        let holder = Callback::new(ptr, len, release);
        // SAFETY: the caller's promise.
        unsafe { Self::foreign(ptr, len, Box::new(holder), align_of::<T>()) }
    }
}

/// Calls a release callback when dropped.
pub(crate) struct Callback<T, F: FnOnce(NonNull<T>, usize)> {
    ptr: NonNull<T>,
    len: usize,
    release: Option<F>,
}

// SAFETY: the memory behind the pointer is this holder's alone; the callback is `Send`.
unsafe impl<T, F: FnOnce(NonNull<T>, usize) + Send> Send for Callback<T, F> {}

impl<T, F: FnOnce(NonNull<T>, usize)> Callback<T, F> {
    pub(crate) fn new(ptr: NonNull<T>, len: usize, release: F) -> Self {
        Self {
            ptr,
            len,
            release: Some(release),
        }
    }
}

impl<T, F: FnOnce(NonNull<T>, usize)> Drop for Callback<T, F> {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release(self.ptr, self.len);
        }
    }
}

/// Safe initialisation.
impl<T: Element> Buffer<MaybeUninit<T>> {
    /// Takes the elements as initialised.
    ///
    /// # Safety
    /// Every element is initialised.
    #[inline]
    #[must_use]
    pub unsafe fn assume_init(self) -> Buffer<T> {
        let (class, place) = (self.class, self.place);
        let (block, ptr, len) = self.into_parts();
        Buffer {
            ptr: ptr.cast(),
            len,
            block,
            class,
            place,
        }
    }

    /// Initialises element `i` with `f(i)`. If `f` panics, the buffer is dropped.
    #[must_use]
    pub fn fill_with(mut self, mut f: impl FnMut(usize) -> T) -> Buffer<T> {
        for (index, place) in self.iter_mut().enumerate() {
            place.write(f(index));
        }
        // SAFETY: every element was written.
        unsafe { self.assume_init() }
    }

    /// Initialises every element with `value`.
    #[must_use]
    pub fn fill_value(mut self, value: T) -> Buffer<T> {
        self.fill(MaybeUninit::new(value));
        // SAFETY: every element was written.
        unsafe { self.assume_init() }
    }

    /// Initialises the elements with those of `source`.
    ///
    /// # Panics
    /// If the lengths differ.
    #[must_use]
    pub fn write_copy_of(mut self, source: &[T]) -> Buffer<T> {
        assert_eq!(self.len, source.len(), "lengths in elements differ");
        // SAFETY: two allocations of `len` elements each.
        unsafe {
            self.as_mut_ptr()
                .cast::<T>()
                .copy_from_nonoverlapping(source.as_ptr(), source.len());
        }
        // SAFETY: every element was written.
        unsafe { self.assume_init() }
    }
}

impl<T: Element> Drop for Buffer<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the block's own class and pool; the buffer gives it up.
        if unsafe { thread::push(self.place, self.class, self.block) } {
            return;
        }
        // SAFETY: the buffer owned the block.
        unsafe { block::give_slow(self.block) };
    }
}

impl<T: Element> Deref for Buffer<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the buffer owns `len` valid elements.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: Element> DerefMut for Buffer<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the buffer owns `len` valid elements, uniquely.
        unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: Element> AsRef<[T]> for Buffer<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T: Element> AsMut<[T]> for Buffer<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T: Element + fmt::Debug> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

static_assertions::assert_impl_all!(Buffer<u8>: Send, Sync, UnwindSafe, RefUnwindSafe, AsRef<[u8]>, AsMut<[u8]>);
static_assertions::assert_not_impl_any!(Buffer<u8>: Clone);
static_assertions::const_assert_eq!(size_of::<Buffer<u8>>(), 40);
