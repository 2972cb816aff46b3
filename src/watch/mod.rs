//! What a pool with checks does at each take and give. A pool without checks has no [`Watch`], and
//! no code of this folder runs for it.
//!
//! | file | what |
//! |---|---|
//! | `checks` | [`Checks`], in the builder or by `NDPOOL_CHECK` |
//! | `contents` | wiping, poison |
//! | `guard` | a source whose blocks end at an inaccessible page |
//! | `quarantine` | released blocks, held back for a while |
//! | `site`, `table` | a stack of addresses; something beside each cell of an arena |
//! | `record`, `lease` | who took a block last; whose a token was |

#![allow(unsafe_code)]

mod checks;
mod contents;
mod guard;
pub(crate) mod lease;
mod quarantine;
pub(crate) mod record;
mod site;
mod table;

use core::ptr::NonNull;
use std::sync::Arc;

pub use checks::{CheckError, Checks, LeakLevel};
pub use site::{History, Site};

use crate::block::{self, Block, Core, Kind, Payload, RECORDED, RESTED};
use crate::error::{AllocError, AllocErrorKind};
use crate::kernel::backing::Backing;
use crate::kernel::block::Label;
use crate::report::{self, Report};
use crate::source::Source;
use crate::sync::Counter;
use contents::Change;
use quarantine::Quarantine;

/// The checks of one pool.
pub(crate) struct Watch {
    checks: Checks,
    quarantine: Option<Arc<Quarantine>>,
    /// Takes so far, where some of them are sampled.
    takes: Counter,
}

/// Whether the `nth` of all is one of the sampled, one in `n`; none if that is 0.
fn is_sampled(nth: u64, n: u32) -> bool {
    n > 0 && nth.is_multiple_of(u64::from(n))
}

impl Watch {
    /// A watch, if there is anything to check, or if `operations` are to be seen one by one.
    pub(crate) fn new(checks: Checks, operations: bool) -> Option<Box<Self>> {
        (checks.is_any() || operations).then(|| {
            let limit = checks.quarantine;
            Box::new(Self {
                checks,
                quarantine: (limit > 0).then(|| Arc::new(Quarantine::new(limit))),
                takes: Counter::new(),
            })
        })
    }

    /// What the pool looks for.
    pub(crate) fn checks(&self) -> Checks {
        self.checks
    }

    /// Whether every block is to end at a guard.
    pub(crate) fn is_guarding(&self) -> bool {
        self.checks.guard
    }

    /// Whether released payloads hold the pattern.
    fn is_poisoning(&self) -> bool {
        // What a guard protects is unmapped or inaccessible instead.
        self.checks.poison && !self.checks.guard
    }

    /// Whether there are records at all.
    fn is_recording(&self) -> bool {
        self.checks.leaks != LeakLevel::Off || self.checks.backtraces > 0
    }

    /// After each take that succeeded, for a request of `bytes` bytes at `align`.
    ///
    /// # Safety
    /// The block, of the watched pool, was just taken: the caller's alone.
    pub(crate) unsafe fn taken(&self, block: &'static Block, _bytes: usize, _align: usize) {
        // SAFETY: the caller's block.
        let label = unsafe { block.label() };
        if label.flags & RESTED != 0 {
            if self.is_poisoning() {
                // SAFETY: the caller's block, with this label.
                unsafe { self.verify(block, label) };
            }
            // SAFETY: the caller's block.
            unsafe { block.set_flags(0, RESTED) };
        }
        if self.is_recording() {
            // SAFETY: the caller's block.
            unsafe { self.record(block) };
        }
    }

    /// Looks whether a block that rested still holds the pattern.
    ///
    /// # Safety
    /// The block, with this label, was sealed when it was given, and is the caller's alone.
    unsafe fn verify(&self, block: &'static Block, label: Label) {
        // SAFETY: the caller's block.
        let (base, capacity) = unsafe { block.payload(|p| (p.base, p.capacity)) };
        // SAFETY: the caller's promise.
        if let Some(Change { offset, found }) = unsafe { contents::unseal(label, base, capacity) } {
            report::emit(&Report::WrittenAfterRelease {
                address: base.addr() + offset,
                offset,
                found,
                capacity,
                // SAFETY: the caller's block.
                history: unsafe { history(block) },
            });
        }
    }

    /// Remembers who took a block, if this one is of the sample.
    ///
    /// # Safety
    /// As [`taken`](Self::taken).
    unsafe fn record(&self, block: &'static Block) {
        let nth = self.takes.tick(1);
        let leaks = match self.checks.leaks {
            LeakLevel::Off => false,
            LeakLevel::Sampled(n) => is_sampled(nth, n.max(1)),
            LeakLevel::All => true,
        };
        let traced = is_sampled(nth, self.checks.backtraces);
        if leaks || traced {
            // SAFETY: the caller's block.
            let capacity = unsafe { block.payload(|payload| payload.capacity) };
            // SAFETY: the caller's block.
            record::taken(block.index(), unsafe { life(block) }, capacity, traced);
            // SAFETY: the caller's block.
            unsafe { block.set_flags(RECORDED, 0) };
        } else {
            record::forget(block.index());
            // SAFETY: the caller's block.
            unsafe { block.set_flags(0, RECORDED) };
        }
    }

    /// Before each give, while the tiers do not know the block yet.
    ///
    /// # Safety
    /// The block, of the watched pool, is the caller's alone.
    pub(crate) unsafe fn given(&self, block: &'static Block) {
        if self.is_recording() {
            // SAFETY: the caller's block.
            record::given(block.index(), unsafe { life(block) });
        }
        // SAFETY: the caller's block.
        let label = unsafe { block.label() };
        if self.checks.guard && Kind::of(label) == Kind::Pooled {
            // SAFETY: the caller's block, with its own layout; its pool's source is the guard's.
            unsafe { check_guard(block, label) };
        }
        if self.checks.wipe {
            // SAFETY: the caller's block.
            unsafe { contents::wipe(block) };
        }
        if self.is_poisoning() {
            // SAFETY: the caller's block.
            unsafe { contents::seal(block) };
        }
        // SAFETY: the caller's block.
        unsafe { block.set_flags(RESTED, 0) };
    }

    /// Holds a block back that [`given`](Self::given) has seen. `false`: it is the caller's still.
    /// If not, the pool, and with it this watch, may be gone when this returns.
    ///
    /// # Safety
    /// As [`given`](Self::given); the caller gives the block up, and `core` is its pool's.
    pub(crate) unsafe fn hold(&self, core: &'static Core, block: &'static Block) -> bool {
        let Some(quarantine) = &self.quarantine else {
            return false;
        };
        // SAFETY: the caller's block.
        let label = unsafe { block.label() };
        // SAFETY: the caller's block.
        let (base, layout) = unsafe { block.payload(|p| (p.base, block::layout_of(label, p))) };
        // SAFETY: the caller's block keeps the pool alive.
        let backing = unsafe { core.backing() };
        // SAFETY: the caller's block.
        let charge = unsafe { block.payload(|payload| backing.charge(label, payload)) };
        if charge == 0 || !quarantine.has_room_for(charge) || core.is_closed() {
            return false;
        }
        if let Some(base) = NonNull::new(base).filter(|_| self.checks.guard) {
            // SAFETY: the caller's block, that of a guard; from the quarantine it goes to its death.
            unsafe { guard::seal(base, layout) };
        }
        // From the push on, only the quarantine itself is sure to be there.
        let quarantine = Arc::clone(quarantine);
        quarantine.push(block, charge);
        while let Some(oldest) = quarantine.pop_excess() {
            // SAFETY: it was popped: ours.
            unsafe { block::give_home(oldest) };
        }
        if core.has_closed() {
            drain(&quarantine);
        }
        true
    }

    /// Sends home what the quarantine holds; says how many blocks.
    pub(crate) fn drain(&self) -> usize {
        self.quarantine.as_ref().map_or(0, |it| drain(it))
    }

    /// Blocks and bytes that the quarantine holds.
    pub(crate) fn held(&self) -> (u64, usize) {
        self.quarantine.as_ref().map_or((0, 0), |it| it.held())
    }

    /// Before the memory of a block goes to its source.
    ///
    /// # Safety
    /// The block with this label and payload, of the watched pool, is the caller's alone.
    pub(crate) unsafe fn dying(&self, label: Label, payload: &Payload) {
        if label.flags & RESTED == 0 || !self.is_poisoning() {
            return;
        }
        // SAFETY: the caller's block, sealed when it was given.
        let change = unsafe { contents::unseal(label, payload.base, payload.capacity) };
        if let Some(Change { offset, found }) = change {
            report::emit(&Report::WrittenAfterRelease {
                address: payload.base.addr() + offset,
                offset,
                found,
                capacity: payload.capacity,
                history: History::default(),
            });
        }
    }

    /// The memory of a block moves on with a fresh control block.
    pub(crate) fn renewed(&self, block: &'static Block, fresh: &'static Block) {
        if self.is_recording() {
            record::renewed(block.index(), fresh.index());
        }
    }
}

/// Sends home what a quarantine holds; says how many blocks.
fn drain(quarantine: &Quarantine) -> usize {
    let mut blocks = 0;
    while let Some(block) = quarantine.pop() {
        // SAFETY: it was popped: ours.
        unsafe { block::give_home(block) };
        blocks += 1;
    }
    blocks
}

/// The source of a pool with these checks, if they have one of their own.
///
/// # Errors
/// [`AllocErrorKind::Unsupported`] where guard pages are asked for and cannot be had.
pub(crate) fn source_for(checks: Checks) -> Result<Option<Box<dyn Source>>, AllocError> {
    if !checks.guard {
        return Ok(None);
    }
    if !crate::os::CAN_FORBID {
        let kind = AllocErrorKind::Unsupported;
        return Err(AllocError::new(kind, 0, 0, guard::NAME));
    }
    Ok(Some(Box::new(guard::Guarded)))
}

/// Number of the pool of a block.
///
/// # Safety
/// The block, of a pool, is the caller's, alone or shared.
pub(crate) unsafe fn life(block: &'static Block) -> u64 {
    // SAFETY: the caller's block.
    let core = unsafe { block.core() };
    // SAFETY: cores are cells of a static arena.
    unsafe { core.as_ref() }.map_or(0, |core| core.life())
}

/// What is known of the owners of a block, if it is of a pool that records them.
///
/// # Safety
/// The block is the caller's, alone or shared, or at rest.
pub(crate) unsafe fn history(block: &'static Block) -> History {
    // SAFETY: the caller's promise.
    record::history(block.index(), unsafe { life(block) })
}

/// Looks at the bytes between a block and its guard.
///
/// # Safety
/// The block, with this label, is the caller's alone, and its memory is of [`guard::Guarded`].
unsafe fn check_guard(block: &'static Block, label: Label) {
    // SAFETY: the caller's block.
    let (base, layout) = unsafe { block.payload(|p| (p.base, block::layout_of(label, p))) };
    let Some(base) = NonNull::new(base) else {
        return;
    };
    // SAFETY: the caller's block.
    let Some((offset, found)) = (unsafe { guard::overrun(base, layout) }) else {
        return;
    };
    report::emit(&Report::WrittenOutside {
        address: base.addr().get().wrapping_add_signed(offset),
        offset,
        found,
        capacity: layout.size(),
        // SAFETY: the caller's block.
        history: unsafe { history(block) },
    });
}
