//! The hit path for the exact gates of `ci/gates`: each function is disassembled and counted.

use std::hint::black_box;
use std::mem::MaybeUninit;

use ndpool::{Buffer, Pool, SharedBuffer};

#[inline(never)]
#[unsafe(no_mangle)]
#[allow(unsafe_code)]
fn gate_unique_pair(pool: &Pool, len: usize) {
    let buffer = pool.allocate::<u8>(len).expect("warm");
    black_box(buffer.as_ptr());
}

#[inline(never)]
#[unsafe(no_mangle)]
#[allow(unsafe_code)]
fn gate_allocate(pool: &Pool, len: usize) -> Buffer<MaybeUninit<u8>> {
    pool.allocate::<u8>(len).expect("warm")
}

#[inline(never)]
#[unsafe(no_mangle)]
#[allow(unsafe_code)]
fn gate_drop_unique(buffer: Buffer<u8>) {
    drop(buffer);
}

#[inline(never)]
#[unsafe(no_mangle)]
#[allow(unsafe_code)]
fn gate_drop_shared(buffer: SharedBuffer<u8>) {
    drop(buffer);
}

#[inline(never)]
#[unsafe(no_mangle)]
#[allow(unsafe_code)]
fn gate_clone_shared(buffer: &SharedBuffer<u8>) -> SharedBuffer<u8> {
    buffer.clone()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_else(|| "unique".to_owned());
    let rounds: usize = arguments
        .next()
        .map_or(1_000_000, |n| n.parse().expect("a number"));
    let size: usize = arguments
        .next()
        .map_or(1024, |n| n.parse().expect("a number"));
    let pool = Pool::new();
    gate_unique_pair(&pool, size);
    for _ in 0..rounds {
        match what.as_str() {
            "none" => {
                black_box((&pool, size));
            }
            "unique" => gate_unique_pair(&pool, black_box(size)),
            "split" => {
                let buffer = gate_allocate(&pool, black_box(size));
                gate_drop_unique(buffer.fill_value(1));
            }
            "shared" => {
                let shared = pool.filled(black_box(size), 1u8).expect("warm").share();
                let second = gate_clone_shared(&shared);
                gate_drop_shared(shared);
                gate_drop_shared(second);
            }
            other => panic!("unknown workload {other}"),
        }
    }
}
