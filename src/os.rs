//! What is particular to an operating system: asymmetric barriers, page size, advice on mappings.
//! Everything has a portable fall-back.

#![allow(unsafe_code)]

/// Makes every other thread of the process execute a full memory barrier. `false` if this system
/// cannot, or refused; then nothing was ordered.
#[cfg(target_os = "linux")]
pub(crate) fn membarrier() -> bool {
    const PRIVATE_EXPEDITED: libc::c_int = 8;
    has_membarrier() && call_membarrier(PRIVATE_EXPEDITED)
}

/// Whether [`membarrier`] is to be had.
#[cfg(target_os = "linux")]
pub(crate) fn has_membarrier() -> bool {
    use core::sync::atomic::{AtomicU32, Ordering};
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 16;
    const UNKNOWN: u32 = 0;
    const READY: u32 = 1;
    const REFUSED: u32 = 2;
    static REGISTERED: AtomicU32 = AtomicU32::new(UNKNOWN);

    if forced_off() {
        return false;
    }
    // Ordering: Relaxed - a cached answer of the kernel; registering twice is harmless.
    let mut state = REGISTERED.load(Ordering::Relaxed);
    if state == UNKNOWN {
        state = if call_membarrier(REGISTER_PRIVATE_EXPEDITED) {
            READY
        } else {
            REFUSED
        };
        // Ordering: Relaxed - as above.
        REGISTERED.store(state, Ordering::Relaxed);
    }
    state == READY
}

#[cfg(target_os = "linux")]
fn call_membarrier(command: libc::c_int) -> bool {
    // SAFETY: membarrier reads no memory of ours; a kernel that does not know it says ENOSYS.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    result == 0
}

/// Elsewhere owners are asked to drain their caches themselves.
#[cfg(not(target_os = "linux"))]
pub(crate) fn membarrier() -> bool {
    false
}

/// See the original.
#[cfg(not(target_os = "linux"))]
pub(crate) fn has_membarrier() -> bool {
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
pub(crate) fn page_size() -> usize {
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

/// Whether mappings that ask for huge pages get them: `always` or `madvise` in the system's switch.
/// Read once.
#[cfg(target_os = "linux")]
pub(crate) fn huge_pages() -> bool {
    use std::sync::OnceLock;
    const SWITCH: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| {
        std::fs::read_to_string(SWITCH)
            .is_ok_and(|modes| modes.contains("[always]") || modes.contains("[madvise]"))
    })
}

/// Elsewhere they are not asked for.
#[cfg(not(target_os = "linux"))]
pub(crate) fn huge_pages() -> bool {
    false
}

/// Asks for huge pages in a range. A hint: refusal changes nothing but speed.
///
/// # Safety
/// The range is page-aligned and lies in one anonymous mapping of the caller's own.
#[cfg(target_os = "linux")]
pub(crate) unsafe fn advise_huge(base: core::ptr::NonNull<u8>, len: usize) {
    // SAFETY: the advice changes no contents, and by the caller's promise reaches no other mapping.
    unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
}

/// Elsewhere the hint is not given.
///
/// # Safety
/// None needed; as on Linux.
#[cfg(not(target_os = "linux"))]
pub(crate) unsafe fn advise_huge(_base: core::ptr::NonNull<u8>, _len: usize) {}

/// Hands the pages of a range back; they read as zero afterwards. `false` if the system refused or
/// promises no zeroes, and then the contents are unchanged.
///
/// # Safety
/// The range is page-aligned, lies in one private anonymous mapping of the caller's own, and nobody
/// else uses it during the call.
#[cfg(target_os = "linux")]
pub(crate) unsafe fn discard_pages(base: core::ptr::NonNull<u8>, len: usize) -> bool {
    // SAFETY: the caller owns the range, so losing its contents harms nobody.
    let result = unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_DONTNEED) };
    result == 0
}

/// Elsewhere `MADV_DONTNEED` promises no zeroes.
///
/// # Safety
/// None needed; as on Linux.
#[cfg(not(target_os = "linux"))]
pub(crate) unsafe fn discard_pages(_base: core::ptr::NonNull<u8>, _len: usize) -> bool {
    false
}

/// Whether this system makes pages inaccessible.
pub(crate) const CAN_FORBID: bool = cfg!(any(target_os = "linux", target_os = "macos"));

/// Makes a range inaccessible: whoever touches it faults. `false` if the system refused.
///
/// # Safety
/// The range is page-aligned, lies in one mapping of the caller's own, and nobody uses it until it
/// is unmapped.
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub(crate) unsafe fn forbid(begin: *mut u8, len: usize) -> bool {
    // SAFETY: the caller owns the range, so that forbidding it harms nobody.
    let result = unsafe { libc::mprotect(begin.cast(), len, libc::PROT_NONE) };
    result == 0
}

/// Elsewhere nothing is made inaccessible.
///
/// # Safety
/// None needed; as on Linux.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(crate) unsafe fn forbid(_begin: *mut u8, _len: usize) -> bool {
    false
}

/// Registers what runs before a fork, and after it in the parent and in the child. Elsewhere there
/// are no forks.
pub(crate) fn at_fork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    #[cfg(unix)]
    {
        // SAFETY: the handlers live as long as the process.
        let result = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
        // ENOMEM is the only failure: then a child keeps what other threads' caches held.
        let _ = result;
    }
    #[cfg(not(unix))]
    {
        let _ = (prepare, parent, child);
    }
}
