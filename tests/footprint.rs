//! The footprint promise, on recorded traces and on generated ones.

use std::alloc::Layout;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::path::Path;

use ndpool::source::{Os, Source};
use ndpool::{Buffer, Pool, PoolBuilder};

#[allow(dead_code)]
#[path = "../examples/replay/trace.rs"]
mod trace;
use trace::{Record, Trace};

/// One step of a program.
#[derive(Clone, Copy, Debug)]
enum Step {
    Take { block: usize, bytes: usize },
    Drop { block: usize },
}

/// A buffer, the bytes asked for, and the bytes that it occupies.
type Live = (Buffer<MaybeUninit<u8>>, usize, usize);

/// What a run has shown.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    requests: u64,
    requested_bytes: u64,
    missed: u64,
    missed_bytes: u64,
    exchanges: u64,
    peak_asked: usize,
    peak_held: usize,
}

impl Seen {
    fn ratio(&self) -> f64 {
        self.peak_held as f64 / self.peak_asked as f64
    }

    fn missed_bytes_share(&self) -> f64 {
        self.missed_bytes as f64 / self.requested_bytes as f64
    }
}

fn recorded(name: &str) -> Vec<Step> {
    let path = format!("benches/traces/{name}.csv.gz");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let trace = Trace::read(&path).unwrap();
    let mut steps: Vec<Step> = trace
        .records
        .iter()
        .map(|record| match *record {
            Record::Allocate { block, layout, .. } => Step::Take {
                block: block as usize,
                bytes: layout.size(),
            },
            Record::Free { block, .. } => Step::Drop {
                block: block as usize,
            },
        })
        .collect();
    let held = trace.held.iter().enumerate().filter(|(_, held)| **held);
    steps.extend(held.map(|(block, _)| Step::Drop { block }));
    steps
}

/// Bytes that a block of a request occupies.
fn charge(bytes: usize) -> usize {
    let capacity = ndpool::class::capacity(ndpool::class::of(bytes));
    let align = match capacity {
        c if c >= 2 << 20 => 2 << 20,
        c if c >= 4096 => 4096,
        _ => ndpool::MIN_ALIGN,
    };
    Os::new().footprint(Layout::from_size_align(capacity, align).unwrap())
}

/// The promise, as a user would check it from outside: a maximum over the last window of births
/// and exchanges of what was live, and one thread's cache beside it.
struct Promise {
    floor: usize,
    slack: f64,
    window: u64,
    cache: usize,
    live: usize,
    /// `(exchanges and births so far, live bytes)`, falling in bytes.
    peaks: VecDeque<(u64, usize)>,
}

impl Promise {
    fn note(&mut self, now: u64) {
        while self
            .peaks
            .back()
            .is_some_and(|&(_, live)| live <= self.live)
        {
            self.peaks.pop_back();
        }
        self.peaks.push_back((now, self.live));
        // The window of the pool is between one and two windows long.
        while self
            .peaks
            .front()
            .is_some_and(|&(then, _)| then + 2 * self.window < now)
        {
            self.peaks.pop_front();
        }
    }

    fn bound(&self) -> usize {
        let peak = self.peaks.front().map_or(0, |&(_, live)| live);
        let bound = ((1.0 + self.slack) * (peak + self.cache) as f64) as usize;
        bound.max(self.floor)
    }
}

struct Knobs {
    slack: f64,
    window: u64,
    budget: usize,
    reuse: usize,
    floor: usize,
}

/// The default configuration.
const DEFAULT: Knobs = Knobs {
    slack: 0.3,
    window: 20_000,
    budget: 2 << 20,
    reuse: 3,
    floor: 6 << 20,
};

/// The promise in its strict form.
const STRICT: Knobs = Knobs {
    floor: 0,
    ..DEFAULT
};

fn build(knobs: &Knobs) -> PoolBuilder {
    Pool::builder()
        .slack(knobs.slack)
        .floor(knobs.floor)
        .window(knobs.window)
        .cache_budget(knobs.budget)
        .reuse_classes(knobs.reuse)
        .interval(std::time::Duration::from_secs(3600))
}

/// Runs a program on one thread; the second of two passes is measured, the promise is checked
/// after every birth of both.
fn run(steps: &[Step], knobs: &Knobs) -> Seen {
    let pool = build(knobs).build();
    let mut promise = Promise {
        floor: knobs.floor,
        slack: knobs.slack,
        window: knobs.window,
        cache: knobs.budget,
        live: 0,
        peaks: VecDeque::new(),
    };
    let mut seen = Seen::default();
    for pass in 0..2 {
        let before = pool.stats();
        seen = Seen::default();
        let mut asked = 0;
        let mut live: Vec<Option<Live>> = Vec::new();
        let mut births = before.births;
        for step in steps {
            match *step {
                Step::Take { block, bytes } => {
                    let buffer = pool.allocate::<u8>(bytes).unwrap();
                    let occupied = charge(buffer.retained_bytes());
                    promise.live += occupied;
                    asked += bytes;
                    seen.requests += 1;
                    seen.requested_bytes += bytes as u64;
                    let (now, ticks, held) = pool.ledger();
                    promise.note(ticks);
                    if now > births {
                        births = now;
                        seen.missed += 1;
                        seen.missed_bytes += bytes as u64;
                        assert!(
                            held <= promise.bound(),
                            "pass {pass}: {held} bytes held, {} promised\n{}",
                            promise.bound(),
                            pool.stats()
                        );
                    }
                    seen.peak_asked = seen.peak_asked.max(asked);
                    seen.peak_held = seen.peak_held.max(held);
                    if live.len() <= block {
                        live.resize_with(block + 1, || None);
                    }
                    live[block] = Some((buffer, bytes, occupied));
                }
                Step::Drop { block } => {
                    let (buffer, bytes, occupied) = live[block].take().unwrap();
                    drop(buffer);
                    promise.live -= occupied;
                    asked -= bytes;
                }
            }
        }
        assert_eq!(promise.live, 0);
        seen.exchanges = pool.stats().exchanges - before.exchanges;
    }
    pool.audit().unwrap();
    seen
}

#[test]
fn recorded_traces_keep_the_promise() {
    for name in ["digits", "image", "expr", "pipeline"] {
        for knobs in [DEFAULT, STRICT] {
            let seen = run(&recorded(name), &knobs);
            println!("{name}: {seen:?} ratio {:.2}", seen.ratio());
            assert!(
                seen.missed as f64 <= 0.03 * seen.requests as f64,
                "{name}: {seen:?}"
            );
            let most_missed = if name == "pipeline" { 0.15 } else { 0.10 };
            assert!(seen.missed_bytes_share() <= most_missed, "{name}: {seen:?}");
        }
    }
}

#[test]
#[ignore = "prints the trade between footprint and misses; run by hand with --release"]
fn sweep() {
    let traces = ["digits", "image", "expr", "pipeline"].map(|name| (name, recorded(name)));
    println!(
        "{:>9} {:>6} {:>7} {:>6} | {:>7} {:>8} {:>9} {:>9}",
        "trace", "slack", "budget", "reuse", "ratio", "missed%", "missedB%", "exch/req"
    );
    for (name, steps) in &traces {
        for slack in [0.2, 0.25, 0.3] {
            for budget in [1 << 20, 2 << 20, 4 << 20, 8 << 20] {
                for reuse in [2, 3, 4] {
                    let knobs = Knobs {
                        slack,
                        budget,
                        reuse,
                        ..DEFAULT
                    };
                    let seen = run(steps, &knobs);
                    println!(
                        "{name:>9} {slack:>6} {:>6}M {reuse:>6} | {:>7.2} {:>8.2} {:>9.2} {:>9.3}",
                        budget >> 20,
                        seen.ratio(),
                        100.0 * seen.missed as f64 / seen.requests as f64,
                        100.0 * seen.missed_bytes_share(),
                        seen.exchanges as f64 / seen.requests as f64,
                    );
                }
            }
        }
    }
}
