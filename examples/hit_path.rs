//! The operations that the exact gates of `ci/gates` look at: the `gate_` functions are disassembled
//! and counted, the workloads run under `strace` and callgrind and report what they cost.
//!
//! `hit_path WORKLOAD [ROUNDS] [SIZE]` prints one line: `workload rounds faults exchanges worst`.
//! The `broken_` functions and `broken-` workloads do what the gates forbid: the gates have to
//! refuse them.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread;

use crossbeam_queue::ArrayQueue;
use ndpool::{Buffer, Pool, SharedBuffer};

/// Exports each function under its own name, not inlined, so that it can be found in the binary.
macro_rules! exported {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$attribute])*
        #[inline(never)]
        #[unsafe(no_mangle)]
        #[allow(unsafe_code, improper_ctypes_definitions)]
        fn $name($($argument: $type),*) $(-> $result)? $body
    )*};
}

exported! {
    /// Allocates and drops a unique buffer: both hits, inlined into one function.
    fn gate_unique_pair(pool: &Pool, len: usize) {
        let buffer = pool.allocate::<u8>(len).expect("warm");
        black_box(buffer.as_ptr());
    }

    fn gate_allocate(pool: &Pool, len: usize) -> Buffer<MaybeUninit<u8>> {
        pool.allocate::<u8>(len).expect("warm")
    }

    fn gate_drop_unique(buffer: Buffer<u8>) {
        drop(buffer);
    }

    fn gate_drop_shared(buffer: SharedBuffer<u8>) {
        drop(buffer);
    }

    fn gate_clone_shared(buffer: &SharedBuffer<u8>) -> SharedBuffer<u8> {
        buffer.clone()
    }

    fn broken_locked(pool: &Pool, len: usize) {
        COUNTER.fetch_add(1, Ordering::Relaxed);
        gate_body(pool, len);
    }

    fn broken_exchange(pool: &Pool, len: usize) {
        black_box(COUNTER.swap(len as u64, Ordering::Relaxed));
        gate_body(pool, len);
    }

    fn broken_fence(pool: &Pool, len: usize) {
        COUNTER.store(len as u64, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        gate_body(pool, len);
    }

    fn broken_call(pool: &Pool, len: usize) {
        gate_unique_pair(pool, len);
        black_box(len);
    }

    fn broken_drop_shared(buffer: SharedBuffer<u8>) {
        COUNTER.fetch_add(1, Ordering::Relaxed);
        drop(buffer);
    }

    fn broken_slow(pool: &Pool, len: usize) {
        let mut sum = len;
        for _ in 0..4 {
            sum = black_box(sum ^ 1);
        }
        gate_body(pool, sum);
    }
}

static COUNTER: AtomicU64 = AtomicU64::new(0);

#[inline(always)]
fn gate_body(pool: &Pool, len: usize) {
    let buffer = pool.allocate::<u8>(len).expect("warm");
    black_box(buffer.as_ptr());
}

/// What a workload found.
#[derive(Default)]
struct Found {
    /// Minor faults of the threads that worked, after their warm-up.
    faults: i64,
    /// Depot operations after the warm-up.
    exchanges: u64,
    /// Most depot operations for a thousand pairs, over all alternations tried.
    worst: f64,
}

/// Minor faults of this thread so far.
#[allow(unsafe_code)]
fn faults() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call writes the structure that it is given.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    assert_eq!(result, 0, "getrusage");
    // SAFETY: zeroed, and written by the call above.
    unsafe { usage.assume_init() }.ru_minflt
}

/// Runs `round` once in ten to warm up, then `rounds` times, and counts.
fn counted(pool: &Pool, rounds: usize, mut round: impl FnMut()) -> Found {
    (0..rounds.div_ceil(10).max(2)).for_each(|_| round());
    let exchanges = pool.stats().exchanges;
    let before = faults();
    (0..rounds).for_each(|_| round());
    let faults = faults() - before;
    Found {
        faults,
        exchanges: pool.stats().exchanges - exchanges,
        worst: 0.0,
    }
}

/// Writes a byte of each page, so that a page that went back to the system would be a fault.
fn touch(buffer: &mut Buffer<MaybeUninit<u8>>) {
    for byte in buffer.iter_mut().step_by(4096) {
        byte.write(1);
    }
}

fn touched(pool: &Pool, size: usize, depth: usize) {
    let buffers: [Option<Buffer<_>>; 4] = std::array::from_fn(|index| {
        (index < depth).then(|| {
            let mut buffer = pool.allocate::<u8>(size).expect("warm");
            touch(&mut buffer);
            buffer
        })
    });
    black_box(&buffers);
}

fn shared(pool: &Pool, size: usize) {
    let shared = gate_allocate(pool, size).fill_value(1).share();
    let second = gate_clone_shared(&shared);
    gate_drop_shared(shared);
    gate_drop_shared(second);
}

/// Two threads, each with buffers of its own, from one pool.
fn two_threads(pool: &Pool, size: usize, rounds: usize) -> Found {
    let work = || counted(pool, rounds, || touched(pool, size, 2));
    thread::scope(|scope| {
        let other = scope.spawn(work);
        let mine = work();
        let other = other.join().expect("the other thread");
        Found {
            faults: mine.faults + other.faults,
            ..mine
        }
    })
}

/// One thread allocates, another drops.
fn hand_over(pool: &Pool, size: usize, rounds: usize) -> Found {
    const QUEUED: usize = 256;
    let queue = ArrayQueue::<Buffer<MaybeUninit<u8>>>::new(QUEUED);
    // As many as can be under way at once: in the queue, and in two magazines of either thread.
    let most: Vec<_> = (0..2 * QUEUED)
        .map(|_| {
            let mut buffer = pool.allocate::<u8>(size).expect("memory");
            touch(&mut buffer);
            buffer
        })
        .collect();
    drop(most);
    let warm = rounds.div_ceil(2).max(4096);
    let total = warm + rounds;
    thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            let mut before = 0;
            for received in 0..total {
                if received == warm {
                    before = faults();
                }
                while queue.pop().is_none() {
                    std::hint::spin_loop();
                }
            }
            faults() - before
        });
        let mut before = 0;
        for sent in 0..total {
            if sent == warm {
                before = faults();
            }
            let mut buffer = pool.allocate::<u8>(size).expect("warm");
            touch(&mut buffer);
            while let Err(back) = queue.push(buffer) {
                buffer = back;
                std::hint::spin_loop();
            }
        }
        let mine = faults() - before;
        Found {
            faults: mine + consumer.join().expect("the consumer"),
            ..Found::default()
        }
    })
}

/// Bursts of `k` allocations and `k` drops for every `k` up to `longest`, above 0, half a burst or a
/// whole one of buffers that stay alive, then a random walk.
fn bursts(pool: &Pool, size: usize, longest: usize) -> Found {
    const PAIRS: usize = 4_000;
    let mut found = Found::default();
    let mut stack = Vec::with_capacity(3 * longest);
    let mut measure = |stack: &mut Vec<_>, pairs: usize, work: &mut dyn FnMut(&mut Vec<_>)| {
        work(stack);
        let before = pool.stats().exchanges;
        work(stack);
        let exchanges = pool.stats().exchanges - before;
        found.exchanges += exchanges;
        // A trip at each end of the sequence belongs to the work around it.
        let rate = exchanges.saturating_sub(2) as f64 / pairs as f64 * 1000.0;
        found.worst = found.worst.max(rate);
    };
    for burst in 1..=longest {
        for base in [0, longest / 4, longest / 2] {
            while stack.len() < base {
                stack.push(gate_allocate(pool, size));
            }
            stack.truncate(base);
            let bursts = PAIRS.div_ceil(burst);
            measure(&mut stack, bursts * burst, &mut |stack| {
                for _ in 0..bursts {
                    (0..burst).for_each(|_| stack.push(gate_allocate(pool, size)));
                    stack.truncate(base);
                }
            });
        }
    }
    let mut seed = 1_u64;
    measure(&mut stack, 50_000, &mut |stack| {
        for _ in 0..100_000 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let allocate = seed >> 63 == 0 || stack.is_empty();
            if allocate && stack.len() < 2 * longest {
                stack.push(gate_allocate(pool, size));
            } else {
                stack.pop();
            }
        }
    });
    found
}

fn run(workload: &str, rounds: usize, size: usize) -> Found {
    let pool = Pool::new();
    let pool = &pool;
    let len = || black_box(size);
    match workload {
        "none" => counted(pool, rounds, || {
            black_box((pool, len()));
        }),
        "unique" => counted(pool, rounds, || gate_unique_pair(pool, len())),
        "split" => counted(pool, rounds, || {
            let buffer = gate_allocate(pool, len());
            gate_drop_unique(buffer.fill_value(1));
        }),
        "shared" => counted(pool, rounds, || shared(pool, len())),
        "touched" => counted(pool, rounds, || touched(pool, len(), 1)),
        "touched4" => counted(pool, rounds, || touched(pool, len(), 4)),
        "two-pools" => {
            let other = Pool::new();
            counted(pool, rounds, || {
                gate_unique_pair(pool, len());
                gate_unique_pair(&other, len());
            })
        }
        "threads" => two_threads(pool, size, rounds),
        "hand-over" => hand_over(pool, size, rounds),
        "bursts" => bursts(pool, size, rounds),
        "broken-slow" => counted(pool, rounds, || broken_slow(pool, len())),
        "broken-locked" => counted(pool, rounds, || broken_locked(pool, len())),
        "broken-exchange" => counted(pool, rounds, || broken_exchange(pool, len())),
        "broken-fence" => counted(pool, rounds, || broken_fence(pool, len())),
        "broken-call" => counted(pool, rounds, || broken_call(pool, len())),
        "broken-drop" => counted(pool, rounds, || {
            broken_drop_shared(gate_allocate(pool, len()).fill_value(1).share());
        }),
        "broken-faults" => counted(pool, rounds, || {
            let mut buffer = pool.allocate::<u8>(1 << 20).expect("memory");
            touch(&mut buffer);
            drop(buffer);
            pool.trim();
        }),
        "broken-system-call" => counted(pool, rounds, || {
            black_box(std::env::current_dir().expect("a directory"));
        }),
        "broken-bursts" => {
            let uncached = Pool::builder().cache_budget(0).build();
            bursts(&uncached, size, rounds)
        }
        other => panic!("unknown workload {other}"),
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let workload = arguments.next().unwrap_or_else(|| "unique".to_owned());
    let mut number = |default: usize| {
        arguments
            .next()
            .map_or(default, |n| n.parse().expect("a number"))
    };
    let (rounds, size) = (number(1_000_000), number(1024));
    let found = run(&workload, rounds, size);
    println!(
        "{workload} {rounds} faults {} exchanges {} worst {:.3}",
        found.faults, found.exchanges, found.worst
    );
}
