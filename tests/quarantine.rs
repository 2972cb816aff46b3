//! What a quarantine holds is never lost, never a reason to refuse, and in the books.

use ndpool::{Checks, Pool};

const MIB: usize = 1 << 20;

fn held(pool: &Pool) -> (u64, usize) {
    let stats = pool.stats();
    (stats.quarantined, stats.quarantined_bytes)
}

#[test]
fn blocks_leave_in_the_order_of_their_release_once_there_are_too_many_bytes() {
    let pool = Pool::builder()
        .checks(Checks::new().quarantine(8192))
        .build();
    let buffers: Vec<_> = (0..12)
        .map(|_| pool.zeroed::<u8>(1000).expect("memory"))
        .collect();
    let addresses: Vec<_> = buffers.iter().map(|buffer| buffer.as_ptr()).collect();
    drop(buffers);
    let (blocks, bytes) = held(&pool);
    let charge = bytes / blocks as usize;
    assert!(bytes <= 8192 && bytes + charge > 8192, "{bytes}");
    let gone = 12 - blocks as usize;
    let mut next: Vec<_> = (0..gone)
        .map(|_| pool.zeroed::<u8>(1000).expect("memory"))
        .collect();
    next.sort_by_key(|buffer| buffer.as_ptr());
    let mut first = addresses[..gone].to_vec();
    first.sort();
    let next: Vec<_> = next.iter().map(|buffer| buffer.as_ptr()).collect();
    assert_eq!(next, first, "the first released are the first reused");
}

#[test]
fn quarantined_blocks_count_as_live_and_the_audit_balances() {
    let pool = Pool::builder()
        .checks(Checks::new().quarantine(64 * MIB).poison())
        .build();
    let kept = pool.zeroed::<u8>(1000).expect("memory");
    for len in [10, 1000, 100_000, 3_000_000] {
        drop(pool.zeroed::<u8>(len));
    }
    let audit = pool.audit().expect("balance");
    assert_eq!((audit.live, audit.cached, audit.depot), (5, 0, 0));
    assert_eq!(held(&pool).0, 4);
    assert_eq!(pool.leaks().buffers, 1, "held back is not leaked");
    pool.trim();
    let audit = pool.audit().expect("balance");
    assert_eq!((audit.live, audit.cached, audit.depot), (1, 0, 0));
    assert_eq!(held(&pool), (0, 0));
    drop(kept);
}

#[test]
fn a_trim_sends_home_what_is_held_and_says_how_much() {
    let pool = Pool::builder()
        .checks(Checks::new().quarantine(64 * MIB))
        .build();
    drop(pool.zeroed::<u8>(MIB));
    assert_eq!(pool.stats().held_bytes, MIB);
    assert_eq!(pool.trim(), MIB);
    assert_eq!(pool.stats().held_bytes, 0);
}

#[test]
fn no_limit_refuses_while_bytes_are_in_quarantine() {
    let pool = Pool::builder()
        .limit(4 * MIB)
        .checks(Checks::new().quarantine(64 * MIB))
        .build();
    for _ in 0..20 {
        let buffer = pool.zeroed::<u8>(MIB).expect("what is held goes first");
        drop(buffer);
        assert!(pool.stats().held_bytes <= 4 * MIB);
    }
    // One that takes all of the limit, and then one too many.
    let all = pool.zeroed::<u8>(4 * MIB).expect("what is held goes first");
    let error = pool.zeroed::<u8>(MIB).expect_err("all is in use");
    assert_eq!((error.in_use, error.limit), (4 * MIB, 4 * MIB));
    drop(all);
}

#[test]
fn closing_and_the_last_handle_let_nothing_stay() {
    let source = || ndpool::source::Heap::new();
    let pool = Pool::builder()
        .source(source())
        .checks(Checks::new().quarantine(64 * MIB))
        .build();
    drop(pool.zeroed::<u8>(1000));
    let late = pool.zeroed::<u8>(1000).expect("memory");
    pool.close();
    assert_eq!(held(&pool), (0, 0));
    drop(late);
    assert_eq!(held(&pool), (0, 0), "a closed pool holds nothing back");
    assert_eq!(pool.stats().held_bytes, 0);
}

#[test]
fn the_last_handle_frees_what_is_held() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts the blocks that are out of it.
    struct Counted(Arc<AtomicUsize>);
    // SAFETY: every promise is the heap's; counting adds nothing.
    #[allow(unsafe_code)]
    unsafe impl ndpool::source::Source for Counted {
        fn name(&self) -> &'static str {
            "counted"
        }
        fn footprint(&self, layout: std::alloc::Layout) -> usize {
            ndpool::source::Heap::new().footprint(layout)
        }
        fn alloc(
            &self,
            layout: std::alloc::Layout,
            zeroed: bool,
        ) -> Result<ndpool::source::Memory, ndpool::AllocError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            ndpool::source::Heap::new().alloc(layout, zeroed)
        }
        unsafe fn dealloc(
            &self,
            base: std::ptr::NonNull<u8>,
            layout: std::alloc::Layout,
            token: usize,
        ) {
            self.0.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: the caller's promise, passed on.
            unsafe { ndpool::source::Heap::new().dealloc(base, layout, token) }
        }
    }

    let out = Arc::new(AtomicUsize::new(0));
    for round in 0..200 {
        let pool = Pool::builder()
            .source(Counted(Arc::clone(&out)))
            .checks(Checks::new().quarantine(MIB).poison())
            .build();
        // Drops race with the last handle: what comes too late is not held.
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let buffers: Vec<_> = (0..20)
                    .map(|n| pool.zeroed::<u8>(100 + n * round).expect("memory"))
                    .collect();
                scope.spawn(move || drop(buffers));
            }
            drop(pool);
        });
        assert_eq!(out.load(Ordering::Relaxed), 0, "round {round}");
    }
}
