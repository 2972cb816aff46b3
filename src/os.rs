//! What is particular to an operating system: asymmetric barriers, page size, advice on mappings.
//! Everything has a portable fall-back.

#![allow(unsafe_code)]

/// Makes every other thread of the process execute a full memory barrier. `false` if this system
/// cannot, or refused; then nothing was ordered.
#[cfg(target_os = "linux")]
pub fn membarrier() -> bool {
    use core::sync::atomic::{AtomicU32, Ordering};
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 16;
    const PRIVATE_EXPEDITED: libc::c_int = 8;
    const UNKNOWN: u32 = 0;
    const READY: u32 = 1;
    const REFUSED: u32 = 2;
    static REGISTERED: AtomicU32 = AtomicU32::new(UNKNOWN);

    fn call(command: libc::c_int) -> bool {
        // SAFETY: membarrier reads no memory of ours; a kernel that does not know it says ENOSYS.
        let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
        result == 0
    }

    if forced_off() {
        return false;
    }
    // Ordering: Relaxed - a cached answer of the kernel; registering twice is harmless.
    let mut state = REGISTERED.load(Ordering::Relaxed);
    if state == UNKNOWN {
        state = if call(REGISTER_PRIVATE_EXPEDITED) { READY } else { REFUSED };
        // Ordering: Relaxed - as above.
        REGISTERED.store(state, Ordering::Relaxed);
    }
    state == READY && call(PRIVATE_EXPEDITED)
}

/// Elsewhere owners are asked to drain their caches themselves.
#[cfg(not(target_os = "linux"))]
pub fn membarrier() -> bool {
    false
}

/// Whether the portable fall-back was asked for by `NDPOOL_NO_MEMBARRIER=1`.
#[cfg(target_os = "linux")]
fn forced_off() -> bool {
    use std::sync::OnceLock;
    static OFF: OnceLock<bool> = OnceLock::new();
    *OFF.get_or_init(|| std::env::var_os("NDPOOL_NO_MEMBARRIER").is_some_and(|v| v == "1"))
}

/// Size of a page in bytes.
pub fn page_size() -> usize {
    use std::sync::OnceLock;
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        #[cfg(unix)]
        {
            // SAFETY: sysconf reads no memory of ours.
            let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
            usize::try_from(size).unwrap_or(4096)
        }
        #[cfg(not(unix))]
        {
            4096
        }
    })
}
