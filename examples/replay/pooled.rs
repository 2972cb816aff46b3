//! The pool as a contender.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::error::Error;
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

    /// Ends the pool.
    ///
    /// # Errors
    /// What was not given back, and what does not balance.
    pub fn finish(self) -> Result<(), Box<dyn Error>> {
        self.pool.audit()?;
        Ok(self.pool.close_checked()?)
    }
}

/// What buffers consist of, so that they are aligned as a program's heap is even in a pool whose
/// buffers are aligned as their elements ask and no more. A class holds a whole number of them.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Word([u8; 16]);

// SAFETY: bytes, all of which may be zero.
unsafe impl bytemuck::Zeroable for Word {}

/// A block of a pool.
pub struct PoolBlock {
    buffer: Buffer<MaybeUninit<Word>>,
    bytes: usize,
}

impl Contender for PoolAllocator {
    type Block = PoolBlock;

    #[inline]
    fn allocate(&self, layout: Layout) -> Result<Self::Block, String> {
        refuse_larger_alignment(layout)?;
        let buffer = self
            .pool
            .allocate::<Word>(layout.size().div_ceil(size_of::<Word>()));
        PoolBlock::new(buffer, layout)
    }

    #[inline]
    fn zeroed(&self, layout: Layout) -> Result<Self::Block, String> {
        refuse_larger_alignment(layout)?;
        let buffer = self
            .pool
            .zeroed::<MaybeUninit<Word>>(layout.size().div_ceil(size_of::<Word>()));
        PoolBlock::new(buffer, layout)
    }

    fn misses(&self) -> Option<Misses> {
        Some(Misses {
            requests: self.births.requests.load(Ordering::Relaxed),
            bytes: self.births.bytes.load(Ordering::Relaxed),
        })
    }
}

impl PoolBlock {
    #[inline]
    fn new(
        buffer: Result<Buffer<MaybeUninit<Word>>, AllocError>,
        layout: Layout,
    ) -> Result<Self, String> {
        let buffer = buffer.map_err(|error| error.to_string())?;
        let bytes = layout.size();
        Ok(Self { buffer, bytes })
    }
}

impl Block for PoolBlock {
    #[inline]
    fn payload(&mut self) -> &mut [MaybeUninit<u8>] {
        let start = self.buffer.as_mut_ptr().cast();
        // SAFETY: the buffer has this many bytes at least, and they need no value.
        unsafe { std::slice::from_raw_parts_mut(start, self.bytes) }
    }
}

/// Buffers are aligned to [`MIN_ALIGN`], whatever is asked for, unless they are guarded.
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
