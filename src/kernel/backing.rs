//! What binds the kernel to memory: the product implements it with sources and configuration, the
//! models with stand-ins.

use super::block::Label;
use super::ledger::Policy;

/// What the kernel tells of, on its slow paths: blocks of one class that move between tiers. Bytes
/// are bytes occupied. A block that leaves a tier is told of after it has left, one that enters
/// before it does; so in the order of the notes no tier ever holds less than nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A block came from the source.
    Birth {
        /// As in the label.
        class: u8,
        /// Of the block.
        bytes: usize,
    },
    /// A block went back to the source.
    Death {
        /// As in the label.
        class: u8,
        /// Of the block.
        bytes: usize,
    },
    /// A magazine or a single block goes to rest in the depot.
    Rest {
        /// As in the label.
        class: u8,
        /// How many.
        blocks: u32,
        /// Of all of them.
        bytes: usize,
    },
    /// A magazine or a single block has left the depot for a user.
    Wake {
        /// As in the label.
        class: u8,
        /// How many.
        blocks: u32,
        /// Of all of them.
        bytes: usize,
    },
    /// A magazine or a single block has left the depot for its source; its deaths follow.
    Evict {
        /// As in the label.
        class: u8,
        /// How many.
        blocks: u32,
        /// Of all of them.
        bytes: usize,
    },
    /// A trim, on demand or by age, has given this many bytes back.
    Trim {
        /// Of all that died.
        bytes: usize,
    },
}

/// What the kernel is bound to: sources of memory and configuration in the product, stand-ins in
/// the models.
pub trait Backing: Sized + Send + Sync + 'static {
    /// What a control block says of its memory.
    type Payload: 'static;
    /// The payload of a block that was never used.
    const NO_PAYLOAD: Self::Payload;
    /// Control blocks of one slab.
    const BLOCKS_PER_SLAB: usize;
    /// Magazines of one slab.
    const MAGAZINES_PER_SLAB: usize;
    /// Caches of one slab.
    const CACHES_PER_SLAB: usize;
    /// Thread slots of one slab.
    const SLOTS_PER_SLAB: usize;
    /// Cores of one slab.
    const CORES_PER_SLAB: usize;

    /// Bytes, limits and slack.
    fn policy(&self) -> &Policy;
    /// Bytes that a block of `class` occupies.
    fn class_charge(&self, class: usize) -> usize;
    /// Bytes that this block occupies.
    fn charge(&self, label: Label, payload: &Self::Payload) -> usize;
    /// Rounds of a magazine of `class`; 0 if it has berths instead.
    fn rounds(&self, class: usize) -> u32;
    /// Bytes of one thread's cache that count as in use, and not as resting.
    fn budget(&self) -> usize;
    /// Berths of one thread's cache: blocks of the classes without magazines that it may keep.
    fn berths(&self) -> u32 {
        0
    }
    /// Something begins to rest in a pool where nothing did, or that is unattended.
    fn stirred(&self) {}
    /// Whether nobody was told of what rests already.
    fn is_unattended(&self) -> bool {
        false
    }
    /// Takes note of what has happened. Never called inside of a busy region. Does not unwind.
    fn note(&self, note: Note) {
        let _ = note;
    }
    /// The pool has closed: what the binding itself keeps of it comes home. Does not unwind.
    fn closed(&self) {}
    /// The pool's last share is gone. Does not unwind.
    fn end(self) {}
    /// Gives a payload back to its source. Does not unwind.
    fn dealloc(&self, label: Label, payload: &Self::Payload);
}
