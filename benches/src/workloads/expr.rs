//! `(a + b) * d` with temporaries from each contender.

use ndarray::{Array1, ArrayView1, ArrayViewMut1, Zip};

use crate::case::{ALLOCATORS, Case, Visit, Workload, visit};
use crate::contender::{Contender, Setup, start};
use crate::measure::{Budget, Sample, alone};

/// The expression at several lengths.
pub const EXPR: Workload = Workload {
    name: "expr",
    title: "(a + b) * d on f64 arrays by ndarray's loops, both temporaries fresh from each contender (reused: by hand, the bound; ndarray: its own operators on glibc; arrays: ndpool's owned arrays, whose sum is the product's memory)",
    op: "expression",
    cases: || {
        let contenders: Vec<_> = ALLOCATORS
            .into_iter()
            .chain([ARRAYS, REUSED, OPERATORS])
            .collect();
        [1_000, 3_000, 10_000, 100_000, 1_000_000, 10_000_000]
            .map(|n| {
                let quick = n == 100_000 || n == 1_000_000;
                Case {
                    quick,
                    ..Case::of(format!("n = {n}"), n * size_of::<f64>(), &contenders)
                }
            })
            .to_vec()
    },
    run,
};

const ARRAYS: &str = "arrays";
const REUSED: &str = "reused";
const OPERATORS: &str = "ndarray";

/// The operands.
struct Operands {
    a: Array1<f64>,
    b: Array1<f64>,
    d: Array1<f64>,
}

impl Operands {
    fn of(case: &Case) -> Self {
        let n = case.size / size_of::<f64>();
        let ramp = |step: f64| Array1::from_shape_fn(n, |index| index as f64 * step);
        Self {
            a: ramp(0.5),
            b: ramp(0.25),
            d: ramp(2.0),
        }
    }
}

fn run(case: &Case, contender: &str, budget: Budget) -> Option<Sample> {
    let operands = Operands::of(case);
    match contender {
        REUSED => {
            let (mut sum, mut product) = (
                Array1::zeros(operands.a.len()),
                Array1::zeros(operands.a.len()),
            );
            Some(alone(budget, |ops| {
                for _ in 0..ops {
                    add(sum.view_mut(), operands.a.view(), operands.b.view());
                    multiply(product.view_mut(), sum.view(), operands.d.view());
                    std::hint::black_box(product.as_ptr());
                }
            }))
        }
        ARRAYS => {
            let pool = ndpool::Pool::new();
            let a = pool.from_view(&operands.a);
            let b = pool.from_view(&operands.b);
            let d = pool.from_view(&operands.d);
            Some(alone(budget, |ops| {
                for _ in 0..ops {
                    let product = (&a + &b) * &d;
                    std::hint::black_box(product.as_ptr());
                }
            }))
        }
        OPERATORS => Some(alone(budget, |ops| {
            for _ in 0..ops {
                let sum = &operands.a + &operands.b;
                let product = &sum * &operands.d;
                std::hint::black_box(product.as_ptr());
            }
        })),
        _ => visit(
            contender,
            Fresh {
                case,
                operands,
                budget,
            },
        ),
    }
}

struct Fresh<'a> {
    case: &'a Case,
    operands: Operands,
    budget: Budget,
}

impl Visit for Fresh<'_> {
    type Output = Sample;

    fn with<C: Contender>(self) -> Sample {
        let it: &'static C = start(Setup {
            size: self.case.size,
            live: 2,
        });
        let Operands { a, b, d } = &self.operands;
        let bytes = self.case.size;
        alone(self.budget, |ops| {
            for _ in 0..ops {
                let mut sum = it.allocate(bytes);
                add(array::<C>(&mut sum, a.len()), a.view(), b.view());
                let mut product = it.allocate(bytes);
                multiply(
                    array::<C>(&mut product, a.len()),
                    array::<C>(&mut sum, a.len()).view(),
                    d.view(),
                );
                std::hint::black_box(C::address(&mut product));
                it.free(sum);
                it.free(product);
            }
        })
    }
}

/// A block as an array of `len` numbers, to be written before it is read.
fn array<C: Contender>(block: &mut C::Block, len: usize) -> ArrayViewMut1<'_, f64> {
    let start = C::address(block).cast();
    // SAFETY: the block has `len` times eight bytes at an alignment of 16, is borrowed for the view's lifetime, and any
    // bits are an `f64`; `add` and `multiply` write their first argument whole and read none of it.
    unsafe { ArrayViewMut1::from_shape_ptr(len, start) }
}

#[inline(never)]
fn add(out: ArrayViewMut1<'_, f64>, x: ArrayView1<'_, f64>, y: ArrayView1<'_, f64>) {
    Zip::from(out)
        .and(x)
        .and(y)
        .for_each(|out, x, y| *out = x + y);
}

#[inline(never)]
fn multiply(out: ArrayViewMut1<'_, f64>, x: ArrayView1<'_, f64>, y: ArrayView1<'_, f64>) {
    Zip::from(out)
        .and(x)
        .and(y)
        .for_each(|out, x, y| *out = x * y);
}
