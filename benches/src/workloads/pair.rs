//! Allocate and free on one thread.

use std::hint::black_box;

use super::touch;
use crate::case::{
    ALLOCATORS, Case, OURS, Touch, Visit, Workload, bytes, everyone, visit, visit_allocator,
};
use crate::contender::Contender;
use crate::measure::{Budget, Sample, alone};

/// Allocate + free.
pub const PAIR: Workload = Workload {
    name: "pair",
    title: "allocate + free, one thread (depth: buffers alive at once; pools take part at 16; ndpool gives 128 always)",
    op: "pair",
    cases,
    run,
};

const SIZES: [usize; 10] = [
    64,
    1 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    256 << 20,
];
/// Sizes of `--quick`.
const QUICK: [usize; 4] = [64, 64 << 10, 1 << 20, 16 << 20];
/// Sizes that are written in full: between them the memory decides, not the allocator.
const WRITTEN: [usize; 5] = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20];
/// Alignments besides 16, which is what most requests ask of an allocator.
const ALIGNED: [usize; 2] = [64, 128];

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for depth in [1, 4] {
        for how in [Touch::Untouched, Touch::Page, Touch::Full] {
            for size in SIZES {
                // One byte a page of a single page is near enough to untouched.
                if how == Touch::Page && size < 16 << 10 {
                    continue;
                }
                if how == Touch::Full && !WRITTEN.contains(&size) {
                    continue;
                }
                // A second of faults per operation teaches nothing that 16 MiB does not.
                if how != Touch::Untouched && depth > 1 && size > 16 << 20 {
                    continue;
                }
                let quick = QUICK.contains(&size)
                    && (how == Touch::Untouched
                        || (how == Touch::Page
                            && depth == 4
                            && (64 << 10..16 << 20).contains(&size)));
                let label = format!("{}, {}, depth {depth}", bytes(size), how.name());
                let contenders = if how == Touch::Untouched {
                    everyone()
                } else {
                    ALLOCATORS.to_vec()
                };
                cases.push(Case {
                    quick,
                    depth,
                    touch: how,
                    ..Case::of(label, size, &contenders)
                });
            }
        }
    }
    for align in ALIGNED {
        for size in [64, 1 << 10, 64 << 10, 1 << 20] {
            let quick = align == 128 && size == 64;
            let label = format!("{}, untouched, depth 1, align {align}", bytes(size));
            cases.push(Case {
                quick,
                align,
                ..Case::of(label, size, &ALLOCATORS)
            });
        }
    }
    cases
}

struct Pairs<'a> {
    case: &'a Case,
    budget: Budget,
}

impl Visit for Pairs<'_> {
    type Output = Sample;

    fn with<C: Contender>(self) -> Sample {
        match self.case.depth {
            1 => measure::<C, 1>(self),
            4 => measure::<C, 4>(self),
            depth => unreachable!("no case has depth {depth}"),
        }
    }
}

fn run(case: &Case, contender: &str, budget: Budget) -> Option<Sample> {
    let pairs = Pairs { case, budget };
    match case.align {
        _ if contender == OURS => visit(contender, pairs),
        64 => visit_allocator::<_, 64>(contender, pairs),
        128 => visit_allocator::<_, 128>(contender, pairs),
        _ => visit(contender, pairs),
    }
}

fn measure<C: Contender, const DEPTH: usize>(Pairs { case, budget }: Pairs<'_>) -> Sample {
    let it: &'static C = case.start(DEPTH);
    let (size, how) = (case.size, case.touch);
    let mut sample = match how {
        Touch::Untouched => alone(budget, |ops| {
            pairs::<C, DEPTH>(it, ops, size, Touch::Untouched)
        }),
        Touch::Page => alone(budget, |ops| pairs::<C, DEPTH>(it, ops, size, Touch::Page)),
        Touch::Full => alone(budget, |ops| pairs::<C, DEPTH>(it, ops, size, Touch::Full)),
    };
    sample.per(DEPTH as u64);
    sample
}

/// One operation takes `DEPTH` buffers, uses each, and gives all back, the first taken first. The usual depths are
/// written out: an array of blocks costs tens of instructions that are nobody's but the harness's.
#[inline(always)]
pub fn pairs<C: Contender, const DEPTH: usize>(it: &'static C, ops: u64, size: usize, how: Touch) {
    for op in 0..ops {
        match DEPTH {
            1 => it.free(take::<C>(it, size, how, op)),
            4 => {
                let first = take::<C>(it, size, how, op);
                let second = take::<C>(it, size, how, op);
                let third = take::<C>(it, size, how, op);
                let fourth = take::<C>(it, size, how, op);
                it.free(first);
                it.free(second);
                it.free(third);
                it.free(fourth);
            }
            _ => {
                let blocks: [C::Block; DEPTH] =
                    std::array::from_fn(|_| take::<C>(it, size, how, op));
                for block in blocks {
                    it.free(block);
                }
            }
        }
    }
}

#[inline(always)]
fn take<C: Contender>(it: &'static C, size: usize, how: Touch, op: u64) -> C::Block {
    let len = black_box(size);
    let mut block = it.allocate(len);
    touch(C::address(&mut block), len, how, op as u8);
    block
}
