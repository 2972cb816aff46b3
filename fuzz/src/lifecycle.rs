//! Operations over the whole public API against an oracle: a shadow of every live buffer's
//! elements, the exact number of owners of each, of blocks that a pool has out, and no overlap.

use std::fmt::Debug;
use std::sync::Arc;
use std::thread;

use arbitrary::{Arbitrary, Unstructured};
use ndpool::{
    AllocError, AllocErrorKind, Buffer, Element, Handle, Pool, SharedBuffer, StaleReason, Token,
};

use super::source::Watched;

/// A number that chooses among what there is.
type Pick = u8;

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Op {
    Bytes(On),
    Words(On),
    Triples(On),
    Units(On),
    Pools(OnPools),
    /// The next operations run on a thread of their own, which then exits.
    Elsewhere(u8),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum OnPools {
    Open {
        limit: u8,
        cap: u8,
        slack: u8,
        budget: u8,
    },
    CloneHandle(Pick),
    DropHandle(Pick),
    Trim(Pick),
    Age(Pick),
    Audit(Pick),
    Close(Pick),
    ForgedHandle(u64),
    ForgedToken(u64),
    DeadHandle(Pick),
    DeadToken(Pick),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum On {
    Allocate(Pick, Len),
    Zeroed(Pick, Len),
    Filled(Pick, Len, u8),
    Copied(Pick, Len, u8),
    Collect(Pick, Len, u8),
    Write(Pick, u16, u8),
    Resize(Pick, Len, u8),
    Truncate(Pick, u16),
    DropUnique(Pick),
    Share(Pick),
    FromOwner(Len, u8),
    Borrow(u8),
    CloneView(Pick, Pick),
    Slice(Pick, Pick, u16, u16),
    DropView(Pick, Pick),
    TryUnique(Pick, Pick),
    MakeMut(Pick, Pick, u8),
    CopyView(Pick, Pick),
    Reinterpret(Pick, Pick),
    Name(Pick),
    Upgrade(Pick, Pick),
    IntoToken(Pick, Pick),
    CloneToken(Pick, Pick),
    Redeem(Pick, Pick),
    ReleaseToken(Pick, Pick),
}

/// A length in elements: mostly small, sometimes some hundred KiB.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Len(u16);

impl Len {
    fn of(self) -> usize {
        let number = usize::from(self.0 >> 3);
        match self.0 & 7 {
            0..=4 => number % 300,
            5 => number,
            6 => number * 4,
            _ => number * 16,
        }
    }
}

/// An element that bytes can make.
trait Item: Element + PartialEq + Debug + Default {
    fn of(seed: u64) -> Self;

    /// Looks at the same bytes as other elements, where that is possible.
    fn look_otherwise(_view: &SharedBuffer<Self>) {}
}

impl Item for u8 {
    fn of(seed: u64) -> Self {
        seed as Self
    }
}

impl Item for u64 {
    fn of(seed: u64) -> Self {
        seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn look_otherwise(view: &SharedBuffer<Self>) {
        let owners = view.owners();
        let halves = view
            .reinterpret::<u32>()
            .expect("half the size, half the alignment");
        assert_eq!(view.owners(), owners + 1);
        assert_eq!(halves.len(), 2 * view.len());
        for (pair, whole) in halves.chunks_exact(2).zip(&view[..]) {
            let bytes = [pair[0].to_ne_bytes(), pair[1].to_ne_bytes()].concat();
            assert_eq!(bytes, whole.to_ne_bytes());
        }
        assert_eq!(
            halves.reinterpret::<Self>().map(|back| back.len()),
            Ok(view.len())
        );
    }
}

impl Item for [u8; 3] {
    fn of(seed: u64) -> Self {
        [seed as u8, (seed >> 8) as u8, 7]
    }
}

impl Item for () {
    fn of(_: u64) -> Self {}
}

fn items<T: Item>(len: usize, seed: u8) -> Vec<T> {
    (0..len as u64)
        .map(|index| T::of(index + u64::from(seed)))
        .collect()
}

/// One pool: its handles, its source, and whether it is closed.
struct Place {
    handles: Vec<Pool>,
    source: Arc<Watched>,
    limit: usize,
    closed: bool,
}

/// Where a block belongs; foreign memory has no home.
#[derive(Clone, Copy, Debug)]
struct Home {
    pool: usize,
    /// Without memory.
    empty: bool,
}

impl Home {
    fn of<T>(pool: usize, elements: &[T]) -> Self {
        Self {
            pool,
            empty: size_of_val(elements) == 0,
        }
    }
}

/// A unique buffer and its shadow.
struct Unique<T: Item> {
    buffer: Buffer<T>,
    shadow: Vec<T>,
    home: Option<Home>,
}

/// A shared buffer: every owner, and the shadow of the whole.
struct Group<T: Item> {
    shadow: Vec<T>,
    views: Vec<View<T>>,
    tokens: Vec<(Token, usize, usize)>,
    handles: Vec<Handle>,
    read_only: bool,
    home: Option<Home>,
}

struct View<T: Item> {
    shared: SharedBuffer<T>,
    start: usize,
}

/// Everything of one element type.
struct Shelf<T: Item> {
    unique: Vec<Unique<T>>,
    groups: Vec<Group<T>>,
}

/// Names whose buffers are gone.
#[derive(Default)]
struct Graves {
    handles: Vec<Handle>,
    tokens: Vec<Token>,
}

struct State {
    pools: Vec<Place>,
    bytes: Shelf<u8>,
    words: Shelf<u64>,
    triples: Shelf<[u8; 3]>,
    units: Shelf<()>,
    graves: Graves,
}

/// Live things of one kind at most.
const MOST: usize = 24;
/// Pools at most.
const POOLS: usize = 4;
/// Operations of one input at most.
const OPS: usize = 400;

/// Runs one input.
pub fn run(input: &[u8]) {
    let mut u = Unstructured::new(input);
    let buffers_first = u.arbitrary().unwrap_or(false);
    let mut ops = Vec::new();
    while !u.is_empty() && ops.len() < OPS {
        let Ok(op) = u.arbitrary::<Op>() else { break };
        ops.push(op);
    }
    let mut state = State::new();
    state.play(&ops);
    state.finish(buffers_first);
}

fn choose<T>(of: &[T], pick: Pick) -> Option<usize> {
    usize::from(pick).checked_rem(of.len())
}

impl State {
    fn new() -> Self {
        let mut state = Self {
            pools: Vec::new(),
            bytes: Shelf::new(),
            words: Shelf::new(),
            triples: Shelf::new(),
            units: Shelf::new(),
            graves: Graves::default(),
        };
        state.open(0, 0, 0, 0);
        state
    }

    fn play(&mut self, mut ops: &[Op]) {
        while let Some((&op, rest)) = ops.split_first() {
            ops = rest;
            if let Op::Elsewhere(count) = op {
                let (there, here) = rest.split_at(usize::from(count % 16).min(rest.len()));
                thread::scope(|scope| scope.spawn(|| self.play(there)).join())
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                ops = here;
                continue;
            }
            self.step(op);
            self.check();
        }
    }

    fn step(&mut self, op: Op) {
        let (pools, graves) = (&self.pools, &mut self.graves);
        match op {
            Op::Bytes(on) => self.bytes.step(on, pools, graves),
            Op::Words(on) => self.words.step(on, pools, graves),
            Op::Triples(on) => self.triples.step(on, pools, graves),
            Op::Units(on) => self.units.step(on, pools, graves),
            Op::Pools(on) => self.on_pools(on),
            Op::Elsewhere(_) => unreachable!("taken apart above"),
        }
    }

    fn open(&mut self, limit: u8, cap: u8, slack: u8, budget: u8) {
        if self.pools.len() == POOLS {
            return;
        }
        let source = Arc::new(Watched::default());
        let limit = match limit % 4 {
            0 | 1 => usize::MAX,
            2 => 20_000,
            _ => usize::from(limit) * 4096,
        };
        let pool = Pool::builder()
            .source(Arc::clone(&source))
            .limit(limit)
            .cap(if cap % 4 == 3 {
                usize::from(cap) * 256
            } else {
                usize::MAX
            })
            .slack(f64::from(slack) / 64.0)
            .cache_budget(if budget % 4 == 3 {
                usize::from(budget) * 64
            } else {
                1 << 20
            })
            .max_class(if budget % 8 == 1 { 4096 } else { 1 << 30 })
            .build();
        self.pools.push(Place {
            handles: vec![pool],
            source,
            limit,
            closed: false,
        });
    }

    fn on_pools(&mut self, on: OnPools) {
        match on {
            OnPools::Open {
                limit,
                cap,
                slack,
                budget,
            } => self.open(limit, cap, slack, budget),
            OnPools::CloneHandle(pick) => {
                let at = choose(&self.pools, pick).expect("there is a pool always");
                let place = &mut self.pools[at];
                if let Some(pool) = place.handles.first().cloned() {
                    place.handles.push(pool);
                }
            }
            OnPools::DropHandle(pick) => {
                let at = choose(&self.pools, pick).expect("there is a pool always");
                let place = &mut self.pools[at];
                if place.handles.pop().is_some() && place.handles.is_empty() {
                    place.closed = true;
                }
            }
            OnPools::Trim(pick) => self.trim(pick),
            OnPools::Age(pick) => {
                let at = choose(&self.pools, pick).expect("there is a pool always");
                if let Some(pool) = self.pools[at].handles.first() {
                    let before = self.pools[at].source.bytes();
                    let aged = pool.age();
                    assert_eq!(before - self.pools[at].source.bytes(), aged, "bytes aged");
                }
            }
            OnPools::Audit(pick) => {
                self.audit(choose(&self.pools, pick).expect("there is a pool always"));
            }
            OnPools::Close(pick) => {
                let at = choose(&self.pools, pick).expect("there is a pool always");
                let place = &mut self.pools[at];
                if let Some(pool) = place.handles.first() {
                    pool.close();
                    place.closed = true;
                }
            }
            OnPools::ForgedHandle(bits) => forged_handle(Handle::from_bits(bits)),
            OnPools::ForgedToken(bits) => self.forged_token(Token::from_bits(bits)),
            OnPools::DeadHandle(pick) => {
                if let Some(at) = choose(&self.graves.handles, pick) {
                    let handle = self.graves.handles[at];
                    let stale = handle
                        .upgrade::<u8>()
                        .expect_err("a dead handle was upgraded");
                    assert_eq!(stale.reason, StaleReason::Gone);
                    assert!(handle.is_released() && !handle.is_unique());
                }
            }
            OnPools::DeadToken(pick) => {
                if let Some(at) = choose(&self.graves.tokens, pick) {
                    let token = self.graves.tokens[at];
                    assert!(token.clone_token().is_err(), "a dead token was cloned");
                    assert!(token.redeem::<u8>().is_err(), "a dead token was redeemed");
                    assert!(token.release().is_err(), "a dead token was released");
                }
            }
        }
    }

    fn trim(&mut self, pick: Pick) {
        let at = choose(&self.pools, pick).expect("there is a pool always");
        if let Some(pool) = self.pools[at].handles.first() {
            let before = self.pools[at].source.bytes();
            let trimmed = pool.trim();
            let after = self.pools[at].source.bytes();
            assert_eq!(before - after, trimmed, "bytes trimmed");
            self.expect_exact(at);
        }
    }

    /// Live blocks of a pool: all, and those with memory.
    fn live(&self, at: usize) -> (usize, usize) {
        let homes = self.bytes.homes().chain(self.words.homes());
        let homes = homes.chain(self.triples.homes()).chain(self.units.homes());
        homes
            .filter(|home| home.pool == at)
            .fold((0, 0), |(all, full), home| {
                (all + 1, full + usize::from(!home.empty))
            })
    }

    /// Nothing rests in the pool: its source has exactly the live blocks out.
    fn expect_exact(&self, at: usize) {
        assert_eq!(
            self.pools[at].source.blocks(),
            self.live(at).1,
            "blocks of pool {at}"
        );
    }

    /// The pool finds each of its blocks, and counts the live ones as we do.
    fn audit(&self, at: usize) {
        let place = &self.pools[at];
        if let Some(pool) = place.handles.first() {
            let audit = pool.audit().expect("the books balance");
            let (all, full) = self.live(at);
            assert_eq!(audit.live, all as u64, "live blocks of pool {at}");
            let out = full as u64 + audit.cached + audit.depot;
            assert_eq!(place.source.blocks() as u64, out, "blocks of pool {at}");
            let stats = pool.stats();
            assert_eq!(stats.held_bytes, place.source.bytes(), "bytes of pool {at}");
            assert_eq!(
                stats.births - stats.deaths,
                all as u64 + audit.cached + audit.depot
            );
        }
    }

    /// A live token cannot be told from a forged one with its bits, so those are left alone.
    fn forged_token(&self, token: Token) {
        let live = self.bytes.has_token(token)
            || self.words.has_token(token)
            || self.triples.has_token(token)
            || self.units.has_token(token);
        if !live {
            assert!(token.clone_token().is_err());
            assert!(token.release().is_err());
        }
    }

    /// What holds at every moment.
    fn check(&self) {
        let mut spans = Vec::new();
        self.bytes.spans(&mut spans);
        self.words.spans(&mut spans);
        self.triples.spans(&mut spans);
        spans.sort_unstable();
        for pair in spans.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "live buffers overlap: {pair:x?}");
        }
        for (at, place) in self.pools.iter().enumerate() {
            assert!(
                place.source.bytes() <= place.limit,
                "pool {at} is over its limit"
            );
            if place.closed {
                self.expect_exact(at);
            }
        }
    }

    /// Verifies and drops everything; then no source may have a block out.
    fn finish(mut self, buffers_first: bool) {
        (0..self.pools.len()).for_each(|at| self.audit(at));
        if !buffers_first {
            self.pools
                .iter_mut()
                .for_each(|place| place.handles.clear());
        }
        self.bytes.clear(&mut self.graves);
        self.words.clear(&mut self.graves);
        self.triples.clear(&mut self.graves);
        self.units.clear(&mut self.graves);
        for place in &mut self.pools {
            place.handles.clear();
            assert_eq!(place.source.blocks(), 0, "blocks leaked");
        }
        for handle in self.graves.handles {
            assert!(handle.is_released(), "a handle of a dead buffer lives");
        }
        for token in self.graves.tokens {
            assert!(token.release().is_err(), "a dead token was released");
        }
    }
}

/// Any number may be asked for; if it happens to name something, that is an owner more for a while.
fn forged_handle(handle: Handle) {
    let owners = handle.owners();
    if let Ok(view) = handle.upgrade::<u8>() {
        assert_eq!(handle.owners(), owners + 1);
        drop(view);
    }
    assert_eq!(handle.owners(), owners);
}

impl<T: Item> Shelf<T> {
    fn new() -> Self {
        Self {
            unique: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// Where its live blocks belong.
    fn homes(&self) -> impl Iterator<Item = Home> {
        let unique = self.unique.iter().filter_map(|unique| unique.home);
        unique.chain(self.groups.iter().filter_map(|group| group.home))
    }

    fn has_token(&self, token: Token) -> bool {
        let mut tokens = self.groups.iter().flat_map(|group| &group.tokens);
        tokens.any(|&(live, ..)| live == token)
    }

    /// Address ranges that are somebody's, capacities included.
    fn spans(&self, into: &mut Vec<(usize, usize)>) {
        let mut add = |base: usize, bytes: usize| {
            if bytes > 0 {
                into.push((base, base + bytes));
            }
        };
        for unique in &self.unique {
            let capacity = unique.buffer.capacity();
            assert!(capacity >= unique.buffer.len());
            add(unique.buffer.as_ptr().addr(), capacity * size_of::<T>());
        }
        for group in &self.groups {
            if let Some(view) = group.views.first() {
                let offset = view.start * size_of::<T>();
                add(
                    view.shared.as_ptr().addr() - offset,
                    group.shadow.len() * size_of::<T>(),
                );
            }
        }
    }

    fn step(&mut self, on: On, pools: &[Place], graves: &mut Graves) {
        match on {
            On::Allocate(pick, len) => self.make(pools, pick, len, 3, |pool, shadow: &[T]| {
                Ok(pool
                    .allocate::<T>(shadow.len())?
                    .fill_with(|index| shadow[index]))
            }),
            On::Zeroed(pick, len) => self.make(pools, pick, len, 0, |pool, shadow: &[T]| {
                let mut buffer = pool.zeroed::<T>(shadow.len())?;
                assert!(buffer.iter().all(|item| *item == T::default()), "not zero");
                buffer.copy_from_slice(shadow);
                Ok(buffer)
            }),
            On::Filled(pick, len, seed) => {
                let value = T::of(seed.into());
                self.make(pools, pick, len, 0, move |pool, shadow: &[T]| {
                    let mut buffer = pool.filled(shadow.len(), value)?;
                    assert!(buffer.iter().all(|item| *item == value), "not filled");
                    buffer.copy_from_slice(shadow);
                    Ok(buffer)
                });
            }
            On::Copied(pick, len, seed) => {
                self.make(pools, pick, len, seed, |pool, shadow: &[T]| {
                    pool.copied(shadow)
                });
            }
            On::Collect(pick, len, seed) => {
                self.make(pools, pick, len, seed, |pool, shadow: &[T]| {
                    // An iterator that does not say how many elements it has.
                    pool.collect(shadow.iter().copied().filter(|_| true))
                });
            }
            On::Write(pick, at, seed) => {
                if let Some(index) = choose(&self.unique, pick) {
                    self.unique[index].write(at.into(), seed);
                }
            }
            On::Resize(pick, len, seed) => self.resize(pick, len.of(), seed, pools),
            On::Truncate(pick, len) => {
                if let Some(index) = choose(&self.unique, pick) {
                    let unique = &mut self.unique[index];
                    let len = usize::from(len) % (unique.shadow.len() + 1);
                    unique.buffer.truncate(len);
                    unique.shadow.truncate(len);
                    unique.verify();
                }
            }
            On::DropUnique(pick) => {
                if let Some(index) = choose(&self.unique, pick) {
                    self.unique.swap_remove(index).verify();
                }
            }
            On::Share(pick) => {
                if let Some(index) = choose(&self.unique, pick)
                    && self.groups.len() < MOST
                {
                    self.groups.push(self.unique.swap_remove(index).share());
                }
            }
            On::FromOwner(len, seed) => self.share_owned(len.of(), seed),
            On::Borrow(seed) => borrow(seed),
            _ => self.on_group(on, pools, graves),
        }
    }

    /// A new unique buffer by way of `make`.
    fn make(
        &mut self,
        pools: &[Place],
        pick: Pick,
        len: Len,
        seed: u8,
        make: impl FnOnce(&Pool, &[T]) -> Result<Buffer<T>, AllocError>,
    ) {
        let at = choose(pools, pick).expect("there is a pool always");
        if self.unique.len() == MOST {
            return;
        }
        let Some(pool) = pools[at].handles.first() else {
            return;
        };
        let shadow = items(len.of(), seed);
        match make(pool, &shadow) {
            Ok(buffer) => {
                let home = Home::of(at, &shadow);
                if !home.empty {
                    assert!(buffer.as_ptr().addr().is_multiple_of(ndpool::MIN_ALIGN));
                }
                let unique = Unique {
                    buffer,
                    shadow,
                    home: Some(home),
                };
                unique.verify();
                self.unique.push(unique);
            }
            Err(error) => refused(&error, &pools[at]),
        }
    }

    fn resize(&mut self, pick: Pick, len: usize, seed: u8, pools: &[Place]) {
        let Some(index) = choose(&self.unique, pick) else {
            return;
        };
        let unique = &mut self.unique[index];
        let value = T::of(seed.into());
        match unique.buffer.resize(len, value) {
            Ok(()) => {
                unique.shadow.resize(len, value);
                if let Some(home) = &mut unique.home {
                    // It keeps its block when it shrinks, and moves to one with memory when it has none.
                    home.empty &= size_of_val(&unique.shadow[..]) == 0;
                }
            }
            Err(error) => {
                if let Some(home) = unique.home {
                    refused(&error, &pools[home.pool]);
                }
            }
        }
        unique.verify();
    }

    fn share_owned(&mut self, len: usize, seed: u8) {
        if self.groups.len() == MOST {
            return;
        }
        let shadow: Vec<T> = items(len, seed);
        let shared = SharedBuffer::from_owner(shadow.clone()).expect("control blocks are left");
        assert!(shared.is_read_only());
        self.groups.push(Group {
            shadow,
            views: vec![View { shared, start: 0 }],
            tokens: Vec::new(),
            handles: Vec::new(),
            read_only: true,
            home: None,
        });
    }

    fn on_group(&mut self, on: On, pools: &[Place], graves: &mut Graves) {
        let (On::CloneView(pick, _)
        | On::Slice(pick, ..)
        | On::DropView(pick, _)
        | On::TryUnique(pick, _)
        | On::MakeMut(pick, ..)
        | On::CopyView(pick, _)
        | On::Reinterpret(pick, _)
        | On::Name(pick)
        | On::Upgrade(pick, _)
        | On::IntoToken(pick, _)
        | On::CloneToken(pick, _)
        | On::Redeem(pick, _)
        | On::ReleaseToken(pick, _)) = on
        else {
            return;
        };
        let Some(index) = choose(&self.groups, pick) else {
            return;
        };
        match on {
            On::TryUnique(_, view) => self.try_unique(index, view, graves),
            On::MakeMut(_, view, seed) => self.make_mut(index, view, seed, pools, graves),
            On::CopyView(_, view) => self.copy_view(index, view, pools),
            _ => {
                let group = &mut self.groups[index];
                group.step(on, graves);
                if group.owners() > 0 {
                    group.verify();
                } else {
                    self.groups.swap_remove(index).bury(graves);
                }
            }
        }
    }

    fn try_unique(&mut self, index: usize, pick: Pick, graves: &mut Graves) {
        let group = &mut self.groups[index];
        let Some(at) = choose(&group.views, pick) else {
            return;
        };
        let possible = group.owners() == 1 && !group.read_only;
        let View { shared, start } = group.views.swap_remove(at);
        let len = shared.len();
        match shared.try_unique() {
            Ok(buffer) => {
                assert!(possible, "a shared buffer became unique");
                let shadow = group.shadow[start..start + len].to_vec();
                let home = group.home;
                self.groups.swap_remove(index).bury(graves);
                let unique = Unique {
                    buffer,
                    shadow,
                    home,
                };
                unique.verify();
                self.unique.push(unique);
            }
            Err(shared) => {
                assert!(!possible, "the only owner was refused");
                group.views.push(View { shared, start });
                group.verify();
            }
        }
    }

    fn make_mut(
        &mut self,
        index: usize,
        pick: Pick,
        seed: u8,
        pools: &[Place],
        graves: &mut Graves,
    ) {
        let group = &mut self.groups[index];
        let Some(at) = choose(&group.views, pick) else {
            return;
        };
        let in_place = group.owners() == 1 && !group.read_only;
        let View { mut shared, start } = group.views.swap_remove(at);
        let mut shadow = group.shadow[start..start + shared.len()].to_vec();
        let written = shared.make_mut().map(|mut elements| {
            assert_eq!(elements[..], shadow[..], "make_mut changed elements");
            if let Some(first) = elements.first_mut() {
                *first = T::of(seed.into());
                shadow[0] = *first;
            }
        });
        if let Err(error) = written {
            assert!(!in_place);
            group.views.push(View { shared, start });
            if let Some(home) = group.home {
                refused(&error, &pools[home.pool]);
            }
            return group.verify();
        }
        let home = if in_place {
            group.home
        } else {
            group.home.map(|home| Home::of(home.pool, &shadow))
        };
        let fresh = Group {
            shadow,
            views: vec![View { shared, start: 0 }],
            tokens: Vec::new(),
            handles: Vec::new(),
            read_only: false,
            home,
        };
        fresh.verify();
        if group.owners() == 0 {
            self.groups.swap_remove(index).bury(graves);
        } else {
            group.verify();
        }
        self.groups.push(fresh);
    }

    fn copy_view(&mut self, index: usize, pick: Pick, pools: &[Place]) {
        let group = &self.groups[index];
        let Some(at) = choose(&group.views, pick) else {
            return;
        };
        if self.unique.len() >= MOST {
            return;
        }
        let view = &group.views[at];
        match view.shared.copied() {
            Ok(buffer) => {
                let shadow = group.shadow[view.start..][..view.shared.len()].to_vec();
                let home = group.home.map(|home| Home::of(home.pool, &shadow));
                let unique = Unique {
                    buffer,
                    shadow,
                    home,
                };
                unique.verify();
                self.unique.push(unique);
            }
            Err(error) => {
                if let Some(home) = group.home {
                    refused(&error, &pools[home.pool]);
                }
            }
        }
    }

    fn clear(&mut self, graves: &mut Graves) {
        for unique in self.unique.drain(..) {
            unique.verify();
        }
        for mut group in self.groups.drain(..) {
            group.verify();
            group.views.clear();
            for (token, ..) in group.tokens.drain(..) {
                token.release().expect("a live token was refused");
                graves.tokens.push(token);
            }
            group.bury(graves);
        }
    }
}

/// Only a limit may refuse, and only when nothing is left to give back.
fn refused(error: &AllocError, place: &Place) {
    assert_eq!(error.kind, AllocErrorKind::LimitExceeded, "{error}");
    assert_eq!(error.limit, place.limit);
    assert!(error.in_use + error.resting <= place.limit);
}

fn borrow(seed: u8) {
    static ITEMS: [u8; 300] = [9; 300];
    // Each borrow takes a control block for ever.
    static BORROWED: std::sync::OnceLock<SharedBuffer<u8>> = std::sync::OnceLock::new();
    let shared = BORROWED
        .get_or_init(|| SharedBuffer::from_static(&ITEMS).expect("control blocks are left"));
    let part = shared.slice(usize::from(seed)..).expect("within the array");
    assert_eq!(&part[..], &ITEMS[usize::from(seed)..]);
    assert!(part.is_read_only());
    let part = part
        .try_unique()
        .expect_err("borrowed memory became unique");
    assert_eq!(part.as_ptr(), &raw const ITEMS[usize::from(seed)]);
}

impl<T: Item> Unique<T> {
    fn verify(&self) {
        assert_eq!(self.buffer.len(), self.shadow.len());
        assert!(
            self.buffer[..] == self.shadow[..],
            "a unique buffer has changed"
        );
    }

    fn write(&mut self, at: usize, seed: u8) {
        let len = self.shadow.len();
        if len > 0 {
            self.buffer[at % len] = T::of(seed.into());
            self.shadow[at % len] = T::of(seed.into());
        }
        self.verify();
    }

    fn share(self) -> Group<T> {
        self.verify();
        let shared = self.buffer.share();
        let group = Group {
            handles: vec![shared.handle()],
            shadow: self.shadow,
            views: vec![View { shared, start: 0 }],
            tokens: Vec::new(),
            read_only: false,
            home: self.home,
        };
        group.verify();
        group
    }
}

impl<T: Item> Group<T> {
    fn owners(&self) -> usize {
        self.views.len() + self.tokens.len()
    }

    fn verify(&self) {
        for view in &self.views {
            let shadow = &self.shadow[view.start..][..view.shared.len()];
            assert!(view.shared[..] == *shadow, "a shared buffer has changed");
            assert_eq!(view.shared.owners() as usize, self.owners());
        }
        for handle in &self.handles {
            assert_eq!(handle.owners() as usize, self.owners());
            assert_eq!(handle.is_unique(), self.owners() == 1);
            assert!(!handle.is_released());
        }
    }

    /// Without owners: what named the buffer is stale from here on.
    fn bury(self, graves: &mut Graves) {
        assert!(self.views.is_empty() && self.tokens.is_empty());
        for handle in self.handles {
            assert!(handle.is_released() && handle.owners() == 0);
            graves.handles.push(handle);
        }
    }

    fn step(&mut self, on: On, graves: &mut Graves) {
        match on {
            On::CloneView(_, pick) => {
                if let Some(at) = choose(&self.views, pick) {
                    let View { shared, start } = &self.views[at];
                    let (shared, start) = (shared.clone(), *start);
                    self.views.push(View { shared, start });
                }
            }
            On::Slice(_, pick, from, to) => self.slice(pick, from.into(), to.into()),
            On::DropView(_, pick) => {
                if let Some(at) = choose(&self.views, pick) {
                    self.views.swap_remove(at);
                }
            }
            On::Reinterpret(_, pick) => {
                if let Some(at) = choose(&self.views, pick) {
                    T::look_otherwise(&self.views[at].shared);
                    self.names_only_its_own_type(at);
                }
            }
            On::Name(_) => {
                if let Some(view) = self.views.first()
                    && self.handles.len() < 4
                {
                    self.handles.push(view.shared.handle());
                }
            }
            On::Upgrade(_, pick) => {
                if let Some(at) = choose(&self.handles, pick) {
                    let shared = self.handles[at]
                        .upgrade()
                        .expect("a live handle was refused");
                    assert_eq!(shared.len(), self.shadow.len());
                    self.views.push(View { shared, start: 0 });
                }
            }
            On::IntoToken(_, pick) => {
                if let Some(at) = choose(&self.views, pick) {
                    let View { shared, start } = self.views.swap_remove(at);
                    let len = shared.len();
                    let token = shared.into_token().expect("leases are left");
                    self.tokens.push((token, start, len));
                }
            }
            On::CloneToken(_, pick) => {
                if let Some(at) = choose(&self.tokens, pick) {
                    let (token, start, len) = self.tokens[at];
                    let clone = token.clone_token().expect("a live token was refused");
                    self.tokens.push((clone, start, len));
                }
            }
            On::Redeem(_, pick) => {
                if let Some(at) = choose(&self.tokens, pick) {
                    let (token, start, len) = self.tokens.swap_remove(at);
                    assert!(token.redeem::<i16>().is_err(), "redeemed as another type");
                    let shared = token.redeem::<T>().expect("a live token was refused");
                    assert_eq!(shared.len(), len);
                    self.views.push(View { shared, start });
                    graves.tokens.push(token);
                }
            }
            On::ReleaseToken(_, pick) => {
                if let Some(at) = choose(&self.tokens, pick) {
                    let (token, ..) = self.tokens.swap_remove(at);
                    token.release().expect("a live token was refused");
                    assert!(token.release().is_err(), "a token was released twice");
                    graves.tokens.push(token);
                }
            }
            _ => {}
        }
    }

    fn slice(&mut self, pick: Pick, from: usize, to: usize) {
        let Some(at) = choose(&self.views, pick) else {
            return;
        };
        let View { shared, start } = &self.views[at];
        let (len, start) = (shared.len(), *start);
        let wide = shared.slice(from..to);
        assert_eq!(
            wide.is_ok(),
            from <= to && to <= len,
            "{from}..{to} of {len}"
        );
        drop(wide);
        let (from, to) = (from % (len + 1), to % (len + 1));
        let (from, to) = (from.min(to), from.max(to));
        let shared = shared.slice(from..to).expect("within the view");
        self.views.push(View {
            shared,
            start: start + from,
        });
    }

    /// A handle is refused for another element type, and the refusal leaves the count alone.
    fn names_only_its_own_type(&self, at: usize) {
        let handle = self.views[at].shared.handle();
        let refused = handle
            .upgrade::<i16>()
            .expect_err("upgraded as another type");
        assert_eq!(refused.reason, StaleReason::OtherElement);
    }
}
