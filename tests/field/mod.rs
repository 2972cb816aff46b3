//! What the tests of field cases share: threads that start at once, and a source that watches.

#![allow(unsafe_code, dead_code)]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use ndpool::source::{Memory, Os, Source};
use ndpool::{AllocError, Pool};

/// Runs `f(0)`, .., `f(threads - 1)` at once and returns what they return.
pub fn at_once<R: Send>(threads: usize, f: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let start = Barrier::new(threads);
    thread::scope(|scope| {
        let (start, f) = (&start, &f);
        let spawn = |n| {
            scope.spawn(move || {
                start.wait();
                f(n)
            })
        };
        let handles: Vec<_> = (0..threads).map(spawn).collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap())
            .collect()
    })
}

/// Sets the flag when it goes, also by a panic: else the threads that look at it would never end.
pub struct Stop<'a>(pub &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whether the long variants were asked for, by `NDPOOL_NIGHTLY=1`.
pub fn is_nightly() -> bool {
    std::env::var_os("NDPOOL_NIGHTLY").is_some_and(|value| value == "1")
}

/// A number of rounds: the full one at night.
pub fn rounds(quick: u64, nightly: u64) -> u64 {
    if is_nightly() { nightly } else { quick }
}

/// Fails the process if `f` takes longer than `most`: a hang is a failure with a name.
pub fn within<R>(most: Duration, name: &'static str, f: impl FnOnce() -> R) -> R {
    let (done, expired) = std::sync::mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        if expired.recv_timeout(most) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{name} hangs: not done after {most:?}");
            std::process::abort();
        }
    });
    let result = f();
    drop(done);
    watchdog.join().unwrap();
    result
}

/// Waits until `done` says so; fails after half a minute.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(30), "never: {what}");
        thread::yield_now();
    }
}

/// Runs test `name` of this binary again, alone in a process of its own; `true` in that process.
/// With `fall_back` it has no membarrier.
pub fn alone(name: &str, fall_back: bool) -> bool {
    const ALONE: &str = "NDPOOL_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child
        .args([name, "--exact", "--test-threads=1", "--nocapture"])
        .env(ALONE, "1");
    if fall_back {
        child.env("NDPOOL_NO_MEMBARRIER", "1");
    }
    assert!(child.status().unwrap().success());
    false
}

/// Resident bytes of this process.
#[cfg(target_os = "linux")]
pub fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<usize>().unwrap() << 10
}

/// The default source, watched: births, deaths, what is out now. Fresh memory is zero.
#[derive(Debug, Default)]
pub struct Watched {
    inner: Os,
    births: AtomicU64,
    deaths: AtomicU64,
    bytes: AtomicI64,
    highest: AtomicI64,
}

impl Watched {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Blocks asked for and got so far.
    pub fn births(&self) -> u64 {
        self.births.load(Ordering::SeqCst)
    }

    /// Blocks given back so far.
    pub fn deaths(&self) -> u64 {
        self.deaths.load(Ordering::SeqCst)
    }

    /// Blocks that are out now.
    pub fn live(&self) -> u64 {
        let deaths = self.deaths();
        self.births() - deaths
    }

    /// Bytes that are out now, as footprints.
    pub fn live_bytes(&self) -> i64 {
        self.bytes.load(Ordering::SeqCst)
    }

    /// Most bytes that were out at once.
    pub fn highest_bytes(&self) -> i64 {
        self.highest.load(Ordering::SeqCst)
    }
}

// SAFETY: every block is the inner source's; the fill stays within the block.
unsafe impl Source for Watched {
    fn name(&self) -> &'static str {
        "watched"
    }

    fn footprint(&self, layout: Layout) -> usize {
        self.inner.footprint(layout)
    }

    fn alloc(&self, layout: Layout, _zeroed: bool) -> Result<Memory, AllocError> {
        let memory = self.inner.alloc(layout, true)?;
        if !memory.zeroed {
            // SAFETY: the block is ours, `layout.size()` bytes long.
            unsafe { memory.base.write_bytes(0, layout.size()) };
        }
        self.births.fetch_add(1, Ordering::SeqCst);
        let footprint = self.footprint(layout) as i64;
        let now = self.bytes.fetch_add(footprint, Ordering::SeqCst) + footprint;
        self.highest.fetch_max(now, Ordering::SeqCst);
        Ok(Memory {
            zeroed: true,
            ..memory
        })
    }

    unsafe fn dealloc(&self, base: NonNull<u8>, layout: Layout, token: usize) {
        let footprint = self.footprint(layout) as i64;
        self.bytes.fetch_sub(footprint, Ordering::SeqCst);
        // SAFETY: the caller's promise, passed on.
        unsafe { self.inner.dealloc(base, layout, token) };
        self.deaths.fetch_add(1, Ordering::SeqCst);
    }

    unsafe fn discard(&self, base: NonNull<u8>, layout: Layout, token: usize, len: usize) -> bool {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.inner.discard(base, layout, token, len) }
    }
}

/// A pool over a watched source.
pub fn watched() -> (Pool, Arc<Watched>) {
    let source = Watched::new();
    let pool = Pool::builder().source(Arc::clone(&source)).build();
    (pool, source)
}

/// Takes a block of `len` words and gives it back, stamping it with `id` while it is held: who
/// else holds it at the same time is found. Memory of a [`Watched`] source starts unstamped.
pub fn stamp_once(pool: &Pool, len: usize, id: u64, pause: bool) {
    let mut buffer = pool.allocate::<u64>(len).unwrap();
    let place = buffer.as_mut_ptr().cast::<u64>();
    // SAFETY: the block is ours for as long as `buffer` lives, aligned, and was zeroed at its
    // birth; if it were another owner's too, only atomic accesses would meet.
    let stamp = unsafe { AtomicU64::from_ptr(place) };
    let found = stamp.swap(id, Ordering::Relaxed);
    assert_eq!(found, 0, "owner {id} found {found}");
    if pause {
        thread::yield_now();
    }
    let found = stamp.swap(0, Ordering::Relaxed);
    assert_eq!(found, id, "owner {id} found {found}");
}
