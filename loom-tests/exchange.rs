//! Models of take and give between two threads: magazines through the depot, two threads with two
//! magazines each, and depots that hold nothing or one block. Every hand-over is watched by the
//! payload's witness: the taker writes, the giver reads, the source frees.

mod support;

use ndpool::loom_model::{Model, outcome};
use support::{From, Universe, spawn};

/// How many of the blocks did not come from the source.
fn reused(all: &[From]) -> usize {
    all.iter().filter(|from| **from != From::Source).count()
}

/// Takes `count` blocks at once and gives them back; a magazine holds one, so that the second
/// makes a trip.
fn work(universe: &Universe, index: u32, count: usize) -> Vec<From> {
    let core = universe.core(index);
    let thread = universe.arrive();
    let taken: Vec<_> = (0..count).map(|_| thread.take(core)).collect();
    taken.iter().for_each(|(block, _)| thread.give(block));
    thread.exit();
    taken.into_iter().map(|(_, from)| from).collect()
}

/// Two threads take and give `count` blocks each, by a depot that holds `cap` blocks, of which
/// `resting` rest beforehand. Outcomes: how many of the blocks were reused.
fn exchange(name: &str, bound: usize, [count, cap, resting]: [usize; 3], expected: &[&str]) {
    Model::new(name)
        .preemptions(Some(bound))
        .check(expected, move || {
            let universe = Universe::new();
            let core = universe.open(cap, 1);
            let index = core.index();
            let main = universe.pass_by();
            let blocks: Vec<_> = (0..resting).map(|_| main.take(core).0).collect();
            blocks.into_iter().for_each(|block| main.give(block));
            let other = spawn(&universe, move |universe| work(universe, index, count));
            let mut all = work(&universe, index, count);
            all.extend(other.join().unwrap());
            let log = &universe.log;
            let resting_now = log.allocs() - log.deallocs();
            assert!(
                resting_now <= cap,
                "{resting_now} blocks rest in a depot of {cap}"
            );
            assert_eq!(
                core.ledger.held(),
                resting_now,
                "bytes held, after all have come home"
            );
            assert_eq!(core.ledger.resting(), resting_now);
            main.drop_handle(core);
            assert_eq!(log.allocs(), log.deallocs(), "a block is left behind");
            assert_eq!(log.ends(), 1);
            outcome(format!("{} reused", reused(&all)));
        });
}

#[test]
fn two_threads_exchange_two_blocks() {
    let expected = ["0 reused", "1 reused", "2 reused"];
    exchange(
        "two_threads_exchange_two_blocks",
        2,
        [1, 10, 1],
        &expected[1..],
    );
}

#[test]
fn a_depot_that_holds_nothing() {
    exchange("a_depot_that_holds_nothing", 2, [1, 0, 0], &["0 reused"]);
}

#[test]
fn a_depot_that_holds_one_block() {
    let expected = ["0 reused", "1 reused"];
    exchange("a_depot_that_holds_one_block", 2, [1, 1, 0], &expected);
}

#[test]
fn two_by_two_by_the_depot() {
    let expected = ["0 reused", "1 reused", "2 reused"];
    exchange("two_by_two_by_the_depot", 1, [2, 10, 0], &expected);
}
