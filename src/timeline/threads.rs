//! Numbers and names of the threads that record events. No lock that a forked child could inherit:
//! each entry is written by its own thread alone.

use std::cell::Cell;
use std::sync::OnceLock;
use std::thread;

use crate::constants::timeline::NAMED_THREADS;
use crate::sync::Counter;

static NUMBERED: Counter = Counter::new();
static NAMES: [OnceLock<Box<str>>; NAMED_THREADS] = [const { OnceLock::new() }; NAMED_THREADS];

thread_local! {
    static NUMBER: Cell<u32> = const { Cell::new(0) };
}

/// The number of the calling thread, from 1; the first call gives it one.
pub(super) fn number() -> u32 {
    match NUMBER.get() {
        0 => enter(),
        number => number,
    }
}

#[cold]
fn enter() -> u32 {
    let number = u32::try_from(NUMBERED.tick(1) + 1).unwrap_or(u32::MAX);
    NUMBER.set(number);
    // While its thread-locals go, a thread may have lost its name already.
    if !crate::thread::has_exited()
        && let Some(entry) = NAMES.get(number as usize - 1)
        && let Some(name) = thread::current().name()
    {
        let _own_entry = entry.set(name.into());
    }
    number
}

/// The name of a thread by its number, if it had one.
pub(super) fn name(number: u32) -> Option<&'static str> {
    let entry = NAMES.get((number as usize).checked_sub(1)?)?;
    entry.get().map(|name| &**name)
}
