//! What is done to a block's bytes: touching, stamping with its owner, checking.

#![allow(unsafe_code)]

use std::hint::black_box;
use std::mem::MaybeUninit;

/// The smallest page of the systems in use; on larger ones some pages are touched twice.
const PAGE: usize = 4096;
/// Bytes of one stamp.
const STAMP: usize = size_of::<u64>();
/// From this size on a block is stamped at its quarters too.
const QUARTERED: usize = PAGE;
/// The most bytes of a zeroed block that are looked at between its ends.
const SAMPLES: usize = 4096;

/// What was checked, and what was found wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Stamps read back.
    pub stamps: u64,
    /// Stamps that were not those of the block's owner.
    pub stamps_wrong: u64,
    /// Bytes of zeroed blocks looked at.
    pub zeros: u64,
    /// Bytes of those that were not zero.
    pub zeros_wrong: u64,
    /// Blocks that were not aligned as asked.
    pub misaligned: u64,
}

impl Checks {
    /// Adds what another checked.
    pub fn add(&mut self, other: Checks) {
        self.stamps += other.stamps;
        self.stamps_wrong += other.stamps_wrong;
        self.zeros += other.zeros;
        self.zeros_wrong += other.zeros_wrong;
        self.misaligned += other.misaligned;
    }

    /// Everything found wrong.
    pub fn errors(&self) -> u64 {
        self.stamps_wrong + self.zeros_wrong + self.misaligned
    }

    /// Checks the alignment of a block.
    pub fn alignment(&mut self, payload: &[MaybeUninit<u8>], align: usize) {
        let aligned = payload.as_ptr().addr().is_multiple_of(align);
        self.misaligned += u64::from(!aligned);
    }

    /// Looks at bytes of a zeroed block: its ends in full and samples between, leaving out those
    /// that [`touch`] wrote.
    pub fn zeroed(&mut self, payload: &[MaybeUninit<u8>]) {
        let end = payload.len().saturating_sub(1);
        let head = 1..end.min(64);
        let tail = end.saturating_sub(64).max(head.end)..end;
        let stride = (tail.start.saturating_sub(head.end) / SAMPLES).max(61) | 1;
        let between = (head.end..tail.start).step_by(stride);
        let first = payload.as_ptr().addr();
        for at in head.chain(between).chain(tail) {
            if (first + at).is_multiple_of(PAGE) {
                continue;
            }
            // SAFETY: the block was allocated zeroed, so all of its bytes have a value.
            let byte = unsafe { payload[at].assume_init() };
            self.zeros += 1;
            self.zeros_wrong += u64::from(byte != 0);
        }
    }

    /// Reads the stamps of `owner` back.
    pub fn stamps(&mut self, payload: &[MaybeUninit<u8>], owner: u64) {
        for at in places(payload.len()) {
            let found = payload[at..at + STAMP].iter().rev().fold(0, |value, byte| {
                // SAFETY: `stamp` wrote these places of the block while it had this owner.
                value << 8 | u64::from(unsafe { byte.assume_init() })
            });
            self.stamps += 1;
            self.stamps_wrong += u64::from(found != owner);
        }
    }
}

/// Writes a zero to the first byte, the last byte and the first byte of each page: the least that
/// makes all of the block resident.
#[inline]
pub fn touch(payload: &mut [MaybeUninit<u8>]) {
    if let [first, .., last] = payload {
        first.write(0);
        last.write(0);
    }
    let mut at = payload.as_ptr().addr().wrapping_neg() % PAGE;
    while let Some(byte) = payload.get_mut(at) {
        byte.write(0);
        at += PAGE;
    }
    black_box(payload);
}

/// Writes the owner at the start, the end, and in larger blocks at the quarters.
pub fn stamp(payload: &mut [MaybeUninit<u8>], owner: u64) {
    for at in places(payload.len()) {
        payload[at..at + STAMP].write_copy_of_slice(&owner.to_le_bytes());
    }
}

/// Offsets of the stamps of a block of `bytes` bytes.
fn places(bytes: usize) -> impl Iterator<Item = usize> {
    let quarter = if bytes >= QUARTERED { bytes / 4 } else { 0 };
    let last = bytes.wrapping_sub(STAMP);
    let wanted = [
        (bytes >= STAMP, 0),
        (quarter > 0, quarter),
        (quarter > 0, 2 * quarter),
        (quarter > 0, 3 * quarter),
        (bytes >= 2 * STAMP, last),
    ];
    wanted
        .into_iter()
        .filter_map(|(stamped, at)| stamped.then_some(at))
}
