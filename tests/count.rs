//! `RefCount` on real threads: what the published system tests on its counted buffers, and what
//! nobody tests there. A count means owners; released reads -1.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;

use ndpool::count::{RefCount, Refused, Released};

/// Runs `f(0)`, .., `f(threads - 1)` at once and returns what they return.
fn at_once<R: Send>(threads: usize, f: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let start = Barrier::new(threads);
    thread::scope(|scope| {
        let (start, f) = (&start, &f);
        let spawn = |n| {
            scope.spawn(move || {
                start.wait();
                f(n)
            })
        };
        let handles: Vec<_> = (0..threads).map(spawn).collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap())
            .collect()
    })
}

/// Rounds of races between the same threads, which meet before and after each round.
fn rounds(count: usize, racers: &[&(dyn Fn(usize) + Sync)], judge: impl Fn(usize) + Sync) {
    let meet = Barrier::new(racers.len());
    thread::scope(|scope| {
        for racer in racers {
            let (meet, judge) = (&meet, &judge);
            scope.spawn(move || {
                for round in 0..count {
                    meet.wait();
                    racer(round);
                    if meet.wait().is_leader() {
                        judge(round);
                    }
                }
            });
        }
    });
}

fn claims<'a>(all: impl IntoIterator<Item = &'a Released>) -> usize {
    all.into_iter()
        .filter(|released| **released == Released::Claimed)
        .count()
}

/// Lifecycle 1: one owner; released, it reads exactly -1.
#[test]
fn one_owner_releases() {
    let count = RefCount::new();
    assert_eq!(
        (count.count(), count.owners(), count.is_released()),
        (1, 1, false)
    );
    assert_eq!(count.release(), Released::Claimed);
    assert_eq!(
        (count.count(), count.owners(), count.is_released()),
        (-1, 0, true)
    );
}

/// Lifecycle 6: 32 threads x 1,000 add/release pairs on a live cell.
#[test]
fn many_threads_add_and_release() {
    let count = RefCount::new();
    at_once(32, |_| {
        for _ in 0..1000 {
            count.try_add().expect("a live cell refuses no add");
            assert_eq!(count.release(), Released::Shared);
        }
    });
    assert_eq!(count.count(), 1);
    assert_eq!(count.release(), Released::Claimed);
    assert_eq!(count.count(), -1);
}

/// Lifecycle 7: 50 threads release the one owner of a cell: one claims, the others are strays.
#[test]
fn many_threads_release_one_owner() {
    let mut strays = 0;
    for _ in 0..20 {
        let count = RefCount::new();
        let all = at_once(50, |_| count.release());
        assert_eq!(claims(&all), 1, "{all:?}");
        assert_eq!(count.count(), -1);
        strays += all
            .iter()
            .filter(|released| **released == Released::Stray)
            .count();
    }
    assert!(strays > 0);
}

/// Lifecycle 8: 10,000 rounds of the last release against an add: "added" and "claimed by the
/// releaser" exclude each other.
#[test]
fn an_add_races_the_last_release() {
    const ROUNDS: usize = 10_000;
    let counts: Vec<_> = (0..ROUNDS).map(|_| RefCount::new()).collect();
    let added: Vec<_> = (0..ROUNDS).map(|_| AtomicU32::new(0)).collect();
    let claimed: Vec<_> = (0..ROUNDS).map(|_| AtomicU32::new(0)).collect();
    rounds(
        ROUNDS,
        &[
            &|round| {
                let claim = counts[round].release() == Released::Claimed;
                claimed[round].store(claim.into(), Ordering::Relaxed);
            },
            &|round| {
                let add = counts[round].try_add().is_ok();
                added[round].store(add.into(), Ordering::Relaxed);
            },
        ],
        |round| {
            let added = added[round].load(Ordering::Relaxed) == 1;
            let claimed = claimed[round].load(Ordering::Relaxed) == 1;
            assert_ne!(added, claimed, "round {round}");
            assert_eq!(claimed, counts[round].is_released());
            assert_eq!(counts[round].count(), if added { 1 } else { -1 });
        },
    );
}

/// Lifecycle 9: 100 strays on a released cell leave it at -1.
#[test]
fn strays_on_a_released_cell() {
    let count = RefCount::new();
    assert_eq!(count.release(), Released::Claimed);
    for _ in 0..100 {
        assert_eq!(count.release(), Released::Stray);
        assert_eq!(count.count(), -1);
    }
    let all = at_once(8, |_| [(); 100].map(|()| count.release()));
    assert!(
        all.iter()
            .flatten()
            .all(|released| *released == Released::Stray)
    );
    assert_eq!(count.count(), -1);
}

/// Lifecycle 10, and "add at 0": a released cell refuses every add.
#[test]
fn adds_on_a_released_cell() {
    let count = RefCount::new();
    assert_eq!(count.release(), Released::Claimed);
    for _ in 0..100 {
        assert_eq!(count.try_add(), Err(Refused));
    }
    assert_eq!(count.count(), -1);
    assert_eq!(Refused.to_string(), "the counted cell is released");
}

/// An add races strays on a released cell: a decrement under way makes it neither live nor claimed.
#[test]
fn adds_and_strays_on_a_released_cell() {
    let count = RefCount::new();
    assert_eq!(count.release(), Released::Claimed);
    at_once(8, |n| {
        for _ in 0..1000 {
            if n % 2 == 0 {
                assert_eq!(count.release(), Released::Stray);
            } else {
                assert_eq!(count.try_add(), Err(Refused));
            }
        }
    });
    assert_eq!(count.count(), -1);
}

/// Lifecycle 11: a borrowed cell grants adds, and 101 releases do not release it.
#[test]
fn a_borrowed_cell_is_never_released() {
    let count = RefCount::immortal();
    count.try_add().unwrap();
    for _ in 0..101 {
        assert_eq!(count.release(), Released::Shared);
    }
    assert!(count.is_immortal());
    assert!(!count.is_released());
    count.try_add().unwrap();
}

/// Each borrow is its own: forcing one does not touch another, nor itself.
#[test]
fn borrowed_cells_are_independent() {
    let (first, second) = (RefCount::immortal(), RefCount::immortal());
    assert_eq!(first.force_release(), Released::Shared);
    assert!(!first.is_released() && !second.is_released());
    second.try_add().unwrap();
}

/// Lifecycle 12: a borrowed cell under 20 threads x 1,000.
#[test]
fn a_borrowed_cell_under_many_threads() {
    let count = RefCount::immortal();
    at_once(20, |n| {
        for _ in 0..1000 {
            if n % 2 == 0 {
                count.try_add().unwrap();
            }
            assert_eq!(count.release(), Released::Shared);
        }
    });
    assert!(count.is_immortal() && !count.is_released());
}

/// Lifecycle 32: 1,000 adds make 1,001, 1,000 releases make 1.
#[test]
fn a_thousand_adds_and_releases() {
    let count = RefCount::default();
    for n in 1..=1000 {
        count.try_add().unwrap();
        assert_eq!(count.count(), n + 1);
    }
    for n in (1..=1000).rev() {
        assert_eq!(count.release(), Released::Shared);
        assert_eq!(count.count(), n);
    }
    assert_eq!(count.release(), Released::Claimed);
}

/// A stray races the last release: published, about 0.03 % of the rounds leaked.
#[test]
fn a_stray_races_the_last_release() {
    const ROUNDS: usize = 100_000;
    let counts: Vec<_> = (0..ROUNDS).map(|_| RefCount::new()).collect();
    let freed: Vec<_> = (0..ROUNDS).map(|_| AtomicU32::new(0)).collect();
    let release = |round: usize| {
        if counts[round].release() == Released::Claimed {
            freed[round].fetch_add(1, Ordering::Relaxed);
        }
    };
    rounds(ROUNDS, &[&release, &release], |round| {
        assert_eq!(freed[round].load(Ordering::Relaxed), 1, "round {round}");
        assert_eq!(counts[round].count(), -1);
    });
}

/// Two owners and two strays, at once.
#[test]
fn two_strays_race_two_owners() {
    const ROUNDS: usize = 10_000;
    let counts: Vec<_> = (0..ROUNDS).map(|_| RefCount::new()).collect();
    counts.iter().for_each(|count| count.try_add().unwrap());
    let freed = AtomicUsize::new(0);
    let release = |round: usize| {
        if counts[round].release() == Released::Claimed {
            freed.fetch_add(1, Ordering::Relaxed);
        }
    };
    rounds(ROUNDS, &[&release, &release, &release, &release], |round| {
        assert_eq!(freed.load(Ordering::Relaxed), round + 1);
        assert_eq!(counts[round].count(), -1);
    });
}

/// A stray on a live cell takes the place of an owner's release: no count can tell. It is still
/// freed once, and the owner that comes late is told so.
#[test]
fn a_stray_on_a_live_cell() {
    let count = RefCount::new();
    count.try_add().unwrap();
    assert_eq!(count.release(), Released::Shared);
    assert_eq!(
        count.release(),
        Released::Claimed,
        "the stray, under the second owner"
    );
    assert_eq!(count.release(), Released::Stray, "the second owner");
    assert_eq!(count.count(), -1);
}

/// An add after a forced release is refused, and the owners that are left free nothing.
#[test]
fn an_add_after_a_forced_release() {
    let count = RefCount::new();
    (1..10).for_each(|_| count.try_add().unwrap());
    assert_eq!(count.force_release(), Released::Claimed);
    assert_eq!(count.try_add(), Err(Refused));
    assert_eq!(count.force_release(), Released::Stray);
    for _ in 0..10 {
        assert_eq!(count.release(), Released::Stray);
    }
    assert_eq!(count.count(), -1);
}

/// A forced release races adds and releases: exactly one claims.
#[test]
fn a_forced_release_races_owners() {
    const ROUNDS: usize = 10_000;
    let counts: Vec<_> = (0..ROUNDS).map(|_| RefCount::new()).collect();
    counts.iter().for_each(|count| count.try_add().unwrap());
    let freed = AtomicUsize::new(0);
    let note = |released| {
        if released == Released::Claimed {
            freed.fetch_add(1, Ordering::Relaxed);
        }
    };
    rounds(
        ROUNDS,
        &[
            &|round| note(counts[round].force_release()),
            &|round| note(counts[round].release()),
            &|round| {
                if counts[round].try_add().is_ok() {
                    note(counts[round].release());
                }
            },
        ],
        |round| {
            assert_eq!(freed.load(Ordering::Relaxed), round + 1);
            assert_eq!(counts[round].count(), -1);
        },
    );
}

/// The payload as its last owner sees it: every owner's write is there.
#[test]
fn the_claimant_sees_what_owners_did() {
    for _ in 0..200 {
        let count = RefCount::new();
        let cells: Vec<_> = (0..4).map(|_| AtomicU32::new(0)).collect();
        (1..cells.len()).for_each(|_| count.try_add().unwrap());
        at_once(cells.len(), |n| {
            cells[n].store(1, Ordering::Relaxed);
            if count.release() == Released::Claimed {
                assert!(cells.iter().all(|cell| cell.load(Ordering::Relaxed) == 1));
            }
        });
    }
}
