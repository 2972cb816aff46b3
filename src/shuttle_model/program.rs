//! Operation programs over the whole kernel: a list of operations a thread, run under a shuttle
//! scheduler, and an audit of every piece at the end.

#![allow(unsafe_code)]

use std::sync::{Arc, Mutex};

use shuttle::thread;

use super::kernel::arena::{Arena, Cell};
use super::kernel::backing::Backing;
use super::kernel::block::Block;
use super::kernel::cache::Cache;
use super::kernel::core::{Core, World};
use super::kernel::lease::{self, Content, Lease};
use super::kernel::magazine::Magazine;
use super::kernel::slots::Slot;
use super::pool::{CLASS, Memory, Model, Owned, POOLS, Seat, Setup, lock};
use super::tuning::{LEASES_PER_SLAB, OWNERS_LIMIT, SLABS};

/// Threads that a program has at most.
const THREADS: u32 = 3;

/// What a thread does. Numbers choose among what the thread, or the board, has; with nothing to
/// choose from an operation does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Takes a block and stamps it.
    Take,
    /// Gives a unique block back.
    Give(u8),
    /// Shares a unique block and publishes its handle.
    Share(u8),
    /// Adds an owner to a shared block, for whichever thread picks it up.
    Offer(u8),
    /// Picks up an owner that a thread has offered.
    Pick(u8),
    /// Releases a share.
    Release(u8),
    /// Shares a unique block and releases it by force; then publishes the handle, which is stale.
    Force(u8),
    /// Takes a shared block back as unique.
    Unique(u8),
    /// Upgrades a handle, of this life of its block or an earlier one.
    Upgrade(u8),
    /// Moves a share into a lease, and publishes its name.
    Lease(u8),
    /// Looks at a lease and makes a second one, as a clone of a token does.
    Renew(u8),
    /// Ends a lease, once or once too often.
    End(u8),
    /// Trims the pool.
    Trim,
    /// Ends an interval of ageing.
    Age,
    /// Audits the pool. Others are at work, so that what it finds means nothing.
    Audit,
    /// Leaves the thread slot; the next operation claims one again.
    Leave,
    /// Closes the pool.
    Close,
    /// Drops the pool's handle and opens another pool, if there is room.
    Reopen,
}

impl Op {
    /// The operation that two bytes name; frequent ones have more codes. `Force` and `Audit` have
    /// none, so that inputs found earlier keep their meaning.
    pub fn from_bytes(code: u8, with: u8) -> Self {
        match code % 25 {
            0..=4 => Self::Take,
            5..=8 => Self::Give(with),
            9 | 10 => Self::Share(with),
            11 => Self::Offer(with),
            12 => Self::Pick(with),
            13 | 14 => Self::Release(with),
            15 => Self::Unique(with),
            16 => Self::Upgrade(with),
            17 => Self::Lease(with),
            18 => Self::Renew(with),
            19 => Self::End(with),
            20 => Self::Trim,
            21 => Self::Leave,
            22 => Self::Close,
            23 => Self::Age,
            _ => Self::Reopen,
        }
    }
}

/// A name on the board: what its owner says it has.
#[derive(Clone, Copy)]
struct Name {
    index: u32,
    generation: u32,
    stamp: u64,
}

/// What threads leave for each other. Locked for a moment, never across the kernel's operations.
#[derive(Default)]
struct Board<'w> {
    offers: Vec<Owned<'w>>,
    handles: Vec<Name>,
    leases: Vec<u64>,
    leases_made: usize,
    leases_ended: usize,
}

/// Everything that the threads of a program share.
struct Stage<'w> {
    world: &'w World<Model>,
    leases: &'w Arena<Lease>,
    memory: &'w Arc<Memory>,
    board: Mutex<Board<'w>>,
    setup: Setup,
}

/// What happened in a run.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Control blocks that retired.
    pub retired: usize,
    /// Blocks that left a depot for the source.
    pub evicted: usize,
}

/// Runs one list of operations a thread over one pool to begin with; says what happened.
///
/// # Panics
/// If an owner finds memory that is not its own, or memory goes back twice or never, or a limit is
/// exceeded, or at the end any cell of any arena is missing.
pub fn run(setup: Setup, threads: &[Vec<Op>]) -> Counts {
    assert!(threads.len() <= THREADS as usize);
    let world = World::<Model>::new();
    let leases = Arena::<Lease>::new();
    let memory = Arc::new(Memory::default());
    let stage = Stage {
        world: &world,
        leases: &leases,
        memory: &memory,
        board: Mutex::default(),
        setup,
    };
    // SAFETY: the world outlives every seat.
    let core = unsafe { Core::open(&world, Model::new(setup, Arc::clone(&memory))) };
    let core = core.expect("the first pool has room");
    thread::scope(|scope| {
        for ops in threads {
            core.add_handle();
            let stage = &stage;
            scope.spawn(move || Player::new(stage, core).play(ops));
        }
    });
    stage.settle(core);
    stage.audit();
    Counts {
        retired: memory.retired(),
        evicted: memory.evicted(),
    }
}

/// Whether an owner more, of every thread at once, leaves the block mortal: programs account for
/// every piece, and a block at the limit of owners is leaked on purpose.
fn has_room(block: &Block<Model>) -> bool {
    block.state.load().owners() + THREADS < OWNERS_LIMIT
}

/// One thread of a program, and the handle of a pool that it holds.
struct Player<'s, 'w> {
    stage: &'s Stage<'w>,
    seat: Seat<'w>,
    core: &'w Core<Model>,
    unique: Vec<Owned<'w>>,
    shares: Vec<Owned<'w>>,
}

/// The element of `of` that `with` chooses.
fn choose<T>(of: &[T], with: u8) -> Option<usize> {
    usize::from(with).checked_rem(of.len())
}

fn draw<T>(from: &mut Vec<T>, with: u8) -> Option<T> {
    choose(from, with).map(|index| from.swap_remove(index))
}

impl<'s, 'w> Player<'s, 'w> {
    fn new(stage: &'s Stage<'w>, core: &'w Core<Model>) -> Self {
        Self {
            stage,
            seat: Seat::new(stage.world, stage.memory),
            core,
            unique: Vec::new(),
            shares: Vec::new(),
        }
    }

    /// Does everything, then gives everything back and leaves.
    fn play(mut self, ops: &[Op]) {
        for &op in ops {
            self.step(op);
        }
        self.clear();
        self.seat.leave();
        let own = self.seat.existing_cache(self.core);
        // SAFETY: the player's handle.
        unsafe { self.core.drop_handle(own) };
    }

    fn clear(&mut self) {
        while let Some(owned) = self.unique.pop() {
            // SAFETY: the player's block.
            unsafe { self.seat.give(owned) };
        }
        while let Some(share) = self.shares.pop() {
            // SAFETY: the player's share.
            unsafe { self.seat.release(share) };
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Take => {
                // SAFETY: the player holds a handle.
                let taken = unsafe { self.seat.take(self.core) };
                self.unique.extend(taken);
            }
            Op::Give(with) => {
                if let Some(owned) = draw(&mut self.unique, with) {
                    // SAFETY: the player's block.
                    unsafe { self.seat.give(owned) };
                }
            }
            Op::Share(with) => self.share(with),
            Op::Offer(with) => {
                if let Some(index) = choose(&self.shares, with) {
                    let share = self.shares[index];
                    if has_room(share.block) {
                        share.block.state.add();
                        self.board(|board| board.offers.push(share));
                    }
                }
            }
            Op::Pick(with) => {
                let picked = self.board(|board| draw(&mut board.offers, with));
                self.shares.extend(picked);
            }
            Op::Release(with) => {
                if let Some(share) = draw(&mut self.shares, with) {
                    // SAFETY: the player's share.
                    unsafe { self.seat.release(share) };
                }
            }
            Op::Force(with) => self.force(with),
            Op::Unique(with) => self.take_back(with),
            Op::Upgrade(with) => self.upgrade(with),
            Op::Lease(with) => {
                if let Some(share) = draw(&mut self.shares, with) {
                    self.lease(share);
                }
            }
            Op::Renew(with) => self.renew_lease(with),
            Op::End(with) => {
                if let Some(name) = self.lease_name(with) {
                    self.end_lease(name);
                }
            }
            Op::Trim => {
                let own = self.seat.existing_cache(self.core);
                // SAFETY: the player holds a handle.
                unsafe { self.core.trim(own) };
            }
            Op::Age => {
                let own = self.seat.existing_cache(self.core);
                // SAFETY: the player holds a handle.
                unsafe { self.core.age(own) };
            }
            Op::Audit => {
                let own = self.seat.existing_cache(self.core);
                // SAFETY: the player holds a handle.
                let _ = unsafe { self.core.audit(own) };
            }
            Op::Leave => self.seat.leave(),
            Op::Close => {
                let own = self.seat.existing_cache(self.core);
                // SAFETY: the player holds a handle.
                unsafe { self.core.close(own) };
            }
            Op::Reopen => self.reopen(),
        }
    }

    fn board<R>(&self, f: impl FnOnce(&mut Board<'w>) -> R) -> R {
        f(&mut lock(&self.stage.board))
    }

    fn share(&mut self, with: u8) {
        let Some(owned) = draw(&mut self.unique, with) else {
            return;
        };
        // SAFETY: the player's block.
        let generation = unsafe { self.seat.share(owned) };
        self.publish(owned, generation);
        self.shares.push(owned);
    }

    fn force(&mut self, with: u8) {
        let Some(owned) = draw(&mut self.unique, with) else {
            return;
        };
        // SAFETY: the player's block.
        let generation = unsafe { self.seat.share(owned) };
        // SAFETY: the player's share, which nobody knows of.
        unsafe { self.seat.force(owned, generation) };
        self.publish(owned, generation);
    }

    fn publish(&self, owned: Owned<'w>, generation: u32) {
        self.board(|board| {
            board.handles.push(Name {
                index: owned.block.index(),
                generation,
                stamp: owned.stamp,
            });
        });
    }

    fn take_back(&mut self, with: u8) {
        if let Some(mut share) = draw(&mut self.shares, with) {
            // SAFETY: the player's share.
            if unsafe { self.seat.try_unique(&mut share) } {
                self.unique.push(share);
            } else {
                self.shares.push(share);
            }
        }
    }

    /// The block that a name names.
    fn find(&self, index: u32) -> &'w Block<Model> {
        let block = self.stage.world.blocks.get(index);
        block.expect("the board names claimed blocks")
    }

    fn upgrade(&mut self, with: u8) {
        let name = self.board(|board| {
            let index = choose(&board.handles, with)?;
            Some(board.handles[index])
        });
        let Some(name) = name else { return };
        let block = self.find(name.index);
        if has_room(block) && block.state.upgrade(name.generation).is_ok() {
            let share = Owned {
                block,
                stamp: name.stamp,
            };
            // SAFETY: the upgrade made the player an owner.
            unsafe { share.verify() };
            self.shares.push(share);
        }
    }

    fn lease(&mut self, share: Owned<'w>) {
        let generation = share.block.state.load().generation();
        let target = u64::from(generation) << 32 | u64::from(share.block.index());
        match lease::lease(self.stage.leases, content(target, share.stamp)) {
            Ok(name) => self.board(|board| {
                board.leases.push(name);
                board.leases_made += 1;
            }),
            Err(_) => self.shares.push(share),
        }
    }

    fn lease_name(&self, with: u8) -> Option<u64> {
        self.board(|board| choose(&board.leases, with).map(|index| board.leases[index]))
    }

    fn renew_lease(&mut self, with: u8) {
        let Some(name) = self.lease_name(with) else {
            return;
        };
        let Ok(found) = lease::peek(self.stage.leases, name) else {
            return;
        };
        let share = self.leased(found);
        let generation = (found.target >> 32) as u32;
        if has_room(share.block) && share.block.state.upgrade(generation).is_ok() {
            // SAFETY: the upgrade made the player an owner.
            unsafe { share.verify() };
            self.lease(share);
        }
    }

    fn end_lease(&mut self, name: u64) {
        if let Ok(found) = lease::end(self.stage.leases, name) {
            let share = self.leased(found);
            // SAFETY: the lease's share is the player's now.
            unsafe { share.verify() };
            self.shares.push(share);
            self.board(|board| board.leases_ended += 1);
        }
    }

    /// What a lease holds a share of, if its words belong together.
    fn leased(&self, found: Content) -> Owned<'w> {
        let stamp = found.start as u64;
        assert_eq!(found, content(found.target, stamp), "words of two leases");
        Owned {
            block: self.find(found.target as u32),
            stamp,
        }
    }

    fn reopen(&mut self) {
        let memory = Arc::clone(self.stage.memory);
        let backing = Model::new(self.stage.setup, memory);
        // SAFETY: the world outlives every seat.
        if let Ok(next) = unsafe { Core::open(self.stage.world, backing) } {
            let own = self.seat.existing_cache(self.core);
            // SAFETY: the player's handle, given up.
            unsafe { self.core.drop_handle(own) };
            self.core = next;
        }
    }
}

fn content(target: u64, stamp: u64) -> Content {
    Content {
        target,
        start: stamp as usize,
        len: !stamp as usize,
        element: stamp as usize ^ target as usize,
    }
}

impl<'w> Stage<'w> {
    /// With every thread gone: what is left on the board goes back, then the last handle.
    fn settle(&self, core: &'w Core<Model>) {
        self.audit_quiet(core);
        let mut player = Player::new(self, core);
        loop {
            let next = player.board(|board| board.offers.pop());
            let Some(share) = next else { break };
            player.shares.push(share);
        }
        while let Some(name) = player.board(|board| board.leases.pop()) {
            player.end_lease(name);
        }
        player.play(&[]);
    }

    /// Every thread has left: the pool finds each of its blocks in one place, none in a cache.
    fn audit_quiet(&self, core: &Core<Model>) {
        // SAFETY: the main thread's handle; it has no cache.
        let places = unsafe { core.audit(None) };
        let places = places.unwrap_or_else(|mismatch| panic!("{mismatch:?}"));
        assert_eq!(
            places.cached, 0,
            "blocks stayed in a cache whose thread has left"
        );
        let ledger = &core.ledger;
        let in_use = ledger.held() - ledger.resting();
        assert_eq!(
            ledger.used(),
            in_use,
            "births are under way in a quiet pool"
        );
        if core.is_closed() {
            assert_eq!(places.depot, 0, "blocks rest in a closed pool");
        }
    }

    /// Every handle and every share is gone: each cell of each arena is in its one place.
    fn audit(&self) {
        assert_eq!(self.memory.out(), 0, "pieces of memory leaked");
        for core in self.world.cores.iter() {
            assert_eq!(core.numbers.births.get(), core.numbers.deaths.get());
            assert_eq!((core.ledger.held(), core.ledger.resting()), (0, 0));
            assert_eq!(core.depot_estimate(CLASS), 0);
        }
        let board = lock(&self.board);
        assert_eq!(board.leases_made, board.leases_ended, "leases");
        let blocks = Model::BLOCKS_PER_SLAB * SLABS - self.memory.retired();
        assert_eq!(drain(&self.world.blocks), blocks, "control blocks");
        let magazines = Model::MAGAZINES_PER_SLAB * SLABS;
        assert_eq!(drain(&self.world.magazines), magazines, "magazines");
        assert_eq!(drain(&self.world.cores), POOLS, "cores");
        let slots = Model::SLOTS_PER_SLAB * SLABS;
        assert_eq!(drain(&self.world.slots), slots, "thread slots");
    }
}

/// Claims every free cell of an arena; how many there were.
fn drain<T: Cell>(arena: &Arena<T>) -> usize {
    let mut seen = std::collections::BTreeSet::new();
    while let Ok((index, _)) = arena.claim() {
        assert!(seen.insert(index), "cell {index} is free twice");
    }
    seen.len()
}
