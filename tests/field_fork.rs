//! Field cases G on fork: a child finds no lock held and no structure torn, whatever the parent's
//! other threads were at. Each test is named for the behaviour, with the number of the report.

#![cfg(unix)]
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ndpool::{Buffer, Pool, class};

mod field;
use field::{Stop, rounds, stamp_once, watched};

/// What a child does: takes a buffer of every class up to 1 MiB, writes it, and gives it back;
/// shares one, trims. Its exit code says how it went; a hang ends by the alarm.
fn child(pool: &Pool, inherited: &Buffer<u64>) -> ! {
    // SAFETY: ends a child that hangs; touches no memory.
    unsafe { libc::alarm(10) };
    let mut code = 0;
    for round in 0..2 {
        for bytes in (0..)
            .map(class::capacity)
            .take_while(|&bytes| bytes <= 1 << 20)
        {
            match pool.allocate::<u8>(bytes) {
                Ok(buffer) => {
                    let buffer = buffer.fill_value(7);
                    if buffer[bytes - 1] != 7 {
                        code = 3;
                    }
                }
                Err(_) => code = 2,
            }
        }
        if round == 0 {
            pool.trim();
        }
    }
    if inherited.iter().any(|&word| word != 42) {
        code = 4;
    }
    // SAFETY: ends the child without running what belongs to the parent.
    unsafe { libc::_exit(code) }
}

/// Forks `count` times while `work` runs on four threads.
fn forks(count: u64, pool: &Pool, work: impl Fn(u64) + Sync) {
    let done = AtomicBool::new(false);
    let inherited = pool.filled(100, 42u64).unwrap();
    thread::scope(|scope| {
        let _stop = Stop(&done);
        for id in 1..=4 {
            let (work, done) = (&work, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    work(id);
                }
            });
        }
        let statuses: Vec<_> = (0..count)
            .map(|round| {
                if round % 8 == 0 {
                    stamp_once(pool, 100, 9, true);
                }
                // SAFETY: the child uses the pool alone, whose promise is the test, and exits.
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    child(pool, &inherited);
                }
                let mut status = 0;
                // SAFETY: our own child, and a place of our own for its status.
                let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
                (pid > 0 && waited == pid, status)
            })
            .collect();
        for (round, &(waited, status)) in statuses.iter().enumerate() {
            assert!(waited, "fork {round}");
            assert!(
                libc::WIFEXITED(status),
                "child {round} was killed by signal {} (14: it hung)",
                libc::WTERMSIG(status)
            );
            assert_eq!(libc::WEXITSTATUS(status), 0, "child {round}");
        }
    });
}

/// F91: four threads churn while the process forks, again and again; each child allocates and frees
/// in every class.
#[test]
fn a_child_of_a_busy_process_allocates_in_every_class_f91() {
    let (pool, source) = watched();
    forks(rounds(40, 1_000), &pool, |id| {
        for round in 0..50 {
            stamp_once(&pool, 8 << (round % 14), id, false);
        }
    });
    pool.trim();
    assert_eq!(source.live(), 0, "the parent lost something");
    pool.audit().unwrap();
}

/// F92: the same while every thread trims as well, so that forks fall into trims.
#[test]
fn a_fork_in_the_middle_of_a_trim_leaves_a_working_child_f92() {
    let (pool, source) = watched();
    forks(rounds(40, 1_000), &pool, |id| {
        stamp_once(&pool, 8 << (id * 3), id, false);
        pool.trim();
    });
    pool.trim();
    assert_eq!(source.live(), 0, "the parent lost something");
    pool.audit().unwrap();
}
