//! The lives of arrays: the 35 cases of the system that this one carries over, and zeroed memory.
//! Counts are owners.
#![cfg(feature = "ndarray")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use ndarray::{Axis, Ix1, array, s};
use ndpool::{ArrayError, Disposable, Pool, SharedArray, SharedBuffer};

mod arrays;
use arrays::{grid, live, name};

#[test]
fn c1_dispose_releases_and_is_seen() {
    let pool = Pool::new();
    let array = Disposable::new(pool.ones::<f64, _>(10)).unwrap();
    let buffer = name(&array.get().unwrap());
    assert_eq!(buffer.owners(), 1);
    assert!(array.dispose());
    assert!(array.is_disposed() && buffer.is_released());
    assert_eq!(buffer.owners(), 0);
    assert_eq!(live(&pool), 0);
}

#[test]
fn c2_disposing_three_times_disposes_once() {
    let pool = Pool::new();
    let array = Disposable::new(pool.ones::<f64, _>(10)).unwrap();
    let strays = ndpool::stray_releases();
    assert_eq!([(); 3].map(|()| array.dispose()), [true, false, false]);
    assert_eq!(
        ndpool::stray_releases(),
        strays,
        "a late disposal is no stray"
    );
    assert_eq!(live(&pool), 0);
}

#[test]
fn c3_c4_parent_and_view_may_go_in_either_order() {
    let pool = Pool::new();
    let parent = grid(&pool);
    let row = parent.slice(s![1, ..]);
    parent.dispose();
    assert_eq!(row.sum(), 5 + 6 + 7 + 8 + 9);
    let parent = grid(&pool);
    parent.slice(s![1, ..]).dispose();
    assert_eq!(parent.sum(), 190);
    assert_eq!(parent.owners(), 1);
}

#[test]
fn c5_c33_c34_forgotten_arrays_leave_nothing_behind() {
    let pool = Pool::new();
    for round in 0..100 {
        let owned = pool.zeros::<u8, _>(1000 + round);
        let shared = pool.zeros::<u8, _>(1000).share();
        let _view = shared.slice(s![5..;7]);
        let disposable = Disposable::new(shared.clone()).unwrap();
        if round % 2 == 0 {
            disposable.dispose();
        }
        drop(owned);
    }
    assert_eq!(live(&pool), 0);
    pool.audit().unwrap();
}

#[test]
fn c6_c32_owners_added_and_released_by_many_threads_balance() {
    let pool = Pool::new();
    let array = pool.arange(0.0, 8.0, 1.0).share();
    let handle = name(&array);
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    let again = handle.upgrade::<f64>().expect("a live buffer adds owners");
                    assert_eq!(again[7], 7.0);
                }
            });
        }
    });
    assert_eq!(array.owners(), 1);
    let many: Vec<_> = (0..1000).map(|_| array.clone()).collect();
    assert_eq!(array.owners(), 1001);
    drop(many);
    assert_eq!(array.owners(), 1);
    drop(array);
    assert!(handle.is_released());
}

#[test]
fn c7_fifty_threads_dispose_one_array_once() {
    let pool = Pool::new();
    for _ in 0..20 {
        let array = Disposable::new(pool.ones::<f32, _>(100)).unwrap();
        let (start, winners) = (Barrier::new(50), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|| {
                    start.wait();
                    winners.fetch_add(usize::from(array.dispose()), Ordering::Relaxed);
                });
            }
        });
        assert_eq!(winners.into_inner(), 1);
        assert_eq!(live(&pool), 0);
    }
    pool.audit().unwrap();
}

#[test]
fn c8_a_racing_reader_gets_a_share_or_a_refusal_never_a_released_buffer() {
    let pool = Pool::new();
    let current: Mutex<Option<Arc<Disposable<u64, Ix1>>>> = Mutex::new(None);
    let (start, done) = (Barrier::new(2), Barrier::new(2));
    let (current, start, done) = (&current, &start, &done);
    let mut taken = 0;
    thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..10_000 {
                start.wait();
                let array = current.lock().unwrap().clone().unwrap();
                array.dispose();
                drop(array);
                done.wait();
            }
        });
        for round in 0..10_000u64 {
            let array = Arc::new(Disposable::new(pool.full(8, round)).unwrap());
            *current.lock().unwrap() = Some(array.clone());
            start.wait();
            if let Ok(reader) = array.get() {
                assert!(reader.iter().all(|&x| x == round));
                assert!(!name(&reader).is_released());
                taken += 1;
            }
            done.wait();
            assert!(array.is_disposed());
        }
    });
    *current.lock().unwrap() = None;
    assert_eq!(live(&pool), 0, "{taken} readers came first");
}

#[test]
fn c9_c10_a_released_buffer_refuses_releases_and_adds() {
    let pool = Pool::new();
    let array = pool.ones::<f64, _>(10);
    let buffer = pool.copied(array.as_slice().unwrap()).unwrap().share();
    let handle = buffer.handle();
    let token = buffer.into_token().unwrap();
    token.release().unwrap();
    for _ in 0..100 {
        assert!(token.release().is_err());
        assert!(handle.upgrade::<f64>().is_err());
        assert!(handle.is_released());
    }
    let disposed = Disposable::new(array).unwrap();
    disposed.dispose();
    for _ in 0..100 {
        assert_eq!(disposed.get().unwrap_err(), ArrayError::Disposed);
        assert!(matches!(disposed.share(), Err(ArrayError::Disposed)));
    }
}

#[test]
fn c11_c12_borrowed_memory_is_never_released_and_each_borrow_stands_alone() {
    static DATA: [f64; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let first = SharedBuffer::from_static(&DATA).unwrap();
    let second = SharedBuffer::from_static(&DATA).unwrap();
    let array = SharedArray::from_buffer((2, 3), first.clone()).unwrap();
    let handle = first.handle();
    for _ in 0..101 {
        drop(handle.upgrade::<f64>().unwrap());
    }
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| (0..1000).for_each(|_| drop(array.clone())));
        }
    });
    drop(first);
    let disposable = Disposable::new(array).unwrap();
    disposable.dispose();
    assert!(!handle.is_released());
    assert_eq!(handle.upgrade::<f64>().unwrap()[5], 6.0);
    assert!(!second.handle().is_released());
    // Written only in a copy.
    let mut array = SharedArray::from_buffer((3, 2), second).unwrap();
    array.make_mut().unwrap()[(0, 0)] = 9.0;
    assert_eq!((array[(0, 0)], DATA[0]), (9.0, 1.0));
}

#[test]
fn c13_a_foreign_vector_outlives_its_array_and_stays_writable() {
    struct Pin(Arc<Vec<u32>>);
    impl AsRef<[u32]> for Pin {
        fn as_ref(&self) -> &[u32] {
            &self.0
        }
    }
    let mut vector = Arc::new(vec![1, 2, 3, 4]);
    let array = SharedArray::from_buffer(4, SharedBuffer::from_owner(Pin(vector.clone())).unwrap());
    let array = Disposable::new(array.unwrap()).unwrap();
    assert_eq!(array.get().unwrap().sum(), 10);
    array.dispose();
    Arc::get_mut(&mut vector).expect("the pin is gone")[0] = 7;
    assert_eq!(vector[..], [7, 2, 3, 4]);
}

#[test]
fn c14_an_array_without_elements_is_disposed_like_any() {
    let pool = Pool::new();
    let empty = pool.zeros::<f64, _>((3, 0)).share();
    assert_eq!((empty.owners(), empty.handle()), (0, None));
    let disposable = Disposable::new(empty).unwrap();
    assert_eq!(disposable.get().unwrap().shape(), [3, 0]);
    assert!(disposable.dispose() && disposable.is_disposed() && !disposable.dispose());
    assert!(disposable.get().is_err());
    let mut hollow = pool.zeros::<f64, _>((3, 0)).share();
    assert!(hollow.make_mut().unwrap().is_empty());
    hollow.resize((2, 2)).unwrap();
    assert_eq!(hollow, array![[0.0, 0.0], [0.0, 0.0]]);
}

#[test]
fn an_empty_slice_does_not_hold_its_parent() {
    let pool = Pool::new();
    let parent = grid(&pool);
    let empty = parent.slice(s![2..2, ..]);
    assert_eq!(parent.owners(), 1);
    assert_eq!(empty.retained_bytes(), 0);
    drop(parent);
    assert_eq!(live(&pool), 0);
    assert_eq!(empty.shape(), [0, 5]);
    assert_eq!(empty.t().reshape((7, 0)).unwrap().shape(), [7, 0]);
}

#[test]
fn c15_ten_thousand_cycles_release_each_time() {
    let pool = Pool::new();
    let mut first = None;
    for _ in 0..10_000 {
        let array = Disposable::new(pool.zeros::<f64, _>(10_000)).unwrap();
        let reader = array.get().unwrap();
        let (handle, address) = (name(&reader), reader.as_ptr());
        drop(reader);
        assert!(array.dispose() && handle.is_released());
        assert_eq!(*first.get_or_insert(address), address);
    }
    assert_eq!(pool.stats().births, 1);
}

#[test]
fn c16_c17_view_chains_count_and_release_at_the_last() {
    let pool = Pool::new();
    let build = || {
        let base = grid(&pool);
        let v1 = base.slice(s![1.., ..]);
        let v2 = v1.slice(s![.., 1..]);
        let v3 = v2.slice(s![0, ..;2]);
        (base, v1, v2, v3)
    };
    let (base, v1, v2, v3) = build();
    assert_eq!(base.owners(), 4);
    drop((v1, v2, v3));
    assert_eq!(base.owners(), 1);
    drop(base);
    let (base, v1, v2, v3) = build();
    let handle = name(&base);
    drop(base);
    drop(v2);
    assert_eq!(v3, array![6, 8]);
    drop(v3);
    assert!(!handle.is_released());
    drop(v1);
    assert!(handle.is_released());
    assert_eq!(live(&pool), 0);
}

#[test]
fn c18_to_c22_which_views_count_and_which_copy() {
    let pool = Pool::new();
    let base = grid(&pool);
    let flat = base.reshape(20).unwrap();
    assert_eq!((base.owners(), flat[13]), (2, 13));
    let turned = base.t();
    assert_eq!((base.owners(), turned[(4, 3)]), (3, 19));
    let own = turned.reshape(20).unwrap();
    assert_eq!((base.owners(), own.owners(), own[1]), (3, 1, 5));
    let reversed = base.reversed(Axis(1)).unwrap();
    assert_eq!((base.owners(), reversed[(0, 0)]), (4, 4));
    let wide = flat.broadcast((3, 20)).unwrap();
    let diagonal = base.diagonal();
    let permuted = base.permute(&[1, 0]).unwrap();
    assert_eq!((base.owners(), permuted[(4, 0)]), (7, 4));
    assert_eq!((wide[(2, 7)], diagonal[3]), (7, 18));
    let copy = base.try_copy().unwrap();
    let handle = name(&base);
    drop((base, flat, turned, reversed, wide, diagonal, permuted));
    assert!(handle.is_released());
    assert_eq!((copy[(3, 4)], own[19]), (19, 19));
    drop((copy, own));
    assert_eq!(live(&pool), 0);
}

#[test]
fn views_that_do_not_fit_are_refused_with_numbers() {
    let pool = Pool::new();
    let base = grid(&pool);
    assert!(matches!(
        base.permute(&[0, 0]),
        Err(ArrayError::Axis { ndim: 2, .. })
    ));
    assert!(matches!(base.permute(&[0]), Err(ArrayError::Axis { .. })));
    assert!(base.reversed(Axis(2)).is_err());
    assert!(matches!(
        base.reshape((3, 7)),
        Err(ArrayError::Shape { elements: 20, .. })
    ));
    assert!(base.broadcast((3, 3, 5)).is_err());
    assert!(base.broadcast((usize::MAX, 4, 5)).is_err());
    assert_eq!(base.owners(), 1);
}

#[test]
fn c23_every_element_type_counts_and_releases() {
    macro_rules! each {
        ($($element:ty)*) => {$({
            let pool = Pool::new();
            let array = pool.zeros::<$element, _>((3, 7)).share();
            let handle = name(&array);
            assert_eq!(array.owners(), 1);
            let view = array.t();
            assert_eq!(array.owners(), 2);
            drop((array, view));
            assert!(handle.is_released());
            assert_eq!(live(&pool), 0);
        })*};
    }
    each!(bool u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 [f32; 2] [u8; 3]);
}

#[test]
fn c24_to_c27_every_constructor_makes_one_owner() {
    let pool = Pool::new();
    let arrays = [
        pool.zeros::<f64, _>(50).share(),
        pool.ones(50).share(),
        pool.uninit(50).init_full(3.0).share(),
        pool.arange(0.0, 50.0, 1.0).share(),
    ];
    assert_eq!(live(&pool), 4);
    assert_eq!(arrays.each_ref().map(SharedArray::owners), [1; 4]);
    drop(arrays);
    assert_eq!(live(&pool), 0);
}

#[test]
fn c30_c31_arrays_die_and_are_read_on_other_threads() {
    let pool = Pool::new();
    let owned = pool.ones::<f64, _>(100);
    let base = pool.full(100, 2.0).share();
    let view = base.slice(s![..;3]);
    thread::spawn(move || drop(owned)).join().unwrap();
    let sum = thread::spawn(move || view.sum()).join().unwrap();
    assert_eq!((sum, base.owners()), (68.0, 1));
    drop(base);
    assert_eq!(live(&pool), 0);
    pool.audit().unwrap();
}

#[test]
fn c35_two_objects_on_one_buffer_are_disposed_apart() {
    let pool = Pool::new();
    let first = Disposable::new(pool.full(4, 5u8)).unwrap();
    let second = first.share().unwrap();
    let owners = || second.get().unwrap().owners() - 1;
    assert_eq!(owners(), 2);
    first.dispose();
    assert_eq!(owners(), 1);
    assert!(first.is_disposed() && !second.is_disposed());
    assert_eq!(second.get().unwrap().sum(), 20);
    second.dispose();
    assert_eq!(live(&pool), 0);
}

// Zeroed memory.

#[test]
fn zeroed_arrays_are_zero_also_in_dirty_memory() {
    macro_rules! each {
        ($dirt:literal: $($element:ty)*) => {$(
            let pool = Pool::new();
            for len in [1usize, 64, 257, 50_000, 2_000_000] {
                for _ in 0..8 {
                    let mut array = pool.zeros::<$element, _>(len);
                    assert!(array.iter().all(|x| *x == <$element>::default()), "{len}");
                    array.fill($dirt as $element);
                }
            }
        )*};
    }
    each!(0xA5u8: u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);
    let pool = Pool::new();
    for len in [1usize, 64, 257, 50_000, 2_000_000] {
        for _ in 0..8 {
            let mut flags = pool.zeros::<bool, _>(len);
            assert!(!flags.iter().any(|&x| x), "{len}");
            flags.fill(true);
        }
    }
    pool.full((2, 3, 4, 5, 6), true).dispose();
    assert!(!pool.zeros::<bool, _>((2, 3, 4, 5, 6)).iter().any(|&x| x));
    assert!(pool.zeros::<f64, _>((2, 0, 4)).is_empty());
    let (mut a, b) = (pool.zeros::<u64, _>(257), pool.zeros::<u64, _>(257));
    a.fill(u64::MAX);
    assert_eq!(b.sum(), 0, "two arrays never overlap");
}
