//! The pipeline with pooled owned arrays: each temporary goes back at its last use, or is the next
//! result's memory. Views have ndarray's operators, which give heap arrays; `try_sub` and its kin
//! give pooled ones, here in the pool that `main` has entered.

use ndarray::{Array2, ArrayView2, Axis, Ix2, Slice, s};
use ndpool::array::{Elementwise, Functions, from_view, try_concatenate, zeros};
use ndpool::{ArrayError, PoolArray};

use crate::Stages;
use crate::picture::{BLUR, NEIGHBOURHOOD, STEPS, TAU, WEIGHT, gaussian};

type Plane = PoolArray<f32, Ix2>;

pub fn run(x: &Array2<f32>) -> Result<Stages, ArrayError> {
    let x = from_view(x);
    let denoised = denoise(&x)?;
    Ok(Stages {
        blurred: blur(&x, BLUR)?.view().to_owned(),
        edges: sobel(&denoised)?.view().to_owned(),
        contrast: contrast(&denoised)?.view().to_owned(),
        denoised: denoised.view().to_owned(),
    })
}

/// The array with its first and last lines along `axis` repeated `reach` times.
fn padded(x: ArrayView2<'_, f32>, axis: Axis, reach: usize) -> Result<Plane, ArrayError> {
    let mut edge = x.raw_dim();
    edge[axis.index()] = reach;
    let first = x.slice_axis(axis, Slice::from(..1));
    let last = x.slice_axis(axis, Slice::from(-1..));
    let (first, last) = (
        first.broadcast(edge).unwrap(),
        last.broadcast(edge).unwrap(),
    );
    try_concatenate(axis, &[first, x, last])
}

fn blur(x: &Plane, sigma: f32) -> Result<Plane, ArrayError> {
    let weights = gaussian(sigma);
    let mut blurred = x.try_clone()?;
    for axis in [Axis(0), Axis(1)] {
        let len = x.len_of(axis);
        let wide = padded(blurred.view(), axis, weights.len() / 2)?;
        let window = |k: usize| wide.slice_axis(axis, Slice::from(k..k + len));
        blurred = window(0).try_mul(weights[0])?;
        for (k, &weight) in weights.iter().enumerate().skip(1) {
            blurred += window(k).try_mul(weight)?;
        }
    }
    Ok(blurred)
}

/// Total-variation denoising by Chambolle's dual iteration.
fn denoise(x: &Plane) -> Result<Plane, ArrayError> {
    let (mut p, mut q): (Plane, Plane) = (zeros(x.raw_dim()), zeros(x.raw_dim()));
    for _ in 0..STEPS {
        let u = x + divergence(&p, &q)?;
        let (gy, gx) = (forward(&u, Axis(0))?, forward(&u, Axis(1))?);
        let norm = (&gy * &gy + &gx * &gx).sqrt() * (TAU / WEIGHT) + 1.0;
        p = (p + gy * TAU) / &norm;
        q = (q + gx * TAU) / norm;
    }
    Ok(x + divergence(&p, &q)?)
}

fn divergence(p: &Plane, q: &Plane) -> Result<Plane, ArrayError> {
    Ok(backward(p, Axis(0))? + backward(q, Axis(1))?)
}

/// `x[i + 1] - x[i]`, 0 at the end.
fn forward(x: &Plane, axis: Axis) -> Result<Plane, ArrayError> {
    let next = x.slice_axis(axis, Slice::from(1..));
    let step = next.try_sub(x.slice_axis(axis, Slice::from(..-1)))?;
    let end = zeros(x.slice_axis(axis, Slice::from(..1)).raw_dim());
    try_concatenate(axis, &[step, end])
}

/// `x[i] - x[i - 1]`, `x[0]` at the start.
fn backward(x: &Plane, axis: Axis) -> Result<Plane, ArrayError> {
    let start = x.slice_axis(axis, Slice::from(..1));
    let next = x.slice_axis(axis, Slice::from(1..));
    let step = next.try_sub(x.slice_axis(axis, Slice::from(..-1)))?;
    try_concatenate(axis, &[start, step.view()])
}

fn sobel(x: &Plane) -> Result<Plane, ArrayError> {
    let (h, w) = x.dim();
    let tall = padded(x.view(), Axis(0), 1)?;
    let wide = padded(tall.view(), Axis(1), 1)?;
    let at = |i: usize, j: usize| wide.slice(s![i..i + h, j..j + w]);
    let less =
        |to: (usize, usize), from: (usize, usize)| at(to.0, to.1).try_sub(at(from.0, from.1));
    let gx = less((0, 2), (0, 0))? + less((1, 2), (1, 0))? * 2.0 + less((2, 2), (2, 0))?;
    let gy = less((2, 0), (0, 0))? + less((2, 1), (0, 1))? * 2.0 + less((2, 2), (0, 2))?;
    (&gx * &gx + &gy * &gy).try_sqrt()
}

/// Each pixel's distance from its neighbourhood's mean, in the neighbourhood's deviations.
fn contrast(x: &Plane) -> Result<Plane, ArrayError> {
    let from_mean = x - blur(x, NEIGHBOURHOOD)?;
    let variance = blur(&(&from_mean * &from_mean), NEIGHBOURHOOD)?;
    Ok(from_mean / (variance.sqrt() * 4.0 + 0.02) + 0.5)
}
