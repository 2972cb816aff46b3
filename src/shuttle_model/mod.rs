//! The kernel on shuttle's types: every interleaving is sequentially consistent, and a thread may
//! be switched at each operation of an atomic or a cell.
//!
//! `pool` binds the whole kernel to stamped stand-ins for memory, `program` runs lists of operations
//! over it and audits the end, `count` does so for `RefCount`; `schedule` lets bytes choose the
//! next thread, for the fuzzer.

#![allow(missing_docs, dead_code, unused_imports)]

pub mod count;
#[path = "../kernel/mod.rs"]
#[allow(clippy::duplicate_mod)]
pub mod kernel;
pub mod pool;
pub mod program;
pub mod schedule;
pub mod sync;
pub use crate::constants::model as tuning;
