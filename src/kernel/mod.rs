//! Everything that orders two threads. Compiled for std, and by feature for loom and shuttle: the
//! files here name no atomic but through `super::sync`, and no constant but through
//! `super::tuning`, so that the checked code and the shipped code are the same text.

pub(crate) use super::{sync, tuning};

pub mod count;
pub mod reserve;
pub mod state;
