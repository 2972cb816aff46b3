//! What AddressSanitizer is told of resting payloads, in a build for it:
//! `RUSTFLAGS="-Zsanitizer=address --cfg ndpool_asan" cargo test --test asan`. Nothing in other builds.

#![cfg(ndpool_asan)]
#![allow(unsafe_code)]

use std::hint::black_box;
use std::process::{Command, Output};

use ndpool::{Buffer, Checks, Pool};

/// Below and above the size from which blocks are mappings of their own.
const SIZES: [usize; 2] = [1000, 300_000];

fn pool(quarantine: usize) -> Pool {
    let checks = Checks::new().poison().quarantine(quarantine);
    Pool::builder().checks(checks).build()
}

fn filled(pool: &Pool, len: usize) -> Buffer<u8> {
    pool.filled(len, 7).expect("memory")
}

/// Runs one test of this binary in a process of its own, where `planted` is what it does.
fn child(test: &str, planted: &str) -> Output {
    Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("NDPOOL_PLANTED", planted)
        .output()
        .expect("a child")
}

/// Reads or writes the byte at `offset` of a buffer after its release.
fn touch_after_release(pool: &Pool, len: usize, offset: usize, write: bool) {
    let mut buffer = filled(pool, len);
    let stale = buffer.as_mut_ptr();
    drop(buffer);
    // SAFETY: of the mapping; that the buffer is gone is the planted fault.
    let stale = unsafe { stale.add(offset) };
    if write {
        // SAFETY: as above.
        unsafe { stale.write_volatile(1) };
    } else {
        // SAFETY: as above.
        black_box(unsafe { stale.read_volatile() });
    }
}

#[test]
fn a_stale_access_to_a_resting_payload_aborts_at_the_instruction() {
    const NAME: &str = "a_stale_access_to_a_resting_payload_aborts_at_the_instruction";
    if let Ok(planted) = std::env::var("NDPOOL_PLANTED") {
        let mut words = planted.split(' ');
        let mut number = || words.next().expect("a word").parse().expect("a number");
        let (quarantine, len, offset, write) = (number(), number(), number(), number());
        touch_after_release(&pool(quarantine), len, offset, write == 1);
        return;
    }
    for quarantine in [0, 16 << 20] {
        for len in SIZES {
            for (offset, write) in [(0, 0), (len - 1, 1)] {
                let planted = format!("{quarantine} {len} {offset} {write}");
                let output = child(NAME, &planted);
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(!output.status.success(), "{planted}: nothing was seen");
                assert!(said.contains("use-after-poison"), "{planted}: {said}");
                let access = ["READ of size 1", "WRITE of size 1"][write];
                assert!(said.contains(access), "{planted}: {said}");
            }
        }
    }
}

#[test]
fn payloads_in_use_and_memory_gone_home_are_accessible() {
    for quarantine in [0, 1 << 20] {
        let pool = pool(quarantine);
        for len in SIZES {
            for _ in 0..20 {
                let mut buffer = filled(&pool, len);
                let shared = filled(&pool, len).share();
                buffer.fill(black_box(1));
                assert_eq!((buffer[len - 1], shared[len - 1]), (1, 7));
                drop((buffer, shared));
                let zeroed = pool.zeroed::<u8>(len).expect("memory");
                assert!(zeroed.iter().all(|&byte| byte == 0));
            }
        }
        pool.close_checked().expect("all is back");
        // The system's heap has the memory again, and hands it out.
        for len in SIZES {
            let own: Vec<_> = (0..50).map(|n| vec![black_box(n as u8); len]).collect();
            assert!(
                own.iter()
                    .enumerate()
                    .all(|(n, own)| own[len - 1] == n as u8)
            );
        }
    }
}
