//! Field cases F: sizes at the edges, alignment through every adaptor, and zeroes that are not. Each
//! test is named for the behaviour, with the number of the report. (The class table's own
//! properties, F83, are tested beside it; sources and huge pages, F88 to F90, in `sources.rs`.)

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use ndpool::allocator::{BufferAllocator, Limited, System, Tracked};
use ndpool::source::{Faulty, Memory, Os, Source};
use ndpool::{AllocError, AllocErrorKind, Pool, class};

mod field;
use field::{Watched, at_once, watched};

const MOST: usize = isize::MAX as usize;

/// F77: eight threads allocate and free nothing at once, tracked: each block is its own or
/// nobody's, nothing is misuse, and the source is never asked.
#[test]
fn nothing_can_be_allocated_by_many_at_once_f77() {
    let (pool, source) = watched();
    let tracked = Tracked::new(Limited::new("node", 1 << 20, pool.clone()));
    at_once(8, |_| {
        for round in 0..5_000usize {
            let layout = Layout::from_size_align(0, 1 << (round % 13)).unwrap();
            let block = tracked.allocate(layout).unwrap();
            assert!(
                block
                    .cast::<u8>()
                    .addr()
                    .get()
                    .is_multiple_of(layout.align())
            );
            assert_eq!(block.len(), 0);
            // SAFETY: from this allocator, with this layout, and back once.
            unsafe { tracked.deallocate(block.cast(), layout) };
            drop(pool.allocate::<u64>(0).unwrap());
        }
    });
    assert_eq!(tracked.report().live_bytes, 0);
    assert!(
        tracked.report().misuses.is_empty(),
        "{:?}",
        tracked.report().misuses
    );
    assert_eq!(source.births(), 0);
    assert_eq!(pool.stats().live_bytes, 0);
}

/// F78, F79: sizes that round up beyond what can be addressed, with every alignment up to 1 GiB, by
/// layout: an error, no charge, no source call. The largest layouts there are round to nothing.
#[test]
fn layouts_at_the_edge_are_refused_whole_f78_f79() {
    let (pool, source) = watched();
    let allocator: &dyn BufferAllocator = &pool;
    for shift in 0..=30 {
        let align = 1usize << shift;
        let edge = MOST - (align - 1);
        assert!(Layout::from_size_align(edge + 1, align).is_err());
        for size in [edge, edge - 1, edge - 100] {
            let layout = Layout::from_size_align(size, align).unwrap();
            for outcome in [
                allocator.allocate(layout),
                allocator.allocate_zeroed(layout),
            ] {
                let error = outcome.expect_err("cannot exist");
                assert_eq!(error.kind, AllocErrorKind::TooLarge, "{size:#x} {align}");
                assert!(error.requested >= size && error.align >= align, "{error:?}");
            }
            assert!(pool.capacity(layout) >= size);
        }
        // These can be said, and are refused by the system: not charged either.
        let layout = Layout::from_size_align(MOST / 2, align).unwrap();
        let error = allocator
            .allocate(layout)
            .expect_err("half of the addresses");
        assert_eq!(error.kind, AllocErrorKind::SourceFailed);
    }
    assert_eq!((source.births(), pool.stats().held_bytes), (0, 0));
    assert_eq!(
        (pool.stats().peak_held_bytes, pool.stats().peak_used_bytes),
        (0, 0)
    );
    pool.audit().unwrap();
}

/// Bad input by layout: sizes around a page and alignments from 1 to 2 GiB are served aligned, all
/// of them writable and at home afterwards.
#[test]
fn alignments_up_to_two_gibibytes_are_served_by_layout() {
    let (pool, source) = watched();
    for shift in 0..=31 {
        let align = 1usize << shift;
        for size in [1, 63, 4096, 5000] {
            let layout = Layout::from_size_align(size, align).unwrap();
            let block = match pool.allocate_zeroed(layout) {
                Ok(block) => block,
                // A machine may refuse that much address space.
                Err(error) => {
                    assert!(align >= 1 << 30 && error.kind == AllocErrorKind::SourceFailed);
                    continue;
                }
            };
            assert!(
                block.cast::<u8>().addr().get().is_multiple_of(align),
                "{layout:?}"
            );
            assert!(block.len() >= size && block.len() == pool.capacity(layout));
            // SAFETY: the block is ours, and zero over the size asked for.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(block.cast::<u8>().as_ptr(), size) };
            assert!(bytes.iter().all(|&byte| byte == 0), "{layout:?}");
            bytes.fill(0xA5);
            // Any size between the one asked for and the one returned may come back.
            let back = Layout::from_size_align(block.len(), align).unwrap();
            // SAFETY: from this allocator, the layout fits, and it goes back once.
            unsafe { pool.deallocate(block.cast(), back) };
        }
    }
    assert_eq!(pool.stats().live_bytes, 0);
    pool.audit().unwrap();
    pool.trim();
    assert_eq!((source.live(), pool.stats().held_bytes), (0, 0));
}

/// A source that writes down what it was asked for.
#[derive(Default)]
struct Witness {
    inner: Os,
    asked: Mutex<Vec<Layout>>,
}

// SAFETY: every block is the inner source's.
unsafe impl Source for Witness {
    fn name(&self) -> &'static str {
        "witness"
    }

    fn footprint(&self, layout: Layout) -> usize {
        self.inner.footprint(layout)
    }

    fn alloc(&self, layout: Layout, zeroed: bool) -> Result<Memory, AllocError> {
        self.asked.lock().unwrap().push(layout);
        self.inner.alloc(layout, zeroed)
    }

    unsafe fn dealloc(&self, base: NonNull<u8>, layout: Layout, token: usize) {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.inner.dealloc(base, layout, token) }
    }
}

/// F81: every adaptor hands the caller's alignment on, down to the source.
#[test]
fn every_adaptor_hands_the_alignment_on_f81() {
    let source = Arc::new(Faulty::never(Witness::default()));
    let pool = Pool::builder().source(Arc::clone(&source)).build();
    let stacks: [(&str, Box<dyn BufferAllocator>); 6] = [
        ("pool", Box::new(pool.clone())),
        ("tracked", Box::new(Tracked::new(pool.clone()))),
        (
            "limited",
            Box::new(Limited::new("node", 1 << 30, pool.clone())),
        ),
        (
            "both",
            Box::new(Tracked::new(Limited::new(
                "a",
                1 << 30,
                Arc::new(pool.clone()),
            ))),
        ),
        (
            "twice",
            Box::new(Limited::new(
                "b",
                1 << 30,
                Tracked::new(Box::new(pool.clone())),
            )),
        ),
        ("system", Box::new(Limited::new("c", 1 << 30, System))),
    ];
    for (name, allocator) in &stacks {
        for align in [1, 8, 64, 256, 4096, 2 << 20] {
            for size in [1, 100, 3000, 1 << 20] {
                let layout = Layout::from_size_align(size, align).unwrap();
                pool.trim();
                source.inner().asked.lock().unwrap().clear();
                let block = allocator.allocate(layout).unwrap();
                let address = block.cast::<u8>().addr().get();
                assert!(address.is_multiple_of(align), "{name} {layout:?}");
                if *name != "system" {
                    let asked = source.inner().asked.lock().unwrap();
                    assert_eq!(asked.len(), 1);
                    assert!(asked[0].align() >= align, "{name} {layout:?}: {asked:?}");
                    assert!(asked[0].size() >= size);
                }
                // SAFETY: from this allocator, with this layout, and back once.
                unsafe { allocator.deallocate(block.cast(), layout) };
            }
        }
    }
    assert_eq!(pool.stats().live_bytes, 0);
}

/// F84: `zeroed` is zero after dirty reuse over all that was asked for, by every way in; what
/// `allocate` gives is documented as unspecified, and may be the dirt of the last owner.
#[test]
fn zeroed_is_zero_after_dirty_reuse_of_every_class_f84() {
    let (pool, source) = watched();
    let classes = (0..)
        .map(class::capacity)
        .take_while(|&bytes| bytes <= 6 << 20);
    for capacity in classes {
        for len in [capacity, capacity - 1, capacity / 2 + capacity / 3] {
            for _ in 0..2 {
                let mut buffer = pool.zeroed::<u8>(len).unwrap();
                assert!(buffer.iter().all(|&byte| byte == 0), "{len}");
                buffer.fill(0xA5);
                buffer.resize(buffer.capacity(), 0xA5).unwrap();
            }
            let layout = Layout::from_size_align(len, 1).unwrap();
            let block = pool.allocate_zeroed(layout).unwrap();
            // SAFETY: the block is ours, `len` bytes long at least.
            let bytes = unsafe { std::slice::from_raw_parts_mut(block.cast::<u8>().as_ptr(), len) };
            assert!(bytes.iter().all(|&byte| byte == 0), "{len}");
            bytes.fill(0x5A);
            // SAFETY: from this allocator, with this layout, and back once.
            unsafe { pool.deallocate(block.cast(), layout) };
        }
    }
    assert!(pool.stats().hit_rate() > 0.8, "{}", pool.stats());
    pool.trim();
    assert_eq!(source.live(), 0);
}

/// F84 under threads: dirt of one thread never shows in another's zeroes.
#[test]
fn zeroes_stay_zero_between_threads_f84() {
    let pool = Pool::new();
    at_once(4, |id| {
        for round in 0..400usize {
            let len = [64, 257, 5000, 50_000, 300_000][round % 5];
            let mut buffer = pool.zeroed::<u32>(len).unwrap();
            assert!(buffer.iter().all(|&word| word == 0));
            buffer.fill(0xDEAD_0000 | id as u32);
        }
    });
}

/// F85, as far as views go: what a view shows ends with its length, whatever the memory holds
/// beyond it. (A mode that wipes on return is not built: open.)
#[test]
fn a_view_shows_no_byte_beyond_its_length_f85() {
    let pool = Pool::new();
    drop(
        pool.copied(b"Authorization: Bearer 0123456789abcdef")
            .unwrap(),
    );
    let reused = pool.copied(b"hi").unwrap();
    assert_eq!(&reused[..], b"hi");
    let shared = reused.share();
    assert_eq!(shared.handle().upgrade::<u8>().unwrap().len(), 2);
    assert!(shared.slice(0..3).is_err());
    let token = shared.into_token().unwrap();
    assert_eq!(&token.redeem::<u8>().unwrap()[..], b"hi");
    // Growing in place initialises what comes into view.
    let mut reused = pool.copied(b"hi").unwrap();
    reused.resize(38, b'.').unwrap();
    assert!(reused[2..].iter().all(|&byte| byte == b'.'));
}

/// F68 for the pool: what a request is charged is what its death discharges, for random sizes; the
/// sum in between is that of the classes, not of the sizes asked for.
#[test]
fn charge_and_discharge_are_the_classes_for_random_sizes_f68() {
    let source = Watched::new();
    let pool = Pool::builder().source(Arc::clone(&source)).build();
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    let mut held = Vec::new();
    for _ in 0..3_000 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let bytes = (seed >> 40) as usize >> (seed % 16);
        if seed.is_multiple_of(3) && !held.is_empty() {
            held.swap_remove(seed as usize % held.len());
        } else {
            held.push(pool.allocate::<u8>(bytes).unwrap());
        }
        assert_eq!(source.live_bytes() as usize, pool.stats().held_bytes);
    }
    let stats = pool.stats();
    let live: usize = held.iter().filter(|buffer| !buffer.is_empty()).count();
    let counted: u64 = stats.classes.iter().map(|row| row.live).sum();
    assert!(counted as usize >= live);
    drop(held);
    pool.trim();
    assert_eq!(pool.stats().held_bytes, 0);
    assert_eq!(source.live_bytes(), 0);
    pool.audit().unwrap();
}

/// F43: what is above the largest class goes straight to the source and back.
#[test]
fn what_is_above_the_largest_class_goes_straight_home_f43() {
    let source = Watched::new();
    let pool = Pool::builder()
        .source(Arc::clone(&source))
        .max_class(1 << 20)
        .build();
    for n in 1..=5 {
        let oversized = pool.filled((1 << 20) + 1, 1u8).unwrap();
        assert_eq!((source.births(), source.live()), (n, 1));
        drop(oversized);
        assert_eq!(source.live(), 0);
    }
    assert_eq!(pool.stats().hits, 0);
    drop(pool.filled(1 << 20, 1u8).unwrap());
    assert_eq!(source.live(), 1, "the largest class itself rests");
}

/// F40: a block goes home to the class of its capacity, whatever length the buffer had last.
#[test]
fn blocks_go_home_by_capacity_not_by_length_f40() {
    let (pool, source) = watched();
    let mut buffer = pool.filled(1000, 1u8).unwrap();
    let place = buffer.as_ptr();
    buffer.truncate(3);
    drop(buffer);
    let small = pool.filled(3, 1u8).unwrap();
    assert_ne!(small.as_ptr(), place);
    let again = pool.filled(1000, 1u8).unwrap();
    assert_eq!(again.as_ptr(), place);
    let shared = again.share().slice(0..5).unwrap();
    let part = shared.try_unique().unwrap();
    drop(part);
    assert_eq!(pool.filled(1000, 1u8).unwrap().as_ptr(), place);
    assert_eq!(source.births(), 2);
}
