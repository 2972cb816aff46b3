//! Take, bound to sources and configuration: the hit inlined, the rest a mirror of
//! `kernel::tiers`, with the birth at its end.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;

use crate::block::{
    self, Block, Bound, Cache, Core, Holder, Kind, Payload, WORLD, class_layout, natural_align,
};
use crate::class;
use crate::constants::pool::MIN_ALIGN;
use crate::error::{AllocError, AllocErrorKind};
use crate::kernel::backing::Backing;
use crate::kernel::block::{Label, UNCLASSED};
use crate::kernel::cache::Class;
use crate::kernel::core::BirthError;
use crate::source::Memory;
use crate::thread::{self, Place};
use crate::timeline::EventKind;
use crate::trimmer;

/// A block that was just taken, with what a drop needs to know.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) block: &'static Block,
    pub(crate) base: NonNull<u8>,
    pub(crate) class: Class,
    pub(crate) place: Place,
    /// Whether the memory is known to be zero.
    pub(crate) zeroed: bool,
}

/// What refuses, in the errors of pools and of memory that has none.
pub(crate) const NAME: &str = "pool";
const FOREIGN: &str = "foreign memory";

/// Bytes of `len` elements; more than `isize::MAX` of them have no class, and are refused later.
#[inline]
pub(crate) fn bytes_of<T>(len: usize) -> Result<usize, AllocError> {
    match len.checked_mul(size_of::<T>()) {
        Some(bytes) => Ok(bytes),
        None => Err(overflow(align_of::<T>())),
    }
}

#[cold]
fn overflow(align: usize) -> AllocError {
    AllocError::new(AllocErrorKind::Overflow, usize::MAX, align, NAME)
}

/// Takes a block of `bytes` bytes. The hit path is inlined: class, table, pop.
///
/// # Safety
/// The caller holds a handle or a block of the pool; `place` is the pool's.
#[inline(always)]
pub(crate) unsafe fn take(
    core: &'static Core,
    place: Place,
    bytes: usize,
    align: usize,
) -> Result<Taken, AllocError> {
    let class = class::of(bytes);
    if align <= MIN_ALIGN
        && class < class::COUNT
        && let Some(block) = thread::pop(place, Class::new(class))
    {
        return Ok(Taken {
            block,
            base: base_of(block),
            class: Class::new(class),
            place,
            zeroed: false,
        });
    }
    // SAFETY: the caller's promise.
    unsafe { take_slow(core, bytes, align, false) }
}

/// First byte of a block that the caller has just taken.
#[inline(always)]
fn base_of(block: &'static Block) -> NonNull<u8> {
    // SAFETY: the block was just taken: the caller's alone.
    let base = unsafe { block.payload(|payload| payload.base) };
    // SAFETY: a pooled block has memory.
    unsafe { NonNull::new_unchecked(base) }
}

/// Takes a block of `bytes` bytes whose contents are zero.
///
/// # Safety
/// As [`take`].
pub(crate) unsafe fn take_zeroed(
    core: &'static Core,
    place: Place,
    bytes: usize,
    align: usize,
) -> Result<Taken, AllocError> {
    let hit = if align <= MIN_ALIGN {
        thread::pop(place, Class::new(class::of(bytes)))
    } else {
        None
    };
    let taken = match hit {
        Some(block) => described(core, block, false),
        // SAFETY: the caller's promise.
        None => unsafe { take_slow(core, bytes, align, true) }?,
    };
    if !taken.zeroed {
        // SAFETY: the caller holds the pool, and the block is ours.
        unsafe { clear(core, &taken, bytes) };
    }
    Ok(Taken {
        zeroed: true,
        ..taken
    })
}

/// Zeroes the first `bytes` bytes of a recycled block.
///
/// # Safety
/// The caller holds the pool of `core`, and the block, which holds `bytes` bytes at least.
unsafe fn clear(core: &'static Core, taken: &Taken, bytes: usize) {
    // SAFETY: the caller's block.
    let label = unsafe { taken.block.label() };
    if Kind::of(label) == Kind::Pooled {
        // SAFETY: the caller holds the pool.
        let backing = unsafe { core.backing() };
        // SAFETY: the caller's block.
        let (layout, token) = unsafe {
            taken
                .block
                .payload(|p| (block::layout_of(label, p), p.token))
        };
        // SAFETY: the block came from this source with this layout and token.
        if unsafe { backing.source.discard(taken.base, layout, token, bytes) } {
            return;
        }
    }
    // SAFETY: the caller's block, `bytes` long at least.
    unsafe { taken.base.write_bytes(0, bytes) };
}

fn described(core: &'static Core, block: &'static Block, zeroed: bool) -> Taken {
    Taken {
        block,
        base: base_of(block),
        // SAFETY: the block was just taken: the caller's alone.
        class: Class::new(unsafe { block.label() }.class.into()),
        place: Place::of(core),
        zeroed,
    }
}

/// Everything but the hit.
///
/// # Safety
/// The caller holds a handle or a block of the pool.
#[cold]
#[inline(never)]
pub(crate) unsafe fn take_slow(
    core: &'static Core,
    bytes: usize,
    align: usize,
    zeroed: bool,
) -> Result<Taken, AllocError> {
    // SAFETY: the caller's promise.
    let backing = unsafe { core.backing() };
    // SAFETY: the caller's promise.
    let taken = unsafe { take_from_tiers(core, backing, bytes, align, zeroed) }?;
    if let Some(watch) = &backing.watch {
        // SAFETY: just taken from this pool.
        unsafe { watch.taken(taken.block, bytes, align) };
    }
    // SAFETY: as above.
    unsafe { backing.operated(EventKind::Allocate, taken.block) };
    Ok(taken)
}

/// A block from the tiers, or a new one.
///
/// # Safety
/// As [`take_slow`].
unsafe fn take_from_tiers(
    core: &'static Core,
    backing: &Bound,
    bytes: usize,
    align: usize,
    zeroed: bool,
) -> Result<Taken, AllocError> {
    if bytes == 0 {
        // SAFETY: the caller's promise.
        return unsafe { empty(core, align) };
    }
    if bytes > isize::MAX as usize {
        return Err(overflow(align));
    }
    let Some(class) = class_for(backing, bytes, align) else {
        let layout = unclassed_layout(backing, bytes, align)?;
        let cache = thread::existing_cache(core);
        // SAFETY: the caller's promise; the cache is this thread's, bound to the pool.
        return unsafe { birth(core, backing, UNCLASSED, layout, cache, zeroed) };
    };
    // SAFETY: the caller's promise.
    let cache = unsafe { thread::cache(core) };
    // SAFETY: the caller's promise; the cache is this thread's.
    unsafe { trimmer::tick(core, backing, cache) };
    // SAFETY: the caller's promise; the cache is this thread's, bound to the pool.
    let found = unsafe { core.take_slow(cache, class) }.or_else(|| {
        let last = backing.last_serving(class);
        // SAFETY: as above.
        unsafe { core.take_larger(cache, class, last) }
    });
    let taken = match found {
        Some(block) => described(core, block, false),
        None => {
            let layout = class_layout(class);
            // SAFETY: the caller's promise.
            unsafe { birth(core, backing, class as u8, layout, cache, zeroed) }?
        }
    };
    if let Some(cache) = cache
        && backing.rounds(taken.class.index()) == 0
    {
        cache.credit(taken.class.index());
    }
    Ok(taken)
}

/// A block of `bytes` bytes from the pool of another block.
///
/// # Safety
/// The caller owns a share of the block.
#[inline]
pub(crate) unsafe fn beside(
    block: &'static Block,
    bytes: usize,
    align: usize,
) -> Result<Taken, AllocError> {
    // SAFETY: the caller's block.
    let core = unsafe { block.core() };
    // SAFETY: cores are cells of a static arena.
    match unsafe { core.as_ref() } {
        // SAFETY: the caller's block keeps the pool alive.
        Some(core) => unsafe { take(core, Place::of(core), bytes, align) },
        None => Err(AllocError::new(
            AllocErrorKind::Unsupported,
            bytes,
            align,
            FOREIGN,
        )),
    }
}

/// Bytes that a request for `bytes` bytes at `align` reports.
pub(crate) fn capacity(backing: &Bound, bytes: usize, align: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    match class_for(backing, bytes, align) {
        Some(class) => class::capacity(class),
        None => unclassed_layout(backing, bytes, align).map_or(bytes, |layout| layout.size()),
    }
}

/// The class that serves a request, if any does.
fn class_for(backing: &Bound, bytes: usize, align: usize) -> Option<usize> {
    if backing.is_guarding() {
        return None;
    }
    let class = class::of(bytes);
    (class < backing.classes && align <= natural_align(class::capacity(class))).then_some(class)
}

/// Layout of a block that no class serves: oversized, over-aligned, or to end at a guard.
fn unclassed_layout(backing: &Bound, bytes: usize, align: usize) -> Result<Layout, AllocError> {
    let error = || AllocError::new(AllocErrorKind::TooLarge, bytes, align, NAME);
    if backing.is_guarding() {
        return Layout::from_size_align(bytes, align).map_err(|_| error());
    }
    let align = align.max(natural_align(bytes));
    let unit = align.min(crate::os::page_size());
    let size = bytes.checked_next_multiple_of(unit).ok_or_else(error)?;
    // Room for the alignment as well, so that every source can look for an aligned place.
    let room = size.checked_add(align).ok_or_else(error)?;
    if room > isize::MAX as usize {
        return Err(error());
    }
    Layout::from_size_align(size, align).map_err(|_| error())
}

/// A block without memory.
///
/// # Safety
/// As [`take_slow`].
unsafe fn empty(core: &'static Core, align: usize) -> Result<Taken, AllocError> {
    let align = align.max(MIN_ALIGN);
    let label = Label {
        class: UNCLASSED,
        align: align.trailing_zeros() as u8,
        kind: Kind::Empty as u8,
        flags: 0,
    };
    let payload = Payload {
        base: core::ptr::without_provenance_mut(align),
        capacity: 0,
        ..Bound::NO_PAYLOAD
    };
    // SAFETY: the caller's promise.
    let block = unsafe { core.birth::<AllocError>(label, || Ok(payload)) }
        .map_err(|error| birth_error(error, 0, align))?;
    Ok(described(core, block, true))
}

/// A block with memory from the source: charge, control block, memory, in this order; a failure
/// takes the earlier steps back.
///
/// # Safety
/// As [`take_slow`].
unsafe fn birth(
    core: &'static Core,
    backing: &Bound,
    class: u8,
    layout: Layout,
    cache: Option<&'static Cache>,
    zeroed: bool,
) -> Result<Taken, AllocError> {
    let charge = if class == UNCLASSED {
        backing.source.footprint(layout)
    } else {
        backing.class_charge(usize::from(class))
    };
    if charge == usize::MAX {
        // The source says that it cannot: nothing is sent home for it.
        let kind = AllocErrorKind::TooLarge;
        return Err(AllocError::new(kind, layout.size(), layout.align(), NAME));
    }
    // SAFETY: the caller's promise.
    unsafe { admit(core, backing, charge, layout, cache) }?;
    let label = Label {
        class,
        align: layout.align().trailing_zeros() as u8,
        kind: Kind::Pooled as u8,
        flags: 0,
    };
    let mut known_zero = false;
    let make = || {
        let Memory {
            base,
            zeroed,
            token,
        } = backing.source.alloc(layout, zeroed)?;
        known_zero = zeroed;
        Ok(Payload {
            base: base.as_ptr(),
            capacity: layout.size(),
            token,
            ..Bound::NO_PAYLOAD
        })
    };
    // SAFETY: the caller's promise.
    match unsafe { core.birth(label, make) } {
        Ok(block) => {
            core.ledger.born(charge, &backing.policy);
            Ok(described(core, block, known_zero))
        }
        Err(error) => {
            core.ledger.unborn(charge);
            if matches!(error, BirthError::NoMemory(_)) {
                backing.turned_down(EventKind::Failure, layout.size());
            }
            Err(birth_error(error, layout.size(), layout.align()))
        }
    }
}

fn birth_error(error: BirthError<AllocError>, bytes: usize, align: usize) -> AllocError {
    match error {
        BirthError::NoMemory(error) => error,
        BirthError::NoBlock => AllocError::new(AllocErrorKind::BlocksExhausted, bytes, align, NAME),
    }
}

/// Charges a birth: keeps the footprint promise by sending resting blocks home first, and refuses
/// at the hard limit only when nothing is left to reclaim.
///
/// # Safety
/// As [`take_slow`].
unsafe fn admit(
    core: &'static Core,
    backing: &Bound,
    charge: usize,
    layout: Layout,
    cache: Option<&'static Cache>,
) -> Result<(), AllocError> {
    if charge > backing.policy.limit {
        // Nothing that could be reclaimed would make room.
        return Err(refused(core, backing, layout, core.ledger.held()));
    }
    loop {
        // Without a limit what is within reach is in use then; at the limit, everybody's caches come next.
        if core.admit(charge, cache).is_ok() {
            return Ok(());
        }
        if let Some(watch) = &backing.watch {
            watch.drain();
        }
        // SAFETY: the caller's promise; the cache is this thread's, bound to the pool.
        let freed = unsafe { core.trim(cache) };
        let Err(reserved) = core.ledger.admit_bare(charge, &backing.policy) else {
            return Ok(());
        };
        // The callback is not called inside of a trim, where what it waits for may be to come.
        if freed == 0 && (core.has_turn() || !backing.reclaim(charge)) {
            return Err(refused(core, backing, layout, reserved));
        }
    }
}

#[cold]
fn refused(core: &Core, backing: &Bound, layout: Layout, reserved: usize) -> AllocError {
    let limit = backing.policy.limit;
    backing.turned_down(EventKind::Refusal { limit }, layout.size());
    let resting = core.ledger.resting().min(reserved);
    AllocError::new(
        AllocErrorKind::LimitExceeded,
        layout.size(),
        layout.align(),
        NAME,
    )
    .with_limit(reserved - resting, resting, limit)
}

/// A block for memory that belongs to no pool.
pub(crate) fn foreign(
    ptr: NonNull<u8>,
    bytes: usize,
    align: usize,
    holder: Holder,
    flags: u8,
) -> Result<&'static Block, AllocError> {
    unpooled(ptr, bytes, align, Kind::Foreign, flags, || {
        block::foreign_token(holder)
    })
}

/// A block for memory that is borrowed for ever.
pub(crate) fn borrowed(
    ptr: NonNull<u8>,
    bytes: usize,
    align: usize,
) -> Result<&'static Block, AllocError> {
    unpooled(ptr, bytes, align, Kind::Borrowed, block::READ_ONLY, || 0)
}

fn unpooled(
    ptr: NonNull<u8>,
    bytes: usize,
    align: usize,
    kind: Kind,
    flags: u8,
    token: impl FnOnce() -> usize,
) -> Result<&'static Block, AllocError> {
    let (_, block) = WORLD
        .blocks
        .claim()
        .map_err(|_| AllocError::new(AllocErrorKind::BlocksExhausted, bytes, align, FOREIGN))?;
    let label = Label {
        class: UNCLASSED,
        align: align.trailing_zeros() as u8,
        kind: kind as u8,
        flags,
    };
    let payload = Payload {
        base: ptr.as_ptr(),
        capacity: bytes,
        token: token(),
        ..Bound::NO_PAYLOAD
    };
    // SAFETY: just claimed.
    unsafe { block.fill(label, core::ptr::null(), payload) };
    Ok(block)
}
