//! Leases: one share of a block each, named by a slot and its generation. The word is the only
//! judge: releasing, cloning and redeeming check it by CAS, so a second release of the same lease
//! is refused for ever and never touches another owner.

use super::arena::{Arena, Cell, Exhausted};
use super::sync::{AtomicU64, AtomicUsize, Ordering};

/// Low bit of the word: the lease is live. The other bits of the low half are its generation.
const LIVE: u64 = 1;

/// One lease slot.
#[derive(Debug)]
pub struct Lease {
    index: u32,
    /// `generation << 1 | live`, 33 bits used.
    word: AtomicU64,
    /// What the lease holds a share of: the bits of a handle.
    target: AtomicU64,
    /// The holder's own word, for example a slice of the target.
    start: AtomicUsize,
    /// As `start`.
    len: AtomicUsize,
    /// As `start`: names the element type.
    element: AtomicUsize,
}

/// What a lease holds; plain words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Bits of a handle to the block.
    pub target: u64,
    /// The holder's own.
    pub start: usize,
    /// The holder's own.
    pub len: usize,
    /// The holder's own.
    pub element: usize,
}

/// Not a live lease: released already, redeemed, or never made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stray;

impl Cell for Lease {
    const PER_SLAB: usize = super::tuning::LEASES_PER_SLAB;

    fn new(index: u32) -> Self {
        Self {
            index,
            word: AtomicU64::new(0),
            target: AtomicU64::new(0),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            element: AtomicUsize::new(0),
        }
    }
}

/// Leases a share: the name of the lease, in 64 bits.
pub fn lease(arena: &Arena<Lease>, content: Content) -> Result<u64, Exhausted> {
    let (index, lease) = arena.claim()?;
    // Ordering: Release - E16, with `peek`: whoever reads a word of this lease sees that the lease
    // before it has ended, and takes the word for no part of that.
    lease.target.swap(content.target, Ordering::Release);
    // Ordering: Release - E16, with `peek`: as above.
    lease.start.swap(content.start, Ordering::Release);
    // Ordering: Release - E16, with `peek`: as above.
    lease.len.swap(content.len, Ordering::Release);
    // Ordering: Release - E16, with `peek`: as above.
    lease.element.swap(content.element, Ordering::Release);
    // Ordering: Relaxed - the claimed slot is ours alone, its word is not live.
    let generation = lease.word.load(Ordering::Relaxed) >> 1;
    // Ordering: Release - E15, with `peek` and `end`: the content is visible to who sees it live.
    lease.word.swap(generation << 1 | LIVE, Ordering::Release);
    Ok(generation << 32 | u64::from(index))
}

/// The content of a lease, if it is live.
pub fn peek(arena: &Arena<Lease>, name: u64) -> Result<Content, Stray> {
    let (lease, live) = find(arena, name)?;
    // Ordering: Acquire - E15, with `lease`: the content of this generation, or a later one.
    if lease.word.load(Ordering::Acquire) != live {
        return Err(Stray);
    }
    let content = Content {
        // Ordering: Acquire - E16, with `lease`: if this is of a later lease, the second look at
        // the word below sees so.
        target: lease.target.load(Ordering::Acquire),
        // Ordering: Acquire - E16, with `lease`: as above.
        start: lease.start.load(Ordering::Acquire),
        // Ordering: Acquire - E16, with `lease`: as above.
        len: lease.len.load(Ordering::Acquire),
        // Ordering: Acquire - E16, with `lease`: as above.
        element: lease.element.load(Ordering::Acquire),
    };
    // Ordering: Relaxed - the loads above keep their order with it, and with them the end of this
    // lease is seen if they have read a later one: still live, so what was read is its own.
    if lease.word.load(Ordering::Relaxed) != live {
        return Err(Stray);
    }
    Ok(content)
}

/// Ends a lease, exactly once: its share is the caller's.
pub fn end(arena: &Arena<Lease>, name: u64) -> Result<Content, Stray> {
    let (lease, live) = find(arena, name)?;
    let content = peek(arena, name)?;
    let generation = live >> 1;
    // Ordering: Acquire - E15, with `lease`: what the leaser did to the payload is visible.
    lease
        .word
        .compare_exchange(
            live,
            (generation + 1) << 1,
            Ordering::Acquire,
            Ordering::Relaxed,
        )
        .map_err(|_| Stray)?;
    // A slot at its last generation retires: its name would come round again.
    if generation < u64::from(super::tuning::LAST_GENERATION) {
        arena.release(lease.index);
    }
    Ok(content)
}

fn find(arena: &Arena<Lease>, name: u64) -> Result<(&Lease, u64), Stray> {
    let lease = arena.get(name as u32).ok_or(Stray)?;
    Ok((lease, (name >> 32) << 1 | LIVE))
}
