//! Models of the owner-biased lock: an owner that works, flushes, exits and is followed by another
//! one, against trimmers that take turns and a pool that closes. The cache is a number of rounds in
//! a witness, so that two at a time are seen, and no round is lost or counted twice.

use std::sync::Arc;

use ndpool::loom_model::kernel::reach::{Bias, CLOSED, FLUSH, Steal};
use ndpool::loom_model::sync::{AtomicU32, Ordering, pause};
use ndpool::loom_model::{Model, Witness, check, outcome, spawn};

/// A cache behind its lock, and the turn of those who reach for it.
struct Cache {
    bias: Bias,
    rounds: Witness,
    turn: AtomicU32,
}

/// What one thread did, in rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Done {
    pushed: u32,
    emptied: u32,
}

impl Done {
    /// Every round that the owner pushed was emptied: by itself, or `taken` by who reached for it.
    #[track_caller]
    fn assert_nothing_left(self, taken: u32) {
        assert_eq!(self.pushed, self.emptied + taken, "left behind");
    }
}

impl std::ops::Add for Done {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            pushed: self.pushed + other.pushed,
            emptied: self.emptied + other.emptied,
        }
    }
}

impl Cache {
    fn vacant() -> Arc<Self> {
        Arc::new(Self {
            bias: Bias::vacant(),
            rounds: Witness::new(0),
            turn: AtomicU32::new(0),
        })
    }

    /// A cache that the calling thread, or who it hands it to, owns.
    fn owned() -> Arc<Self> {
        let cache = Self::vacant();
        assert!(cache.bias.adopt(|| ()));
        cache
    }

    /// For who has the cache to itself.
    fn empty(&self) -> u32 {
        let rounds = self.rounds.read();
        self.rounds.write(0);
        rounds
    }

    /// Owner: one operation, which pushes a round if nothing is requested.
    fn work(&self) -> Done {
        let mut done = Done::default();
        if self.bias.enter() {
            self.rounds.write(self.rounds.read() + 1);
            self.bias.leave();
            done.pushed = 1;
            return done;
        }
        done.emptied = self.answer();
        done
    }

    /// Owner: does what is requested, as `Core::answer` does.
    fn answer(&self) -> u32 {
        let request = self.bias.request();
        if request & CLOSED != 0 {
            return if self.bias.claim_close_flush() {
                self.empty()
            } else {
                0
            };
        }
        if request & FLUSH != 0 && self.bias.accept_flush() && self.bias.enter() {
            let emptied = self.empty();
            self.bias.leave();
            return emptied;
        }
        0
    }

    /// Owner: exits, and empties what is left to it.
    fn exit(&self) -> Done {
        let emptied = if self.bias.exit() { self.empty() } else { 0 };
        Done { pushed: 0, emptied }
    }

    fn in_turn<R>(&self, f: impl FnOnce() -> R) -> R {
        while self.turn.swap(1, Ordering::Acquire) != 0 {
            pause(0);
        }
        let result = f();
        self.turn.swap(0, Ordering::Release);
        result
    }

    /// Trimmer.
    fn trim(&self) -> (Steal, u32) {
        self.in_turn(|| {
            let fate = self.bias.steal(true);
            if fate != Steal::Taken {
                return (fate, 0);
            }
            let emptied = self.empty();
            let _ = self.bias.restore();
            (fate, emptied)
        })
    }

    /// Auditor: looks, and gives the cache back as it was unless its owner has exited.
    fn audit(&self) -> (Steal, u32) {
        self.in_turn(|| {
            let fate = self.bias.steal(false);
            if fate != Steal::Taken {
                return (fate, 0);
            }
            let _ = self.rounds.read();
            if self.bias.give_back() {
                return (fate, 0);
            }
            let emptied = self.empty();
            let _ = self.bias.restore();
            (fate, emptied)
        })
    }

    /// The closing pool.
    fn close(&self) -> (Steal, u32) {
        self.in_turn(|| {
            let fate = self.bias.close(false);
            if fate != Steal::Taken {
                return (fate, 0);
            }
            let emptied = self.empty();
            let _ = self.bias.restore();
            (fate, emptied)
        })
    }
}

#[test]
fn a_trimmer_meets_a_working_owner() {
    let expected = ["Taken 0", "Taken 1", "Taken 2", "LeftToOwner 0"];
    check("a_trimmer_meets_a_working_owner", &expected, || {
        let cache = Cache::owned();
        let trimmer = spawn(&cache, Cache::trim);
        let owner = cache.work() + cache.work();
        let (fate, taken) = trimmer.join().unwrap();
        assert_eq!(owner.pushed, owner.emptied + taken + cache.rounds.read());
        outcome(format!("{fate:?} {taken}"));
    });
}

#[test]
fn the_owner_flushes_what_was_left_to_it() {
    let expected = ["flushed 1", "flushed 0", "taken"];
    check("the_owner_flushes_what_was_left_to_it", &expected, || {
        let cache = Cache::owned();
        let trimmer = spawn(&cache, Cache::trim);
        let owner = cache.work();
        let (fate, taken) = trimmer.join().unwrap();
        let request = cache.bias.request();
        let later = cache.work();
        assert_eq!(
            (owner + later).pushed,
            (owner + later).emptied + taken + cache.rounds.read()
        );
        outcome(match fate {
            Steal::LeftToOwner => {
                // Either the owner has met the request in its first operation, or it must now.
                assert_eq!(request & FLUSH != 0, later.pushed == 0);
                format!("flushed {}", (owner + later).emptied)
            }
            _ => "taken".to_owned(),
        });
    });
}

#[test]
fn a_trimmer_meets_an_exit() {
    let expected = ["owner", "trimmer", "nothing pushed"];
    check("a_trimmer_meets_an_exit", &expected, || {
        let cache = Cache::owned();
        let trimmer = spawn(&cache, Cache::trim);
        let owner = cache.work() + cache.exit();
        let (_, taken) = trimmer.join().unwrap();
        owner.assert_nothing_left(taken);
        outcome(match (owner.emptied, taken) {
            (1, 0) => "owner",
            (0, 1) => "trimmer",
            (0, 0) => "nothing pushed",
            _ => panic!("a round was emptied twice"),
        });
    });
}

#[test]
fn an_auditor_meets_an_exit() {
    let expected = ["owner", "auditor", "nothing pushed"];
    check("an_auditor_meets_an_exit", &expected, || {
        let cache = Cache::owned();
        let auditor = spawn(&cache, Cache::audit);
        let owner = cache.work() + cache.exit();
        let (_, taken) = auditor.join().unwrap();
        owner.assert_nothing_left(taken);
        outcome(match (owner.emptied, taken) {
            (1, 0) => "owner",
            (0, 1) => "auditor",
            (0, 0) => "nothing pushed",
            _ => panic!("a round was emptied twice"),
        });
    });
}

/// What an auditor gives back goes on being used by its owner, and by the next trimmer.
#[test]
fn an_auditor_meets_a_working_owner() {
    let expected = ["kept 0", "kept 1", "kept 2", "kept 3"];
    check("an_auditor_meets_a_working_owner", &expected, || {
        let cache = Cache::owned();
        let auditor = spawn(&cache, Cache::audit);
        let owner = cache.work() + cache.work() + cache.work();
        let (_, taken) = auditor.join().unwrap();
        assert_eq!(taken, 0);
        let kept = cache.rounds.read();
        assert_eq!((owner.pushed, owner.emptied), (kept, 0));
        outcome(format!("kept {kept}"));
    });
}

#[test]
fn two_trimmers_meet_an_exit() {
    let expected = ["owner", "trimmers", "nothing pushed"];
    check("two_trimmers_meet_an_exit", &expected, || {
        let cache = Cache::owned();
        let trimmers = [(); 2].map(|()| spawn(&cache, Cache::trim));
        let owner = cache.work() + cache.exit();
        let taken: u32 = trimmers
            .map(|trimmer| trimmer.join().unwrap().1)
            .iter()
            .sum();
        owner.assert_nothing_left(taken);
        outcome(match (owner.emptied, taken) {
            (1, 0) => "owner",
            (0, 1) => "trimmers",
            _ => "nothing pushed",
        });
    });
}

/// Owner, exit, next owner of the slot; a trimmer that may be at the cache all the while.
#[test]
fn a_trimmer_meets_the_next_owner() {
    let expected = ["adopted", "adopted, work refused", "still being emptied"];
    check("a_trimmer_meets_the_next_owner", &expected, || {
        let cache = Cache::owned();
        let trimmer = spawn(&cache, Cache::trim);
        let mut all = cache.work() + cache.exit();
        // The slot goes to the next thread in an order of its own; here it is the same one.
        let adopted = cache.bias.adopt(|| {
            assert_eq!(cache.rounds.read(), 0, "adopted with rounds in it");
            cache.rounds.write(0);
        });
        let mut worked = Done::default();
        if adopted {
            worked = cache.work();
            all = all + worked;
        }
        let (_, taken) = trimmer.join().unwrap();
        assert_eq!(all.pushed, all.emptied + taken + cache.rounds.read());
        outcome(match (adopted, worked.pushed) {
            (true, 1) => "adopted",
            (true, _) => "adopted, work refused",
            (false, _) => "still being emptied",
        });
    });
}

/// What a new owner has bound is seen by the trimmer, though the owner has not worked yet.
#[test]
fn a_trimmer_meets_an_adoption() {
    let expected = ["vacant", "taken"];
    check("a_trimmer_meets_an_adoption", &expected, || {
        let cache = Cache::vacant();
        let trimmer = spawn(&cache, Cache::trim);
        assert!(cache.bias.adopt(|| cache.rounds.write(3)));
        let (fate, taken) = trimmer.join().unwrap();
        assert_eq!(taken + cache.rounds.read(), 3);
        outcome(if fate == Steal::Taken {
            "taken"
        } else {
            "vacant"
        });
    });
}

#[test]
fn a_close_meets_a_working_owner() {
    let expected = ["by the closer", "by the owner", "nothing pushed"];
    check("a_close_meets_a_working_owner", &expected, || {
        let cache = Cache::owned();
        let closer = spawn(&cache, Cache::close);
        let owner = cache.work() + cache.work();
        let (_, taken) = closer.join().unwrap();
        let owner = owner + cache.work();
        owner.assert_nothing_left(taken);
        outcome(match (taken > 0, owner.emptied > 0) {
            (true, _) => "by the closer",
            (_, true) => "by the owner",
            _ => "nothing pushed",
        });
    });
}

#[test]
fn a_close_meets_an_exit() {
    let expected = ["by the closer", "by the owner", "nothing pushed"];
    check("a_close_meets_an_exit", &expected, || {
        let cache = Cache::owned();
        let closer = spawn(&cache, Cache::close);
        let owner = cache.work() + cache.exit();
        let (_, taken) = closer.join().unwrap();
        owner.assert_nothing_left(taken);
        outcome(match (taken, owner.emptied) {
            (1, 0) => "by the closer",
            (0, 1) => "by the owner",
            (0, 0) => "nothing pushed",
            _ => panic!("a round was emptied twice"),
        });
    });
}

/// A closer sees what a new owner has bound.
#[test]
fn a_close_meets_an_adoption() {
    let expected = ["vacant", "taken", "refused"];
    check("a_close_meets_an_adoption", &expected, || {
        let cache = Cache::vacant();
        let closer = spawn(&cache, Cache::close);
        let adopted = cache.bias.adopt(|| cache.rounds.write(3));
        let (fate, taken) = closer.join().unwrap();
        outcome(match (adopted, fate) {
            (true, Steal::Taken) => {
                assert_eq!(taken, 3);
                "taken"
            }
            (true, _) => "vacant",
            (false, _) => "refused",
        });
    });
}

/// A trim, then the pool closes, while the owner works and exits.
#[test]
fn a_trim_and_a_close_meet_an_exit() {
    let expected = ["closer", "owner", "trimmer", "nothing pushed"];
    let model = Model::new("a_trim_and_a_close_meet_an_exit");
    model.check(&expected, || {
        let cache = Cache::owned();
        let trimmer = spawn(&cache, Cache::trim);
        let closer = spawn(&cache, Cache::close);
        let owner = cache.work() + cache.exit();
        let (trimmed, closed) = (trimmer.join().unwrap().1, closer.join().unwrap().1);
        owner.assert_nothing_left(trimmed + closed);
        outcome(match [closed, owner.emptied, trimmed] {
            [1, 0, 0] => "closer",
            [0, 1, 0] => "owner",
            [0, 0, 1] => "trimmer",
            [0, 0, 0] => "nothing pushed",
            _ => panic!("a round was emptied twice"),
        });
    });
}

/// A trim, then the pool closes, then the owner comes: it sees the cache as the trimmer left it.
#[test]
fn a_trim_and_a_close_meet_a_working_owner() {
    let expected = ["closer", "owner", "trimmer", "nothing pushed"];
    let model = Model::new("a_trim_and_a_close_meet_a_working_owner");
    model.check(&expected, || {
        let cache = Cache::owned();
        let reacher = spawn(&cache, |cache| (cache.trim().1, cache.close().1));
        let owner = cache.work() + cache.work();
        let (trimmed, closed) = reacher.join().unwrap();
        let owner = owner + cache.work();
        owner.assert_nothing_left(trimmed + closed);
        outcome(match [closed > 0, owner.emptied > 0, trimmed > 0] {
            [true, _, _] => "closer",
            [_, true, _] => "owner",
            [_, _, true] => "trimmer",
            _ => "nothing pushed",
        });
    });
}

/// Owner, exit, next owner of the slot, who has not heard yet that the pool closes.
#[test]
fn a_close_meets_the_next_owner() {
    let expected = ["adopted", "refused"];
    check("a_close_meets_the_next_owner", &expected, || {
        let cache = Cache::owned();
        let closer = spawn(&cache, Cache::close);
        let mut all = cache.work() + cache.exit();
        let adopted = cache.bias.adopt(|| {
            assert_eq!(cache.rounds.read(), 0, "adopted with rounds in it");
            cache.rounds.write(0);
        });
        if adopted {
            all = all + cache.work() + cache.exit();
        }
        let (_, taken) = closer.join().unwrap();
        all.assert_nothing_left(taken);
        outcome(if adopted { "adopted" } else { "refused" });
    });
}

/// The owner tries to adopt its own cache again, not having heard that the pool closes.
#[test]
fn a_close_meets_an_owner_that_registers_again() {
    let expected = ["adopted", "refused"];
    check(
        "a_close_meets_an_owner_that_registers_again",
        &expected,
        || {
            let cache = Cache::owned();
            let closer = spawn(&cache, Cache::close);
            let mut all = cache.work();
            let adopted = cache.bias.adopt(|| cache.rounds.write(0));
            if adopted {
                // As `Core::register` does once it has heard.
                let _ = cache.bias.renounce();
            }
            let (_, taken) = closer.join().unwrap();
            all = all + cache.work();
            all.assert_nothing_left(taken);
            outcome(if adopted { "adopted" } else { "refused" });
        },
    );
}
