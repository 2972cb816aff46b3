//! What a pool tells the crates that gather a program's telemetry.

#[cfg(feature = "tracing")]
pub(crate) mod events;
#[cfg(feature = "metrics")]
mod gauges;
