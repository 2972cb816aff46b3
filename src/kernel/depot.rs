//! The depot: per class, the global lock-free store of resting blocks. Magazines that threads have
//! filled lie in one stack, single blocks (large classes, threads without a cache) in another.

#![allow(unsafe_code)]

use super::arena::Arena;
use super::backing::Backing;
use super::block::Block;
use super::magazine::Magazine;
use super::stack::IndexStack;
use super::sync::{Counter, const_fn};

/// One class of the depot. Last in, first out: what was used last is warm.
#[derive(Debug)]
#[repr(C)]
pub struct Depot {
    magazines: IndexStack,
    blocks: IndexStack,
    resting: Counter,
    /// Fewest blocks that rested here since the last interval began.
    low: Counter,
    /// The pool's clock of births and takes from the depot when a block last left towards a user.
    last_wake: Counter,
}

impl Depot {
    const_fn! {
        /// An empty depot.
        pub fn new() -> Depot {
            Depot {
                magazines: IndexStack::new(),
                blocks: IndexStack::new(),
                resting: Counter::new(),
                low: Counter::new(),
                last_wake: Counter::new(),
            }
        }
    }

    /// Blocks that rest here, or did shortly before.
    pub fn resting_estimate(&self) -> u64 {
        self.resting.get()
    }

    /// Pushes a magazine with one round at least.
    ///
    /// # Safety
    /// The magazine and its rounds are the caller's; it gives them up.
    pub unsafe fn push_magazine<S: Backing>(
        &self,
        arena: &Arena<Magazine<S>>,
        magazine: &Magazine<S>,
    ) {
        // SAFETY: the caller's magazine.
        let len = unsafe { magazine.len() };
        debug_assert!(len > 0, "an empty magazine belongs to the arena");
        self.resting.add(u64::from(len));
        self.magazines.push(arena, magazine.index());
    }

    /// Pushes a single block.
    ///
    /// # Safety
    /// The block is the caller's; it gives it up.
    pub unsafe fn push_block<S: Backing>(&self, arena: &Arena<Block<S>>, block: &Block<S>) {
        self.resting.add(1);
        self.blocks.push(arena, block.index());
    }

    /// Pops a magazine.
    pub fn pop_magazine<'a, S: Backing>(
        &self,
        arena: &'a Arena<Magazine<S>>,
    ) -> Option<&'a Magazine<S>> {
        if self.magazines.is_empty_estimate() {
            return None;
        }
        let magazine = arena.at(self.magazines.pop(arena)?);
        // SAFETY: just popped: the caller's.
        let len = unsafe { magazine.len() };
        self.took(u64::from(len));
        Some(magazine)
    }

    /// Pops a single block.
    pub fn pop_block<'a, S: Backing>(&self, arena: &'a Arena<Block<S>>) -> Option<&'a Block<S>> {
        if self.blocks.is_empty_estimate() {
            return None;
        }
        let block = arena.at(self.blocks.pop(arena)?);
        self.took(1);
        Some(block)
    }

    fn took(&self, blocks: u64) {
        self.resting.sub(blocks);
        self.low.lower(self.resting.get());
    }

    /// A block left towards a user when the pool's clock was `now`.
    pub fn note_wake(&self, now: u64) {
        self.last_wake.replace(now);
    }

    /// How long, by the pool's clock, no user needed anything from here.
    pub fn idle(&self, now: u64) -> u64 {
        now.saturating_sub(self.last_wake.get())
    }

    /// Blocks that nobody needed since the last call: the fewest that rested at any moment.
    /// Bonwick's working set.
    pub fn unused(&self) -> u64 {
        let now = self.resting.get();
        self.low.replace(now).min(now)
    }
}
