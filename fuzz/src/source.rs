//! A source that counts what is out, and spoils what comes back.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Mutex;

use ndpool::AllocError;
use ndpool::source::{Memory, Os, Source};

/// What freed memory is filled with.
const SPOILED: u8 = 0xDD;

/// Memory of the operating system, with every block on a list.
#[derive(Default)]
pub struct Watched {
    inner: Os,
    out: Mutex<BTreeMap<usize, Layout>>,
}

impl Watched {
    fn out(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, Layout>> {
        self.out
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Blocks that are out.
    pub fn blocks(&self) -> usize {
        self.out().len()
    }

    /// Bytes that they occupy.
    pub fn bytes(&self) -> usize {
        self.out()
            .values()
            .map(|&layout| self.footprint(layout))
            .sum()
    }
}

// SAFETY: the inner source's promises; blocks are spoiled only once they are ours again.
unsafe impl Source for Watched {
    fn name(&self) -> &'static str {
        "watched"
    }

    fn footprint(&self, layout: Layout) -> usize {
        self.inner.footprint(layout)
    }

    fn alloc(&self, layout: Layout, zeroed: bool) -> Result<Memory, AllocError> {
        let memory = self.inner.alloc(layout, zeroed)?;
        let before = self.out().insert(memory.base.addr().get(), layout);
        assert!(before.is_none(), "a block is out twice");
        Ok(memory)
    }

    unsafe fn dealloc(&self, base: NonNull<u8>, layout: Layout, token: usize) {
        let was = self.out().remove(&base.addr().get());
        if was != Some(layout) {
            // A panic here would be caught and reported by the pool; a fault must end the run.
            eprintln!("{base:p} came back as {layout:?}, was out as {was:?}");
            std::process::abort();
        }
        // SAFETY: the block is ours again, and writable for its whole size.
        unsafe { base.write_bytes(SPOILED, layout.size().min(1 << 16)) };
        // SAFETY: the caller's promise, passed on.
        unsafe { self.inner.dealloc(base, layout, token) };
    }

    unsafe fn discard(&self, base: NonNull<u8>, layout: Layout, token: usize, len: usize) -> bool {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.inner.discard(base, layout, token, len) }
    }
}
