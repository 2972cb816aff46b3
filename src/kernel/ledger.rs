//! Bytes of one pool: what it holds (F), what counts as resting (D: the depot, and berths beyond the
//! caches' budgets), and the recent peak of the difference, from which the footprint promise is
//! computed. Moved at births, deaths and depot operations only; nothing here is touched by a hit.

use super::reserve::Reserve;
use super::sync::{Counter, const_fn};

/// Where the promise stands, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Slack over the recent peak, in 1024ths.
    pub slack: u64,
    /// Births and takes from the depot in one window of the recent peak.
    pub window: u64,
    /// Bytes that may be held whatever the recent peak is.
    pub floor: usize,
    /// Most bytes that may rest, in thread caches and the depot together.
    pub cap: usize,
    /// Most bytes that may be held in all.
    pub limit: usize,
}

/// What a cache has room for, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// In the magazines of the touched classes.
    pub shelves: usize,
    /// In berths, within the budget.
    pub berths: usize,
    /// In berths beyond the budget: the ledger's as if it rested in the depot.
    pub beyond: usize,
}

impl Charged {
    pub(super) const NOTHING: Self = Self {
        shelves: 0,
        berths: 0,
        beyond: 0,
    };

    /// What counts against the budget.
    pub(super) fn within_budget(&self) -> usize {
        self.shelves + self.berths
    }

    /// All of it.
    pub fn total(&self) -> usize {
        self.within_budget() + self.beyond
    }
}

/// The ledger. All that births and exchanges with the depot touch lies on its first cache line.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Ledger {
    held: Reserve,
    /// Part of `held`: charged for births that are under way.
    pending: Counter,
    resting: Counter,
    /// What rests in the depot, and what thread caches have room for: counts against the cap.
    stocked: Counter,
    ticks: Counter,
    peak: Counter,
    highest_used: Counter,
    peak_before: Counter,
    highest_held: Counter,
}

impl Ledger {
    const_fn! {
        /// An empty ledger.
        pub fn new() -> Ledger {
            Ledger {
                held: Reserve::new(),
                pending: Counter::new(),
                resting: Counter::new(),
                stocked: Counter::new(),
                ticks: Counter::new(),
                peak: Counter::new(),
                highest_used: Counter::new(),
                peak_before: Counter::new(),
                highest_held: Counter::new(),
            }
        }
    }

    /// Forgets the peaks of an earlier life; nothing is held then.
    pub fn reset(&self) {
        for counter in [
            &self.resting,
            &self.stocked,
            &self.peak,
            &self.peak_before,
            &self.ticks,
            &self.highest_held,
            &self.highest_used,
        ] {
            counter.replace(0);
        }
    }

    /// F: all bytes held, in use, cached, resting or in flight.
    pub fn held(&self) -> usize {
        self.held.used()
    }

    /// D: bytes resting in the depot, and those of berths beyond the caches' budgets.
    pub fn resting(&self) -> usize {
        self.resting.get() as usize
    }

    /// U: bytes with users, in thread caches or in flight between tiers. A birth under way does not
    /// count, since it may come to nothing: no peak is of what never was.
    pub fn used(&self) -> usize {
        let apart = self.resting() as u64 + self.pending.get();
        self.held().saturating_sub(apart as usize)
    }

    /// Largest U of the last window, and of the one that runs.
    pub fn recent_peak(&self) -> usize {
        self.peak.get().max(self.peak_before.get()) as usize
    }

    /// Largest F and largest U ever.
    pub fn highest(&self) -> (usize, usize) {
        (
            self.highest_held.get() as usize,
            self.highest_used.get() as usize,
        )
    }

    /// What F may be after a birth of `bytes` more. There is slack for what is live only, not for what
    /// thread caches have room for.
    pub fn bound(&self, bytes: usize, policy: &Policy) -> usize {
        let base = self.recent_peak().max(self.used().saturating_add(bytes));
        let cached = (self.stocked.get() as usize).saturating_sub(self.resting());
        let slack = (base.saturating_sub(cached) as u128 * u128::from(policy.slack)) >> 10;
        base.saturating_add(usize::try_from(slack).unwrap_or(usize::MAX))
            .max(policy.floor)
    }

    /// Charges a birth of `bytes` if promise and limit allow. [`born`](Self::born) or
    /// [`unborn`](Self::unborn) follows.
    #[must_use]
    pub fn admit(&self, bytes: usize, policy: &Policy) -> bool {
        let bound = self.bound(bytes, policy);
        self.charge(bytes, bound.min(policy.limit)).is_ok()
    }

    /// Charges a birth of `bytes` for which nothing rests within reach that could go first: only the
    /// limit is left to check.
    ///
    /// # Errors
    /// The limit is reached; the bytes that were reserved at that moment.
    pub fn admit_bare(&self, bytes: usize, policy: &Policy) -> Result<(), usize> {
        self.charge(bytes, policy.limit)
    }

    fn charge(&self, bytes: usize, most: usize) -> Result<(), usize> {
        // Pending first, and last below: a sample in between takes too little for used, not too much.
        self.pending.add(bytes as u64);
        match self.held.try_reserve(bytes, most) {
            Ok(_) => Ok(()),
            Err(reserved) => {
                self.pending.sub(bytes as u64);
                Err(reserved)
            }
        }
    }

    /// A birth that was admitted has come about.
    pub fn born(&self, bytes: usize, policy: &Policy) {
        self.pending.sub(bytes as u64);
        let held = self.held() as u64;
        self.highest_held
            .raise(held.saturating_sub(self.pending.get()));
        self.tick(policy);
    }

    /// A birth that was admitted came to nothing.
    pub fn unborn(&self, bytes: usize) {
        self.held.release(bytes);
        self.pending.sub(bytes as u64);
    }

    /// A death.
    pub fn discharge(&self, bytes: usize) {
        self.held.release(bytes);
    }

    /// Whether nothing rests, and no thread cache has room for anything.
    pub fn is_still(&self) -> bool {
        self.stocked.get() == 0
    }

    /// A thread cache gets room for `bytes`, if the cap on all that may rest allows: then the bytes
    /// that counted against it before.
    #[must_use]
    pub fn stock(&self, bytes: usize, policy: &Policy) -> Option<u64> {
        self.stocked.try_add(bytes as u64, policy.cap as u64)
    }

    /// A thread cache gives up its room for `bytes`.
    pub fn unstock(&self, bytes: usize) {
        self.stocked.sub(bytes as u64);
    }

    /// `bytes` come to rest in the depot, if the cap allows. As [`stock`](Self::stock).
    #[must_use]
    pub fn rest(&self, bytes: usize, policy: &Policy) -> Option<u64> {
        let before = self.stock(bytes, policy)?;
        self.resting.add(bytes as u64);
        Some(before)
    }

    /// `bytes` leave the depot towards a user.
    pub fn wake(&self, bytes: usize, policy: &Policy) {
        self.unrest(bytes);
        self.tick(policy);
    }

    /// `bytes` leave the depot towards their source.
    pub fn unrest(&self, bytes: usize) {
        self.rouse(bytes);
        self.unstock(bytes);
    }

    /// `bytes` count no longer as resting.
    pub fn rouse(&self, bytes: usize) {
        self.resting.sub(bytes as u64);
    }

    /// A thread cache gives up its room.
    pub fn vacate(&self, charged: Charged) {
        self.rouse(charged.beyond);
        self.unstock(charged.total());
    }

    /// Births and exchanges so far.
    pub fn ticks(&self) -> u64 {
        self.ticks.get()
    }

    /// A time window ends: the recent peak is what is in use now and was during this one.
    pub fn turn_window(&self) {
        let ended = self.peak.replace(self.used() as u64);
        self.peak_before.replace(ended);
    }

    /// One birth or exchange: samples U, and turns the window over when it is full.
    fn tick(&self, policy: &Policy) {
        let used = self.used() as u64;
        self.peak.raise(used);
        self.highest_used.raise(used);
        if self.ticks.tick(1) % policy.window == policy.window - 1 {
            self.turn_window();
        }
    }
}
