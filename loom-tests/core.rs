//! Models of a pool's life: its last handle goes while blocks come home and threads come and go.
//! In every end each payload has been freed once, and the source after the last of them.

mod support;

use ndpool::loom_model::{Model, check, outcome, spawn};
use support::Universe;

/// Nothing is left: every payload freed once, and `pools` lives ended.
fn assert_all_gone(universe: &Universe, pools: usize) {
    let log = &universe.log;
    assert_eq!(
        log.allocs(),
        log.deallocs(),
        "a block is left behind in a closed pool"
    );
    assert_eq!(
        log.ends(),
        pools,
        "a pool lives on without handles and blocks"
    );
}

/// A block comes home by a thread without a cache, while the last handle goes: the store-load
/// fence on both sides decides who frees it.
#[test]
fn a_block_comes_home_while_the_pool_closes() {
    let expected = ["by who brought it", "by the closer"];
    check(
        "a_block_comes_home_while_the_pool_closes",
        &expected,
        || {
            let universe = Universe::new();
            let core = universe.open(10, 0);
            let main = universe.pass_by();
            let block = main.take(core).0.index();
            let giver = spawn(&universe, move |universe| {
                let before = universe.log.deallocs();
                universe.pass_by().give(universe.block(block));
                universe.log.deallocs() > before
            });
            main.drop_handle(core);
            let by_closer = universe.log.deallocs() > 0;
            let brought = giver.join().unwrap();
            assert_all_gone(&universe, 1);
            outcome(if by_closer && !brought {
                "by the closer"
            } else {
                "by who brought it"
            });
        },
    );
}

/// The same by a thread with a cache, which then exits.
#[test]
fn a_block_comes_home_to_a_cache_and_the_thread_exits() {
    let expected = ["gone"];
    check(
        "a_block_comes_home_to_a_cache_and_the_thread_exits",
        &expected,
        || {
            let universe = Universe::new();
            let core = universe.open(10, 1);
            let main = universe.pass_by();
            let block = main.take(core).0.index();
            let giver = spawn(&universe, move |universe| {
                let thread = universe.arrive();
                thread.give(universe.block(block));
                thread.exit();
            });
            main.drop_handle(core);
            giver.join().unwrap();
            assert_all_gone(&universe, 1);
            outcome("gone");
        },
    );
}

/// The giver's cache exists before the pool closes, and holds a block already.
#[test]
fn a_filled_cache_while_the_pool_closes() {
    let expected = ["gone"];
    let model = Model::new("a_filled_cache_while_the_pool_closes");
    model.preemptions(Some(2)).check(&expected, || {
        let universe = Universe::new();
        let core = universe.open(10, 2);
        let main = universe.pass_by();
        let blocks = [main.take(core).0.index(), main.take(core).0.index()];
        let slot = {
            let thread = universe.arrive();
            thread.give(universe.block(blocks[0]));
            thread.slot_index()
        };
        let giver = spawn(&universe, move |universe| {
            let thread = universe.resume(slot);
            thread.give(universe.block(blocks[1]));
            thread.exit();
        });
        main.drop_handle(core);
        giver.join().unwrap();
        assert_all_gone(&universe, 1);
        outcome("gone");
    });
}

/// Two handles go at once: one of them closes the pool.
#[test]
fn two_handles_go_at_once() {
    check("two_handles_go_at_once", &["gone"], || {
        let universe = Universe::new();
        let core = universe.open(10, 0);
        core.add_handle();
        let main = universe.pass_by();
        let block = main.take(core).0;
        main.give(block);
        let index = core.index();
        let other = spawn(&universe, move |universe| {
            universe.pass_by().drop_handle(universe.core(index));
        });
        main.drop_handle(core);
        other.join().unwrap();
        assert_all_gone(&universe, 1);
        outcome("gone");
    });
}

/// The last two blocks of a closed pool die at once: the source goes after both.
#[test]
fn the_last_blocks_of_a_closed_pool_die_at_once() {
    check(
        "the_last_blocks_of_a_closed_pool_die_at_once",
        &["gone"],
        || {
            let universe = Universe::new();
            let core = universe.open(10, 0);
            let main = universe.pass_by();
            let blocks = [main.take(core).0.index(), main.take(core).0.index()];
            main.drop_handle(core);
            assert_eq!(universe.log.ends(), 0, "blocks keep their pool alive");
            let other = spawn(&universe, move |universe| {
                universe.pass_by().give(universe.block(blocks[0]));
            });
            main.give(universe.block(blocks[1]));
            other.join().unwrap();
            assert_all_gone(&universe, 1);
            outcome("gone");
        },
    );
}

/// A block comes home late, when its pool's core may have begun another life.
#[test]
fn a_core_is_opened_again_while_a_block_comes_home() {
    let expected = ["in the same cell", "in another cell"];
    check(
        "a_core_is_opened_again_while_a_block_comes_home",
        &expected,
        || {
            let universe = Universe::new();
            let core = universe.open(10, 0);
            let main = universe.pass_by();
            let block = main.take(core).0.index();
            let giver = spawn(&universe, move |universe| {
                universe.pass_by().give(universe.block(block));
            });
            main.drop_handle(core);
            let next = universe.open(10, 0);
            let again = next.index() == core.index();
            let other = main.take(next).0;
            main.give(other);
            giver.join().unwrap();
            main.drop_handle(next);
            assert_all_gone(&universe, 2);
            outcome(if again {
                "in the same cell"
            } else {
                "in another cell"
            });
        },
    );
}

/// A trim meets a thread that takes, gives and exits. Its cache holds a block beforehand.
#[test]
fn a_trim_meets_a_thread_that_works_and_exits() {
    // 2: the first block out of the cache, and a second one, born since, out of the depot.
    let expected = ["trimmed 0", "trimmed 1", "trimmed 2"];
    let model = Model::new("a_trim_meets_a_thread_that_works_and_exits");
    model.preemptions(Some(2)).check(&expected, || {
        let universe = Universe::new();
        let core = universe.open(10, 1);
        let index = core.index();
        let thread = universe.arrive();
        let (block, _) = thread.take(core);
        thread.give(block);
        let slot = thread.slot_index();
        let worker = spawn(&universe, move |universe| {
            let thread = universe.resume(slot);
            let (block, _) = thread.take(universe.core(index));
            thread.give(block);
            thread.exit();
        });
        let main = universe.pass_by();
        let trimmed = main.trim(core);
        worker.join().unwrap();
        main.drop_handle(core);
        assert_all_gone(&universe, 1);
        outcome(format!("trimmed {trimmed}"));
    });
}
