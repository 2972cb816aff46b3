//! [`Stats`]: what a pool has done and what it holds, as numbers and as a table.

use core::fmt;

use crate::block::Core;
use crate::class;
use crate::kernel::audit::{Mismatch, Places};
use crate::kernel::backing::Backing;
use crate::tuning::CLASSES;

/// One size class, or what has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ClassStats {
    /// Bytes that a block of the class holds; 0 for what has no class.
    pub capacity: usize,
    /// Bytes that a block of the class occupies.
    pub charge: usize,
    /// Blocks taken, births included.
    pub takes: u64,
    /// Blocks that came from the source.
    pub births: u64,
    /// Blocks that went back to the source.
    pub deaths: u64,
    /// Blocks with users now.
    pub live: u64,
    /// Blocks in thread caches now.
    pub cached: u64,
    /// Blocks in the depot now.
    pub depot: u64,
}

impl ClassStats {
    /// What `core` counts of `class`, whose blocks occupy `charge` bytes. Counts that do not add up,
    /// in a look at a pool that is not quiet, are cut to what exists.
    fn of(core: &Core, class: usize, charge: usize) -> Self {
        let numbers = core.numbers_of(class);
        let (takes, gives) = core.traffic(class);
        let (births, deaths) = (numbers.births.get(), numbers.deaths.get());
        let exist = births.saturating_sub(deaths);
        let live = takes.saturating_sub(gives).min(exist);
        let depot = core.depot_estimate(class).min(exist - live);
        Self {
            capacity: class::capacity(class),
            charge,
            takes,
            births,
            deaths,
            live,
            cached: exist - live - depot,
            depot,
        }
    }

    /// What has no class: never cached, never in the depot.
    fn without_class(core: &Core) -> Self {
        let numbers = &core.unclassed;
        let (births, deaths) = (numbers.births.get(), numbers.deaths.get());
        Self {
            takes: births,
            births,
            deaths,
            live: births.saturating_sub(deaths),
            ..Self::default()
        }
    }
}

/// A look at a pool: exact when the pool is quiet, else each number is of the moment or shortly
/// before. Bytes are bytes occupied, alignment and rounding included, unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Requests served by the thread's cache or the depot.
    pub hits: u64,
    /// Requests that went to the source.
    pub misses: u64,
    /// Magazines and single blocks that went into the depot or came out of it.
    pub exchanges: u64,
    /// Blocks born.
    pub births: u64,
    /// Blocks died.
    pub deaths: u64,
    /// Bytes held in all (F).
    pub held_bytes: usize,
    /// Bytes with users.
    pub live_bytes: usize,
    /// Blocks that were released and are held back by a quarantine; they count as live.
    pub quarantined: u64,
    /// Bytes of these, which count as live as well.
    pub quarantined_bytes: usize,
    /// Bytes resting in thread caches.
    pub resting_cached_bytes: usize,
    /// Bytes resting in the depot.
    pub resting_depot_bytes: usize,
    /// Most bytes held at once.
    pub peak_held_bytes: usize,
    /// Most bytes with users, in caches and in flight at once, sampled at births and exchanges.
    pub peak_used_bytes: usize,
    /// The recent peak that the footprint promise speaks of.
    pub recent_peak_bytes: usize,
    /// What the pool may hold now by the footprint promise.
    pub budget_bytes: usize,
    /// Bytes that may still be held before the limit refuses; `usize::MAX` without a limit.
    #[cfg_attr(feature = "serde", serde(serialize_with = "unless_endless"))]
    pub headroom_bytes: usize,
    /// Bytes that live and resting blocks occupy beyond their capacity.
    pub waste_bytes: usize,
    /// Control blocks that retired at their last generation.
    pub retired: u64,
    /// Trims, on demand and by age.
    pub trims: u64,
    /// Bytes that trims gave back.
    pub trimmed_bytes: u64,
    /// Handle upgrades refused, in the whole process.
    pub stale_upgrades: u64,
    /// Token releases refused, in the whole process.
    pub stray_releases: u64,
    /// Classes that were ever used, rising; last what has no class, if there ever was any.
    pub classes: Vec<ClassStats>,
}

/// Bytes, or nothing where there is no bound.
#[cfg(feature = "serde")]
fn unless_endless<S: serde::Serializer>(bytes: &usize, to: S) -> Result<S::Ok, S::Error> {
    match *bytes {
        usize::MAX => to.serialize_none(),
        bytes => to.serialize_some(&bytes),
    }
}

impl Stats {
    /// # Safety
    /// The caller holds a handle of the pool.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn of(core: &Core) -> Self {
        // SAFETY: the caller's promise.
        let backing = unsafe { core.backing() };
        let ledger = &core.ledger;
        let mut stats = Self {
            exchanges: (0..CLASSES)
                .map(|class| core.numbers_of(class).exchanges.get())
                .sum(),
            births: core.numbers.births.get(),
            deaths: core.numbers.deaths.get(),
            misses: core.numbers.births.get(),
            held_bytes: ledger.held(),
            peak_held_bytes: ledger.highest().0,
            peak_used_bytes: ledger.highest().1,
            recent_peak_bytes: ledger.recent_peak(),
            budget_bytes: ledger.bound(0, &backing.policy).min(backing.policy.limit),
            headroom_bytes: match backing.policy.limit {
                usize::MAX => usize::MAX,
                limit => limit.saturating_sub(ledger.held()),
            },
            retired: core.numbers.retired.get(),
            trims: core.numbers.trims.get(),
            trimmed_bytes: core.numbers.trimmed_bytes.get(),
            stale_upgrades: crate::stale_upgrades(),
            stray_releases: crate::stray_releases(),
            ..Self::default()
        };
        if let Some(watch) = &backing.watch {
            (stats.quarantined, stats.quarantined_bytes) = watch.held();
        }
        let mut classed_bytes = 0;
        for class in 0..CLASSES {
            let row = ClassStats::of(core, class, backing.class_charge(class));
            if row.takes == 0 {
                continue;
            }
            let exist = row.live + row.cached + row.depot;
            let bytes = |blocks: u64| blocks as usize * row.charge;
            stats.hits += row.takes - row.births.min(row.takes);
            stats.live_bytes += bytes(row.live);
            stats.resting_cached_bytes += bytes(row.cached);
            stats.resting_depot_bytes += bytes(row.depot);
            stats.waste_bytes += exist as usize * (row.charge - row.capacity);
            classed_bytes += bytes(exist);
            stats.classes.push(row);
        }
        let other = ClassStats::without_class(core);
        if other.births > 0 {
            stats.live_bytes += stats.held_bytes.saturating_sub(classed_bytes);
            stats.classes.push(other);
        }
        stats
    }

    /// Part of the requests that were hits, 0 to 1; 1 before the first request.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        match self.hits + self.misses {
            0 => 1.0,
            requests => self.hits as f64 / requests as f64,
        }
    }
}

/// Bytes for people: three digits and a binary unit.
pub(crate) struct Bytes(pub(crate) usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1000.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let text = if unit == 0 || value >= 100.0 || value.fract() == 0.0 {
            format!("{value:.0} {}", UNITS[unit])
        } else {
            format!("{value:.1} {}", UNITS[unit])
        };
        f.pad(&text)
    }
}

/// Width of the bars of the table.
const BAR: usize = 24;

impl fmt::Display for Stats {
    /// A summary, and a row a class with a bar: `#` bytes with users, `+` in caches, `.` in the
    /// depot, to the scale of the largest class.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_summary(f)?;
        self.fmt_classes(f)
    }
}

impl Stats {
    fn fmt_summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "requests {:>12}   hits {:.2} %   exchanges {}   births {}   deaths {}",
            self.hits + self.misses,
            100.0 * self.hit_rate(),
            self.exchanges,
            self.births,
            self.deaths,
        )?;
        writeln!(
            f,
            "held {:>16}   live {}   cached {}   depot {}   peak {}   budget {}",
            Bytes(self.held_bytes),
            Bytes(self.live_bytes),
            Bytes(self.resting_cached_bytes),
            Bytes(self.resting_depot_bytes),
            Bytes(self.peak_held_bytes),
            Bytes(self.budget_bytes),
        )?;
        writeln!(
            f,
            "waste {:>15}   trims {} ({})   stale {}   stray {}",
            Bytes(self.waste_bytes),
            self.trims,
            Bytes(self.trimmed_bytes as usize),
            self.stale_upgrades,
            self.stray_releases,
        )
    }

    fn fmt_classes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>9} {:>12} {:>9} {:>9} {:>9} {:>9}  # live  + cached  . depot",
            "class", "takes", "births", "live", "cached", "depot"
        )?;
        let weight = |row: &ClassStats| row.charge as u64 * (row.live + row.cached + row.depot);
        let most = self.classes.iter().map(weight).max().unwrap_or(0).max(1);
        for row in &self.classes {
            let name = match row.capacity {
                0 => "other".to_owned(),
                bytes => Bytes(bytes).to_string(),
            };
            let cells = |blocks: u64| {
                let bytes = row.charge as u128 * u128::from(blocks);
                (bytes * BAR as u128).div_ceil(u128::from(most)) as usize
            };
            writeln!(
                f,
                "{name:>9} {:>12} {:>9} {:>9} {:>9} {:>9}  {}{}{}",
                row.takes,
                row.births,
                row.live,
                row.cached,
                row.depot,
                "#".repeat(cells(row.live)),
                "+".repeat(cells(row.cached)),
                ".".repeat(cells(row.depot)),
            )?;
        }
        Ok(())
    }
}

/// Where every block of a quiet pool was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    /// Blocks with users.
    pub live: u64,
    /// Blocks in thread caches.
    pub cached: u64,
    /// Blocks in the depot.
    pub depot: u64,
}

impl From<Places> for Audit {
    fn from(places: Places) -> Self {
        Self {
            live: places.live,
            cached: places.cached,
            depot: places.depot,
        }
    }
}

/// The pool's books do not balance (or it was not quiet).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The calling thread is inside a trim of the pool: what a source calls back from there cannot
    /// audit it.
    #[error("the calling thread is trimming the pool")]
    Busy,
    /// A block rests in two places, or among blocks of another class or pool.
    #[error("control block {block} is misplaced in class {class}")]
    Misplaced {
        /// Index of the control block.
        block: u32,
        /// Class of the place.
        class: usize,
    },
    /// The blocks of a class that exist are not those with users and those that rest.
    #[error("class {class}: {exist} blocks exist, {live} are live and {resting} rest")]
    Blocks {
        /// The class.
        class: usize,
        /// Births minus deaths.
        exist: u64,
        /// Takes minus gives.
        live: u64,
        /// Found in caches and depot.
        resting: u64,
    },
    /// The depot's bytes are not those of the blocks found in it.
    #[error("{ledger} bytes should rest in the depot, {found} were found")]
    Resting {
        /// By the ledger.
        ledger: u64,
        /// Found.
        found: u64,
    },
    /// The bytes held are not those of the blocks that exist.
    #[error("{ledger} bytes are held by the ledger, the blocks that exist occupy {found}")]
    Held {
        /// By the ledger.
        ledger: u64,
        /// Of the blocks that exist.
        found: u64,
    },
}

impl From<Mismatch> for AuditError {
    fn from(mismatch: Mismatch) -> Self {
        match mismatch {
            Mismatch::Busy => Self::Busy,
            Mismatch::Misplaced { block, class } => Self::Misplaced { block, class },
            Mismatch::Blocks {
                class,
                exist,
                live,
                resting,
            } => Self::Blocks {
                class,
                exist,
                live,
                resting,
            },
            Mismatch::Resting { ledger, found } => Self::Resting { ledger, found },
            Mismatch::Held { ledger, found } => Self::Held { ledger, found },
        }
    }
}
