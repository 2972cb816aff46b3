//! Models of the state word: every row of its transition table, and every pair of transitions
//! that can meet. The payload is a witness: read by every owner, poisoned by the last one.

use std::sync::Arc;

use ndpool::loom_model::kernel::state::{Exhausted, Released, Stale, State};
use ndpool::loom_model::tuning::{LAST_GENERATION, OWNERS_LIMIT};
use ndpool::loom_model::{Witness, check, outcome, spawn};

/// A control block and its payload.
struct Block {
    state: State,
    payload: Witness,
}

impl Block {
    /// A unique block whose payload holds 1.
    fn unique() -> Arc<Self> {
        Arc::new(Self {
            state: State::new(),
            payload: Witness::new(1),
        })
    }

    /// A block in generation 1 with `owners` owners.
    fn shared(owners: u32) -> Arc<Self> {
        let block = Self::unique();
        assert_eq!(block.state.share(), Ok(1));
        for _ in 1..owners {
            block.state.add();
        }
        block
    }

    /// A block in its last generation, with one owner.
    fn shared_for_the_last_time() -> Arc<Self> {
        let block = Arc::new(Self {
            state: State::at_generation(LAST_GENERATION - 1),
            payload: Witness::new(1),
        });
        assert_eq!(block.state.share(), Ok(LAST_GENERATION));
        block
    }

    /// What an owner does: reads, releases, frees if it was the last. `true` if so.
    fn read_and_release(&self, value: u32) -> bool {
        assert_eq!(self.payload.read(), value);
        match self.state.release() {
            Released::Last { .. } => {
                self.payload.free();
                true
            }
            Released::Shared => false,
        }
    }

    /// What a handle of `generation` does. `None` if stale, else as `read_and_release`.
    fn upgrade_and_release(&self, generation: u32, value: u32) -> Option<bool> {
        self.state
            .upgrade(generation)
            .ok()
            .map(|()| self.read_and_release(value))
    }

    fn assert_released(&self, generation: u32) {
        let state = self.state.load();
        assert_eq!((state.stored(), state.generation()), (-1, generation));
    }
}

#[test]
fn t1_share_publishes_to_handles() {
    check(
        "t1_share_publishes_to_handles",
        &["stale", "upgraded"],
        || {
            let block = Block::unique();
            // The handle's bits came by a channel that orders nothing.
            let handle = spawn(&block, |block| {
                let upgraded = block.state.upgrade(1).is_ok();
                if upgraded {
                    assert_eq!(block.payload.read(), 7);
                }
                upgraded
            });
            block.payload.write(7);
            assert_eq!(block.state.share(), Ok(1));
            let upgraded = handle.join().unwrap();
            assert_eq!(block.state.load().owners(), 1 + u32::from(upgraded));
            outcome(if upgraded { "upgraded" } else { "stale" });
        },
    );
}

#[test]
fn t2_owners_add_at_once() {
    check(
        "t2_owners_add_at_once",
        &["last: main", "last: other"],
        || {
            let block = Block::shared(2);
            let twice = |block: &Block| {
                block.state.add();
                let first = block.read_and_release(1);
                assert!(!first, "freed under its other share");
                block.read_and_release(1)
            };
            let other = spawn(&block, twice);
            let main = twice(&block);
            let other = other.join().unwrap();
            assert!(main ^ other);
            block.assert_released(1);
            outcome(if main { "last: main" } else { "last: other" });
        },
    );
}

#[test]
fn t3_upgrade_meets_the_last_release() {
    let expected = ["stale", "upgraded, last: owner", "upgraded, last: handle"];
    check("t3_upgrade_meets_the_last_release", &expected, || {
        let block = Block::shared(1);
        let handle = spawn(&block, |block| block.upgrade_and_release(1, 1));
        let owner_last = block.read_and_release(1);
        let upgraded = handle.join().unwrap();
        assert!(owner_last ^ (upgraded == Some(true)));
        block.assert_released(1);
        outcome(match (upgraded, owner_last) {
            (None, _) => "stale",
            (Some(_), true) => "upgraded, last: owner",
            (Some(_), false) => "upgraded, last: handle",
        });
    });
}

#[test]
fn t3_two_handles_and_the_last_release() {
    let expected = ["0 upgraded", "1 upgraded", "2 upgraded"];
    check("t3_two_handles_and_the_last_release", &expected, || {
        let block = Block::shared(1);
        let handles = [(); 2].map(|()| spawn(&block, |block| block.upgrade_and_release(1, 1)));
        let mut last = usize::from(block.read_and_release(1));
        let mut upgraded = 0;
        for result in handles.map(|handle| handle.join().unwrap()) {
            last += usize::from(result == Some(true));
            upgraded += usize::from(result.is_some());
        }
        assert_eq!(last, 1);
        block.assert_released(1);
        outcome(format!("{upgraded} upgraded"));
    });
}

#[test]
fn t4_a_stale_handle_meets_a_recycled_block() {
    let expected = ["stale", "upgraded, last: owner", "upgraded, last: handle"];
    check(
        "t4_a_stale_handle_meets_a_recycled_block",
        &expected,
        || {
            let block = Block::shared(1);
            let handle = spawn(&block, |block| block.upgrade_and_release(1, 1));
            let owner_last = block.read_and_release(1);
            if owner_last {
                // The next life: its owner must never meet the old handle.
                block.payload.write(2);
                assert_eq!(block.state.share(), Ok(2));
                assert!(
                    block.read_and_release(2),
                    "a handle of the life before owns this one"
                );
            }
            let upgraded = handle.join().unwrap();
            assert!(owner_last ^ (upgraded == Some(true)));
            block.assert_released(1 + u32::from(owner_last));
            outcome(match (upgraded, owner_last) {
                (None, _) => "stale",
                (Some(_), true) => "upgraded, last: owner",
                (Some(_), false) => "upgraded, last: handle",
            });
        },
    );
}

#[test]
fn t4_old_and_new_handle_meet_a_recycled_block() {
    let expected = ["old", "new", "old, new", "none"];
    check(
        "t4_old_and_new_handle_meet_a_recycled_block",
        &expected,
        || {
            let block = Block::shared(1);
            let old = spawn(&block, |block| block.upgrade_and_release(1, 1));
            let new = spawn(&block, |block| block.upgrade_and_release(2, 2));
            let recycled = block.read_and_release(1);
            let mut last = false;
            if recycled {
                block.payload.write(2);
                assert_eq!(block.state.share(), Ok(2));
                last = block.read_and_release(2);
            }
            let (old, new) = (old.join().unwrap(), new.join().unwrap());
            assert!(recycled ^ (old == Some(true)));
            assert_eq!(recycled, last ^ (new == Some(true)));
            outcome(match (old.is_some(), new.is_some()) {
                (true, true) => "old, new",
                (true, false) => "old",
                (false, true) => "new",
                (false, false) => "none",
            });
        },
    );
}

#[test]
fn t5_t6_two_owners_release() {
    check(
        "t5_t6_two_owners_release",
        &["last: main", "last: other"],
        || {
            let block = Block::shared(2);
            let other = spawn(&block, |block| block.read_and_release(1));
            let main = block.read_and_release(1);
            let other = other.join().unwrap();
            assert!(main ^ other);
            block.assert_released(1);
            outcome(if main { "last: main" } else { "last: other" });
        },
    );
}

#[test]
fn t5_t6_three_owners_release() {
    let expected = ["last: 0", "last: 1", "last: 2"];
    check("t5_t6_three_owners_release", &expected, || {
        let block = Block::shared(3);
        let others = [(); 2].map(|()| spawn(&block, |block| block.read_and_release(1)));
        let main = block.read_and_release(1);
        let [second, third] = others.map(|other| other.join().unwrap());
        let last = [main, second, third];
        assert_eq!(last.iter().filter(|last| **last).count(), 1);
        block.assert_released(1);
        outcome(format!(
            "last: {}",
            last.iter().position(|last| *last).unwrap()
        ));
    });
}

#[test]
fn t6_two_owners_and_a_handle() {
    let expected = ["stale", "upgraded, last: owner", "upgraded, last: handle"];
    check("t6_two_owners_and_a_handle", &expected, || {
        let block = Block::shared(2);
        let other = spawn(&block, |block| block.read_and_release(1));
        let handle = spawn(&block, |block| block.upgrade_and_release(1, 1));
        let owner_last = block.read_and_release(1) | other.join().unwrap();
        let upgraded = handle.join().unwrap();
        assert!(owner_last ^ (upgraded == Some(true)));
        block.assert_released(1);
        outcome(match (upgraded, owner_last) {
            (None, _) => "stale",
            (Some(_), true) => "upgraded, last: owner",
            (Some(_), false) => "upgraded, last: handle",
        });
    });
}

#[test]
fn t7_take_back_meets_a_release() {
    let expected = ["unique", "shared, last: main", "shared, last: other"];
    check("t7_take_back_meets_a_release", &expected, || {
        let block = Block::shared(2);
        let other = spawn(&block, |block| block.read_and_release(1));
        if block.state.try_unique() {
            block.payload.write(2);
            assert!(
                !other.join().unwrap(),
                "released last, beside a unique owner"
            );
            block.assert_released(1);
            return outcome("unique");
        }
        let main = block.read_and_release(1);
        assert!(main ^ other.join().unwrap());
        outcome(if main {
            "shared, last: main"
        } else {
            "shared, last: other"
        });
    });
}

#[test]
fn t7_take_back_meets_an_upgrade() {
    let expected = ["unique, stale", "unique after the handle", "shared"];
    check("t7_take_back_meets_an_upgrade", &expected, || {
        let block = Block::shared(1);
        let handle = spawn(&block, |block| block.upgrade_and_release(1, 1));
        let unique = block.state.try_unique();
        if unique {
            block.payload.write(2);
            // Shared anew, for handles of another generation.
            assert_eq!(block.state.share(), Ok(2));
            assert!(block.read_and_release(2));
        } else {
            let main = block.read_and_release(1);
            let other = handle.join().unwrap().expect("who else was in the way?");
            assert!(main ^ other);
            return outcome("shared");
        }
        outcome(match handle.join().unwrap() {
            None => "unique, stale",
            Some(last) => {
                assert!(!last);
                "unique after the handle"
            }
        });
    });
}

#[test]
fn t7_two_owners_want_it_unique() {
    let expected = ["main", "other", "nobody"];
    check("t7_two_owners_want_it_unique", &expected, || {
        let block = Block::shared(2);
        // Each tries, and gives its share up if it cannot have it all.
        let take = |block: &Block| {
            if block.state.try_unique() {
                block.payload.write(2);
                block.payload.free();
                return Some(());
            }
            block.read_and_release(1);
            None
        };
        let other = spawn(&block, take);
        let main = take(&block);
        let other = other.join().unwrap();
        block.assert_released(1);
        outcome(match (main, other) {
            (Some(()), None) => "main",
            (None, Some(())) => "other",
            (None, None) => "nobody",
            (Some(()), Some(())) => panic!("two unique owners"),
        });
    });
}

#[test]
fn t8_forced_twice() {
    check("t8_forced_twice", &["main", "other"], || {
        let block = Block::shared(2);
        let force = |block: &Block| match block.state.force_release(1) {
            Ok(released) => {
                assert_eq!(released, Released::Last { retire: false });
                block.payload.free();
                true
            }
            Err(Stale) => false,
        };
        let other = spawn(&block, force);
        let main = force(&block);
        assert!(main ^ other.join().unwrap());
        block.assert_released(1);
        outcome(if main { "main" } else { "other" });
    });
}

#[test]
fn t8_forced_after_a_release() {
    let expected = ["forced", "released, last: main", "released, last: other"];
    check("t8_forced_after_a_release", &expected, || {
        let block = Block::shared(2);
        let other = spawn(&block, |block| block.read_and_release(1));
        if block.state.load().owners() == 1 {
            // Nobody else owns it; who did is done with the payload.
            assert_eq!(
                block.state.force_release(1),
                Ok(Released::Last { retire: false })
            );
            block.payload.free();
            assert!(!other.join().unwrap());
            return outcome("forced");
        }
        let main = block.read_and_release(1);
        assert!(main ^ other.join().unwrap());
        outcome(if main {
            "released, last: main"
        } else {
            "released, last: other"
        });
    });
}

#[test]
fn t8_forced_meets_a_handle() {
    let expected = ["stale", "too early", "too early twice"];
    check("t8_forced_meets_a_handle", &expected, || {
        let block = Block::shared(1);
        let handle = spawn(&block, |block| {
            // An owner by upgrade may not act after the force: it does not even release.
            let early = block.state.upgrade(1).is_ok();
            (early, early && block.state.upgrade(1).is_ok())
        });
        assert_eq!(
            block.state.force_release(1),
            Ok(Released::Last { retire: false })
        );
        assert_eq!(
            block.state.upgrade(1),
            Err(Stale),
            "an add after the forced release"
        );
        assert_eq!(block.state.share(), Ok(2));
        assert_eq!(
            block.state.force_release(1),
            Err(Stale),
            "forced another life"
        );
        let early = handle.join().unwrap();
        assert_eq!(block.state.load().owners(), 1);
        outcome(match early {
            (_, true) => "too early twice",
            (true, _) => "too early",
            _ => "stale",
        });
    });
}

#[test]
fn t9_the_limit_is_reached_under_a_handle() {
    let expected = ["stale", "upgraded"];
    check("t9_the_limit_is_reached_under_a_handle", &expected, || {
        let block = Block::unique();
        let handle = spawn(&block, |block| {
            let upgraded = block.state.upgrade(1).is_ok();
            if upgraded {
                assert_eq!(block.payload.read(), 7);
                let _ = block.state.release();
            }
            upgraded
        });
        block.payload.write(7);
        assert_eq!(block.state.share(), Ok(1));
        for _ in 0..OWNERS_LIMIT {
            block.state.add();
        }
        let upgraded = handle.join().unwrap();
        assert!(block.state.load().is_saturated());
        assert_eq!(block.state.load().generation(), 1);
        for _ in 0..4 * OWNERS_LIMIT {
            assert_eq!(block.state.release(), Released::Shared);
        }
        assert_eq!(block.payload.read(), 7);
        assert_eq!(block.state.force_release(1), Err(Stale));
        assert!(!block.state.try_unique());
        outcome(if upgraded { "upgraded" } else { "stale" });
    });
}

#[test]
fn t9_a_saturated_word_stays_in_its_band() {
    check(
        "t9_a_saturated_word_stays_in_its_band",
        &["immortal"],
        || {
            let block = Block::unique();
            assert_eq!(block.state.share_saturated(), Ok(1));
            let other = spawn(&block, |block| {
                for _ in 0..4 {
                    assert_eq!(block.state.release(), Released::Shared);
                }
            });
            for _ in 0..4 {
                block.state.add();
            }
            assert_eq!(block.state.upgrade(1), Ok(()));
            other.join().unwrap();
            assert!(block.state.load().is_saturated());
            outcome("immortal");
        },
    );
}

#[test]
fn t10_the_last_generation_retires() {
    let expected = ["stale", "upgraded, last: owner", "upgraded, last: handle"];
    check("t10_the_last_generation_retires", &expected, || {
        let block = Block::shared_for_the_last_time();
        let release = |block: &Block| block.state.release() == Released::Last { retire: true };
        let handle = spawn(&block, move |block| {
            block
                .state
                .upgrade(LAST_GENERATION)
                .ok()
                .map(|()| release(block))
        });
        let owner_last = release(&block);
        if owner_last {
            assert_eq!(block.state.share(), Err(Exhausted));
            assert_eq!(
                block.state.upgrade(0),
                Err(Stale),
                "the generation has wrapped"
            );
        }
        let upgraded = handle.join().unwrap();
        assert!(owner_last ^ (upgraded == Some(true)));
        block.assert_released(LAST_GENERATION);
        outcome(match (upgraded, owner_last) {
            (None, _) => "stale",
            (Some(_), true) => "upgraded, last: owner",
            (Some(_), false) => "upgraded, last: handle",
        });
    });
}

#[test]
fn t10_forced_in_the_last_generation_retires() {
    let expected = ["stale", "upgraded"];
    check(
        "t10_forced_in_the_last_generation_retires",
        &expected,
        || {
            let block = Block::shared_for_the_last_time();
            let handle = spawn(&block, |block| block.state.upgrade(LAST_GENERATION).is_ok());
            let forced = block.state.force_release(LAST_GENERATION);
            assert_eq!(forced, Ok(Released::Last { retire: true }));
            let upgraded = handle.join().unwrap();
            outcome(if upgraded { "upgraded" } else { "stale" });
        },
    );
}

#[test]
fn t10_taken_back_in_the_last_generation() {
    check(
        "t10_taken_back_in_the_last_generation",
        &["stale", "upgraded"],
        || {
            let block = Block::shared_for_the_last_time();
            let handle = spawn(&block, |block| block.state.upgrade(LAST_GENERATION).is_ok());
            let unique = block.state.try_unique();
            if unique {
                assert_eq!(block.state.share(), Err(Exhausted));
                assert_eq!(block.state.share_saturated(), Err(Exhausted));
            }
            assert_ne!(unique, handle.join().unwrap());
            outcome(if unique { "stale" } else { "upgraded" });
        },
    );
}
