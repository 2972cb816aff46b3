//! A lock-free, size-class buffer pool for n-dimensional array types.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod allocator;
pub mod class;
pub mod conformance;
mod error;
pub mod integrate;
#[doc(hidden)]
pub mod kernel;
mod os;
pub mod source;
mod sync;
use constants::kernel as tuning;
#[path = "tuning.rs"]
mod constants;

pub use allocator::BufferAllocator;
pub use error::{AllocError, AllocErrorKind};
