//! Models of the published count: the cured one as shipped, and, as negative models, the protocol
//! as published and on a recycled word.

use std::sync::Arc;

use loom::thread;
use ndpool::loom_model::kernel::count::{RefCount, Released};
use ndpool::loom_model::sync::{AtomicU32, Ordering};
use ndpool::loom_model::tuning::OWNERS_LIMIT;
use ndpool::loom_model::{Witness, check, must_fail, outcome, spawn};

/// A counted payload.
struct Cell {
    count: RefCount,
    payload: Witness,
}

impl Cell {
    fn with_owners(owners: u32) -> Arc<Self> {
        let cell = Self {
            count: RefCount::new(),
            payload: Witness::new(1),
        };
        for _ in 1..owners {
            cell.count.try_add().unwrap();
        }
        Arc::new(cell)
    }

    /// What an owner does.
    fn read_and_release(&self) -> Released {
        self.payload.read();
        self.release()
    }

    /// What anyone may do; the claimant frees.
    fn release(&self) -> Released {
        let released = self.count.release();
        if released == Released::Claimed {
            self.payload.free();
        }
        released
    }
}

/// How many of `all` must free.
fn claims(all: &[Released]) -> usize {
    all.iter()
        .filter(|released| **released == Released::Claimed)
        .count()
}

#[test]
fn two_owners_release() {
    let expected = ["claimed: main", "claimed: other"];
    check("two_owners_release", &expected, || {
        let cell = Cell::with_owners(2);
        let other = spawn(&cell, Cell::read_and_release);
        let main = cell.read_and_release();
        let other = other.join().unwrap();
        assert_eq!(claims(&[main, other]), 1);
        assert_eq!(cell.count.count(), -1);
        outcome(if main == Released::Claimed {
            "claimed: main"
        } else {
            "claimed: other"
        });
    });
}

#[test]
fn an_add_races_the_last_release() {
    let expected = ["refused", "added, claimed: main", "added, claimed: other"];
    check("an_add_races_the_last_release", &expected, || {
        let cell = Cell::with_owners(1);
        let other = spawn(&cell, |cell| {
            cell.count.try_add().ok().map(|()| cell.read_and_release())
        });
        let main = cell.read_and_release();
        let other = other.join().unwrap();
        assert_eq!(claims(&[main, other.unwrap_or(Released::Stray)]), 1);
        assert_eq!(cell.count.count(), -1);
        outcome(match other {
            None => "refused",
            Some(Released::Claimed) => "added, claimed: other",
            Some(_) => "added, claimed: main",
        });
    });
}

#[test]
fn an_add_that_says_yes_keeps_it_alive() {
    check(
        "an_add_that_says_yes_keeps_it_alive",
        &["added", "released"],
        || {
            let cell = Cell::with_owners(1);
            let other = spawn(&cell, |cell| cell.count.try_add().is_ok());
            let main = cell.release();
            let added = other.join().unwrap();
            assert_ne!(added, main == Released::Claimed);
            assert_ne!(added, cell.count.is_released());
            outcome(if added { "added" } else { "released" });
        },
    );
}

#[test]
fn a_stray_races_the_last_release() {
    let expected = ["claimed: owner", "claimed: stray"];
    check("a_stray_races_the_last_release", &expected, || {
        let cell = Cell::with_owners(1);
        // The stray owns nothing, so it reads nothing; nor does the owner, whose place it may take.
        let stray = spawn(&cell, Cell::release);
        let owner = cell.release();
        let stray = stray.join().unwrap();
        assert_eq!(
            claims(&[owner, stray]),
            1,
            "leaked or freed twice: {owner:?}, {stray:?}"
        );
        assert_eq!(cell.count.count(), -1);
        outcome(if owner == Released::Claimed {
            "claimed: owner"
        } else {
            "claimed: stray"
        });
    });
}

#[test]
fn two_owners_and_two_strays() {
    let expected = ["claimed: 0", "claimed: 1", "claimed: 2"];
    check("two_owners_and_two_strays", &expected, || {
        let cell = Cell::with_owners(2);
        let stray = spawn(&cell, |cell| [cell.release(), cell.release()]);
        let owner = spawn(&cell, Cell::release);
        let main = cell.release();
        let [first, second] = stray.join().unwrap();
        let all = [main, owner.join().unwrap(), first, second];
        assert_eq!(claims(&all), 1, "leaked or freed twice: {all:?}");
        assert_eq!(cell.count.count(), -1);
        let by = all
            .iter()
            .position(|released| *released == Released::Claimed)
            .map_or(2, |by| by.min(2));
        outcome(format!("claimed: {by}"));
    });
}

#[test]
fn two_strays_race_the_last_release() {
    let expected = ["claimed: 0", "claimed: 1", "claimed: 2"];
    check("two_strays_race_the_last_release", &expected, || {
        let cell = Cell::with_owners(1);
        let strays = [(); 2].map(|()| spawn(&cell, Cell::release));
        let main = cell.release();
        let [first, second] = strays.map(|stray| stray.join().unwrap());
        let all = [main, first, second];
        assert_eq!(claims(&all), 1, "leaked or freed twice: {all:?}");
        assert_eq!(cell.count.count(), -1);
        let by = all
            .iter()
            .position(|released| *released == Released::Claimed)
            .unwrap();
        outcome(format!("claimed: {by}"));
    });
}

#[test]
fn a_stray_an_add_and_the_last_release() {
    let expected = ["added, released", "added, alive", "refused"];
    check("a_stray_an_add_and_the_last_release", &expected, || {
        let cell = Cell::with_owners(1);
        let stray = spawn(&cell, Cell::release);
        let adder = spawn(&cell, |cell| cell.count.try_add().is_ok());
        let owner = cell.release();
        let (stray, added) = (stray.join().unwrap(), adder.join().unwrap());
        let claims = claims(&[owner, stray]);
        // Two releases and an add: alive only if the add came in time and the stray was one.
        assert_eq!(claims, usize::from(cell.count.is_released()));
        assert!(claims == 1 || added);
        outcome(match (added, claims) {
            (false, _) => "refused",
            (true, 1) => "added, released",
            (true, _) => "added, alive",
        });
    });
}

#[test]
fn strays_on_a_released_cell() {
    check("strays_on_a_released_cell", &["released"], || {
        let cell = Cell::with_owners(1);
        assert_eq!(cell.read_and_release(), Released::Claimed);
        let stray = spawn(&cell, Cell::release);
        assert_eq!(cell.release(), Released::Stray);
        assert!(
            cell.count.try_add().is_err(),
            "an add at 0, on a released cell"
        );
        assert_eq!(stray.join().unwrap(), Released::Stray);
        assert_eq!(cell.count.count(), -1);
        outcome("released");
    });
}

#[test]
fn a_forced_release_races_an_add() {
    check(
        "a_forced_release_races_an_add",
        &["refused", "too early"],
        || {
            let cell = Cell::with_owners(2);
            let adder = spawn(&cell, |cell| cell.count.try_add().is_ok());
            assert_eq!(cell.count.force_release(), Released::Claimed);
            assert!(
                cell.count.try_add().is_err(),
                "an add after the forced release"
            );
            assert_eq!(cell.count.force_release(), Released::Stray);
            let early = adder.join().unwrap();
            assert_eq!(
                cell.release(),
                Released::Stray,
                "an owner that was forced out"
            );
            assert_eq!(cell.count.count(), -1);
            outcome(if early { "too early" } else { "refused" });
        },
    );
}

#[test]
fn a_forced_release_after_a_release() {
    let expected = ["forced", "released"];
    check("a_forced_release_after_a_release", &expected, || {
        let cell = Cell::with_owners(2);
        let other = spawn(&cell, Cell::read_and_release);
        let forced = cell.count.count() == 1;
        let main = if forced {
            let released = cell.count.force_release();
            cell.payload.free();
            released
        } else {
            cell.read_and_release()
        };
        assert_eq!(claims(&[main, other.join().unwrap()]), 1);
        outcome(if forced { "forced" } else { "released" });
    });
}

/// Forced by two at once, while one owner is there: one of them frees the cell.
#[test]
fn two_forced_releases() {
    check("two_forced_releases", &["main", "other"], || {
        let cell = Cell::with_owners(1);
        let force = |cell: &Cell| {
            let released = cell.count.force_release();
            if released == Released::Claimed {
                cell.payload.free();
            }
            released
        };
        let other = spawn(&cell, force);
        let main = force(&cell);
        let other = other.join().unwrap();
        assert_eq!(claims(&[main, other]), 1);
        outcome(if main == Released::Claimed {
            "main"
        } else {
            "other"
        });
    });
}

#[test]
fn the_limit_is_reached_under_a_release() {
    check(
        "the_limit_is_reached_under_a_release",
        &["immortal", "counted"],
        || {
            let cell = Cell::with_owners(OWNERS_LIMIT - 1);
            let other = spawn(&cell, Cell::read_and_release);
            cell.count.try_add().unwrap();
            assert_eq!(other.join().unwrap(), Released::Shared);
            if !cell.count.is_immortal() {
                assert_eq!(cell.count.count(), OWNERS_LIMIT as i32 - 1);
                return outcome("counted");
            }
            for _ in 0..2 * OWNERS_LIMIT {
                assert_eq!(cell.count.release(), Released::Shared);
            }
            assert_eq!(cell.count.force_release(), Released::Shared);
            assert!(!cell.count.is_released());
            outcome("immortal");
        },
    );
}

/// The protocol with its cure as a choice, on a word that can be armed again.
struct Published {
    count: AtomicU32,
    cured: bool,
}

const RELEASED: u32 = u32::MAX;

impl Published {
    fn new(cured: bool) -> Arc<Self> {
        Arc::new(Self {
            count: AtomicU32::new(1),
            cured,
        })
    }

    fn release(&self) -> Released {
        let before = self.count.fetch_sub(1, Ordering::Release);
        if before as i32 > 1 {
            return Released::Shared;
        }
        if before == 1 {
            return if self.claim() {
                Released::Claimed
            } else {
                Released::Shared
            };
        }
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        if self.cured && before == RELEASED && self.claim() {
            return Released::Claimed;
        }
        Released::Stray
    }

    fn claim(&self) -> bool {
        self.count
            .compare_exchange(0, RELEASED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// A new life of the word, with one owner.
    fn rearm(&self) {
        self.count.swap(1, Ordering::Release);
    }
}

fn a_stray_against_the_last_release(cured: bool) {
    let cell = Published::new(cured);
    let other = Arc::clone(&cell);
    let stray = thread::spawn(move || other.release());
    let owner = cell.release();
    let all = [owner, stray.join().unwrap()];
    assert_eq!(claims(&all), 1, "leaked");
    outcome("freed");
}

#[test]
fn the_uncured_protocol_leaks() {
    must_fail("the_uncured_protocol_leaks", "leaked", || {
        a_stray_against_the_last_release(false);
    });
}

#[test]
fn the_cured_protocol_does_not() {
    check("the_cured_protocol_does_not", &["freed"], || {
        a_stray_against_the_last_release(true);
    });
}

/// A released word, a stray on it, and meanwhile the word's next life: its only owner releases.
/// Returns what that owner and the stray were told.
fn a_stray_against_the_next_life() -> [Released; 2] {
    let word = Published::new(true);
    assert_eq!(word.release(), Released::Claimed);
    let other = Arc::clone(&word);
    let stray = thread::spawn(move || other.release());
    word.rearm();
    let owner = word.release();
    [owner, stray.join().unwrap()]
}

#[test]
fn on_a_recycled_word_a_stray_takes_the_new_owners_place() {
    must_fail(
        "on_a_recycled_word_a_stray_takes_the_new_owners_place",
        "freed under its new owner",
        || {
            // The decrement falls on the next life, before its owner has released.
            let [_, stray] = a_stray_against_the_next_life();
            assert_ne!(stray, Released::Claimed, "freed under its new owner");
        },
    );
}

#[test]
fn on_a_recycled_word_a_compensation_leaks() {
    must_fail("on_a_recycled_word_a_compensation_leaks", "leaked", || {
        // The decrement falls on the old life, its compensation on the new one.
        assert!(claims(&a_stray_against_the_next_life()) > 0, "leaked");
    });
}

#[test]
fn on_a_recycled_word_a_compensation_frees_twice() {
    must_fail(
        "on_a_recycled_word_a_compensation_frees_twice",
        "has two owners",
        || {
            // The decrement falls on the old life; the compensation finds the new one released, takes
            // its -1 for one that a claim was missed at, and claims what is back in the pool.
            assert!(
                claims(&a_stray_against_the_next_life()) < 2,
                "the block has two owners"
            );
        },
    );
}
