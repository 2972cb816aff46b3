//! The pool as a contender.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ndpool::source::{Memory, Os, Source};
use ndpool::{AllocError, Buffer, MIN_ALIGN, Pool};

use crate::contender::{Block, Contender, Misses};

/// A pool with the default configuration.
#[derive(Debug)]
pub struct PoolAllocator {
    pool: Pool,
    births: Arc<Births>,
}

impl PoolAllocator {
    /// Opens a pool.
    ///
    /// # Errors
    /// As [`ndpool::PoolBuilder::try_build`].
    pub fn new() -> Result<PoolAllocator, AllocError> {
        let births = Arc::new(Births::default());
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

    fn misses(&self) -> Option<Misses> {
        Some(Misses {
            requests: self.births.requests.load(Ordering::Relaxed),
            bytes: self.births.bytes.load(Ordering::Relaxed),
        })
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
    births: Arc<Births>,
}

/// Blocks born so far.
#[derive(Debug, Default)]
struct Births {
    requests: AtomicU64,
    bytes: AtomicU64,
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
        let born = self.source.alloc(layout, zeroed)?;
        let bytes = layout.size() as u64;
        self.births.requests.fetch_add(1, Ordering::Relaxed);
        self.births.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(born)
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
