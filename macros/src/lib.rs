//! The attribute `scoped` of the crate `ndpool`.
