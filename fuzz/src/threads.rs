//! Programs on real threads: every buffer is filled with its owner's stamp, and whoever has it
//! must find that stamp everywhere in it. Run it under AddressSanitizer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;

use arbitrary::{Arbitrary, Unstructured};
use ndpool::{AllocErrorKind, AuditError, Buffer, Handle, Pool, PoolBuilder};
use ndpool::{SharedBuffer, Stats, Token};

use super::source::Watched;

/// What a thread does.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Op {
    /// Takes a buffer of a class and stamps it.
    Take(u8),
    /// Drops a buffer.
    Drop(u8),
    /// Leaves a buffer to whichever thread picks it up.
    Leave(u8),
    /// Picks a buffer up.
    Pick(u8),
    /// Shares a buffer and publishes its handle, with the stamp.
    Share(u8),
    /// Clones or slices a shared buffer, for whichever thread picks it up.
    Offer(u8),
    /// Picks a share up.
    Accept(u8),
    /// Drops a share.
    Release(u8),
    /// Upgrades a handle.
    Upgrade(u8),
    /// Takes a shared buffer back, and stamps it anew.
    Unique(u8),
    /// Leases a share out.
    Lease(u8),
    /// Clones, releases or redeems a token, which other threads know as well.
    Redeem(u8),
    /// Trims the pool.
    Trim,
    /// Ages the pool.
    Age,
    /// Audits the pool, which is not quiet.
    Audit,
    /// Closes the pool, and goes on with a new one that only this thread has.
    Close,
}

/// Where threads leave things for each other.
#[derive(Default)]
struct Board {
    buffers: Mutex<Vec<Stamped>>,
    shares: Mutex<Vec<Share>>,
    handles: Mutex<Vec<(Handle, u64)>>,
    tokens: Mutex<Vec<(Token, u64)>>,
    /// Closed pools that are looked at in the end.
    closed: Mutex<Vec<Pool>>,
    stamps: AtomicU64,
}

struct Stamped {
    buffer: Buffer<u64>,
    stamp: u64,
}

struct Share {
    shared: SharedBuffer<u64>,
    stamp: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn draw<T>(from: &mut Vec<T>, with: u8) -> Option<T> {
    let index = usize::from(with).checked_rem(from.len())?;
    Some(from.swap_remove(index))
}

fn verify(elements: &[u64], stamp: u64) {
    for (at, &element) in elements.iter().enumerate() {
        assert!(
            element == stamp,
            "element {at} is {element:#x}, its owner wrote {stamp:#x}"
        );
    }
}

/// Runs one input.
pub fn run(input: &[u8]) {
    let mut u = Unstructured::new(input);
    let Ok(shape) = u.arbitrary::<u8>() else {
        return;
    };
    let mut programs = vec![Vec::new(); 2 + usize::from(shape % 3)];
    let mut turn = 0;
    while let Ok(op) = u.arbitrary::<Op>() {
        let count = programs.len();
        programs[turn % count].push(op);
        turn += 1;
        if u.is_empty() || turn == 256 {
            break;
        }
    }
    let again = u32::from(shape >> 6);
    play(&programs, again, &|| configured(shape >> 2));
}

/// A pool whose caches, depot and limit are narrow or wide.
pub fn configured(with: u8) -> PoolBuilder {
    let builder = Pool::builder()
        .cache_budget([8 << 20, 0, 512, 4096][usize::from(with & 3)])
        .cap([usize::MAX, 0, 8192, usize::MAX][usize::from(with >> 2 & 3)]);
    match with >> 4 & 3 {
        0 => builder.limit(256 << 20),
        1 => strict(builder).limit(256 << 20),
        2 => strict(builder).limit(96 << 10),
        _ => strict(builder).limit(384 << 10),
    }
}

/// The footprint promise in its strict form: what a program holds is far below the default floor, and
/// without it births have to make room.
pub fn strict(builder: PoolBuilder) -> PoolBuilder {
    builder.floor(0).slack(0.05).window(64)
}

/// How the first pool of a run was left.
#[allow(dead_code)]
pub struct Played {
    /// Its numbers, all threads gone.
    pub stats: Stats,
    /// Allocations that a limit refused, of all pools.
    pub refused: u64,
}

/// Runs one program a thread, `1 + again` times, over one pool to begin with.
///
/// # Panics
/// If a stamp is not its owner's, books do not balance, an allocation fails but for a limit, or memory
/// is left at the source at the end.
pub fn play(
    programs: &[Vec<Op>],
    again: u32,
    builder: &(dyn Fn() -> PoolBuilder + Sync),
) -> Played {
    let source = Arc::new(Watched::default());
    let build = || builder().source(Arc::clone(&source)).build();
    let pool = build();
    let board = Board::default();
    let start = Barrier::new(programs.len());
    // Each with how many allocations were refused.
    let ended: Vec<(Pool, u64)> = thread::scope(|scope| {
        let play = |ops: &Vec<Op>| {
            let (pool, board, start, build) = (pool.clone(), &board, &start, &build);
            let ops = ops.clone();
            scope.spawn(move || {
                let mut player = Player {
                    board,
                    pool,
                    build,
                    refused: 0,
                    closes: 0,
                    buffers: Vec::new(),
                    shares: Vec::new(),
                };
                start.wait();
                for _ in 0..=again {
                    ops.iter().for_each(|&op| player.step(op));
                }
                player.check();
                (player.pool, player.refused)
            })
        };
        // Joined by hand: a scope alone does not wait for thread-local destructors, by which caches
        // go home.
        let players: Vec<_> = programs.iter().map(play).collect();
        let join =
            |player: thread::ScopedJoinHandle<'_, _>| player.join().expect("a player that ends");
        players.into_iter().map(join).collect()
    });
    let refused = ended.iter().map(|(_, refused)| refused).sum();
    let pools = ended.iter().map(|(pool, _)| pool);
    for pool in pools.chain(&*lock(&board.closed)).chain([&pool]) {
        pool.audit().expect("the books balance");
    }
    let stats = pool.stats();
    drop((pool, ended));
    lock(&board.closed).clear();
    for Stamped { buffer, stamp } in lock(&board.buffers).drain(..) {
        verify(&buffer, stamp);
    }
    for Share { shared, stamp } in lock(&board.shares).drain(..) {
        verify(&shared, stamp);
    }
    for (token, stamp) in lock(&board.tokens).drain(..) {
        if let Ok(shared) = token.redeem::<u64>() {
            verify(&shared, stamp);
        }
    }
    for (handle, _) in lock(&board.handles).drain(..) {
        assert!(handle.is_released(), "a handle lives on without owners");
    }
    assert_eq!(source.blocks(), 0, "blocks leaked");
    Played { stats, refused }
}

struct Player<'a> {
    board: &'a Board,
    pool: Pool,
    /// A pool like the first.
    build: &'a (dyn Fn() -> Pool + Sync),
    refused: u64,
    closes: u32,
    buffers: Vec<Stamped>,
    shares: Vec<Share>,
}

impl Player<'_> {
    fn check(&self) {
        for Stamped { buffer, stamp } in &self.buffers {
            verify(buffer, *stamp);
        }
        for Share { shared, stamp } in &self.shares {
            verify(shared, *stamp);
        }
    }

    fn stamp(&self) -> u64 {
        // Ordering: Relaxed - numbers only.
        self.board.stamps.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Take(size) => {
                let len = [8, 8, 16, 60, 600, 3000][usize::from(size) % 6];
                let stamp = self.stamp();
                match self.pool.filled(len, stamp) {
                    Ok(buffer) => self.buffers.push(Stamped { buffer, stamp }),
                    Err(error) => {
                        assert_eq!(error.kind, AllocErrorKind::LimitExceeded, "{error}");
                        self.refused += 1;
                    }
                }
            }
            Op::Drop(with) => {
                if let Some(Stamped { buffer, stamp }) = draw(&mut self.buffers, with) {
                    verify(&buffer, stamp);
                }
            }
            Op::Leave(with) => {
                let left = draw(&mut self.buffers, with);
                lock(&self.board.buffers).extend(left);
            }
            Op::Pick(with) => {
                let picked = draw(&mut lock(&self.board.buffers), with);
                self.buffers.extend(picked);
            }
            Op::Share(with) => self.share(with),
            Op::Offer(with) => self.offer(with),
            Op::Accept(with) => {
                let picked = draw(&mut lock(&self.board.shares), with);
                self.shares.extend(picked);
            }
            Op::Release(with) => {
                if let Some(Share { shared, stamp }) = draw(&mut self.shares, with) {
                    verify(&shared, stamp);
                }
            }
            Op::Upgrade(with) => self.upgrade(with),
            Op::Unique(with) => self.take_back(with),
            Op::Lease(with) => self.lease(with),
            Op::Redeem(with) => self.redeem(with),
            Op::Trim => {
                self.pool.trim();
            }
            Op::Age => {
                self.pool.age();
            }
            // Others work, so it may find a mismatch; but nobody is inside of a trim.
            Op::Audit => assert_ne!(self.pool.audit(), Err(AuditError::Busy)),
            Op::Close => {
                self.pool.close();
                let closed = std::mem::replace(&mut self.pool, (self.build)());
                // The others end as soon as their buffers are home, and their cores serve again.
                self.closes += 1;
                if self.closes.is_multiple_of(2) {
                    lock(&self.board.closed).push(closed);
                }
            }
        }
    }

    fn share(&mut self, with: u8) {
        if let Some(Stamped { buffer, stamp }) = draw(&mut self.buffers, with) {
            let shared = buffer.share();
            let mut handles = lock(&self.board.handles);
            if handles.len() >= 64 {
                handles.swap_remove(usize::from(with) % 64);
            }
            handles.push((shared.handle(), stamp));
            drop(handles);
            self.shares.push(Share { shared, stamp });
        }
    }

    fn offer(&mut self, with: u8) {
        if let Some(index) = usize::from(with).checked_rem(self.shares.len()) {
            let Share { shared, stamp } = &self.shares[index];
            let part = shared
                .slice(usize::from(with & 3).min(shared.len())..)
                .expect("within the view");
            let offered = Share {
                shared: if with & 4 == 0 { part } else { shared.clone() },
                stamp: *stamp,
            };
            lock(&self.board.shares).push(offered);
        }
    }

    fn upgrade(&mut self, with: u8) {
        let name = {
            let handles = lock(&self.board.handles);
            usize::from(with)
                .checked_rem(handles.len())
                .map(|index| handles[index])
        };
        if let Some((handle, stamp)) = name
            && let Ok(shared) = handle.upgrade::<u64>()
        {
            verify(&shared, stamp);
            self.shares.push(Share { shared, stamp });
        }
    }

    fn take_back(&mut self, with: u8) {
        let Some(Share { shared, stamp }) = draw(&mut self.shares, with) else {
            return;
        };
        match shared.try_unique() {
            Ok(mut buffer) => {
                verify(&buffer, stamp);
                let stamp = self.stamp();
                buffer.fill(stamp);
                self.buffers.push(Stamped { buffer, stamp });
            }
            Err(shared) => self.shares.push(Share { shared, stamp }),
        }
    }

    fn lease(&mut self, with: u8) {
        if let Some(Share { shared, stamp }) = draw(&mut self.shares, with)
            && let Ok(token) = shared.into_token()
        {
            lock(&self.board.tokens).push((token, stamp));
        }
    }

    /// Other threads may use the same token at the same time; each lease ends once.
    fn redeem(&mut self, with: u8) {
        let name = {
            let tokens = lock(&self.board.tokens);
            usize::from(with)
                .checked_rem(tokens.len())
                .map(|index| tokens[index])
        };
        let Some((token, stamp)) = name else { return };
        if with & 1 == 0
            && let Ok(clone) = token.clone_token()
        {
            lock(&self.board.tokens).push((clone, stamp));
        }
        if let Ok(shared) = token.redeem::<u64>() {
            verify(&shared, stamp);
            self.shares.push(Share { shared, stamp });
            lock(&self.board.tokens).retain(|&(live, _)| live != token);
        }
    }
}
