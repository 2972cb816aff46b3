//! A lock-free LIFO of cell indices: Treiber's stack over links that are never unmapped, with a
//! tag beside the index so that a head that comes back is not taken for the one that was seen.

use super::sync::{AtomicU32, AtomicU64, Ordering, const_fn};

/// Bits of the head word that hold `index + 1`; 0 is the empty stack. The others are for the tag.
const INDEX_BITS: u32 = 24;
/// Bits of the tag, as shipped: all the others.
pub const TAG_BITS: u32 = 64 - INDEX_BITS;
/// Mask of the index part.
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
/// One step of the tag.
const TAG_ONE: u64 = 1 << INDEX_BITS;
/// Most cells that one stack can tell apart.
pub const MAX_CELLS: usize = INDEX_MASK as usize;

/// Where the links between the stacked cells live: one word a cell, never unmapped.
pub trait Links {
    /// The link of cell `index`: `next + 1`, or 0 at the bottom.
    fn link(&self, index: u32) -> &AtomicU32;
}

/// The stack. It is lock-free: a push or pop is repeated only when another one succeeded.
///
/// A narrower tag than the shipped one is for the models, which have it come round.
#[derive(Debug)]
pub struct IndexStack<const TAG: u32 = TAG_BITS> {
    head: AtomicU64,
}

impl IndexStack {
    const_fn! {
        /// An empty stack.
        pub fn new() -> IndexStack {
            IndexStack::with_tag()
        }
    }
}

impl<const TAG: u32> IndexStack<TAG> {
    /// Bits of the head word that are in use.
    const USED: u64 = u64::MAX >> (TAG_BITS - TAG);

    const_fn! {
        /// An empty stack with a tag of `TAG` bits, 40 at most.
        pub fn with_tag() -> IndexStack<TAG> {
            IndexStack { head: AtomicU64::new(0) }
        }
    }

    /// Pushes cell `index`, which belongs to the caller, and publishes what it holds.
    pub fn push(&self, links: &impl Links, index: u32) {
        // Ordering: Relaxed - the CAS below decides whether what was seen still holds.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // Ordering: Relaxed - published by the CAS below, with the cell.
            links
                .link(index)
                .store((head & INDEX_MASK) as u32, Ordering::Relaxed);
            let pushed = Self::next_tag(head) | u64::from(index + 1);
            // Ordering: Release - E3, with `pop`: the cell and its link are visible to who pops it.
            match self.head.compare_exchange_weak(
                head,
                pushed,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Pops the cell that was pushed last; it belongs to the caller.
    pub fn pop(&self, links: &impl Links) -> Option<u32> {
        // Ordering: Acquire - E3, with `push`: the top cell's link, and what the cell holds.
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let index = ((head & INDEX_MASK) as u32).checked_sub(1)?;
            // Ordering: Relaxed - ordered by the load of `head`; a link that has changed since is
            // given up by the CAS, whose tag has changed with it.
            let next = links.link(index).load(Ordering::Relaxed);
            let popped = Self::next_tag(head) | u64::from(next);
            // Ordering: Relaxed, on failure Acquire - E3, with `push`: the head was acquired when
            // it was seen, and every write of it is an RMW, so later pops acquire it as well.
            match self.head.compare_exchange_weak(
                head,
                popped,
                Ordering::Relaxed,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(index),
                Err(now) => head = now,
            }
        }
    }

    /// Whether the stack is empty now, or was shortly before.
    pub fn is_empty_estimate(&self) -> bool {
        // Ordering: Relaxed - a look; `pop` decides.
        self.head.load(Ordering::Relaxed) & INDEX_MASK == 0
    }

    const fn next_tag(head: u64) -> u64 {
        let next = (head & !INDEX_MASK).wrapping_add(TAG_ONE);
        next & Self::USED
    }
}
