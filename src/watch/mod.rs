//! What a pool with checks does at each take and give. A pool without checks has no [`Watch`], and
//! no code of this folder runs for it.
//!
//! | file | what |
//! |---|---|
//! | `checks` | [`Checks`], in the builder or by `NDPOOL_CHECK` |
//! | `contents` | wiping |

#![allow(unsafe_code)]

mod checks;
mod contents;

pub use checks::{CheckError, Checks, LeakLevel};

use crate::block::{Block, RESTED};

/// The checks of one pool.
pub(crate) struct Watch {
    checks: Checks,
}

impl Watch {
    /// A watch, if there is anything to check, or if `operations` are to be seen one by one.
    pub(crate) fn new(checks: Checks, operations: bool) -> Option<Box<Self>> {
        (checks.is_any() || operations).then(|| Box::new(Self { checks }))
    }

    /// After each take that succeeded, for a request of `bytes` bytes at `align`.
    ///
    /// # Safety
    /// The block, of the watched pool, was just taken: the caller's alone.
    pub(crate) unsafe fn taken(&self, block: &'static Block, _bytes: usize, _align: usize) {
        // SAFETY: the caller's block.
        unsafe { block.set_flags(0, RESTED) };
    }

    /// Before each give, while the tiers do not know the block yet.
    ///
    /// # Safety
    /// The block, of the watched pool, is the caller's alone.
    pub(crate) unsafe fn given(&self, block: &'static Block) {
        if self.checks.wipe {
            // SAFETY: the caller's block.
            unsafe { contents::wipe(block) };
        }
        // SAFETY: the caller's block.
        unsafe { block.set_flags(RESTED, 0) };
    }
}
