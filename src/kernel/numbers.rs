//! What a pool counts for its statistics; nothing decides by these.

use super::sync::{Counter, const_fn};

/// Counts that only statistics read.
#[derive(Debug, Default)]
pub struct Numbers {
    /// Blocks born.
    pub births: Counter,
    /// Blocks died.
    pub deaths: Counter,
    /// Magazines and single blocks that came out of the depot.
    pub exchanges_out: Counter,
    /// Magazines and single blocks that went into the depot.
    pub exchanges_in: Counter,
    /// Blocks that stopped at their last generation.
    pub retired: Counter,
    /// Trims, on demand and by age.
    pub trims: Counter,
    /// Bytes that trims gave back.
    pub trimmed_bytes: Counter,
}

/// Takes and gives of one class that no cache counts.
#[derive(Debug, Default)]
pub struct ClassNumbers {
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
                takes: Counter::new(),
                gives: Counter::new(),
                births: Counter::new(),
                deaths: Counter::new(),
            }
        }
    }

    pub(super) fn reset(&self) {
        for counter in [&self.takes, &self.gives, &self.births, &self.deaths] {
            counter.replace(0);
        }
    }
}

impl Numbers {
    pub(super) fn reset(&self) {
        for counter in [
            &self.births,
            &self.deaths,
            &self.exchanges_out,
            &self.exchanges_in,
            &self.retired,
            &self.trims,
            &self.trimmed_bytes,
        ] {
            counter.replace(0);
        }
    }
}
