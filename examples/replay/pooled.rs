//! The pool as a contender.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ndpool::source::{Memory, Os, Source};
use ndpool::{AllocError, Buffer, MIN_ALIGN, Pool};

use crate::contender::{Block, Contender};

/// A pool with the default configuration.
#[derive(Debug)]
pub struct PoolAllocator {
    pool: Pool,
    births: Arc<AtomicU64>,
}

impl PoolAllocator {
    /// Opens a pool.
    ///
    /// # Errors
    /// As [`ndpool::PoolBuilder::try_build`].
    pub fn new() -> Result<PoolAllocator, AllocError> {
        let births = Arc::new(AtomicU64::new(0));
        let source = Counted {
            source: Os::new(),
            births: Arc::clone(&births),
        };
        let pool = Pool::builder().source(source).try_build()?;
        Ok(PoolAllocator { pool, births })
    }
}

impl Contender for PoolAllocator {
    type Block = Buffer<MaybeUninit<u8>>;

    #[inline]
    fn allocate(&self, layout: Layout) -> Result<Self::Block, String> {
        refuse_larger_alignment(layout)?;
        self.pool
            .allocate::<u8>(layout.size())
            .map_err(|error| error.to_string())
    }

    #[inline]
    fn zeroed(&self, layout: Layout) -> Result<Self::Block, String> {
        refuse_larger_alignment(layout)?;
        self.pool
            .zeroed::<MaybeUninit<u8>>(layout.size())
            .map_err(|error| error.to_string())
    }

    fn misses(&self) -> Option<u64> {
        Some(self.births.load(Ordering::Relaxed))
    }
}

impl Block for Buffer<MaybeUninit<u8>> {
    #[inline]
    fn payload(&mut self) -> &mut [MaybeUninit<u8>] {
        self
    }
}

/// Buffers of bytes are aligned to [`MIN_ALIGN`], whatever is asked for.
#[inline]
fn refuse_larger_alignment(layout: Layout) -> Result<(), String> {
    if layout.align() <= MIN_ALIGN {
        Ok(())
    } else {
        Err(format!(
            "{layout:?} asks for more alignment than buffers have"
        ))
    }
}

/// The pool's usual source, which counts what is born: the misses, told by another than the pool.
#[derive(Debug)]
struct Counted {
    source: Os,
    births: Arc<AtomicU64>,
}

// SAFETY: every promise is that of the source inside; counting adds nothing to a block.
unsafe impl Source for Counted {
    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn footprint(&self, layout: Layout) -> usize {
        self.source.footprint(layout)
    }

    fn alloc(&self, layout: Layout, zeroed: bool) -> Result<Memory, AllocError> {
        self.births.fetch_add(1, Ordering::Relaxed);
        self.source.alloc(layout, zeroed)
    }

    unsafe fn dealloc(&self, base: NonNull<u8>, layout: Layout, token: usize) {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.source.dealloc(base, layout, token) };
    }

    unsafe fn discard(&self, base: NonNull<u8>, layout: Layout, token: usize, len: usize) -> bool {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.source.discard(base, layout, token, len) }
    }
}
