//! Bridges to other crates' traits, each behind the feature named after its crate.

#[cfg(feature = "allocator-api2")]
mod allocator_api2;

#[cfg(feature = "allocator-api2")]
#[cfg_attr(docsrs, doc(cfg(feature = "allocator-api2")))]
pub use self::allocator_api2::AllocatorApi;
