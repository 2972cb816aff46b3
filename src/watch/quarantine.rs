//! [`Quarantine`]: released blocks, held back for a while so that a use after the release meets
//! nobody else's memory.

use crossbeam_queue::SegQueue;

use crate::block::Block;
use crate::sync::Counter;

/// A queue of blocks that leave it in the order in which they came, bounded by bytes.
///
/// Each block keeps its pool alive. A pop waits for a push that is under way on another thread.
pub(super) struct Quarantine {
    queue: SegQueue<Held>,
    bytes: Counter,
    limit: usize,
}

struct Held {
    block: &'static Block,
    bytes: usize,
}

impl Quarantine {
    /// A quarantine of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            queue: SegQueue::new(),
            bytes: Counter::new(),
            limit,
        }
    }

    /// Whether a block of so many bytes can be held.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        bytes <= self.limit
    }

    /// Holds a block that occupies `bytes` bytes, which is the caller's alone and is given up.
    pub(super) fn push(&self, block: &'static Block, bytes: usize) {
        self.bytes.add(bytes as u64);
        self.queue.push(Held { block, bytes });
    }

    /// The block that came first; it is the caller's.
    pub(super) fn pop(&self) -> Option<&'static Block> {
        let held = self.queue.pop()?;
        self.bytes.sub(held.bytes as u64);
        Some(held.block)
    }

    /// The block that came first, if more is held than there may be.
    pub(super) fn pop_excess(&self) -> Option<&'static Block> {
        if self.bytes.get() > self.limit as u64 {
            self.pop()
        } else {
            None
        }
    }

    /// Blocks and bytes held, now or shortly before.
    pub(super) fn held(&self) -> (u64, usize) {
        (self.queue.len() as u64, self.bytes.get() as usize)
    }
}
