//! What the fuzz targets do with their input. Each has a `run`, which panics at a fault; libFuzzer
//! calls it with new inputs (`fuzz_targets/`), `tests/fuzz_replay.rs` with the kept ones.

#[cfg(feature = "ndarray")]
pub mod array;
pub mod class;
pub mod lifecycle;
#[cfg(feature = "shuttle")]
pub mod schedule;
pub mod source;
pub mod threads;
