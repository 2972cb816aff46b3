//! What the process costs the machine: resident memory and page faults.
//!
//! Resident memory is told without the pages of files, since program text is paged in at its first
//! use, whoever is measured.

#![allow(unsafe_code)]

/// Resident memory of this process over what it had at a first reading.
#[derive(Debug)]
pub struct Resident {
    baseline: Option<u64>,
    peak_was_reset: bool,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Bytes resident now, where the system tells.
    now: Option<u64>,
    /// The most bytes that were resident since the peak was last reset, or since the start.
    peak: u64,
}

impl Resident {
    /// Takes the first reading, after memory that the C library holds in reserve went back.
    pub fn baseline() -> Resident {
        platform::trim_system_heap();
        let baseline = platform::read().map(|reading| reading.now.unwrap_or(reading.peak));
        Resident {
            baseline,
            peak_was_reset: false,
        }
    }

    /// Forgets the peak, where the system can.
    pub fn reset_peak(&mut self) {
        self.peak_was_reset = platform::reset_peak();
    }

    /// Whether [`peak`](Self::peak) tells of the time since the reset only, and not of the whole
    /// life of the process.
    pub fn peak_is_exact(&self) -> bool {
        self.peak_was_reset
    }

    /// Growth until now in bytes; `None` where the system does not tell.
    pub fn now(&self) -> Option<u64> {
        Some(platform::read()?.now?.saturating_sub(self.baseline?))
    }

    /// Growth at the peak in bytes; `None` where the system does not tell.
    pub fn peak(&self) -> Option<u64> {
        Some(platform::read()?.peak.saturating_sub(self.baseline?))
    }
}

/// Page faults of this process that needed no disk; `None` where the system does not tell.
pub fn minor_faults() -> Option<u64> {
    #[cfg(unix)]
    {
        usage().and_then(|usage| u64::try_from(usage.ru_minflt).ok())
    }
    #[cfg(not(unix))]
    {
        None
    }
}

#[cfg(unix)]
fn usage() -> Option<libc::rusage> {
    let mut usage = core::mem::MaybeUninit::uninit();
    // SAFETY: `getrusage` writes one `rusage` to the pointer, which is valid for that.
    let status = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: a status of 0 says that the structure was filled in.
    (status == 0).then(|| unsafe { usage.assume_init() })
}

#[cfg(target_os = "linux")]
mod platform {
    use super::Reading;

    pub fn read() -> Option<Reading> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let bytes = |key: &str| {
            let line = status.lines().find(|line| line.starts_with(key))?;
            let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
            Some(kibibytes * 1024)
        };
        let files = bytes("RssFile:")?;
        Some(Reading {
            now: Some(bytes("VmRSS:")?.saturating_sub(files)),
            peak: bytes("VmHWM:")?.saturating_sub(files),
        })
    }

    pub fn reset_peak() -> bool {
        std::fs::write("/proc/self/clear_refs", "5").is_ok()
    }

    #[cfg(target_env = "gnu")]
    pub fn trim_system_heap() {
        // SAFETY: `malloc_trim` may be called at any time; it only gives free memory back.
        unsafe { libc::malloc_trim(0) };
    }

    #[cfg(not(target_env = "gnu"))]
    pub fn trim_system_heap() {}
}

/// The portable fall-back: only the peak over the process's life is known, so growth is that of
/// the peak, and what is resident now is not told.
#[cfg(all(unix, not(target_os = "linux")))]
mod platform {
    use super::Reading;

    pub fn read() -> Option<Reading> {
        let largest = u64::try_from(super::usage()?.ru_maxrss).ok()?;
        // Apple's systems tell bytes, the others kibibytes.
        let peak = if cfg!(target_vendor = "apple") {
            largest
        } else {
            largest * 1024
        };
        Some(Reading { now: None, peak })
    }

    pub fn reset_peak() -> bool {
        false
    }

    pub fn trim_system_heap() {}
}

#[cfg(not(unix))]
mod platform {
    use super::Reading;

    pub fn read() -> Option<Reading> {
        None
    }

    pub fn reset_peak() -> bool {
        false
    }

    pub fn trim_system_heap() {}
}
