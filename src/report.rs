//! Reports: what cannot be returned as an error because nobody waits for a result.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::fmt;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::thread::LocalKey;

use crossbeam_epoch::{self as epoch, Atomic, Owned};

use crate::sync::Counter;
use crate::timeline::TimelineError;
use crate::watch::{CheckError, History};

/// Something went wrong where there is no caller to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Report {
    /// A source's or an owner's release code panicked. The block is dead all the same, and the
    /// accounting is right.
    ReleasePanicked,
    /// The environment variable `NDPOOL_TIMELINE` has a word that it cannot have.
    BadTimeline {
        /// The word.
        word: String,
    },
    /// A pointer was deallocated that no pool of this process has handed out.
    ForeignPointer {
        /// The address.
        address: usize,
    },
    /// A block was deallocated that had come back already.
    DoubleDeallocation {
        /// The address.
        address: usize,
        /// Where it was allocated, and given back first.
        history: History,
    },
    /// A layout was passed to a deallocation that does not fit the block.
    WrongLayout {
        /// The address.
        address: usize,
        /// Bytes that the caller named.
        size: usize,
        /// Alignment that the caller named.
        align: usize,
        /// Bytes that the block holds.
        capacity: usize,
        /// Where it was allocated.
        history: History,
    },
    /// Somebody wrote to a buffer after its last owner had released it; see
    /// [`Checks::poison`](crate::Checks::poison).
    WrittenAfterRelease {
        /// Address of the first changed byte.
        address: usize,
        /// Its place in the block, in bytes.
        offset: usize,
        /// What was written there.
        found: u8,
        /// Bytes that the block holds: its class.
        capacity: usize,
        /// The buffer's last owner; unknown if the memory went back to its source meanwhile.
        history: History,
    },
    /// Somebody wrote beside a buffer; see [`Checks::guard`](crate::Checks::guard).
    WrittenOutside {
        /// Address of the first changed byte.
        address: usize,
        /// Its place from the buffer's first byte on, in bytes; negative in front of it.
        offset: isize,
        /// What was written there.
        found: u8,
        /// Bytes of the buffer.
        capacity: usize,
        /// The buffer's last owner.
        history: History,
    },
    /// A token was released or redeemed that had been before; the caller has the error as well.
    StrayToken {
        /// Bits of the token.
        token: u64,
        /// Bytes of the block that it was an owner of.
        capacity: usize,
        /// Where the block was allocated, and the token used up.
        history: History,
    },
    /// A [`Limited`](crate::allocator::Limited) node ended with charges that were never taken back, or
    /// was given back more than it had charged.
    UnbalancedLimit {
        /// Name of the node.
        name: &'static str,
        /// Bytes charged.
        charged: usize,
        /// Bytes given back beyond that.
        excess: usize,
    },
    /// The environment variable `NDPOOL_CHECK` has a word that is no check.
    UnknownCheck {
        /// The word.
        word: String,
    },
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReleasePanicked => write!(f, "release code of a source or an owner panicked"),
            Self::BadTimeline { word } => {
                let error = TimelineError { word: word.clone() };
                write!(f, "NDPOOL_TIMELINE: {error}")
            }
            Self::ForeignPointer { address } => {
                write!(f, "deallocated {address:#x}, which no pool has handed out")
            }
            Self::DoubleDeallocation { address, history } => {
                write!(f, "deallocated {address:#x} twice{history}")
            }
            Self::WrittenAfterRelease {
                address,
                offset,
                found,
                capacity,
                history,
            } => write!(
                f,
                "{address:#x}, byte {offset} of a block of {capacity}, was written after the \
                 release: {found:#04x}{history}"
            ),
            Self::WrittenOutside {
                address,
                offset,
                found,
                capacity,
                history,
            } => write!(
                f,
                "{address:#x}, byte {offset} from the begin of a buffer of {capacity}, was \
                 written: {found:#04x}{history}"
            ),
            Self::StrayToken {
                token,
                capacity,
                history,
            } => write!(
                f,
                "token {token:#018x} of a block of {capacity} bytes was used twice{history}"
            ),
            Self::UnbalancedLimit {
                name,
                charged,
                excess,
            } => write!(
                f,
                "{name}: {charged} bytes are still charged at the end, {excess} were given back \
                 beyond what was charged"
            ),
            Self::WrongLayout {
                address,
                size,
                align,
                capacity,
                history,
            } => write!(
                f,
                "deallocated {address:#x} as {size} bytes aligned to {align}; the block holds {capacity}{history}"
            ),
            Self::UnknownCheck { word } => {
                write!(f, "NDPOOL_CHECK: {}", CheckError { word: word.clone() })
            }
        }
    }
}

/// What to do with a report.
pub type Hook = fn(&Report);

/// The hook, if one was installed: read mostly, and replaced while others may be reading it, so it
/// is reclaimed by epochs. No lock that a forked child could inherit.
static HOOK: Atomic<Hook> = Atomic::null();
static EMITTED: Counter = Counter::new();

fn to_stderr(report: &Report) {
    // Nobody is there to be told that standard error cannot be written either.
    let _ = writeln!(std::io::stderr(), "ndpool: {report}");
}

/// Installs what is called with every report, on the thread where it arises; the default writes a
/// line to standard error. Returns the former one. It may run inside a trim: it must not trim, close,
/// audit or allocate from a pool. A panic in it is ignored.
pub fn set_hook(hook: Hook) -> Hook {
    let guard = epoch::pin();
    // Ordering: AcqRel - with `current` and other calls: the hook behind the pointer is written.
    let former = HOOK.swap(Owned::new(hook), Ordering::AcqRel, &guard);
    // SAFETY: null, or a hook that this pin keeps from being reclaimed.
    let was = unsafe { former.as_ref() }.copied();
    if !former.is_null() {
        // SAFETY: it was just unlinked, by this call alone; readers hold pins of their own.
        unsafe { guard.defer_destroy(former) };
    }
    was.unwrap_or(to_stderr)
}

/// The hook now.
fn current() -> Hook {
    let guard = epoch::pin();
    // Ordering: Acquire - with `set_hook`: the hook behind the pointer is written.
    let hook = HOOK.load(Ordering::Acquire, &guard);
    // SAFETY: null, or a hook that this pin keeps from being reclaimed.
    unsafe { hook.as_ref() }.copied().unwrap_or(to_stderr)
}

/// Reports emitted in this process so far.
pub fn emitted() -> u64 {
    EMITTED.get()
}

#[cold]
pub(crate) fn emit(report: &Report) {
    EMITTED.add(1);
    let hook = current();
    caught(|| hook(report));
}

/// Runs `run` unless this thread runs its like already, as `running` says: a callback is not called
/// for what a callback does.
pub(crate) fn unless_running<R>(
    running: &'static LocalKey<Cell<bool>>,
    run: impl FnOnce() -> R,
) -> Option<R> {
    if running.replace(true) {
        return None;
    }
    let result = run();
    running.set(false);
    Some(result)
}

/// Runs somebody else's code; `None` if it panicked.
pub(crate) fn caught<R>(run: impl FnOnce() -> R) -> Option<R> {
    let panic = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => return Some(result),
        Err(panic) => panic,
    };
    // What was thrown may throw again when dropped; what that throws is let go.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    None
}
