//! [`Mmap`]: blocks that are anonymous mappings of their own.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;

use memmap2::{MmapMut, MmapOptions};

use super::{Memory, Source};
use crate::constants::source::{HUGE_FROM, HUGE_PAGE};
use crate::error::{AllocError, AllocErrorKind};
use crate::os;

/// Anonymous private mappings, one per block.
///
/// Pages are known zero, become resident when touched, and go back to the system at once when the
/// block does. Blocks are aligned to a page, and from 2 MiB up to 2 MiB, with the advice to use
/// huge pages on exactly the block's own range (zeroed or not); the advice ends with the mapping.
/// An alignment above a page is reached by mapping more than asked; the excess is address space
/// that is never touched, so it is not in the footprint.
///
/// Recycled blocks are discarded (see [`Source::discard`]) where huge pages are in use, and there
/// only: with 4 KiB pages, faulting them in again costs more than a fill ever does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mmap;

/// What is mapped for a layout.
struct Request {
    /// Bytes of the block, whole pages.
    len: usize,
    align: usize,
    /// Bytes to map so that an aligned block of `len` is among them.
    mapped: usize,
}

impl Request {
    /// `None` where it exceeds the address space.
    fn new(layout: Layout) -> Option<Self> {
        let page = os::page_size();
        let len = layout.size().max(1).checked_next_multiple_of(page)?;
        let least = if len >= HUGE_FROM { HUGE_PAGE } else { page };
        let align = layout.align().max(least);
        let mapped = if align > page {
            len.checked_add(align)?
        } else {
            len
        };
        (mapped <= isize::MAX as usize).then_some(Self { len, align, mapped })
    }
}

impl Mmap {
    /// The source of anonymous mappings.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }
}

/// The token of a block that is a mapping of its own.
pub(crate) fn token_of(mapping: MmapMut) -> usize {
    Box::into_raw(Box::new(mapping)).expose_provenance()
}

/// Unmaps such a block, with all that its mapping has around it.
///
/// # Safety
/// The token is from [`token_of`], and comes back once.
pub(crate) unsafe fn unmap(token: usize) {
    let mapping = core::ptr::with_exposed_provenance_mut::<MmapMut>(token);
    // SAFETY: made of a box, and by the caller's promise given back once.
    drop(unsafe { Box::from_raw(mapping) });
}

// SAFETY: a block lies within a mapping that the token owns and that nothing else refers to, at an
// address rounded up to the alignment; a private anonymous mapping starts zero, and `discard`
// makes bytes zero by the system's promise or by a fill; nothing here unwinds.
unsafe impl Source for Mmap {
    fn name(&self) -> &'static str {
        "mmap"
    }

    fn footprint(&self, layout: Layout) -> usize {
        Request::new(layout).map_or(usize::MAX, |request| request.len)
    }

    fn alloc(&self, layout: Layout, _zeroed: bool) -> Result<Memory, AllocError> {
        let error = |kind| AllocError::new(kind, layout.size(), layout.align(), self.name());
        let request = Request::new(layout).ok_or_else(|| error(AllocErrorKind::TooLarge))?;
        let mut mapping = MmapOptions::new()
            .len(request.mapped)
            .map_anon()
            .map_err(|_| error(AllocErrorKind::SourceFailed))?;
        let start = mapping.as_mut_ptr();
        let skip = start.addr().next_multiple_of(request.align) - start.addr();
        let base = NonNull::new(start.wrapping_add(skip))
            .ok_or_else(|| error(AllocErrorKind::SourceFailed))?;
        if request.len >= HUGE_FROM {
            // SAFETY: `skip < align`, so the range lies within the mapping, which is ours alone.
            unsafe { os::advise_huge(base, request.len) };
        }
        Ok(Memory {
            base,
            zeroed: true,
            token: token_of(mapping),
        })
    }

    unsafe fn dealloc(&self, _base: NonNull<u8>, _layout: Layout, token: usize) {
        // SAFETY: the caller's promise; `alloc` has made the token.
        unsafe { unmap(token) };
    }

    unsafe fn discard(&self, base: NonNull<u8>, layout: Layout, _token: usize, len: usize) -> bool {
        debug_assert!(len <= layout.size());
        // Blocks below this have no huge pages; a shorter range is cheaper to fill.
        if len < HUGE_FROM || !os::huge_pages() {
            return false;
        }
        let whole = len - len % HUGE_PAGE;
        // SAFETY: `base` is aligned to a huge page, and `whole <= len` bytes of the caller's own
        // private anonymous mapping start there.
        if !unsafe { os::discard_pages(base, whole) } {
            return false;
        }
        // SAFETY: `whole <= len <= layout.size()`, within the block.
        let rest = unsafe { base.add(whole) };
        // SAFETY: the block ends at `base + layout.size()` or later, and `len <= layout.size()`.
        unsafe { rest.write_bytes(0, len - whole) };
        true
    }
}
