//! Field cases G: forks. A child must never wait for a thread that exists in its parent only, and
//! must be able to allocate and to give back. Each test is named for the behaviour, with the number
//! of the report. All run in a process of their own, with nothing else in it.

#![cfg(unix)]
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ndpool::{Pool, abandoned_caches};

mod field;
use field::{Stop, alone, rounds};

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Exit(i32),
    Signal(i32),
}

/// Forks; the child runs `child` under an alarm of ten seconds and ends with what it returns.
fn fork(child: impl FnOnce() -> i32) -> End {
    // SAFETY: the child calls what the pool promises to be safe there, and the allocator, which
    // glibc makes safe after a fork; it ends without unwinding into its parent's frames.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "no fork");
    if pid == 0 {
        // SAFETY: no handler is installed: the signal ends the child.
        unsafe { libc::alarm(10) };
        let run = std::panic::AssertUnwindSafe(child);
        let code = std::panic::catch_unwind(run).unwrap_or(101);
        // SAFETY: ends the child.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFEXITED(status) {
        End::Exit(libc::WEXITSTATUS(status))
    } else {
        End::Signal(libc::WTERMSIG(status))
    }
}

/// Takes and drops in every class up to `most` bytes, twice, with a mark in the first byte.
fn every_class(pool: &Pool, most: usize) {
    for &bytes in ndpool::class::TABLE.iter().take_while(|&&b| b <= most) {
        for mark in [1, 2] {
            let mut buffer = pool.allocate::<u8>(bytes).unwrap();
            buffer[0].write(mark);
            // SAFETY: just written.
            assert_eq!(unsafe { buffer[0].assume_init() }, mark);
            assert!(buffer.capacity() >= bytes);
        }
    }
}

/// A child: takes and drops, and waits until nothing is held any more; 3 if that never comes.
fn ages_by_itself(pool: &Pool) -> i32 {
    every_class(pool, 16 << 20);
    let start = Instant::now();
    while pool.ledger().2 > 0 {
        if start.elapsed() > Duration::from_secs(8) {
            return 3;
        }
        thread::sleep(Duration::from_millis(5));
    }
    0
}

/// Four threads that take and drop in many classes until told to stop, while `f` runs.
fn beside_churn(pool: &Pool, trims: bool, f: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for id in 0..4usize {
            let stop = &stop;
            scope.spawn(move || {
                let mut n = id;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    let bytes = [100, 3_000, 20_000, 70_000][n % 4] + id;
                    drop(pool.filled(bytes, id as u8).unwrap());
                    if n.is_multiple_of(64) {
                        thread::yield_now();
                    }
                }
            });
        }
        if trims {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    pool.trim();
                }
            });
        }
        let _stop = Stop(&stop);
        f();
    });
}

/// F91: a thousand forks while four threads churn: every child can take and drop in every class,
/// and none waits for a lock that a thread of its parent held. The last one says how many caches
/// it lost.
#[test]
fn a_thousand_children_of_a_busy_process_all_allocate_f91() {
    if !alone(
        "a_thousand_children_of_a_busy_process_all_allocate_f91",
        false,
    ) {
        return;
    }
    assert_eq!(abandoned_caches(), 0);
    let pool = Pool::new();
    every_class(&pool, 1 << 20);
    beside_churn(&pool, false, || {
        for round in 0..1_000 {
            // Up to 64 MiB in one of eight: mapping and unmapping them takes its time.
            let most = if round % 8 == 0 { 64 << 20 } else { 256 << 10 };
            let end = fork(|| {
                every_class(&pool, most);
                pool.trim();
                every_class(&pool, 1 << 12);
                // Four churning threads, one cache each: no more can be lost.
                i32::from(abandoned_caches() > 4)
            });
            assert_eq!(end, End::Exit(0), "round {round}");
        }
    });
    assert_eq!(abandoned_caches(), 0, "the parent lost none");
    pool.audit().unwrap();
}

/// F92: the same while a trim runs, which may be at any cache, the forking thread's own included;
/// and the child's own cache serves it, though the trimmer that was at it is gone.
#[test]
fn a_child_of_a_process_that_trims_has_a_working_cache_f92() {
    if !alone(
        "a_child_of_a_process_that_trims_has_a_working_cache_f92",
        false,
    ) {
        return;
    }
    // Room for every class: that the budget is spent is not the question here.
    let pool = Pool::builder().cache_budget(64 << 20).build();
    beside_churn(&pool, true, || {
        for round in 0..rounds(400, 5_000) {
            every_class(&pool, 1 << 12);
            let end = fork(|| {
                every_class(&pool, 1 << 18);
                drop(pool.filled(1_000, 1u8).unwrap());
                let before = pool.stats().exchanges;
                for _ in 0..100 {
                    drop(pool.filled(1_000, 1u8).unwrap());
                }
                if pool.stats().exchanges > before + 2 {
                    return 3;
                }
                pool.trim();
                pool.age();
                0
            });
            assert_eq!(end, End::Exit(0), "round {round}");
        }
    });
    pool.audit().unwrap();
}

/// Without membarrier as well: requests left for owners that do not exist in the child hold nobody
/// up.
#[test]
fn children_need_no_membarrier() {
    if !alone("children_need_no_membarrier", true) {
        return;
    }
    let pool = Pool::new();
    beside_churn(&pool, true, || {
        for round in 0..100 {
            let end = fork(|| {
                every_class(&pool, 1 << 18);
                pool.trim();
                0
            });
            assert_eq!(end, End::Exit(0), "round {round}");
        }
    });
}

/// What idle threads of the parent kept is the child's to use and to give back: nothing is lost of
/// a cache that was quiet.
#[test]
fn a_child_gets_what_quiet_threads_kept() {
    if !alone("a_child_gets_what_quiet_threads_kept", false) {
        return;
    }
    let pool = Pool::new();
    let (ready, done) = (std::sync::Barrier::new(5), std::sync::Barrier::new(5));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                every_class(&pool, 1 << 14);
                ready.wait();
                done.wait();
            });
        }
        ready.wait();
        let resting = pool.stats().held_bytes;
        let end = fork(|| {
            if abandoned_caches() != 0 || pool.audit().is_err() {
                return 3;
            }
            i32::from(pool.trim() != resting || pool.ledger().2 != 0)
        });
        assert_eq!(end, End::Exit(0));
        done.wait();
    });
    pool.audit().unwrap();
}

/// A child has no background trimmer until something comes to rest in it; then it ages by itself,
/// also if something rested at the fork already.
#[test]
fn the_pool_of_a_child_ages_by_itself() {
    if !alone("the_pool_of_a_child_ages_by_itself", false) {
        return;
    }
    for rests_at_fork in [false, true] {
        let pool = Pool::builder().trimmer(Duration::from_millis(20)).build();
        if rests_at_fork {
            every_class(&pool, 1 << 16);
        }
        let end = fork(|| ages_by_itself(&pool));
        assert_eq!(end, End::Exit(0), "something rested: {rests_at_fork}");
        field::eventually("the parent ages as before", || pool.ledger().2 == 0);
    }
}

/// A thread can fork to its very end: also from a destructor of a thread-local, after those of
/// everything that was used later are gone.
#[test]
fn a_child_of_a_thread_that_is_going_is_like_any_other() {
    if !alone("a_child_of_a_thread_that_is_going_is_like_any_other", false) {
        return;
    }
    struct Forks(Pool);
    impl Drop for Forks {
        fn drop(&mut self) {
            let end = fork(|| ages_by_itself(&self.0));
            if end != End::Exit(0) {
                eprintln!("the child ended with {end:?}");
                std::process::abort();
            }
        }
    }
    thread_local! {
        static LAST: std::cell::RefCell<Option<Forks>> = const { std::cell::RefCell::new(None) };
    }
    let pool = Pool::builder().trimmer(Duration::from_millis(20)).build();
    every_class(&pool, 1 << 16);
    let going = thread::spawn(move || {
        // Used first, so the last to go.
        LAST.set(Some(Forks(pool.clone())));
        assert_eq!(fork(|| 0), End::Exit(0));
    });
    going.join().unwrap();
}

/// What a forked child finds of another thread's cache decides alone: it is emptied if it is whole
/// and not emptied yet, abandoned if somebody was at it, and then nobody ever adopts it.
#[test]
fn a_cache_is_buried_as_the_fork_found_it() {
    use ndpool::kernel::reach::{Bias, Steal};

    let owned = || {
        let bias = Bias::vacant();
        assert!(bias.adopt(|| ()));
        bias
    };
    // Name, what led to the state, how it is buried, whether a thread may adopt it afterwards.
    type Led = fn(&Bias);
    let cases: [(&str, Led, Steal, bool); 9] = [
        ("idle", |_| (), Steal::Taken, true),
        (
            "in an operation",
            |bias| assert!(bias.enter()),
            Steal::LeftToOwner,
            false,
        ),
        (
            "under a trimmer",
            |bias| assert_eq!(bias.steal(true), Steal::Taken),
            Steal::LeftToOwner,
            false,
        ),
        (
            "asked to flush",
            |bias| {
                assert!(bias.enter());
                assert_eq!(bias.steal(true), Steal::LeftToOwner);
                bias.leave();
            },
            Steal::Taken,
            true,
        ),
        (
            "asked to flush, in an operation",
            |bias| {
                assert!(bias.enter());
                assert_eq!(bias.steal(true), Steal::LeftToOwner);
            },
            Steal::LeftToOwner,
            false,
        ),
        (
            "of a closed pool, not emptied",
            |bias| {
                assert!(bias.enter());
                assert_eq!(bias.close(false), Steal::LeftToOwner);
                bias.leave();
            },
            Steal::Taken,
            true,
        ),
        (
            "of a closed pool, emptied by its owner",
            |bias| {
                assert!(bias.enter());
                assert_eq!(bias.close(false), Steal::LeftToOwner);
                bias.leave();
                assert!(bias.claim_close_flush());
            },
            Steal::Vacant,
            true,
        ),
        (
            "of a closed pool, under its closer",
            |bias| assert_eq!(bias.close(false), Steal::Taken),
            Steal::LeftToOwner,
            false,
        ),
        ("left", |bias| assert!(bias.exit()), Steal::Vacant, true),
    ];
    for (name, led, expected, adoptable) in cases {
        let bias = owned();
        led(&bias);
        assert_eq!(bias.bury(), expected, "{name}");
        assert_eq!(bias.bury(), Steal::Vacant, "{name}, buried again");
        assert_eq!(bias.adopt(|| ()), adoptable, "{name}, adopted");
    }
}
