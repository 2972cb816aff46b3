//! [`Record`]: who took a block last, beside its control block. A recycled block gets a new record,
//! or none; never its former one.

use std::time::{Duration, Instant};

use super::site::{History, Site};
use super::table::Table;
use crate::sync::Counter;
use crate::thread;

/// The records of all blocks of the process, by index. A block's owner writes its record.
static RECORDS: Table<Record> = Table::new();
/// Records written so far: the number of the next.
static SERIAL: Counter = Counter::new();

/// No view was made yet.
const NONE: u64 = u64::MAX;

/// What a pool remembers of an allocation.
#[derive(Debug)]
pub(crate) struct Record {
    /// Number of the pool.
    life: u64,
    /// Number of the allocation.
    serial: u64,
    /// Bytes that the block holds.
    capacity: usize,
    since: Instant,
    /// The thread that took the block.
    thread: usize,
    /// Whether the block is out.
    live: bool,
    /// Whether its release is to be remembered.
    traced: bool,
    history: History,
    /// Bytes of the smallest view that was made.
    smallest_view: Counter,
    /// 1 once a scope has given the block away.
    survivor: Counter,
}

/// A buffer that is out.
#[derive(Clone, Debug)]
pub(crate) struct Outstanding {
    pub(crate) serial: u64,
    pub(crate) capacity: usize,
    pub(crate) age: Duration,
    // Read at a scope's end.
    #[cfg_attr(not(feature = "ndarray"), allow(dead_code))]
    pub(crate) thread: usize,
    pub(crate) site: Option<Site>,
    /// Bytes of the smallest view, if one was made that is smaller than the buffer.
    pub(crate) smallest_view: Option<usize>,
    /// Whether a scope has given it away.
    #[cfg_attr(not(feature = "ndarray"), allow(dead_code))]
    pub(crate) survivor: bool,
}

/// The block at `index` was taken here. `traced`: its release is to be remembered as well.
pub(super) fn taken(index: u32, life: u64, capacity: usize, traced: bool) {
    let record = Record {
        life,
        serial: SERIAL.tick(1),
        capacity,
        since: Instant::now(),
        thread: thread::number(),
        live: true,
        traced,
        history: History {
            allocated: Some(Site::here()),
            released: None,
        },
        smallest_view: Counter::new(),
        survivor: Counter::new(),
    };
    record.smallest_view.replace(NONE);
    RECORDS.set(index, Some(record));
}

/// The block at `index` was taken by somebody of whom nothing is to be remembered.
pub(super) fn forget(index: u32) {
    RECORDS.set(index, None);
}

/// The block at `index` was given back here.
pub(super) fn given(index: u32, life: u64) {
    let released = RECORDS.look(index, |record| {
        (record.life == life && record.live).then(|| Record {
            live: false,
            history: History {
                allocated: record.history.allocated.clone(),
                released: record.traced.then(Site::here),
            },
            smallest_view: Counter::new(),
            survivor: Counter::new(),
            ..*record
        })
    });
    if let Some(Some(record)) = released {
        RECORDS.set(index, Some(record));
    }
}

/// The memory of the block at `index` moves on with the control block at `fresh`.
pub(super) fn renewed(index: u32, fresh: u32) {
    let moved = RECORDS.look(index, |record| {
        let copy = |counter: &Counter| {
            let copy = Counter::new();
            copy.replace(counter.get());
            copy
        };
        Record {
            history: record.history.clone(),
            smallest_view: copy(&record.smallest_view),
            survivor: copy(&record.survivor),
            ..*record
        }
    });
    RECORDS.set(fresh, moved);
    RECORDS.set(index, None);
}

/// What is known of the last owner of the block at `index`, in a pool.
pub(super) fn history(index: u32, life: u64) -> History {
    let history = RECORDS.look(index, |record| {
        (record.life == life).then(|| record.history.clone())
    });
    history.flatten().unwrap_or_default()
}

/// A view of `bytes` bytes was made of the block at `index`.
#[cold]
#[inline(never)]
pub(crate) fn viewed(index: u32, bytes: usize) {
    RECORDS.look(index, |record| record.smallest_view.lower(bytes as u64));
}

/// A scope has given the block at `index` away.
#[cfg(feature = "ndarray")]
#[cold]
#[inline(never)]
pub(crate) fn survived(index: u32) {
    RECORDS.look(index, |record| record.survivor.replace(1));
}

/// The number that the next record will have.
#[cfg(feature = "ndarray")]
pub(crate) fn next_serial() -> u64 {
    SERIAL.get()
}

/// Every recorded buffer of a pool that is out, oldest first.
pub(crate) fn outstanding(life: u64) -> Vec<Outstanding> {
    let mut found = Vec::new();
    RECORDS.each(|_, record| {
        if record.life != life || !record.live {
            return;
        }
        let view = record.smallest_view.get();
        found.push(Outstanding {
            serial: record.serial,
            capacity: record.capacity,
            age: record.since.elapsed(),
            thread: record.thread,
            site: record.history.allocated.clone(),
            smallest_view: (view < record.capacity as u64).then_some(view as usize),
            survivor: record.survivor.get() > 0,
        });
    });
    found.sort_by_key(|it| it.serial);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::LAST_GENERATION;
    use crate::{Checks, LeakLevel, Pool};

    /// The indices with a record of a pool.
    fn recorded(life: u64) -> Vec<u32> {
        let mut found = Vec::new();
        RECORDS.each(|index, record| found.extend((record.life == life).then_some(index)));
        found
    }

    #[test]
    fn a_record_moves_on_with_the_memory_of_a_block_at_its_last_generation() {
        let checks = Checks::new().poison().leaks(LeakLevel::All).backtraces(1);
        let pool = Pool::builder().checks(checks).build();
        let shared = pool.filled::<u8>(1000, 7).expect("memory").share();
        let (old, base) = (shared.block(), shared.as_ptr());
        // SAFETY: the block is shared, and of a pool.
        let life = unsafe { super::super::life(old) };
        let buffer = shared.try_unique().expect("the only owner");
        old.state.skip_to(LAST_GENERATION - 1);
        let shared = buffer.share();
        drop(shared.slice(0..10).expect("in range"));
        let before = history(old.index(), life);
        assert!(before.allocated.is_some() && before.released.is_none());
        assert_eq!(recorded(life), [old.index()]);

        drop(shared);
        let &[fresh] = &recorded(life)[..] else {
            panic!("records of {:?}", recorded(life));
        };
        assert_ne!(fresh, old.index());
        let after = history(fresh, life);
        assert_eq!(after.allocated, before.allocated);
        assert!(after.released.is_some());
        assert_eq!(RECORDS.look(fresh, |record| record.live), Some(false));
        assert_eq!((outstanding(life).len(), pool.stats().retired), (0, 1));

        // The next owner has the memory, still sealed, and a record of its own.
        let again = pool.filled::<u8>(1000, 8).expect("memory").share();
        assert_eq!((again.as_ptr(), again.block().index()), (base, fresh));
        let out = outstanding(life);
        assert_eq!((out.len(), out[0].smallest_view), (1, None));
        assert_ne!(out[0].site, before.allocated);
        drop(again);
        pool.audit().expect("it balances");
        assert_eq!(pool.close_checked(), Ok(()));
    }
}
