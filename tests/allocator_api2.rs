//! Collections of other crates on our allocators, through `allocator-api2`.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::collections::HashMap as Oracle;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use hashbrown::{DefaultHashBuilder, HashMap};
use ndpool::AllocError;
use ndpool::allocator::{BufferAllocator, Limited, System, Tracked};
use ndpool::integrate::AllocatorApi;

mod hostile;
use hostile::Rounding;

/// Counts the blocks that are out, those of no bytes too.
struct Counting(AtomicI64);

// SAFETY: every block is `Rounding`'s.
unsafe impl BufferAllocator for Counting {
    fn capacity(&self, layout: Layout) -> usize {
        Rounding.capacity(layout)
    }

    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.0.fetch_add(1, Relaxed);
        Rounding.allocate(layout)
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        self.0.fetch_sub(1, Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { Rounding.deallocate(ptr, layout) }
    }
}

/// Every collection, on `allocator`.
fn collections(allocator: impl BufferAllocator + Clone) {
    let api = AllocatorApi(allocator);

    let mut numbers = Vec::new_in(api.clone());
    for i in 0..10_000u32 {
        numbers.push(i);
    }
    numbers.truncate(1000);
    numbers.shrink_to_fit();
    assert!(numbers.iter().copied().eq(0..1000));
    numbers.extend(1000..5000);
    assert!(numbers.iter().copied().eq(0..5000));
    numbers.clear();
    numbers.shrink_to_fit();

    let mut nothing = Vec::new_in(api.clone());
    for _ in 0..10 {
        nothing.push([0u64; 0]);
    }
    assert_eq!(nothing.len(), 10);

    #[repr(align(4096))]
    struct Page([u8; 4096]);
    let page = Box::new_in(Page([7; 4096]), api.clone());
    assert_eq!((&raw const *page).addr() % 4096, 0);
    assert!(page.0.iter().all(|&byte| byte == 7));

    let mut map = HashMap::with_hasher_in(DefaultHashBuilder::default(), api);
    let mut oracle = Oracle::new();
    for i in 0..20_000u64 {
        let key = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50;
        match i % 3 {
            0 => assert_eq!(map.remove(&key), oracle.remove(&key)),
            _ => assert_eq!(map.insert(key, i), oracle.insert(key, i)),
        }
    }
    map.shrink_to_fit();
    assert_eq!(map.len(), oracle.len());
    assert!(
        oracle
            .iter()
            .all(|(key, value)| map.get(key) == Some(value))
    );
}

#[test]
fn vec_box_and_map_live_on_our_allocators_and_leave_nothing_behind() {
    collections(System);
    let counting = Arc::new(Counting(AtomicI64::new(0)));
    collections(Arc::clone(&counting) as Arc<dyn BufferAllocator>);
    assert_eq!(counting.0.load(Relaxed), 0, "blocks are out");
    let node = Tracked::checked(Limited::new("node", 1 << 24, Rounding));
    collections(&node);
    let report = node.report();
    assert_eq!(
        (report.live_blocks, report.live_bytes, report.misuse_count),
        (0, 0, 0),
        "{report}"
    );
    assert!(
        report.total_blocks > 4 && node.inner().used() == 0,
        "{report}"
    );
}

#[test]
fn a_full_node_is_an_error_of_the_collection_not_a_panic() {
    let node = Limited::new("node", 1 << 16, System);
    let mut numbers: Vec<u64, _> = Vec::new_in(AllocatorApi(&node));
    while numbers.try_reserve(1).is_ok() {
        numbers.push(numbers.len() as u64);
    }
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64) && numbers.len() > 1000);
    drop(numbers);
    assert_eq!(node.used(), 0);
}

#[test]
fn everything_returned_as_zeroed_is_zero_and_growing_keeps_the_rest_f84() {
    let api = AllocatorApi(Rounding);
    let layout = |size| Layout::from_size_align(size, 16).expect("valid in this test");
    let bytes = |block: NonNull<[u8]>| {
        // SAFETY: every caller passes a block of its own, initialised to its whole length.
        unsafe { block.as_ref() }.to_vec()
    };
    for _ in 0..50 {
        let dirty = api.allocate(layout(100)).expect("memory");
        // SAFETY: the block is ours, and that is its length.
        unsafe { dirty.cast::<u8>().write_bytes(0xA5, dirty.len()) };
        // SAFETY: the block is ours, goes back once, and the layout fits it.
        unsafe { api.deallocate(dirty.cast(), layout(100)) };

        let block = api.allocate_zeroed(layout(100)).expect("memory");
        assert!(block.len() >= 100 && bytes(block).iter().all(|&byte| byte == 0));
        // SAFETY: the block is ours and 100 bytes long.
        unsafe { block.cast::<u8>().write_bytes(1, 100) };
        // SAFETY: the block is ours, the layout fits it, and the new one is longer.
        let block = unsafe { api.grow_zeroed(block.cast(), layout(100), layout(300)) };
        let block = block.expect("memory");
        let now = bytes(block);
        assert!(now.len() >= 300 && now[..100].iter().all(|&byte| byte == 1));
        assert!(now[100..].iter().all(|&byte| byte == 0));
        // SAFETY: the block is ours, the layout fits it, and the new one is shorter.
        let block = unsafe { api.shrink(block.cast(), layout(300), layout(10)) }.expect("memory");
        // SAFETY: the block is ours and 10 bytes long, which were kept.
        let kept = unsafe { core::slice::from_raw_parts(block.cast::<u8>().as_ptr(), 10) };
        assert_eq!(kept, [1; 10]);
        // SAFETY: the block is ours, goes back once, and the layout fits it.
        unsafe { api.deallocate(block.cast(), layout(10)) };
    }
}
