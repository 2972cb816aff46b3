//! Models of take and give between two threads: single blocks and whole magazines through the
//! depot, and depots that hold nothing or one block. Every hand-over is watched by the payload's
//! witness: the taker writes, the giver reads, the source frees.

mod support;

use ndpool::loom_model::{Model, outcome, spawn};
use support::{From, StandCore, Universe};

/// How many of the blocks did not come from the source.
fn reused(all: &[From]) -> usize {
    all.iter().filter(|from| **from != From::Source).count()
}

/// After all threads have ended: what rests is within `cap` and accounted for; then the pool goes,
/// and nothing is left.
fn assert_balanced(universe: &Universe, core: &StandCore, cap: usize) {
    let log = &universe.log;
    let resting = log.allocs() - log.deallocs();
    assert!(resting <= cap, "{resting} blocks rest in a depot of {cap}");
    assert_eq!(
        core.ledger.held(),
        resting,
        "bytes held, after all have come home"
    );
    assert_eq!(core.ledger.resting(), resting);
    universe.pass_by().drop_handle(core);
    assert_eq!(log.allocs(), log.deallocs(), "a block is left behind");
    assert_eq!(log.ends(), 1);
}

/// Two threads without magazines take and give a block each, by a depot that holds `cap`.
fn direct(name: &str, cap: usize, expected: &[&str]) {
    Model::new(name)
        .preemptions(Some(2))
        .check(expected, move || {
            let universe = Universe::new();
            let core = universe.open(cap, 0);
            let index = core.index();
            let work = move |universe: &Universe| {
                let thread = universe.pass_by();
                let (block, from) = thread.take(universe.core(index));
                thread.give(block);
                from
            };
            let other = spawn(&universe, work);
            let all = [work(&universe), other.join().unwrap()];
            assert_balanced(&universe, core, cap);
            outcome(format!("{} reused", reused(&all)));
        });
}

#[test]
fn a_depot_that_holds_nothing() {
    direct("a_depot_that_holds_nothing", 0, &["0 reused"]);
}

#[test]
fn a_depot_that_holds_one_block() {
    direct("a_depot_that_holds_one_block", 1, &["0 reused", "1 reused"]);
}

#[test]
fn a_depot_with_room() {
    direct("a_depot_with_room", 10, &["0 reused", "1 reused"]);
}

/// What a cache of the models charges, once it has magazines: three of one block.
const CACHE: usize = 3;

/// The first thread's magazines are full: what it gives next sends one to the depot. The second
/// thread's are empty: what it takes comes from there, or is born. `count` blocks each way. With
/// `stocked` the second thread's magazines are charged before, so that the depot's share of `cap` is
/// known; else they are when the first one comes.
fn magazines(name: &str, cap: usize, stocked: bool, count: usize, expected: &[&str]) {
    Model::new(name)
        .preemptions(Some(2))
        .check(expected, move || {
            let universe = Universe::new();
            let core = universe.open(cap, 1);
            let index = core.index();
            let giver = universe.arrive_at(core);
            let taker = universe.arrive_at(core);
            let mut taken = Vec::new();
            if stocked {
                taker.give(taker.take(core).0);
                let (block, from) = taker.take(core);
                assert_eq!(from, From::Cache, "the taker's cache is not stocked");
                taken.push(block);
            }
            let taker = taker.slot_index();
            taken.resize_with(2 + count, || giver.take(core).0);
            let spilled = taken.split_off(2);
            taken.into_iter().for_each(|block| giver.give(block));
            let elsewhere = (universe.log.deallocs(), core.ledger.resting());
            assert_eq!(elsewhere, (0, 0), "the giver's cache is not stocked");
            let other = spawn(&universe, move |universe| {
                let thread = universe.resume(taker);
                let taken: Vec<_> = (0..count)
                    .map(|_| thread.take(universe.core(index)))
                    .collect();
                taken.iter().for_each(|(block, _)| thread.give(block));
                taken.into_iter().map(|(_, from)| from).collect::<Vec<_>>()
            });
            spilled.into_iter().for_each(|block| giver.give(block));
            let all = other.join().unwrap();
            giver.exit();
            universe.resume(taker).exit();
            assert_balanced(&universe, core, cap);
            outcome(format!("{} reused", reused(&all)));
        });
}

#[test]
fn a_full_magazine_goes_to_another_thread() {
    let expected = ["0 reused", "1 reused"];
    let name = "a_full_magazine_goes_to_another_thread";
    magazines(name, 10, false, 1, &expected);
}

#[test]
fn two_full_magazines_go_to_another_thread() {
    let expected = ["0 reused", "1 reused", "2 reused"];
    let name = "two_full_magazines_go_to_another_thread";
    magazines(name, 10, false, 2, &expected);
}

#[test]
fn a_full_magazine_meets_a_full_depot() {
    let name = "a_full_magazine_meets_a_full_depot";
    magazines(name, 2 * CACHE, true, 1, &["0 reused"]);
}

#[test]
fn a_full_magazine_meets_a_depot_for_one_block() {
    let expected = ["0 reused", "1 reused"];
    let name = "a_full_magazine_meets_a_depot_for_one_block";
    magazines(name, 2 * CACHE + 1, true, 1, &expected);
}

/// Two threads take from one resting magazine and give back: 2 x 2 trips.
#[test]
fn two_by_two_by_one_magazine() {
    let expected = ["1 reused", "2 reused"];
    let model = Model::new("two_by_two_by_one_magazine");
    model.preemptions(Some(2)).check(&expected, || {
        let universe = Universe::new();
        let core = universe.open(10, 1);
        let index = core.index();
        let before = universe.arrive_at(core);
        let (block, _) = before.take(core);
        before.give(block);
        before.exit();
        let slots = [(); 2].map(|()| universe.arrive_at(core).slot_index());
        let work = move |universe: &Universe, slot: u32| {
            let thread = universe.resume(slot);
            let (block, from) = thread.take(universe.core(index));
            thread.give(block);
            thread.exit();
            from
        };
        let other = spawn(&universe, move |universe| work(universe, slots[1]));
        let all = [work(&universe, slots[0]), other.join().unwrap()];
        assert_balanced(&universe, core, 10);
        outcome(format!("{} reused", reused(&all)));
    });
}
