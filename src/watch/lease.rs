//! Whose a token was: remembered beside its lease, for the report of a second release.

use super::record;
use super::site::{History, Site};
use super::table::Table;

/// What is remembered of the leases of the process, by index.
static LEASED: Table<Leased> = Table::new();

struct Leased {
    /// Bits of the token.
    token: u64,
    /// Bytes of the block.
    capacity: usize,
    history: History,
}

/// A token was made of a block whose owners are recorded.
#[cold]
pub(crate) fn made(token: u64, block: u32, life: u64, capacity: usize) {
    let leased = Leased {
        token,
        capacity,
        history: History {
            released: None,
            ..record::history(block, life)
        },
    };
    LEASED.set(token as u32, Some(leased));
}

/// The token `clone` is another one of the same block as `token`.
pub(crate) fn cloned(token: u64, clone: u64) {
    let leased = LEASED.look(token as u32, |leased| {
        (leased.token == token).then(|| Leased {
            token: clone,
            history: leased.history.clone(),
            ..*leased
        })
    });
    if let Some(Some(leased)) = leased {
        LEASED.set(clone as u32, Some(leased));
    }
}

/// The token was released or redeemed here, for the first time. While the lease was the caller's,
/// nobody else writes beside it.
pub(crate) fn ended(token: u64) {
    let ended = LEASED.look(token as u32, |leased| {
        (leased.token == token).then(|| Leased {
            history: History {
                allocated: leased.history.allocated.clone(),
                released: Some(Site::here()),
            },
            ..*leased
        })
    });
    if let Some(Some(leased)) = ended {
        LEASED.set(token as u32, Some(leased));
    }
}

/// What is known of a token that is no longer live: bytes of its block, and its history.
pub(crate) fn history(token: u64) -> Option<(usize, History)> {
    let known = LEASED.look(token as u32, |leased| {
        (leased.token == token).then(|| (leased.capacity, leased.history.clone()))
    });
    known.flatten()
}
