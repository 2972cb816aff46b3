//! [`Tracked`]: counts, and a ledger that finds misuse, over any allocator.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

use super::ledger::{Entry, Ledger, Misuse};
use super::{BufferAllocator, cut, empty};
use crate::error::{AllocError, AllocErrorKind};
use crate::sync::Counter;

/// An allocator that counts blocks and bytes, and in debug builds finds misuse.
///
/// Bytes are the inner allocator's [`capacity`](BufferAllocator::capacity) for the layout, whichever
/// of the layouts that fit a block comes back with it, so the counts never drift. Blocks of 0 bytes
/// are not counted and never reach the inner allocator.
///
/// With a ledger (in debug builds, or by [`checked`](Self::checked)) every block is entered by its
/// address. A pointer that is no block of this allocator, or went back already, is reported and
/// goes nowhere. A block that comes back with a layout that does not fit is reported, and
/// deallocated with the layout that it was allocated with. To grow or shrink either is an error.
/// The ledger takes a lock for each operation; the counts are lock-free.
#[derive(Debug)]
pub struct Tracked<A> {
    inner: A,
    ledger: Option<Ledger>,
    live_blocks: Counter,
    live_bytes: Counter,
    peak_bytes: Counter,
    total_blocks: Counter,
    total_bytes: Counter,
    refused: Counter,
}

/// What a [`Tracked`] allocator counted. Exact when no operation is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Blocks that are out.
    pub live_blocks: u64,
    /// Bytes of the blocks that are out.
    pub live_bytes: u64,
    /// The most that `live_bytes` ever was.
    pub peak_bytes: u64,
    /// Blocks ever allocated; a grown or shrunk block stays one block.
    pub total_blocks: u64,
    /// Bytes ever allocated, by which blocks grew included.
    pub total_bytes: u64,
    /// Requests that the inner allocator refused.
    pub refused: u64,
    /// Pointers that came back wrongly (0 without a ledger).
    pub misuse_count: u64,
    /// The first of them, in detail.
    pub misuses: Vec<Misuse>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} blocks of {} bytes live, peak {} bytes; {} blocks of {} bytes in all, {} refused",
            self.live_blocks,
            self.live_bytes,
            self.peak_bytes,
            self.total_blocks,
            self.total_bytes,
            self.refused
        )?;
        for misuse in &self.misuses {
            write!(f, "\nmisuse: {misuse}")?;
        }
        if self.misuse_count > self.misuses.len() as u64 {
            write!(f, "\n{} misuses in all", self.misuse_count)?;
        }
        Ok(())
    }
}

impl<A> Tracked<A> {
    /// Counts over `inner`, with a ledger in debug builds.
    pub fn new(inner: A) -> Self {
        let ledger = cfg!(debug_assertions).then(Ledger::default);
        Self::with_ledger(inner, ledger)
    }

    /// Counts over `inner`, with a ledger in every build.
    pub fn checked(inner: A) -> Self {
        Self::with_ledger(inner, Some(Ledger::default()))
    }

    /// Counts over `inner`, without a ledger in any build.
    pub fn unchecked(inner: A) -> Self {
        Self::with_ledger(inner, None)
    }

    fn with_ledger(inner: A, ledger: Option<Ledger>) -> Self {
        Self {
            inner,
            ledger,
            live_blocks: Counter::new(),
            live_bytes: Counter::new(),
            peak_bytes: Counter::new(),
            total_blocks: Counter::new(),
            total_bytes: Counter::new(),
            refused: Counter::new(),
        }
    }

    /// The allocator inside.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    /// The counts now, or shortly before.
    pub fn report(&self) -> Report {
        let (misuses, misuse_count) = self
            .ledger
            .as_ref()
            .map(Ledger::misuses)
            .unwrap_or_default();
        Report {
            live_blocks: self.live_blocks.get(),
            live_bytes: self.live_bytes.get(),
            peak_bytes: self.peak_bytes.get(),
            total_blocks: self.total_blocks.get(),
            total_bytes: self.total_bytes.get(),
            refused: self.refused.get(),
            misuse_count,
            misuses,
        }
    }

    /// Addresses and layouts of the blocks that are out, by address; empty without a ledger.
    pub fn outstanding(&self) -> Vec<(usize, Layout)> {
        self.ledger
            .as_ref()
            .map(Ledger::outstanding)
            .unwrap_or_default()
    }

    /// `bytes` more are out. The peak is exact: each sum is some thread's.
    fn add_bytes(&self, bytes: usize) {
        let bytes = bytes as u64;
        self.total_bytes.add(bytes);
        let live = self.live_bytes.tick(bytes) + bytes;
        self.peak_bytes.raise(live);
    }

    /// `bytes` fewer are out.
    fn sub_bytes(&self, bytes: usize) {
        self.live_bytes.sub(bytes as u64);
    }

    fn enter(&self, block: NonNull<[u8]>, layout: Layout) {
        if let Some(ledger) = &self.ledger {
            let returned = block.len();
            ledger.enter(block.cast(), Entry { layout, returned });
        }
    }

    /// Strikes the block at `ptr` out of the ledger: what is known of it (`layout` itself without a
    /// ledger), or `None` if it is no block.
    fn strike(&self, ptr: NonNull<u8>, layout: Layout) -> Option<Entry> {
        match &self.ledger {
            Some(ledger) => ledger.strike(ptr, layout),
            None => Some(Entry {
                layout,
                returned: layout.size(),
            }),
        }
    }
}

impl<A: BufferAllocator> Tracked<A> {
    /// Counts the answer to a request for a new block.
    fn count(
        &self,
        answer: Result<NonNull<[u8]>, AllocError>,
        layout: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let block = answer.inspect_err(|_| self.refused.add(1))?;
        let bytes = self.capacity(layout);
        let block = cut(block, bytes);
        self.live_blocks.add(1);
        self.total_blocks.add(1);
        self.add_bytes(bytes);
        self.enter(block, layout);
        Ok(block)
    }

    /// Grows or shrinks by `resize`. The block is struck out meanwhile: if it moves, its old address
    /// may be issued again before we hear of it.
    fn resize(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
        resize: impl FnOnce() -> Result<NonNull<[u8]>, AllocError>,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let misuse = || {
            let kind = AllocErrorKind::Unsupported;
            AllocError::new(kind, new.size(), new.align(), "tracked")
        };
        let entry = self.strike(ptr, old).ok_or_else(misuse)?;
        let answer = if entry.fits(old) {
            resize()
        } else {
            Err(misuse())
        };
        let Ok(block) = answer else {
            self.refused.add(1);
            // The block is still out, and so still its owner's to name.
            if let Some(ledger) = &self.ledger {
                ledger.enter(ptr, entry);
            }
            return answer;
        };
        let (before, after) = (self.capacity(old), self.capacity(new));
        if after >= before {
            self.add_bytes(after - before);
        } else {
            self.sub_bytes(before - after);
        }
        let block = cut(block, after);
        self.enter(block, new);
        Ok(block)
    }
}

// SAFETY: blocks are the inner allocator's, cut to its capacity for their layout: every layout that
// fits the cut block fits the inner one. Where a caller broke the rules, the inner allocator gets
// what keeps them, or nothing.
unsafe impl<A: BufferAllocator> BufferAllocator for Tracked<A> {
    fn capacity(&self, layout: Layout) -> usize {
        if layout.size() == 0 {
            0
        } else {
            self.inner.capacity(layout)
        }
    }

    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(empty(layout));
        }
        self.count(self.inner.allocate(layout), layout)
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(empty(layout));
        }
        self.count(self.inner.allocate_zeroed(layout), layout)
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        if layout.size() == 0 {
            return;
        }
        if let Some(entry) = self.strike(ptr, layout) {
            let layout = if entry.fits(layout) {
                layout
            } else {
                entry.layout
            };
            self.live_blocks.sub(1);
            self.sub_bytes(self.capacity(layout));
            // SAFETY: the caller's promise, or the ledger's knowledge that this block is out.
            unsafe { self.inner.deallocate(ptr, layout) };
        }
    }

    unsafe fn grow(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if old.size() == 0 {
            return self.allocate(new);
        }
        self.resize(ptr, old, new, || {
            // SAFETY: the caller's promise, and where there is a ledger its knowledge besides.
            unsafe { self.inner.grow(ptr, old, new) }
        })
    }

    unsafe fn shrink(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if new.size() == 0 {
            // SAFETY: the caller's promise, passed on.
            unsafe { self.deallocate(ptr, old) };
            return Ok(empty(new));
        }
        self.resize(ptr, old, new, || {
            // SAFETY: the caller's promise, and where there is a ledger its knowledge besides.
            unsafe { self.inner.shrink(ptr, old, new) }
        })
    }
}
