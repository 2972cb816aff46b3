//! Pools that come after one another in the same core. Alone in its process, so that each pool
//! gets the core of the one before.

use std::sync::mpsc::channel;
use std::thread;

use ndpool::Pool;

/// A thread keeps a cache of a closed pool for ever, and may exit long after: it must not give up
/// a share of a later pool in the same place. Found by shuttle.
#[test]
fn a_thread_of_a_closed_pool_exits_under_a_later_one() {
    let first = Pool::new();
    let (ready, wait) = channel();
    let (leave, told) = channel::<()>();
    let visitor = {
        let first = first.clone();
        thread::spawn(move || {
            drop(first.filled(100, 1u64).unwrap());
            drop(first);
            ready.send(()).unwrap();
            told.recv().unwrap_err();
        })
    };
    wait.recv().unwrap();
    drop(first);
    drop(Pool::new());
    let third = Pool::new();
    drop(leave);
    visitor.join().unwrap();
    // With its share gone, the pool would have lost its backing by now.
    assert!(third.allocate::<u64>(100).is_ok());
    assert_eq!(third.audit().unwrap().cached, 1);
}
