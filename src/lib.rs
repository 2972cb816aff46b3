//! A lock-free, size-class buffer pool for n-dimensional array types.
//!
//! Temporaries are reused warm instead of being paged in again, memory goes back the instant its
//! last owner goes, and what the pool holds is bounded, counted, and can be given back from any
//! thread.
//!
//! | type | what |
//! |---|---|
//! | [`Pool`], [`PoolBuilder`] | a handle to a pool, and its configuration |
//! | [`Buffer`] | unique and writable; a drop that hits neither locks nor writes shared memory |
//! | [`SharedBuffer`] | counted and read-only; every clone and slice is an owner |
//! | [`Handle`] | 64 bits that name a shared buffer, own nothing, and are checked when asked |
//! | [`Token`] | an owner in 64 bits, for foreign languages; released exactly once |
//! | [`BufferAllocator`] | what array types are generic over; adaptors and a conformance suite |
//! | [`source`] | where memory is born and dies |
//! | [`count`] | the counting alone, for control cells that are never recycled |
//! | `array` | with the feature `ndarray`: arrays and scopes in pooled memory |
//! | [`integrate`] | bridges to other crates' traits, each a feature |
//! | [`Stats`], [`Snapshot`], [`Audit`], [`timeline`], [`report`] | what a pool has done, holds, and had to complain about |
//! | `array` (feature `ndarray`) | arrays and scopes in pooled memory |
//!
//! # Taking, writing, dropping
//!
//! ```
//! let pool = ndpool::Pool::new();
//! let squares = pool.allocate::<u64>(100)?.fill_with(|i| (i * i) as u64);
//! assert_eq!(squares[9], 81);
//! drop(squares);
//! let again = pool.allocate::<u64>(100)?; // the same memory, from the thread's cache
//! assert_eq!((pool.stats().misses, pool.stats().hits), (1, 1));
//! # drop(again);
//! # Ok::<(), ndpool::AllocError>(())
//! ```
//!
//! # Bounds
//!
//! After every birth the bytes held are at most `1 + slack` times the recent peak of what was in use
//! or in a thread's cache, or [`PoolBuilder::floor`]; [`PoolBuilder::limit`] is never exceeded, and
//! refuses with the numbers once nothing can be reclaimed.
//!
//! ```
//! use ndpool::{AllocErrorKind, Pool};
//!
//! let pool = Pool::builder().limit(1 << 20).build();
//! let half = pool.allocate::<u8>(512 << 10)?;
//! let refused = pool.allocate::<u8>(768 << 10).unwrap_err();
//! assert_eq!(refused.kind, AllocErrorKind::LimitExceeded);
//! assert_eq!((refused.limit, refused.in_use), (1 << 20, 512 << 10));
//! drop(half);
//! assert!(pool.allocate::<u8>(768 << 10).is_ok()); // what rested went first
//! # Ok::<(), ndpool::AllocError>(())
//! ```
//!
//! # Threads
//!
//! Every type is `Send + Sync`, but for scopes, what borrows from them, and the guard of an entered
//! pool; and may be dropped on any thread, also on one whose thread-locals are gone, and after the
//! pool's last handle. Which operation waits for whom is said in the progress table of
//! `docs/design.md`. Nothing here may be used in a signal handler.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod allocator;
#[cfg(feature = "ndarray")]
#[cfg_attr(docsrs, doc(cfg(feature = "ndarray")))]
pub mod array;
mod block;
mod buffer;
pub mod class;
mod clock;
#[cfg(doctest)]
mod compile_fail;
pub mod conformance;
mod constants;
mod element;
mod error;
mod handle;
pub mod integrate;
#[doc(hidden)]
pub mod kernel;
mod leaks;
#[cfg(feature = "loom")]
#[doc(hidden)]
pub mod loom_model;
mod map;
mod os;
mod pool;
pub mod report;
mod shared;
#[cfg(feature = "shuttle")]
#[doc(hidden)]
pub mod shuttle_model;
mod snapshot;
pub mod source;
mod stats;
mod sync;
#[cfg(any(feature = "tracing", feature = "metrics"))]
mod telemetry;
mod thread;
mod tiers;
pub mod timeline;
mod trimmer;
mod watch;

// The kernel names its constants through `super`, here as under a model checker.
use constants::kernel as tuning;

pub mod count {
    //! A count of owners for control cells that are never recycled.
    pub use crate::kernel::count::{RefCount, Refused, Released};
}

pub use allocator::BufferAllocator;
#[cfg(feature = "ndarray")]
#[cfg_attr(docsrs, doc(cfg(feature = "ndarray")))]
pub use array::{ArrayError, Disposable, PoolArray, Scope, SharedArray, Temp};
pub use buffer::Buffer;
pub use constants::pool::MIN_ALIGN;
pub use element::Element;
pub use error::{AllocError, AllocErrorKind};
pub use handle::{Handle, Stale, StaleReason, StrayRelease, Token, stale_upgrades, stray_releases};
pub use leaks::{LeakGroup, LeakReport, Retained};
#[cfg(feature = "ndarray")]
#[cfg_attr(docsrs, doc(cfg(feature = "ndarray")))]
pub use ndpool_macros::scoped;
pub use pool::{Pool, PoolBuilder};
pub use shared::{SharedBuffer, ViewError, Writable};
pub use snapshot::{Settings, Snapshot};
pub use stats::{Audit, AuditError, ClassStats, Stats};
pub use trimmer::abandoned_caches;
pub use watch::{CheckError, Checks, History, LeakLevel, Site};

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// So do those of the guide for authors of array types.
#[cfg(doctest)]
#[doc = include_str!("../docs/integrating.md")]
struct Integrating;

/// And those of the text on timelines.
#[cfg(all(doctest, feature = "timeline"))]
#[doc = include_str!("../docs/timeline.md")]
struct Timelines;
