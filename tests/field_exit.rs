//! Field cases G, as far as they need no fork: the end of a process, of a thread and of a pool, and
//! who is told what is left. Each test is named for the behaviour, with the number of the report.

#![allow(unsafe_code)]

use std::collections::HashSet;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use ndpool::{AuditError, Buffer, Pool, SharedBuffer};

mod field;
use field::{Stop, Watched, at_once, rounds, stamp_once, watched, within};

const SCENE: &str = "NDPOOL_TEST_EXIT_SCENE";

static POOL: LazyLock<Pool> = LazyLock::new(Pool::new);
static KEPT: Mutex<Vec<Buffer<u8>>> = Mutex::new(Vec::new());
static SHARED: OnceLock<SharedBuffer<u64>> = OnceLock::new();

/// Runs this test binary again, as `name` alone, in a scene.
fn scene(name: &str, scene: &str) -> ExitStatus {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--test-threads=1", "--nocapture"])
        .env(SCENE, scene)
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("{scene} hangs at exit");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

extern "C" fn at_exit() {
    KEPT.lock().unwrap().clear();
    let mut late = POOL.filled(5000, 1u8).unwrap();
    late.resize(50_000, 2).unwrap();
    assert_eq!(late[49_999], 2);
    POOL.trim();
    drop(late);
}

/// A live buffer in each place that outlives `main`: statics, a thread-local of the main thread, a
/// thread that is still running.
fn live_buffers_everywhere() {
    thread_local! {
        static LOCAL: Mutex<Vec<Buffer<u8>>> = const { Mutex::new(Vec::new()) };
    }
    KEPT.lock().unwrap().push(POOL.filled(5000, 1u8).unwrap());
    SHARED.set(POOL.filled(100, 2u64).unwrap().share()).unwrap();
    LOCAL.with(|local| local.lock().unwrap().push(POOL.filled(70, 1u8).unwrap()));
    for id in 1..=3 {
        thread::spawn(move || {
            loop {
                drop(POOL.filled(100, id).unwrap());
                thread::yield_now();
            }
        });
    }
    while POOL.stats().hits < 1000 {
        thread::yield_now();
    }
}

/// F57: a static pool, live buffers in statics and thread-locals, threads that are still at it: the
/// process ends as it was told, by exit, by exit with a handler that uses the pool, by a return
/// from main, and without running anything more.
#[test]
fn a_process_with_live_buffers_ends_as_told_f57() {
    const NAME: &str = "a_process_with_live_buffers_ends_as_told_f57";
    if let Ok(scene) = std::env::var(SCENE) {
        live_buffers_everywhere();
        match scene.as_str() {
            "exit" => std::process::exit(7),
            "atexit" => {
                // SAFETY: a function of our own that does not unwind unless it fails the test.
                assert_eq!(unsafe { libc::atexit(at_exit) }, 0);
                std::process::exit(7);
            }
            "_exit" => {
                // SAFETY: ends the process.
                unsafe { libc::_exit(7) }
            }
            _ => return,
        }
    }
    for name in ["exit", "atexit", "_exit"] {
        assert_eq!(scene(NAME, name).code(), Some(7), "{name}");
    }
    assert_eq!(scene(NAME, "return").code(), Some(0));
}

/// F95: closing does not free what users hold, and says so: the pool's policy is explicit. What is
/// out stays valid; what rests goes at once, what comes home later goes then.
#[test]
fn a_closed_pool_frees_what_rests_and_spares_what_is_out_f95() {
    let (pool, source) = watched();
    let out: Vec<_> = (0..10)
        .map(|n| pool.filled(1000, n as u8).unwrap())
        .collect();
    drop(
        (0..10)
            .map(|_| pool.filled(1000, 0u8).unwrap())
            .collect::<Vec<_>>(),
    );
    assert_eq!(source.live(), 20);
    pool.close();
    assert_eq!(source.live(), 10);
    let stats = pool.stats();
    let outstanding: u64 = stats.classes.iter().map(|row| row.live).sum();
    assert_eq!(outstanding, 10, "{stats}");
    assert!(stats.live_bytes >= 10_000);
    for (n, buffer) in out.into_iter().enumerate() {
        assert!(buffer.iter().all(|&byte| byte == n as u8));
        drop(buffer);
        assert_eq!(source.live(), 9 - n as u64);
    }
    assert_eq!(pool.stats().held_bytes, 0);
    // Closed pools still serve, from the source and back.
    drop(pool.filled(1000, 1u8).unwrap());
    assert_eq!(source.live(), 0);
}

/// F97: the audit finds every block in exactly one place, after churn on many threads, whatever
/// tier it rests in; and it finds a leak as what it is, a block with a user.
#[test]
fn the_audit_finds_every_block_in_one_place_f97() {
    let (pool, source) = watched();
    at_once(8, |id| {
        for round in 0..rounds(2_000, 200_000) {
            stamp_once(&pool, 8 << (round % 16), id as u64 + 1, round % 256 == 0);
        }
    });
    let held: Vec<_> = (0..7).map(|_| pool.filled(100, 0u64).unwrap()).collect();
    let audit = pool.audit().unwrap();
    assert_eq!(audit.live, 7);
    assert_eq!(audit.live + audit.cached + audit.depot, source.live());
    held.into_iter().for_each(std::mem::forget);
    pool.trim();
    let audit = pool.audit().unwrap();
    assert_eq!((audit.live, audit.cached, audit.depot), (7, 0, 0));
    assert_eq!(source.live(), 7);
    let text = AuditError::Held {
        ledger: 1,
        found: 2,
    }
    .to_string();
    assert!(text.contains('1') && text.contains('2'));
}

/// F98: a buffer of a thread that has exited is dropped on a thread that has never used the pool,
/// and exits in turn: the memory is in the global store, not lost with either.
#[test]
fn memory_of_two_dead_threads_is_in_the_global_store_f98() {
    let (pool, source) = watched();
    for round in 0..50 {
        let buffer = thread::scope(|scope| {
            let owner = scope.spawn(|| pool.filled(2000, round as u8).unwrap());
            owner.join().unwrap()
        });
        thread::scope(|scope| scope.spawn(move || drop(buffer)).join().unwrap());
        assert_eq!(pool.audit().unwrap().depot, 1, "round {round}");
    }
    assert_eq!(source.births(), 1);
}

/// F99: the cap on what may rest is hard, however many threads give at once.
#[test]
fn the_cap_is_hard_under_sixteen_givers_f99() {
    const CAP: usize = 64 << 10;
    let source = Watched::new();
    let pool = Pool::builder()
        .source(Arc::clone(&source))
        .cache_budget(0)
        .cap(CAP)
        .build();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = Stop(&done);
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::Relaxed) {
                most = most.max(pool.stats().resting_depot_bytes);
                thread::yield_now();
            }
            most
        });
        at_once(16, |id| {
            for _ in 0..rounds(40, 4_000) {
                let burst: Vec<_> = (0..10)
                    .map(|n| pool.filled(1000 + 300 * n, id as u8).unwrap())
                    .collect();
                drop(burst);
            }
        });
        drop(stop);
        let most = watcher.join().unwrap();
        assert!(most <= CAP, "{most} bytes rested");
    });
    assert!(source.live_bytes() as usize <= CAP);
    assert!(source.live() > 0, "nothing rested at all");
    pool.audit().unwrap();
}

/// F100: a thread that Rust did not start gets its magazines like any other, and gives them back at
/// its exit.
#[cfg(unix)]
#[test]
fn a_foreign_thread_gets_a_cache_and_leaves_nothing_f100() {
    extern "C" fn run(pool: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: the test passes its pool and waits for this thread.
        let pool = unsafe { &*pool.cast::<Pool>() };
        let places: HashSet<usize> = (0..1000)
            .map(|n| pool.filled(300, n as u16).unwrap().as_ptr().addr())
            .collect();
        assert_eq!(places.len(), 1);
        std::ptr::null_mut()
    }
    let (pool, source) = watched();
    let mut thread = std::mem::MaybeUninit::uninit();
    let argument = std::ptr::from_ref(&pool).cast_mut().cast();
    // SAFETY: a function of the right type, whose argument outlives the join below.
    let started =
        unsafe { libc::pthread_create(thread.as_mut_ptr(), std::ptr::null(), run, argument) };
    assert_eq!(started, 0);
    // SAFETY: written by the call above.
    let thread = unsafe { thread.assume_init() };
    // SAFETY: a thread of ours that nobody else joins.
    let joined = unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
    assert_eq!(joined, 0);
    let stats = pool.stats();
    assert_eq!((source.births(), stats.hits), (1, 999));
    // From the cache, not from the depot: one exchange at the exit.
    assert!(stats.exchanges <= 2, "{stats}");
    assert_eq!(pool.audit().unwrap().depot, 1);
}

/// An audit beside threads that exit: it neither loses what an exiting thread kept, nor takes what
/// is on its way for a mismatch.
#[test]
fn an_audit_beside_exiting_threads_balances_and_loses_nothing() {
    let (pool, source) = watched();
    for round in 0..rounds(300, 30_000) {
        // Nobody joins: the threads are on their way out, or not yet, when the audit looks.
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let held: Vec<_> = [100, 3_000, 100]
                        .map(|bytes| pool.filled(bytes, round as u8).unwrap())
                        .into();
                    drop(held);
                });
            }
        });
        pool.audit().unwrap();
    }
    pool.trim();
    within(Duration::from_secs(30), "the last exits", || {
        while source.live() > 0 {
            thread::yield_now();
            pool.trim();
        }
    });
}
