//! The pipeline in scopes: formulas without a `&`, a scope a function; the denoising resets its own
//! after each step, for it would hold hundreds of planes otherwise.

use ndarray::{Array2, Axis, Ix2, Slice, s};
use ndpool::array::concatenate;
use ndpool::{ArrayError, Pool, Scope, SharedArray, Temp, scoped};

use crate::Stages;
use crate::picture::{BLUR, NEIGHBOURHOOD, STEPS, TAU, WEIGHT, gaussian};

type Plane = SharedArray<f32, Ix2>;
type Plain<'s> = Temp<'s, f32, Ix2>;

pub fn run(pool: &Pool, x: &Array2<f32>) -> Result<Stages, ArrayError> {
    let x = pool.try_from_view(x)?.share();
    let denoised = denoise(pool, &x)?;
    Ok(Stages {
        blurred: blur(pool, &x, BLUR).view().to_owned(),
        edges: sobel(pool, &denoised).view().to_owned(),
        contrast: contrast(pool, &denoised).view().to_owned(),
        denoised: denoised.view().to_owned(),
    })
}

fn lines(x: Plain<'_>, axis: Axis, lines: Slice) -> Plain<'_> {
    x.map_view(|mut view| {
        view.slice_axis_inplace(axis, lines);
        view
    })
}

/// The array with its first and last lines along `axis` repeated `reach` times.
fn padded<'s>(s: &'s Scope, x: Plain<'s>, axis: Axis, reach: usize) -> Plain<'s> {
    let first = vec![lines(x, axis, Slice::from(..1)); reach];
    let last = vec![lines(x, axis, Slice::from(-1..)); reach];
    s.add(concatenate(axis, &[first, vec![x], last].concat()))
}

#[scoped(s = pool)]
fn blur(pool: &Pool, x: &Plane, sigma: f32) -> Plane {
    let weights = gaussian(sigma);
    let mut blurred = s.lift(x);
    for axis in [Axis(0), Axis(1)] {
        let len = x.len_of(axis);
        let wide = padded(&s, blurred, axis, weights.len() / 2);
        // A sum of many terms is where a scope would hold each of them: so it is an owned array.
        let mut sum = pool.from_view(&(lines(wide, axis, Slice::from(..len)) * weights[0]));
        for (k, &weight) in weights.iter().enumerate().skip(1) {
            let term = pool.scope(|s| {
                let window = lines(s.lift(&wide), axis, Slice::from(k..k + len));
                s.returns(window * weight)
            });
            sum += term;
        }
        blurred = s.add(sum);
    }
    blurred
}

/// Total-variation denoising by Chambolle's dual iteration.
fn denoise(pool: &Pool, x: &Plane) -> Result<Plane, ArrayError> {
    let mut s = pool.open();
    let mut p = pool.try_zeros(x.raw_dim())?.share();
    let mut q = pool.try_zeros(x.raw_dim())?.share();
    for _ in 0..STEPS {
        let (x, p_, q_) = (s.lift(x), s.lift(&p), s.lift(&q));
        let u = x + divergence(&s, p_, q_);
        let (gy, gx) = (forward(&s, u, Axis(0)), forward(&s, u, Axis(1)));
        let norm = (gy * gy + gx * gx).sqrt() * (TAU / WEIGHT) + 1.0;
        let next = s.returns(((p_ + gy * TAU) / norm, (q_ + gx * TAU) / norm));
        s.reset();
        (p, q) = next;
    }
    let denoised = s.lift(x) + divergence(&s, s.lift(&p), s.lift(&q));
    s.try_returns(denoised)
}

fn divergence<'s>(s: &'s Scope, p: Plain<'s>, q: Plain<'s>) -> Plain<'s> {
    backward(s, p, Axis(0)) + backward(s, q, Axis(1))
}

/// `x[i + 1] - x[i]`, 0 at the end.
fn forward<'s>(s: &'s Scope, x: Plain<'s>, axis: Axis) -> Plain<'s> {
    let step = lines(x, axis, Slice::from(1..)) - lines(x, axis, Slice::from(..-1));
    let end = s.zeros(lines(x, axis, Slice::from(..1)).raw_dim());
    s.add(concatenate(axis, &[step, end]))
}

/// `x[i] - x[i - 1]`, `x[0]` at the start.
fn backward<'s>(s: &'s Scope, x: Plain<'s>, axis: Axis) -> Plain<'s> {
    let step = lines(x, axis, Slice::from(1..)) - lines(x, axis, Slice::from(..-1));
    s.add(concatenate(axis, &[lines(x, axis, Slice::from(..1)), step]))
}

#[scoped(s = pool)]
fn sobel(pool: &Pool, x: &Plane) -> Plane {
    let (h, w) = x.dim();
    let wide = padded(&s, padded(&s, s.lift(x), Axis(0), 1), Axis(1), 1);
    let at = |i: usize, j: usize| wide.slice(s![i..i + h, j..j + w]);
    let gx = (at(0, 2) - at(0, 0)) + (at(1, 2) - at(1, 0)) * 2.0 + (at(2, 2) - at(2, 0));
    let gy = (at(2, 0) - at(0, 0)) + (at(2, 1) - at(0, 1)) * 2.0 + (at(2, 2) - at(0, 2));
    (gx * gx + gy * gy).sqrt()
}

/// Each pixel's distance from its neighbourhood's mean, in the neighbourhood's deviations.
#[scoped(s = pool)]
fn contrast(pool: &Pool, x: &Plane) -> Plane {
    let from_mean = s.lift(x) - s.add_shared(blur(pool, x, NEIGHBOURHOOD));
    let square = s.returns(from_mean * from_mean);
    let variance = s.add_shared(blur(pool, &square, NEIGHBOURHOOD));
    from_mean / (variance.sqrt() * 4.0 + 0.02) + 0.5
}
