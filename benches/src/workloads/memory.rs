//! Zeroed memory, two pools in turn, and what stays resident after a burst.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use super::pair::pairs;
use super::touch;
use crate::case::{Case, POOLS, TRIMMER, Touch, Visit, Workload, allocators_and, bytes, visit};
use crate::contender::Contender;
use crate::measure::{Budget, Meter, Sample, alone};

/// Allocate zeroed + free.
pub const ZEROED: Workload = Workload {
    name: "zeroed",
    title: "allocate zeroed + free, one buffer at a time",
    op: "pair",
    cases: zeroed_cases,
    run: |case, name, budget| visit(name, Zeroed { case, budget }),
};

/// Two pools in turn on one thread.
pub const TWO_POOLS: Workload = Workload {
    name: "two-pools",
    title: "allocate + free in one pool, then in another, on one thread",
    op: "pair",
    cases: two_cases,
    run: |case, name, budget| visit(name, TwoPools { case, budget }),
};

/// Resident memory after a burst.
pub const FOOTPRINT: Workload = Workload {
    name: "footprint",
    title: "a burst of buffers of 64 KiB to 16 MiB, a byte a page written, all freed: resident memory then, 2 s later, and after a trim",
    op: "buffer",
    cases: footprint_cases,
    run: |case, name, budget| visit(name, Burst { case, budget }),
};

fn zeroed_cases() -> Vec<Case> {
    let contenders = allocators_and(["by-hand", "zeropool"]);
    let mut cases = Vec::new();
    for how in [Touch::Untouched, Touch::Page] {
        for size in [4 << 10, 64 << 10, 1 << 20, 80_000_000] {
            let label = format!(
                "{}, {}",
                if size == 80_000_000 {
                    "80 MB".into()
                } else {
                    bytes(size)
                },
                how.name()
            );
            let quick = how == Touch::Untouched && size >= 1 << 20;
            cases.push(Case {
                quick,
                touch: how,
                ..Case::of(label, size, &contenders)
            });
        }
    }
    cases
}

fn two_cases() -> Vec<Case> {
    let contenders: Vec<_> = POOLS
        .into_iter()
        .filter(|&name| name != "by-hand")
        .collect();
    let mut cases = Vec::new();
    for depth in [1, 4] {
        for size in [4 << 10, 64 << 10, 1 << 20] {
            let label = format!("{}, depth {depth}", bytes(size));
            cases.push(Case {
                quick: depth == 1 && size == 64 << 10,
                depth,
                ..Case::of(label, size, &contenders)
            });
        }
    }
    cases
}

fn footprint_cases() -> Vec<Case> {
    let mut contenders = allocators_and(["zeropool"]);
    contenders.insert(1, TRIMMER);
    let of = |total: usize| Case {
        low: 64 << 10,
        depth: total,
        ..Case::of(bytes(total), 16 << 20, &contenders)
    };
    vec![of(1 << 30)]
}

struct Zeroed<'a> {
    case: &'a Case,
    budget: Budget,
}

impl Visit for Zeroed<'_> {
    type Output = Sample;

    fn with<C: Contender>(self) -> Sample {
        let it: &'static C = self.case.start(1);
        let (size, how) = (self.case.size, self.case.touch);
        alone(self.budget, |ops| {
            for op in 0..ops {
                let len = black_box(size);
                let mut block = it.zeroed(len);
                // Never zero, so that a buffer that comes back uncleared would have to be cleared.
                touch(C::address(&mut block), len, how, op as u8 | 1);
                it.free(block);
            }
        })
    }
}

struct TwoPools<'a> {
    case: &'a Case,
    budget: Budget,
}

impl Visit for TwoPools<'_> {
    type Output = Sample;

    fn with<C: Contender>(self) -> Sample {
        let Self { case, budget } = self;
        let (one, two): (&'static C, &'static C) = (case.start(case.depth), case.start(case.depth));
        let mut sample = match case.depth {
            1 => alone(budget, |ops| in_turn::<C, 1>(one, two, ops, case.size)),
            4 => alone(budget, |ops| in_turn::<C, 4>(one, two, ops, case.size)),
            depth => unreachable!("no case has depth {depth}"),
        };
        sample.per(2 * case.depth as u64);
        sample
    }
}

#[inline(always)]
fn in_turn<C: Contender, const DEPTH: usize>(
    one: &'static C,
    two: &'static C,
    ops: u64,
    size: usize,
) {
    for _ in 0..ops {
        pairs::<C, DEPTH>(one, 1, size, Touch::Untouched);
        pairs::<C, DEPTH>(two, 1, size, Touch::Untouched);
    }
}

struct Burst<'a> {
    case: &'a Case,
    budget: Budget,
}

impl Visit for Burst<'_> {
    type Output = Sample;

    fn with<C: Contender>(self) -> Sample {
        let Self { case, budget } = self;
        let it: &'static C = case.start(case.depth / case.low);
        let mut random = fastrand::Rng::with_seed(0x5eed);
        let lengths: Vec<usize> = std::iter::repeat_with(|| random.usize(case.low..=case.size))
            .scan(0, |total, len| {
                *total += len;
                (*total <= case.depth).then_some(len)
            })
            .collect();
        let mut blocks = Vec::with_capacity(lengths.len());
        let meter = Meter::start(budget);
        let begin = Instant::now();
        for &len in &lengths {
            let mut block = it.allocate(len);
            touch(C::address(&mut block), len, Touch::Page, 1);
            blocks.push(block);
        }
        for block in blocks {
            it.free(block);
        }
        let took = begin.elapsed();
        let (peak, freed) = (meter.peak_kib(), meter.grown_kib());
        thread::sleep(Duration::from_secs(2));
        let settled = meter.grown_kib();
        it.trim();
        Sample {
            ops: lengths.len() as u64,
            ns_per_op: took.as_nanos() as f64 / lengths.len() as f64,
            faults_per_op: meter.faults() as f64 / lengths.len() as f64,
            peak_kib: Some(peak),
            freed_kib: Some(freed),
            settled_kib: Some(settled),
            trimmed_kib: Some(meter.grown_kib()),
            ..Sample::default()
        }
    }
}
