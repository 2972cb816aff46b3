//! [`Heap`]: blocks from the global allocator.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;

use super::{Memory, Source};
use crate::constants::source::{HEAP_HEADER, HEAP_NATURAL_ALIGN, HEAP_PACKED_ALIGN, MAPPED_FROM};
use crate::error::{AllocError, AllocErrorKind};

/// The process's heap: `std::alloc`, whatever global allocator stands behind it.
///
/// Footprints are those of glibc's `malloc`. A request with an alignment above its natural one is
/// padded so that consecutive blocks, each with the header in front of it, lie back to back: the
/// fragments that `malloc` leaves between unpadded ones cost more than the padding (128 bytes
/// aligned to 128: 304 bytes a block unpadded, 256 padded; see `docs/measurements.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heap;

/// What is asked of the allocator for a layout, and what it takes for it.
struct Request {
    layout: Layout,
    footprint: usize,
}

impl Heap {
    /// The heap.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }

    /// `None` where the padded request exceeds what a layout can say.
    fn request(layout: Layout) -> Option<Request> {
        let size = layout.size().max(1);
        let (layout, stride) = if layout.align() <= HEAP_NATURAL_ALIGN {
            let stride = size.checked_add(HEAP_HEADER / 2)?;
            let stride = stride.checked_next_multiple_of(HEAP_NATURAL_ALIGN)?;
            let layout = Layout::from_size_align(size, layout.align()).ok()?;
            (layout, stride.max(2 * HEAP_HEADER))
        } else {
            let align = layout.align().max(HEAP_PACKED_ALIGN);
            let stride = size
                .checked_add(HEAP_HEADER)?
                .checked_next_multiple_of(align)?;
            let layout = Layout::from_size_align(stride - HEAP_HEADER, align).ok()?;
            (layout, stride)
        };
        let footprint = if stride < MAPPED_FROM {
            stride
        } else {
            // glibc serves these by mappings of their own.
            stride.checked_next_multiple_of(crate::os::page_size())?
        };
        Some(Request { layout, footprint })
    }
}

// SAFETY: blocks are the global allocator's, with at least the size and alignment asked for;
// `request` is pure, so a block goes back with the layout it was allocated with; zeroes are those of
// `alloc_zeroed` or of our own fill; nothing here unwinds.
unsafe impl Source for Heap {
    fn name(&self) -> &'static str {
        "heap"
    }

    fn footprint(&self, layout: Layout) -> usize {
        Self::request(layout).map_or(usize::MAX, |request| request.footprint)
    }

    fn alloc(&self, layout: Layout, zeroed: bool) -> Result<Memory, AllocError> {
        let error = |kind| AllocError::new(kind, layout.size(), layout.align(), self.name());
        let request = Self::request(layout).ok_or_else(|| error(AllocErrorKind::TooLarge))?;
        // Only at its natural alignment can the allocator know memory to be zero already.
        let natural = request.layout.align() <= HEAP_NATURAL_ALIGN;
        let base = if zeroed && natural {
            // SAFETY: the size is above 0.
            unsafe { std::alloc::alloc_zeroed(request.layout) }
        } else {
            // SAFETY: the size is above 0.
            unsafe { std::alloc::alloc(request.layout) }
        };
        let base = NonNull::new(base).ok_or_else(|| error(AllocErrorKind::SourceFailed))?;
        if zeroed && !natural {
            // SAFETY: the block is ours and at least `layout.size()` bytes long.
            unsafe { base.write_bytes(0, layout.size()) };
        }
        Ok(Memory {
            base,
            zeroed,
            token: 0,
        })
    }

    unsafe fn dealloc(&self, base: NonNull<u8>, layout: Layout, _token: usize) {
        // `alloc` with this layout succeeded, so there is a request for it.
        let Some(request) = Self::request(layout) else {
            return debug_assert!(false, "heap: no block can have {layout:?}");
        };
        // SAFETY: by the caller's promise `base` was allocated by `alloc` with this same request.
        unsafe { std::alloc::dealloc(base.as_ptr(), request.layout) };
    }
}
