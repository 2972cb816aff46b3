//! Recorded programs, replayed.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use super::touch;
use crate::case::{Case, Touch, Visit, Workload, allocators_and, visit};
use crate::contender::{Contender, Setup, start};
use crate::measure::{Budget, Clock, Sample, team, waiting};

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
    let contenders = allocators_and(["zeropool"]);
    ["digits", "image", "expr", "pipeline"]
        .map(|name| {
            let quick = name == "expr";
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
    budget: Budget,
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

/// A step, and when it was recorded.
#[derive(Clone, Copy)]
struct Timed {
    record: usize,
    step: Step,
}

/// What each thread does in a pass, and how many places that takes.
struct Scripts {
    steps: Vec<Vec<Timed>>,
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
        let pace = Pace::new(threads);
        let mut sample = team(threads, self.budget, Clock::Work, |index| {
            let (script, own, shared, pace) = (&scripts.steps[index], &own[index], &shared, &pace);
            let records = scripts.records;
            let mut begun = 0;
            move |passes| {
                let mut own = own.lock().expect("no panic under it");
                for _ in 0..passes {
                    pass::<C>(it, script, &mut own, shared, how, |record| {
                        pace.reach(index, begun + record)
                    });
                    begun += records;
                    pace.leave(index, begun);
                }
            }
        });
        // The team counts a pass of each thread; together they do all records.
        sample.per((scripts.records / threads) as u64);
        sample.live_kib = Some(scripts.peak_live as u64 >> 10);
        sample
    }
}

/// One thread's part of a pass.
fn pass<C: Contender>(
    it: &'static C,
    script: &[Timed],
    own: &mut [Option<C::Block>],
    shared: &[Mutex<Option<C::Block>>],
    how: Touch,
    mut pace: impl FnMut(usize),
) {
    let mut due = 0;
    for &Timed { record, step } in script {
        if record >= due {
            pace(record);
            due = record + STRIDE;
        }
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

/// Sleeps until there is a result: these threads are more than the cores.
fn until<T>(mut try_it: impl FnMut() -> Option<T>) -> T {
    if let Some(it) = try_it() {
        return it;
    }
    waiting(|| {
        loop {
            thread::sleep(Duration::from_micros(20));
            if let Some(it) = try_it() {
                return it;
            }
        }
    })
}

/// How far each thread has come in the recorded order of all, so that none runs far ahead of the others: the programs'
/// bounded queues, which held them together, are not in the traces.
struct Pace {
    reached: Vec<AtomicUsize>,
}

/// Records between two looks at the others. Less than the lead, so that a thread that waits for a block has let its
/// allocator come as far.
const STRIDE: usize = 16;
/// Records that a thread may be ahead of the slowest.
const LEAD: usize = 64;

impl Pace {
    fn new(threads: usize) -> Self {
        Self {
            reached: (0..threads).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    /// Says that a thread has nothing to do before this record.
    fn leave(&self, thread: usize, record: usize) {
        self.reached[thread].store(record, Relaxed);
    }

    /// Says that a thread has come to this record, and waits for the others.
    fn reach(&self, thread: usize, record: usize) {
        self.leave(thread, record);
        until(|| {
            let behind = self
                .reached
                .iter()
                .map(|it| it.load(Relaxed))
                .min()
                .unwrap_or(record);
            (record <= behind.saturating_add(LEAD)).then_some(())
        });
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
        for (number, record) in trace.records.iter().enumerate() {
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
                    let step = Step::Allocate {
                        len: layout.size(),
                        zeroed,
                        to,
                    };
                    scripts.steps[thread].push(Timed {
                        record: number,
                        step,
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
                    scripts.steps[thread].push(Timed {
                        record: number,
                        step: Step::Free { from },
                    });
                }
            }
        }
        // What the program still held at its end goes back before the next pass.
        for (block, place) in place_of.iter().enumerate() {
            if let Some((from, _)) = *place {
                let step = Step::Free { from };
                scripts.steps[allocated_by[block]].push(Timed {
                    record: scripts.records,
                    step,
                });
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
