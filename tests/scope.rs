//! Scopes: what goes back, what survives, and that it balances.
#![cfg(feature = "ndarray")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;

use ndarray::{Array1, Array2, Axis, Ix1, IxDyn, array, s};
use ndpool::array::Survive;
use ndpool::{ArrayError, Disposable, Pool, PoolArray, Scope, SharedArray, Temp, scoped};

mod arrays;
use arrays::live;

#[test]
fn temporaries_go_back_and_the_result_survives_unique_once_the_scope_has_closed() {
    let pool = Pool::new();
    let s = pool.open();
    let (a, b) = (s.ones::<f64, _>(1000), s.full(1000, 2.0));
    let sum = (a + b) * b - 1.0;
    let result = s.returns(sum);
    assert_eq!(result.owners(), 2, "the scope is an owner while it is open");
    let address = result.as_ptr();
    s.finish();
    assert_eq!(live(&pool), 1);
    let unique = result.try_unique().unwrap();
    assert_eq!((unique.as_ptr(), unique[999]), (address, 5.0));
    drop(unique);
    assert_eq!(live(&pool), 0);
    pool.audit().unwrap();
}

#[test]
fn a_result_made_unique_while_the_scope_is_open_is_a_copy() {
    let pool = Pool::new();
    let s = pool.open();
    let value = s.arange(0, 10, 1) + 1;
    let result = s.returns(value).try_unique().unwrap_err();
    let mut unique = result.into_unique().unwrap();
    unique.fill(0);
    assert_eq!(value.sum(), 55, "readers inside see no write");
    let mut written = s.returns(value);
    written.make_mut().unwrap().fill(7);
    assert_eq!((value.sum(), written.sum()), (55, 70));
}

#[test]
fn one_handle_returned_twice_is_two_owners() {
    let pool = Pool::new();
    let (a, b, c) = pool.scope(|s| {
        let a = s.ones::<u32, _>(10);
        s.returns((a, a, s.returns(a)))
    });
    assert_eq!((a.owners(), a.as_ptr()), (3, b.as_ptr()));
    drop((b, c));
    assert!(a.try_unique().is_ok());
}

#[test]
fn a_share_given_back_by_hand_is_not_the_scopes() {
    let pool = Pool::new();
    let s = pool.open();
    let value = s.full(100, 3u8);
    let by_hand = Disposable::new(s.returns(value)).unwrap();
    assert!(by_hand.dispose() && !by_hand.dispose());
    drop(s.returns(value));
    assert_eq!(value[99], 3, "the scope's own share is there");
    // A result that goes in again is two shares of one buffer, in one sweep.
    let again = s.add_shared(s.returns(value));
    assert_eq!(again.as_ptr(), value.as_ptr());
    s.finish();
    assert_eq!(live(&pool), 0);
    assert!(!by_hand.dispose());
    let next = pool.full(100, 1u8);
    assert_eq!((next.len(), live(&pool)), (100, 1));
    drop(next);
    pool.audit().unwrap();
}

#[test]
fn inputs_are_lifted_without_a_copy_or_a_count_and_left_alone() {
    let pool = Pool::new();
    let owned = pool.arange(0.0, 6.0, 1.0);
    let shared = pool.full((2, 6), 2.0).share();
    let heap = Array2::from_elem((2, 1), 3.0);
    let result = pool.scope(|s| {
        let (x, y, z) = (s.lift(&owned), s.lift(&shared), s.lift(&heap));
        assert_eq!(x.as_ptr(), owned.as_ptr());
        assert_eq!(shared.owners(), 1);
        s.returns(x * y + z)
    });
    assert_eq!(result.row(1), &*owned * 2.0 + 3.0);
    assert_eq!((owned.sum(), shared.owners(), heap.sum()), (15.0, 1, 6.0));
    // A lifted input that is returned is a copy: it is not the scope's to give.
    let copy = pool.scope(|s| s.returns(s.lift(&heap).t()));
    assert_eq!(copy, heap.t().to_owned());
    assert_ne!(copy.as_ptr(), heap.as_ptr());
}

#[test]
fn untracked_values_pass_through_and_are_not_adopted() {
    let pool = Pool::new();
    let outside = pool.ones::<u8, _>(100);
    let address = outside.as_ptr();
    let (array, number, text) = pool
        .scope(|s| {
            let sum = s.lift(&outside).sum();
            (sum, "text")
        })
        .survive_outside(outside);
    assert_eq!((array.as_ptr(), number, text), (address, 100, "text"));
}

trait SurviveOutside {
    fn survive_outside(self, array: PoolArray<u8, Ix1>) -> (PoolArray<u8, Ix1>, u8, &'static str);
}

impl SurviveOutside for (u8, &'static str) {
    fn survive_outside(self, array: PoolArray<u8, Ix1>) -> (PoolArray<u8, Ix1>, u8, &'static str) {
        let pool = Pool::new();
        let (sum, text) = self;
        pool.scope(|s| s.returns((array, sum, text)))
    }
}

#[test]
fn nested_scopes_hand_results_outwards_and_the_outer_one_gives_them_back() {
    let pool = Pool::new();
    let outer = pool.open();
    let base = outer.ones::<f64, _>(1000);
    let kept = {
        let inner = outer.open();
        let product = inner.lift(&base) * 3.0;
        let more = base * product + inner.ones::<f64, _>(1000);
        let (a, dropped) = inner.returns((more, product));
        outer.add_shared(dropped);
        a
    };
    // Here are: the base, the result, the one that the outer scope took over, and node memory.
    let kept = outer.add_shared(kept);
    assert_eq!((kept[0], (kept + base)[0]), (4.0, 5.0));
    let result = outer.returns(kept);
    outer.finish();
    assert_eq!((result.owners(), live(&pool)), (1, 1));
    drop(result);
    // No outer scope: an inner result is on its own.
    let free = pool.scope(|s| s.returns(s.ones::<f64, _>(10)));
    assert_eq!(free.owners(), 1);
}

#[test]
fn the_middle_scope_may_close_first() {
    let pool = Pool::new();
    let outer = pool.open();
    let a = outer.full(100, 1u64);
    let middle = pool.open();
    let b = middle.full(100, 2u64);
    let inner = pool.open();
    let c = inner.full(100, 3u64) + a + b;
    assert_eq!(c[0], 6);
    let kept = middle.returns(b);
    middle.finish();
    assert_eq!((c + a)[5], 7);
    assert_eq!((kept.owners(), kept[9]), (1, 2));
    outer.finish();
    assert_eq!(c[1], 6);
    inner.finish();
    drop(kept);
    assert_eq!(live(&pool), 0);
    pool.audit().unwrap();
}

#[test]
fn several_results_in_every_container() {
    let pool = Pool::new();
    let make = |fail: bool| {
        pool.scope(|s| {
            let all: Vec<_> = (0..3).map(|i| s.full(10, i)).collect();
            let none: Option<Temp<'_, i32, Ix1>> = None;
            let result: Result<_, String> = if fail {
                Err("failed".to_owned())
            } else {
                Ok((all[2] + 1, 7u8))
            };
            s.returns((all, Some(s.zeros::<f32, _>((2, 2))), none, result))
        })
    };
    let (all, some, none, result) = make(false);
    assert_eq!(all.iter().map(|a| a[0]).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(some.unwrap().shape(), [2, 2]);
    assert!(none.is_none());
    let (array, number) = result.unwrap();
    assert_eq!((array[9], number), (3, 7));
    assert_eq!(make(true).3.unwrap_err(), "failed");
    drop((all, array));
    assert_eq!(live(&pool), 0);
}

#[test]
fn a_returned_view_keeps_its_transient_base() {
    let pool = Pool::new();
    let view = pool.scope(|s| {
        let base = s.from_shape_fn((10, 10), |(i, j)| i * 10 + j);
        let shared = s.returns(base);
        let view = shared.slice(s![..;-3, 5]);
        s.returns(s.add_shared(view))
    });
    assert_eq!(view, array![95, 65, 35, 5]);
    assert_eq!((view.owners(), live(&pool)), (1, 1));
    let (row, whole) = pool.scope(|s| {
        let base = s.from_shape_fn((10, 10), |(i, j)| i * 10 + j);
        let row = base.t().map_view(|view| view.index_axis_move(Axis(0), 5));
        s.returns((row, base))
    });
    assert_eq!((row.owners(), row[3], whole[(3, 5)]), (2, 35, 35));
    assert_eq!(
        (&raw const row[3], live(&pool)),
        (&raw const whole[(3, 5)], 2)
    );
    drop((view, row, whole));
    assert_eq!(live(&pool), 0);
}

#[test]
fn a_panic_gives_transients_back_and_leaves_inputs_alone() {
    let pool = Pool::new();
    let input = pool.ones::<f64, _>(100);
    for _ in 0..10 {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            pool.scope(|s| {
                let x = s.lift(&input) + 1.0;
                let _kept = s.returns(x * 2.0);
                let wrong = s.ones::<f64, _>(99);
                s.returns(x + wrong)
            })
        }));
        assert!(panicked.is_err());
        assert_eq!((input.sum(), live(&pool)), (100.0, 1));
    }
    // An error as well.
    let failed: Result<SharedArray<f64, Ix1>, &str> = pool.scope(|s| {
        let x = s.lift(&input) + 1.0;
        if x.sum() > 0.0 {
            return Err("early");
        }
        Ok(s.returns(x))
    });
    assert_eq!((failed.unwrap_err(), live(&pool)), ("early", 1));
    pool.audit().unwrap();
}

#[test]
fn early_release_inside_is_by_owned_arrays_child_scopes_and_reset() {
    let pool = Pool::new();
    let mut s = pool.open();
    let owned = pool.ones::<f64, _>(1000);
    let sum = owned.sum();
    drop(owned);
    for round in 0..5 {
        let x = s.full(1000, round as f64);
        assert_eq!((x + 1.0).sum(), (round as f64 + 1.0) * sum);
        assert_eq!(s.len(), 2);
        s.reset();
        assert!(s.is_empty());
    }
    s.reset();
    s.finish();
    assert_eq!(live(&pool), 0);
    let of_size: Vec<_> = pool.stats().classes;
    let births: u64 = of_size
        .iter()
        .filter(|c| c.capacity >= 8000)
        .map(|c| c.births)
        .sum();
    assert_eq!(births, 2, "each round reuses the buffers of the last");
}

#[test]
fn arrays_with_odd_layouts_enter_and_leave_scopes() {
    let pool = Pool::new();
    let mut odd = pool.from_shape_fn(IxDyn(&[2, 3, 1, 2, 1, 2, 1]), |_| 1.5f32);
    odd.invert_axis(Axis(1));
    odd.slice_collapse(s![1, 1.., 0, .., 0, .., 0]);
    let shared = pool.arange(0u16, 50, 1).share();
    let part = shared
        .handle()
        .unwrap()
        .upgrade::<u16>()
        .unwrap()
        .slice(10..20)
        .unwrap();
    drop(shared);
    // A buffer that starts in the middle of its block: sharing it moves its elements.
    let middle = PoolArray::from_buffer(10, part.try_unique().unwrap()).unwrap();
    let (a, b) = pool.scope(|s| {
        let odd = s.add(odd);
        let middle = s.add(middle);
        let reader = middle.view();
        let kept = s.returns(middle);
        assert_eq!(reader[0], 10);
        s.returns((odd * 2.0, s.add_shared(kept)))
    });
    assert_eq!((a.sum(), b.sum()), (24.0, 145));
}

#[test]
fn eight_threads_of_scopes_balance_exactly() {
    let pool = Pool::new();
    thread::scope(|scope| {
        for seed in 0..8usize {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..1500 {
                    let s = pool.open();
                    let mut x = s.full(1 + (seed * 31 + round * 7) % 500, 1.0f32);
                    for step in 0..10 {
                        x = x * 0.5 + step as f32;
                    }
                    assert!((x[0] - 16.0 - 0.015_625).abs() < 2.0);
                    if round % 3 == 0 {
                        drop(s.returns(x));
                    }
                }
            });
        }
    });
    assert_eq!(live(&pool), 0);
    let stats = pool.stats();
    let takes: u64 = stats.classes.iter().map(|class| class.takes).sum();
    // Each scope takes 21 buffers and one chunk of nodes; of three scopes, one more chunk.
    assert!(takes >= 8 * 1500 * 22);
    pool.audit().unwrap();
}

#[test]
fn four_producers_hand_results_to_two_consumers() {
    let pool = Pool::new();
    let (sender, receiver) = mpsc::channel::<(usize, SharedArray<f64, Ix1>)>();
    let receiver = std::sync::Mutex::new(receiver);
    thread::scope(|scope| {
        for producer in 0..4usize {
            let (sender, pool) = (sender.clone(), &pool);
            scope.spawn(move || {
                for round in 0..500 {
                    let id = producer * 1000 + round;
                    let result = pool.scope(|s| {
                        let x = s.arange(0.0, 100.0, 1.0);
                        s.returns(x * x + id as f64)
                    });
                    sender.send((id, result)).unwrap();
                }
            });
        }
        drop(sender);
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = receiver.lock().unwrap().recv();
                    let Ok((id, array)) = next else { return };
                    assert_eq!(array.sum(), 328_350.0 + 100.0 * id as f64);
                    let mut unique = array.try_unique().unwrap();
                    unique += 1.0;
                }
            });
        }
    });
    assert_eq!(live(&pool), 0);
    pool.audit().unwrap();
}

#[test]
fn a_worker_thread_sees_no_scope_and_no_pool_of_its_parents() {
    let pool = Pool::new();
    let _entered = pool.enter();
    let s = pool.open();
    let before = s.ones::<f64, _>(100);
    let worker = thread::spawn(|| {
        let array = ndpool::array::ones::<f64, _>(100);
        (array.sum(), Pool::ambient().unwrap())
    });
    let (sum, ambient) = worker.join().unwrap();
    assert!(!ambient.is_same(&pool));
    assert_eq!((sum, before.sum(), s.len()), (100.0, 100.0, 1));
}

#[test]
fn a_scope_sends_whole_magazines_home() {
    let pool = Pool::new();
    let run = || {
        let s = pool.open();
        for _ in 0..1000 {
            s.zeros::<u8, _>(64);
        }
    };
    run();
    let before = pool.stats();
    run();
    let after = pool.stats();
    assert_eq!(after.births, before.births);
    let trips = after.exchanges - before.exchanges;
    // 1,000 blocks each way, 63 to a magazine, and the few of the nodes' chunks.
    assert!(trips <= 2 * (1000 / 63 + 1) + 12, "{trips} trips");
    pool.audit().unwrap();
}

#[test]
fn operators_of_handles_equal_ndarrays_bit_for_bit() {
    let pool = Pool::new();
    let (a, b) = (
        Array1::from_shape_fn(1001, |i| (i as f64 + 0.1).sqrt()),
        Array1::from_shape_fn(1001, |i| 1.0 / (i as f64 + 0.7)),
    );
    let s = pool.open();
    let (x, y) = (s.lift(&a), s.lift(&b));
    let bits =
        |array: &ndarray::ArrayRef<f64, Ix1>| array.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    macro_rules! check {
        ($($op:tt)*) => {$(
            assert_eq!(bits(&(x $op y)), bits(&(&a $op &b)));
            assert_eq!(bits(&(x $op 0.3)), bits(&(&a $op 0.3)));
            assert_eq!(bits(&(0.3 $op y)), bits(&(0.3 $op &b)));
            assert_eq!(bits(&(x $op &b)), bits(&(&a $op &b)));
            assert_eq!(bits(&(x $op pool.from_view(&b))), bits(&(&a $op &b)));
        )*};
    }
    check!(+ - * / %);
    assert_eq!(bits(&(-x).exp().sqrt()), bits(&(-&a).exp().sqrt()));
    let (m, v) = (s.from_shape_fn((7, 7), |(i, j)| (i * j) as f64), s.ones(7));
    assert_eq!(bits(&m.matmul(v)), bits(&m.view().dot(&v.view())));
    assert_eq!(
        bits(&m.sum_axis(Axis(0))),
        bits(&m.view().sum_axis(Axis(0)))
    );
    assert_eq!(
        bits(&m.t().sum_axis(Axis(0))),
        bits(&m.view().t().sum_axis(Axis(0)))
    );
    assert_eq!(
        m.reshape(49)
            .slice(s![8..12])
            .greater(1.5)
            .map(u8::from)
            .sum(),
        3
    );
    assert!(
        m.less(3.0)
            .zip_with(m, |less: bool, x: f64| less == (x < 3.0))
            .iter()
            .all(|&x| x)
    );
}

// The attribute.

struct Model {
    pool: Pool,
    weights: PoolArray<f64, Ix1>,
}

impl Model {
    #[scoped(s = self.pool)]
    fn score(&self, x: &PoolArray<f64, Ix1>) -> SharedArray<f64, Ix1> {
        let (w, x) = (s.lift(&self.weights), s.lift(x));
        let z = x * w + 1.0;
        z / (z * z + 1.0).sqrt()
    }

    #[scoped(s = self.pool)]
    fn learn(&mut self, rate: f64) {
        let step = s.lift(&self.weights) * rate;
        let next = s.returns(step + 1.0);
        self.weights = next.into_unique().unwrap();
    }
}

#[derive(Debug, PartialEq)]
struct Negative(usize);

#[scoped(s = pool)]
fn roots<T>(pool: &Pool, x: &PoolArray<T, Ix1>, sure: bool) -> Result<SharedArray<T, Ix1>, Negative>
where
    T: ndpool::Element + num_traits::Float,
{
    let x = s.lift(x);
    if sure {
        return Ok(x.sqrt());
    }
    let find = |x: Temp<'_, T, Ix1>| {
        for (index, &value) in x.iter().enumerate() {
            if value < T::zero() {
                return Err(Negative(index));
            }
        }
        Ok(())
    };
    find(x)?;
    let checked = x.abs();
    Ok(checked.sqrt())
}

#[scoped(s = pool)]
fn halves(pool: &Pool, x: &PoolArray<i32, Ix1>) -> Option<(SharedArray<i32, Ix1>, i32)> {
    let x = s.lift(x);
    let middle = x.len().checked_sub(2)? / 2;
    match middle {
        0 => panic!("too short"),
        1 => return Some((x.slice(s![..1]) + 0, 1)),
        _ => {}
    }
    Some((x.slice(s![..middle]) * 2, x.sum()))
}

#[test]
fn the_attribute_opens_a_scope_over_functions_and_methods() {
    let pool = Pool::new();
    let mut model = Model {
        weights: pool.full(10, 2.0),
        pool: pool.clone(),
    };
    let x = pool.ones::<f64, _>(10);
    let score = model.score(&x);
    assert_eq!(score[0], 3.0 / 10.0f64.sqrt());
    assert_eq!(score.owners(), 1);
    model.learn(0.5);
    assert_eq!(model.weights[9], 2.0);
    let y = pool.from_vec(3, vec![4.0f32, -1.0, 9.0]);
    assert_eq!(roots(&pool, &y, false).unwrap_err(), Negative(1));
    assert!(roots(&pool, &y, true).unwrap()[1].is_nan());
    let z = pool.from_vec(2, vec![4.0f64, 9.0]);
    assert_eq!(roots(&pool, &z, false).unwrap(), array![2.0, 3.0]);
    let ints = pool.arange(0, 10, 1);
    assert_eq!(halves(&pool, &ints).unwrap().0, array![0, 2, 4, 6]);
    assert!(halves(&pool, &pool.arange(0, 1, 1)).is_none());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        halves(&pool, &pool.arange(0, 2, 1)).is_some()
    }));
    assert!(panicked.is_err());
    drop((score, model, x, y, z, ints));
    assert_eq!(live(&pool), 0);
}

/// A survivor of one's own.
struct Report {
    text: String,
}

impl Survive for Report {
    type Survivor = Self;

    fn survive(self, _: &Scope) -> Result<Self, ArrayError> {
        Ok(self)
    }
}

#[scoped(s = pool)]
fn report(pool: &Pool) -> Report {
    let x = s.ones::<f32, _>(3);
    Report {
        text: format!("{}", x.sum()),
    }
}

#[test]
fn a_type_of_ones_own_survives() {
    assert_eq!(report(&Pool::new()).text, "3");
}
