//! Known defects of the system that this one carries over, resizing, and the holes that only show at
//! run time.
#![cfg(feature = "ndarray")]
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use ndarray::{Axis, Ix1, Ix2, array, s};
use ndpool::{
    AllocErrorKind, ArrayError, Buffer, Disposable, Pool, PoolArray, SharedArray, SharedBuffer,
    ViewError,
};

mod arrays;
use arrays::{grid, live, name};

mod field;

// Known defects of the system that this one carries over.

#[test]
fn a_stray_racing_the_last_release_never_leaks_nor_frees_twice() {
    let pool = Pool::new();
    let (start, rounds) = (Barrier::new(3), 2000);
    let slot: Mutex<Option<ndpool::Token>> = Mutex::new(None);
    thread::scope(|scope| {
        let (start, slot, pool) = (&start, &slot, &pool);
        for _ in 0..2 {
            scope.spawn(move || {
                for _ in 0..rounds {
                    start.wait();
                    let token = slot.lock().unwrap().unwrap();
                    let _ = token.release();
                    start.wait();
                }
            });
        }
        for _ in 0..rounds {
            let buffer = pool.filled(10, 1u8).unwrap().share();
            let handle = buffer.handle();
            *slot.lock().unwrap() = Some(buffer.into_token().unwrap());
            start.wait();
            start.wait();
            assert!(handle.is_released());
        }
    });
    assert_eq!(live(&pool), 0);
    pool.audit().unwrap();
}

#[test]
fn a_stray_on_a_live_or_recycled_buffer_touches_no_owner() {
    let pool = Pool::new();
    let first = Disposable::new(pool.full(10, 1u8)).unwrap();
    let second = first.share().unwrap();
    first.dispose();
    first.dispose();
    assert_eq!(
        second.get().unwrap().owners(),
        2,
        "one owner, and the reader"
    );
    second.dispose();
    // The same memory and the same control block, in their next life.
    let next = Disposable::new(pool.full(10, 2u8)).unwrap();
    for stale in [&first, &second] {
        assert!(!stale.dispose() && stale.get().is_err());
    }
    assert_eq!(next.get().unwrap().sum(), 20);
    let reader = next.get().unwrap();
    assert_eq!(reader.owners(), 2);
}

#[test]
fn nobody_is_added_to_a_force_released_buffer() {
    let pool = Pool::new();
    let buffer = pool.filled(10, 1u8).unwrap().share();
    let handle = buffer.handle();
    let token = buffer.clone().into_token().unwrap();
    // SAFETY: the only other owner is the token, which is not released below, only asked.
    unsafe { buffer.force_release() }.unwrap();
    assert!(handle.upgrade::<u8>().is_err());
    assert!(token.clone_token().is_err());
    assert_eq!(live(&pool), 0);
}

#[test]
fn a_double_return_never_makes_two_owners() {
    let pool = Pool::new();
    let buffer = pool.filled(10, 1u8).unwrap().share();
    let token = buffer.into_token().unwrap();
    token.release().unwrap();
    token.release().unwrap_err();
    let (a, b) = (pool.full(10, 1u8), pool.full(10, 2u8));
    assert_ne!(a.as_ptr(), b.as_ptr());
    assert_eq!((a.sum(), b.sum()), (10, 20));
}

#[test]
fn an_element_type_view_outlives_its_parent() {
    let pool = Pool::new();
    let parent = pool
        .from_shape_fn((3, 4), |(i, j)| f32::from_bits((i * 4 + j) as u32))
        .share();
    let same = parent.t().reinterpret::<u32>().unwrap();
    let bytes = parent.reinterpret::<u8>().unwrap();
    let wide = parent.slice(s![1.., 2..]).reinterpret::<u64>().unwrap();
    assert_eq!(parent.owners(), 4);
    drop(parent);
    assert_eq!((same.shape(), same[(3, 2)]), (&[4, 3][..], 11));
    assert_eq!((bytes.shape(), bytes[(2, 12)]), (&[3, 16][..], 11));
    assert_eq!((wide.shape(), wide[(1, 0)]), (&[2, 1][..], 10 | 11 << 32));
}

#[test]
fn element_types_that_do_not_fit_are_refused() {
    let pool = Pool::new();
    let bytes = pool.arange(0u8, 30, 1).share();
    assert!(bytes.reinterpret::<u32>().is_err(), "30 bytes");
    let odd = bytes.slice(s![1..9]).reinterpret::<u32>();
    assert!(matches!(odd, Err(ArrayError::View(ViewError::Size { .. }))));
    let strided = bytes.slice(s![..;2]).reinterpret::<u16>();
    assert!(strided.is_err());
    assert_eq!(
        bytes.slice(s![4..8]).reinterpret::<u32>().unwrap()[0],
        0x0706_0504
    );
    static RAW: [u8; 16] = [7; 16];
    let unaligned = SharedBuffer::from_static(&RAW[1..9]).unwrap();
    let borrowed = SharedArray::from_buffer(8, unaligned).unwrap();
    let aligned = (RAW[1..].as_ptr().addr()).is_multiple_of(2);
    assert_eq!(borrowed.reinterpret::<u16>().is_ok(), aligned);
    assert_eq!(bytes.owners(), 1);
}

#[test]
fn a_constructor_that_fails_half_way_releases_nothing_and_charges_nothing() {
    let pool = Pool::builder().limit(1 << 20).build();
    let keep = pool.ones::<f64, _>(1000).share();
    let before = pool.stats();
    for _ in 0..10 {
        assert!(pool.try_zeros::<f64, _>(1 << 20).is_err());
        assert!(
            keep.broadcast(((1 << 20), 1000))
                .unwrap()
                .try_copy()
                .is_err()
        );
        assert!(keep.t().reshape((999, 1)).is_err());
        let panicked = std::panic::catch_unwind(|| {
            pool.from_shape_fn(100, |i| if i == 50 { panic!("half-way") } else { i })
        });
        assert!(panicked.is_err());
    }
    let after = pool.stats();
    assert_eq!(keep.owners(), 1);
    assert_eq!(live(&pool), 1);
    assert!(after.held_bytes <= before.held_bytes + 2048);
    pool.audit().unwrap();
}

#[test]
fn a_panicking_release_callback_runs_once_and_stops_nothing() {
    struct Owner(Arc<AtomicUsize>, [u8; 4]);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("release callback");
        }
    }
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.1
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let foreign = |drops: &Arc<AtomicUsize>| {
        let buffer = SharedBuffer::from_owner(Owner(drops.clone(), [1, 2, 3, 4])).unwrap();
        SharedArray::from_buffer(4, buffer).unwrap()
    };
    let array = Disposable::new(foreign(&drops)).unwrap();
    assert!(array.dispose() && !array.dispose());
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    // In a scope's sweep the rest still goes back.
    let pool = Pool::new();
    let s = pool.open();
    let first = s.ones::<f64, _>(10);
    s.add_shared(foreign(&drops));
    let last = first + 1.0;
    assert_eq!(last[9], 2.0);
    s.finish();
    assert_eq!(drops.load(Ordering::Relaxed), 2);
    assert_eq!(live(&pool), 0);
}

#[test]
fn swapped_arrays_keep_their_own_buffers() {
    let pool = Pool::new();
    let (mut a, mut b) = (pool.full(10, 1u8).share(), pool.full(20, 2u8).share());
    let (view_a, view_b) = (a.slice(s![..5]), b.slice(s![..5]));
    std::mem::swap(&mut a, &mut b);
    drop(view_a);
    drop(b);
    assert_eq!((a.sum(), view_b.sum()), (40, 10));
    drop((a, view_b));
    assert_eq!(live(&pool), 0);
    let (mut x, mut y) = (pool.full(3, 1u8), pool.full(4, 2u8));
    std::mem::swap(&mut x, &mut y);
    x += 1;
    y += 2;
    assert_eq!((x.len(), x.sum(), y.len(), y.sum()), (4, 12, 3, 9));
}

#[test]
fn wrong_size_and_foreign_buffers_are_not_believed() {
    let pool = Pool::new();
    let short: Buffer<f64> = pool.zeroed(9).unwrap();
    assert!(matches!(
        PoolArray::from_buffer((2, 5), short),
        Err(ArrayError::Shape { elements: 9, .. })
    ));
    let shared = pool.zeroed::<f64>(9).unwrap().share();
    assert!(SharedArray::from_buffer((2, 5), shared).is_err());
    assert_eq!(live(&pool), 0);
}

// Resizing.

#[test]
fn resize_is_refused_while_views_live_and_zeroes_what_grows() {
    let pool = Pool::new();
    drop(pool.full(100, u32::MAX));
    let mut array = pool.arange(1u32, 7, 1).into_shape((2, 3)).unwrap().share();
    let view = array.slice(s![1, ..]);
    assert_eq!(
        array.resize((4, 5)).unwrap_err(),
        ArrayError::Shared { owners: 2 }
    );
    let address = array.as_ptr();
    array.resize((3, 2)).unwrap();
    assert_eq!(array.as_ptr(), address, "the same size is relabelled");
    assert_eq!(array, array![[1, 2], [3, 4], [5, 6]]);
    let mut told = array.clone();
    told.resize_detached((2, 2)).unwrap();
    assert_eq!(
        (told, view.sum()),
        (pool.from_view(&array![[1, 2], [3, 4]]).share(), 15)
    );
    drop(view);
    array.resize((2, 5)).unwrap();
    assert_eq!(array, array![[1, 2, 3, 4, 5], [6, 0, 0, 0, 0]]);
    array.resize((1, 3)).unwrap();
    array.resize((3, 3)).unwrap();
    assert_eq!(array, array![[1, 2, 3], [0, 0, 0], [0, 0, 0]]);
    array.resize((100, 100)).unwrap();
    assert_eq!(array.sum(), 6);
}

#[test]
fn a_refused_resize_changes_nothing() {
    let pool = Pool::builder().limit(1 << 16).build();
    let mut array = pool.arange(0u32, 100, 1).share();
    let error = array.resize(1 << 20).unwrap_err();
    assert!(matches!(error, ArrayError::Alloc(e) if e.kind == AllocErrorKind::LimitExceeded));
    assert_eq!((array.len(), array.sum(), array.owners()), (100, 4950, 1));
}

#[test]
fn a_resize_racing_a_disposal_is_refused_or_whole() {
    let pool = Pool::new();
    let (start, done) = (Barrier::new(2), Barrier::new(2));
    let slot: Mutex<Option<Arc<Disposable<u32, Ix1>>>> = Mutex::new(None);
    let (mut refused, mut resized) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5000 {
                start.wait();
                let array = slot.lock().unwrap().clone().unwrap();
                array.dispose();
                done.wait();
            }
        });
        for round in 0..5000u32 {
            let array = Arc::new(Disposable::new(pool.full(10, round)).unwrap());
            let mut mine = array.get().unwrap();
            *slot.lock().unwrap() = Some(array.clone());
            start.wait();
            match mine.resize(20) {
                Ok(()) => {
                    resized += 1;
                    assert_eq!((mine.len(), mine[9], mine[10]), (20, round, 0));
                }
                Err(error) => {
                    refused += 1;
                    assert_eq!(error, ArrayError::Shared { owners: 2 });
                    assert_eq!((mine.len(), mine[9]), (10, round));
                }
            }
            done.wait();
        }
    });
    *slot.lock().unwrap() = None;
    assert_eq!(refused + resized, 5000);
    assert_eq!(live(&pool), 0);
}

// Holes that only show at run time.

#[test]
fn map_view_refuses_what_lies_elsewhere() {
    static OTHER: [i32; 3] = [1, 2, 3];
    let pool = Pool::new();
    let array = grid(&pool);
    let refused = array.map_view(|_| ndarray::aview1(&OTHER));
    assert_eq!(refused.unwrap_err(), ArrayError::Outside { elements: 20 });
    let empty = array.map_view(|_| ndarray::aview1(&OTHER).split_at(Axis(0), 0).0);
    assert_eq!(empty.unwrap().len(), 0);
    assert_eq!(array.owners(), 1);
    let panicked =
        std::panic::catch_unwind(|| array.map_view::<Ix2, _>(|_| panic!("in the view")).is_ok());
    assert!(panicked.is_err());
    assert_eq!(array.owners(), 1);
}

#[test]
fn a_broadcast_is_copied_before_it_is_written_even_at_one_owner() {
    let pool = Pool::new();
    let row = pool.arange(0, 3, 1).share();
    let mut wide = row.broadcast((2, 3)).unwrap();
    drop(row);
    assert_eq!(wide.owners(), 1);
    let address = wide.as_ptr();
    wide.make_mut().unwrap()[(1, 2)] = 9;
    assert_ne!(wide.as_ptr(), address);
    assert_eq!(wide, array![[0, 1, 2], [0, 1, 9]]);
    let row = pool.arange(0, 3, 1).share();
    let wide = row.broadcast((2, 3)).unwrap();
    drop(row);
    let mut unique = wide.try_unique().unwrap_err().into_unique().unwrap();
    unique += 1;
    assert_eq!(unique, array![[1, 2, 3], [1, 2, 3]]);
}

#[test]
fn negative_strides_survive_sharing_and_taking_back() {
    let pool = Pool::new();
    let array = grid(&pool);
    let view = array.reversed(Axis(0)).unwrap().slice(s![1.., ..;-2]).t();
    drop(array);
    let expected = array![[14, 9, 4], [12, 7, 2], [10, 5, 0]];
    assert_eq!(view, expected);
    let address = view.as_ptr();
    let mut unique = view.try_unique().unwrap();
    assert_eq!(unique.as_ptr(), address);
    unique += 100;
    let mut again = unique.share();
    again.make_mut().unwrap()[(2, 2)] = -1;
    let mut expected = expected + 100;
    expected[(2, 2)] = -1;
    assert_eq!(again, expected);
    assert_eq!(again.try_unique().unwrap().try_clone().unwrap(), expected);
}

#[test]
fn make_mut_writes_in_place_alone_and_copies_in_company() {
    let pool = Pool::new();
    let mut array = grid(&pool);
    let address = array.as_ptr();
    array.make_mut().unwrap()[(0, 0)] = 5;
    assert_eq!(array.as_ptr(), address);
    let reader = array.clone();
    array.make_mut().unwrap()[(0, 0)] = 6;
    assert_eq!((reader[(0, 0)], array[(0, 0)]), (5, 6));
    assert_eq!((reader.owners(), array.owners()), (1, 1));
    let part = array.slice(s![1..3, 1..]);
    let mut part = {
        drop(array);
        part
    };
    part.make_mut().unwrap().fill(0);
    assert_eq!(part.sum(), 0);
}

#[test]
fn make_mut_on_a_part_of_a_block_keeps_its_elements() {
    let pool = Pool::new();
    let whole = pool.collect(0u32..100).unwrap().share();
    let part = whole.slice(90..).unwrap();
    drop(whole);
    let mut array = SharedArray::from_buffer((2, 5), part).unwrap();
    array.make_mut().unwrap()[(1, 4)] = 7;
    assert_eq!(array, array![[90, 91, 92, 93, 94], [95, 96, 97, 98, 7]]);
    assert_eq!(array.owners(), 1);
    let mut unique = array.try_unique().unwrap();
    unique += 1;
    assert_eq!(unique.share().row(0), array![91, 92, 93, 94, 95]);
    assert_eq!(live(&pool), 0);
}

#[test]
fn nothing_names_a_buffer_while_it_is_written() {
    let pool = Pool::new();
    let mut array = pool.full(10, 1u8).share();
    let stale = name(&array);
    let mut writable = array.make_mut().unwrap();
    writable.fill(2);
    assert!(stale.upgrade::<u8>().is_err());
    drop(writable);
    assert!(stale.is_released());
    assert_eq!(name(&array).upgrade::<u8>().unwrap()[9], 2);
    assert_eq!((array.sum(), array.owners()), (20, 1));
}

#[test]
fn a_reader_races_the_pools_last_handle() {
    for _ in 0..500 {
        let pool = Pool::new();
        let array = Arc::new(Disposable::new(pool.full(1000, 3u16)).unwrap());
        let start = Barrier::new(3);
        thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                if let Ok(reader) = array.get() {
                    assert_eq!(reader.sum(), 3000);
                    let doubled = &reader * 2;
                    assert_eq!(doubled[999], 6);
                }
            });
            scope.spawn(|| {
                start.wait();
                array.dispose();
            });
            let (start, pool) = (&start, pool);
            scope.spawn(move || {
                start.wait();
                drop(pool);
            });
        });
        assert!(array.get().is_err());
    }
}

#[test]
fn a_disposable_outlives_the_pools_last_handle() {
    let (pool, source) = field::watched();
    let array = Disposable::new(pool.full(1000, 3u16)).unwrap();
    let reader = array.get().unwrap();
    drop(pool);
    // Its block keeps the pool's core: the lease, new shares and results of operators all work.
    let second = array.share().unwrap();
    let late = array.get().unwrap();
    let doubled = &late * 2;
    assert_eq!((reader.sum(), late.owners(), doubled[999]), (3000, 4, 6));
    assert!(source.live() >= 2);
    drop((reader, doubled));
    assert!(array.dispose() && !array.dispose());
    assert_eq!(late.sum(), 3000, "a disposal never frees under a reader");
    drop(late);
    assert!(second.get().is_ok());
    assert!(second.dispose());
    assert_eq!(source.live(), 0, "a closed pool keeps nothing");
    assert!(array.get().is_err() && second.is_disposed());
}

#[test]
fn arrays_in_thread_locals_go_home_when_their_thread_exits() {
    thread_local! {
        static LAST: std::cell::RefCell<Option<PoolArray<f64, Ix1>>> = const { std::cell::RefCell::new(None) };
    }
    let pool = Pool::new();
    let worker = pool.clone();
    thread::spawn(move || {
        LAST.with(|last| *last.borrow_mut() = Some(worker.ones(100)));
        let full: Vec<_> = (0..300).map(|_| worker.zeros::<f64, _>(100)).collect();
        drop(full);
    })
    .join()
    .unwrap();
    assert_eq!(live(&pool), 0);
    pool.audit().unwrap();
}

#[test]
fn the_limit_holds_under_concurrent_arrays() {
    let pool = Pool::builder().limit(4 << 20).build();
    thread::scope(|scope| {
        let work = |_| {
            scope.spawn(|| {
                for round in 0..2000usize {
                    let kept = pool.try_zeros::<f32, _>((1 + round * 37 % 300, 1000));
                    if let Ok(array) = kept {
                        assert_eq!(array[(0, 999)], 0.0);
                    }
                }
            })
        };
        let workers: Vec<_> = (0..3).map(work).collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            assert!(pool.stats().held_bytes <= 4 << 20);
        }
    });
    assert_eq!(live(&pool), 0);
    pool.audit().unwrap();
}
