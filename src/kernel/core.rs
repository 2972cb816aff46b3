//! A pool's core: shared by its handles and its blocks, from a block's birth to its death. Cores
//! are type-stable cells, so that whoever pushed a block into a depot may look afterwards whether
//! the pool has closed in the meantime, even if that was the pool's last block.

#![allow(unsafe_code)]

use core::ptr;

use super::arena::{Arena, Cell, Exhausted};
use super::block::{Block, Label};
use super::cache::Cache;
use super::depot::Depot;
use super::ledger::{Ledger, Policy};
use super::magazine::Magazine;
use super::slots::Slot;
use super::sync::{
    AtomicU32, AtomicUsize, Counter, Ordering, UnsafeCell, array, const_fn, fence, pause,
};
use super::tuning::CLASSES;

/// What the kernel is bound to: sources of memory and configuration in the product, stand-ins in
/// the models.
pub trait Backing: Sized + Send + Sync + 'static {
    /// What a control block says of its memory.
    type Payload: 'static;
    /// The payload of a block that was never used.
    const NO_PAYLOAD: Self::Payload;
    /// Control blocks of one slab.
    const BLOCKS_PER_SLAB: usize;
    /// Magazines of one slab.
    const MAGAZINES_PER_SLAB: usize;
    /// Caches of one slab.
    const CACHES_PER_SLAB: usize;
    /// Thread slots of one slab.
    const SLOTS_PER_SLAB: usize;
    /// Cores of one slab.
    const CORES_PER_SLAB: usize;

    /// Bytes, limits and slack.
    fn policy(&self) -> &Policy;
    /// Bytes that a block of `class` occupies.
    fn class_charge(&self, class: usize) -> usize;
    /// Bytes that this block occupies.
    fn charge(&self, label: Label, payload: &Self::Payload) -> usize;
    /// Rounds of a magazine of `class`; 0 if the class goes to the depot directly.
    fn rounds(&self, class: usize) -> u32;
    /// Bytes that the classes touched by one thread may keep in its cache.
    fn budget(&self) -> usize;
    /// Something begins to rest in a pool where nothing did.
    fn stirred(&self) {}
    /// Gives a payload back to its source. Does not unwind.
    fn dealloc(&self, label: Label, payload: &Self::Payload);
}

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

/// Counts that only statistics read.
#[derive(Debug, Default)]
pub struct Numbers {
    /// Blocks born.
    pub births: Counter,
    /// Blocks died.
    pub deaths: Counter,
    /// Magazines and single blocks that came out of the depot.
    pub exchanges_out: Counter,
    /// Magazines and single blocks that went into the depot.
    pub exchanges_in: Counter,
    /// Blocks that stopped at their last generation.
    pub retired: Counter,
    /// Trims, and the bytes they gave back.
    pub trims: Counter,
    /// Bytes that trims gave back.
    pub trimmed_bytes: Counter,
}

/// Takes and gives of one class that no cache counts.
#[derive(Debug, Default)]
pub struct ClassNumbers {
    /// Blocks taken.
    pub takes: Counter,
    /// Blocks given.
    pub gives: Counter,
    /// Blocks born in this class, dead ones included.
    pub births: Counter,
    /// Blocks of this class that died.
    pub deaths: Counter,
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
    /// 1 while somebody trims or closes.
    turn: AtomicU32,
    /// Bytes.
    pub ledger: Ledger,
    /// Statistics.
    pub numbers: Numbers,
    /// Statistics by class.
    pub class_numbers: [ClassNumbers; CLASSES],
    /// The same for blocks that no magazine takes.
    pub unclassed: ClassNumbers,
    depots: [Depot; CLASSES],
}

// SAFETY: `world` and `backing` are written before the first handle exists and after the last
// share is gone; the rest is atomic.
unsafe impl<S: Backing> Send for Core<S> {}
// SAFETY: as above.
unsafe impl<S: Backing> Sync for Core<S> {}

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
            turn: AtomicU32::new(0),
            ledger: Ledger::new(),
            numbers: Numbers::default(),
            class_numbers: array![ClassNumbers::new(); CLASSES],
            unclassed: ClassNumbers::new(),
            depots: array![Depot::new(); CLASSES],
        }
    }
}

impl ClassNumbers {
    const_fn! {
        /// All 0.
        pub fn new() -> ClassNumbers {
            ClassNumbers {
                takes: Counter::new(),
                gives: Counter::new(),
                births: Counter::new(),
                deaths: Counter::new(),
            }
        }
    }

    fn reset(&self) {
        for counter in [&self.takes, &self.gives, &self.births, &self.deaths] {
            counter.replace(0);
        }
    }
}

impl Numbers {
    fn reset(&self) {
        for counter in [
            &self.births,
            &self.deaths,
            &self.exchanges_out,
            &self.exchanges_in,
            &self.retired,
            &self.trims,
            &self.trimmed_bytes,
        ] {
            counter.replace(0);
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
        core.life.replace(world.lives.tick(1) + 1);
        core.ledger.reset();
        core.numbers.reset();
        core.class_numbers.iter().for_each(ClassNumbers::reset);
        core.unclassed.reset();
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

    /// One share fewer; the last one ends this life of the core.
    ///
    /// # Safety
    /// The caller gives up a share that it owned, and touches the core's backing no more.
    pub(super) unsafe fn drop_share(&self) {
        // Ordering: Release - E12, with the last drop: the block's memory is gone before the source.
        if self.shares.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // Ordering: Acquire - E12, with every earlier drop of a share.
        fence(Ordering::Acquire);
        let world = self.world();
        let backing = self.backing.with_mut(|backing| {
            // SAFETY: without handles and blocks nobody else reads the backing.
            unsafe { (*backing).take() }
        });
        drop(backing);
        world.cores.release(self.index);
    }

    /// Closes the pool: empties every tier, and what comes home from now on goes to its source.
    ///
    /// # Safety
    /// The caller holds a handle of the pool, or the share of all of them.
    pub unsafe fn close(&self, own: Option<&Cache<S>>) {
        // Ordering: AcqRel - E10, with `is_closed`.
        if self.closed.swap(1, Ordering::AcqRel) != 0 {
            return;
        }
        // Ordering: SeqCst - E13, with `settle` and `register`: either they see the pool closed,
        // or the walk below sees what they have put in.
        fence(Ordering::SeqCst);
        self.take_turn();
        for slot in self.world().slots.iter() {
            let Some(cache) = slot.cache(self.index) else {
                continue;
            };
            let is_own = own.is_some_and(|own| ptr::eq(own, cache));
            // SAFETY: a cache that is marked by this pool's closer is bound to this pool.
            unsafe { self.close_cache(cache, is_own) };
        }
        self.drain_depots();
        self.end_turn();
    }

    /// # Safety
    /// As [`close`](Self::close); `cache` is a slot's cache for this pool's index.
    unsafe fn close_cache(&self, cache: &Cache<S>, is_own: bool) {
        use super::reach::Steal;
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

    /// Takes the trimmers' turn; trimmers and closers of one pool serialise. May wait.
    pub(super) fn take_turn(&self) {
        // Ordering: Acquire - E14, with `end_turn`: the last trimmer's work.
        while self.turn.swap(1, Ordering::Acquire) != 0 {
            pause();
        }
    }

    /// Takes the turn if nobody has it.
    pub(super) fn try_turn(&self) -> bool {
        // Ordering: Acquire - E14, with `end_turn`: the last trimmer's work.
        self.turn.swap(1, Ordering::Acquire) == 0
    }

    /// Ends the turn.
    pub(super) fn end_turn(&self) {
        // Ordering: Release - E14, with `take_turn`: this trimmer's work.
        self.turn.swap(0, Ordering::Release);
    }
}

/// Statistics.
impl<S: Backing> Core<S> {
    /// The numbers of a class, or of what has none.
    pub fn numbers_of(&self, class: usize) -> &ClassNumbers {
        self.class_numbers.get(class).unwrap_or(&self.unclassed)
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
            for slot in self.world().slots.iter() {
                if let Some(cache) = slot.cache(self.index)
                    && cache.life() == self.life()
                {
                    let (takes, gives) = cache.tallies(class);
                    sum = (sum.0 + takes, sum.1 + gives);
                }
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
        // SAFETY: just claimed.
        unsafe { block.fill(label, self, payload) };
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

/// The depot's side of the tiers.
impl<S: Backing> Core<S> {
    /// Puts a magazine into the depot, or kills its rounds if the depot is at its cap. An empty
    /// one goes to the arena.
    ///
    /// # Safety
    /// The magazine and its rounds, of this class and pool, are the caller's; it gives them up.
    pub unsafe fn rest_magazine(&self, class: usize, magazine: &Magazine<S>) {
        let world = self.world();
        // SAFETY: the caller's magazine.
        let len = unsafe { magazine.len() };
        if len == 0 {
            world.magazines.release(magazine.index());
            return;
        }
        let fits = {
            // SAFETY: the magazine holds a block of the pool.
            let backing = unsafe { self.backing() };
            let bytes = backing.class_charge(class) * len as usize;
            self.rest(backing, bytes)
        };
        if !fits {
            // SAFETY: the caller's magazine.
            unsafe { self.kill_rounds(magazine) };
            return;
        }
        self.numbers.exchanges_in.add(1);
        // SAFETY: the caller's magazine.
        unsafe { self.depots[class].push_magazine(&world.magazines, magazine) };
        self.settle(class);
    }

    /// Puts a single block into the depot, or kills it if the depot is at its cap.
    ///
    /// # Safety
    /// The block, of this class and pool, is the caller's; it gives it up.
    pub unsafe fn rest_block(&self, class: usize, block: &Block<S>) {
        let fits = {
            // SAFETY: the block keeps the pool alive.
            let backing = unsafe { self.backing() };
            self.rest(backing, backing.class_charge(class))
        };
        if !fits {
            // SAFETY: the caller's block.
            unsafe { self.death(block) };
            return;
        }
        self.numbers.exchanges_in.add(1);
        // SAFETY: the caller's block.
        unsafe { self.depots[class].push_block(&self.world().blocks, block) };
        self.settle(class);
    }

    /// Charges bytes that come to rest in the depot, if the cap allows.
    fn rest(&self, backing: &S, bytes: usize) -> bool {
        let still = self.ledger.is_still();
        let fits = self.ledger.rest(bytes, backing.policy());
        if still && fits {
            backing.stirred();
        }
        fits
    }

    /// Charges room for `bytes` in a thread's cache, if the cap allows.
    pub(super) fn stock(&self, backing: &S, bytes: usize) -> bool {
        let still = self.ledger.is_still();
        let fits = self.ledger.stock(bytes, backing.policy());
        if still && fits {
            backing.stirred();
        }
        fits
    }

    /// After a push: if the pool has closed in the meantime, what lies in the depot goes. The
    /// pushed block may be gone, and with it this life of the core, whose cell stays.
    fn settle(&self, class: usize) {
        // Ordering: SeqCst - E13, with `close`: either this sees the pool closed, or the closer
        // sees what was pushed.
        fence(Ordering::SeqCst);
        // Ordering: Relaxed - ordered by the fence.
        if self.closed.load(Ordering::Relaxed) != 0 {
            self.drain_depot(class);
        }
    }

    /// Takes a magazine for a user out of the depot.
    ///
    /// # Safety
    /// The caller holds a handle or a block of the pool.
    pub unsafe fn wake_magazine(&self, class: usize) -> Option<&Magazine<S>> {
        let magazine = self.depots[class].pop_magazine(&self.world().magazines)?;
        // SAFETY: just popped: the caller's.
        let len = unsafe { magazine.len() };
        // SAFETY: the caller's promise.
        let backing = unsafe { self.backing() };
        let bytes = backing.class_charge(class) * len as usize;
        self.ledger.wake(bytes, backing.policy());
        self.depots[class].note_wake(self.ledger.ticks());
        self.numbers.exchanges_out.add(1);
        Some(magazine)
    }

    /// Takes a single block for a user out of the depot.
    ///
    /// # Safety
    /// The caller holds a handle or a block of the pool.
    pub unsafe fn wake_block(&self, class: usize) -> Option<&Block<S>> {
        let block = self.depots[class].pop_block(&self.world().blocks)?;
        // SAFETY: the caller's promise.
        let backing = unsafe { self.backing() };
        self.ledger
            .wake(backing.class_charge(class), backing.policy());
        self.depots[class].note_wake(self.ledger.ticks());
        self.numbers.exchanges_out.add(1);
        Some(block)
    }

    /// The depot of a class.
    pub(super) fn depot(&self, class: usize) -> &Depot {
        &self.depots[class]
    }

    /// Blocks resting in the depot, by class.
    pub fn depot_estimate(&self, class: usize) -> u64 {
        self.depots[class].resting_estimate()
    }

    /// Kills one magazine or block of `class` that rests in the depot; the bytes that went.
    pub fn evict(&self, class: usize) -> Option<usize> {
        if let Some(magazine) = self.depots[class].pop_magazine(&self.world().magazines) {
            // SAFETY: just popped: the caller's.
            let len = unsafe { magazine.len() };
            // SAFETY: its rounds keep the pool alive.
            let bytes = unsafe { self.rest_bytes(class, len) };
            self.ledger.unrest(bytes);
            // SAFETY: as above.
            return Some(unsafe { self.kill_rounds(magazine) });
        }
        let block = self.depots[class].pop_block(&self.world().blocks)?;
        // SAFETY: just popped: the caller's, and it keeps the pool alive.
        let bytes = unsafe { self.rest_bytes(class, 1) };
        self.ledger.unrest(bytes);
        // SAFETY: as above.
        Some(unsafe { self.death(block) })
    }

    /// # Safety
    /// The caller holds a handle or a block of the pool.
    unsafe fn rest_bytes(&self, class: usize, blocks: u32) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.backing() }.class_charge(class) * blocks as usize
    }

    /// Kills one magazine or block of the class where most bytes have rested for longest, measured
    /// as their product. `false` if nothing rests in the depot.
    pub fn evict_coldest(&self) -> bool {
        if self.ledger.resting() == 0 {
            return false;
        }
        let now = self.ledger.ticks();
        let victim = (0..CLASSES)
            .filter(|&class| self.depot_estimate(class) > 0)
            .max_by_key(|&class| {
                // SAFETY: what rests keeps the pool alive, and callers hold a handle or a block.
                let charge = unsafe { self.backing() }.class_charge(class);
                let bytes = u128::from(self.depot_estimate(class)) * charge as u128;
                bytes * (1 + u128::from(self.depots[class].idle(now)))
            });
        victim.is_some_and(|class| self.evict(class).is_some())
    }

    /// Kills everything of `class` that rests in the depot.
    fn drain_depot(&self, class: usize) -> usize {
        core::iter::from_fn(|| self.evict(class)).sum()
    }

    fn drain_depots(&self) -> usize {
        (0..CLASSES).map(|class| self.drain_depot(class)).sum()
    }

    /// Kills every round of a magazine and gives the magazine to the arena.
    ///
    /// # Safety
    /// The magazine and its rounds are the caller's; it gives them up.
    pub unsafe fn kill_rounds(&self, magazine: &Magazine<S>) -> usize {
        let world = self.world();
        let mut bytes = 0;
        // SAFETY: the caller's magazine.
        while let Some(block) = unsafe { magazine.pop() } {
            // SAFETY: a round is a block, and blocks are never unmapped.
            let block = unsafe { &*block };
            // SAFETY: the rounds are the caller's.
            bytes += unsafe { self.death(block) };
        }
        world.magazines.release(magazine.index());
        bytes
    }

    /// Kills everything in a cache.
    ///
    /// # Safety
    /// The caller has the cache to itself, and it is bound to this pool.
    pub unsafe fn kill_cache(&self, cache: &Cache<S>) -> usize {
        let mut bytes = 0;
        for class in 0..CLASSES {
            // SAFETY: the caller's promise.
            for magazine in unsafe { cache.empty(class) }.magazines {
                // SAFETY: magazines are arena cells, never unmapped.
                if let Some(magazine) = unsafe { magazine.as_ref() } {
                    // SAFETY: it came out of a cache that is the caller's.
                    bytes += unsafe { self.kill_rounds(magazine) };
                }
            }
        }
        // SAFETY: the caller's promise.
        self.ledger.unstock(unsafe { cache.discharge() });
        bytes
    }

    /// Moves everything in a cache to the depot.
    ///
    /// # Safety
    /// As [`kill_cache`](Self::kill_cache).
    pub unsafe fn flush_cache(&self, cache: &Cache<S>) {
        for class in 0..CLASSES {
            // SAFETY: the caller's promise.
            for magazine in unsafe { cache.empty(class) }.magazines {
                // SAFETY: magazines are arena cells, never unmapped.
                if let Some(magazine) = unsafe { magazine.as_ref() } {
                    // SAFETY: it came out of a cache that is the caller's.
                    unsafe { self.rest_magazine(class, magazine) };
                }
            }
        }
        // SAFETY: the caller's promise.
        self.ledger.unstock(unsafe { cache.discharge() });
    }

    /// Gives every resting block back to its source: the calling thread's, the other threads',
    /// the depot's. The bytes that went. Trimmers take turns; owners are never made to wait.
    ///
    /// # Safety
    /// The caller holds a handle of the pool.
    pub unsafe fn trim(&self, own: Option<&Cache<S>>) -> usize {
        use super::reach::Steal;
        self.take_turn();
        let mut bytes = own.map_or(0, |own| {
            // What an earlier trimmer left to this thread is answered by the same.
            let _answered = own.bias.accept_flush();
            self.kill_own(own)
        });
        for slot in self.world().slots.iter() {
            let Some(cache) = slot.cache(self.index) else {
                continue;
            };
            if own.is_some_and(|own| ptr::eq(own, cache)) {
                continue;
            }
            if cache.bias.steal() == Steal::Taken {
                // SAFETY: the lock has given the cache to us until `restore`.
                bytes += unsafe { self.kill_cache(cache) };
                self.restore_cache(cache);
            }
        }
        bytes += self.drain_depots();
        self.end_turn();
        self.numbers.trims.add(1);
        self.numbers.trimmed_bytes.add(bytes as u64);
        bytes
    }

    /// Trimmer: gives an emptied cache back to its owner, or retires it if that has exited.
    pub(super) fn restore_cache(&self, cache: &Cache<S>) {
        if !cache.bias.restore() {
            // SAFETY: the cache's share, left to us by its owner's exit.
            unsafe { self.drop_share() };
        }
    }

    /// One share more, for a cache that gets an owner.
    pub(super) fn add_share(&self) {
        // Ordering: Relaxed - the caller holds a share or a handle, so the count is above 0.
        self.shares.fetch_add(1, Ordering::Relaxed);
    }

    /// Owner: kills everything in its own cache, class by class inside the lock.
    pub fn kill_own(&self, own: &Cache<S>) -> usize {
        let mut bytes = 0;
        for class in 0..CLASSES {
            let Some(emptied) = own.empty_by_owner(class) else {
                return bytes;
            };
            for magazine in emptied.magazines {
                // SAFETY: magazines are arena cells, never unmapped.
                if let Some(magazine) = unsafe { magazine.as_ref() } {
                    // SAFETY: it came out of the caller's own cache.
                    bytes += unsafe { self.kill_rounds(magazine) };
                }
            }
        }
        self.ledger.unstock(own.discharge_by_owner());
        bytes
    }
}
