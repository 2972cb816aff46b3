//! The lifecycle of counted buffers on pool blocks, through owners, handles and tokens: what the
//! published system tests (by its numbers), and what nobody tests there. `count.rs` has the same on
//! the published count as a type of its own. A count means owners; released reads 0 by a handle,
//! and -1 in the word. (Numbers that speak of shapes, scopes or dtypes belong to the array type.)

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use ndpool::kernel::state::State;
use ndpool::report::{Report, set_hook};
use ndpool::{Buffer, BufferAllocator, Element, Handle, Pool, SharedBuffer, StaleReason, Token};

mod field;
use field::{Watched, at_once, rounds, watched};

/// Asserts that every block of a quiet pool is home.
fn assert_home(pool: &Pool, source: &Watched) {
    assert_eq!(pool.audit().unwrap().live, 0);
    pool.trim();
    assert_eq!((source.live(), source.live_bytes()), (0, 0));
}

fn is_gone(handle: Handle) -> bool {
    handle.is_released()
        && handle.owners() == 0
        && !handle.is_unique()
        && handle
            .upgrade::<f64>()
            .is_err_and(|error| error.reason == StaleReason::Gone)
}

/// 1: one owner; dropped, it is released. In the word, released is exactly -1.
#[test]
fn one_owner_releases() {
    let (pool, source) = watched();
    let shared = pool.filled(20, 1.0f64).unwrap().share();
    let handle = shared.handle();
    assert_eq!(
        (shared.owners(), handle.owners(), handle.is_unique()),
        (1, 1, true)
    );
    drop(shared);
    assert!(is_gone(handle));
    assert_home(&pool, &source);

    let state = State::new();
    assert_eq!((state.load().stored(), state.load().owners()), (-1, 0));
    assert_eq!(state.share(), Ok(1));
    assert_eq!((state.load().stored(), state.load().owners()), (0, 1));
    let _last = state.release();
    assert_eq!(state.load().stored(), -1);
}

/// 2: an owner is given up once. An owner in Rust cannot be a second time (`compile_fail` in the
/// source); a token that tries is told so, and nothing happens.
#[test]
fn an_owner_is_given_up_once() {
    let (pool, source) = watched();
    let token = pool
        .filled(20, 1.0f64)
        .unwrap()
        .share()
        .into_token()
        .unwrap();
    assert!(token.release().is_ok());
    assert!(token.release().is_err() && token.release().is_err());
    assert_home(&pool, &source);
}

/// 3 and 4: a row view survives its parent, and the parent its view.
#[test]
fn parent_and_view_outlive_each_other() {
    let (pool, source) = watched();
    let parent = pool.collect((0..20).map(f64::from)).unwrap().share();
    let row = parent.slice(5..10).unwrap();
    drop(parent);
    assert_eq!(row.iter().sum::<f64>(), 35.0);
    drop(row);
    let parent = pool.collect((0..20).map(f64::from)).unwrap().share();
    drop(parent.slice(5..10).unwrap());
    assert_eq!(parent.iter().sum::<f64>(), 190.0);
    drop(parent);
    assert_home(&pool, &source);
}

/// 5, 33, 34: what nobody disposed of comes home all the same: unique, shared, sliced, uninitialised.
#[test]
fn forgetful_owners_leave_nothing_behind() {
    let (pool, source) = watched();
    for n in 1..100 {
        let _unique = pool.filled(n * 7, 1.0f64).unwrap();
        let _raw = pool.allocate::<f64>(n).unwrap();
        let shared = pool.filled(n, 2u8).unwrap().share();
        let _views = (shared.slice(..n / 2).unwrap(), shared.clone());
        pool.filled(n, 3u8).unwrap().dispose();
    }
    assert_home(&pool, &source);
}

/// 6: 32 threads x 1,000 pairs of add and release on a live buffer, by clone, by handle and by
/// token: no add is refused, and one owner is left.
#[test]
fn many_threads_add_and_release() {
    let (pool, source) = watched();
    let shared = pool.filled(20, 1.0f64).unwrap().share();
    let handle = shared.handle();
    let token = shared.clone().into_token().unwrap();
    at_once(32, |_| {
        for _ in 0..1000 {
            drop(shared.clone());
            drop(
                handle
                    .upgrade::<f64>()
                    .expect("a live buffer refuses no add"),
            );
            let second = token.clone_token().expect("a live buffer refuses no add");
            second.release().expect("its own lease");
        }
    });
    assert_eq!(shared.owners(), 2);
    token.release().unwrap();
    assert!(handle.is_unique());
    drop(shared);
    assert!(is_gone(handle));
    assert_home(&pool, &source);
}

/// 7: 50 threads release one token at once: one does, the others are told that they are strays.
#[test]
fn many_threads_release_one_token() {
    let (pool, source) = watched();
    for _ in 0..20 {
        let shared = pool.filled(20, 1.0f64).unwrap().share();
        let handle = shared.handle();
        let token = shared.into_token().unwrap();
        let released = at_once(50, |_| token.release().is_ok());
        assert_eq!(released.iter().filter(|&&ok| ok).count(), 1);
        assert!(is_gone(handle));
    }
    assert_home(&pool, &source);
}

/// 8: one thread drops the last owner while another tries to add: "added" and "released" exclude
/// each other, 10,000 times.
#[test]
fn an_add_races_the_last_release() {
    let (pool, source) = watched();
    let name = AtomicU64::new(0);
    let meet = Barrier::new(2);
    let added = at_once(2, |id| {
        let mut added = 0;
        for round in 0..rounds(10_000, 1_000_000) {
            let mut own = None;
            if id == 0 {
                let shared = pool.filled(20, round as f64).unwrap().share();
                name.store(shared.handle().to_bits(), Ordering::Relaxed);
                own = Some(shared);
            }
            meet.wait();
            let handle = Handle::from_bits(name.load(Ordering::Relaxed));
            let upgraded = if id == 0 {
                drop(own);
                None
            } else {
                handle.upgrade::<f64>().ok()
            };
            meet.wait();
            if id == 1 {
                assert_eq!(upgraded.is_some(), !handle.is_released(), "round {round}");
                if let Some(shared) = upgraded {
                    assert_eq!(shared.owners(), 1);
                    assert!(shared.iter().all(|&x| x == round as f64));
                    added += 1;
                }
                assert!(handle.is_released());
            }
            meet.wait();
        }
        added
    });
    assert!(added[1] > 0, "the add never won: no race");
    assert_home(&pool, &source);
}

/// 9 and 10: a released buffer, 100 strays and 100 adds: refused, each of them, without a write.
#[test]
fn strays_and_adds_on_a_released_buffer() {
    let (pool, source) = watched();
    let shared = pool.filled(20, 1.0f64).unwrap().share();
    let (handle, token) = (shared.handle(), shared.into_token().unwrap());
    token.release().unwrap();
    let (stale, strays) = (ndpool::stale_upgrades(), ndpool::stray_releases());
    for _ in 0..100 {
        assert!(token.release().is_err());
        assert!(token.clone_token().is_err());
        assert!(is_gone(handle));
    }
    assert!(ndpool::stale_upgrades() - stale >= 100);
    assert!(ndpool::stray_releases() - strays >= 200);
    assert_home(&pool, &source);
}

static BORROWED: [f64; 4] = [1.0, 2.0, 3.0, 4.0];

/// 11: borrowed memory: an add is granted, and 101 releases do not release it.
#[test]
fn a_borrowed_buffer_is_never_released() {
    let borrowed = SharedBuffer::from_static(&BORROWED).unwrap();
    let handle = borrowed.handle();
    assert_eq!(borrowed.as_ptr(), BORROWED.as_ptr());
    drop(borrowed.clone());
    for _ in 0..101 {
        let token = handle.upgrade::<f64>().unwrap().into_token().unwrap();
        token.release().unwrap();
        assert!(token.release().is_err());
    }
    // SAFETY: refused, as it must be.
    let borrowed = unsafe { borrowed.force_release() }.unwrap_err();
    let borrowed = borrowed.try_unique().unwrap_err();
    drop(borrowed);
    assert!(!handle.is_released(), "immortal");
    assert_eq!(&handle.upgrade::<f64>().unwrap()[..], BORROWED);
}

/// 12: borrowed memory under 20 threads x 1,000; and each borrow is its own.
#[test]
fn a_borrowed_buffer_under_many_threads() {
    let borrowed = SharedBuffer::from_static(&BORROWED).unwrap();
    let other = SharedBuffer::from_static(&BORROWED).unwrap();
    assert_ne!(borrowed.handle(), other.handle());
    at_once(20, |id| {
        for _ in 0..1000 {
            let clone = borrowed.clone();
            if id % 2 == 0 {
                clone.into_token().unwrap().release().unwrap();
            }
        }
    });
    assert_eq!((borrowed[3], other[0]), (4.0, 1.0));
}

/// 13: a pinned foreign vector: the last drop drops the pin, and the vector is alive and writable.
#[test]
fn a_pinned_vector_outlives_its_pin() {
    struct Pin(Arc<Vec<f64>>);
    impl AsRef<[f64]> for Pin {
        fn as_ref(&self) -> &[f64] {
            &self.0
        }
    }
    let mut vector = Arc::new(vec![1.0, 2.0, 3.0]);
    let shared = SharedBuffer::from_owner(Pin(vector.clone())).unwrap();
    let view = shared.slice(1..).unwrap();
    assert_eq!(view.as_ptr(), vector[1..].as_ptr());
    drop(shared);
    assert!(Arc::get_mut(&mut vector).is_none());
    thread::spawn(move || drop(view)).join().unwrap();
    Arc::get_mut(&mut vector)
        .expect("the pin is gone")
        .push(4.0);
    assert_eq!(vector.len(), 4);
}

/// 14: a buffer of no elements has a life like any other.
#[test]
fn a_buffer_of_nothing_lives_and_dies() {
    let (pool, source) = watched();
    let shared = pool.zeroed::<f64>(0).unwrap().share();
    let handle = shared.handle();
    let view = shared.slice(..).unwrap();
    drop(shared);
    assert_eq!(handle.owners(), 1);
    drop(view);
    assert!(is_gone(handle));
    pool.filled(0, 1u8).unwrap().dispose();
    assert_eq!(source.births(), 0);
    assert_home(&pool, &source);
}

/// 15: 10,000 cycles of 10,000 doubles: each is released at its drop, and all are the same memory.
#[test]
fn ten_thousand_cycles_use_one_block() {
    let (pool, source) = watched();
    for round in 0..10_000 {
        let mut buffer = pool.allocate::<f64>(10_000).unwrap();
        buffer[9_999].write(f64::from(round));
        // SAFETY: born zero, written with plain numbers since.
        let shared = unsafe { buffer.assume_init() }.share();
        let handle = shared.handle();
        drop(shared);
        assert!(handle.is_released());
    }
    assert_eq!(source.births(), 1);
    assert_eq!(pool.stats().hits, 9_999);
    assert_home(&pool, &source);
}

/// 16 and 17: a chain of three views: four owners. The views dropped: one. The owner first, then
/// the second, third and first view: released only at the last.
#[test]
fn a_chain_of_views_counts_each() {
    let (pool, source) = watched();
    let chain = || {
        let owner = pool.collect((0..100).map(f64::from)).unwrap().share();
        let first = owner.slice(10..90).unwrap();
        let second = first.slice(10..70).unwrap();
        let third = second.slice(10..50).unwrap();
        assert_eq!((owner.owners(), third[0], third.len()), (4, 30.0, 40));
        (owner, first, second, third)
    };
    let (owner, first, second, third) = chain();
    drop((third, second, first));
    assert_eq!(owner.owners(), 1);
    drop(owner);

    let (owner, first, second, third) = chain();
    let handle = owner.handle();
    drop(owner);
    assert_eq!((handle.owners(), second[0]), (3, 20.0));
    drop(second);
    assert_eq!((handle.owners(), third[39]), (2, 69.0));
    drop(third);
    assert_eq!((handle.owners(), first[0]), (1, 10.0));
    drop(first);
    assert!(is_gone(handle));
    assert_home(&pool, &source);
}

/// 22: a copy is a buffer of its own: each dies alone.
#[test]
fn a_copy_dies_alone() {
    let (pool, source) = watched();
    let original = pool.filled(20, 1.0f64).unwrap().share();
    let copy = original.copied().unwrap().share();
    assert_ne!(original.handle(), copy.handle());
    assert_eq!((original.owners(), copy.owners()), (1, 1));
    let gone = original.handle();
    drop(original);
    assert!(is_gone(gone));
    assert_eq!((copy.owners(), copy[19]), (1, 1.0));
    drop(copy);
    assert_home(&pool, &source);
}

fn one_life<T: Element + PartialEq + Debug>(pool: &Pool, value: T) {
    let shared = pool.filled(33, value).unwrap().share();
    let handle = shared.handle();
    assert_eq!(shared.owners(), 1);
    assert!(handle.upgrade::<T>().unwrap().iter().all(|&x| x == value));
    drop(shared);
    assert!(handle.is_released());
    assert!(handle.upgrade::<T>().is_err());
}

/// 23: every element type: one owner, released at the drop.
#[test]
fn every_element_type_lives_once() {
    let (pool, source) = watched();
    one_life(&pool, true);
    one_life(&pool, -1i8);
    one_life(&pool, 2u8);
    one_life(&pool, -3i16);
    one_life(&pool, 4u16);
    one_life(&pool, -5i32);
    one_life(&pool, 6u32);
    one_life(&pool, -7i64);
    one_life(&pool, 8u64);
    one_life(&pool, -9i128);
    one_life(&pool, 10u128);
    one_life(&pool, 11isize);
    one_life(&pool, 12.5f32);
    one_life(&pool, 13.5f64);
    one_life(&pool, 'x');
    one_life(&pool, [1.0f64, -1.0]);
    one_life(&pool, ());
    assert_home(&pool, &source);
}

/// 24 to 27: zeroed, filled, uninitialised, from a range: one owner each.
#[test]
fn every_way_to_make_a_buffer_makes_one_owner() {
    let (pool, source) = watched();
    let made = [
        pool.zeroed::<f64>(10).unwrap(),
        pool.filled(10, 0.0).unwrap(),
        pool.allocate::<f64>(10).unwrap().fill_with(|_| 0.0),
        pool.allocate::<f64>(10).unwrap().write_copy_of(&[0.0; 10]),
        pool.copied(&[0.0; 10]).unwrap(),
        pool.collect((0..10).map(|_| 0.0)).unwrap(),
    ];
    for buffer in made {
        let shared = buffer.share();
        assert_eq!(shared.owners(), 1);
        assert_eq!(&shared[..], [0.0; 10]);
    }
    assert_home(&pool, &source);
}

/// 30 and 31: made on one thread, dropped on another; a view read and dropped on another.
#[test]
fn owners_cross_threads() {
    let (pool, source) = watched();
    let shared = pool.collect((0..100).map(f64::from)).unwrap().share();
    let (handle, view) = (shared.handle(), shared.slice(50..).unwrap());
    let sum = thread::spawn(move || view.iter().sum::<f64>())
        .join()
        .unwrap();
    assert_eq!((sum, shared.owners()), (3725.0, 1));
    thread::spawn(move || drop(shared)).join().unwrap();
    assert!(is_gone(handle));
    let made = thread::scope(|scope| scope.spawn(|| pool.filled(9, 1u8).unwrap()).join().unwrap());
    drop(made);
    assert_home(&pool, &source);
}

/// 32: 1,000 adds make 1,001 owners, 1,000 releases make 1; by clones, and by tokens.
#[test]
fn a_thousand_adds_and_releases() {
    let (pool, source) = watched();
    let shared = pool.filled(20, 1.0f64).unwrap().share();
    let clones: Vec<_> = (0..1000).map(|_| shared.clone()).collect();
    assert_eq!(shared.owners(), 1001);
    drop(clones);
    assert_eq!(shared.owners(), 1);
    let first = shared.clone().into_token().unwrap();
    let tokens: Vec<Token> = (0..999).map(|_| first.clone_token().unwrap()).collect();
    assert_eq!(shared.owners(), 1001);
    for (n, token) in tokens.into_iter().chain([first]).enumerate() {
        token.release().unwrap();
        assert_eq!(shared.owners(), 1000 - n as u32);
    }
    drop(shared);
    assert_home(&pool, &source);
}

/// 35: two owners of one buffer: the first disposed of, the second valid.
#[test]
fn the_second_of_two_owners_stays_valid() {
    let (pool, source) = watched();
    let first = pool.filled(20, 1.0f64).unwrap().share();
    let second = first.clone();
    assert_eq!(first.owners(), 2);
    drop(first);
    assert_eq!((second.owners(), second.iter().sum::<f64>()), (1, 20.0));
    drop(second);
    assert_home(&pool, &source);
}

/// Nobody tests: a stray racing the last release. There it leaked; here it is refused, and the
/// memory is home after each round.
#[test]
fn a_stray_races_the_last_release() {
    let (pool, source) = watched();
    let stray = {
        let token = pool
            .filled(20, 0.0f64)
            .unwrap()
            .share()
            .into_token()
            .unwrap();
        token.release().unwrap();
        token
    };
    let bits = AtomicU64::new(0);
    let meet = Barrier::new(3);
    at_once(3, |id| {
        for _ in 0..rounds(5_000, 500_000) {
            if id == 0 {
                let token = pool
                    .filled(20, 1.0f64)
                    .unwrap()
                    .share()
                    .into_token()
                    .unwrap();
                bits.store(token.to_bits(), Ordering::Relaxed);
            }
            meet.wait();
            let token = Token::from_bits(bits.load(Ordering::Relaxed));
            match id {
                0 => assert!(token.release().is_ok()),
                1 => assert!(stray.release().is_err()),
                _ => assert!(stray.clone_token().is_err()),
            }
            meet.wait();
            assert!(token.release().is_err());
        }
    });
    assert!(source.births() <= 2, "a leak makes a birth");
    assert_home(&pool, &source);
}

/// Nobody tests: an add after a forced release, and an add at 0.
#[test]
fn adds_after_a_forced_release_are_refused() {
    let (pool, source) = watched();
    let shared = pool.filled(20, 1.0f64).unwrap().share();
    let handle = shared.handle();
    let fellow = shared.clone();
    assert_eq!(handle.owners(), 2);
    std::mem::forget(fellow);
    // SAFETY: the other owner is forgotten: none acts any more.
    unsafe { shared.force_release() }.unwrap();
    for _ in 0..10 {
        assert!(is_gone(handle));
    }
    let next = pool.filled(20, 2.0f64).unwrap().share();
    assert!(is_gone(handle) && handle.upgrade::<f64>().is_err());
    assert_eq!((next.owners(), next[0]), (1, 2.0));
    drop(next);
    assert_home(&pool, &source);
}

/// Nobody tests: a stray after the buffer was recycled; there it hit the new owner.
#[test]
fn strays_after_recycling_never_hit_the_new_owner() {
    let (pool, source) = watched();
    let mut strays = Vec::new();
    let mut stale = Vec::new();
    for round in 0..200 {
        let shared = pool.filled(20, f64::from(round)).unwrap().share();
        for token in &strays {
            assert!(Token::release(*token).is_err());
        }
        for handle in &stale {
            assert!(Handle::upgrade::<f64>(*handle).is_err());
        }
        assert_eq!((shared.owners(), shared[19]), (1, f64::from(round)));
        stale.push(shared.handle());
        let token = shared.into_token().unwrap();
        token.release().unwrap();
        strays.push(token);
    }
    assert_eq!(source.births(), 1, "one block, 200 lives");
    let names: std::collections::HashSet<_> = stale.into_iter().collect();
    assert_eq!(names.len(), 200);
    assert_home(&pool, &source);
}

static REPORTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());

/// Nobody tests: double, wrong-size and foreign return. By address, each is reported; a double or
/// foreign one is ignored, a wrong size does not matter, since blocks know their own.
#[test]
fn double_wrong_size_and_foreign_returns_are_reported() {
    let (pool, source) = watched();
    let former = set_hook(|report| REPORTS.lock().unwrap().push(report.clone()));
    let allocator: &dyn BufferAllocator = &pool;
    let layout = Layout::from_size_align(1000, 8).unwrap();
    let block = allocator.allocate(layout).unwrap().cast::<u8>();
    let address = block.addr().get();
    // SAFETY: from this allocator, with this layout.
    unsafe { allocator.deallocate(block, layout) };
    // SAFETY: none: the misuse is the test. The block rests, and its label says so.
    unsafe { allocator.deallocate(block, layout) };
    let foreign = Box::new([0u8; 1024]);
    let outside = NonNull::from(&*foreign).cast::<u8>();
    // SAFETY: none: the misuse is the test. No block is found at the address.
    unsafe { allocator.deallocate(outside, layout) };
    let second = allocator.allocate(layout).unwrap().cast::<u8>();
    let third = allocator.allocate(layout).unwrap().cast::<u8>();
    assert_ne!(second, third, "a double return has one owner still");
    let wrong = Layout::from_size_align(100_000, 8).unwrap();
    // SAFETY: from this allocator; the size is wrong, and not what the pool goes by.
    unsafe { allocator.deallocate(second, wrong) };
    // SAFETY: from this allocator, with this layout.
    unsafe { allocator.deallocate(third, layout) };
    set_hook(former);
    let reports = REPORTS.lock().unwrap();
    let of = |wanted: usize| {
        let mut count = [0; 3];
        for report in reports.iter() {
            match *report {
                Report::DoubleDeallocation { address, .. } if address == wanted => count[0] += 1,
                Report::ForeignPointer { address } if address == wanted => count[1] += 1,
                Report::WrongLayout {
                    address,
                    size: 100_000,
                    ..
                } if address == wanted => {
                    count[2] += 1;
                }
                _ => {}
            }
        }
        count
    };
    assert_eq!(of(address)[0], 1);
    assert_eq!(of(outside.addr().get()), [0, 1, 0]);
    assert_eq!(of(second.addr().get())[2], 1);
    drop(reports);
    assert_eq!(pool.stats().live_bytes, 0);
    assert_home(&pool, &source);
}

/// Nobody tests: the cap under concurrent take and return, with exact totals.
#[test]
fn totals_are_exact_at_the_cap_under_threads() {
    const CAP: usize = 4 << 10;
    let source = Watched::new();
    let pool = Pool::builder()
        .source(Arc::clone(&source))
        .cap(CAP)
        .cache_budget(16 << 10)
        .build();
    let taken = AtomicUsize::new(0);
    at_once(8, |id| {
        for round in 0..rounds(2_000, 100_000) as usize {
            let held: Vec<_> = (0..1 + (round + id) % 6)
                .map(|n| pool.filled(64 << ((round + n) % 7), 1u8).unwrap())
                .collect();
            taken.fetch_add(held.len(), Ordering::Relaxed);
        }
    });
    let (stats, audit) = (pool.stats(), pool.audit().unwrap());
    assert_eq!(stats.hits + stats.misses, taken.into_inner() as u64);
    assert_eq!(
        (stats.births, stats.deaths),
        (source.births(), source.deaths())
    );
    assert_eq!(stats.births - stats.deaths, audit.cached + audit.depot);
    assert_eq!(stats.held_bytes, source.live_bytes() as usize);
    assert_eq!(
        stats.resting_cached_bytes + stats.resting_depot_bytes,
        stats.held_bytes
    );
    assert!(stats.resting_depot_bytes <= CAP);
    assert!(stats.deaths > 0, "the cap was never met");
    assert_home(&pool, &source);
}

/// Nobody tests: a view with another element type outlives its parent; there it held no count.
#[test]
fn a_reinterpreted_view_outlives_its_parent() {
    let (pool, source) = watched();
    let parent = pool.filled(16, 1.0f32).unwrap().share();
    let bits = parent.slice(4..).unwrap().reinterpret::<u32>().unwrap();
    let bytes = bits.reinterpret::<u8>().unwrap();
    let handle = parent.handle();
    assert_eq!(parent.owners(), 3);
    drop(parent);
    assert_eq!(bits[0], 1.0f32.to_bits());
    drop(bits);
    // Whatever is taken meanwhile is other memory.
    let other = pool.filled(16, 2.0f32).unwrap();
    assert_eq!(bytes[..4], 1.0f32.to_ne_bytes());
    assert_eq!(
        handle.upgrade::<u8>().unwrap_err().reason,
        StaleReason::OtherElement
    );
    assert_eq!(handle.upgrade::<f32>().unwrap().len(), 16);
    drop((bytes, other));
    assert!(handle.is_released());
    assert_home(&pool, &source);
}

/// Nobody tests: buffers swapped in place under living views; there no reference moved along.
#[test]
fn swapped_owners_keep_their_own_references() {
    let (pool, source) = watched();
    let mut a = pool.filled(10, 1u32).unwrap().share();
    let mut b = pool.filled(10, 2u32).unwrap().share();
    let (view_a, view_b) = (a.slice(5..).unwrap(), b.slice(5..).unwrap());
    std::mem::swap(&mut a, &mut b);
    a.make_mut().unwrap()[9] = 20;
    drop(b);
    assert_eq!((view_a[4], view_b[4], a[9]), (1, 2, 20));
    assert_eq!((view_a.owners(), view_b.owners(), a.owners()), (1, 1, 1));
    b = a.clone();
    a = view_a;
    drop(view_b);
    assert_eq!((a[0], b[9], b.owners()), (1, 20, 1));
    drop((a, b));
    assert_home(&pool, &source);
}

/// Nobody tests: resizing while another owner is given up. A unique buffer has no other owner; what
/// was shared resizes in its own memory once it is alone, and copies until then.
#[test]
fn resizing_races_the_drop_of_another_owner() {
    let (pool, source) = watched();
    let meet = Barrier::new(2);
    let slot: Mutex<Option<SharedBuffer<u64>>> = Mutex::new(None);
    let grown = at_once(2, |id| {
        let (mut in_place, mut copied) = (0, 0);
        for round in 0..rounds(3_000, 300_000) {
            let mut own = None;
            if id == 0 {
                let shared = pool.filled(100, round).unwrap().share();
                *slot.lock().unwrap() = Some(shared.clone());
                own = Some(shared);
            }
            meet.wait();
            if id == 1 {
                let other = slot.lock().unwrap().take().unwrap();
                meet.wait();
                drop(other);
            } else if let Some(shared) = own {
                meet.wait();
                let mut unique: Buffer<u64> = match shared.try_unique() {
                    Ok(unique) => {
                        in_place += 1;
                        unique
                    }
                    Err(shared) => {
                        copied += 1;
                        shared.copied().unwrap()
                    }
                };
                unique.resize(1000, round + 1).unwrap();
                assert!(unique[..100].iter().all(|&x| x == round));
                assert!(unique[100..].iter().all(|&x| x == round + 1));
            }
        }
        (in_place, copied)
    });
    assert!(grown[0].0 + grown[0].1 > 0);
    assert_home(&pool, &source);
}

/// Nobody tests: a thread exits with full magazines of many classes; all of it is reused.
#[test]
fn a_thread_that_exits_with_full_magazines_leaves_them_to_others() {
    let (pool, source) = watched();
    let take = || -> Vec<Buffer<u8>> {
        (0..600)
            .map(|n| pool.filled(64 << (n % 6), 1u8).unwrap())
            .collect()
    };
    thread::scope(|scope| scope.spawn(|| drop(take())).join().unwrap());
    let births = source.births();
    assert_eq!(births, 600);
    assert_eq!(pool.audit().unwrap().depot, 600);
    drop(take());
    assert_eq!(source.births(), births, "every one of them was found again");
    assert_home(&pool, &source);
}
