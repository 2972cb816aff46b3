//! A lock-free, size-class buffer pool for n-dimensional array types.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod allocator;
pub mod class;
pub mod count {
    //! A count of owners for control cells that are never recycled.
    pub use crate::kernel::count::{RefCount, Refused, Released};
}
mod error;
#[doc(hidden)]
pub mod kernel;
#[cfg(feature = "loom")]
#[doc(hidden)]
pub mod loom_model;
mod os;
#[cfg(feature = "shuttle")]
#[doc(hidden)]
pub mod shuttle_model;
pub mod source;
mod sync;
use constants::kernel as tuning;
#[path = "tuning.rs"]
mod constants;

pub use allocator::BufferAllocator;
pub use error::{AllocError, AllocErrorKind};
