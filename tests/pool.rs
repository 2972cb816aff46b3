//! The pool from a request to memory and back, through its public API.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use ndpool::{Buffer, Handle, Pool, SharedBuffer, StaleReason, Token};

#[test]
fn a_dropped_buffer_serves_the_next_request_of_its_class() {
    let pool = Pool::new();
    let first = pool.filled(1000, 1.0f64).unwrap();
    let address = first.as_ptr();
    drop(first);
    let second = pool.allocate::<f64>(990).unwrap();
    assert_eq!(second.as_ptr().cast(), address);
}

#[test]
fn buffers_are_aligned_and_hold_what_was_written() {
    let pool = Pool::new();
    for len in [1usize, 3, 64, 1000, 5000, 100_000, 1 << 20] {
        let buffer = pool.collect((0..len as u32).rev()).unwrap();
        assert!(buffer.as_ptr().addr().is_multiple_of(ndpool::MIN_ALIGN));
        if len * 4 >= 4096 {
            assert!(buffer.as_ptr().addr().is_multiple_of(4096));
        }
        if len * 4 >= 2 << 20 {
            assert!(buffer.as_ptr().addr().is_multiple_of(2 << 20));
        }
        assert!(buffer.iter().rev().copied().eq(0..len as u32));
        assert!(buffer.capacity() >= len && buffer.capacity() <= (len + len / 4).max(16));
    }
}

#[test]
fn a_shared_buffer_counts_its_owners_and_stale_handles_stay_stale() {
    let pool = Pool::new();
    let shared = pool.copied(&[1u32, 2, 3, 4]).unwrap().share();
    let handle = shared.handle();
    assert_eq!(shared.owners(), 1);
    let part = shared.slice(1..3).unwrap();
    assert_eq!(&part[..], [2, 3]);
    assert_eq!(handle.owners(), 2);
    drop(shared);
    assert_eq!(&part[..], [2, 3], "parents can go first");
    let back = handle.upgrade::<u32>().unwrap();
    assert_eq!(&back[..], [1, 2, 3, 4]);
    assert_eq!(
        handle.upgrade::<f32>().unwrap_err().reason,
        StaleReason::OtherElement
    );
    let back = back.try_unique().unwrap_err();
    drop(part);
    let unique = back.try_unique().unwrap();
    assert!(handle.is_released());
    assert_eq!(
        handle.upgrade::<u32>().unwrap_err().reason,
        StaleReason::Gone
    );
    let again = unique.share();
    assert_ne!(again.handle(), handle);
    assert!(handle.upgrade::<u32>().is_err());
    assert!(Handle::from_bits(u64::MAX).upgrade::<u8>().is_err());
    assert!(Handle::from_bits(u64::MAX).is_released());
}

#[test]
fn a_unique_slice_shares_from_its_base_again() {
    let pool = Pool::new();
    let shared = pool.collect(0u64..100).unwrap().share();
    let part = shared.slice(90..).unwrap();
    drop(shared);
    let mut part = part.try_unique().unwrap();
    part[0] = 7;
    let part = part.share();
    let whole = part.handle().upgrade::<u64>().unwrap();
    assert_eq!(&whole[..], [7, 91, 92, 93, 94, 95, 96, 97, 98, 99]);
}

#[test]
fn make_mut_copies_only_when_shared() {
    let pool = Pool::new();
    let mut shared = pool.filled(10, 1u8).unwrap().share();
    let address = shared.as_ptr();
    shared.make_mut().unwrap()[0] = 2;
    assert_eq!(shared.as_ptr(), address);
    let other = shared.clone();
    shared.make_mut().unwrap()[0] = 3;
    assert_ne!(shared.as_ptr(), address);
    assert_eq!((shared[0], other[0]), (3, 2));
    let mut borrowed = SharedBuffer::from_static(&[5u8, 6]).unwrap();
    borrowed.make_mut().unwrap()[1] = 7;
    assert_eq!(&borrowed[..], [5, 7]);
}

#[test]
fn a_token_is_released_exactly_once() {
    let pool = Pool::new();
    let shared = pool.filled(10, 1i32).unwrap().share();
    let token = shared.clone().into_token().unwrap();
    let second = token.clone_token().unwrap();
    assert_eq!(shared.owners(), 3);
    token.release().unwrap();
    assert!(token.release().is_err());
    assert!(token.clone_token().is_err());
    assert_eq!(shared.owners(), 2);
    assert_eq!(
        second.redeem::<u8>().unwrap_err().reason,
        StaleReason::OtherElement
    );
    let redeemed = Token::from_bits(second.to_bits()).redeem::<i32>().unwrap();
    assert!(second.release().is_err());
    assert_eq!(redeemed.owners(), 2);
}

#[test]
fn zeroed_memory_is_zero_after_dirty_reuse() {
    let pool = Pool::new();
    for len in [1usize, 64, 257, 50_000, 2_000_000] {
        for _ in 0..8 {
            let mut buffer: Buffer<u32> = pool.zeroed(len).unwrap();
            assert!(buffer.iter().all(|&x| x == 0), "{len}");
            buffer.fill(0xA5A5_A5A5);
        }
    }
}

#[test]
fn an_exiting_threads_blocks_are_reused_by_others() {
    let pool = Pool::new();
    let worker = pool.clone();
    let address = thread::spawn(move || {
        let buffer = worker.filled(100, 1u8).unwrap();
        buffer.as_ptr().addr()
    })
    .join()
    .unwrap();
    let buffer = pool.allocate::<u8>(100).unwrap();
    assert_eq!(buffer.as_ptr().addr(), address);
}

#[test]
fn trim_reaches_idle_threads_and_a_closed_pool_keeps_nothing() {
    let pool = Pool::new();
    let ready = Arc::new(Barrier::new(2));
    let done = Arc::new(Barrier::new(2));
    let worker = thread::spawn({
        let (pool, ready, done) = (pool.clone(), ready.clone(), done.clone());
        move || {
            drop(pool.filled(1 << 16, 1u8).unwrap());
            ready.wait();
            done.wait();
            // The cache was emptied behind this thread's back.
            drop(pool.filled(1 << 16, 1u8).unwrap());
        }
    });
    ready.wait();
    assert!(pool.trim() >= 1 << 16);
    done.wait();
    worker.join().unwrap();
    assert_eq!(pool.trim(), (1 << 16) + 4096 - 4096 + extra(&pool));
    let survivor = pool.filled(100, 3u8).unwrap();
    drop(pool);
    assert_eq!(survivor[99], 3);
}

/// What the worker's second buffer occupies beyond its size.
fn extra(_pool: &Pool) -> usize {
    let source = ndpool::source::Os::new();
    let layout = std::alloc::Layout::from_size_align(1 << 16, 4096).unwrap();
    ndpool::source::Source::footprint(&source, layout) - (1 << 16)
}

#[test]
fn four_threads_never_share_a_block_f1() {
    let pool = Pool::new();
    let taken = AtomicU64::new(0);
    thread::scope(|scope| {
        for id in 1..=4u64 {
            let (pool, taken) = (&pool, &taken);
            scope.spawn(move || {
                for round in 0..40_000u64 {
                    let stamp = id << 32 | round;
                    let buffer = pool.filled(8, stamp).unwrap();
                    if round % 64 == 0 {
                        thread::yield_now();
                    }
                    assert!(buffer.iter().all(|&s| s == stamp));
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(taken.load(Ordering::Relaxed), 160_000);
}

#[test]
fn a_pool_may_die_before_its_buffers_on_any_thread_f58() {
    let drops = Arc::new(AtomicUsize::new(0));
    struct Owner(Arc<AtomicUsize>, Vec<u8>);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.1
        }
    }
    let shared = SharedBuffer::from_owner(Owner(drops.clone(), vec![1, 2, 3])).unwrap();
    let pools: Vec<Pool> = (0..200).map(|_| Pool::new()).collect();
    let buffers: Vec<_> = pools
        .iter()
        .map(|pool| pool.filled(5000, 1u16).unwrap())
        .collect();
    drop(pools);
    thread::spawn(move || {
        assert_eq!(buffers[7][4999], 1);
        drop(buffers);
        drop(shared);
    })
    .join()
    .unwrap();
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    // Indices of dead pools are reused, with nothing left of them.
    let pools: Vec<Pool> = (0..200).map(|_| Pool::new()).collect();
    for pool in &pools {
        drop(pool.filled(5000, 2u16).unwrap());
        assert!(pool.trim() > 0);
    }
}

#[test]
fn stats_and_audit_balance_over_threads_exits_and_trims() {
    let pool = Pool::new();
    let kept: Vec<_> = (1..50)
        .map(|n| pool.filled(n * 100, 1u8).unwrap())
        .collect();
    for _ in 0..3 {
        thread::scope(|scope| {
            // Joined by hand: a scope alone does not wait for thread-local destructors.
            let workers = [0, 1, 2, 3].map(|seed| {
                let pool = &pool;
                scope.spawn(move || {
                    let mut held = Vec::new();
                    for n in 0..2000usize {
                        held.push(pool.filled((n * 7 + seed) % 3000 + 1, 2u8).unwrap());
                        if n % 5 != 0 {
                            held.swap_remove(n % held.len());
                        }
                    }
                })
            });
            for worker in workers {
                worker.join().unwrap();
            }
        });
        let audit = pool.audit().unwrap();
        assert_eq!(audit.live, 49);
        let stats = pool.stats();
        assert_eq!(stats.classes.iter().map(|c| c.live).sum::<u64>(), 49);
        assert_eq!(
            stats.classes.iter().map(|c| c.depot).sum::<u64>(),
            audit.depot
        );
        assert_eq!(
            stats.classes.iter().map(|c| c.cached).sum::<u64>(),
            audit.cached
        );
        assert_eq!(
            stats.held_bytes,
            stats.live_bytes + stats.resting_cached_bytes + stats.resting_depot_bytes
        );
        // Each thread ends with some 400 buffers in its hands; whatever it gives goes to its cache.
        // Where all four run at once, each block that they hold together is born once.
        assert!(stats.hit_rate() > 0.7, "{stats}");
        assert!(stats.exchanges < 2000, "{stats}");
    }
    let resting = pool.stats().held_bytes - pool.stats().live_bytes;
    assert_eq!(pool.trim(), resting);
    drop(kept);
    assert_eq!(pool.audit().unwrap().live, 0);
    println!("{}", pool.stats());
}

#[test]
fn closing_settles_what_live_caches_counted() {
    let pool = Pool::new();
    let kept = pool.filled(10, 1u8).unwrap();
    drop(pool.filled(10, 1u8).unwrap());
    let closer = pool.clone();
    thread::spawn(move || closer.close()).join().unwrap();
    assert_eq!(pool.audit().unwrap().live, 1);
    drop(kept);
    assert_eq!(pool.audit().unwrap(), ndpool::Audit::default());
    assert_eq!(pool.stats().held_bytes, 0);
}

#[test]
fn a_hundred_pools_in_turn_all_keep_their_hit_rate() {
    let pools: Vec<Pool> = (0..100).map(|_| Pool::new()).collect();
    for _ in 0..200 {
        for pool in &pools {
            drop(pool.filled(100, 1u8).unwrap());
        }
    }
    for pool in &pools {
        let stats = pool.stats();
        assert_eq!((stats.births, stats.exchanges), (1, 0), "{stats}");
        assert!(stats.hit_rate() >= 0.99);
    }
}

#[test]
fn a_handle_of_elements_without_a_size_keeps_their_number() {
    let pool = Pool::new();
    let shared = pool.filled(5, ()).unwrap().share();
    assert_eq!(shared.handle().upgrade::<()>().unwrap().len(), 5);
}
