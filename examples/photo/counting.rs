//! The system's allocator with counters for what is large: the heap's side of the comparison.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Blocks from this size on are counted: arrays, not the odds and ends of the program.
const LARGE: usize = 4096;

pub struct Counting {
    taken: AtomicU64,
    given: AtomicU64,
    live: AtomicU64,
    peak: AtomicU64,
}

impl Counting {
    pub const fn new() -> Self {
        Self {
            taken: AtomicU64::new(0),
            given: AtomicU64::new(0),
            live: AtomicU64::new(0),
            peak: AtomicU64::new(0),
        }
    }

    /// Large blocks taken and given back so far.
    pub fn traffic(&self) -> (u64, u64) {
        (self.taken.load(Relaxed), self.given.load(Relaxed))
    }

    /// Most bytes in large blocks at once since [`forget_peak`](Self::forget_peak).
    pub fn peak(&self) -> u64 {
        self.peak.load(Relaxed)
    }

    pub fn forget_peak(&self) {
        self.peak.store(self.live.load(Relaxed), Relaxed);
    }
}

// SAFETY: every call is passed on; the counters are beside them.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE {
            self.taken.fetch_add(1, Relaxed);
            let size = layout.size() as u64;
            let live = self.live.fetch_add(size, Relaxed) + size;
            self.peak.fetch_max(live, Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if layout.size() >= LARGE {
            self.given.fetch_add(1, Relaxed);
            self.live.fetch_sub(layout.size() as u64, Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) };
    }
}
