//! What a timeline is made of.

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum EventKind {
    /// A block came from the source.
    Birth,
    /// A block went back to the source.
    Death,
    /// Exchange: a magazine or a single block went to rest in the depot.
    Rest,
    /// Exchange: a magazine or a single block left the depot for a user.
    Wake,
    /// A magazine or a single block left the depot for its source; its deaths follow.
    Evict,
    /// A trim, on demand or by age, has given bytes back.
    Trim,
    /// A request was refused by the pool's limit.
    Refusal {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The source of memory failed to serve a birth.
    Failure,
    /// A user was given a block. Recorded when operations are asked for.
    Allocate,
    /// A user gave a block back. Recorded when operations are asked for.
    Drop,
}

impl EventKind {
    /// One word for the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Birth => "birth",
            Self::Death => "death",
            Self::Rest => "rest",
            Self::Wake => "wake",
            Self::Evict => "evict",
            Self::Trim => "trim",
            Self::Refusal { .. } => "refusal",
            Self::Failure => "failure",
            Self::Allocate => "allocate",
            Self::Drop => "drop",
        }
    }
}

/// One event of a pool. On every thread the times of its events never fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Event {
    /// Nanoseconds since the pool was opened.
    pub nanos: u64,
    /// Number of the thread in the process, from 1, in the order of their first events.
    pub thread: u32,
    /// What happened.
    pub kind: EventKind,
    /// The size class of the blocks; `None` for what has none, and for what is of no one class.
    pub class: Option<u8>,
    /// How many blocks; 0 for trims, refusals and failures.
    pub blocks: u32,
    /// Bytes that the blocks occupy, that a trim gave back, or that a request was refused.
    pub bytes: usize,
}

/// What a class is called: the bytes that its blocks hold, or `no class`.
#[cfg(feature = "timeline")]
pub(crate) fn class_name(class: Option<u8>) -> String {
    match class {
        Some(class) => crate::stats::Bytes(crate::class::capacity(class.into())).to_string(),
        None => "no class".to_owned(),
    }
}
