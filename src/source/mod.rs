//! Where memory is born and dies: the [`Source`] trait and the sources that come with the crate.
//!
//! A pool asks its source only at a *birth* (a block that no tier holds) and at a *death*; between
//! the two a block is reused without the source. So a source may be slow, and may fail: the pool
//! hands its error on, with nothing charged.
//!
//! | source | memory | from |
//! |---|---|---|
//! | [`Heap`] | the global allocator | |
//! | [`Mmap`] | anonymous mappings, page-aligned, huge pages from 2 MiB | |
//! | [`Os`] | [`Heap`] for small blocks, [`Mmap`] for large ones; the default | 128 KiB |
//! | [`Faulty`] | any other source, with failures injected; for tests | |
//!
//! ```
//! use std::alloc::Layout;
//! use ndpool::source::{Os, Source};
//!
//! let layout = Layout::from_size_align(80_000_000, 128)?;
//! let memory = Os::new().alloc(layout, true)?; // touches nothing
//! assert!(memory.zeroed);
//! // SAFETY: the block is 80 MB long, initialised, and nobody else knows it.
//! assert_eq!(unsafe { memory.base.add(79_999_999).read() }, 0);
//! // SAFETY: it came from this source with this layout and token, and goes back once.
//! unsafe { Os::new().dealloc(memory.base, layout, memory.token) };
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;
use std::sync::Arc;

use crate::error::AllocError;

mod faulty;
mod heap;
pub(crate) mod mmap;
mod os;

pub use faulty::Faulty;
pub(crate) use faulty::splitmix;
pub use heap::Heap;
pub use mmap::Mmap;
pub use os::Os;

/// A block fresh from a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// First byte; aligned as the layout asked.
    pub base: NonNull<u8>,
    /// Whether the `layout.size()` bytes from `base` on are known to be zero (and so initialised).
    pub zeroed: bool,
    /// The source's own word for this block, handed back to it in every later call.
    pub token: usize,
}

/// Where a pool's memory comes from.
///
/// Layouts that a pool passes have a size above 0. A source serves any thread, and a block may be
/// returned on another thread than the one that got it.
///
/// # Safety
/// Implementors promise that
/// - a block from [`alloc`](Self::alloc) is valid for reads and writes of `layout.size()` bytes,
///   aligned to `layout.align()`, and the caller's alone until [`dealloc`](Self::dealloc);
/// - bytes that [`Memory::zeroed`] or [`discard`](Self::discard) vouch for are zero;
/// - [`footprint`](Self::footprint) is pure;
/// - no method unwinds.
pub unsafe trait Source: Send + Sync + 'static {
    /// Name for errors and statistics.
    fn name(&self) -> &'static str;

    /// Bytes that a block of `layout` really occupies: headers, alignment and page rounding
    /// included, at least `layout.size()`. Pure: the same answer always, so that what is charged
    /// at a birth is what is discharged at the death. `usize::MAX` if the layout cannot be served.
    fn footprint(&self, layout: Layout) -> usize;

    /// A new block for `layout`. With `zeroed` the caller wants zeroes and will fill the block
    /// itself where [`Memory::zeroed`] is false.
    ///
    /// # Errors
    /// [`AllocError`]; nothing is held for the request then.
    fn alloc(&self, layout: Layout, zeroed: bool) -> Result<Memory, AllocError>;

    /// Takes a block back: at any drop, or while the pool trims, ages, closes or makes room. In the
    /// latter cases it may still allocate from that pool and drop its buffers; a trim does nothing then,
    /// an audit is refused, and a close is completed afterwards. It must use no other pool, which may be
    /// waiting for this one, and not allocate under a lock that [`alloc`](Self::alloc) or this takes.
    ///
    /// # Safety
    /// `base` and `token` are of a block that this source (or an equal one: a clone of it, another
    /// value of a stateless type) served for this `layout`, and that was not given back yet.
    unsafe fn dealloc(&self, base: NonNull<u8>, layout: Layout, token: usize);

    /// Makes the first `len` bytes of a block read as zero by handing their pages back, where that
    /// is the better way than a fill. Returns whether it did; if not, the block is unchanged.
    ///
    /// # Safety
    /// As [`dealloc`](Self::dealloc), the block stays the caller's; `len <= layout.size()`, and no
    /// one else uses the block during the call.
    unsafe fn discard(&self, base: NonNull<u8>, layout: Layout, token: usize, len: usize) -> bool {
        let _ = (base, layout, token, len);
        false
    }
}

/// Forwards every method of [`Source`] to `**self`.
macro_rules! forward {
    ($($pointer:ty),*) => {$(
        // SAFETY: every promise is the pointee's; the pointer adds nothing.
        unsafe impl<S: Source + ?Sized> Source for $pointer {
            fn name(&self) -> &'static str {
                (**self).name()
            }

            fn footprint(&self, layout: Layout) -> usize {
                (**self).footprint(layout)
            }

            fn alloc(&self, layout: Layout, zeroed: bool) -> Result<Memory, AllocError> {
                (**self).alloc(layout, zeroed)
            }

            unsafe fn dealloc(&self, base: NonNull<u8>, layout: Layout, token: usize) {
                // SAFETY: the caller's promise, passed on.
                unsafe { (**self).dealloc(base, layout, token) }
            }

            unsafe fn discard(
                &self,
                base: NonNull<u8>,
                layout: Layout,
                token: usize,
                len: usize,
            ) -> bool {
                // SAFETY: the caller's promise, passed on.
                unsafe { (**self).discard(base, layout, token, len) }
            }
        }
    )*};
}

forward!(&'static S, Box<S>, Arc<S>);
