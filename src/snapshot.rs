//! [`Snapshot`]: a pool's settings and numbers in one value, to be written down.

use crate::block::Bound;
use crate::source::Source;
use crate::stats::Stats;

/// How a pool was configured. Bytes, unless said otherwise; no value stands for no bound.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Settings {
    /// Name of the source of memory.
    pub source: &'static str,
    /// Largest pooled size.
    pub max_class: usize,
    /// Most bytes held in all.
    pub limit: Option<usize>,
    /// Most bytes that may rest.
    pub cap: Option<usize>,
    /// Slack of the footprint promise, as a part of the recent peak.
    pub slack: f64,
    /// Bytes that may be held whatever the recent peak is.
    pub floor: usize,
    /// Births and takes from the depot in a window of the recent peak.
    pub window: u64,
    /// Bytes of one thread's cache that count as in use.
    pub cache_budget: usize,
}

/// A look at a pool, with its settings; from [`Pool::snapshot`](crate::Pool::snapshot).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Snapshot {
    /// Number of the pool in the process, from 1.
    pub pool: u64,
    /// How it was configured.
    pub settings: Settings,
    /// What it has done and what it holds, by class too.
    pub stats: Stats,
}

impl Snapshot {
    pub(crate) fn of(pool: u64, backing: &Bound, stats: Stats) -> Self {
        let policy = &backing.policy;
        let bound = |bytes: usize| (bytes < usize::MAX).then_some(bytes);
        Self {
            pool,
            settings: Settings {
                source: backing.source.name(),
                max_class: crate::class::capacity(backing.classes - 1),
                limit: bound(policy.limit),
                cap: bound(policy.cap),
                slack: policy.slack as f64 / 1024.0,
                floor: policy.floor,
                window: policy.window,
                cache_budget: backing.budget,
            },
            stats,
        }
    }

    /// The snapshot as a JSON object. Bytes are numbers; a bound that there is not is `null`.
    #[cfg(feature = "timeline")]
    #[cfg_attr(docsrs, doc(cfg(feature = "timeline")))]
    #[must_use]
    pub fn to_json(&self) -> String {
        // Names of fields are strings, and numbers are finite: nothing can fail.
        serde_json::to_string_pretty(self).expect("a snapshot is plain data")
    }
}
