//! A clock cheap enough to be read around each operation, less what reading it costs.

#![allow(unsafe_code)]

use std::time::Instant;

/// A clock that knows what reading it costs.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    overhead: i64,
}

/// A stretch of time by which ticks are translated to nanoseconds.
#[derive(Debug)]
pub struct Scale {
    instant: Instant,
    ticks: u64,
}

impl Clock {
    /// Measures what a reading costs: the median of many pairs of readings in a row.
    pub fn new() -> Clock {
        let mut pairs = [0; 2001];
        for pair in &mut pairs {
            let start = now();
            *pair = now().wrapping_sub(start) as i64;
        }
        pairs.sort_unstable();
        Clock {
            overhead: pairs[pairs.len() / 2],
        }
    }

    /// Ticks between two readings, less what a reading costs. Negative where a stretch was shorter
    /// than the median cost of a reading, so that sums are true.
    #[inline]
    pub fn between(&self, start: u64, end: u64) -> i64 {
        end.wrapping_sub(start) as i64 - self.overhead
    }
}

impl Scale {
    /// Starts a stretch.
    pub fn start() -> Scale {
        Scale {
            instant: Instant::now(),
            ticks: now(),
        }
    }

    /// Nanoseconds per tick, over the stretch from the start until now.
    pub fn nanoseconds_per_tick(&self) -> f64 {
        let nanoseconds = self.instant.elapsed().as_nanos() as f64;
        let ticks = now().wrapping_sub(self.ticks);
        if ticks == 0 {
            1.0
        } else {
            nanoseconds / ticks as f64
        }
    }
}

/// Reads the processor's time stamp, once all that comes before has been done.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn now() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: `lfence` is part of SSE2, which every x86-64 processor has.
    unsafe { _mm_lfence() };
    // SAFETY: `rdtsc` reads a counter that every x86-64 processor has, and touches no memory.
    unsafe { _rdtsc() }
}

/// Reads the system's clock, in nanoseconds since the first reading.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn now() -> u64 {
    use std::sync::OnceLock;
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    ORIGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}
