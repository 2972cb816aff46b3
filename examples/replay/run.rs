//! One replay: a plan carried out by one contender, in this process.

use std::alloc::Layout;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Condvar, Mutex, PoisonError};
use std::thread;

use crate::clock::{Clock, Scale, now};
use crate::contender::{Block, Contender, Misses};
use crate::memory::{self, Resident};
use crate::plan::{Place, Plan, Step, ThreadPlan};
use crate::stamp::{Checks, stamp, touch};

/// What a replay measured in its last pass, and checked in all of them.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Allocations and frees.
    pub operations: usize,
    /// Nanoseconds in the allocator, all threads together, touching included.
    pub allocator_ns: f64,
    /// Nanoseconds that threads waited for another's block.
    pub waiting_ns: f64,
    /// Nanoseconds of stamping and checking.
    pub stamping_ns: f64,
    /// Minor page faults.
    pub minor_faults: Option<u64>,
    /// What went to the contender's source of memory.
    pub misses: Option<Misses>,
    /// The most bytes asked for and not yet freed.
    pub peak_live: usize,
    /// The most resident bytes, over those before the first pass.
    pub peak_resident: Option<u64>,
    /// Whether that is the peak of the last pass, or of the process's whole life.
    pub peak_is_exact: bool,
    /// Resident bytes when all was freed, over those before the first pass.
    pub resident_after: Option<u64>,
    /// What was checked, in all passes.
    pub checks: Checks,
}

/// What the threads of a replay share.
struct Stage<'a, C: Contender> {
    contender: &'a C,
    clock: Clock,
    barrier: Barrier,
    crossings: Vec<Crossing<C::Block>>,
    live: Live,
    refusal: Mutex<Option<String>>,
}

/// The place where one thread leaves a block for another.
struct Crossing<B> {
    arrived: Mutex<Arrival<B>>,
    changed: Condvar,
}

/// A block on its way; a block that was refused arrives too, so that nobody waits for it.
enum Arrival<B> {
    Awaited,
    Here(Option<B>),
}

/// Bytes asked for and not yet freed.
#[derive(Default)]
struct Live {
    now: AtomicUsize,
    peak: AtomicUsize,
}

/// A thread of a replay.
struct Worker<'a, C: Contender> {
    plan: &'a ThreadPlan,
    slots: Vec<Option<C::Block>>,
    tally: Tally,
    checks: Checks,
}

/// Ticks of the clock that a thread spent in one pass.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    allocator: i64,
    waiting: i64,
    stamping: i64,
}

/// Carries out `plan` with `contender`, `passes` times (once at least), and measures the last pass.
///
/// The first thread of the plan is the calling thread, as the first thread of the recorded program
/// was its main thread; the others get a thread each. All of them live through all passes.
///
/// # Errors
/// If the contender refused an allocation: what it said first.
pub fn replay<C: Contender>(contender: &C, plan: &Plan, passes: usize) -> Result<Measured, String> {
    let passes = passes.max(1);
    let stage = Stage::new(contender, plan);
    let mut workers: Vec<_> = plan.threads.iter().map(Worker::new).collect();
    let mut rest = workers.split_off(workers.len().min(1));
    let mut first = workers.pop();
    thread::scope(|scope| {
        let others: Vec<_> = rest
            .iter_mut()
            .map(|worker| {
                let stage = &stage;
                scope.spawn(move || {
                    stage.barrier.wait();
                    for pass in 1..=passes {
                        stage.barrier.wait();
                        worker.pass(stage, pass);
                        stage.barrier.wait();
                        stage.barrier.wait();
                    }
                    (worker.tally, worker.checks)
                })
            })
            .collect();
        stage.barrier.wait();
        let (mut measured, scale) = conduct(&stage, plan, &mut first, passes);
        let own = first.iter().map(|worker| (worker.tally, worker.checks));
        let others = others.into_iter().map(|other| match other.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        for (tally, checks) in own.chain(others) {
            measured.allocator_ns += tally.allocator as f64 * scale;
            measured.waiting_ns += tally.waiting as f64 * scale;
            measured.stamping_ns += tally.stamping as f64 * scale;
            measured.checks.add(checks);
        }
        let refusal = stage
            .refusal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        refusal.map_or(Ok(measured), Err)
    })
}

/// The calling thread's part: its own steps, and the readings between the passes. Returns what it
/// measured and the nanoseconds per tick.
fn conduct<C: Contender>(
    stage: &Stage<'_, C>,
    plan: &Plan,
    first: &mut Option<Worker<'_, C>>,
    passes: usize,
) -> (Measured, f64) {
    let mut resident = Resident::baseline();
    for pass in 1..passes {
        stage.pass(first, pass);
        stage.barrier.wait();
    }
    stage.live.restart();
    resident.reset_peak();
    let faults = memory::minor_faults();
    let misses = stage.contender.misses();
    let scale = Scale::start();
    stage.pass(first, passes);
    let scale = scale.nanoseconds_per_tick();
    let faults = memory::minor_faults()
        .zip(faults)
        .map(|(end, start)| end - start);
    let misses = stage
        .contender
        .misses()
        .zip(misses)
        .map(|(end, start)| end.since(start));
    let measured = Measured {
        operations: plan.operations(),
        allocator_ns: 0.0,
        waiting_ns: 0.0,
        stamping_ns: 0.0,
        minor_faults: faults,
        misses,
        peak_live: stage.live.peak.load(Ordering::Relaxed),
        peak_resident: resident.peak(),
        peak_is_exact: resident.peak_is_exact(),
        resident_after: resident.now(),
        checks: Checks::default(),
    };
    stage.barrier.wait();
    (measured, scale)
}

impl<'a, C: Contender> Stage<'a, C> {
    fn new(contender: &'a C, plan: &Plan) -> Self {
        let mut crossings = Vec::new();
        crossings.resize_with(plan.crossings, Crossing::new);
        Stage {
            contender,
            clock: Clock::new(),
            barrier: Barrier::new(plan.threads.len().max(1)),
            crossings,
            live: Live::default(),
            refusal: Mutex::new(None),
        }
    }

    /// The calling thread's steps, while the other threads do theirs.
    fn pass(&self, first: &mut Option<Worker<'_, C>>, pass: usize) {
        self.barrier.wait();
        if let Some(worker) = first {
            worker.pass(self, pass);
        }
        self.barrier.wait();
    }

    #[cold]
    fn refused(&self, words: String) {
        let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        refusal.get_or_insert(words);
    }
}

impl<B> Crossing<B> {
    fn new() -> Self {
        Crossing {
            arrived: Mutex::new(Arrival::Awaited),
            changed: Condvar::new(),
        }
    }

    fn put(&self, block: Option<B>) {
        *self.arrived.lock().unwrap_or_else(PoisonError::into_inner) = Arrival::Here(block);
        self.changed.notify_one();
    }

    fn wait(&self) -> Option<B> {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match std::mem::replace(&mut *arrived, Arrival::Awaited) {
                Arrival::Here(block) => return block,
                Arrival::Awaited => {
                    arrived = self
                        .changed
                        .wait(arrived)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl Live {
    fn restart(&self) {
        self.now.store(0, Ordering::Relaxed);
        self.peak.store(0, Ordering::Relaxed);
    }

    fn add(&self, bytes: usize) {
        let now = self.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
    }

    fn sub(&self, bytes: usize) {
        self.now.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl<'a, C: Contender> Worker<'a, C> {
    fn new(plan: &'a ThreadPlan) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(plan.slots, || None);
        Worker {
            plan,
            slots,
            tally: Tally::default(),
            checks: Checks::default(),
        }
    }

    /// All steps once; then the blocks still held are freed, which is not timed.
    fn pass(&mut self, stage: &Stage<'_, C>, pass: usize) {
        self.tally = Tally::default();
        self.carry_out(stage, &self.plan.steps, pass);
        let tally = self.tally;
        self.carry_out(stage, &self.plan.closing, pass);
        self.tally = tally;
    }

    fn carry_out(&mut self, stage: &Stage<'_, C>, steps: &[Step], pass: usize) {
        for step in steps {
            match *step {
                Step::Allocate {
                    block,
                    place,
                    layout,
                    zeroed,
                } => {
                    let block = self.allocate(stage, layout, zeroed, owner(pass, block));
                    match place {
                        Place::Slot(slot) => self.slots[slot as usize] = block,
                        Place::Crossing(crossing) => stage.crossings[crossing as usize].put(block),
                    }
                }
                Step::Free { block, place } => {
                    let held = match place {
                        Place::Slot(slot) => self.slots[slot as usize].take(),
                        Place::Crossing(crossing) => self.wait(stage, crossing),
                    };
                    if let Some(held) = held {
                        self.free(stage, held, owner(pass, block));
                    }
                }
            }
        }
    }

    /// A block, touched and stamped; `None` if it was refused.
    fn allocate(
        &mut self,
        stage: &Stage<'_, C>,
        layout: Layout,
        zeroed: bool,
        owner: u64,
    ) -> Option<C::Block> {
        let started = now();
        let allocated = if zeroed {
            stage.contender.zeroed(layout)
        } else {
            stage.contender.allocate(layout)
        };
        let mut block = match allocated {
            Ok(block) => block,
            Err(words) => {
                stage.refused(words);
                return None;
            }
        };
        touch(block.payload());
        let allocated = now();
        let payload = block.payload();
        stage.live.add(payload.len());
        self.checks.alignment(payload, layout.align());
        if zeroed {
            self.checks.zeroed(payload);
        }
        stamp(payload, owner);
        let stamped = now();
        self.tally.allocator += stage.clock.between(started, allocated);
        self.tally.stamping += stage.clock.between(allocated, stamped);
        Some(block)
    }

    fn free(&mut self, stage: &Stage<'_, C>, mut block: C::Block, owner: u64) {
        let started = now();
        let payload = block.payload();
        stage.live.sub(payload.len());
        self.checks.stamps(payload, owner);
        let checked = now();
        drop(block);
        let freed = now();
        self.tally.stamping += stage.clock.between(started, checked);
        self.tally.allocator += stage.clock.between(checked, freed);
    }

    fn wait(&mut self, stage: &Stage<'_, C>, crossing: u32) -> Option<C::Block> {
        let started = now();
        let block = stage.crossings[crossing as usize].wait();
        self.tally.waiting += stage.clock.between(started, now());
        block
    }
}

/// The stamp of a block in a pass, from 1: no two blocks of a replay share one, and none is zero.
fn owner(pass: usize, block: u32) -> u64 {
    (pass as u64) << 32 | u64::from(block)
}
