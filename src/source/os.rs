//! [`Os`]: the default source.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;

use super::{Heap, Memory, Mmap, Source};
use crate::constants::source::MAPPED_FROM;
use crate::error::AllocError;

/// [`Heap`] for small blocks, [`Mmap`] from 128 KiB up and for alignments above a page.
///
/// The layout alone decides, so a block goes back to where it came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Os {
    heap: Heap,
    mmap: Mmap,
}

impl Os {
    /// The default source.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            heap: Heap::new(),
            mmap: Mmap::new(),
        }
    }

    fn of(&self, layout: Layout) -> &dyn Source {
        if layout.size() >= MAPPED_FROM || layout.align() > crate::os::page_size() {
            &self.mmap
        } else {
            &self.heap
        }
    }
}

// SAFETY: both parts keep the promises, and `of` is pure, so every call for a block reaches the
// part that served it.
unsafe impl Source for Os {
    fn name(&self) -> &'static str {
        "os"
    }

    fn footprint(&self, layout: Layout) -> usize {
        self.of(layout).footprint(layout)
    }

    fn alloc(&self, layout: Layout, zeroed: bool) -> Result<Memory, AllocError> {
        self.of(layout).alloc(layout, zeroed)
    }

    unsafe fn dealloc(&self, base: NonNull<u8>, layout: Layout, token: usize) {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.of(layout).dealloc(base, layout, token) }
    }

    unsafe fn discard(&self, base: NonNull<u8>, layout: Layout, token: usize, len: usize) -> bool {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.of(layout).discard(base, layout, token, len) }
    }
}
