//! What the tests of arrays share.

#![allow(dead_code)]

use ndarray::{Dimension, Ix2};
use ndpool::{Element, Handle, Pool, SharedArray};

/// Blocks of the pool that users have now.
pub fn live(pool: &Pool) -> u64 {
    pool.stats().classes.iter().map(|class| class.live).sum()
}

/// 0, 1, .. in four rows of five.
pub fn grid(pool: &Pool) -> SharedArray<i32, Ix2> {
    pool.from_shape_fn((4, 5), |(i, j)| (i * 5 + j) as i32)
        .share()
}

/// The name of the buffer that an array shares.
pub fn name<T: Element, D: Dimension>(array: &SharedArray<T, D>) -> Handle {
    array.handle().expect("the array has elements")
}
