//! The pipeline with ndarray alone: every temporary is a fresh heap array.

use ndarray::{Array2, ArrayView2, Axis, Slice, concatenate, s};

use crate::Stages;
use crate::picture::{BLUR, NEIGHBOURHOOD, STEPS, TAU, WEIGHT, gaussian};

pub fn run(x: &Array2<f32>) -> Stages {
    let denoised = denoise(x);
    Stages {
        blurred: blur(x, BLUR),
        edges: sobel(&denoised),
        contrast: contrast(&denoised),
        denoised,
    }
}

/// The array with its first and last lines along `axis` repeated `reach` times.
fn padded(x: ArrayView2<'_, f32>, axis: Axis, reach: usize) -> Array2<f32> {
    let mut edge = x.raw_dim();
    edge[axis.index()] = reach;
    let first = x.slice_axis(axis, Slice::from(..1));
    let last = x.slice_axis(axis, Slice::from(-1..));
    let (first, last) = (
        first.broadcast(edge).unwrap(),
        last.broadcast(edge).unwrap(),
    );
    concatenate(axis, &[first, x, last]).unwrap()
}

fn blur(x: &Array2<f32>, sigma: f32) -> Array2<f32> {
    let weights = gaussian(sigma);
    let mut blurred = x.to_owned();
    for axis in [Axis(0), Axis(1)] {
        let len = x.len_of(axis);
        let wide = padded(blurred.view(), axis, weights.len() / 2);
        blurred = &wide.slice_axis(axis, Slice::from(..len)) * weights[0];
        for (k, &weight) in weights.iter().enumerate().skip(1) {
            blurred = blurred + &wide.slice_axis(axis, Slice::from(k..k + len)) * weight;
        }
    }
    blurred
}

/// Total-variation denoising by Chambolle's dual iteration.
fn denoise(x: &Array2<f32>) -> Array2<f32> {
    let (mut p, mut q) = (Array2::zeros(x.dim()), Array2::zeros(x.dim()));
    for _ in 0..STEPS {
        let u = x + divergence(&p, &q);
        let (gy, gx) = (forward(&u, Axis(0)), forward(&u, Axis(1)));
        let norm = (&gy * &gy + &gx * &gx).sqrt() * (TAU / WEIGHT) + 1.0;
        p = (p + gy * TAU) / &norm;
        q = (q + gx * TAU) / &norm;
    }
    x + divergence(&p, &q)
}

fn divergence(p: &Array2<f32>, q: &Array2<f32>) -> Array2<f32> {
    backward(p, Axis(0)) + backward(q, Axis(1))
}

/// `x[i + 1] - x[i]`, 0 at the end.
fn forward(x: &Array2<f32>, axis: Axis) -> Array2<f32> {
    let step = &x.slice_axis(axis, Slice::from(1..)) - &x.slice_axis(axis, Slice::from(..-1));
    let end = Array2::zeros(x.slice_axis(axis, Slice::from(..1)).dim());
    concatenate(axis, &[step.view(), end.view()]).unwrap()
}

/// `x[i] - x[i - 1]`, `x[0]` at the start.
fn backward(x: &Array2<f32>, axis: Axis) -> Array2<f32> {
    let start = x.slice_axis(axis, Slice::from(..1));
    let step = &x.slice_axis(axis, Slice::from(1..)) - &x.slice_axis(axis, Slice::from(..-1));
    concatenate(axis, &[start, step.view()]).unwrap()
}

fn sobel(x: &Array2<f32>) -> Array2<f32> {
    let (h, w) = x.dim();
    let tall = padded(x.view(), Axis(0), 1);
    let wide = padded(tall.view(), Axis(1), 1);
    let at = |i: usize, j: usize| wide.slice(s![i..i + h, j..j + w]);
    let gx = (&at(0, 2) - &at(0, 0)) + (&at(1, 2) - &at(1, 0)) * 2.0 + (&at(2, 2) - &at(2, 0));
    let gy = (&at(2, 0) - &at(0, 0)) + (&at(2, 1) - &at(0, 1)) * 2.0 + (&at(2, 2) - &at(0, 2));
    (&gx * &gx + &gy * &gy).sqrt()
}

/// Each pixel's distance from its neighbourhood's mean, in the neighbourhood's deviations.
fn contrast(x: &Array2<f32>) -> Array2<f32> {
    let from_mean = x - blur(x, NEIGHBOURHOOD);
    let variance = blur(&(&from_mean * &from_mean), NEIGHBOURHOOD);
    from_mean / (variance.sqrt() * 4.0 + 0.02) + 0.5
}
