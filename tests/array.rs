//! Owned arrays: results, memory reuse, constructors, errors.
#![cfg(feature = "ndarray")]

use ndarray::{Array, Array1, Array2, ArrayD, Axis, Ix1, IxDyn, ShapeBuilder, array, s};
use ndpool::array::{self, Elementwise, Functions};
use ndpool::{AllocErrorKind, ArrayError, Pool, PoolArray};

fn ramp(rows: usize, columns: usize) -> Array2<f64> {
    Array::from_shape_fn((rows, columns), |(i, j)| {
        (i as f64 + 0.37) * 1.7 - (j as f64) / 3.0
    })
}

/// Bits of every element, in logical order.
fn bits(view: &ndarray::ArrayRef<f64, impl ndarray::Dimension>) -> Vec<u64> {
    view.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn elementwise_results_equal_ndarrays_bit_for_bit() {
    let pool = Pool::new();
    let (x, y) = (ramp(7, 5), ramp(5, 7).mapv(|x| x * 1.3 + 0.1));
    let row = Array1::from_shape_fn(7, |i| 0.1 + i as f64);
    let cases = [x.t().to_owned(), x.slice(s![..;-1, ..]).t().to_owned()];
    for left in cases {
        let (a, b, r) = (
            pool.from_view(&left),
            pool.from_view(&y),
            pool.from_view(&row),
        );
        macro_rules! check {
            ($($op:tt)*) => {$(
                let expected = &left $op &y;
                assert_eq!(bits(&(&a $op &b)), bits(&expected));
                assert_eq!(bits(&(a.clone() $op &b)), bits(&expected));
                assert_eq!(bits(&(&a $op b.clone())), bits(&expected));
                assert_eq!(bits(&(a.clone() $op b.clone())), bits(&expected));
                assert_eq!(bits(&(&a $op y.view())), bits(&expected));
                assert_eq!(bits(&(left.view() $op &b)), bits(&expected));
                assert_eq!(bits(&(&a $op &y)), bits(&expected));
                assert_eq!(bits(&(a.clone().share() $op b.clone().share())), bits(&expected));
                let expected = &left $op &row;
                assert_eq!(bits(&(&a $op &r)), bits(&expected));
                assert_eq!(bits(&(a.clone() $op &r)), bits(&expected));
                let expected = &row $op &left;
                assert_eq!(bits(&(&r $op &a)), bits(&expected));
                assert_eq!(bits(&(r.clone() $op a.clone())), bits(&expected));
                assert_eq!(bits(&(&a $op 2.5)), bits(&(&left $op 2.5)));
                assert_eq!(bits(&(a.clone() $op 2.5)), bits(&(&left $op 2.5)));
                assert_eq!(bits(&(2.5 $op &a)), bits(&(2.5 $op &left)));
                assert_eq!(bits(&(2.5 $op a.clone())), bits(&(2.5 $op &left)));
            )*};
        }
        check!(+ - * / %);
        assert_eq!(bits(&-&a), bits(&-&left));
        assert_eq!(bits(&(&a).tanh()), bits(&left.tanh()));
        assert_eq!(bits(&a.clone().exp()), bits(&left.exp()));
        assert_eq!(bits(&a.map(|x| x * x)), bits(&left.mapv(|x| x * x)));
        assert_eq!(
            (&a).less(&b),
            ndarray::Zip::from(&left).and(&y).map_collect(|x, y| x < y)
        );
    }
}

#[test]
fn integers_have_bit_operators_and_scalars_on_both_sides() {
    let pool = Pool::new();
    let data = array![[1u32, 6], [12, 255]];
    let a = pool.from_view(&data);
    assert_eq!(&a & 6, data.mapv(|x| x & 6));
    assert_eq!(7u32 ^ &a, data.mapv(|x| 7 ^ x));
    assert_eq!(1u32 << (&a & 7), data.mapv(|x| 1 << (x & 7)));
    assert_eq!(!&a >> 3, data.mapv(|x| !x >> 3));
    assert_eq!(100 - a.clone() % 7, data.mapv(|x| 100 - x % 7));
    let flags = (&a).greater(10);
    assert_eq!(true ^ &flags, array![[true, true], [false, false]]);
    assert_eq!(!flags, array![[true, true], [false, false]]);
    let f = pool.full((2, 2), 1.5f32);
    assert_eq!(&f * 2.0 + 1.0, array![[4.0f32, 4.0], [4.0, 4.0]]);
}

#[test]
fn an_operand_by_value_is_the_results_memory() {
    let pool = Pool::new();
    let a = pool.ones::<f64, _>((100, 30));
    let b = pool.ones::<f64, _>((100, 30));
    let address = a.as_ptr();
    let c = a + &b;
    assert_eq!(c.as_ptr(), address);
    let c = 3.0 - c;
    assert_eq!(c.as_ptr(), address);
    let c = &b / c;
    assert_eq!(c.as_ptr(), address);
    let c = -(c.sqrt());
    assert_eq!(c.as_ptr(), address);
    let row = pool.ones::<f64, _>(30);
    let row_address = row.as_ptr();
    // The row is broadcast, so it cannot hold the result; the other operand can.
    let c = row + c;
    assert_eq!(c.as_ptr(), address);
    let column = pool.ones::<f64, _>((100, 1));
    let row = pool.ones::<f64, _>(30);
    let outer = row + column;
    assert_eq!(outer.shape(), [100, 30]);
    assert!(outer.as_ptr() != address && outer.as_ptr() != row_address);
}

#[test]
fn an_expression_of_owned_arrays_takes_no_more_buffers_than_it_needs() {
    let pool = Pool::new();
    let (a, b, d) = (
        pool.ones::<f64, _>(1000),
        pool.ones::<f64, _>(1000),
        pool.full(1000, 3.0),
    );
    let result = (&a + &b) * &d - 1.0;
    // Three operands and one result: a fifth buffer was never made.
    assert_eq!(result[0], 5.0);
    drop((a, b, d, result));
    let one = ndpool::source::Source::footprint(
        &ndpool::source::Os::new(),
        std::alloc::Layout::from_size_align(8192, 4096).unwrap(),
    );
    assert_eq!(pool.trim(), 4 * one);
}

#[test]
fn a_cut_array_lends_its_memory_and_stays_within_it() {
    let pool = Pool::new();
    let mut a = pool.from_shape_fn((6, 8), |(i, j)| (i * 8 + j) as f64);
    let base = a.as_ptr();
    a.slice_collapse(s![2..5, 1..;2]);
    a.invert_axis(Axis(0));
    let expected = a.view().to_owned();
    let b = pool.from_view(&expected);
    let sum = a + &b;
    assert_eq!(sum, &expected * 2.0);
    let offset = (sum.as_ptr().addr() - base.addr()) / 8;
    assert_eq!(offset, 4 * 8 + 1);
    // Sharing and taking back keeps the odd layout.
    let mut again = sum.share().try_unique().unwrap();
    assert_eq!(again, &expected * 2.0);
    again += &b;
    assert_eq!(again, &expected * 3.0);
    again.resize((2, 2)).unwrap();
    assert_eq!(again.shape(), [2, 2]);
    let flat: Vec<f64> = again.iter().copied().collect();
    let kept: Vec<f64> = (&expected * 3.0).iter().copied().take(4).collect();
    assert_eq!(flat, kept);
}

#[test]
fn assignment_operators_broadcast_to_the_left() {
    let pool = Pool::new();
    let mut a = pool.ones::<f64, _>((3, 4));
    let row = pool.arange(0.0, 4.0, 1.0);
    a += &row;
    a *= 2.0;
    a -= row;
    assert_eq!(a.row(2), array![2.0, 3.0, 4.0, 5.0]);
    let wide = pool.ones::<f64, _>((2, 3, 4));
    let kept = a.clone();
    assert!(a.try_mul_assign(&wide).is_err());
    a.try_sub_assign(0.0).unwrap();
    assert_eq!(a, kept);
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| a += &wide));
    let text = *refused.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(
        text,
        "shapes [3, 4] and [2, 3, 4] do not broadcast together"
    );
}

#[test]
fn constructors_of_the_ambient_pool_use_the_one_entered_last() {
    let (first, second) = (Pool::new(), Pool::new());
    let outer = first.enter();
    {
        let _inner = second.enter();
        drop(array::zeros::<u8, _>(5000));
    }
    drop(array::ones::<u8, _>(50_000));
    assert!(second.trim() >= 5000 && first.trim() >= 50_000);
    drop(outer);
    let far = std::thread::spawn(|| Pool::ambient().unwrap())
        .join()
        .unwrap();
    let here = Pool::ambient().unwrap();
    assert!(far.is_same(&here) && !here.is_same(&first));
}

#[test]
fn constructors_make_what_ndarrays_make() {
    let pool = Pool::new();
    assert_eq!(pool.arange(0, 10, 3), array![0, 3, 6, 9]);
    assert_eq!(pool.arange(5u8, 0, 1).len(), 0);
    assert_eq!(pool.arange(3, 0, -2), array![3, 1]);
    assert_eq!(pool.arange(0, 1, 0).len(), 0);
    assert_eq!(pool.linspace(0.0, 1.0, 11), Array::linspace(0.0, 1.0, 11));
    assert_eq!(pool.linspace(2.0f32, 1.0, 1), array![2.0f32]);
    assert_eq!(
        pool.from_vec((2, 3).f(), vec![1, 2, 3, 4, 5, 6]),
        Array::from_shape_vec((2, 3).f(), vec![1, 2, 3, 4, 5, 6]).unwrap()
    );
    assert_eq!(
        pool.from_iter((0..7).filter(|x| x % 3 == 0)),
        array![0, 3, 6]
    );
    let f = pool.zeros::<u16, _>((3, 4).f());
    assert_eq!(f.strides(), [1, 3]);
    assert_eq!((&f + 1).strides(), [1, 3]);
    let d = pool.zeros::<u16, _>(IxDyn(&[2, 0, 3, 1, 5, 2, 2]));
    assert_eq!(d.len(), 0);
    let uninit = pool.uninit::<f32, _>((4, 4));
    let made = uninit.init_from(&array![1.0f32, 2.0, 3.0, 4.0]).unwrap();
    assert_eq!(made.column(3), Array1::from_elem(4, 4.0f32));
    assert!(matches!(
        pool.try_from_vec(3, vec![1]).unwrap_err(),
        ArrayError::Shape { elements: 1, .. }
    ));
}

#[test]
fn a_cut_uninitialised_array_is_cleared_beyond_its_view() {
    let pool = Pool::new();
    drop(pool.full(64, 0xEEu8));
    let mut raw = pool.uninit::<u8, _>(64);
    raw.slice_collapse(s![10..20;3]);
    let array = raw.init_full(7);
    let shared = array.share();
    let whole = shared.handle().unwrap().upgrade::<u8>().unwrap();
    for (index, &byte) in whole.iter().enumerate() {
        let named = matches!(index, 10 | 13 | 16 | 19);
        assert_eq!(byte, if named { 7 } else { 0 }, "{index}");
    }
}

#[test]
fn errors_carry_their_numbers() {
    let pool = Pool::builder().limit(1 << 20).build();
    let a = pool.zeros::<f64, _>(1000);
    let error = pool.try_zeros::<f64, _>((1000, 1000)).unwrap_err();
    let ArrayError::Alloc(error) = error else {
        panic!("{error}")
    };
    assert_eq!(error.kind, AllocErrorKind::LimitExceeded);
    assert_eq!(error.limit, 1 << 20);
    let error = pool.try_zeros::<f64, _>((usize::MAX, 2)).unwrap_err();
    assert!(matches!(error, ArrayError::Alloc(e) if e.kind == AllocErrorKind::Overflow));
    let error = pool.try_zeros::<f64, _>((usize::MAX, 0, 2)).unwrap_err();
    assert!(matches!(error, ArrayError::Alloc(e) if e.kind == AllocErrorKind::Overflow));
    let outer = (&a).try_add(a.clone().insert_axis(Axis(1))).unwrap_err();
    assert!(matches!(outer, ArrayError::Alloc(_)));
    let other = pool.zeros::<f64, _>(999);
    assert_eq!(
        (&a).try_mul(&other).unwrap_err(),
        ArrayError::Broadcast {
            left: vec![1000],
            right: vec![999]
        }
    );
}

#[test]
fn into_forms_write_an_array_that_is_there() {
    let pool = Pool::new();
    let (a, b) = (pool.arange(0.0, 6.0, 1.0), pool.full(6, 2.0));
    let mut out = pool.zeros::<f64, _>((2, 6));
    (&a).mul_into(&b, &mut out).unwrap();
    assert_eq!(out.row(1), array![0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
    (&out.clone()).sqrt_into(&mut out).unwrap();
    assert_eq!(out[(0, 2)], 2.0);
    let mut heap = Array1::from_elem(6, false);
    (&a).less_into(3.0, &mut heap).unwrap();
    assert_eq!(heap, array![true, true, true, false, false, false]);
    (&a).zip_into(&b, &mut out, |x: f64, y: f64| x.max(y))
        .unwrap();
    assert_eq!(out[(1, 5)], 5.0);
    let mut narrow = pool.zeros::<f64, _>(5);
    assert!((&a).add_into(&b, &mut narrow).is_err());
}

#[test]
fn dynamic_and_fixed_dimensions_mix() {
    let pool = Pool::new();
    let fixed = pool.ones::<f64, _>((2, 3));
    let dynamic: PoolArray<f64, IxDyn> = pool.full(IxDyn(&[4, 2, 3]), 2.0);
    let sum = &fixed + dynamic;
    assert_eq!(sum, ArrayD::from_elem(IxDyn(&[4, 2, 3]), 3.0));
    let flat = sum.into_shape(24).unwrap();
    let flat: PoolArray<f64, Ix1> = flat;
    assert_eq!(flat.sum(), 72.0);
    let back = flat.into_shape(IxDyn(&[2, 12])).unwrap();
    assert!(back.clone().into_dimensionality::<Ix1>().is_err());
    assert!(back.into_dimensionality::<ndarray::Ix2>().is_ok());
}

#[test]
fn foreign_allocators_hold_arrays() {
    use ndpool::allocator::{System, Tracked};
    use std::sync::Arc;
    let node = Arc::new(Tracked::new(System));
    let mut a = PoolArray::<f32, _>::zeros_in((10, 10), node.clone()).unwrap();
    assert_eq!(node.report().live_bytes, 400);
    a += 1.0;
    // Results come from the ambient pool, unless the other operand names one.
    let (ambient, other) = (Pool::new(), Pool::new());
    let live = |pool: &Pool| -> u64 { pool.stats().classes.iter().map(|class| class.live).sum() };
    let entered = ambient.enter();
    let b = &a * 2.0;
    assert_eq!((b[(9, 9)], live(&ambient)), (2.0, 1));
    let beside = other.ones::<f32, _>((10, 10));
    let sums = [&a + &beside, &beside + &a];
    assert_eq!((live(&ambient), live(&other)), (1, 3));
    assert_eq!(sums[0], sums[1]);
    // By value, the foreign memory itself is reused.
    let place = a.as_ptr();
    let mut a = a + &beside;
    assert_eq!((a.as_ptr(), node.report().live_bytes), (place, 400));
    a.resize((20, 10)).unwrap();
    assert_eq!((a[(9, 9)], a[(10, 0)]), (2.0, 0.0));
    assert_eq!(node.report().live_bytes, 0, "grown into the ambient pool");
    assert_eq!(live(&ambient), 2);
    drop(entered);
}

#[test]
fn operands_of_every_layout_give_ndarrays_bits() {
    let pool = Pool::new();
    let whole = ramp(12, 14);
    let layouts = [
        whole
            .slice(s![..6, ..7])
            .as_standard_layout()
            .into_owned()
            .into_dyn(),
        ramp(7, 6).reversed_axes().into_dyn(),
    ];
    let views = [
        layouts[0].view(),
        layouts[1].view(),
        whole.slice(s![..;2, ..;2]).into_dyn(),
        whole.slice(s![..;-2, ..;-2]).into_dyn(),
        whole.slice(s![3..4, 5..12]).into_dyn(),
        whole.slice(s![3, 5..12]).into_dyn(),
        whole.slice(s![3, 5]).into_dyn(),
    ];
    for left in &views {
        for right in &views {
            let (x, y) = (left.to_owned(), right.to_owned());
            let Some(expected) = (left.ndim() >= right.ndim()).then(|| &x - &y) else {
                continue;
            };
            let (a, b) = (pool.from_view(left), pool.from_view(right));
            assert_eq!(bits(&(left.clone() - &b)), bits(&expected));
            assert_eq!(bits(&(&a - right)), bits(&expected));
            assert_eq!(bits(&(&a - b.clone())), bits(&expected));
            assert_eq!(bits(&(a.clone() - &b)), bits(&expected));
            assert_eq!(bits(&-(right.clone() - a.clone())), bits(&(-(&y - &x))));
            if expected.shape() == left.shape() {
                let mut assigned = a.clone();
                assigned -= right;
                assert_eq!(bits(&assigned), bits(&expected));
            }
        }
        // Cut, so that the elements are a strict part of the memory, and given by value.
        if left.ndim() == 2 && left.len() > 7 {
            let cut = |keep: bool| {
                let mut a = pool.from_view(left);
                a.slice_collapse(s![1.., ..;-1]);
                if keep { &a * 3.0 } else { a * 3.0 }
            };
            let expected = left.slice(s![1.., ..;-1]).to_owned() * 3.0;
            assert_eq!(bits(&cut(true)), bits(&expected));
            assert_eq!(bits(&cut(false)), bits(&expected));
        }
    }
    let none = pool.zeros::<f64, _>((0, 5));
    assert_eq!((&none + &none).shape(), [0, 5]);
    assert_eq!((none + 1.0).shape(), [0, 5]);
}
