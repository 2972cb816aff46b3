//! [`Pool`] and [`PoolBuilder`]: configuration and routing.

#![allow(unsafe_code)]

use core::fmt;
use core::mem::MaybeUninit;
use core::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use crate::block::{self, Bound, Core, Reclaim, WORLD};
use crate::buffer::Buffer;
use crate::class;
use crate::clock::Clock;
use crate::constants;
use crate::element::Element;
use crate::error::{AllocError, AllocErrorKind};
use crate::kernel::ledger::Policy;
use crate::snapshot::Snapshot;
use crate::source::{Os, Source};
use crate::stats::{Audit, AuditError, Stats};
use crate::thread::{self, Place};
use crate::tiers;
use crate::timeline::ring::Ring;
use crate::timeline::{Recording, Timeline};
use crate::trimmer;
use crate::tuning::{CLASSES, MAGAZINE_ROUNDS, MAGAZINES_PER_SHELF};
use crate::watch::{self, Checks, Watch};

/// How a pool is configured.
pub struct PoolBuilder {
    source: Box<dyn Source>,
    max_class: usize,
    cap: usize,
    limit: usize,
    slack: f64,
    floor: usize,
    window: u64,
    budget: usize,
    reclaim: Option<Reclaim>,
    reuse: usize,
    interval: Duration,
    trimmer: Option<Duration>,
    timeline: Option<Timeline>,
    checks: Option<Checks>,
    wipe: bool,
}

impl Default for PoolBuilder {
    fn default() -> Self {
        Self {
            source: Box::new(Os::new()),
            max_class: constants::pool::MAX_CLASS,
            cap: usize::MAX,
            limit: usize::MAX,
            slack: constants::pool::SLACK_1024 as f64 / 1024.0,
            floor: constants::pool::FLOOR,
            window: constants::pool::WINDOW,
            budget: constants::pool::CACHE_BUDGET,
            reclaim: None,
            reuse: constants::pool::REUSE_CLASSES,
            interval: constants::pool::INTERVAL,
            trimmer: None,
            timeline: None,
            checks: None,
            wipe: false,
        }
    }
}

impl PoolBuilder {
    /// Where memory comes from; the operating system unless told otherwise.
    #[must_use]
    pub fn source(mut self, source: impl Source) -> Self {
        self.source = Box::new(source);
        self
    }

    /// Largest pooled size, in bytes (1 GiB); rounded up to a size class. Larger requests go to
    /// the source and back.
    #[must_use]
    pub fn max_class(mut self, bytes: usize) -> Self {
        self.max_class = bytes;
        self
    }

    /// Most bytes that may rest, in the depot and in thread caches together (no cap but the
    /// footprint promise). A thread's cache counts with all that it has room for.
    #[must_use]
    pub fn cap(mut self, bytes: usize) -> Self {
        self.cap = bytes;
        self
    }

    /// Most bytes that the pool may hold in all, never exceeded (no limit).
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Slack of the footprint promise: bytes held stay within `1 + slack` times the recent peak of
    /// bytes in use (0.28). Clamped to 0..=1000.
    #[must_use]
    pub fn slack(mut self, slack: f64) -> Self {
        self.slack = if slack.is_nan() {
            0.0
        } else {
            slack.clamp(0.0, 1000.0)
        };
        self
    }

    /// Bytes that the pool may hold whatever the recent peak is (6 MiB); 0 for the promise in its
    /// strict form.
    #[must_use]
    pub fn floor(mut self, bytes: usize) -> Self {
        self.floor = bytes;
        self
    }

    /// Length of the window of the recent peak, in births and takes from the depot
    /// (20,000); ageing ends it as well.
    #[must_use]
    pub fn window(mut self, operations: u64) -> Self {
        self.window = operations.max(1);
        self
    }

    /// Bytes of one thread's cache, a magazine in flight included, that count as in use for the footprint
    /// promise (2 MiB). Up to 64 large blocks beyond it may stay, and count as resting. 0: threads keep
    /// nothing.
    #[must_use]
    pub fn cache_budget(mut self, bytes: usize) -> Self {
        self.budget = bytes;
        self
    }

    /// How many size classes larger a resting block may be that serves a request of 64 KiB and
    /// more (3: up to 1.75 times; four would be twice). It goes home to its own class.
    #[must_use]
    pub fn reuse_classes(mut self, classes: usize) -> Self {
        self.reuse = classes;
        self
    }

    /// What stays unused through a whole interval goes back to its source (1 s), on a tick that
    /// slow paths take: hits alone age nothing.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Ages the pool from a background thread, at this interval, instead of on slow paths;
    /// [`interval`](Self::interval) is not used then. One thread a process, which sleeps while nothing
    /// rests.
    #[must_use]
    pub fn trimmer(mut self, interval: Duration) -> Self {
        self.trimmer = Some(interval.max(Duration::from_millis(1)));
        self
    }

    /// Called with no lock held when the limit refuses and nothing in the pool can be reclaimed,
    /// with the bytes wanted, in a loop while it says that it freed something.
    #[must_use]
    pub fn on_reclaim(mut self, reclaim: impl Fn(usize) -> bool + Send + Sync + 'static) -> Self {
        self.reclaim = Some(Arc::new(reclaim));
        self
    }

    /// Keeps the pool's last events, for [`Pool::timeline`]. Without this call the pool keeps a
    /// timeline if the environment variable `NDPOOL_TIMELINE` says so (see [`Timeline::from_env`]).
    #[must_use]
    pub fn timeline(mut self, timeline: Timeline) -> Self {
        self.timeline = Some(timeline);
        self
    }

    /// Looks for misuse, at the price that `docs/diagnosis.md` names. Without this call the pool has
    /// the checks of the environment variable `NDPOOL_CHECK` (see [`Checks::from_env`]); with
    /// `Checks::new()` it has none.
    #[must_use]
    pub fn checks(mut self, checks: Checks) -> Self {
        self.checks = Some(checks);
        self
    }

    /// Overwrites every buffer with zeroes when its last owner goes: its whole capacity, so that
    /// nobody who gets the memory later, or reads a core dump, finds what was in it. For secrets;
    /// together with whatever [`checks`](Self::checks) there are. Memory that is not the pool's
    /// own (from owners, mapped files) is left as it is.
    #[must_use]
    pub fn wipe_on_return(mut self) -> Self {
        self.wipe = true;
        self
    }

    /// Opens the pool.
    ///
    /// # Panics
    /// If memory for its core is refused, or 65,536 pools are open; see
    /// [`try_build`](Self::try_build).
    #[track_caller]
    #[must_use]
    pub fn build(self) -> Pool {
        match self.try_build() {
            Ok(pool) => pool,
            Err(error) => panic!("{error}"),
        }
    }

    /// Opens the pool.
    ///
    /// # Errors
    /// [`AllocErrorKind::BlocksExhausted`] if memory for its core is refused, or too many pools
    /// are open; [`AllocErrorKind::Unsupported`] if its checks cannot be had on this system.
    pub fn try_build(self) -> Result<Pool, AllocError> {
        let mut checks = self.checks.unwrap_or_else(Checks::from_env);
        if self.wipe {
            checks = checks.wipe();
        }
        let timeline = self.timeline.or_else(Timeline::from_env);
        let timeline = timeline.as_ref().map(Ring::new);
        let classes = match class::of(self.max_class.max(1)) {
            class if class < CLASSES => class + 1,
            _ => CLASSES,
        };
        let source = match watch::source_for(checks)? {
            Some(guarded) => guarded,
            None => self.source,
        };
        let mut charges = Box::new([0; CLASSES]);
        let mut rounds = Box::new([0; CLASSES]);
        for class in 0..classes {
            let charge = source.footprint(block::class_layout(class));
            charges[class] = charge;
            rounds[class] = rounds_of(charge, self.budget);
        }
        let bound = Bound {
            source,
            policy: Policy {
                slack: (self.slack * 1024.0) as u64,
                window: self.window,
                floor: self.floor,
                cap: self.cap,
                limit: self.limit,
            },
            budget: self.budget,
            classes,
            charges,
            rounds,
            reclaim: self.reclaim,
            reuse: self.reuse,
            interval: self.interval,
            trimmer: self.trimmer,
            clock: Clock::default(),
            watch: Watch::new(
                checks,
                timeline.as_ref().is_some_and(Ring::wants_operations),
            ),
            timeline,
        };
        trimmer::prepare_for_fork();
        // SAFETY: the world is a static.
        let core = unsafe { Core::open(&WORLD, bound) }.map_err(|_| {
            AllocError::new(
                AllocErrorKind::BlocksExhausted,
                size_of::<Core>(),
                64,
                tiers::NAME,
            )
        })?;
        if let Some(interval) = self.trimmer {
            trimmer::enrol(core, interval);
        }
        Ok(Pool {
            core,
            place: Place::of(core),
        })
    }
}

/// Rounds of a magazine of blocks that occupy `charge` bytes each; 0 for a class that has berths
/// instead.
fn rounds_of(charge: usize, budget: usize) -> u8 {
    let rounds = (constants::pool::MAGAZINE_BYTES / charge.max(1)).min(MAGAZINE_ROUNDS);
    // A class whose magazines would be no more than single blocks, or alone exceed the budget.
    if rounds < 2 || charge.saturating_mul(MAGAZINES_PER_SHELF) > budget {
        0
    } else {
        rounds as u8
    }
}

/// A handle to a pool: cheap to clone, usable on any thread. The last handle closes the pool;
/// buffers that are alive then stay valid, and their memory goes back to its source when they die.
pub struct Pool {
    core: &'static Core,
    place: Place,
}

// A pool's state is atomic throughout; a panic in a user's source cannot leave it half-done.
impl UnwindSafe for Pool {}
impl RefUnwindSafe for Pool {}

impl Pool {
    /// A pool with the default configuration.
    ///
    /// # Panics
    /// As [`PoolBuilder::build`].
    #[track_caller]
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A configuration to start from.
    #[must_use]
    pub fn builder() -> PoolBuilder {
        PoolBuilder::default()
    }

    pub(crate) fn core(&self) -> &'static Core {
        self.core
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// A buffer of `len` elements with unspecified contents; see the safe initialisers of
    /// [`Buffer<MaybeUninit<T>>`].
    ///
    /// A hit never waits. A miss may give resting blocks back on this thread ([`Source::dealloc`]), wait
    /// for a thread that trims or makes room itself, and at the limit call
    /// [`on_reclaim`](PoolBuilder::on_reclaim).
    ///
    /// # Errors
    /// [`AllocError`] with the numbers; nothing was charged.
    #[inline]
    pub fn allocate<T: Element>(&self, len: usize) -> Result<Buffer<MaybeUninit<T>>, AllocError> {
        let bytes = tiers::bytes_of::<T>(len)?;
        // SAFETY: `self` is a handle of the pool.
        let taken = unsafe { tiers::take(self.core, self.place, bytes, align_of::<T>()) }?;
        // SAFETY: just taken, large enough and aligned; uninitialised elements are valid as such.
        Ok(unsafe { Buffer::from_taken(taken, len) })
    }

    /// A buffer of `len` zero elements. Fresh mappings are known to be zero and are not touched.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn zeroed<T: Element>(&self, len: usize) -> Result<Buffer<T>, AllocError> {
        let bytes = tiers::bytes_of::<T>(len)?;
        // SAFETY: `self` is a handle of the pool.
        let taken = unsafe { tiers::take_zeroed(self.core, self.place, bytes, align_of::<T>()) }?;
        // SAFETY: just taken and zero, which is valid for every element type.
        Ok(unsafe { Buffer::from_taken(taken, len) })
    }

    /// A buffer of `len` elements, all `value`.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn filled<T: Element>(&self, len: usize, value: T) -> Result<Buffer<T>, AllocError> {
        Ok(self.allocate::<T>(len)?.fill_value(value))
    }

    /// A buffer with a copy of `source`.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn copied<T: Element>(&self, source: &[T]) -> Result<Buffer<T>, AllocError> {
        Ok(self.allocate::<T>(source.len())?.write_copy_of(source))
    }

    /// A buffer with the elements of an iterator, as many as it yields.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn collect<T: Element>(
        &self,
        elements: impl IntoIterator<Item = T>,
    ) -> Result<Buffer<T>, AllocError> {
        let elements = elements.into_iter();
        let mut buffer = self.zeroed::<T>(elements.size_hint().0)?;
        let mut len = 0;
        for element in elements {
            if len == buffer.len() {
                // Elements without a size fit any number of times: no need to double.
                let room = match size_of::<T>() {
                    0 => len + 1,
                    _ => buffer.capacity().max(len + len / 2).max(len + 1),
                };
                buffer.resize(room, element)?;
            }
            buffer[len] = element;
            len += 1;
        }
        buffer.truncate(len);
        Ok(buffer)
    }

    /// Gives every resting block back to its source, from a quarantine, the depot and from every thread's cache,
    /// idle ones included; returns the bytes. May wait for another trim; no thread is made to
    /// wait but one that needs what goes here to stay within promise or limit. Where the system has no
    /// `membarrier`, other threads are asked to empty their caches at their next operation. Called from
    /// inside of a trim, by a source or a subscriber, it does nothing and returns 0.
    pub fn trim(&self) -> usize {
        // SAFETY: `self` is a handle.
        if let Some(watch) = &unsafe { self.core.backing() }.watch {
            watch.drain();
        }
        // SAFETY: `self` is a handle; the cache is this thread's, bound to the pool.
        unsafe { self.core.trim(thread::existing_cache(self.core)) }
    }

    /// Ends an interval of ageing now: what was not used since the last one goes back to its
    /// source; returns the bytes. While another thread trims, or makes room for a birth, it does
    /// nothing; it waits for at most 200 looks at each busy thread.
    pub fn age(&self) -> usize {
        // SAFETY: `self` is a handle; the cache is this thread's, bound to the pool.
        unsafe { self.core.age(thread::existing_cache(self.core)) }.unwrap_or(0)
    }

    /// What the pool has done and what it holds. Costs the hit path nothing; walks the caches of
    /// all threads.
    #[must_use]
    pub fn stats(&self) -> Stats {
        // SAFETY: `self` is a handle of the pool.
        unsafe { Stats::of(self.core) }
    }

    /// The pool's configuration and statistics in one value that can be written down: it is
    /// [`serde::Serialize`](https://docs.rs/serde) with the feature `serde`.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        // SAFETY: `self` is a handle of the pool.
        let backing = unsafe { self.core.backing() };
        Snapshot::of(self.core.life(), backing, self.stats())
    }

    /// Drains the pool's timeline: the events since the last call, or since the pool was opened, up
    /// to now. `None` if the pool keeps none. Of two callers at once each gets a part. May wait for a
    /// thread that is just writing an event.
    #[must_use]
    pub fn timeline(&self) -> Option<Recording> {
        // SAFETY: `self` is a handle of the pool.
        let backing = unsafe { self.core.backing() };
        let ring = backing.timeline.as_ref()?;
        let limit = backing.policy.limit;
        let limit = (limit < usize::MAX).then_some(limit);
        Some(Recording::of(ring, self.core.life(), limit, || {
            self.stats()
        }))
    }

    /// Births so far, births and exchanges so far, and bytes held now: what a check of the
    /// footprint promise needs after every request, at the cost of three loads.
    #[doc(hidden)]
    #[must_use]
    pub fn ledger(&self) -> (u64, u64, usize) {
        let core = self.core;
        (
            core.numbers.births.get(),
            core.ledger.ticks(),
            core.ledger.held(),
        )
    }

    /// Proves that every block of the pool is in exactly one place, and that the sums agree. To be
    /// called when the pool is quiet: an operation under way on another thread may look like a
    /// mismatch. Threads may exit meanwhile. May wait for a trim, and for what exiting threads send
    /// home: [`std::thread::scope`] does not wait for that.
    ///
    /// # Errors
    /// [`AuditError`] with what does not balance.
    pub fn audit(&self) -> Result<Audit, AuditError> {
        let own = thread::existing_cache(self.core);
        // SAFETY: `self` is a handle; the cache is this thread's, bound to the pool.
        let places = unsafe { self.core.audit(own) }?;
        Ok(places.into())
    }

    /// Closes the pool for all handles: nothing rests in it any more, and what comes home goes to
    /// its source. Allocating is still possible, from the source. May wait for a trim; as
    /// [`trim`](Self::trim) does, it makes nobody wait who does not need what goes.
    pub fn close(&self) {
        // SAFETY: `self` is a handle of the pool.
        unsafe { self.core.close(thread::existing_cache(self.core)) };
    }

    /// Whether two handles are of the same pool.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        core::ptr::eq(self.core, other.core)
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for Pool {
    fn clone(&self) -> Self {
        self.core.add_handle();
        Self {
            core: self.core,
            place: self.place,
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let own = thread::existing_cache(self.core);
        // SAFETY: this handle, given up.
        unsafe { self.core.drop_handle(own) };
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("index", &self.core.index())
            .field("held_bytes", &self.core.ledger.held())
            .finish()
    }
}

static_assertions::assert_impl_all!(Pool: Send, Sync, Clone, UnwindSafe, RefUnwindSafe);
