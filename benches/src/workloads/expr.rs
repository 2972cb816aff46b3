//! `(a + b) * d` with temporaries from each contender. Each has to give ndarray's result, bit for bit; that is looked at after
//! the measurement, whose peak it would raise.

use ndarray::{Array1, ArrayRef, ArrayView1, ArrayViewMut1, Ix1, Zip};

use crate::case::{ARRAYS, Case, Visit, Workload, allocators_and, visit};
use crate::contender::Contender;
use crate::measure::{Budget, Sample, alone};

/// The expression at several lengths.
pub const EXPR: Workload = Workload {
    name: "expr",
    title: "(a + b) * d on f64 arrays by ndarray's loops, both temporaries fresh from each contender (ndpool: its buffers; arrays: its owned arrays by operators, whose sum is the product's memory; scoped: the same in a scope per expression; reused: outputs kept by hand, the bound; ndarray: its own operators on glibc)",
    op: "expression",
    cases: || {
        let contenders = allocators_and([ARRAYS, SCOPED, REUSED, OPERATORS]);
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

const SCOPED: &str = "scoped";
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

    /// # Panics
    /// If `product` is not what ndarray's operators give, bit for bit.
    fn check(&self, product: &[f64]) {
        let expected = &(&self.a + &self.b) * &self.d;
        let same = |(x, y): (&f64, &f64)| x.to_bits() == y.to_bits();
        assert!(
            product.len() == expected.len() && product.iter().zip(&expected).all(same),
            "not ndarray's result"
        );
    }
}

/// What dense arrays hold.
fn elements(product: &ArrayRef<f64, Ix1>) -> &[f64] {
    product.as_slice().expect("results lie dense")
}

fn run(case: &Case, contender: &str, budget: Budget) -> Option<Sample> {
    let operands = Operands::of(case);
    let Operands { a, b, d } = &operands;
    match contender {
        REUSED => {
            let (mut sum, mut product) = (Array1::zeros(a.len()), Array1::zeros(a.len()));
            let mut once = || {
                add(sum.view_mut(), a.view(), b.view());
                multiply(product.view_mut(), sum.view(), d.view());
                std::hint::black_box(product.as_ptr());
            };
            let sample = alone(budget, |ops| (0..ops).for_each(|_| once()));
            operands.check(elements(&product));
            Some(sample)
        }
        ARRAYS => {
            let pool = ndpool::Pool::new();
            let (x, y, z) = (pool.from_view(a), pool.from_view(b), pool.from_view(d));
            let sample = alone(budget, |ops| {
                for _ in 0..ops {
                    let product = (&x + &y) * &z;
                    std::hint::black_box(product.as_ptr());
                }
            });
            operands.check(elements(&((&x + &y) * &z)));
            Some(sample)
        }
        SCOPED => {
            let pool = ndpool::Pool::new();
            let (x, y, z) = (pool.from_view(a), pool.from_view(b), pool.from_view(d));
            let sample = alone(budget, |ops| {
                for _ in 0..ops {
                    let s = pool.open();
                    let (x, y, z) = (s.lift(&x), s.lift(&y), s.lift(&z));
                    let product = (x + y) * z;
                    std::hint::black_box(product.as_ptr());
                }
            });
            pool.scope(|s| operands.check(elements(&((s.lift(&x) + &y) * &z))));
            Some(sample)
        }
        OPERATORS => Some(alone(budget, |ops| {
            for _ in 0..ops {
                let sum = a + b;
                let product = &sum * d;
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
        let it: &'static C = self.case.start(2);
        let Operands { a, b, d } = &self.operands;
        let bytes = self.case.size;
        let product_of = || {
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
            product
        };
        let sample = alone(self.budget, |ops| {
            for _ in 0..ops {
                it.free(product_of());
            }
        });
        let mut last = product_of();
        self.operands
            .check(elements(&array::<C>(&mut last, a.len())));
        it.free(last);
        sample
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
