//! The portable fall-back of the owner-biased lock, forced in a process of its own.

use std::process::Command;
use std::sync::mpsc::channel;

use ndpool::Pool;

/// Runs one test of this file again in a child with the fall-back on; `true` in the child.
fn in_fallback(test: &str) -> bool {
    if std::env::var_os("NDPOOL_NO_MEMBARRIER").is_some() {
        return true;
    }
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("NDPOOL_NO_MEMBARRIER", "1")
        .status()
        .unwrap();
    assert!(status.success());
    false
}

#[test]
fn closed_pools_without_a_handle_leave_nothing_at_a_thread_that_goes_on() {
    if !in_fallback("closed_pools_without_a_handle_leave_nothing_at_a_thread_that_goes_on") {
        return;
    }
    let (send, receive) = channel::<Pool>();
    let (done, wait) = channel();
    let worker = std::thread::spawn(move || {
        for pool in receive {
            let buffer = pool.filled(1000, 1u8).unwrap();
            // The last handle is the sender's: the closer cannot reach this thread's cache.
            done.send((pool, ())).unwrap();
            drop(buffer);
        }
    });
    let mut highest = 0;
    for _ in 0..3000 {
        let pool = Pool::new();
        highest = highest.max(index_of(&pool));
        send.send(pool).unwrap();
        drop(wait.recv().unwrap());
    }
    drop(send);
    worker.join().unwrap();
    // Each pool waits at most for the worker's next one.
    assert!(highest < 16, "pool index {highest}: cores were kept");
}

/// The index of a pool's core, from its `Debug`.
fn index_of(pool: &Pool) -> usize {
    let text = format!("{pool:?}");
    let digits = text.split("index: ").nth(1).unwrap();
    digits.split(',').next().unwrap().parse().unwrap()
}
