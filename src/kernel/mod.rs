//! Everything that orders two threads. Compiled for std, and by feature for loom and shuttle: the
//! files here name no atomic but through `super::sync`, and no constant but through
//! `super::tuning`, so that the checked code and the shipped code are the same text.
//!
//! From the bottom: `state`, `count`, `reserve` (single words); `stack`, `arena` (type-stable
//! cells), `lease`; `reach` (the owner-biased lock); `block`, `magazine`, `cache`, `depot`, `ledger`,
//! `slots`; `core` (a pool's life), `tiers` (take and give).

// Constructors are `const` where the facade's are, which a `Default` cannot be; and the shipped
// bounds may be the last number of their type, the model's are not.
#![allow(clippy::new_without_default, clippy::absurd_extreme_comparisons)]

pub(crate) use super::{sync, tuning};

pub mod age;
pub mod arena;
pub mod audit;
pub mod block;
pub mod cache;
pub mod core;
pub mod count;
pub mod depot;
pub mod lease;
pub mod ledger;
pub mod magazine;
pub mod pagemap;
pub mod reach;
pub mod reserve;
pub mod slots;
pub mod stack;
pub mod state;
pub mod tiers;
