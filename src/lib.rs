//! A lock-free, size-class buffer pool for n-dimensional array types.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod allocator;
#[cfg(feature = "ndarray")]
#[cfg_attr(docsrs, doc(cfg(feature = "ndarray")))]
pub mod array;
mod block;
mod buffer;
pub mod class;
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
pub mod source;
mod stats;
mod sync;
mod thread;
mod tiers;
mod trimmer;
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
pub use pool::{Pool, PoolBuilder};
pub use shared::{SharedBuffer, ViewError};
pub use stats::{Audit, AuditError, ClassStats, Stats};
pub use trimmer::abandoned_caches;
