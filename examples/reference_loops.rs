//! The loops by which the reference system was judged, on this pool: a hundred arrays of 8 MiB that
//! are each disposed of, ten thousand cycles of allocate and dispose, and ten thousand races of an
//! add against the last release with stray releases among them.
//!
//! `cargo run --release --example reference_loops`

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ndpool::{Buffer, Handle, Pool, SharedBuffer, Token};

const MIB: usize = 1 << 20;

/// Resident bytes of this process; 0 where the system does not say.
pub fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok());
    kib.unwrap_or(0) << 10
}

/// Bytes before, with everything alive, after the last drop, and after a trim.
#[derive(Clone, Copy, Debug)]
pub struct Disposed {
    /// Resident in the process.
    pub resident: [usize; 4],
    /// Live in the pool.
    pub live: [usize; 4],
}

/// A hundred buffers of 8 MiB, written, all alive at once, then each dropped.
pub fn hundred_buffers() -> Disposed {
    let pool = Pool::new();
    let mut seen = Disposed {
        resident: [0; 4],
        live: [0; 4],
    };
    let mut note = |n: usize| {
        seen.resident[n] = resident();
        seen.live[n] = pool.stats().live_bytes;
    };
    note(0);
    let filled = |n| pool.filled(8 * MIB, n as u8).expect("8 MiB are to be had");
    let buffers: Vec<Buffer<u8>> = (0..100).map(filled).collect();
    note(1);
    buffers.into_iter().for_each(drop);
    note(2);
    pool.trim();
    note(3);
    seen
}

/// Ten thousand cycles of allocate, write and drop: the time of one, and by how many bytes resident
/// memory is larger after them than after the first.
pub fn cycles() -> (Duration, usize) {
    const CYCLES: u32 = 10_000;
    let pool = Pool::new();
    let cycle = || {
        let mut buffer = pool.zeroed::<u8>(64 << 10).expect("64 KiB are to be had");
        buffer[0] = 1;
        assert_eq!(buffer[65_535], 0);
    };
    cycle();
    let before = resident();
    let start = Instant::now();
    (0..CYCLES).for_each(|_| cycle());
    let each = start.elapsed() / CYCLES;
    (each, resident().saturating_sub(before))
}

/// What the races came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Races {
    /// Races run.
    pub races: u64,
    /// Adds that came before the last release.
    pub added: u64,
    /// Adds that were refused, since they came after it.
    pub refused: u64,
    /// Releases that succeeded of the tokens, each of which was released twice.
    pub released: u64,
    /// Releases that were refused as strays.
    pub strays: u64,
    /// Buffers with an owner left, and blocks alive, at the end.
    pub left: u64,
}

/// Ten thousand buffers with two owners, one of them a token. One thread drops the owner, one
/// releases the token twice, one tries to add an owner by a handle, all at once.
pub fn races() -> Races {
    const BATCH: usize = 500;
    const BATCHES: u64 = 20;
    let pool = Pool::new();
    let mut sum = Races::default();
    for _ in 0..BATCHES {
        let shared = |n| {
            pool.filled(16, n as u64)
                .expect("128 bytes are to be had")
                .share()
        };
        let owners: Vec<SharedBuffer<u64>> = (0..BATCH).map(shared).collect();
        let handles: Vec<Handle> = owners.iter().map(SharedBuffer::handle).collect();
        let token = |owner: &SharedBuffer<u64>| match owner.clone().into_token() {
            Ok(token) => token.to_bits(),
            Err(_) => unreachable!("leases are to be had"),
        };
        let tokens: Vec<u64> = owners.iter().map(token).collect();
        let start = Barrier::new(3);
        let [added, refused, released, strays] = [const { AtomicU64::new(0) }; 4];
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                owners.into_iter().for_each(drop);
            });
            scope.spawn(|| {
                start.wait();
                for &bits in tokens.iter().flat_map(|bits| [bits, bits]) {
                    let ended = Token::from_bits(bits).release();
                    count(if ended.is_ok() { &released } else { &strays });
                }
            });
            start.wait();
            for (n, handle) in handles.iter().enumerate() {
                match handle.upgrade::<u64>() {
                    Ok(owner) => {
                        assert_eq!(owner[..], [n as u64; 16]);
                        count(&added);
                    }
                    Err(_) => {
                        count(&refused);
                    }
                }
            }
        });
        sum.races += BATCH as u64;
        sum.added += added.into_inner();
        sum.refused += refused.into_inner();
        sum.released += released.into_inner();
        sum.strays += strays.into_inner();
        sum.left += handles
            .iter()
            .filter(|handle| !handle.is_released())
            .count() as u64;
    }
    sum.left += pool.stats().classes.iter().map(|row| row.live).sum::<u64>();
    sum
}

#[allow(dead_code)]
fn main() {
    let mib = |bytes: usize| bytes as f64 / MIB as f64;
    let disposed = hundred_buffers();
    println!("100 buffers of 8 MiB, each dropped");
    let moments = ["before", "all alive", "all dropped", "after trim"];
    for ((moment, resident), live) in moments.iter().zip(disposed.resident).zip(disposed.live) {
        println!(
            "  {moment:<12} resident {:>6.1} MiB, live {:>6.1} MiB",
            mib(resident),
            mib(live)
        );
    }
    let (each, more) = cycles();
    println!("10,000 cycles of 64 KiB, zeroed: {each:?} each, resident {more} bytes more");
    println!("races of an add against the last release: {:?}", races());
}
