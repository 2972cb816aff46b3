//! A function of arrays, called again and again: a scope for each call, beside owned arrays and ndarray's own.

use std::hint::black_box;

use ndarray::Array1;

use crate::case::{ARRAYS, Case, OURS, Workload};
use crate::measure::{Budget, Sample, alone};

/// A scope per call.
pub const SCOPE: Workload = Workload {
    name: "scope",
    title: "x / sqrt(x * x + y * y) as a function: a scope per call, whose result is returned from it (arrays: owned arrays; ndarray: its own operators on glibc)",
    op: "call",
    cases: || {
        [16, 100, 1_000, 10_000, 100_000]
            .map(|n| Case {
                quick: n == 1_000,
                ..Case::of(
                    format!("n = {n}"),
                    n * size_of::<f64>(),
                    &[OURS, ARRAYS, OPERATORS],
                )
            })
            .to_vec()
    },
    run,
};

const OPERATORS: &str = "ndarray";

fn run(case: &Case, contender: &str, budget: Budget) -> Option<Sample> {
    let n = case.size / size_of::<f64>();
    let ramp = |step: f64| Array1::from_shape_fn(n, |index| 1.0 + index as f64 * step);
    let (x, y) = (ramp(0.5), ramp(0.25));
    let expected = on_heap(&x, &y);
    let same = |result: &[f64]| assert_eq!(result, expected.as_slice().expect("dense"));
    let pool = ndpool::Pool::new();
    let (a, b) = (pool.from_view(&x), pool.from_view(&y));
    match contender {
        OURS => {
            let call = || {
                pool.scope(|s| {
                    let (x, y) = (s.lift(&a), s.lift(&b));
                    s.returns(x / (x * x + y * y).sqrt())
                })
            };
            same(call().as_slice().expect("dense"));
            Some(alone(budget, |ops| {
                (0..ops).for_each(|_| drop(black_box(call())))
            }))
        }
        ARRAYS => {
            let call = || &a / (&a * &a + &b * &b).sqrt();
            same(call().as_slice().expect("dense"));
            Some(alone(budget, |ops| {
                (0..ops).for_each(|_| drop(black_box(call())))
            }))
        }
        OPERATORS => Some(alone(budget, |ops| {
            (0..ops).for_each(|_| drop(black_box(on_heap(&x, &y))))
        })),
        _ => None,
    }
}

fn on_heap(x: &Array1<f64>, y: &Array1<f64>) -> Array1<f64> {
    x / (x * x + y * y).mapv_into(f64::sqrt)
}
