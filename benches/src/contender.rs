//! What gives memory and takes it back: one trait, and the general allocators behind it.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// What a contender is told before the first request. Pools of objects need it; allocators ignore it.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Bytes of the largest request.
    pub size: usize,
    /// Most buffers alive at once, over all threads.
    pub live: usize,
}

/// A buffer pool or an allocator. It lives as long as its process, so blocks may borrow it.
pub trait Contender: Sync + Sized + 'static {
    /// A buffer in use. Dropping it by other means than [`Contender::free`] may leak it.
    type Block: Send + 'static;

    /// A fresh contender.
    fn new(setup: Setup) -> Self;

    /// A buffer of at least `len` bytes, contents unspecified.
    fn allocate(&'static self, len: usize) -> Self::Block;

    /// A buffer of at least `len` bytes, all zero.
    fn zeroed(&'static self, len: usize) -> Self::Block;

    /// Its first byte; valid for the length asked for until the block is freed.
    fn address(block: &mut Self::Block) -> *mut u8;

    /// Gives the buffer back.
    fn free(&'static self, block: Self::Block);

    /// Gives resting memory back to the operating system, as far as the contender has a call for it.
    fn trim(&'static self) {}
}

/// Leaks a contender: every cell has a process of its own, which ends soon after.
pub fn start<C: Contender>(setup: Setup) -> &'static C {
    Box::leak(Box::new(C::new(setup)))
}

/// An allocator called as an object at one alignment, as `Vec` would call it.
pub struct Allocator<A, const ALIGN: usize>(PhantomData<fn() -> A>);

/// A block of an [`Allocator`].
pub struct Raw {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the block is owned memory; an allocator's memory may be freed on any thread.
unsafe impl Send for Raw {}

/// An allocator that can be named by its type.
pub trait Named: GlobalAlloc + 'static {
    /// The allocator.
    const IT: Self;

    /// Run once, before the first request.
    fn prepare() {}

    /// See [`Contender::trim`].
    fn trim() {}
}

impl<A: Named, const ALIGN: usize> Allocator<A, ALIGN> {
    #[inline(always)]
    fn layout(len: usize) -> Layout {
        debug_assert!(len > 0 && len <= isize::MAX as usize / 2);
        // SAFETY: ALIGN is a power of two and the harness asks for at most a few GiB.
        unsafe { Layout::from_size_align_unchecked(len, ALIGN) }
    }
}

impl<A: Named, const ALIGN: usize> Contender for Allocator<A, ALIGN> {
    type Block = Raw;

    fn new(_: Setup) -> Self {
        A::prepare();
        Self(PhantomData)
    }

    #[inline(always)]
    fn allocate(&'static self, len: usize) -> Raw {
        // SAFETY: the harness never asks for zero bytes.
        let start = unsafe { A::IT.alloc(Self::layout(len)) };
        Raw {
            start: NonNull::new(start).expect("out of memory"),
            len,
        }
    }

    #[inline(always)]
    fn zeroed(&'static self, len: usize) -> Raw {
        // SAFETY: the harness never asks for zero bytes.
        let start = unsafe { A::IT.alloc_zeroed(Self::layout(len)) };
        Raw {
            start: NonNull::new(start).expect("out of memory"),
            len,
        }
    }

    #[inline(always)]
    fn address(block: &mut Raw) -> *mut u8 {
        block.start.as_ptr()
    }

    #[inline(always)]
    fn free(&'static self, block: Raw) {
        // SAFETY: the block came from this allocator with this layout, and is consumed here.
        unsafe { A::IT.dealloc(block.start.as_ptr(), Self::layout(block.len)) }
    }

    fn trim(&'static self) {
        A::trim();
    }
}

impl Named for System {
    const IT: Self = System;

    fn trim() {
        malloc_trim();
    }
}

fn malloc_trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// glibc told to keep what it is given: neither mapped per request nor trimmed.
pub struct Raised;

/// The highest `mmap_threshold` that glibc 2.36 accepts; larger requests are still mapped each time.
const HIGHEST_MMAP_THRESHOLD: i32 = 32 << 20;

// SAFETY: forwards to `System`.
unsafe impl GlobalAlloc for Raised {
    #[inline(always)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    #[inline(always)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline(always)]
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(start, layout) }
    }
}

impl Named for Raised {
    const IT: Self = Raised;

    fn prepare() {
        #[cfg(target_env = "gnu")]
        {
            // SAFETY: called before any thread is started.
            let kept = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, HIGHEST_MMAP_THRESHOLD) };
            // SAFETY: as above.
            let untrimmed = unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX) };
            assert!(
                kept == 1 && untrimmed == 1,
                "glibc refused the raised thresholds"
            );
        }
    }

    fn trim() {
        malloc_trim();
    }
}

#[cfg(feature = "mimalloc")]
impl Named for mimalloc::MiMalloc {
    const IT: Self = mimalloc::MiMalloc;

    fn trim() {
        // SAFETY: no preconditions.
        unsafe { libmimalloc_sys::mi_collect(true) }
    }
}

#[cfg(feature = "jemalloc")]
impl Named for tikv_jemallocator::Jemalloc {
    const IT: Self = tikv_jemallocator::Jemalloc;

    fn trim() {
        // All arenas: their index is `MALLCTL_ARENAS_ALL`.
        // SAFETY: the name is nul-terminated and the control takes and returns nothing.
        unsafe {
            tikv_jemalloc_sys::mallctl(
                c"arena.4096.purge".as_ptr(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                0,
            );
        }
    }
}

#[cfg(feature = "snmalloc")]
impl Named for snmalloc_rs::SnMalloc {
    const IT: Self = snmalloc_rs::SnMalloc;
}

#[cfg(feature = "rpmalloc")]
impl Named for rpmalloc::RpMalloc {
    const IT: Self = rpmalloc::RpMalloc;
}
