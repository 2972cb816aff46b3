//! The bytes of released buffers.

#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use core::slice;

use zeroize::Zeroize;

use crate::block::{Block, Kind};

/// The whole memory of a block of the pool's own; empty for one that has none.
///
/// # Safety
/// The block is the caller's alone, for as long as it uses the result.
unsafe fn memory<'a>(block: &'static Block) -> &'a mut [MaybeUninit<u8>] {
    // SAFETY: the caller's block.
    let label = unsafe { block.label() };
    if Kind::of(label) != Kind::Pooled {
        return &mut [];
    }
    // SAFETY: the caller's block.
    let (base, capacity) = unsafe { block.payload(|payload| (payload.base, payload.capacity)) };
    // SAFETY: a pooled block has `capacity` bytes at its base, and they are the caller's alone.
    unsafe { slice::from_raw_parts_mut(base.cast(), capacity) }
}

/// Overwrites the whole memory of a block with zeroes, in writes that no optimiser removes.
///
/// # Safety
/// The block is the caller's alone.
pub(super) unsafe fn wipe(block: &'static Block) {
    // SAFETY: the caller's promise.
    let memory = unsafe { memory(block) };
    memory.zeroize();
}
