//! Counted buffers: clone + drop, allocate + share + drop, allocate + share + view + drop.

use std::hint::black_box;

use crate::case::{Case, Workload, bytes};
use crate::contender::Setup;
use crate::counts::{COUNTS, Counting, VisitCounting, visit};
use crate::measure::{Budget, Clock, Sample, alone, team};

/// Clone + drop of an owner.
pub const CLONE: Workload = Workload {
    name: "clone",
    title: "clone + drop of a counted buffer",
    op: "clone + drop",
    cases: || {
        let alone = Case {
            quick: true,
            ..Case::of("one thread", 4096, &COUNTS)
        };
        let both = Case {
            threads: 2,
            ..Case::of("two threads, one buffer", 4096, &COUNTS)
        };
        vec![alone, both]
    },
    run: |case, name, budget| visit(name, Clones { case, budget }),
};

/// Allocate, share, drop.
pub const SHARE: Workload = Workload {
    name: "share",
    title: "allocate, share, drop (bytes zeroes; arc, triomphe and bytes allocate with glibc)",
    op: "buffer",
    cases: || sizes(""),
    run: |case, name, budget| {
        visit(
            name,
            Shares {
                case,
                budget,
                views: false,
            },
        )
    },
};

/// Allocate, share, take a view, drop both.
pub const VIEW: Workload = Workload {
    name: "view",
    title: "allocate, share, view one half, drop the whole, drop the view",
    op: "buffer",
    cases: || sizes(""),
    run: |case, name, budget| {
        visit(
            name,
            Shares {
                case,
                budget,
                views: true,
            },
        )
    },
};

fn sizes(suffix: &str) -> Vec<Case> {
    [64, 4 << 10, 64 << 10, 1 << 20]
        .into_iter()
        .map(|size| Case {
            quick: size == 4 << 10,
            ..Case::of(format!("{}{suffix}", bytes(size)), size, &COUNTS)
        })
        .collect()
}

fn setup(case: &Case) -> Setup {
    Setup {
        size: case.size,
        live: 2,
    }
}

struct Clones<'a> {
    case: &'a Case,
    budget: Budget,
}

impl VisitCounting for Clones<'_> {
    type Output = Sample;

    fn with<C: Counting>(self) -> Sample {
        let it: &'static C = Box::leak(Box::new(C::new(setup(self.case))));
        let owner = it.share(self.case.size);
        if self.case.threads == 1 {
            return alone(self.budget, |ops| clones::<C>(&owner, ops));
        }
        team(self.case.threads, self.budget, Clock::Wall, |_| {
            |ops| clones::<C>(&owner, ops)
        })
    }
}

#[inline(always)]
fn clones<C: Counting>(owner: &C::Owner, ops: u64) {
    for _ in 0..ops {
        drop(black_box(black_box(owner).clone()));
    }
}

struct Shares<'a> {
    case: &'a Case,
    budget: Budget,
    views: bool,
}

impl VisitCounting for Shares<'_> {
    type Output = Sample;

    fn with<C: Counting>(self) -> Sample {
        let it: &'static C = Box::leak(Box::new(C::new(setup(self.case))));
        let size = self.case.size;
        if self.views {
            return alone(self.budget, |ops| {
                for _ in 0..ops {
                    let owner = black_box(it.share(black_box(size)));
                    let view = black_box(C::view(&owner, 0..size / 2));
                    drop(owner);
                    drop(view);
                }
            });
        }
        alone(self.budget, |ops| {
            for _ in 0..ops {
                drop(black_box(it.share(black_box(size))));
            }
        })
    }
}
