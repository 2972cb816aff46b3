//! A recording cut into equal stretches of time, for drawing.

use std::collections::BTreeMap;

use serde::Serialize;

use super::event::{Event, EventKind};
use super::levels::{Level, Levels};
use super::recording::Recording;
use crate::constants::timeline::STRETCHES;

/// What a level is to a reader: three parts that add up to what is held.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Parts {
    pub(super) live: u64,
    pub(super) cached: u64,
    pub(super) depot: u64,
}

impl Parts {
    /// Without operations what is live cannot be told from what is cached: it all counts as live.
    pub(super) fn of(level: Level, operations: bool) -> Self {
        let Level { live, depot, .. } = level;
        match operations {
            true => Self {
                live,
                cached: level.elsewhere(),
                depot,
            },
            false => Self {
                live: level.elsewhere(),
                cached: 0,
                depot,
            },
        }
    }

    pub(super) fn sum(self) -> u64 {
        self.live + self.cached + self.depot
    }
}

/// What happened in one stretch.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Happened {
    /// Bytes that came from the source.
    pub(super) born: u64,
    /// Bytes that went back.
    pub(super) returned: u64,
    pub(super) trims: u64,
    pub(super) trimmed: u64,
    pub(super) refusals: u64,
    /// The largest of the requests refused.
    pub(super) refused: u64,
    pub(super) failures: u64,
}

/// The stretches.
#[derive(Debug)]
pub(super) struct Series {
    /// Nanoseconds since the pool's opening at which the first stretch begins.
    pub(super) begin: u64,
    /// Nanoseconds of each stretch, 1 at least.
    pub(super) width: u64,
    /// For each stretch the levels at the moment when most was held, and most of that live.
    pub(super) levels: Vec<BTreeMap<Option<u8>, Parts>>,
    pub(super) happened: Vec<Happened>,
}

impl Series {
    pub(super) fn of(recording: &Recording) -> Self {
        let events = &recording.events;
        // A recording that lost its beginning is drawn from its first event on.
        let begin = match (recording.opening.0.is_empty(), events.first()) {
            (false, Some(first)) => first.nanos,
            _ => 0,
        };
        let end = recording
            .nanos
            .max(events.last().map_or(0, |last| last.nanos));
        // A little more, so that it can be seen how it ends.
        let width = ((end - begin) + (end - begin) / 50)
            .div_ceil(STRETCHES as u64)
            .max(1);
        let mut series = Self {
            begin,
            width,
            levels: Vec::with_capacity(STRETCHES),
            happened: Vec::with_capacity(STRETCHES),
        };
        let mut levels = recording.opening.clone();
        let mut rest = &events[..];
        for stretch in 1..=STRETCHES as u64 {
            let until = begin + stretch * width;
            let now = rest.partition_point(|event| event.nanos < until);
            let now = if stretch == STRETCHES as u64 {
                rest.len()
            } else {
                now
            };
            let (these, later) = rest.split_at(now);
            series.stretch(these, &mut levels, recording.operations);
            rest = later;
        }
        series
    }

    /// Walks through the events of one stretch.
    fn stretch(&mut self, events: &[Event], levels: &mut Levels, operations: bool) {
        let most = |levels: &Levels| {
            let total = levels.total();
            (total.held, total.live)
        };
        // Twice over: first to find the moment, then to look.
        let mut walked = levels.clone();
        let mut peak = (most(levels), 0);
        for (at, event) in events.iter().enumerate() {
            if walked.step(event).is_some() && most(&walked) >= peak.0 {
                peak = (most(&walked), at + 1);
            }
        }
        let mut happened = Happened::default();
        events.iter().for_each(|event| happened.count(event));
        self.happened.push(happened);
        let (until, after) = events.split_at(peak.1);
        levels.walk(until);
        self.levels.push(
            levels
                .0
                .iter()
                .map(|(class, level)| (*class, Parts::of(*level, operations)))
                .collect(),
        );
        levels.walk(after);
    }

    /// Bytes held in each stretch.
    pub(super) fn held(&self) -> impl Iterator<Item = u64> {
        let sum = |parts: &BTreeMap<_, Parts>| parts.values().map(|parts| parts.sum()).sum();
        self.levels.iter().map(sum)
    }

    /// The stretch in which most was held, or nearly most, and most of that live.
    pub(super) fn peak(&self) -> usize {
        let most = self.held().max().unwrap_or(0);
        let live = |at: usize| {
            self.levels[at]
                .values()
                .map(|parts| parts.live)
                .sum::<u64>()
        };
        let held = self.held().enumerate();
        held.filter(|(_, held)| *held >= most - most / 64)
            .max_by_key(|(at, held)| (live(*at), *held))
            .map_or(0, |(at, _)| at)
    }
}

impl Happened {
    fn count(&mut self, event: &Event) {
        let bytes = event.bytes as u64;
        match event.kind {
            EventKind::Birth => self.born += bytes,
            EventKind::Death => self.returned += bytes,
            EventKind::Trim => {
                self.trims += 1;
                self.trimmed += bytes;
            }
            EventKind::Refusal { .. } => {
                self.refusals += 1;
                self.refused = self.refused.max(bytes);
            }
            EventKind::Failure => self.failures += 1,
            _ => {}
        }
    }
}
