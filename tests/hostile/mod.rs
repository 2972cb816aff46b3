//! Upstreams that a real one may turn out to be, and one that breaks its promises.

#![allow(unsafe_code, dead_code)]

use std::alloc::Layout;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use ndpool::allocator::{BufferAllocator, System};
use ndpool::{AllocError, AllocErrorKind};

pub fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("valid in this test")
}

fn error(layout: Layout) -> AllocError {
    AllocError::new(
        AllocErrorKind::SourceFailed,
        layout.size(),
        layout.align(),
        "hostile",
    )
}

/// Gives a block back that `allocator` served for `layout`.
pub fn free(allocator: &dyn BufferAllocator, block: NonNull<[u8]>, layout: Layout) {
    // SAFETY: every caller passes a block of this allocator and a layout that fits it, once.
    unsafe { allocator.deallocate(block.cast(), layout) }
}

/// Classes of 48 bytes: answers with more than was asked, and says so.
pub struct Rounding;

impl Rounding {
    const STEP: usize = 48;

    fn rounded(layout: Layout) -> Option<Layout> {
        let size = layout.size().max(1).checked_next_multiple_of(Self::STEP)?;
        Layout::from_size_align(size, layout.align()).ok()
    }
}

// SAFETY: blocks are the heap's; every layout that fits a block rounds to the one it was made with.
unsafe impl BufferAllocator for Rounding {
    fn capacity(&self, layout: Layout) -> usize {
        Self::rounded(layout).map_or(layout.size(), |layout| layout.size())
    }

    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        System.allocate(Self::rounded(layout).ok_or_else(|| error(layout))?)
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        let layout = Self::rounded(layout).expect("served before");
        // SAFETY: the caller's promise; the heap's layout is the rounded one.
        unsafe { System.deallocate(ptr, layout) }
    }
}

/// Answers with more than was asked, sometimes, and does not say so: `capacity` is the default.
pub struct Secretive(pub AtomicU64);

/// Bytes that `Secretive` puts in front of a block, to know its length again.
const FRONT: usize = 64;

// SAFETY: blocks are the heap's, `FRONT` (or the alignment) bytes into them; their true layout
// stands in front.
unsafe impl BufferAllocator for Secretive {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let extra = (self.0.fetch_add(1, Relaxed) % 7) as usize * 3;
        let front = layout.align().max(FRONT);
        let size = layout
            .size()
            .checked_add(extra + front)
            .ok_or_else(|| error(layout))?;
        let whole = Layout::from_size_align(size, front).map_err(|_| error(layout))?;
        let base = System.allocate(whole)?.cast::<u8>();
        // SAFETY: `front` bytes into a block of more than `front`.
        let block = unsafe { base.add(front) };
        // SAFETY: at least 64 bytes lie in front of `block`, aligned to 64.
        let header = unsafe { block.sub(FRONT) }.cast::<usize>();
        // SAFETY: as above, and they are ours.
        unsafe { header.write(size) };
        Ok(NonNull::slice_from_raw_parts(block, layout.size() + extra))
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        let front = layout.align().max(FRONT);
        // SAFETY: `allocate` left that much in front of the block.
        let header = unsafe { ptr.sub(FRONT) }.cast::<usize>();
        // SAFETY: `allocate` wrote it.
        let size = unsafe { header.read() };
        // SAFETY: the block lies `front` bytes into the heap's.
        let base = unsafe { ptr.sub(front) };
        // SAFETY: this is the heap's layout for it; the caller's promise.
        unsafe { System.deallocate(base, layout_unchecked(size, front)) }
    }
}

fn layout_unchecked(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("it was one before")
}

/// Issues the address that came back last again at once, to whichever thread asks next.
#[derive(Default)]
pub struct Reissuing {
    resting: Mutex<HashMap<Layout, Vec<usize>>>,
    pub reissued: AtomicU64,
}

// SAFETY: a resting block is the heap's, belongs to nobody, and is issued to one caller.
unsafe impl BufferAllocator for Reissuing {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let resting = self
            .resting
            .lock()
            .unwrap()
            .get_mut(&layout)
            .and_then(Vec::pop);
        if let Some(address) = resting {
            self.reissued.fetch_add(1, Relaxed);
            let base = std::ptr::with_exposed_provenance_mut::<u8>(address);
            let base = NonNull::new(base).expect("a block's address");
            return Ok(NonNull::slice_from_raw_parts(base, layout.size()));
        }
        System.allocate(layout)
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        let address = ptr.as_ptr().expose_provenance();
        self.resting
            .lock()
            .unwrap()
            .entry(layout)
            .or_default()
            .push(address);
        // The window in which a ledger that is late would be caught.
        std::thread::yield_now();
    }
}

impl Drop for Reissuing {
    fn drop(&mut self) {
        for (layout, blocks) in self.resting.get_mut().unwrap().drain() {
            for address in blocks {
                let base = std::ptr::with_exposed_provenance_mut::<u8>(address);
                let base = NonNull::new(base).expect("a block's address");
                // SAFETY: a resting block is the heap's with this layout, and nobody's.
                unsafe { System.deallocate(base, layout) };
            }
        }
    }
}

/// Fails every `k`-th request, and takes its time for the others.
pub struct Flaky {
    k: u64,
    slow: bool,
    calls: AtomicU64,
    pub failed: AtomicU64,
}

impl Flaky {
    pub fn new(k: u64, slow: bool) -> Self {
        Self {
            k,
            slow,
            calls: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    fn fails(&self, layout: Layout) -> Result<(), AllocError> {
        let call = self.calls.fetch_add(1, Relaxed) + 1;
        if self.slow && call.is_multiple_of(16) {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        if self.k > 0 && call.is_multiple_of(self.k) {
            self.failed.fetch_add(1, Relaxed);
            return Err(error(layout));
        }
        Ok(())
    }
}

// SAFETY: blocks are the heap's; failing breaks no promise.
unsafe impl BufferAllocator for Flaky {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.fails(layout)?;
        System.allocate(layout)
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.deallocate(ptr, layout) }
    }

    unsafe fn grow(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        self.fails(new)?;
        // SAFETY: the caller's promise, passed on.
        unsafe { System.grow(ptr, old, new) }
    }
}

/// Notes the alignment of each request and the bytes that are out, and the most that ever were.
#[derive(Default)]
pub struct Watching {
    pub align: AtomicUsize,
    pub requests: AtomicU64,
    pub out: AtomicUsize,
    pub most: AtomicUsize,
}

// SAFETY: blocks are the heap's.
unsafe impl BufferAllocator for Watching {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.requests.fetch_add(1, Relaxed);
        self.align.store(layout.align(), Relaxed);
        let block = System.allocate(layout)?;
        let out = self.out.fetch_add(layout.size(), Relaxed) + layout.size();
        self.most.fetch_max(out, Relaxed);
        Ok(block)
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        self.out.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.deallocate(ptr, layout) }
    }
}

/// Breaks the promise with this number.
pub struct Broken {
    pub promise: u8,
    /// The one block that is issued for ever.
    pub stuck: AtomicUsize,
}

// SAFETY: one promise is broken, which is the point: the suite must stop before it matters. Where
// that concerns the place or length of blocks they never go back.
unsafe impl BufferAllocator for Broken {
    fn capacity(&self, layout: Layout) -> usize {
        layout.size() + usize::from(self.promise == 0)
    }

    fn allocate(&self, asked: Layout) -> Result<NonNull<[u8]>, AllocError> {
        match self.promise {
            1 if asked.align() > 16 => {
                let block = System.allocate(layout(asked.size() + 64, 64))?.cast::<u8>();
                // SAFETY: 16 bytes into a block of 64 or more.
                let block = unsafe { block.add(16) };
                Ok(NonNull::slice_from_raw_parts(block, asked.size()))
            }
            2 if asked.size() > 10 => {
                let block = System.allocate(asked)?.cast();
                Ok(NonNull::slice_from_raw_parts(block, asked.size() - 1))
            }
            3 if asked.size() > 1 << 40 => Ok(NonNull::slice_from_raw_parts(
                NonNull::without_provenance(asked.align().try_into().expect("not 0")),
                asked.size(),
            )),
            4 if (100..200).contains(&asked.size()) && asked.align() <= 4096 => {
                if self.stuck.load(Relaxed) == 0 {
                    let block = System.allocate(layout(200, 4096))?.cast::<u8>();
                    self.stuck
                        .store(block.as_ptr().expose_provenance(), Relaxed);
                }
                let block = std::ptr::with_exposed_provenance_mut(self.stuck.load(Relaxed));
                let block = NonNull::new(block).expect("set above");
                Ok(NonNull::slice_from_raw_parts(block, asked.size()))
            }
            7 => panic!("a panic that the suite must catch"),
            _ => System.allocate(asked),
        }
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let block = System.allocate_zeroed(layout)?;
        if self.promise == 5 && layout.size() > 100 {
            // SAFETY: byte 100 of a block of more.
            let byte = unsafe { block.cast::<u8>().add(100) };
            // SAFETY: as above.
            unsafe { byte.write(1) };
        }
        Ok(block)
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        if self.promise > 4 {
            // SAFETY: these promises are broken by other means than where a block lies.
            unsafe { System.deallocate(ptr, layout) }
        }
    }

    unsafe fn grow(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if self.promise == 6 {
            return System.allocate_zeroed(new); // the contents are left behind
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { System.grow(ptr, old, new) }
    }
}
