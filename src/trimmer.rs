//! When ageing happens: on a coarse tick taken on slow paths, and by an optional background
//! thread, one a process, that sleeps while nothing rests in any of its pools. And what a forked
//! child does about all this.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::block::{Bound, Cache, Core, WORLD};
use crate::constants::pool::LOOK_EVERY;
use crate::sync::Counter;

/// The tick of the slow paths: ends an interval of the pool when it is over.
///
/// # Safety
/// The caller holds a handle or a block of the pool; `own` is its thread's cache, if any.
#[allow(unsafe_code)]
#[inline]
pub(crate) unsafe fn tick(core: &'static Core, backing: &Bound, own: Option<&'static Cache>) {
    if core.ledger.ticks().is_multiple_of(LOOK_EVERY) && backing.trimmer.is_none() {
        // SAFETY: the caller's promise.
        unsafe { look(core, backing, own) };
    }
}

/// # Safety
/// As [`tick`].
#[allow(unsafe_code)]
#[cold]
unsafe fn look(core: &'static Core, backing: &Bound, own: Option<&'static Cache>) {
    // SAFETY: the caller's promise.
    let age = || unsafe { core.age(own) }.is_some();
    backing.clock.if_due(backing.interval, age);
}

/// A pool that the background thread ages.
#[derive(Clone, Copy, Debug)]
struct Entry {
    core: &'static Core,
    life: u64,
    interval: Duration,
}

/// What the background thread works on.
#[derive(Debug)]
struct Desk {
    pools: Vec<Entry>,
    /// Whether the thread exists in this process.
    running: bool,
}

static DESK: Mutex<Desk> = Mutex::new(Desk {
    pools: Vec::new(),
    running: false,
});
static BELL: Condvar = Condvar::new();

fn desk() -> MutexGuard<'static, Desk> {
    DESK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts a pool on the desk; the thread starts when something rests in it.
pub(crate) fn enrol(core: &'static Core, interval: Duration) {
    desk().pools.push(Entry {
        core,
        life: core.life(),
        interval,
    });
}

/// Something began to rest in an enrolled pool where nothing did: wakes the thread, or starts it.
pub(crate) fn stirred() {
    let mut desk = desk();
    if !desk.running {
        let thread = std::thread::Builder::new().name("ndpool-trimmer".to_owned());
        // Where no thread can be had, the pools stay bounded by their promise, and by `trim`.
        desk.running = thread.spawn(work).is_ok();
    }
    ALONE.replace(0);
    BELL.notify_one();
}

/// 1 in a forked child until it has been stirred: its parent's background thread is not here, and
/// what rests already will not stir it.
static ALONE: Counter = Counter::new();

/// Whether nobody watches over what rests.
pub(crate) fn is_alone() -> bool {
    ALONE.get() != 0
}

/// The background thread. It dies with the process; it never holds the desk while it ages.
fn work() {
    loop {
        let mut desk = desk();
        desk.pools.retain(|entry| entry.core.life() == entry.life);
        let busy = desk.pools.iter().filter(|it| !it.core.ledger.is_still());
        // A bell rings when something begins to rest: the pool may have a shorter interval.
        let desk = match busy.map(|entry| entry.interval).min() {
            None => BELL.wait(desk).unwrap_or_else(PoisonError::into_inner),
            Some(interval) => {
                // The clock counts whole milliseconds.
                let nap = interval.saturating_add(Duration::from_millis(1));
                let woken = BELL.wait_timeout(desk, nap);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        let pools = desk.pools.clone();
        drop(desk);
        pools.into_iter().for_each(age);
    }
}

/// Ends the interval of a pool, if it is over and the pool open.
#[allow(unsafe_code)]
fn age(entry: Entry) {
    let core = entry.core;
    if !core.upgrade(entry.life) {
        return;
    }
    // SAFETY: the upgrade made a handle.
    let backing = unsafe { core.backing() };
    // SAFETY: as above; this thread has no cache.
    let age = || unsafe { core.age(None) }.is_some();
    backing.clock.if_due(entry.interval, age);
    // SAFETY: the handle, given up.
    unsafe { core.drop_handle(None) };
}

static ABANDONED: Counter = Counter::new();

/// Caches of other threads that were in use at the instant of a fork and are lost in this child,
/// with what rested in them; 0 in a process that was not forked.
pub fn abandoned_caches() -> u64 {
    ABANDONED.get()
}

static FORKS: Counter = Counter::new();

/// How often this process and its ancestors were forked on the way to it.
pub(crate) fn forks() -> u64 {
    FORKS.get()
}

/// Prepares for forks, once a process.
pub(crate) fn prepare_for_fork() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| crate::os::at_fork(before_fork, after_fork_in_parent, after_fork_in_child));
}

/// The desk, held without a destructor.
type Kept = ManuallyDrop<MutexGuard<'static, Desk>>;

thread_local! {
    /// The desk, held across a fork so that the child finds it in order. Without a destructor, so
    /// that a thread can fork to its very end.
    static HELD: Cell<Option<Kept>> = const { Cell::new(None) };
}

extern "C" fn before_fork() {
    HELD.set(Some(ManuallyDrop::new(desk())));
}

extern "C" fn after_fork_in_parent() {
    drop(HELD.take().map(ManuallyDrop::into_inner));
}

#[allow(unsafe_code)]
extern "C" fn after_fork_in_child() {
    if let Some(desk) = HELD.take() {
        ManuallyDrop::into_inner(desk).running = false;
    }
    ALONE.replace(1);
    FORKS.add(1);
    crate::thread::forget_caches();
    // SAFETY: called in the child before anything else, on its only thread.
    let abandoned = unsafe { crate::kernel::tiers::after_fork(&WORLD, crate::thread::slot()) };
    ABANDONED.add(abandoned);
}
