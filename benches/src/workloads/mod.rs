//! The workloads, in the order in which they are shown.
#![allow(unsafe_code)]

use std::hint::black_box;

use crate::case::{Touch, Workload};

mod expr;
mod larson;
mod memory;
mod pair;
mod scope;
mod shared;
mod threads;
mod traces;

/// Bytes between two touched ones.
const PAGE: usize = 4096;

/// Every workload.
pub const ALL: &[Workload] = &[
    pair::PAIR,
    shared::CLONE,
    shared::SHARE,
    shared::VIEW,
    threads::OWN,
    threads::SHARED_POOL,
    threads::PIPE,
    larson::LARSON,
    traces::TRACE,
    threads::CHURN,
    memory::TWO_POOLS,
    memory::ZEROED,
    larson::LATENCY,
    memory::FOOTPRINT,
    expr::EXPR,
    scope::SCOPE,
    threads::SCALING,
];

/// Uses a buffer of `len` bytes as the case says.
#[inline(always)]
fn touch(start: *mut u8, len: usize, how: Touch, value: u8) {
    match how {
        Touch::Untouched => {}
        Touch::Page => {
            for offset in (0..len).step_by(PAGE) {
                // SAFETY: `offset < len`.
                let place = unsafe { start.add(offset) };
                // SAFETY: in bounds, and the buffer is ours.
                unsafe { place.write_volatile(value) };
            }
        }
        // SAFETY: the buffer has `len` bytes and is ours.
        Touch::Full => unsafe { start.write_bytes(value, len) },
    }
    black_box(start);
}
