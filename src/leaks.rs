//! [`LeakReport`]: which buffers are out, by the place where they were allocated.

#![allow(unsafe_code)]

use core::error::Error;
use core::fmt;
use std::collections::HashMap;
use std::time::Duration;

use crate::pool::Pool;
use crate::stats::{Bytes, Stats};
use crate::watch::record::{self, Outstanding};
use crate::watch::{LeakLevel, Site};

/// The buffers of a pool that are out: with users, or forgotten.
///
/// How many there are and what they occupy is counted in every pool, exact when it is quiet. Where
/// they were allocated is known of those that the pool's [`LeakLevel`] records.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LeakReport {
    /// Buffers that are out.
    pub buffers: u64,
    /// Bytes that they occupy.
    pub bytes: usize,
    /// Which of them are recorded.
    pub level: LeakLevel,
    /// The recorded ones by site, those that hold most first.
    pub groups: Vec<LeakGroup>,
}

/// The outstanding buffers that one site allocated.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LeakGroup {
    /// Where.
    pub site: Option<Site>,
    /// How many.
    pub count: u64,
    /// Bytes that they hold together: the capacities of their blocks.
    pub bytes: usize,
    /// Bytes that the largest holds: its class.
    pub largest: usize,
    /// Time since the first of them was allocated.
    pub oldest: Duration,
    /// The buffer of which the smallest part was made a view, if of any: it may be that no more than
    /// this part of it is in use.
    pub view: Option<Retained>,
}

/// What a view keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retained {
    /// Bytes of the view.
    pub seen: usize,
    /// Bytes of the buffer that it keeps.
    pub retained: usize,
}

impl LeakReport {
    fn new(level: LeakLevel, outstanding: Vec<Outstanding>) -> Self {
        // Sites are resolved once each; those of an unrolled loop have the same lines.
        let mut sites: HashMap<Option<Site>, usize> = HashMap::new();
        let mut places: HashMap<Vec<String>, usize> = HashMap::new();
        let mut groups: Vec<LeakGroup> = Vec::new();
        for it in outstanding {
            let place = *sites.entry(it.site.clone()).or_insert_with(|| {
                let callers = it.site.as_ref().map_or_else(Vec::new, Site::callers);
                *places.entry(callers).or_insert(groups.len())
            });
            if place == groups.len() {
                groups.push(LeakGroup {
                    site: it.site,
                    count: 0,
                    bytes: 0,
                    largest: 0,
                    oldest: Duration::ZERO,
                    view: None,
                });
            }
            let group = &mut groups[place];
            group.count += 1;
            group.bytes += it.capacity;
            group.largest = group.largest.max(it.capacity);
            group.oldest = group.oldest.max(it.age);
            if let Some(seen) = it.smallest_view
                && group.view.is_none_or(|view| seen < view.seen)
            {
                let retained = it.capacity;
                group.view = Some(Retained { seen, retained });
            }
        }
        groups.sort_by_key(|group| core::cmp::Reverse(group.bytes));
        Self {
            buffers: groups.iter().map(|group| group.count).sum(),
            bytes: groups.iter().map(|group| group.bytes).sum(),
            level,
            groups,
        }
    }

    /// Whether nothing is out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffers == 0
    }
}

impl Pool {
    /// Which buffers of the pool are out now. What its quarantine holds is not among them. Exact
    /// when the pool is quiet; looks at every recorded buffer of the process.
    ///
    /// ```
    /// use ndpool::{Checks, LeakLevel, Pool};
    ///
    /// let pool = Pool::builder().checks(Checks::new().leaks(LeakLevel::All)).build();
    /// let big = pool.zeroed::<u8>(2 << 20)?.share();
    /// let small = big.slice(0..32)?;
    /// drop(big);
    /// let report = pool.leaks();
    /// assert_eq!((report.buffers, report.groups[0].count), (1, 1));
    /// let view = report.groups[0].view.unwrap();
    /// assert_eq!((view.seen, view.retained), (32, 2 << 20));
    /// println!("{report}");
    /// drop(small);
    /// assert_eq!(pool.close_checked(), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn leaks(&self) -> LeakReport {
        let mut report =
            LeakReport::new(self.leak_level(), record::outstanding(self.core().life()));
        // SAFETY: `self` is a handle of the pool.
        let stats = unsafe { Stats::of(self.core()) };
        let live: u64 = stats.classes.iter().map(|class| class.live).sum();
        report.buffers = live.saturating_sub(stats.quarantined);
        report.bytes = stats.live_bytes.saturating_sub(stats.quarantined_bytes);
        report
    }

    /// Closes the pool as [`close`](Self::close) does, and says which buffers are out. They stay
    /// valid. To be called when no operation is under way on another thread.
    ///
    /// # Errors
    /// The [`LeakReport`], if anything is out.
    pub fn close_checked(&self) -> Result<(), LeakReport> {
        self.close();
        let report = self.leaks();
        if report.is_empty() {
            Ok(())
        } else {
            Err(report)
        }
    }

    fn leak_level(&self) -> LeakLevel {
        // SAFETY: `self` is a handle of the pool.
        let watch = unsafe { self.core().backing() }.watch.as_deref();
        watch.map_or(LeakLevel::Off, |watch| watch.checks().leaks)
    }

    /// The recorded buffers that this thread has taken since record `serial`, still out, and not
    /// given away by a scope.
    #[cfg(feature = "ndarray")]
    pub(crate) fn leaks_since(&self, serial: u64) -> LeakReport {
        let thread = crate::thread::number();
        let mut outstanding = record::outstanding(self.core().life());
        outstanding.retain(|it| it.serial >= serial && it.thread == thread && !it.survivor);
        LeakReport::new(self.leak_level(), outstanding)
    }
}

impl fmt::Display for LeakReport {
    /// A line of sums, and a row a site.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recorded = match self.level {
            LeakLevel::Off => "none recorded".to_owned(),
            LeakLevel::Sampled(n) => format!("1 in {n} recorded"),
            LeakLevel::All => "all recorded".to_owned(),
        };
        write!(
            f,
            "{} buffers out, {} ({recorded})",
            self.buffers,
            Bytes(self.bytes)
        )?;
        if self.groups.is_empty() {
            return Ok(());
        }
        write!(
            f,
            "\n{:>7} {:>9} {:>9} {:>9} {:>20}  allocated at",
            "buffers", "bytes", "largest", "oldest", "smallest view"
        )?;
        for group in &self.groups {
            let view = group.view.map_or_else(
                || "-".to_owned(),
                |view| format!("{} of {}", Bytes(view.seen), Bytes(view.retained)),
            );
            let callers = group.site.as_ref().map_or_else(Vec::new, Site::callers);
            let site = match &callers[..] {
                [] => "-".to_owned(),
                [caller] => caller.clone(),
                [caller, next, ..] => format!("{caller}, from {next}"),
            };
            write!(
                f,
                "\n{:>7} {:>9} {:>9} {:>9} {view:>20}  {site}",
                group.count,
                Bytes(group.bytes),
                Bytes(group.largest),
                format!("{:.1?}", group.oldest),
            )?;
        }
        Ok(())
    }
}

impl Error for LeakReport {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_without_a_site_are_one_group_and_the_smallest_view_counts() {
        let one = |capacity, smallest_view| Outstanding {
            serial: 0,
            capacity,
            age: Duration::from_millis(capacity as u64),
            thread: 0,
            site: None,
            smallest_view,
            survivor: false,
        };
        let outstanding = vec![one(64, None), one(2048, Some(8)), one(1024, Some(16))];
        let report = LeakReport::new(LeakLevel::All, outstanding);
        assert_eq!((report.buffers, report.bytes), (3, 3136));
        let [group] = &report.groups[..] else {
            panic!("{report:?}")
        };
        assert_eq!((group.count, group.largest), (3, 2048));
        assert_eq!(group.oldest, Duration::from_millis(2048));
        let retained = Retained {
            seen: 8,
            retained: 2048,
        };
        assert_eq!(group.view, Some(retained));
        assert!(report.to_string().contains("8 B of 2 KiB"), "{report}");
    }
}
