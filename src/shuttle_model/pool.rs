//! The whole kernel bound to stand-ins for memory, and a thread's seat at it: the same steps as
//! `crate::thread`, `crate::tiers` and `crate::block` take in the product.
//!
//! Each piece of memory carries a stamp: [`RESTING`], or the number that its owner wrote. Whoever
//! takes a block must find it resting, whoever owns it must find its own number, and the source
//! must get it back resting, once.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::kernel::backing::{Backing, Note};
use super::kernel::block::{Block, Label};
use super::kernel::cache::{Cache, Class};
use super::kernel::core::{Core, World};
use super::kernel::ledger::Policy;
use super::kernel::reach::{CLOSED, DEAD};
use super::kernel::slots::Slot;
use super::kernel::state::Released;
use super::kernel::tiers;
use super::tuning::{LAST_GENERATION, SLABS};

/// Stamp of memory that belongs to no user.
pub const RESTING: u64 = 0;
/// Pools that one world has room for.
pub const POOLS: usize = 2 * SLABS;
/// The one class.
pub const CLASS: usize = 0;

/// What a control block says of its memory.
#[derive(Debug)]
pub struct Payload {
    /// Number of the piece of memory.
    pub piece: usize,
    /// Who owns it.
    pub stamp: u64,
}

/// Where the memory of every pool of a world comes from and goes to.
#[derive(Debug, Default)]
pub struct Memory {
    /// Whether piece `i` is out; never held across an operation that shuttle can switch at.
    pieces: Mutex<Vec<bool>>,
    stamps: AtomicU64,
    retired: AtomicU64,
    evicted: AtomicU64,
}

/// Locks what only orders the harness, whatever panicked in it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    fn alloc(&self, limit: usize) -> usize {
        let mut pieces = lock(&self.pieces);
        pieces.push(true);
        let out = pieces.iter().filter(|&&out| out).count();
        assert!(
            out <= limit * POOLS,
            "more memory is out than all limits allow"
        );
        pieces.len() - 1
    }

    fn dealloc(&self, payload: &Payload) {
        let was_out = core::mem::replace(&mut lock(&self.pieces)[payload.piece], false);
        assert!(was_out, "piece {} went back twice", payload.piece);
        assert_eq!(payload.stamp, RESTING, "memory went back under its owner");
    }

    /// Pieces that are out.
    pub fn out(&self) -> usize {
        lock(&self.pieces).iter().filter(|&&out| out).count()
    }

    /// A stamp that nobody else has.
    pub fn stamp(&self) -> u64 {
        // Ordering: Relaxed - the harness's own; shuttle runs one thread at a time.
        self.stamps.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Control blocks that retired.
    pub fn retired(&self) -> usize {
        // Ordering: Relaxed - as above.
        self.retired.load(Ordering::Relaxed) as usize
    }

    /// Blocks that left a depot for the source.
    pub fn evicted(&self) -> usize {
        // Ordering: Relaxed - as above.
        self.evicted.load(Ordering::Relaxed) as usize
    }
}

/// How the pools of a program are configured.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Rounds of a magazine, up to 2; 0 for blocks without magazines.
    pub rounds: u32,
    /// Berths of a cache for such blocks, beyond the budget; 0 sends them to the depot directly.
    pub berths: u32,
    /// Blocks that may rest in the depot.
    pub cap: usize,
    /// Blocks that may exist.
    pub limit: usize,
    /// Slack of the footprint promise, in 1024ths.
    pub slack: u64,
    /// Blocks that may exist whatever the promise is: a birth beyond it may wait for others.
    pub floor: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            rounds: 2,
            berths: 0,
            cap: usize::MAX,
            limit: usize::MAX / POOLS,
            slack: 1024,
            floor: 0,
        }
    }
}

/// What a pool's core is bound to.
#[derive(Debug)]
pub struct Model {
    memory: Arc<Memory>,
    rounds: u32,
    berths: u32,
    policy: Policy,
}

impl Model {
    /// A backing with its memory.
    pub fn new(setup: Setup, memory: Arc<Memory>) -> Self {
        Self {
            memory,
            rounds: setup.rounds,
            berths: setup.berths,
            policy: Policy {
                slack: setup.slack,
                window: 4,
                floor: setup.floor,
                cap: setup.cap,
                limit: setup.limit,
            },
        }
    }
}

impl Backing for Model {
    type Payload = Payload;
    const NO_PAYLOAD: Payload = Payload {
        piece: usize::MAX,
        stamp: RESTING,
    };
    const BLOCKS_PER_SLAB: usize = 8;
    const MAGAZINES_PER_SLAB: usize = 8;
    const CACHES_PER_SLAB: usize = 8;
    const SLOTS_PER_SLAB: usize = 4;
    const CORES_PER_SLAB: usize = POOLS / SLABS;

    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn class_charge(&self, _class: usize) -> usize {
        1
    }

    fn charge(&self, _label: Label, _payload: &Payload) -> usize {
        1
    }

    fn rounds(&self, _class: usize) -> u32 {
        self.rounds
    }

    fn budget(&self) -> usize {
        if self.rounds == 0 { 1 } else { usize::MAX }
    }

    fn berths(&self) -> u32 {
        self.berths
    }

    fn note(&self, note: Note) {
        if let Note::Evict { blocks, .. } = note {
            // Ordering: Relaxed - the harness's own.
            self.memory
                .evicted
                .fetch_add(u64::from(blocks), Ordering::Relaxed);
        }
    }

    fn dealloc(&self, _label: Label, payload: &Payload) {
        self.memory.dealloc(payload);
    }
}

/// A block whose memory bears the owner's stamp.
#[derive(Clone, Copy)]
pub struct Owned<'w> {
    pub block: &'w Block<Model>,
    pub stamp: u64,
}

impl Owned<'_> {
    /// Reads the stamp, as every owner may.
    ///
    /// # Safety
    /// The caller owns the block.
    pub unsafe fn verify(&self) {
        // SAFETY: the caller's block.
        let stamp = unsafe { self.block.payload(|payload| payload.stamp) };
        assert_eq!(stamp, self.stamp, "an owner found another's memory");
    }

    /// Writes the stamp `next`.
    ///
    /// # Safety
    /// The caller owns the block uniquely.
    unsafe fn restamp(&mut self, next: u64) {
        // SAFETY: the caller's block.
        let before = unsafe {
            self.block
                .payload_mut(|payload| core::mem::replace(&mut payload.stamp, next))
        };
        assert_eq!(before, self.stamp, "a unique owner found another's memory");
        self.stamp = next;
    }
}

/// A thread at the kernel: its slot, and its caches by pool.
pub struct Seat<'w> {
    world: &'w World<Model>,
    memory: Arc<Memory>,
    slot: Option<&'w Slot<Model>>,
    hot: [Option<&'w Cache<Model>>; POOLS],
}

impl<'w> Seat<'w> {
    pub fn new(world: &'w World<Model>, memory: &Arc<Memory>) -> Self {
        Self {
            world,
            memory: Arc::clone(memory),
            slot: None,
            hot: [None; POOLS],
        }
    }

    /// See `thread::cache`.
    ///
    /// # Safety
    /// The caller holds a handle or a block of the pool.
    unsafe fn cache(&mut self, core: &Core<Model>) -> Option<&'w Cache<Model>> {
        let slot = match self.slot {
            Some(slot) => slot,
            None => self.slot.insert(tiers::arrive(self.world)?),
        };
        let cache = match slot.cache(core.index()) {
            Some(cache) if cache.bias.request() & (CLOSED | DEAD) == 0 => cache,
            // SAFETY: the slot is this seat's, the pool is held by the caller.
            _ => unsafe { core.register(slot) }?,
        };
        self.hot[core.index() as usize] = Some(cache);
        Some(cache)
    }

    /// See `thread::existing_cache`.
    pub fn existing_cache(&self, core: &Core<Model>) -> Option<&'w Cache<Model>> {
        let cache = self.slot?.cache(core.index())?;
        (cache.bias.request() & DEAD == 0).then_some(cache)
    }

    fn pop(&self, core: &Core<Model>) -> Option<&'w Block<Model>> {
        let block = self.hot[core.index() as usize]?.pop(Class::new(CLASS))?;
        // SAFETY: blocks are cells of the world's arena.
        Some(unsafe { block.as_ref() })
    }

    /// Takes a block: hit, slow half, birth. `None` at the limit or without a control block.
    ///
    /// # Safety
    /// The caller holds a handle of the pool.
    pub unsafe fn take(&mut self, core: &'w Core<Model>) -> Option<Owned<'w>> {
        let block = match self.pop(core) {
            Some(block) => block,
            // SAFETY: the caller's promise.
            None => unsafe { self.take_slow(core) }?,
        };
        let mut owned = Owned {
            block,
            stamp: RESTING,
        };
        let stamp = self.memory.stamp();
        // SAFETY: just taken.
        unsafe { owned.restamp(stamp) };
        Some(owned)
    }

    /// See `tiers::take_slow`.
    ///
    /// # Safety
    /// As [`take`](Self::take).
    unsafe fn take_slow(&mut self, core: &'w Core<Model>) -> Option<&'w Block<Model>> {
        // SAFETY: the caller's promise.
        let cache = unsafe { self.cache(core) };
        // SAFETY: the caller's promise; the cache is this seat's, bound to the pool.
        let block = match unsafe { core.take_slow(cache, CLASS) } {
            Some(block) => block,
            // SAFETY: as above.
            None => unsafe { self.birth(core, cache) }?,
        };
        if let Some(cache) = cache {
            cache.credit(CLASS);
        }
        Some(block)
    }

    /// See `tiers::birth` and `tiers::admit`.
    ///
    /// # Safety
    /// As [`take`](Self::take).
    unsafe fn birth(
        &self,
        core: &'w Core<Model>,
        cache: Option<&'w Cache<Model>>,
    ) -> Option<&'w Block<Model>> {
        // SAFETY: the caller's promise.
        let backing = unsafe { core.backing() };
        while core.admit(1, cache).is_err() {
            // SAFETY: the caller's promise; the cache is this seat's.
            let freed = unsafe { core.trim(cache) };
            match core.ledger.admit_bare(1, &backing.policy) {
                Ok(()) => break,
                Err(_) if freed == 0 => return None,
                Err(_) => {}
            }
        }
        let held = core.ledger.held();
        assert!(held <= backing.policy.limit, "{held} held over the limit");
        let label = Label {
            class: CLASS as u8,
            align: 0,
            kind: 0,
            flags: 0,
        };
        let make = || {
            Ok::<_, ()>(Payload {
                piece: self.memory.alloc(backing.policy.limit),
                stamp: RESTING,
            })
        };
        // SAFETY: the caller's promise.
        let block = unsafe { core.birth(label, make) };
        match block {
            Ok(block) => {
                core.ledger.born(1, &backing.policy);
                Some(block)
            }
            Err(_) => {
                core.ledger.unborn(1);
                None
            }
        }
    }

    /// See `block::give`.
    ///
    /// # Safety
    /// The block is the caller's alone, and is given up.
    pub unsafe fn give(&mut self, mut owned: Owned<'w>) {
        // SAFETY: the caller's block.
        unsafe { owned.restamp(RESTING) };
        // SAFETY: the caller's block, at rest.
        unsafe { self.give_resting(owned.block) };
    }

    /// # Safety
    /// As [`give`](Self::give).
    unsafe fn give_resting(&mut self, block: &'w Block<Model>) {
        // SAFETY: the caller's block.
        let core = unsafe { block.core() };
        // SAFETY: cores are cells of the world's arena.
        let core = unsafe { &*core };
        if let Some(cache) = self.hot[core.index() as usize]
            // SAFETY: a cache that accepts is bound to the block's own pool.
            && unsafe { cache.push(Class::new(CLASS), block) }
        {
            return;
        }
        // SAFETY: the block keeps its pool alive.
        let cache = unsafe { self.cache(core) };
        // SAFETY: the caller's block, and this seat's cache of its pool.
        unsafe { core.give_slow(cache, block) };
    }

    /// One share fewer; the last one gives the block back. `true` if it was the last. See
    /// `block::release` and `block::give_last`.
    ///
    /// # Safety
    /// The caller owned a share and gives it up.
    pub unsafe fn release(&mut self, owned: Owned<'w>) -> bool {
        // SAFETY: the caller's share.
        unsafe { owned.verify() };
        let Released::Last { retire } = owned.block.state.release() else {
            return false;
        };
        // SAFETY: the last owner has claimed the block.
        unsafe { self.give_last(owned, retire) };
        true
    }

    /// Ends a generation of a block whatever its owners are, and gives the block back.
    ///
    /// # Safety
    /// The caller owned the only share, of this generation, and gives it up; no handle of it is out.
    pub unsafe fn force(&mut self, owned: Owned<'w>, generation: u32) {
        // SAFETY: the caller's share.
        unsafe { owned.verify() };
        let Ok(Released::Last { retire }) = owned.block.state.force_release(generation) else {
            panic!("a living generation is not released by force");
        };
        // SAFETY: who has released the block by force has claimed it.
        unsafe { self.give_last(owned, retire) };
    }

    /// Gives back a block whose generation has ended.
    ///
    /// # Safety
    /// The caller has claimed the block and gives it up.
    unsafe fn give_last(&mut self, mut owned: Owned<'w>, retire: bool) {
        if !retire {
            // SAFETY: the claimed block.
            unsafe { self.give(owned) };
            return;
        }
        // SAFETY: as above.
        unsafe { owned.restamp(RESTING) };
        // Ordering: Relaxed - the harness's own.
        self.memory.retired.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the claimed block.
        let core = unsafe { owned.block.core() };
        // SAFETY: cores are cells of the world's arena.
        let core = unsafe { &*core };
        // SAFETY: the claimed block.
        match unsafe { core.renew(owned.block) } {
            // SAFETY: the fresh block took over the memory and the pool's share.
            Some(fresh) => unsafe { self.give_resting(fresh) },
            None => {
                // SAFETY: the claimed block, given up.
                unsafe { core.death(owned.block) };
            }
        }
    }

    /// Shares a unique block; its handle's generation.
    ///
    /// # Safety
    /// The block is the caller's alone.
    pub unsafe fn share(&self, owned: Owned<'w>) -> u32 {
        let generation = owned.block.state.share();
        generation.expect("a unique block has a generation left")
    }

    /// Takes a shared block back as unique, and stamps it anew. See `SharedBuffer::try_unique`.
    ///
    /// # Safety
    /// The caller owns a share.
    pub unsafe fn try_unique(&self, owned: &mut Owned<'w>) -> bool {
        let state = &owned.block.state;
        let unique = state.load().generation() < LAST_GENERATION && state.try_unique();
        if unique {
            let stamp = self.memory.stamp();
            // SAFETY: the transition made the block the caller's alone.
            unsafe { owned.restamp(stamp) };
        }
        unique
    }

    /// The thread leaves: see `thread::Leaver`. It may come back with another slot.
    pub fn leave(&mut self) {
        self.hot = [None; POOLS];
        if let Some(slot) = self.slot.take() {
            // SAFETY: the seat held the slot and has forgotten it.
            unsafe { tiers::exit(self.world, slot) };
        }
    }
}
