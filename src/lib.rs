//! A lock-free, size-class buffer pool for n-dimensional array types.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod allocator;
mod block;
mod buffer;
pub mod class;
mod element;
mod error;
mod handle;
#[doc(hidden)]
pub mod kernel;
mod os;
mod pool;
pub mod report;
mod shared;
pub mod source;
mod sync;
mod thread;
mod tiers;
use constants::kernel as tuning;
#[path = "tuning.rs"]
mod constants;

pub use allocator::BufferAllocator;
pub use buffer::Buffer;
pub use constants::pool::MIN_ALIGN;
pub use element::Element;
pub use error::{AllocError, AllocErrorKind};
pub use handle::{Handle, Stale, StaleReason, StrayRelease, Token, stale_upgrades, stray_releases};
pub use pool::{Pool, PoolBuilder};
pub use shared::{SharedBuffer, ViewError};
