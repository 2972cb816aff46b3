//! Random sizes in random slots, after Larson and Krishnan; and the latency of single operations under that load.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::touch;
use crate::case::{self, Case, Touch, Visit, Workload, allocators_and, bytes, visit};
use crate::contender::Contender;
use crate::measure::{Budget, Clock, Sample, team};

/// Throughput and peak resident memory.
pub const LARSON: Workload = Workload {
    name: "larson",
    title: "free a random slot and fill it with a buffer of random size; threads hand their slots on (see peak MiB too)",
    op: "free + allocate",
    cases,
    run: |case, name, budget| {
        visit(
            name,
            Larson {
                case,
                budget: budget.longer(LONGER).averaged(),
                timed: false,
            },
        )
    },
};

/// Each operation by the clock.
pub const LATENCY: Workload = Workload {
    name: "latency",
    title: "the same, each operation timed (the clock's own 20-50 ns included)",
    op: "free + allocate",
    cases: latency_cases,
    run: |case, name, budget| {
        visit(
            name,
            Larson {
                case,
                budget: budget.longer(LONGER).averaged(),
                timed: true,
            },
        )
    },
};

/// Slots settle slowly, so these cells run longer than others.
const LONGER: u32 = 2;
/// Replacements per slot before the clock runs.
const WARM_UP: usize = 4;
const SMALL: (usize, usize) = (4 << 10, 256 << 10);
const LARGE: (usize, usize) = (64 << 10, 16 << 20);

fn case((low, high): (usize, usize), how: Touch, threads: usize) -> Case {
    let contenders = allocators_and(["zeropool"]);
    let label = format!(
        "{} to {}, {}, {}",
        bytes(low),
        bytes(high),
        how.name(),
        case::threads(threads)
    );
    // Enough slots to defeat a cache of a few buffers, few enough to stay in memory: 33 MiB and 258 MiB a thread.
    let depth = if high <= SMALL.1 { 256 } else { 32 };
    Case {
        low,
        depth,
        touch: how,
        threads,
        ..Case::of(label, high, &contenders)
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (range, how) in [
        (SMALL, Touch::Untouched),
        (SMALL, Touch::Page),
        (LARGE, Touch::Page),
    ] {
        for threads in [1, 2] {
            // The gates on the small range are for untouched buffers, those on the large one for touched.
            let quick = threads == 1 && (range == LARGE) == (how == Touch::Page);
            cases.push(Case {
                quick,
                ..case(range, how, threads)
            });
        }
    }
    cases
}

fn latency_cases() -> Vec<Case> {
    vec![
        Case {
            quick: true,
            ..case(SMALL, Touch::Untouched, 1)
        },
        case(SMALL, Touch::Untouched, 2),
        case(LARGE, Touch::Untouched, 1),
    ]
}

struct Larson<'a> {
    case: &'a Case,
    budget: Budget,
    timed: bool,
}

type Slots<C> = Vec<Option<<C as Contender>::Block>>;

impl Visit for Larson<'_> {
    type Output = Sample;

    fn with<C: Contender>(self) -> Sample {
        let Self {
            case,
            budget,
            timed,
        } = self;
        let threads = case.threads;
        let it: &'static C = case.start(case.depth * threads);
        let slots: Vec<Mutex<Slots<C>>> = (0..threads).map(|_| Mutex::default()).collect();
        let latencies: Vec<Mutex<Latencies>> = (0..threads).map(|_| Mutex::default()).collect();
        let mut sample = team(threads, budget, Clock::Wall, |index| {
            let mut random = fastrand::Rng::with_seed(0x5eed + index as u64);
            let mut mine = slots[index].lock().expect("no panic under it");
            mine.extend((0..case.depth).map(|_| Some(fresh::<C>(it, case, &mut random))));
            for _ in 0..WARM_UP * case.depth {
                replace::<C>(it, case, &mut mine, &mut random);
            }
            drop(mine);
            let batch = AtomicUsize::new(0);
            let (slots, latencies) = (&slots, &latencies[index]);
            move |ops| {
                let turn = batch.fetch_add(1, Relaxed);
                let mut slots = slots[(index + turn) % threads]
                    .lock()
                    .expect("no panic under it");
                if timed {
                    let mut latencies = latencies.lock().expect("no panic under it");
                    latencies.begin(ops);
                    for _ in 0..ops {
                        let start = Instant::now();
                        replace::<C>(it, case, &mut slots, &mut random);
                        latencies.add(start.elapsed());
                    }
                } else {
                    for _ in 0..ops {
                        replace::<C>(it, case, &mut slots, &mut random);
                    }
                }
            }
        });
        if timed {
            let mut all = Latencies::default();
            for one in &latencies {
                all.histogram
                    .add(&one.lock().expect("no panic under it").histogram)
                    .expect("equal bounds");
            }
            all.report(&mut sample);
        }
        sample
    }
}

#[inline(always)]
fn fresh<C: Contender>(it: &'static C, case: &Case, random: &mut fastrand::Rng) -> C::Block {
    let len = random.usize(case.low..=case.size);
    let mut block = it.allocate(len);
    touch(C::address(&mut block), len, case.touch, len as u8);
    block
}

#[inline(always)]
fn replace<C: Contender>(
    it: &'static C,
    case: &Case,
    slots: &mut Slots<C>,
    random: &mut fastrand::Rng,
) {
    let index = random.usize(..slots.len());
    if let Some(old) = slots[index].take() {
        it.free(old);
    }
    slots[index] = Some(fresh::<C>(it, case, random));
}

/// Latencies of the batches of full size: those before them are the warm-up.
struct Latencies {
    histogram: Histogram<u64>,
    ops: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            histogram: Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("valid bounds"),
            ops: 0,
        }
    }
}

impl Latencies {
    fn begin(&mut self, ops: u64) {
        if self.ops != ops {
            self.histogram.reset();
            self.ops = ops;
        }
    }

    #[inline(always)]
    fn add(&mut self, took: Duration) {
        self.histogram
            .saturating_record((took.as_nanos() as u64).max(1));
    }

    fn report(&self, sample: &mut Sample) {
        sample.p50_ns = Some(self.histogram.value_at_quantile(0.5));
        sample.p99_ns = Some(self.histogram.value_at_quantile(0.99));
        sample.p999_ns = Some(self.histogram.value_at_quantile(0.999));
        sample.max_ns = Some(self.histogram.max());
    }
}
