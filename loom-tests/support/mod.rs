//! A pool for the models: the kernel's own, bound to a stand-in source whose memory is a witness.

#![allow(unsafe_code, dead_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ndpool::loom_model::Witness;
use ndpool::loom_model::kernel::backing::{Backing, Note};
use ndpool::loom_model::kernel::block::{Block, Label};
use ndpool::loom_model::kernel::cache::{Cache, Class};
use ndpool::loom_model::kernel::core::{Core, World};
use ndpool::loom_model::kernel::ledger::Policy;
use ndpool::loom_model::kernel::slots::Slot;
use ndpool::loom_model::kernel::state::Released;
use ndpool::loom_model::kernel::tiers;
use ndpool::loom_model::sync::AtomicU32;
use ndpool::loom_model::tuning::MAGAZINE_ROUNDS;

/// What the stand-in source has seen. Plain std atomics: loom is not to order anything by them.
#[derive(Debug, Default)]
pub struct Log {
    pub allocs: AtomicUsize,
    pub deallocs: AtomicUsize,
    /// Backings dropped: lives of pools that ended.
    pub ends: AtomicUsize,
}

impl Log {
    pub fn allocs(&self) -> usize {
        self.allocs.load(Ordering::Relaxed)
    }

    pub fn deallocs(&self) -> usize {
        self.deallocs.load(Ordering::Relaxed)
    }

    pub fn ends(&self) -> usize {
        self.ends.load(Ordering::Relaxed)
    }
}

/// The stand-in: blocks of 1 byte in one class.
pub struct Stand {
    policy: Policy,
    /// Read by whoever uses the source, written when it is dropped.
    alive: Witness,
    rounds: u32,
    berths: u32,
    budget: usize,
    /// Written by whoever evicts.
    evictor: Option<Witness>,
    log: Arc<Log>,
}

impl Stand {
    /// `cap`: blocks that may rest in the depot; `rounds`: of a magazine, 0 without magazines.
    pub fn new(log: &Arc<Log>, cap: usize, rounds: u32) -> Self {
        assert!(rounds as usize <= MAGAZINE_ROUNDS);
        Self {
            policy: Policy {
                slack: 1024,
                window: 1000,
                floor: 0,
                cap,
                limit: 100,
            },
            alive: Witness::new(1),
            rounds,
            berths: 0,
            budget: 100,
            evictor: None,
            log: Arc::clone(log),
        }
    }

    /// The same with `berths` for one cache, of which a block has room in half of `budget` or not.
    #[must_use]
    pub fn with_berths(mut self, berths: u32, budget: usize) -> Self {
        self.berths = berths;
        self.budget = budget;
        self
    }

    /// The same, and every eviction has to be the only one at its time.
    #[must_use]
    pub fn evicting_in_turn(mut self) -> Self {
        self.evictor = Some(Witness::new(0));
        self
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.alive.free();
        self.log.ends.fetch_add(1, Ordering::Relaxed);
    }
}

impl Backing for Stand {
    type Payload = Option<Arc<Witness>>;
    const NO_PAYLOAD: Self::Payload = None;
    const BLOCKS_PER_SLAB: usize = 4;
    const MAGAZINES_PER_SLAB: usize = 4;
    const CACHES_PER_SLAB: usize = 2;
    const SLOTS_PER_SLAB: usize = 2;
    const CORES_PER_SLAB: usize = 1;

    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn class_charge(&self, _class: usize) -> usize {
        1
    }

    fn charge(&self, _label: Label, _payload: &Self::Payload) -> usize {
        1
    }

    fn rounds(&self, _class: usize) -> u32 {
        self.rounds
    }

    fn budget(&self) -> usize {
        self.budget
    }

    fn berths(&self) -> u32 {
        self.berths
    }

    fn note(&self, note: Note) {
        if let (Note::Evict { .. }, Some(evictor)) = (note, &self.evictor) {
            evictor.write(1);
        }
    }

    fn dealloc(&self, _label: Label, payload: &Self::Payload) {
        self.alive.read();
        payload.as_ref().expect("a block has a payload").free();
        self.log.deallocs.fetch_add(1, Ordering::Relaxed);
    }
}

const LABEL: Label = Label {
    class: 0,
    align: 0,
    kind: 0,
    flags: 0,
};

pub type StandWorld = World<Stand>;
pub type StandCore = Core<Stand>;
pub type StandBlock = Block<Stand>;

/// A world, leaked to its model's execution: freed by [`Universe::drop`] of the last `Arc`.
pub struct Universe {
    pub world: StandWorld,
    pub log: Arc<Log>,
    gate: AtomicU32,
}

impl Universe {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            world: World::new(),
            log: Arc::default(),
            gate: AtomicU32::new(0),
        })
    }

    /// Makes loom try each order of the threads that pass: it does not see what the kernel's counters
    /// decide, and would take a thread that they turn away for one that does nothing.
    pub fn pass_gate(&self) {
        self.gate.fetch_add(1, Ordering::Relaxed);
    }

    /// Opens a pool with one handle. See [`Stand::new`].
    pub fn open(&self, cap: usize, rounds: u32) -> &StandCore {
        self.open_with(Stand::new(&self.log, cap, rounds))
    }

    /// Opens a pool with one handle, bound to `stand`.
    pub fn open_with(&self, stand: Stand) -> &StandCore {
        // SAFETY: models keep the universe until every thread of theirs has ended.
        let core = unsafe { Core::open(&self.world, stand) };
        core.expect("the model has room for a pool")
    }

    /// The pool at `index`.
    pub fn core(&self, index: u32) -> &StandCore {
        self.world.cores.at(index)
    }

    /// The block at `index`.
    pub fn block(&self, index: u32) -> &StandBlock {
        self.world.blocks.at(index)
    }

    /// A thread arrives.
    pub fn arrive(&self) -> Thread<'_> {
        let slot = tiers::arrive(&self.world).expect("the model has room for a thread");
        Thread {
            universe: self,
            slot: Some(slot),
        }
    }

    /// A thread arrives, and registers with `core`.
    pub fn arrive_at(&self, core: &StandCore) -> Thread<'_> {
        let thread = self.arrive();
        thread.cache(core).expect("an open pool registers a thread");
        thread
    }

    /// A thread arrives whose cache of `core` keeps a block; its slot.
    pub fn arrive_keeping(&self, core: &StandCore) -> u32 {
        let thread = self.arrive();
        let (block, _) = thread.take(core);
        thread.give(block);
        thread.slot_index()
    }

    /// Nothing is left: every payload freed once, and `pools` lives ended.
    pub fn assert_all_gone(&self, pools: usize) {
        assert_eq!(
            self.log.allocs(),
            self.log.deallocs(),
            "a block is left behind in a closed pool"
        );
        assert_eq!(
            self.log.ends(),
            pools,
            "a pool lives on without handles and blocks"
        );
    }

    /// A thread that has arrived before, and goes on.
    pub fn resume(&self, slot: u32) -> Thread<'_> {
        Thread {
            universe: self,
            slot: Some(self.world.slots.at(slot)),
        }
    }

    /// A thread that never registers.
    pub fn pass_by(&self) -> Thread<'_> {
        Thread {
            universe: self,
            slot: None,
        }
    }
}

/// Where a block came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Cache,
    Tiers,
    Source,
}

/// A thread that works with pools, as the binding of the product does.
pub struct Thread<'a> {
    universe: &'a Universe,
    slot: Option<&'a Slot<Stand>>,
}

impl<'a> Thread<'a> {
    /// The thread's slot, by which it can be resumed.
    pub fn slot_index(&self) -> u32 {
        self.slot.expect("a registered thread").index()
    }

    /// The thread's cache of `core`, which it holds a handle or a block of.
    fn cache(&self, core: &StandCore) -> Option<&'a Cache<Stand>> {
        // SAFETY: the slot is this thread's until `exit`; callers hold a handle or a block.
        unsafe { core.register(self.slot?) }
    }

    /// Takes a block, and writes to its payload as its only owner. The caller holds a handle.
    pub fn take(&self, core: &'a StandCore) -> (&'a StandBlock, From) {
        let cache = self.cache(core);
        let (block, from) = self.take_by(core, cache);
        if from != From::Cache
            && let Some(cache) = cache
        {
            cache.credit(0);
        }
        // SAFETY: the block is ours.
        unsafe { block.payload(|payload| payload.as_ref().unwrap().write(7)) };
        (block, from)
    }

    fn take_by(
        &self,
        core: &'a StandCore,
        cache: Option<&'a Cache<Stand>>,
    ) -> (&'a StandBlock, From) {
        if let Some(block) = cache.and_then(|cache| cache.pop(Class::new(0))) {
            // SAFETY: blocks are arena cells, and the universe is still there.
            return (unsafe { block.as_ref() }, From::Cache);
        }
        // SAFETY: the caller holds a handle; the cache is this thread's, bound to the pool.
        if let Some(block) = unsafe { core.take_slow(cache, 0) } {
            return (block, From::Tiers);
        }
        // SAFETY: the caller holds a handle.
        let policy = *unsafe { core.backing() }.policy();
        core.ledger
            .admit_bare(1, &policy)
            .expect("the model stays within its limit");
        let make = || Ok::<_, ()>(Some(Arc::new(Witness::new(0))));
        // SAFETY: the caller holds a handle, and the byte is charged.
        let born = unsafe { core.birth(LABEL, make) };
        let born = born.expect("the model has room for a block");
        core.ledger.born(1, &policy);
        self.universe.log.allocs.fetch_add(1, Ordering::Relaxed);
        (born, From::Source)
    }

    /// Gives a block back that is the caller's, after a last look at its payload.
    pub fn give(&self, block: &StandBlock) {
        // SAFETY: the block is ours.
        unsafe { block.payload(|payload| payload.as_ref().unwrap().read()) };
        // SAFETY: the block is ours.
        let core = unsafe { block.core() };
        // SAFETY: cores are arena cells, and the block keeps this one alive.
        let core = unsafe { &*core };
        let cache = self.cache(core);
        // SAFETY: the block is ours, of the cache's pool and class.
        if cache.is_some_and(|cache| unsafe { cache.push(Class::new(0), block) }) {
            return;
        }
        // SAFETY: the block is ours; the cache is this thread's, bound to the pool.
        unsafe { core.give_slow(cache, block) };
    }

    /// This thread's cache of `core`, if there is one: looked up, never adopted.
    fn existing_cache(&self, core: &StandCore) -> Option<&'a Cache<Stand>> {
        self.slot?.cache(core.index())
    }

    /// Drops a handle of `core` that is the caller's.
    pub fn drop_handle(&self, core: &StandCore) {
        let own = self.existing_cache(core);
        // SAFETY: the caller's handle, not used again.
        unsafe { core.drop_handle(own) };
    }

    /// Trims `core`, which the caller holds a handle of.
    pub fn trim(&self, core: &StandCore) -> usize {
        let own = self.existing_cache(core);
        // SAFETY: the caller holds a handle.
        unsafe { core.trim(own) }
    }

    /// Audits `core`, which the caller holds a handle of: how many blocks lie in the depot, `None` if
    /// something does not add up, as it may while others are at work.
    pub fn audit(&self, core: &StandCore) -> Option<u64> {
        let own = self.existing_cache(core);
        // SAFETY: the caller holds a handle.
        let places = unsafe { core.audit(own) };
        places.ok().map(|places| places.depot)
    }

    /// Closes `core`, which the caller holds a handle of.
    pub fn close(&self, core: &StandCore) {
        let own = self.existing_cache(core);
        // SAFETY: the caller holds a handle.
        unsafe { core.close(own) };
    }

    /// Makes room for a birth in `core`, which the caller holds a handle of, by one step.
    pub fn make_room(&self, core: &StandCore) -> bool {
        let own = self.existing_cache(core);
        core.with_room(own, |make_room| make_room())
    }

    /// Looks at what the pool is bound to. The caller holds a handle.
    pub fn look(&self, core: &StandCore) {
        // SAFETY: the caller holds a handle.
        unsafe { core.backing() }.alive.read();
    }

    /// Ends an interval of `core`, which the caller holds a handle of.
    pub fn age(&self, core: &StandCore) -> usize {
        let own = self.existing_cache(core);
        // SAFETY: the caller holds a handle.
        unsafe { core.age(own) }.unwrap_or(0)
    }

    /// Releases a share of a block that is the caller's; says whether it was the last, and then
    /// kills the block, whose generation is the last one.
    pub fn release_and_retire(&self, block: &StandBlock) -> bool {
        let last = block.state.release() != Released::Shared;
        if last {
            // SAFETY: the last owner has claimed the block.
            let core = unsafe { block.core() };
            // SAFETY: cores are arena cells, and the block keeps this one alive.
            let core = unsafe { &*core };
            // SAFETY: the claimed block, given up.
            unsafe { core.death(block) };
        }
        last
    }

    /// Takes a block of `core`, gives it back, and ends: where the block came from.
    pub fn work_and_exit(self, core: &'a StandCore) -> From {
        let (block, from) = self.take(core);
        self.give(block);
        self.exit();
        from
    }

    /// The thread ends.
    pub fn exit(self) {
        if let Some(slot) = self.slot {
            // SAFETY: the slot is this thread's, which is used up.
            unsafe { tiers::exit(&self.universe.world, slot) };
        }
    }
}
