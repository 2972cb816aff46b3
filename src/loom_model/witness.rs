#![allow(unsafe_code)]
//! A payload that tells on whoever touches it without being ordered.

use super::sync::UnsafeCell;

/// A payload under loom's eyes: a read that is not ordered after the last write, or a write that
/// is not ordered after every earlier access, fails the model. Last owners poison it.
#[derive(Debug)]
pub struct Witness(UnsafeCell<u32>);

// SAFETY: every access goes through loom's cell, which fails the model on a data race.
unsafe impl Sync for Witness {}

/// What a freed payload holds.
const POISON: u32 = 0xDEAD_BEEF;

impl Witness {
    /// A payload that holds `value`.
    pub fn new(value: u32) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Writes `value`.
    pub fn write(&self, value: u32) {
        // SAFETY: loom's cell has found this access to be exclusive.
        self.0.with_mut(|payload| unsafe { *payload = value });
    }

    /// Reads the payload.
    ///
    /// # Panics
    /// If it is freed.
    pub fn read(&self) -> u32 {
        // SAFETY: loom's cell has found no write to be concurrent.
        let value = self.0.with(|payload| unsafe { *payload });
        assert_ne!(value, POISON, "use after free");
        value
    }

    /// Frees the payload.
    ///
    /// # Panics
    /// If it is freed already.
    pub fn free(&self) {
        self.read();
        self.write(POISON);
    }
}
