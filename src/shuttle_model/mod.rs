//! The kernel on shuttle's types: every interleaving is sequentially consistent, and a thread may
//! be switched at each operation of an atomic or a cell.

#![allow(missing_docs, dead_code, unused_imports)]

#[path = "../kernel/mod.rs"]
#[allow(clippy::duplicate_mod)]
pub mod kernel;
pub mod sync;
pub use crate::constants::model as tuning;
