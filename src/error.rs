//! The one error type of allocation, with its numbers.

use core::fmt;

/// Why an allocation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AllocErrorKind {
    /// `count * size_of::<T>()` does not fit in `isize::MAX` bytes.
    Overflow,
    /// The layout cannot be served by any source (size plus alignment beyond `isize::MAX`).
    TooLarge,
    /// The source of memory returned nothing.
    SourceFailed,
    /// A limit on all bytes would be exceeded, and nothing more could be reclaimed.
    LimitExceeded,
    /// No control block is left in the process, or memory for more of them was refused.
    BlocksExhausted,
    /// This allocator cannot do what was asked (for example an unsupported mapping).
    Unsupported,
}

/// An allocation was refused; nothing was charged and nothing was lost.
///
/// All numbers are bytes. Numbers that the refusing part does not know are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct AllocError {
    /// What went wrong.
    pub kind: AllocErrorKind,
    /// Bytes asked for (`usize::MAX` where the product overflowed).
    pub requested: usize,
    /// Alignment asked for, in bytes.
    pub align: usize,
    /// Bytes reserved that did not count as resting when the request was refused: with users, in
    /// thread caches within their budget, or in flight.
    pub in_use: usize,
    /// Bytes that counted as resting when the request was refused: in the depot, and in berths
    /// beyond the budgets of thread caches.
    pub resting: usize,
    /// The limit that refused, in bytes; 0 if no limit was involved.
    pub limit: usize,
    /// Name of the part that refused: a source, a pool, or a `Limited` node.
    pub refused_by: &'static str,
}

impl AllocError {
    /// An error of `kind` for a request of `requested` bytes aligned to `align`, refused by
    /// `refused_by`; every other number is 0.
    #[cold]
    pub fn new(
        kind: AllocErrorKind,
        requested: usize,
        align: usize,
        refused_by: &'static str,
    ) -> Self {
        Self {
            kind,
            requested,
            align,
            in_use: 0,
            resting: 0,
            limit: 0,
            refused_by,
        }
    }

    /// The same error with the numbers of a limit: bytes in use, bytes resting, and the limit.
    #[must_use]
    pub fn with_limit(mut self, in_use: usize, resting: usize, limit: usize) -> Self {
        self.in_use = in_use;
        self.resting = resting;
        self.limit = limit;
        self
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            requested,
            align,
            in_use,
            resting,
            limit,
            refused_by,
            ..
        } = self;
        match self.kind {
            AllocErrorKind::Overflow => {
                write!(
                    f,
                    "{refused_by}: size of the request overflows isize::MAX bytes"
                )
            }
            AllocErrorKind::TooLarge => write!(
                f,
                "{refused_by}: {requested} bytes aligned to {align} exceed what can be addressed"
            ),
            AllocErrorKind::SourceFailed => write!(
                f,
                "{refused_by}: source returned no memory for {requested} bytes aligned to {align}"
            ),
            AllocErrorKind::LimitExceeded => write!(
                f,
                "{refused_by}: {requested} bytes refused: {in_use} in use + {resting} resting, limit {limit}"
            ),
            AllocErrorKind::BlocksExhausted => {
                write!(
                    f,
                    "{refused_by}: no control block left for {requested} bytes"
                )
            }
            AllocErrorKind::Unsupported => write!(
                f,
                "{refused_by}: {requested} bytes aligned to {align} are not supported here"
            ),
        }
    }
}
