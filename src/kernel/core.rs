//! A pool's core: shared by its handles and its blocks, from a block's birth to its death. Cores
//! are type-stable cells, so that whoever pushed a block into a depot may look afterwards whether
//! the pool has closed in the meantime, even if that was the pool's last block.

#![allow(unsafe_code)]

use core::{fmt, ptr};

use super::arena::{Arena, Cell, Exhausted};
use super::backing::{Backing, Note};
use super::block::{Block, Label};
use super::cache::Cache;
use super::depot::Depot;
use super::ledger::Ledger;
use super::magazine::Magazine;
use super::numbers::{ClassNumbers, Numbers};
use super::reach::Steal;
use super::slots::Slot;
use super::sync::{
    AtomicU32, AtomicU64, AtomicUsize, Counter, Ordering, UnsafeCell, array, before_fence,
    const_fn, fence, pause, this_thread,
};
use super::tuning::CLASSES;

/// Everything process-wide: type-stable arenas.
pub struct World<S: Backing> {
    /// Control blocks.
    pub blocks: Arena<Block<S>>,
    /// Magazines; the free ones are empty.
    pub magazines: Arena<Magazine<S>>,
    /// Caches; one for each pair of slot and pool index that met.
    pub caches: Arena<Cache<S>>,
    /// Thread slots.
    pub slots: Arena<Slot<S>>,
    /// Pools.
    pub cores: Arena<Core<S>>,
    /// Pools opened so far.
    lives: Counter,
}

impl<S: Backing> World<S> {
    const_fn! {
        /// A world without a pool.
        pub fn new() -> World<S> {
            World {
                blocks: Arena::new(),
                magazines: Arena::new(),
                caches: Arena::new(),
                slots: Arena::new(),
                cores: Arena::new(),
                lives: Counter::new(),
            }
        }
    }
}

/// The core.
pub struct Core<S: Backing> {
    index: u32,
    world: UnsafeCell<*const World<S>>,
    backing: UnsafeCell<Option<S>>,
    /// Number of the pool in the process: tells this life of the core from the others.
    life: Counter,
    /// Handles of the pool.
    handles: AtomicUsize,
    /// Blocks in existence, caches with an owner, and one for all handles together.
    shares: AtomicUsize,
    /// 1 once the pool is closed.
    closed: AtomicU32,
    /// The trimmers' turn: the thread that trims, ages, audits, closes or makes room for a birth; 0 if
    /// none does.
    turn: AtomicU64,
    /// 1 once whoever has the turn has to close the pool at its end. Only that thread uses it.
    closes_late: Counter,
    /// Bytes.
    pub ledger: Ledger,
    /// Statistics.
    pub numbers: Numbers,
    /// Statistics of blocks that no magazine takes.
    pub unclassed: ClassNumbers,
    stores: [Store; CLASSES],
}

/// What a pool has of one class for all threads. Who goes to the depot counts, so both lie on the same
/// cache lines, and no other class does: each of them is a way to another core and back.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Store {
    depot: Depot,
    numbers: ClassNumbers,
}

impl Store {
    const_fn! {
        /// Nothing rests, nothing was counted.
        fn new() -> Store {
            Store { depot: Depot::new(), numbers: ClassNumbers::new() }
        }
    }
}

// SAFETY: `world` and `backing` are written before the first handle exists and after the last
// share is gone; the rest is atomic.
unsafe impl<S: Backing> Send for Core<S> {}
// SAFETY: as above.
unsafe impl<S: Backing> Sync for Core<S> {}

impl<S: Backing> fmt::Debug for Core<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Core({})", self.index)
    }
}

impl<S: Backing> Cell for Core<S> {
    const PER_SLAB: usize = S::CORES_PER_SLAB;

    fn new(index: u32) -> Self {
        Self {
            index,
            world: UnsafeCell::new(ptr::null()),
            backing: UnsafeCell::new(None),
            life: Counter::new(),
            handles: AtomicUsize::new(0),
            shares: AtomicUsize::new(0),
            closed: AtomicU32::new(1),
            turn: AtomicU64::new(0),
            closes_late: Counter::new(),
            ledger: Ledger::new(),
            numbers: Numbers::default(),
            unclassed: ClassNumbers::new(),
            stores: array![Store::new(); CLASSES],
        }
    }
}

/// Life and death.
impl<S: Backing> Core<S> {
    /// Opens a pool with one handle.
    ///
    /// # Safety
    /// The world outlives every handle and block of the pool.
    pub unsafe fn open(world: &World<S>, backing: S) -> Result<&Self, Exhausted> {
        let (_, core) = world.cores.claim()?;
        // Written in the first life only: later ones have the same world, and a thread that gave a
        // block in an earlier life may still be reading it.
        // SAFETY: only the opener writes, and nobody else can have opened this core.
        if core.world.with(|place| unsafe { *place }.is_null()) {
            // SAFETY: as above; in the first life nobody reads it yet.
            core.world.with_mut(|place| unsafe { *place = world });
        }
        core.backing.with_mut(|place| {
            // SAFETY: a claimed core has neither handles nor blocks: nobody reads this.
            unsafe { *place = Some(backing) };
        });
        core.closes_late.replace(0);
        core.life.replace(world.lives.tick(1) + 1);
        core.ledger.reset();
        core.numbers.reset();
        (0..=CLASSES).for_each(|class| core.numbers_of(class).reset());
        // Ordering: Relaxed - published by the swaps below.
        core.shares.swap(1, Ordering::Relaxed);
        // Ordering: Release - E10, with `is_closed`: whoever sees the pool open sees it built.
        core.closed.swap(0, Ordering::Release);
        // Ordering: Release - E10, with `upgrade`: whoever gets a handle sees the pool built.
        core.handles.swap(1, Ordering::Release);
        Ok(core)
    }

    /// Index of the pool: the core's own in its arena.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Number of the pool in the process, from 1.
    pub fn life(&self) -> u64 {
        self.life.get()
    }

    /// The world of the pool.
    pub fn world(&self) -> &World<S> {
        // SAFETY: written before the first handle, and the same in every life of the core.
        let world = self.world.with(|world| unsafe { *world });
        // SAFETY: the world outlives every handle and block of the pool.
        unsafe { &*world }
    }

    /// The caches that threads have, or had, for pools of this index.
    pub(super) fn caches(&self) -> impl Iterator<Item = &Cache<S>> {
        let slots = self.world().slots.iter();
        slots.filter_map(|slot| slot.cache(self.index))
    }

    /// What the pool is bound to.
    ///
    /// # Safety
    /// The caller holds a handle or a block of the pool for as long as it uses the result.
    pub unsafe fn backing(&self) -> &S {
        self.backing.with(|backing| {
            // SAFETY: written before the first handle, taken after the last share.
            let backing = unsafe { &*backing };
            backing
                .as_ref()
                .expect("a pool with handles or blocks has its backing")
        })
    }

    /// One handle more, by the owner of one.
    pub fn add_handle(&self) {
        // Ordering: Relaxed - the new handle is handed over by the old one's owner.
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// One handle fewer; the last one closes the pool. `own`: the calling thread's cache.
    ///
    /// # Safety
    /// The caller owned a handle and does not use it again.
    pub unsafe fn drop_handle(&self, own: Option<&Cache<S>>) {
        // Ordering: Release - E11, with the last drop: what this handle did to the pool is done.
        if self.handles.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        before_fence!(self.handles);
        // Ordering: Acquire - E11, with every earlier drop of a handle.
        fence(Ordering::Acquire);
        // SAFETY: the share of all handles together is still there.
        unsafe { self.close(own) };
        // SAFETY: given up here, once, by the last handle.
        unsafe { self.drop_share() };
    }

    /// A handle for somebody who has none, if the pool of that life is still open. Wait-free but
    /// for other handles that come and go.
    pub fn upgrade(&self, life: u64) -> bool {
        // Ordering: Relaxed - the CAS decides.
        let mut handles = self.handles.load(Ordering::Relaxed);
        while handles > 0 {
            // Ordering: Acquire - E10, with `open`: the pool that the handles are of is built.
            match self.handles.compare_exchange_weak(
                handles,
                handles + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) if self.life() == life => return true,
                Ok(_) => {
                    // SAFETY: the handle just added; it is of another pool.
                    unsafe { self.drop_handle(None) };
                    return false;
                }
                Err(now) => handles = now,
            }
        }
        false
    }

    /// Whether the pool is closed: nothing rests in it any more, what comes home dies.
    pub fn is_closed(&self) -> bool {
        // Ordering: Acquire - E10, with `close` and `open`.
        self.closed.load(Ordering::Acquire) != 0
    }

    /// After a push: if the pool has closed in the meantime, what lies in the depot goes. The
    /// pushed block may be gone, and with it this life of the core, whose cell stays.
    pub(super) fn settle(&self, class: usize) {
        if self.has_closed() {
            self.drain_depot(class);
        }
    }

    /// Whether the pool has closed, after the caller has put something where the closer looks for
    /// it. That may be gone, and with it this life of the core.
    pub fn has_closed(&self) -> bool {
        // Ordering: SeqCst - E13, with `close`: either this sees the pool closed, or the closer
        // sees what was put in.
        fence(Ordering::SeqCst);
        // Ordering: Relaxed - ordered by the fence.
        self.closed.load(Ordering::Relaxed) != 0
    }

    /// One share more, for a cache that gets an owner.
    pub(super) fn add_share(&self) {
        // Ordering: Relaxed - the caller holds a share or a handle, so the count is above 0.
        self.shares.fetch_add(1, Ordering::Relaxed);
    }

    /// One share fewer; the last one ends this life of the core.
    ///
    /// # Safety
    /// The caller gives up a share that it owned, and touches the core's backing no more.
    pub(super) unsafe fn drop_share(&self) {
        // Ordering: Release - E12, with the last drop: the block's memory is gone before the source.
        if self.shares.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        before_fence!(self.shares);
        // Ordering: Acquire - E12, with every earlier drop of a share.
        fence(Ordering::Acquire);
        let world = self.world();
        let backing = self.backing.with_mut(|backing| {
            // SAFETY: without handles and blocks nobody else reads the backing.
            unsafe { (*backing).take() }
        });
        if let Some(backing) = backing {
            backing.end();
        }
        world.cores.release(self.index);
    }

    /// Closes the pool: empties every tier, and what comes home from now on goes to its source. Called
    /// by a source or a subscriber that a trimmer has called, that happens at the end of its turn.
    ///
    /// # Safety
    /// The caller holds a handle of the pool, or the share of all of them.
    pub unsafe fn close(&self, own: Option<&Cache<S>>) {
        // Ordering: AcqRel - E10, with `is_closed`.
        if self.closed.swap(1, Ordering::AcqRel) != 0 {
            return;
        }
        // Ordering: SeqCst - E13, with `has_closed` and `register`: either they see the pool closed,
        // or the walk below sees what they have put in.
        fence(Ordering::SeqCst);
        if self.in_turn(own, || self.close_tiers(own)).is_none() {
            self.closes_late.replace(1);
        }
    }

    /// Empties every tier of the closed pool, for good. The turn is the caller's.
    fn close_tiers(&self, own: Option<&Cache<S>>) {
        for cache in self.caches() {
            let is_own = own.is_some_and(|own| ptr::eq(own, cache));
            // SAFETY: a cache that is marked by this pool's closer is bound to this pool.
            unsafe { self.close_cache(cache, is_own) };
        }
        self.drain_depots();
        // SAFETY: who has the turn holds a handle, a block, or the share of all handles.
        unsafe { self.backing() }.closed();
    }

    /// # Safety
    /// As [`close`](Self::close); `cache` is a slot's cache for this pool's index.
    unsafe fn close_cache(&self, cache: &Cache<S>, is_own: bool) {
        let fate = cache.bias.close(is_own);
        if fate == Steal::Taken {
            // SAFETY: the lock has given the cache to us.
            unsafe { self.kill_cache(cache) };
            // Before the share goes: the next life of the core may adopt the cache.
            let _ = cache.bias.restore();
            // SAFETY: the cache's share, given up once, by who emptied it.
            unsafe { self.drop_share() };
        }
    }

    /// Runs `f` in the trimmers' turn: trimmers and closers of one pool serialise, and this waits for
    /// whoever has it. `None` if that is the calling thread: what a trimmer has called, a source or
    /// a subscriber, came back. `own`: the calling thread's cache.
    pub(super) fn in_turn<R>(&self, own: Option<&Cache<S>>, f: impl FnOnce() -> R) -> Option<R> {
        self.take_turn().then(|| self.use_turn(own, f))
    }

    /// The same, but `None` also if any other thread has the turn.
    pub(super) fn try_in_turn<R>(
        &self,
        own: Option<&Cache<S>>,
        f: impl FnOnce() -> R,
    ) -> Option<R> {
        self.try_turn().then(|| self.use_turn(own, f))
    }

    /// Runs `f` with the turn, does what was left to its end, and ends it.
    fn use_turn<R>(&self, own: Option<&Cache<S>>, f: impl FnOnce() -> R) -> R {
        let result = f();
        if self.closes_late.replace(0) != 0 {
            self.close_tiers(own);
        }
        self.end_turn();
        result
    }

    /// Whether the calling thread has the turn.
    pub fn has_turn(&self) -> bool {
        // Ordering: Relaxed - only the caller writes its own name.
        self.turn.load(Ordering::Relaxed) == this_thread()
    }

    /// Takes the turn, once nobody else has it. `false` if the caller has it already.
    fn take_turn(&self) -> bool {
        if self.has_turn() {
            return false;
        }
        let mut looks = 0;
        while !self.try_turn() {
            pause(looks);
            looks = looks.saturating_add(1);
        }
        true
    }

    /// Takes the turn if nobody has it.
    fn try_turn(&self) -> bool {
        // Ordering: Acquire - E14, with `end_turn`: the last trimmer's work.
        self.turn
            .compare_exchange(0, this_thread(), Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Ends the turn.
    pub(super) fn end_turn(&self) {
        // Ordering: Release - E14, with `try_turn`: this trimmer's work.
        self.turn.swap(0, Ordering::Release);
    }
}

/// Classes and their statistics.
impl<S: Backing> Core<S> {
    /// The depot of a class.
    pub(super) fn depot(&self, class: usize) -> &Depot {
        &self.stores[class].depot
    }

    /// Blocks resting in the depot, by class.
    pub fn depot_estimate(&self, class: usize) -> u64 {
        self.depot(class).resting_estimate()
    }

    /// The numbers of a class, or of what has none.
    pub fn numbers_of(&self, class: usize) -> &ClassNumbers {
        let store = self.stores.get(class);
        store.map_or(&self.unclassed, |store| &store.numbers)
    }

    /// Takes and gives of `class`, all threads together, past ones included; births are takes too.
    /// Exact when the pool is quiet.
    pub fn traffic(&self, class: usize) -> (u64, u64) {
        let numbers = self.numbers_of(class);
        let mut sum = (
            numbers.takes.get() + numbers.births.get(),
            numbers.gives.get(),
        );
        if class < CLASSES {
            for cache in self.caches().filter(|cache| cache.life() == self.life()) {
                let (takes, gives) = cache.tallies(class);
                sum = (sum.0 + takes, sum.1 + gives);
            }
        }
        sum
    }
}

/// Births and deaths.
impl<S: Backing> Core<S> {
    /// A block with the memory that `make` gets from the source; its charge is reserved already.
    /// Nothing is left behind by a failure, the reservation excepted, which stays the caller's.
    ///
    /// # Safety
    /// The caller holds a handle of the pool, or a block of it.
    pub unsafe fn birth<E>(
        &self,
        label: Label,
        make: impl FnOnce() -> Result<S::Payload, E>,
    ) -> Result<&Block<S>, BirthError<E>> {
        let world = self.world();
        let (index, block) = world.blocks.claim().map_err(|_| BirthError::NoBlock)?;
        let payload = make().map_err(|error| {
            world.blocks.release(index);
            BirthError::NoMemory(error)
        })?;
        self.add_share();
        // SAFETY: the caller holds a handle or a block.
        let backing = unsafe { self.backing() };
        let bytes = backing.charge(label, &payload);
        // SAFETY: just claimed.
        unsafe { block.fill(label, self, payload) };
        let class = label.class;
        backing.note(Note::Birth { class, bytes });
        self.numbers.births.add(1);
        self.numbers_of(label.class.into()).births.add(1);
        Ok(block)
    }

    /// Payload to its source, control block to the arena, share last.
    ///
    /// # Safety
    /// The block is of this pool and the caller's alone; the caller touches neither again.
    pub unsafe fn death(&self, block: &Block<S>) -> usize {
        // SAFETY: the caller's block keeps the pool's core alive.
        let backing = unsafe { self.backing() };
        // SAFETY: the caller's block.
        let label = unsafe { block.label() };
        // SAFETY: the caller's block.
        let charge = unsafe { block.payload(|payload| backing.charge(label, payload)) };
        // SAFETY: the caller's block.
        unsafe { block.payload(|payload| backing.dealloc(label, payload)) };
        self.ledger.discharge(charge);
        backing.note(Note::Death {
            class: label.class,
            bytes: charge,
        });
        self.numbers.deaths.add(1);
        self.numbers_of(label.class.into()).deaths.add(1);
        if block.state.load().generation() >= super::tuning::LAST_GENERATION {
            self.numbers.retired.add(1);
        } else {
            self.world().blocks.release(block.index());
        }
        // SAFETY: the block's share, given up once.
        unsafe { self.drop_share() };
        charge
    }

    /// Moves the memory of a block at its last generation to a fresh control block; the old one
    /// retires for good. `None` if there is no fresh one: the block is unchanged.
    ///
    /// # Safety
    /// The block is of this pool and the caller's alone.
    pub unsafe fn renew(&self, block: &Block<S>) -> Option<&Block<S>> {
        let (_, fresh) = self.world().blocks.claim().ok()?;
        // SAFETY: the caller's block.
        let label = unsafe { block.label() };
        let read = |payload: &S::Payload| {
            // SAFETY: a valid payload; what is read is not used there again.
            unsafe { ptr::read(payload) }
        };
        // SAFETY: the caller's block.
        let payload = unsafe { block.payload(read) };
        // SAFETY: just claimed. The pool's share moves along.
        unsafe { fresh.fill(label, self, payload) };
        self.numbers.retired.add(1);
        Some(fresh)
    }
}

/// A birth that came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BirthError<E> {
    /// No control block is left.
    NoBlock,
    /// The source failed.
    NoMemory(E),
}
