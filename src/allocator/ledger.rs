//! The ledger of [`Tracked`](super::Tracked): which blocks are out, and what came back wrongly.

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::constants::ledger::{KEPT, REMEMBERED, SHARDS};

/// What was wrong with a pointer that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MisuseKind {
    /// No block with this address was ever allocated here, or too long ago to tell.
    Foreign,
    /// The block had gone back already.
    DeallocatedTwice,
    /// The block is out, but the layout does not fit it.
    WrongLayout {
        /// The layout that the block was allocated with.
        allocated: Layout,
        /// The length that was returned for it, in bytes.
        returned: usize,
    },
}

/// A pointer that came back wrongly: to be deallocated, grown or shrunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misuse {
    /// What was wrong.
    pub kind: MisuseKind,
    /// The address that was passed.
    pub address: usize,
    /// The layout that was passed.
    pub layout: Layout,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            address,
            layout,
        } = self;
        let (size, align) = (layout.size(), layout.align());
        write!(f, "{address:#x} ({size} bytes aligned to {align}): ")?;
        match kind {
            MisuseKind::Foreign => write!(f, "not a block of this allocator"),
            MisuseKind::DeallocatedTwice => write!(f, "went back already"),
            MisuseKind::WrongLayout {
                allocated,
                returned,
            } => write!(
                f,
                "was allocated with {} bytes aligned to {}, {returned} returned",
                allocated.size(),
                allocated.align()
            ),
        }
    }
}

/// A block that is out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) layout: Layout,
    pub(super) returned: usize,
}

impl Entry {
    /// Whether `layout` may come back for the block.
    pub(super) fn fits(&self, layout: Layout) -> bool {
        layout.align() == self.layout.align()
            && (self.layout.size()..=self.returned).contains(&layout.size())
    }
}

#[derive(Debug, Default)]
struct Shard {
    out: HashMap<usize, Entry>,
    back: VecDeque<usize>,
}

#[derive(Debug, Default)]
struct Misuses {
    first: Vec<Misuse>,
    count: u64,
}

/// Every block that is out, by address.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    shards: [Mutex<Shard>; SHARDS],
    misuses: Mutex<Misuses>,
}

/// The data behind a lock; nothing that runs under our locks leaves it half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    fn shard(&self, address: usize) -> MutexGuard<'_, Shard> {
        // Addresses differ in their middle bits: above the alignment, below the mapping.
        lock(&self.shards[(address >> 7 ^ address >> 14 ^ address >> 21) % SHARDS])
    }

    /// Enters a block that was just allocated.
    pub(super) fn enter(&self, block: NonNull<u8>, entry: Entry) {
        let address = block.addr().get();
        self.shard(address).out.insert(address, entry);
    }

    /// Strikes a block out before it goes back: afterwards its address may be issued again at any
    /// moment. `None`, and a misuse, if there is no such block. A layout that does not fit is a
    /// misuse too, but the block is known.
    pub(super) fn strike(&self, block: NonNull<u8>, layout: Layout) -> Option<Entry> {
        let address = block.addr().get();
        let mut shard = self.shard(address);
        let entry = shard.out.remove(&address);
        let kind = match entry {
            Some(entry) => {
                if shard.back.len() == REMEMBERED {
                    shard.back.pop_front();
                }
                shard.back.push_back(address);
                (!entry.fits(layout)).then_some(MisuseKind::WrongLayout {
                    allocated: entry.layout,
                    returned: entry.returned,
                })
            }
            None if shard.back.contains(&address) => Some(MisuseKind::DeallocatedTwice),
            None => Some(MisuseKind::Foreign),
        };
        drop(shard);
        if let Some(kind) = kind {
            self.report(Misuse {
                kind,
                address,
                layout,
            });
        }
        entry
    }

    #[cold]
    fn report(&self, misuse: Misuse) {
        let mut misuses = lock(&self.misuses);
        misuses.count += 1;
        if misuses.first.len() < KEPT {
            misuses.first.push(misuse);
        }
    }

    /// The first misuses, and how many there were.
    pub(super) fn misuses(&self) -> (Vec<Misuse>, u64) {
        let misuses = lock(&self.misuses);
        (misuses.first.clone(), misuses.count)
    }

    /// Addresses and layouts of the blocks that are out, by address.
    pub(super) fn outstanding(&self) -> Vec<(usize, Layout)> {
        let mut blocks = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            blocks.extend(
                shard
                    .out
                    .iter()
                    .map(|(&address, entry)| (address, entry.layout)),
            );
        }
        blocks.sort_unstable_by_key(|&(address, _)| address);
        blocks
    }
}
