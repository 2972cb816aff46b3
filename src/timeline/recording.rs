//! What was drained from a ring.

use std::time::Duration;

use super::event::Event;
use super::levels::{Level, Levels};
use super::ring::Ring;
use super::threads;
use crate::stats::Stats;

/// The events of a pool up to a moment, with what the pool held before and after them. From
/// [`Pool::timeline`](crate::Pool::timeline).
///
/// The levels are exact if the pool was quiet when the recording was made.
#[derive(Clone, Debug)]
pub struct Recording {
    pub(super) pool: u64,
    pub(super) nanos: u64,
    pub(super) events: Vec<Event>,
    pub(super) lost: u64,
    pub(super) operations: bool,
    pub(super) limit: Option<usize>,
    pub(super) opening: Levels,
    pub(super) stats: Stats,
}

impl Recording {
    /// Drains `ring`; `stats` looks at its pool.
    pub(crate) fn of(
        ring: &Ring,
        pool: u64,
        limit: Option<usize>,
        stats: impl FnOnce() -> Stats,
    ) -> Self {
        let nanos = ring.nanos();
        let (mut events, lost) = ring.drain();
        // The ring keeps the order of each thread, and of what one thread does after another.
        events.sort_by_key(|event| event.nanos);
        let stats = stats();
        let operations = ring.wants_operations();
        let opening = Levels::of(&stats, operations).before(&events);
        Self {
            pool,
            nanos,
            events,
            lost,
            operations,
            limit,
            opening,
            stats,
        }
    }

    /// Number of the pool in the process, from 1.
    #[must_use]
    pub fn pool(&self) -> u64 {
        self.pool
    }

    /// From the pool's opening to the making of the recording.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// The pool's limit, in bytes, if it has one.
    #[must_use]
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// The events, by time.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Events that were lost since the last recording, because the ring was full: the oldest ones.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether allocates and drops were recorded.
    #[must_use]
    pub fn has_operations(&self) -> bool {
        self.operations
    }

    /// The pool's statistics when the recording was made.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The name of a thread by the number that events give, if it had one.
    #[must_use]
    pub fn thread_name(&self, thread: u32) -> Option<&'static str> {
        threads::name(thread)
    }

    /// A name for every thread.
    #[cfg(feature = "timeline")]
    pub(super) fn name_of(&self, thread: u32) -> String {
        match threads::name(thread) {
            Some(name) => name.to_owned(),
            None => format!("thread {thread}"),
        }
    }

    /// What each class held before the first event: of a recording that begins with the pool, and
    /// lost nothing, nothing.
    pub fn opening(&self) -> impl Iterator<Item = (Option<u8>, Level)> {
        self.opening.0.iter().map(|(class, level)| (*class, *level))
    }

    /// What each class held after the last event.
    pub fn closing(&self) -> impl Iterator<Item = (Option<u8>, Level)> {
        let mut levels = self.opening.clone();
        levels.walk(&self.events);
        levels.0.into_iter()
    }

    /// Most bytes held at once, and the time in nanoseconds since the pool's opening.
    #[must_use]
    pub fn peak(&self) -> (u64, u64) {
        let mut levels = self.opening.clone();
        let mut held = levels.total().held;
        let mut peak = (held, 0);
        for event in &self.events {
            let before = levels.0.get(&event.class).map_or(0, |level| level.held);
            if let Some(level) = levels.step(event) {
                held = held + level.held - before;
                if held > peak.0 {
                    peak = (held, event.nanos);
                }
            }
        }
        peak
    }
}
