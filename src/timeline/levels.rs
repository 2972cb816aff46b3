//! Where a class's memory is, moved by events.

use std::collections::BTreeMap;

use super::event::{Event, EventKind};
use crate::class;
use crate::stats::Stats;

/// Bytes of one class at one moment, by where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Level {
    /// Bytes held: from births to deaths.
    pub held: u64,
    /// Part of them that users have; 0 in a recording without operations.
    pub live: u64,
    /// Part of them that rests in the depot.
    pub depot: u64,
}

impl Level {
    /// Bytes in thread caches and on their way between tiers; with users too, in a recording
    /// without operations.
    #[must_use]
    pub fn elsewhere(self) -> u64 {
        self.held.saturating_sub(self.live + self.depot)
    }
}

/// How far one event moves a level, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    held: i64,
    live: i64,
    depot: i64,
}

impl Step {
    fn of(event: &Event) -> Self {
        let bytes = event.bytes as i64;
        let mut step = Self::default();
        match event.kind {
            EventKind::Birth => step.held = bytes,
            EventKind::Death => step.held = -bytes,
            EventKind::Rest => step.depot = bytes,
            EventKind::Wake | EventKind::Evict => step.depot = -bytes,
            EventKind::Allocate => step.live = bytes,
            EventKind::Drop => step.live = -bytes,
            EventKind::Trim | EventKind::Refusal { .. } | EventKind::Failure => {}
        }
        step
    }

    fn add(self, other: Self) -> Self {
        Self {
            held: self.held + other.held,
            live: self.live + other.live,
            depot: self.depot + other.depot,
        }
    }

    fn least(self, other: Self) -> Self {
        Self {
            held: self.held.min(other.held),
            live: self.live.min(other.live),
            depot: self.depot.min(other.depot),
        }
    }
}

/// The levels of all classes at one moment; `None` is what has no class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Levels(pub(super) BTreeMap<Option<u8>, Level>);

impl Levels {
    /// What a pool's statistics say.
    pub(super) fn of(stats: &Stats, operations: bool) -> Self {
        let mut levels = BTreeMap::new();
        let mut classed = Level::default();
        for row in stats.classes.iter().filter(|row| row.capacity > 0) {
            let bytes = |blocks: u64| blocks * row.charge as u64;
            let level = Level {
                held: bytes(row.live + row.cached + row.depot),
                live: bytes(row.live),
                depot: bytes(row.depot),
            };
            classed.held += level.held;
            levels.insert(Some(class::of(row.capacity) as u8), level);
        }
        // What has no class never rests.
        let unclassed = (stats.held_bytes as u64).saturating_sub(classed.held);
        if stats.classes.last().is_some_and(|row| row.capacity == 0) {
            let level = Level {
                held: unclassed,
                live: unclassed,
                depot: 0,
            };
            levels.insert(None, level);
        }
        if !operations {
            levels.values_mut().for_each(|level| level.live = 0);
        }
        Self(levels)
    }

    /// The levels before `events`, which lead to these ones. Where the two do not fit, because the
    /// pool was not quiet when they were looked at, no level is ever below 0.
    pub(super) fn before(&self, events: &[Event]) -> Self {
        let mut sums: BTreeMap<Option<u8>, (Step, Step)> = BTreeMap::new();
        for event in events {
            let (sum, least) = sums.entry(event.class).or_default();
            *sum = sum.add(Step::of(event));
            *least = least.least(*sum);
        }
        let mut levels = self.0.clone();
        for (class, (sum, least)) in sums {
            let level = levels.entry(class).or_default();
            let back = |now: u64, sum: i64, least: i64| (now as i64 - sum).max(-least) as u64;
            *level = Level {
                held: back(level.held, sum.held, least.held),
                live: back(level.live, sum.live, least.live),
                depot: back(level.depot, sum.depot, least.depot),
            };
        }
        levels.retain(|_, level| *level != Level::default());
        Self(levels)
    }

    /// Moves on by one event; the level of its class after it, if it moved.
    pub(super) fn step(&mut self, event: &Event) -> Option<Level> {
        let step = Step::of(event);
        if (step.held, step.live, step.depot) == (0, 0, 0) {
            return None;
        }
        let level = self.0.entry(event.class).or_default();
        level.held = level.held.saturating_add_signed(step.held);
        level.live = level.live.saturating_add_signed(step.live);
        level.depot = level.depot.saturating_add_signed(step.depot);
        Some(*level)
    }

    /// Moves on by many events.
    pub(super) fn walk(&mut self, events: &[Event]) {
        for event in events {
            self.step(event);
        }
    }

    /// The sum over all classes.
    pub(super) fn total(&self) -> Level {
        self.0.values().fold(Level::default(), |sum, level| Level {
            held: sum.held + level.held,
            live: sum.live + level.live,
            depot: sum.depot + level.depot,
        })
    }
}
