//! What a pool counts for its statistics; nothing decides by these.

use super::sync::{Counter, const_fn};

/// Counts that only statistics read.
#[derive(Debug, Default)]
pub struct Numbers {
    /// Blocks born.
    pub births: Counter,
    /// Blocks died.
    pub deaths: Counter,
    /// Blocks that stopped at their last generation.
    pub retired: Counter,
    /// Trims, on demand and by age.
    pub trims: Counter,
    /// Bytes that trims gave back.
    pub trimmed_bytes: Counter,
}

/// What is counted of one class. Takes and gives: those that no cache counts.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ClassNumbers {
    /// Magazines and single blocks that came out of the depot, and that went into it.
    pub exchanges: Counter,
    /// Blocks taken.
    pub takes: Counter,
    /// Blocks given.
    pub gives: Counter,
    /// Blocks born in this class, dead ones included.
    pub births: Counter,
    /// Blocks of this class that died.
    pub deaths: Counter,
}

impl ClassNumbers {
    const_fn! {
        /// All 0.
        pub fn new() -> ClassNumbers {
            ClassNumbers {
                exchanges: Counter::new(),
                takes: Counter::new(),
                gives: Counter::new(),
                births: Counter::new(),
                deaths: Counter::new(),
            }
        }
    }

    pub(super) fn reset(&self) {
        for counter in [
            &self.exchanges,
            &self.takes,
            &self.gives,
            &self.births,
            &self.deaths,
        ] {
            counter.replace(0);
        }
    }
}

impl Numbers {
    pub(super) fn reset(&self) {
        for counter in [
            &self.births,
            &self.deaths,
            &self.retired,
            &self.trims,
            &self.trimmed_bytes,
        ] {
            counter.replace(0);
        }
    }
}
