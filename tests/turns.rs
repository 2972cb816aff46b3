//! Who waits for whom: trimmers and those who make room for a birth take turns, and what they call may
//! come back.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use ndpool::source::{Memory, Source};
use ndpool::{AllocError, AllocErrorKind, Audit, AuditError, Pool};

mod field;
use field::{Watched, within};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// A source that calls somebody before it takes a block back.
struct Calling {
    inner: Arc<Watched>,
    call: Box<dyn Fn() + Send + Sync>,
}

// SAFETY: every block is the inner source's; a deallocation is only late.
unsafe impl Source for Calling {
    fn name(&self) -> &'static str {
        "calling"
    }

    fn footprint(&self, layout: Layout) -> usize {
        self.inner.footprint(layout)
    }

    fn alloc(&self, layout: Layout, zeroed: bool) -> Result<Memory, AllocError> {
        self.inner.alloc(layout, zeroed)
    }

    unsafe fn dealloc(&self, base: NonNull<u8>, layout: Layout, token: usize) {
        (self.call)();
        // SAFETY: the caller's promise, passed on.
        unsafe { self.inner.dealloc(base, layout, token) };
    }
}

/// A gate at which the deallocations of its source wait.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn source(self: &Arc<Self>) -> Calling {
        let gate = Arc::clone(self);
        Calling {
            inner: Watched::new(),
            call: Box::new(move || gate.pass()),
        }
    }

    fn set_closed(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.opened.notify_all();
    }

    fn await_one(&self) {
        field::eventually("somebody waits at the gate", || {
            self.waiting.load(Ordering::SeqCst) > 0
        });
    }

    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut closed = self.closed.lock().unwrap();
        while *closed {
            closed = self.opened.wait(closed).unwrap();
        }
        drop(closed);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// While a trimmer still has blocks in its hands, another trim does not return, and an allocation
/// at the limit is not refused: it waits, and is served.
#[test]
fn nothing_is_refused_while_a_trimmer_still_holds_blocks() {
    let gate = Arc::new(Gate::default());
    let pool = Pool::builder().source(gate.source()).limit(2 * MIB).build();
    drop(pool.allocate::<u8>(3 * MIB / 2).unwrap());
    gate.set_closed(true);
    let (trimmed, served) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| pool.trim());
        gate.await_one();
        scope.spawn(|| {
            pool.trim();
            trimmed.store(true, Ordering::SeqCst);
        });
        let newcomer = scope.spawn(|| {
            let buffer = pool.allocate::<u8>(640 * KIB);
            served.store(true, Ordering::SeqCst);
            buffer.map(|buffer| buffer.len())
        });
        thread::sleep(Duration::from_millis(100));
        let early = (
            trimmed.load(Ordering::SeqCst),
            served.load(Ordering::SeqCst),
        );
        gate.set_closed(false);
        assert_eq!(early, (false, false), "a trim or an allocation returned");
        assert_eq!(newcomer.join().unwrap(), Ok(640 * KIB));
    });
    pool.audit().unwrap();
}

/// The same where the block is in the hands of another allocation, which sends it home to keep
/// within the limit itself: out of its own thread's cache, or out of another's.
#[test]
fn nothing_is_refused_while_another_allocation_still_makes_room() {
    for own in [false, true] {
        let gate = Arc::new(Gate::default());
        let pool = Pool::builder()
            .source(gate.source())
            .limit(2 * MIB)
            .reuse_classes(0)
            .build();
        let keep_one = || {
            drop(pool.allocate::<u8>(3 * MIB / 2).unwrap());
            gate.set_closed(true);
        };
        if !own {
            keep_one();
        }
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                if own {
                    keep_one();
                }
                pool.allocate::<u8>(5 * MIB / 4)
            });
            gate.await_one();
            let second = scope.spawn(|| pool.allocate::<u8>(640 * KIB));
            thread::sleep(Duration::from_millis(100));
            let waited = !first.is_finished() && !second.is_finished();
            gate.set_closed(false);
            let both = (first.join().unwrap(), second.join().unwrap());
            assert!(both.0.is_ok() && both.1.is_ok(), "{own}: {both:?}");
            assert!(waited, "{own}: an allocation returned");
        });
        pool.audit().unwrap();
    }
}

/// The footprint promise waits like the limit: what another thread is just giving back is still held,
/// and a birth that would go over the promise for it comes after. The other thread trims, or makes room
/// for a birth of its own, out of the depot.
#[test]
fn no_birth_breaks_the_promise_while_another_thread_gives_blocks_back() {
    for trims in [true, false] {
        let gate = Arc::new(Gate::default());
        // Nothing is kept by threads: all of it rests in the depot.
        let budget = if trims { 2 * MIB } else { 0 };
        let pool = Pool::builder()
            .source(gate.source())
            .floor(0)
            .slack(0.3)
            .reuse_classes(0)
            .cache_budget(budget)
            .build();
        let large = [0; 4].map(|_| pool.allocate::<u8>(10 * MIB).unwrap());
        let peak = pool.ledger().2;
        drop(large);
        gate.set_closed(true);
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                if trims {
                    pool.trim();
                    0
                } else {
                    pool.allocate::<u8>(20 * MIB).unwrap().len()
                }
            });
            gate.await_one();
            let len = if trims { 20 * MIB } else { 14 * MIB };
            let (begin, has_begun) = mpsc::channel();
            let newcomer = scope.spawn({
                let pool = &pool;
                move || {
                    begin.send(()).unwrap();
                    let _buffer = pool.allocate::<u8>(len).unwrap();
                    pool.ledger().2
                }
            });
            has_begun.recv().unwrap();
            thread::sleep(Duration::from_millis(100));
            let early = newcomer.is_finished();
            gate.set_closed(false);
            let held = newcomer.join().unwrap();
            let promised = (1.3 * (peak + 2 * budget) as f64) as usize;
            assert!(held <= promised, "{held} held, {promised} promised");
            assert!(!early, "{trims}: the allocation did not wait");
            other.join().unwrap();
        });
        pool.audit().unwrap();
    }
}

/// Who uses a pool from inside of a deallocation of its source.
#[derive(Default)]
struct Recursive {
    blocks: Arc<Watched>,
    /// A cycle: the test takes it out.
    pool: Mutex<Option<Pool>>,
    /// Whether to close the pool as well.
    closes: bool,
    inside: AtomicBool,
    answers: Mutex<Vec<Answers>>,
}

/// What it got: bytes trimmed and aged, the audit, a large request and a small one.
type Answers = (
    usize,
    usize,
    Result<Audit, AuditError>,
    Option<AllocErrorKind>,
    Option<AllocErrorKind>,
);

impl Recursive {
    fn source(self: &Arc<Self>) -> Calling {
        let recursive = Arc::clone(self);
        Calling {
            inner: Arc::clone(&self.blocks),
            call: Box::new(move || recursive.called()),
        }
    }

    fn called(&self) {
        if !self.inside.swap(true, Ordering::SeqCst) {
            self.come_back();
            self.inside.store(false, Ordering::SeqCst);
        }
    }

    fn come_back(&self) {
        let Some(pool) = self.pool.lock().unwrap().clone() else {
            return;
        };
        let kind = |bytes| pool.allocate::<u8>(bytes).err().map(|error| error.kind);
        // A panic in here would be caught: the test looks at the answers.
        let answers = (
            pool.trim(),
            pool.age(),
            pool.audit(),
            kind(20 * MIB),
            kind(MIB),
        );
        self.answers.lock().unwrap().push(answers);
        if self.closes {
            pool.close();
        }
    }
}

/// A pool over a source that comes back, where three blocks of 10 MiB rest in the thread's cache.
fn pool_of(recursive: &Arc<Recursive>, limit: usize) -> Pool {
    let builder = Pool::builder().source(recursive.source()).floor(0);
    let pool = builder.limit(limit).build();
    drop([0; 3].map(|_| pool.allocate::<u8>(10 * MIB).unwrap()));
    *recursive.pool.lock().unwrap() = Some(pool.clone());
    pool
}

/// What a trimmer calls may trim, age, audit and allocate: nothing waits for itself.
#[test]
fn a_source_that_a_trimmer_calls_may_come_back() {
    within(Duration::from_secs(60), "a source that comes back", || {
        let over = Some(AllocErrorKind::LimitExceeded);
        // What is in the source's hands, and behind it, counts: 30, 20, then 10 MiB.
        for (limit, large) in [(32 * MIB, [over, over, None]), (usize::MAX, [None; 3])] {
            let recursive = Arc::new(Recursive::default());
            let pool = pool_of(&recursive, limit);
            pool.trim();
            recursive.pool.lock().unwrap().take();
            let expected = large.map(|large| (0, 0, Err(AuditError::Busy), large, None));
            assert_eq!(*recursive.answers.lock().unwrap(), expected);
            pool.audit().unwrap();
        }
    });
}

/// What is given back from inside of an eviction goes home: else each would leave something to evict.
#[test]
fn a_source_that_gives_back_while_it_is_called_leaves_nothing_to_evict() {
    within(Duration::from_secs(60), "an eviction", || {
        let recursive = Arc::new(Recursive::default());
        let builder = Pool::builder().source(recursive.source());
        let pool = builder.limit(32 * MIB).reuse_classes(0).build();
        let kept = pool.allocate::<u8>(20 * MIB).unwrap();
        drop(pool.allocate::<u8>(2 * MIB).unwrap());
        *recursive.pool.lock().unwrap() = Some(pool.clone());
        let refused = pool.allocate::<u8>(16 * MIB).map(drop).unwrap_err();
        recursive.pool.lock().unwrap().take();
        assert_eq!(refused.kind, AllocErrorKind::LimitExceeded);
        assert_eq!(pool.ledger().2, 20 * MIB);
        let answers = recursive.answers.lock().unwrap();
        assert!(
            answers.iter().all(|answer| answer.4.is_none()),
            "{answers:?}"
        );
        assert_eq!(answers.len(), 1);
        drop(kept);
    });
}

/// What a trimmer calls may close the pool: it closes when the trim is over, and keeps nothing.
#[test]
fn a_pool_closed_from_inside_of_a_trim_keeps_nothing() {
    within(Duration::from_secs(60), "a source that closes", || {
        let recursive = Arc::new(Recursive {
            closes: true,
            ..Recursive::default()
        });
        let pool = pool_of(&recursive, usize::MAX);
        let other = thread::scope(|scope| {
            let keep = || drop(pool.allocate::<u8>(MIB).unwrap());
            scope.spawn(keep).join().unwrap();
            pool.trim()
        });
        assert!(other > 0);
        recursive.pool.lock().unwrap().take();
        assert_eq!((pool.ledger().2, recursive.blocks.live()), (0, 0));
        drop(pool.allocate::<u8>(MIB).unwrap());
        assert_eq!((pool.ledger().2, recursive.blocks.live()), (0, 0));
        pool.audit().unwrap();
        drop(pool);
        assert_eq!(Arc::strong_count(&recursive), 1, "the pool has ended");
    });
}
