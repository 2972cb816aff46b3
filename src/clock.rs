//! The clock of ageing: coarse, and read on slow paths only.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::sync::Counter;

/// Milliseconds since this process first asked.
fn now_ms() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = START.get_or_init(Instant::now);
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The clock of one pool.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// When the last interval ended, in milliseconds.
    ended: Counter,
}

impl Clock {
    /// If the interval is over, one caller ends it by `end`, and the next begins; but not if `end` says
    /// that it could not: then it is still to be ended.
    pub(crate) fn if_due(&self, interval: Duration, end: impl FnOnce() -> bool) {
        let interval = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        let (now, ended) = (now_ms(), self.ended.get());
        let is_due = now.saturating_sub(ended) >= interval;
        if is_due && self.ended.turn(ended, now) && !end() {
            self.ended.turn(now, ended);
        }
    }
}
