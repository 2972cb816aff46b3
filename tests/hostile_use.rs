//! Safe code at its worst: forged names, odd alignments, impossible requests, user code that
//! panics. Found by a review; each test failed before its fix.

use std::alloc::Layout;
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ndpool::allocator::{BufferAllocator, System};
use ndpool::source::{Memory, Os, Source};
use ndpool::{AllocError, Buffer, Handle, Pool};

#[test]
fn a_forged_handle_of_the_next_life_does_not_alias_a_writer_f11() {
    let pool = Pool::new();
    let mut shared = pool.copied(&[1u32, 2, 3]).unwrap().share();
    let next = Handle::from_bits(shared.handle().to_bits() + (1 << 32));
    let mut writable = shared.make_mut().unwrap();
    assert!(next.upgrade::<u32>().is_err());
    writable[0] = 9;
    drop(writable);
    assert_eq!(&next.upgrade::<u32>().unwrap()[..], [9, 2, 3]);
    // The same where the writer got a copy: whatever its block is, its next life has not begun.
    let other = shared.clone();
    let mut writable = shared.make_mut().unwrap();
    writable[0] = 7;
    drop(writable);
    assert_eq!((shared[0], other[0]), (7, 9));
}

#[test]
fn a_forgotten_writer_takes_its_buffer_with_it() {
    let pool = Pool::new();
    let mut shared = pool.copied(&[1u32, 2, 3]).unwrap().share();
    let handle = shared.handle();
    forget(shared.make_mut().unwrap());
    assert!(shared.is_empty());
    assert!(handle.is_released());
    assert!(shared.handle().upgrade::<u32>().is_err());
    drop(shared.clone());
    drop(shared);
    assert_eq!(pool.audit().unwrap().live, 1, "leaked, not lost");
}

#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C, align(64))]
struct Wide([u8; 64]);

#[test]
fn a_reinterpreted_part_of_a_narrow_block_is_not_moved_to_a_misaligned_base() {
    let mut moved = 0;
    for _ in 0..64 {
        let layout = Layout::from_size_align(400, 1).unwrap();
        let buffer = Buffer::<u8>::new_in(layout, Arc::new(System)).unwrap();
        let base = buffer.as_ptr().addr();
        let skip = (64 - base % 64) % 64 + 64;
        let part = buffer.share().slice(skip..skip + 128).unwrap();
        let wide = part.reinterpret::<Wide>().unwrap();
        drop(part);
        match wide.try_unique() {
            Ok(unique) => {
                assert_eq!(base % 64, 0);
                let again = unique.share();
                assert_eq!(again.as_ptr().addr() % 64, 0);
            }
            Err(wide) => {
                assert_ne!(base % 64, 0);
                assert_eq!(wide.owners(), 1);
                moved += 1;
            }
        }
        // Held, so that the next block is elsewhere.
        let layout = Layout::from_size_align(48, 1).unwrap();
        System.allocate(layout).unwrap();
    }
    assert!(
        moved > 0,
        "the system allocator aligned every block to 64 bytes"
    );
}

#[test]
fn a_request_above_the_limit_flushes_nothing_and_asks_nobody() {
    let asked = Arc::new(AtomicUsize::new(0));
    let asks = Arc::clone(&asked);
    let pool = Pool::builder()
        .limit(1 << 20)
        .on_reclaim(move |_| asks.fetch_add(1, Ordering::Relaxed) < 5)
        .build();
    let many: Vec<_> = (0..50)
        .map(|_| pool.allocate::<u8>(1000).unwrap())
        .collect();
    drop(many);
    let (_, _, held) = pool.ledger();
    assert!(pool.allocate::<u8>(2 << 20).is_err());
    assert_eq!((held, 0), (pool.ledger().2, asked.load(Ordering::Relaxed)));
}

#[test]
fn a_panicking_reclaim_callback_frees_nothing_and_ends_at_the_pool() {
    let pool = Pool::builder()
        .limit(1 << 20)
        .on_reclaim(|_| panic!("from the user"))
        .build();
    let layout = Layout::from_size_align(400_000, 64).unwrap();
    let first = BufferAllocator::allocate(&pool, layout).unwrap();
    let second = BufferAllocator::allocate(&pool, layout).unwrap();
    let third = catch_unwind(AssertUnwindSafe(|| {
        BufferAllocator::allocate(&pool, layout)
    }));
    assert!(third.expect("no unwinding").is_err());
    for block in [first, second] {
        // SAFETY: allocated above, given back once.
        #[allow(unsafe_code)]
        unsafe {
            BufferAllocator::deallocate(&pool, block.cast(), layout);
        }
    }
    assert_eq!(pool.audit().unwrap().live, 0);
}

struct Bomb(Os);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a source that does not want to go");
    }
}

// SAFETY: every promise is the inner source's.
#[allow(unsafe_code)]
unsafe impl Source for Bomb {
    fn name(&self) -> &'static str {
        "bomb"
    }

    fn footprint(&self, layout: Layout) -> usize {
        self.0.footprint(layout)
    }

    fn alloc(&self, layout: Layout, zeroed: bool) -> Result<Memory, AllocError> {
        self.0.alloc(layout, zeroed)
    }

    unsafe fn dealloc(&self, base: NonNull<u8>, layout: Layout, token: usize) {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.0.dealloc(base, layout, token) }
    }
}

#[test]
fn a_source_that_panics_when_dropped_does_not_unwind_out_of_the_last_buffer() {
    let before = ndpool::report::emitted();
    let pool = Pool::builder().source(Bomb(Os::new())).build();
    let buffer = pool.filled(100, 1u8).unwrap();
    drop(pool);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(buffer))).is_ok());
    assert!(ndpool::report::emitted() > before);
}

#[test]
fn elements_without_a_size_are_collected_without_growing() {
    let pool = Pool::new();
    let units = pool
        .collect(std::iter::repeat_n((), 1000).filter(|()| true))
        .unwrap();
    assert_eq!(units.len(), 1000);
}
