//! Several threads: buffers of their own, one shared pool, from producer to consumer, scaling, threads that come and go.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::Mutex;
use std::thread;

use rtrb::{Consumer, Producer, RingBuffer};

use super::pair::pairs;
use super::touch;
use crate::case::{
    self, ALLOCATORS, Case, OURS, POOLS, Touch, Visit, Workload, allocators_and, bytes, visit,
};
use crate::contender::Contender;
use crate::measure::{Budget, Clock, Sample, alone, team};

/// Each thread allocates and frees its own.
pub const OWN: Workload = Workload {
    name: "own",
    title: "allocate + free, each thread its own buffers (time per thread: compare two threads with one)",
    op: "pair on one thread",
    cases: own_cases,
    run: |case, name, budget| visit(name, Team { case, budget }),
};

/// Two threads and one pool.
pub const SHARED_POOL: Workload = Workload {
    name: "shared-pool",
    title: "allocate + free, two threads on one pool (by-hand is thread-local: the bound)",
    op: "pair on one thread",
    cases: shared_cases,
    run: |case, name, budget| visit(name, Team { case, budget }),
};

/// From one thread to four.
pub const SCALING: Workload = Workload {
    name: "scaling",
    title: "allocate + free, depth 4, one to four threads (time per thread; more threads than cores wait for each other)",
    op: "pair on one thread",
    cases: scaling_cases,
    run: |case, name, budget| visit(name, Team { case, budget }),
};

/// Allocated here, freed there.
pub const PIPE: Workload = Workload {
    name: "pipe",
    title: "producer to consumer over a ring of 128, the first byte (or one a page) written here and read there, the ring's cost included",
    op: "buffer",
    cases: pipe_cases,
    run: |case, name, budget| visit(name, Pipe { case, budget }),
};

/// Threads that come and go.
pub const CHURN: Workload = Workload {
    name: "churn",
    title: "a thread is started, allocates 16 buffers, writes a byte a page, frees them and ends (thread's cost included)",
    op: "thread",
    cases: churn_cases,
    run: |case, name, budget| visit(name, Churn { case, budget }),
};

fn own_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for depth in [1, 4] {
        for size in [64, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20] {
            for threads in [1, 2] {
                let label = format!("{}, depth {depth}, {}", bytes(size), case::threads(threads));
                let quick = depth == 4 && [64 << 10, 1 << 20].contains(&size);
                cases.push(Case {
                    quick,
                    depth,
                    threads,
                    ..Case::of(label, size, &ALLOCATORS)
                });
            }
        }
    }
    cases
}

fn shared_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for depth in [1, 4] {
        for size in [4 << 10, 64 << 10, 1 << 20] {
            let label = format!("{}, depth {depth}", bytes(size));
            cases.push(Case {
                quick: depth == 1 && size == 64 << 10,
                depth,
                threads: 2,
                ..Case::of(label, size, &POOLS)
            });
        }
    }
    cases
}

fn scaling_cases() -> Vec<Case> {
    const SOME: [&str; 7] = [
        OURS,
        "glibc",
        "mimalloc",
        "jemalloc",
        "snmalloc",
        "array-queue",
        "zeropool",
    ];
    let mut cases = Vec::new();
    for size in [4 << 10, 64 << 10] {
        for threads in 1..=4 {
            let label = format!("{}, {}", bytes(size), case::threads(threads));
            cases.push(Case {
                depth: 4,
                threads,
                ..Case::of(label, size, &SOME)
            });
        }
    }
    cases
}

fn pipe_cases() -> Vec<Case> {
    let contenders = allocators_and(["array-queue", "zeropool"]);
    let of = |label: String, size, how| Case {
        depth: RING,
        threads: 2,
        touch: how,
        ..Case::of(label, size, &contenders)
    };
    let mut cases = Vec::new();
    for size in [64, 4 << 10, 64 << 10] {
        cases.push(Case {
            quick: true,
            ..of(bytes(size), size, Touch::Untouched)
        });
    }
    cases.push(of(
        format!("{}, a byte a page", bytes(64 << 10)),
        64 << 10,
        Touch::Page,
    ));
    cases
}

fn churn_cases() -> Vec<Case> {
    let contenders = allocators_and(["by-hand", "array-queue", "zeropool"]);
    [4 << 10, 64 << 10, 1 << 20]
        .map(|size| {
            let quick = size == 64 << 10;
            Case {
                quick,
                depth: CHURNED,
                touch: Touch::Page,
                ..Case::of(bytes(size), size, &contenders)
            }
        })
        .to_vec()
}

struct Team<'a> {
    case: &'a Case,
    budget: Budget,
}

impl Visit for Team<'_> {
    type Output = Sample;

    fn with<C: Contender>(self) -> Sample {
        let Self { case, budget } = self;
        let it: &'static C = case.start(case.depth * case.threads);
        let size = case.size;
        let mut sample = match case.depth {
            1 => team(case.threads, budget, Clock::Wall, |_| {
                move |ops| pairs::<C, 1>(it, ops, size, Touch::Untouched)
            }),
            4 => team(case.threads, budget, Clock::Wall, |_| {
                move |ops| pairs::<C, 4>(it, ops, size, Touch::Untouched)
            }),
            depth => unreachable!("no case has depth {depth}"),
        };
        sample.per(case.depth as u64);
        sample
    }
}

/// Buffers in flight.
const RING: usize = 128;

struct Pipe<'a> {
    case: &'a Case,
    budget: Budget,
}

/// An end of the ring, taken by the thread that uses it.
enum End<B> {
    Producer(Producer<B>),
    Consumer(Consumer<B>),
}

impl Visit for Pipe<'_> {
    type Output = Sample;

    fn with<C: Contender>(self) -> Sample {
        let Self { case, budget } = self;
        let it: &'static C = case.start(RING + 2);
        let (producer, consumer) = RingBuffer::new(RING);
        let ends = Mutex::new(vec![End::Producer(producer), End::Consumer(consumer)]);
        let (size, how) = (case.size, case.touch);
        team(2, budget, Clock::Wall, |_| {
            let mut end = ends
                .lock()
                .expect("no panic under it")
                .pop()
                .expect("an end for each of two threads");
            move |ops| match &mut end {
                End::Producer(producer) => produce::<C>(it, producer, ops, size, how),
                End::Consumer(consumer) => consume::<C>(it, consumer, ops, size, how),
            }
        })
    }
}

fn produce<C: Contender>(
    it: &'static C,
    ring: &mut Producer<C::Block>,
    ops: u64,
    size: usize,
    how: Touch,
) {
    for op in 0..ops {
        let len = black_box(size);
        let mut block = it.allocate(len);
        let start = C::address(&mut block);
        touch(start, len, how, op as u8);
        // SAFETY: no case asks for zero bytes.
        unsafe { start.write_volatile(op as u8) };
        let mut waiting = Some(block);
        while let Some(block) = waiting.take() {
            if let Err(rtrb::PushError::Full(back)) = ring.push(block) {
                waiting = Some(back);
                std::hint::spin_loop();
            }
        }
    }
}

fn consume<C: Contender>(
    it: &'static C,
    ring: &mut Consumer<C::Block>,
    ops: u64,
    size: usize,
    how: Touch,
) {
    for _ in 0..ops {
        let mut block = loop {
            match ring.pop() {
                Ok(block) => break block,
                Err(rtrb::PopError::Empty) => std::hint::spin_loop(),
            }
        };
        let start = C::address(&mut block);
        let sum = Cell::new(0_u8);
        let seen = if how == Touch::Untouched { 1 } else { size };
        for offset in (0..seen).step_by(super::PAGE) {
            // SAFETY: `offset < seen <= size`.
            let place = unsafe { start.add(offset) };
            // SAFETY: the producer wrote that byte before it pushed the block.
            let byte = unsafe { place.read_volatile() };
            sum.set(sum.get().wrapping_add(byte));
        }
        black_box(sum.get());
        it.free(block);
    }
}

/// Buffers of one short-lived thread.
const CHURNED: usize = 16;

struct Churn<'a> {
    case: &'a Case,
    budget: Budget,
}

impl Visit for Churn<'_> {
    type Output = Sample;

    fn with<C: Contender>(self) -> Sample {
        let it: &'static C = self.case.start(CHURNED);
        let (size, how) = (self.case.size, self.case.touch);
        alone(self.budget, |ops| {
            for _ in 0..ops {
                let worker = thread::spawn(move || pairs::<C, CHURNED>(it, 1, size, how));
                worker.join().expect("the worker does not panic");
            }
        })
    }
}
