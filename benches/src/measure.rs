//! Time, faults, system calls, instructions and resident memory of one cell.
#![allow(unsafe_code)]

use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use perf_event::events::{Hardware, Tracepoint};
use perf_event::{Builder, Counter};
use serde::{Deserialize, Serialize};

/// Timed batches per cell. The cell's time is their lower quartile: what else runs on the machine only ever adds, so half
/// of the batches may be disturbed.
const BATCHES: usize = 15;
/// A cell of slow operations stops after this many, once its budget is spent.
const FEWEST: usize = 3;

/// What one cell measured. `None` where it cannot be counted here, or where the workload does not ask.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Timed operations.
    pub ops: u64,
    /// Wall time of one operation on one thread.
    pub ns_per_op: f64,
    /// Minor page faults, over all threads.
    pub faults_per_op: f64,
    /// System calls, over all threads.
    pub syscalls_per_op: Option<f64>,
    /// User instructions, over all threads.
    pub instructions_per_op: Option<f64>,
    /// Highest resident memory, over what was resident before the workload.
    pub peak_kib: Option<u64>,
    /// Most bytes asked for at once.
    pub live_kib: Option<u64>,
    /// Latency quantiles.
    pub p50_ns: Option<u64>,
    /// See [`Sample::p50_ns`].
    pub p99_ns: Option<u64>,
    /// See [`Sample::p50_ns`].
    pub p999_ns: Option<u64>,
    /// See [`Sample::p50_ns`].
    pub max_ns: Option<u64>,
    /// Resident growth when everything has just been freed.
    pub freed_kib: Option<u64>,
    /// Resident growth two seconds later.
    pub settled_kib: Option<u64>,
    /// Resident growth after asking the contender to trim.
    pub trimmed_kib: Option<u64>,
}

impl Sample {
    /// Counts each measured operation as `many`.
    pub fn per(&mut self, many: u64) {
        let by = many as f64;
        self.ops *= many;
        self.ns_per_op /= by;
        self.faults_per_op /= by;
        self.syscalls_per_op = self.syscalls_per_op.map(|it| it / by);
        self.instructions_per_op = self.instructions_per_op.map(|it| it / by);
    }
}

/// Counters that are opened before the workload starts threads, so that they are counted too.
pub struct Meter {
    syscalls: Option<Counter>,
    instructions: Option<Counter>,
    resident_before: u64,
    faults_before: i64,
}

impl Meter {
    /// Opens what the machine allows and resets the resident peak.
    pub fn start() -> Self {
        let syscalls = system_call().and_then(|event| {
            Builder::new(event)
                .include_kernel()
                .inherit(true)
                .build()
                .ok()
        });
        let instructions = Builder::new(Hardware::INSTRUCTIONS)
            .inherit(true)
            .build()
            .ok();
        // Where the reset is refused the peak of the process's start stays, which is small.
        let _ = fs::write("/proc/self/clear_refs", "5");
        Self {
            syscalls,
            instructions,
            resident_before: status_kib("VmRSS:"),
            faults_before: minor_faults(),
        }
    }

    /// Highest resident memory since the start, less what was resident then.
    pub fn peak_kib(&self) -> u64 {
        status_kib("VmHWM:").saturating_sub(self.resident_before)
    }

    /// Resident memory now, less what was resident at the start.
    pub fn grown_kib(&self) -> u64 {
        status_kib("VmRSS:").saturating_sub(self.resident_before)
    }

    /// Minor faults since the start.
    pub fn faults(&self) -> i64 {
        minor_faults() - self.faults_before
    }

    /// System calls and instructions of one operation on one thread, over untimed runs: a tracepoint would slow the
    /// timed ones. What a batch costs besides its operations is in a short run as in a long one, and cancels out.
    fn count(
        &mut self,
        run: &mut dyn FnMut(u64) -> f64,
        ops: u64,
        threads: u64,
    ) -> [Option<f64>; 2] {
        let more = ops.max(2);
        let [short, long] = [1, 1 + more].map(|ops| {
            self.enable();
            run(ops);
            self.read()
        });
        [0, 1].map(|which| {
            let extra = long[which]?.saturating_sub(short[which]?);
            Some(extra as f64 / (more * threads) as f64)
        })
    }

    fn enable(&mut self) {
        for counter in [&mut self.syscalls, &mut self.instructions] {
            if counter
                .as_mut()
                .is_some_and(|it| it.reset().and_then(|()| it.enable()).is_err())
            {
                *counter = None;
            }
        }
    }

    fn read(&mut self) -> [Option<u64>; 2] {
        [&mut self.syscalls, &mut self.instructions].map(|counter| {
            let counter = counter.as_mut()?;
            counter.disable().and_then(|()| counter.read()).ok()
        })
    }

    /// Warms up, sizes the batches, times them, then counts. `run(n)` does `n` operations on each of `threads`
    /// threads and returns the nanoseconds that one of them took.
    fn sample(
        &mut self,
        budget: Duration,
        threads: u64,
        run: &mut dyn FnMut(u64) -> f64,
    ) -> Sample {
        let slice = budget.as_nanos() as f64 / BATCHES as f64;
        let ops = batch_size(slice, run);
        let mut times = Vec::with_capacity(BATCHES);
        let faults = minor_faults();
        let mut spent = 0.0;
        while times.len() < BATCHES
            && (times.len() < FEWEST || spent < 2.0 * slice * BATCHES as f64)
        {
            let ns = run(ops);
            times.push(ns / ops as f64);
            spent += ns;
        }
        let timed = ops * times.len() as u64;
        let faults = minor_faults() - faults;
        let [syscalls_per_op, instructions_per_op] = self.count(run, ops, threads);
        Sample {
            ops: timed * threads,
            ns_per_op: lower_quartile(&mut times),
            faults_per_op: faults as f64 / (timed * threads) as f64,
            syscalls_per_op,
            instructions_per_op,
            peak_kib: Some(self.peak_kib()),
            ..Sample::default()
        }
    }
}

/// The entry of any system call, if this process may trace it.
fn system_call() -> Option<Tracepoint> {
    ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .iter()
        .find_map(|root| {
            let id = fs::read_to_string(format!("{root}/events/raw_syscalls/sys_enter/id")).ok()?;
            Some(Tracepoint::with_id(id.trim().parse().ok()?))
        })
}

/// Runs ever larger batches, which is also the warm-up, until one fills `slice` nanoseconds.
fn batch_size(slice: f64, run: &mut dyn FnMut(u64) -> f64) -> u64 {
    let mut ops = 1;
    let mut spent = 0.0;
    run(1);
    loop {
        let ns = run(ops).max(1.0);
        spent += ns;
        if ns >= slice * 0.5 || spent >= 4.0 * slice {
            return ((slice * ops as f64 / ns) as u64).clamp(1, ops.saturating_mul(4));
        }
        ops = ops.saturating_mul(((slice / ns) as u64).clamp(2, 8));
    }
}

/// Median; sorts its argument.
pub fn median(values: &mut [f64]) -> f64 {
    assert!(!values.is_empty(), "a median of something");
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    }
}

fn lower_quartile(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 4]
}

/// Measures `work(n)`, which does `n` operations, on this thread.
pub fn alone(budget: Duration, mut work: impl FnMut(u64)) -> Sample {
    let mut meter = Meter::start();
    meter.sample(budget, 1, &mut |ops| {
        let start = Instant::now();
        work(ops);
        start.elapsed().as_nanos() as f64
    })
}

/// What a team's time is measured by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// As the user waits.
    Wall,
    /// As the threads work, the kernel's work for them included: where they also wait for each other.
    Work,
}

impl Clock {
    fn now(self) -> Duration {
        let clock = match self {
            Self::Wall => libc::CLOCK_MONOTONIC,
            Self::Work => libc::CLOCK_THREAD_CPUTIME_ID,
        };
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the pointer is to a `timespec` that outlives the call.
        let result = unsafe { libc::clock_gettime(clock, &mut time) };
        assert_eq!(result, 0, "both clocks exist");
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

/// Measures threads that work at the same time. `make(i)` runs on the `i`-th and returns its work; the time of an
/// operation is the mean over the threads of what each took by its own clock.
pub fn team<W: FnMut(u64)>(
    threads: usize,
    budget: Duration,
    clock: Clock,
    make: impl Fn(usize) -> W + Sync,
) -> Sample {
    let mut meter = Meter::start();
    let gate = Barrier::new(threads + 1);
    // The number of operations of the coming batch; 0 ends the team.
    let order = AtomicU64::new(0);
    let spent = AtomicU64::new(0);
    thread::scope(|scope| {
        for index in 0..threads {
            let (make, gate, order, spent) = (&make, &gate, &order, &spent);
            scope.spawn(move || {
                pin(index, threads);
                let mut work = make(index);
                loop {
                    gate.wait();
                    let ops = order.load(Relaxed);
                    if ops == 0 {
                        break;
                    }
                    let start = clock.now();
                    work(ops);
                    let took = clock.now() - start;
                    spent.fetch_add(took.as_nanos() as u64, Relaxed);
                    gate.wait();
                }
            });
        }
        let sample = meter.sample(budget, threads as u64, &mut |ops| {
            order.store(ops, Relaxed);
            spent.store(0, Relaxed);
            gate.wait();
            gate.wait();
            spent.load(Relaxed) as f64 / threads as f64
        });
        order.store(0, Relaxed);
        gate.wait();
        sample
    })
}

/// Keeps a thread on a core of its own, while there are enough of them.
fn pin(index: usize, threads: usize) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    if threads < 2 || threads > cores {
        return;
    }
    #[cfg(target_os = "linux")]
    {
        // SAFETY: a bit set of plain integers; all zero is the empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: `index < cores`, far below the set's capacity.
        unsafe { libc::CPU_SET(index, &mut set) };
        // A refusal (cores not numbered from 0, a restricted set) leaves the thread where the system puts it.
        // SAFETY: the set outlives the call and its size is its own.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
    }
}

fn minor_faults() -> i64 {
    // SAFETY: plain integers; all zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a `rusage` that outlives the call.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    assert_eq!(result, 0, "getrusage cannot fail for RUSAGE_SELF");
    usage.ru_minflt
}

/// A KiB field of `/proc/self/status`; 0 where there is none.
fn status_kib(field: &str) -> u64 {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with(field))?;
            line[field.len()..]
                .trim()
                .trim_end_matches(" kB")
                .parse()
                .ok()
        })
        .unwrap_or(0)
}
