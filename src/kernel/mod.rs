//! Everything that orders two threads. Compiled for std, and by feature for loom and shuttle: the
//! files here name no atomic but through `super::sync`, and no constant but through
//! `super::tuning`, so that the checked code and the shipped code are the same text.
//!
//! From the bottom: `state`, `count`, `reserve`, `ledger` (a few words each), `numbers`; `stack`,
//! `arena` (type-stable cells), `lease`, `pagemap`; `reach` (the owner-biased lock); `backing` (what
//! memory is to the kernel); `block`, `magazine`, `cache` and its `berths`, `depot`, `slots`; `core`
//! (a pool's life) with `evict` (how what rests in it dies); `rest`, `trim`, `room`, `audit` (what rests
//! in it); `tiers` (take and give). Each uses only those before it, but for `backing`, which speaks of
//! a `block`'s label, and for `block` and `cache`, which point to their `core`.

// Constructors are `const` where the facade's are, which a `Default` cannot be; and the shipped
// bounds may be the last number of their type, the model's are not.
#![allow(clippy::new_without_default, clippy::absurd_extreme_comparisons)]

pub(crate) use super::{sync, tuning};

pub mod arena;
pub mod audit;
pub mod backing;
pub mod berths;
pub mod block;
pub mod cache;
pub mod core;
pub mod count;
pub mod depot;
pub mod evict;
pub mod lease;
pub mod ledger;
pub mod magazine;
pub mod numbers;
pub mod pagemap;
pub mod reach;
pub mod reserve;
pub mod rest;
pub mod room;
pub mod slots;
pub mod stack;
pub mod state;
pub mod tiers;
pub mod trim;
