//! [`Guarded`]: blocks that end at an inaccessible page.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;
use core::slice;

use memmap2::MmapOptions;

use super::contents::{self, Change};
use crate::constants::watch::PATTERN;
use crate::error::{AllocError, AllocErrorKind};
use crate::os;
use crate::source::mmap::{token_of, unmap};
use crate::source::{Memory, Source};

/// Name of the guard in errors.
pub(super) const NAME: &str = "guard pages";

/// Each block a mapping of its own: the block, as far right as its alignment lets it be, then a page
/// that nobody may touch. The bytes around the block on its own pages hold a pattern.
///
/// Where the size is a multiple of the alignment, the block ends at the guard. The guard takes
/// address space and no memory, so it is not in the footprint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guarded;

/// What is mapped for a layout.
struct Request {
    /// Granularity of the block's place: the page or the alignment.
    unit: usize,
    mapped: usize,
}

impl Request {
    /// `None` where it exceeds the address space.
    fn new(layout: Layout) -> Option<Self> {
        let page = os::page_size();
        let unit = layout.align().max(page);
        let body = layout.size().checked_next_multiple_of(unit)?;
        // Whatever the mapping's own alignment: a place for the body that ends at a unit.
        let skew = unit - page;
        let mapped = body.checked_add(skew)?.checked_add(page)?;
        (mapped <= isize::MAX as usize).then_some(Self { unit, mapped })
    }
}

/// Bytes around a block on its own pages.
struct Margins {
    /// First byte of the block's first page.
    begin: usize,
    /// First byte of the guard.
    guard: usize,
}

impl Margins {
    fn of(base: usize, layout: Layout) -> Self {
        let page = os::page_size();
        let unit = layout.align().max(page);
        Self {
            begin: base - base % page,
            guard: (base + layout.size()).next_multiple_of(unit),
        }
    }
}

// SAFETY: a block lies within a mapping that the token owns and that nothing else refers to, in
// front of the guard, at an address rounded down to the alignment; a private anonymous mapping
// starts zero, and the pattern is written outside of the block; nothing here unwinds.
unsafe impl Source for Guarded {
    fn name(&self) -> &'static str {
        NAME
    }

    fn footprint(&self, layout: Layout) -> usize {
        let rounded = layout.size().checked_next_multiple_of(os::page_size());
        match (rounded, Request::new(layout)) {
            (Some(bytes), Some(_)) => bytes,
            _ => usize::MAX,
        }
    }

    fn alloc(&self, layout: Layout, _zeroed: bool) -> Result<Memory, AllocError> {
        let error = |kind| AllocError::new(kind, layout.size(), layout.align(), NAME);
        let request = Request::new(layout).ok_or_else(|| error(AllocErrorKind::TooLarge))?;
        let mut mapping = MmapOptions::new()
            .len(request.mapped)
            .map_anon()
            .map_err(|_| error(AllocErrorKind::SourceFailed))?;
        let start = mapping.as_mut_ptr();
        let last = start.addr() + request.mapped - os::page_size();
        let guard = last - last % request.unit;
        let end = start.addr() + request.mapped;
        let forbidden = start.wrapping_add(guard - start.addr());
        // SAFETY: the guard is page-aligned and lies in the mapping, which is ours alone.
        if !unsafe { os::forbid(forbidden, end - guard) } {
            return Err(error(AllocErrorKind::SourceFailed));
        }
        let place = (guard - layout.size()) & !(layout.align() - 1);
        let base = NonNull::new(start.wrapping_add(place - start.addr()))
            .ok_or_else(|| error(AllocErrorKind::SourceFailed))?;
        for (begin, len) in margins(base, layout) {
            // SAFETY: the margins lie in the mapping, in front of the guard, which is ours alone.
            unsafe { begin.write_bytes(PATTERN, len) };
        }
        Ok(Memory {
            base,
            zeroed: true,
            token: token_of(mapping),
        })
    }

    unsafe fn dealloc(&self, _base: NonNull<u8>, _layout: Layout, token: usize) {
        // SAFETY: the caller's promise; `alloc` has made the token. The guard goes with the block.
        unsafe { unmap(token) };
    }
}

/// What lies around a block, from its first page to its guard: begin and length of each part.
fn margins(base: NonNull<u8>, layout: Layout) -> [(*mut u8, usize); 2] {
    let address = base.addr().get();
    let Margins { begin, guard } = Margins::of(address, layout);
    let end = address + layout.size();
    [
        (base.as_ptr().wrapping_sub(address - begin), address - begin),
        (base.as_ptr().wrapping_add(layout.size()), guard - end),
    ]
}

/// A byte beside the block that was written, if any; its place in bytes from the block's first.
///
/// # Safety
/// The block is of [`Guarded`], with this layout, and the caller's alone.
pub(super) unsafe fn overrun(base: NonNull<u8>, layout: Layout) -> Option<(isize, u8)> {
    for (begin, len) in margins(base, layout) {
        // SAFETY: the margins lie in the block's own mapping, and `alloc` wrote them.
        let bytes = unsafe { slice::from_raw_parts(begin, len) };
        if let Some(Change { offset, found }) = contents::first_change(bytes) {
            let place = begin.addr() + offset;
            return Some((place.wrapping_sub(base.addr().get()) as isize, found));
        }
    }
    None
}

/// Makes a block inaccessible until it is unmapped. A refusal by the system leaves it as it is.
///
/// # Safety
/// As [`overrun`]; nobody touches the block again but to unmap it.
pub(super) unsafe fn seal(base: NonNull<u8>, layout: Layout) {
    let Margins { begin, guard } = Margins::of(base.addr().get(), layout);
    let first = base.as_ptr().wrapping_sub(base.addr().get() - begin);
    // SAFETY: whole pages of the block's own mapping.
    let _ = unsafe { os::forbid(first, guard - begin) };
}

#[cfg(all(test, any(target_os = "linux", target_os = "macos")))]
mod tests {
    use super::*;

    #[test]
    fn blocks_end_at_the_guard_where_their_alignment_lets_them() {
        let page = os::page_size();
        for (size, align, gap) in [
            (1, 1, 0),
            (5, 1, 0),
            (8, 8, 0),
            (5, 8, 3),
            (4096, 16, 0),
            (4097, 1, 0),
            (100, 4096, 3996),
            (100, 1 << 16, (1 << 16) - 100),
            (1 << 17, 1 << 16, 0),
        ] {
            let layout = Layout::from_size_align(size, align).expect("a layout");
            let memory = Guarded.alloc(layout, false).expect("memory");
            let address = memory.base.addr().get();
            assert!(address.is_multiple_of(align), "{layout:?}");
            let guard = Margins::of(address, layout).guard;
            assert!(guard.is_multiple_of(page), "{layout:?}");
            assert_eq!(guard - address - size, gap, "{layout:?}");
            // SAFETY: the block is ours, and zero.
            let bytes = unsafe { slice::from_raw_parts_mut(memory.base.as_ptr(), size) };
            assert!(bytes.iter().all(|&byte| byte == 0), "{layout:?}");
            bytes.fill(1);
            // SAFETY: our block.
            assert_eq!(unsafe { overrun(memory.base, layout) }, None, "{layout:?}");
            if gap > 0 {
                // SAFETY: within the page, behind the block.
                unsafe { memory.base.as_ptr().wrapping_add(size).write(9) };
                // SAFETY: our block.
                let found = unsafe { overrun(memory.base, layout) };
                assert_eq!(found, Some((size as isize, 9)), "{layout:?}");
            }
            // SAFETY: served above with this layout and token.
            unsafe { Guarded.dealloc(memory.base, layout, memory.token) };
        }
    }

    #[test]
    fn what_cannot_be_mapped_is_refused() {
        let layout = Layout::from_size_align(isize::MAX as usize, 1).expect("a layout");
        assert_eq!(Guarded.footprint(layout), usize::MAX);
        let error = Guarded.alloc(layout, false).unwrap_err();
        assert_eq!(error.kind, AllocErrorKind::TooLarge);
        assert_eq!(error.refused_by, NAME);
    }
}
