//! The bytes of released buffers: wiped, filled with a pattern, looked at again.

#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use core::slice;

use zeroize::Zeroize;

use crate::block::{Block, Kind};
use crate::constants::watch::PATTERN;
use crate::kernel::block::Label;

/// A byte that is not the pattern any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// Bytes from the begin of the filled range.
    pub(super) offset: usize,
    /// What is there.
    pub(super) found: u8,
}

/// The whole memory of a block of the pool's own; empty for one that has none.
///
/// # Safety
/// The block with this label, of `capacity` bytes at `base`, is the caller's alone, for as long as it
/// uses the result.
unsafe fn memory<'a>(label: Label, base: *mut u8, capacity: usize) -> &'a mut [MaybeUninit<u8>] {
    if Kind::of(label) != Kind::Pooled {
        return &mut [];
    }
    // SAFETY: a pooled block has `capacity` bytes at its base, and they are the caller's alone.
    unsafe { slice::from_raw_parts_mut(base.cast(), capacity) }
}

/// As [`memory`], by the block.
///
/// # Safety
/// The block is the caller's alone, for as long as it uses the result.
unsafe fn memory_of<'a>(block: &'static Block) -> &'a mut [MaybeUninit<u8>] {
    // SAFETY: the caller's block.
    let label = unsafe { block.label() };
    // SAFETY: the caller's block.
    let (base, capacity) = unsafe { block.payload(|payload| (payload.base, payload.capacity)) };
    // SAFETY: the caller's promise; these are the block's own.
    unsafe { memory(label, base, capacity) }
}

/// Overwrites the whole memory of a block with zeroes, in writes that no optimiser removes.
///
/// # Safety
/// The block is the caller's alone.
pub(super) unsafe fn wipe(block: &'static Block) {
    // SAFETY: the caller's promise.
    let memory = unsafe { memory_of(block) };
    memory.zeroize();
}

/// Fills the whole memory of a block with the pattern; from here on it may be touched only after
/// [`unseal`], which AddressSanitizer is told where it is in use.
///
/// # Safety
/// The block is the caller's alone.
pub(super) unsafe fn seal(block: &'static Block) {
    // SAFETY: the caller's promise.
    let memory = unsafe { memory_of(block) };
    memory.fill(MaybeUninit::new(PATTERN));
    asan::poison(memory);
}

/// Says what has changed in a block since [`seal`], if anything, and makes it accessible.
///
/// # Safety
/// The block with this label, of `capacity` bytes at `base`, was sealed, and is the caller's alone.
pub(super) unsafe fn unseal(label: Label, base: *mut u8, capacity: usize) -> Option<Change> {
    // SAFETY: the caller's promise.
    let memory = unsafe { memory(label, base, capacity) };
    asan::unpoison(memory);
    // SAFETY: every byte was written by `seal`.
    first_change(unsafe { memory.assume_init_ref() })
}

/// The first byte that is not the pattern.
pub(super) fn first_change(bytes: &[u8]) -> Option<Change> {
    const PIECE: usize = 1024;
    const FILLED: [u8; PIECE] = [PATTERN; PIECE];
    let changed = bytes
        .chunks(PIECE)
        .position(|piece| piece != &FILLED[..piece.len()])?;
    let begin = changed * PIECE;
    let within = bytes[begin..].iter().position(|&byte| byte != PATTERN)?;
    Some(Change {
        offset: begin + within,
        found: bytes[begin + within],
    })
}

/// What AddressSanitizer is told: builds for it pass `--cfg ndpool_asan`.
#[cfg(ndpool_asan)]
mod asan {
    use core::ffi::c_void;
    use core::mem::MaybeUninit;

    unsafe extern "C" {
        fn __asan_poison_memory_region(begin: *const c_void, size: usize);
        fn __asan_unpoison_memory_region(begin: *const c_void, size: usize);
    }

    pub(super) fn poison(memory: &mut [MaybeUninit<u8>]) {
        // SAFETY: the range is the caller's; what it forbids, the caller allows again.
        unsafe { __asan_poison_memory_region(memory.as_ptr().cast(), memory.len()) };
    }

    pub(super) fn unpoison(memory: &mut [MaybeUninit<u8>]) {
        // SAFETY: the range is the caller's.
        unsafe { __asan_unpoison_memory_region(memory.as_ptr().cast(), memory.len()) };
    }
}

#[cfg(not(ndpool_asan))]
mod asan {
    use core::mem::MaybeUninit;

    pub(super) fn poison(_memory: &mut [MaybeUninit<u8>]) {}

    pub(super) fn unpoison(_memory: &mut [MaybeUninit<u8>]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_changed_byte_is_found_wherever_it_is() {
        let mut bytes = vec![PATTERN; 5000];
        assert_eq!(first_change(&bytes), None);
        assert_eq!(first_change(&[]), None);
        for offset in [4999, 4096, 1024, 1023, 1, 0] {
            bytes[offset] = 7;
            assert_eq!(first_change(&bytes), Some(Change { offset, found: 7 }));
        }
    }
}
