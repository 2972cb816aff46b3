//! Recorded programs, replayed.

use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use super::touch;
use crate::case::{ALLOCATORS, Case, Touch, Visit, Workload, visit};
use crate::contender::{Contender, Setup, start};
use crate::measure::{Clock, Sample, team};

// The replay example owns the reader.
#[allow(dead_code)]
#[path = "../../../examples/replay/trace.rs"]
mod trace;

use trace::{Record, Trace};

/// Every trace, pass after pass.
pub const TRACE: Workload = Workload {
    name: "trace",
    title: "recorded programs, a byte a page written, a thread for each of theirs; processor time, passes after the first",
    op: "request or free",
    cases,
    run: |case, name, budget| visit(name, Replay { case, budget }),
};

fn cases() -> Vec<Case> {
    let contenders: Vec<_> = ALLOCATORS.into_iter().chain(["zeropool"]).collect();
    ["digits", "image", "expr", "pipeline"]
        .map(|name| {
            let quick = name == "expr" || name == "pipeline";
            Case {
                quick,
                touch: Touch::Page,
                ..Case::of(name, 0, &contenders)
            }
        })
        .to_vec()
}

struct Replay<'a> {
    case: &'a Case,
    budget: Duration,
}

/// Where a live block is kept: with its thread, or where another thread looks for it.
#[derive(Clone, Copy)]
enum Place {
    Own(usize),
    Shared(usize),
}

/// One thing a thread does.
#[derive(Clone, Copy)]
enum Step {
    Allocate { len: usize, zeroed: bool, to: Place },
    Free { from: Place },
}

/// What each thread does in a pass, and how many places that takes.
struct Scripts {
    steps: Vec<Vec<Step>>,
    own: Vec<usize>,
    shared: usize,
    records: usize,
    peak_live: usize,
}

impl Visit for Replay<'_> {
    type Output = Sample;

    fn with<C: Contender>(self) -> Sample {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("traces/{}.csv.gz", self.case.label));
        let scripts =
            Scripts::of(&Trace::read(&path).expect("the traces are part of the repository"));
        let empty = |count: usize| -> Vec<Option<C::Block>> { (0..count).map(|_| None).collect() };
        let own: Vec<_> = scripts
            .own
            .iter()
            .map(|&count| Mutex::new(empty(count)))
            .collect();
        let shared: Vec<_> = empty(scripts.shared).into_iter().map(Mutex::new).collect();
        let it: &'static C = start(Setup {
            size: 1 << 20,
            live: 64,
        });
        let how = self.case.touch;
        let threads = scripts.steps.len();
        let mut sample = team(threads, self.budget, Clock::Work, |index| {
            let (script, own, shared) = (&scripts.steps[index], &own[index], &shared);
            move |passes| {
                let mut own = own.lock().expect("no panic under it");
                for _ in 0..passes {
                    pass::<C>(it, script, &mut own, shared, how);
                }
            }
        });
        // The team counts a pass of each thread; together they do all records.
        sample.per((scripts.records / threads) as u64);
        sample.live_kib = Some(scripts.peak_live as u64 >> 10);
        sample
    }
}

fn pass<C: Contender>(
    it: &'static C,
    script: &[Step],
    own: &mut [Option<C::Block>],
    shared: &[Mutex<Option<C::Block>>],
    how: Touch,
) {
    for &step in script {
        match step {
            Step::Allocate { len, zeroed, to } => {
                let mut block = if zeroed {
                    it.zeroed(len)
                } else {
                    it.allocate(len)
                };
                touch(C::address(&mut block), len, how, len as u8);
                match to {
                    Place::Own(index) => own[index] = Some(block),
                    Place::Shared(index) => put(&shared[index], block),
                }
            }
            Step::Free { from } => it.free(match from {
                Place::Own(index) => own[index].take().expect("allocated earlier in this script"),
                Place::Shared(index) => get(&shared[index]),
            }),
        }
    }
}

/// Hands a block to another thread, once that has taken the last pass's.
fn put<B>(place: &Mutex<Option<B>>, block: B) {
    let mut block = Some(block);
    until(|| {
        let mut place = place.lock().expect("no panic under it");
        if place.is_some() {
            return None;
        }
        *place = block.take();
        Some(())
    });
}

/// Takes the block that another thread allocates, once it has.
fn get<B>(place: &Mutex<Option<B>>) -> B {
    until(|| place.lock().expect("no panic under it").take())
}

/// Sleeps until there is a result: these threads are more than the cores, and their processor time is what counts.
fn until<T>(mut try_it: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(it) = try_it() {
            return it;
        }
        thread::sleep(Duration::from_micros(20));
    }
}

impl Scripts {
    fn of(trace: &Trace) -> Self {
        let mut allocated_by = vec![0; trace.held.len()];
        let mut freed_by = vec![None; trace.held.len()];
        for record in &trace.records {
            match *record {
                Record::Allocate { thread, block, .. } => {
                    allocated_by[block as usize] = usize::from(thread)
                }
                Record::Free { thread, block } => {
                    freed_by[block as usize] = Some(usize::from(thread))
                }
            }
        }
        let mut scripts = Self {
            steps: vec![Vec::new(); trace.threads],
            own: vec![0; trace.threads],
            shared: 0,
            records: trace.records.len(),
            peak_live: 0,
        };
        let mut vacant: Vec<Vec<usize>> = vec![Vec::new(); trace.threads];
        let mut place_of: Vec<Option<(Place, usize)>> = vec![None; trace.held.len()];
        let mut live = 0;
        for record in &trace.records {
            let thread = record.thread();
            match *record {
                Record::Allocate {
                    block,
                    layout,
                    zeroed,
                    ..
                } => {
                    let to = if freed_by[block as usize].is_none_or(|by| by == thread) {
                        Place::Own(
                            vacant[thread]
                                .pop()
                                .unwrap_or_else(|| next(&mut scripts.own[thread])),
                        )
                    } else {
                        Place::Shared(next(&mut scripts.shared))
                    };
                    place_of[block as usize] = Some((to, layout.size()));
                    live += layout.size();
                    scripts.peak_live = scripts.peak_live.max(live);
                    scripts.steps[thread].push(Step::Allocate {
                        len: layout.size(),
                        zeroed,
                        to,
                    });
                }
                Record::Free { block, .. } => {
                    let (from, len) = place_of[block as usize]
                        .take()
                        .expect("the reader checks that it is live");
                    live -= len;
                    if let Place::Own(index) = from {
                        vacant[thread].push(index);
                    }
                    scripts.steps[thread].push(Step::Free { from });
                }
            }
        }
        // What the program still held at its end goes back before the next pass.
        for (block, place) in place_of.iter().enumerate() {
            if let Some((from, _)) = *place {
                scripts.steps[allocated_by[block]].push(Step::Free { from });
                scripts.records += 1;
            }
        }
        scripts
    }
}

fn next(count: &mut usize) -> usize {
    *count += 1;
    *count - 1
}
