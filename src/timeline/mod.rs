//! What a pool did, over time: an event ring, and what can be made of it.
//!
//! A pool that is told to keeps its last events in a ring: births and deaths, exchanges with the
//! depot, trims, refusals, and, when asked, every allocate and drop. [`Pool::timeline`] drains it
//! into a [`Recording`], which can be looked at as events, or be written (with the feature
//! `timeline`) as a trace for `chrome://tracing` and [ui.perfetto.dev](https://ui.perfetto.dev),
//! and as one page of HTML that needs no network.
//!
//! A pool without a timeline pays nothing; one with a timeline pays on its slow paths, and with
//! operations at each allocate and drop.
//!
//! ```
//! use ndpool::Pool;
//! use ndpool::timeline::{EventKind, Timeline};
//!
//! let pool = Pool::builder().timeline(Timeline::new(1000)).build();
//! drop(pool.allocate::<f64>(1 << 20)?);
//! pool.trim();
//! let recording = pool.timeline().expect("the pool keeps one");
//! let [first, .., last] = recording.events() else { panic!("a birth and a trim at least") };
//! assert_eq!((first.kind, last.kind), (EventKind::Birth, EventKind::Trim));
//! assert_eq!(first.bytes, last.bytes, "all of it went back");
//! # Ok::<(), ndpool::AllocError>(())
//! ```
//!
//! The environment variable `NDPOOL_TIMELINE` gives a timeline to every pool whose builder was not
//! told of one, without a rebuild: `NDPOOL_TIMELINE=events=65536,ops` (see [`Timeline::from_env`]).
//!
//! [`Pool::timeline`]: crate::Pool::timeline

use std::str::FromStr;
use std::sync::OnceLock;

use crate::constants::timeline as constants;
use crate::report::{self, Report};

mod event;
mod levels;
#[cfg(feature = "timeline")]
mod page;
mod recording;
pub(crate) mod ring;
#[cfg(feature = "timeline")]
mod series;
mod threads;
#[cfg(feature = "timeline")]
mod trace;

pub use event::{Event, EventKind};
pub use levels::Level;
pub use recording::Recording;

/// How a pool keeps its timeline; for [`PoolBuilder::timeline`](crate::PoolBuilder::timeline).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    events: usize,
    operations: bool,
}

impl Default for Timeline {
    /// The last 65,536 events, without operations.
    fn default() -> Self {
        Self::new(constants::EVENTS)
    }
}

impl Timeline {
    /// Keeps the last `events` events (clamped to 1..=16,777,216), of 56 bytes each; the ring is
    /// allocated when the pool is opened.
    #[must_use]
    pub fn new(events: usize) -> Self {
        Self {
            events: events.clamp(1, constants::MOST_EVENTS),
            operations: false,
        }
    }

    /// Whether every allocate and drop is recorded too (no). What is live is known exactly then,
    /// by class and by thread; and no operation of the pool is a hit of the short path any more.
    #[must_use]
    pub fn operations(mut self, recorded: bool) -> Self {
        self.operations = recorded;
        self
    }

    /// The timeline that the environment variable `NDPOOL_TIMELINE` describes, read once a process
    /// (see the implementation of [`FromStr`]); none without it, or where it is empty or malformed.
    /// A malformed one is reported once, with the word (see [`report`]).
    #[must_use]
    pub fn from_env() -> Option<Self> {
        static TIMELINE: OnceLock<Option<Timeline>> = OnceLock::new();
        let read = || {
            let words = std::env::var_os("NDPOOL_TIMELINE").filter(|words| !words.is_empty())?;
            let report = |TimelineError { word }| report::emit(&Report::BadTimeline { word });
            words.to_string_lossy().parse().map_err(report).ok()
        };
        TIMELINE.get_or_init(read).clone()
    }
}

impl FromStr for Timeline {
    type Err = TimelineError;

    /// Words with commas between them: `events=N` (65,536 unless told; 1 to 16,777,216), `ops` for
    /// every allocate and drop.
    fn from_str(text: &str) -> Result<Self, TimelineError> {
        let mut timeline = Self::default();
        for word in text.split(',').map(str::trim) {
            let error = || TimelineError {
                word: word.to_owned(),
            };
            match word.split_once('=') {
                None if word == "ops" => timeline.operations = true,
                Some(("events", number)) => {
                    let events = number.parse().map_err(|_| error())?;
                    if !(1..=constants::MOST_EVENTS).contains(&events) {
                        return Err(error());
                    }
                    timeline.events = events;
                }
                _ => return Err(error()),
            }
        }
        Ok(timeline)
    }
}

/// A description of a timeline is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is neither `ops` nor `events=N` with N from 1 to 16777216")]
#[non_exhaustive]
pub struct TimelineError {
    /// The word that is none.
    pub word: String,
}

static_assertions::const_assert!(size_of::<Event>() <= 48);
