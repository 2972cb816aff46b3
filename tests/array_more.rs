//! Reductions, products and joins against ndarray's, and a balance sweep over every operation.
#![cfg(feature = "ndarray")]

use ndarray::{Array2, Array3, Axis, Ix1, Ix2, array, s};
use ndpool::array::{self, Elementwise, Functions, Reduce};
use ndpool::{ArrayError, Disposable, Pool, PoolArray, SharedArray};

fn cube() -> Array3<f64> {
    Array3::from_shape_fn((4, 5, 6), |(i, j, k)| {
        (i as f64 - 1.3) * 1.7 + (j as f64 + 0.1).sqrt() - k as f64 / 7.0
    })
}

fn bits<D: ndarray::Dimension>(array: &ndarray::ArrayRef<f64, D>) -> Vec<u64> {
    array.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn reductions_equal_ndarrays_bit_for_bit() {
    let pool = Pool::new();
    let whole = cube();
    let views = [
        whole.view(),
        whole.view().reversed_axes(),
        whole.slice(s![..;-1, 1.., ..;2]),
    ];
    for view in views {
        let a = pool.from_view(&view);
        let like = a.view().to_owned();
        for axis in (0..3).map(Axis) {
            assert_eq!(bits(&a.sum_axis(axis)), bits(&like.sum_axis(axis)));
            assert_eq!(bits(&a.product_axis(axis)), bits(&like.product_axis(axis)));
            assert_eq!(
                bits(&a.mean_axis(axis)),
                bits(&like.mean_axis(axis).unwrap())
            );
            assert_eq!(
                bits(&Reduce::try_sum_axis(&view, axis).unwrap()),
                bits(&view.sum_axis(axis))
            );
            let least = like.map_axis(axis, |lane| lane.fold(f64::INFINITY, |a, &b| a.min(b)));
            assert_eq!(bits(&a.min_axis(axis)), bits(&least));
            let most = like.map_axis(axis, |lane| lane.fold(f64::NEG_INFINITY, |a, &b| a.max(b)));
            assert_eq!(bits(&a.clone().share().max_axis(axis)), bits(&most));
            let spread = a.var_axis(axis, 1.0);
            let gap = &spread - &like.var_axis(axis, 1.0);
            assert!(gap.iter().all(|gap| gap.abs() < 1e-12));
        }
        assert!(matches!(
            Reduce::<f64>::try_sum_axis(&a, Axis(3)),
            Err(ArrayError::Axis { ndim: 3, .. })
        ));
    }
    let none = pool.zeros::<f64, _>((0, 3));
    assert_eq!(none.sum_axis(Axis(0)), array![0.0, 0.0, 0.0]);
    assert!(Reduce::<f64>::try_min_axis(&none, Axis(0)).is_err());
}

#[test]
fn products_equal_ndarrays_bit_for_bit() {
    let pool = Pool::new();
    let a = Array2::from_shape_fn((17, 23), |(i, j)| (i as f64 + 0.3) / (j as f64 + 1.1));
    let b = Array2::from_shape_fn((23, 9), |(i, j)| (i as f64).sin() - j as f64);
    let (x, y) = (pool.from_view(&a), pool.from_view(&b));
    assert_eq!(bits(&x.matmul(&y)), bits(&a.dot(&b)));
    let turned = array::matmul(b.t(), a.t());
    assert_eq!(bits(&turned), bits(&b.t().dot(&a.t())));
    assert_eq!(turned.strides(), b.t().dot(&a.t()).strides());
    let v = pool.linspace(0.0, 1.0, 23);
    let w = pool.linspace(0.0, 1.0, 17);
    assert_eq!(bits(&x.matmul(&v)), bits(&a.dot(&v.view())));
    assert_eq!(bits(&w.matmul(&x)), bits(&w.view().dot(&a)));
    assert!(array::try_matmul(&x, &x).is_err());
    assert!(array::try_matmul(&x, &w).is_err());
    assert!(array::try_matmul(&v, &x).is_err());
}

#[test]
fn joins_equal_ndarrays() {
    let pool = Pool::new();
    let (a, b) = (cube(), cube() * 2.0);
    let (x, y) = (pool.from_view(&a), pool.from_view(&b).share());
    for axis in (0..3).map(Axis) {
        let expected = ndarray::concatenate(axis, &[a.view(), b.view()]).unwrap();
        assert_eq!(array::concatenate(axis, &[x.view(), y.view()]), expected);
    }
    for axis in (0..4).map(Axis) {
        let expected = ndarray::stack(axis, &[a.view(), b.view()]).unwrap();
        assert_eq!(array::stack(axis, &[x.view(), y.view()]), expected);
    }
    let short = pool.zeros::<f64, _>((4, 5, 5));
    assert!(array::try_concatenate(Axis(0), &[&x, &short]).is_err());
    assert_eq!(
        array::concatenate(Axis(2), &[&x, &short]).shape(),
        [4, 5, 11]
    );
    assert!(array::try_stack(Axis(0), &[&x, &short]).is_err());
    assert!(matches!(
        array::try_stack(Axis(4), &[&x]),
        Err(ArrayError::Axis { .. })
    ));
    assert!(matches!(
        array::try_concatenate::<f64, &PoolArray<f64, Ix1>>(Axis(0), &[]),
        Err(ArrayError::NothingToJoin)
    ));
}

// The balance sweep.

/// Operands of the sweep.
struct Operands {
    pool: Pool,
    a: PoolArray<f64, Ix2>,
    b: PoolArray<f64, Ix2>,
    row: PoolArray<f64, Ix1>,
    ints: PoolArray<u32, Ix2>,
    few: PoolArray<u32, Ix2>,
    shared: SharedArray<f64, Ix2>,
    disposable: Disposable<f64, Ix2>,
}

impl Operands {
    fn new() -> Self {
        let pool = Pool::new();
        let square = |scale: f64| {
            pool.from_shape_fn((8, 8), move |(i, j)| {
                scale * (1.0 + i as f64 * 8.0 + j as f64)
            })
        };
        Self {
            a: square(1.0),
            b: square(0.5),
            row: pool.linspace(1.0, 2.0, 8),
            ints: pool.from_shape_fn((8, 8), |(i, j)| (i * 8 + j) as u32),
            few: pool.from_shape_fn((8, 8), |(i, j)| (i + j) as u32 % 7),
            shared: square(2.0).share(),
            disposable: Disposable::new(square(3.0)).unwrap(),
            pool,
        }
    }

    /// Everything that an operation must leave as it was.
    fn state(&self) -> (Vec<u64>, Vec<u32>, u32, bool) {
        let mut elements = bits(&self.a);
        elements.extend(bits(&self.b));
        elements.extend(bits(&self.row));
        elements.extend(bits(&self.shared));
        let kept = self.disposable.get();
        let owners = kept.as_ref().map_or(0, SharedArray::owners);
        elements.extend(kept.iter().flat_map(|kept| bits(kept)));
        (
            elements,
            self.ints.iter().chain(&self.few).copied().collect(),
            self.shared.owners() * 100 + owners,
            self.disposable.is_disposed(),
        )
    }

    fn live(&self) -> i64 {
        let classes = self.pool.stats().classes;
        classes.iter().map(|class| class.live as i64).sum()
    }
}

/// What an operation gave, as bits.
fn seen<T: ndpool::Element + num_traits::ToPrimitive, D: ndarray::Dimension>(
    array: &ndarray::ArrayRef<T, D>,
) -> Vec<u64> {
    let bits = |x: &T| x.to_f64().map_or(0, f64::to_bits);
    array.iter().map(bits).collect()
}

type Operation = (&'static str, Box<dyn Fn(&Operands) -> Vec<u64>>);

/// Runs an operation `repeats` times; the blocks that it kept in all, or what else is wrong.
fn drift(operands: &Operands, operation: &Operation, repeats: i64) -> Result<i64, String> {
    let (name, run) = operation;
    let first = run(operands);
    let (before, state) = (operands.live(), operands.state());
    for _ in 0..repeats {
        if run(operands) != first {
            return Err(format!("{name}: a second call gives something else"));
        }
    }
    if operands.state() != state {
        return Err(format!("{name}: an operand was changed or disposed"));
    }
    Ok(operands.live() - before)
}

/// The sweep of one operation: blocks kept per call must be exactly 0, by two numbers of repeats.
fn sweep(operation: &Operation) -> Result<(), String> {
    let operands = Operands::new();
    let state = operands.state();
    let slope = drift(&operands, operation, 20)? - drift(&operands, operation, 10)?;
    if operands.state() != state {
        return Err(format!(
            "{}: the first call changed an operand",
            operation.0
        ));
    }
    if slope != 0 {
        return Err(format!(
            "{}: keeps {} blocks per call",
            operation.0,
            slope / 10
        ));
    }
    operands.pool.audit().map(|_| ()).map_err(|e| e.to_string())
}

macro_rules! operations {
    ($(|$it:ident| $run:expr),* $(,)?) => {
        vec![$((stringify!($run), Box::new(|$it: &Operands| seen(&$run)) as Box<dyn Fn(&Operands) -> Vec<u64>>)),*]
    };
}

fn operations() -> Vec<Operation> {
    let mut all: Vec<Operation> = operations![
        |o| &o.a + &o.b,
        |o| &o.a - &o.row,
        |o| &o.a * 2.0,
        |o| 2.0 / &o.a,
        |o| &o.a % &o.b,
        |o| o.a.clone() + &o.b,
        |o| &o.a - o.b.clone(),
        |o| o.a.clone() * o.row.clone(),
        |o| &o.shared + &o.a,
        |o| o.shared.clone() * 2.0,
        |o| 1.0 - &o.shared,
        |o| o.a.view() + &o.b,
        |o| &o.a + o.b.view(),
        |o| -&o.a,
        |o| -o.a.clone(),
        |o| (&o.a + &o.b) * &o.row - 1.0,
        |o| &o.ints & 7,
        |o| &o.ints | (&o.ints << 1),
        |o| 3u32 ^ &o.ints,
        |o| &o.ints << 1,
        |o| &o.ints >> 2,
        |o| !&o.ints,
        |o| {
            let mut x = o.a.clone();
            x += &o.b;
            x -= 1.0;
            x *= &o.row;
            x /= 3.0;
            x %= 2.0;
            x
        },
        |o| {
            let mut x = o.ints.clone();
            x &= 7;
            x |= 8;
            x ^= 3;
            x <<= 1;
            x >>= 2;
            x
        },
        |o| (&o.a).less(&o.b).map(u8::from),
        |o| (&o.a).greater_equal(3.0).map(u8::from),
        |o| (&o.a).equal(&o.b).map(u8::from),
        |o| (&o.a).not_equal(&o.b).map(u8::from),
        |o| (&o.a).less_equal(&o.row).map(u8::from),
        |o| (&o.a).greater(&o.b).map(u8::from),
        |o| (&o.a).sqrt(),
        |o| o.a.clone().exp(),
        |o| (&o.a).tanh(),
        |o| (&o.shared).ln(),
        |o| o.a.map(|x| x * x),
        |o| o.shared.map(|x| x + 1.0),
        |o| o.a.clone().apply(|x| x - 1.0),
        |o| (&o.a).zip_with(&o.ints, |x: f64, n: u32| x * f64::from(n)),
        |o| (&o.a).try_add(&o.b).unwrap(),
        |o| (&o.a).try_sub(&o.row).unwrap(),
        |o| (&o.a).try_neg().unwrap(),
        |o| (&o.a).try_apply(f64::cos).unwrap(),
        |o| {
            let mut x = o.a.clone();
            (&o.a).mul_into(&o.b, &mut x).unwrap();
            x
        },
        |o| {
            let mut x = o.a.clone();
            (&o.b).sqrt_into(&mut x).unwrap();
            x
        },
        |o| {
            let mut x = o.a.clone();
            (&o.b).zip_into(&o.a, &mut x, f64::max).unwrap();
            x
        },
        |o| o.a.sum_axis(Axis(0)),
        |o| o.a.sum_axis(Axis(1)),
        |o| o.a.product_axis(Axis(0)),
        |o| o.a.mean_axis(Axis(1)),
        |o| o.a.var_axis(Axis(0), 0.0),
        |o| o.a.min_axis(Axis(0)),
        |o| o.a.max_axis(Axis(1)),
        |o| o.a.try_map_axis(Axis(0), |lane| lane.sum()).unwrap(),
        |o| o.a.matmul(&o.b),
        |o| o.a.matmul(&o.row),
        |o| o.row.matmul(&o.a),
        |o| array::concatenate(Axis(0), &[&o.a, &o.b]),
        |o| array::stack(Axis(2), &[&o.a, &o.b]),
        |o| o.a.clone(),
        |o| o.a.clone().into_shape(64).unwrap(),
        |o| o.a.clone().reversed_axes().into_shape((4, 16)).unwrap(),
        |o| {
            let mut x = o.a.clone();
            x.resize((9, 9)).unwrap();
            x
        },
        |o| {
            let mut x = o.a.clone();
            x.resize((3, 2)).unwrap();
            x
        },
        |o| o.a.clone().slice_move(s![1..3, ..;2]),
        |o| o.a.clone().insert_axis(Axis(0)),
        |o| o.a.clone().index_axis_move(Axis(1), 3),
        |o| o.a.clone().into_dimensionality::<ndarray::IxDyn>().unwrap(),
        |o| o.pool.zeros::<f64, _>((3, 3)),
        |o| o.pool.ones::<f64, _>(9),
        |o| o.pool.full(4, 2.0),
        |o| o.pool.arange(0.0, 5.0, 0.5),
        |o| o.pool.linspace(0.0, 1.0, 7),
        |o| o.pool.from_vec((2, 2), vec![1.0, 2.0, 3.0, 4.0]),
        |o| o.pool.from_slice(2, &[1.0, 2.0]),
        |o| o.pool.from_iter((0..9).map(f64::from)),
        |o| o.pool.from_view(&o.a),
        |o| o.pool.from_shape_fn((2, 3), |(i, j)| (i + j) as f64),
        |o| o.pool.uninit::<f64, _>((8, 8)).init_from(&o.a).unwrap(),
        |o| o.pool.uninit::<f64, _>(5).init_with(|i| i as f64),
        |o| o.pool.uninit::<f64, _>(5).init_full(2.0),
        |o| o.a.clone().share(),
        |o| o.shared.clone(),
        |o| o.shared.slice(s![1.., ..;2]),
        |o| o.shared.t(),
        |o| o.shared.permute(&[1, 0]).unwrap(),
        |o| o.shared.reversed(Axis(0)).unwrap(),
        |o| o.shared.reshape(64).unwrap(),
        |o| o.shared.t().reshape(64).unwrap(),
        |o| o.shared.broadcast((2, 8, 8)).unwrap(),
        |o| o.shared.diagonal(),
        |o| o.shared.map_view(|v| v.slice_move(s![2, ..])).unwrap(),
        |o| o.shared.reinterpret::<u64>().unwrap(),
        |o| o.shared.try_copy().unwrap(),
        |o| o.shared.clone().into_unique().unwrap(),
        |o| o.a.clone().share().try_unique().unwrap(),
        |o| {
            let mut x = o.shared.clone();
            x.make_mut().unwrap().fill(1.0);
            x
        },
        |o| {
            let mut x = o.shared.clone();
            x.resize_detached((2, 2)).unwrap();
            x
        },
        |o| {
            let mut x = o.a.clone().share();
            x.resize((4, 16)).unwrap();
            x
        },
        |o| o.disposable.get().unwrap(),
        |o| {
            let x = o.disposable.share().unwrap();
            x.dispose();
            o.a.clone()
        },
        |o| o.pool.scope(|s| {
            let x = s.lift(&o.a);
            s.returns((x + 1.0) * x)
        }),
        |o| o.pool.scope(|s| {
            let x = s.add(o.a.clone());
            s.returns((x, x - 1.0)).1
        }),
        |o| o
            .pool
            .scope(|s| s.returns(s.lift(&o.a).matmul(s.lift(&o.b)).sum_axis(Axis(0)))),
        |o| o.pool.scope(|s| {
            let x = s.add_shared(o.shared.clone());
            s.returns(x.t())
        }),
    ];
    // The forms of each are one macro's, and stand above; here is every name.
    macro_rules! functions {
        ($($name:ident $into:ident)*) => {
            all.extend(operations![$(
                |o| (&o.a).$name(),
                |o| {
                    let mut x = o.a.clone();
                    (&o.b).$into(&mut x).unwrap();
                    x
                },
            )*]);
        };
    }
    functions! {
        abs abs_into sqrt sqrt_into cbrt cbrt_into recip recip_into exp exp_into exp2 exp2_into
        exp_m1 exp_m1_into ln ln_into ln_1p ln_1p_into log2 log2_into log10 log10_into
        sin sin_into cos cos_into tan tan_into asin asin_into acos acos_into atan atan_into
        sinh sinh_into cosh cosh_into tanh tanh_into floor floor_into ceil ceil_into
        round round_into trunc trunc_into fract fract_into signum signum_into
    }
    macro_rules! binary {
        ($left:ident $right:ident: $($try_name:ident $into:ident $assign:ident)*) => {
            all.extend(operations![$(
                |o| (&o.$left).$try_name(&o.$right).unwrap(),
                |o| {
                    let mut x = o.$left.clone();
                    (&o.$left).$into(&o.$right, &mut x).unwrap();
                    x.$assign(&o.$right).unwrap();
                    x
                },
            )*]);
        };
    }
    binary! { a row:
        try_add add_into try_add_assign try_sub sub_into try_sub_assign
        try_mul mul_into try_mul_assign try_div div_into try_div_assign
        try_rem rem_into try_rem_assign
    }
    binary! { ints few:
        try_bitand bitand_into try_bitand_assign try_bitor bitor_into try_bitor_assign
        try_bitxor bitxor_into try_bitxor_assign try_shl shl_into try_shl_assign
        try_shr shr_into try_shr_assign
    }
    macro_rules! comparisons {
        ($($try_name:ident $into:ident)*) => {
            all.extend(operations![$(
                |o| {
                    let mut out = (&o.a).$try_name(&o.row).unwrap();
                    (&o.a).$into(&o.b, &mut out).unwrap();
                    out.map(u8::from)
                },
            )*]);
        };
    }
    comparisons! {
        try_equal equal_into try_not_equal not_equal_into try_less less_into
        try_less_equal less_equal_into try_greater greater_into
        try_greater_equal greater_equal_into
    }
    // Errors balance as well.
    all.push((
        "errors",
        Box::new(|o| {
            assert!((&o.a).try_add(&o.pool.zeros::<f64, _>(7)).is_err());
            assert!(o.a.clone().into_shape(3).is_err());
            assert!(o.shared.reshape(3).is_err());
            assert!(o.shared.clone().resize(3.into_dim()).is_err());
            assert!(o.shared.clone().try_unique().is_err());
            assert!(array::try_stack(Axis(9), &[&o.a]).is_err());
            Vec::new()
        }),
    ));
    all
}

trait IntoDim {
    fn into_dim(self) -> (usize, usize);
}

impl IntoDim for usize {
    fn into_dim(self) -> (usize, usize) {
        (self, self)
    }
}

#[test]
fn every_operation_gives_back_what_it_takes() {
    let operations = operations();
    assert!(operations.len() > 180, "{}", operations.len());
    for operation in &operations {
        sweep(operation).unwrap();
    }
}

#[test]
fn the_sweep_catches_a_planted_leak() {
    let leak: Operation = (
        "leak",
        Box::new(|o| {
            std::mem::forget(&o.a + 1.0);
            Vec::new()
        }),
    );
    assert_eq!(sweep(&leak).unwrap_err(), "leak: keeps 1 blocks per call");
}

#[test]
fn the_sweep_catches_a_planted_dispose() {
    let dispose: Operation = (
        "dispose",
        Box::new(|o| {
            o.disposable.dispose();
            Vec::new()
        }),
    );
    let caught = sweep(&dispose).unwrap_err();
    assert_eq!(caught, "dispose: the first call changed an operand");
}
