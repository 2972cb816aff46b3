//! The control block: 64 bytes out of line that name a payload, say who owns it, and outlive it.

#![allow(unsafe_code)]

use super::arena::Cell;
use super::backing::Backing;
use super::core::Core;
use super::state::State;
use super::sync::{UnsafeCell, const_fn};

/// Class of a block that no magazine takes: oversized, over-aligned, empty or foreign.
pub const UNCLASSED: u8 = u8::MAX;

/// Plain facts about a block, written at its birth.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// Size class, or [`UNCLASSED`].
    pub class: u8,
    /// Alignment of the payload, as a power of two.
    pub align: u8,
    /// What kind of memory this is; the binding's own numbering.
    pub kind: u8,
    /// The binding's own flags.
    pub flags: u8,
}

/// A control block. Its fields other than `state` belong to the unique owner of the block; shared
/// owners read them.
#[repr(C, align(64))]
pub struct Block<S: Backing> {
    /// Who owns the block.
    pub state: State,
    index: u32,
    label: UnsafeCell<Label>,
    core: UnsafeCell<*const Core<S>>,
    payload: UnsafeCell<S::Payload>,
}

// SAFETY: `state` is atomic; the other fields follow the ownership that it keeps.
unsafe impl<S: Backing> Send for Block<S> {}
// SAFETY: as above.
unsafe impl<S: Backing> Sync for Block<S> {}

impl<S: Backing> Cell for Block<S> {
    const PER_SLAB: usize = S::BLOCKS_PER_SLAB;

    fn new(index: u32) -> Self {
        Self {
            state: State::new(),
            index,
            label: UnsafeCell::new(Label {
                class: UNCLASSED,
                align: 0,
                kind: 0,
                flags: 0,
            }),
            core: UnsafeCell::new(core::ptr::null()),
            payload: UnsafeCell::new(S::NO_PAYLOAD),
        }
    }
}

impl<S: Backing> Block<S> {
    const_fn! {
        /// A block outside of every arena: immortal, without memory, named by no handle.
        pub fn immortal() -> Block<S> {
            Block {
                state: State::immortal(),
                index: u32::MAX,
                label: UnsafeCell::new(Label {
                    class: UNCLASSED,
                    align: 0,
                    kind: u8::MAX,
                    flags: u8::MAX,
                }),
                core: UnsafeCell::new(core::ptr::null()),
                payload: UnsafeCell::new(S::NO_PAYLOAD),
            }
        }
    }

    /// Index of the block in its arena.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The block's label.
    ///
    /// # Safety
    /// The caller owns the block, uniquely or as one of its shared owners.
    #[inline]
    pub unsafe fn label(&self) -> Label {
        // SAFETY: nobody writes while the block has an owner other than the writer.
        self.label.with(|label| unsafe { *label })
    }

    /// Sets and clears flags of the binding's own.
    ///
    /// # Safety
    /// The caller owns the block uniquely.
    pub unsafe fn set_flags(&self, set: u8, clear: u8) {
        self.label.with_mut(|label| {
            // SAFETY: the unique owner is the only one that reads or writes.
            let label = unsafe { &mut *label };
            label.flags = (label.flags | set) & !clear;
        });
    }

    /// The pool's core, or null for memory that belongs to no pool.
    ///
    /// # Safety
    /// As [`label`](Self::label).
    #[inline]
    pub unsafe fn core(&self) -> *const Core<S> {
        // SAFETY: nobody writes while the block has an owner other than the writer.
        self.core.with(|core| unsafe { *core })
    }

    /// Reads the payload.
    ///
    /// # Safety
    /// As [`label`](Self::label).
    #[inline]
    pub unsafe fn payload<R>(&self, read: impl FnOnce(&S::Payload) -> R) -> R {
        // SAFETY: nobody writes while the block has an owner other than the writer.
        self.payload.with(|payload| read(unsafe { &*payload }))
    }

    /// Writes the payload.
    ///
    /// # Safety
    /// The caller owns the block uniquely.
    #[inline]
    pub unsafe fn payload_mut<R>(&self, write: impl FnOnce(&mut S::Payload) -> R) -> R {
        // SAFETY: the unique owner is the only one that reads or writes.
        self.payload
            .with_mut(|payload| write(unsafe { &mut *payload }))
    }

    /// Writes everything that a birth decides.
    ///
    /// # Safety
    /// The caller has just claimed the block from its arena.
    pub unsafe fn fill(&self, label: Label, core: *const Core<S>, payload: S::Payload) {
        // SAFETY: a claimed block has no other owner.
        self.label.with_mut(|place| unsafe { *place = label });
        // SAFETY: as above.
        self.core.with_mut(|place| unsafe { *place = core });
        // SAFETY: as above.
        self.payload.with_mut(|place| unsafe { *place = payload });
    }
}
