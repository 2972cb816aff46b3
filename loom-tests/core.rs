//! Models of a pool's life: its last handle goes while blocks come home and threads come and go.
//! In every end each payload has been freed once, and the source after the last of them.

mod support;

use ndpool::loom_model::kernel::reach::CLOSED;
use ndpool::loom_model::kernel::state::Stale;
use ndpool::loom_model::tuning::LAST_GENERATION;
use ndpool::loom_model::{Model, check, outcome, spawn};
use support::{From, Stand, Universe};

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
            universe.assert_all_gone(1);
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
            universe.assert_all_gone(1);
            outcome("gone");
        },
    );
}

/// The same, but the thread stays: no block lies unknown in the cache of a closed pool until then.
#[test]
fn a_block_comes_home_to_a_cache_and_the_thread_stays() {
    let name = "a_block_comes_home_to_a_cache_and_the_thread_stays";
    let expected = ["gone", "left to the owner"];
    Model::new(name).preemptions(Some(2)).check(&expected, || {
        let universe = Universe::new();
        let core = universe.open(10, 1);
        let index = core.index();
        let main = universe.pass_by();
        let block = main.take(core).0.index();
        let giver = spawn(&universe, move |universe| {
            let thread = universe.arrive();
            thread.give(universe.block(block));
            thread.slot_index()
        });
        main.drop_handle(core);
        let slot = giver.join().unwrap();
        let gone = universe.log.deallocs() == universe.log.allocs() && universe.log.ends() == 1;
        let cache = universe.world.slots.at(slot).cache(index);
        assert!(
            gone || cache.unwrap().bias.request() & CLOSED != 0,
            "a closed pool lives in a cache, and nobody told its thread"
        );
        universe.resume(slot).exit();
        universe.assert_all_gone(1);
        outcome(if gone { "gone" } else { "left to the owner" });
    });
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
        universe.assert_all_gone(1);
        outcome("gone");
    });
}

/// Two handles go at once: one of them closes the pool, whose memory the other has just read.
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
            let thread = universe.pass_by();
            thread.look(universe.core(index));
            thread.drop_handle(universe.core(index));
        });
        main.drop_handle(core);
        other.join().unwrap();
        universe.assert_all_gone(1);
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
            universe.assert_all_gone(1);
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
            // The books of this life are its own.
            assert_eq!(next.ledger.resting() as u64, next.depot_estimate(0));
            assert_eq!(next.ledger.held(), next.ledger.resting());
            main.drop_handle(next);
            universe.assert_all_gone(2);
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
        let slot = universe.arrive_keeping(core);
        let worker = spawn(&universe, move |universe| {
            let thread = universe.resume(slot);
            thread.work_and_exit(universe.core(index));
        });
        let main = universe.pass_by();
        let trimmed = main.trim(core);
        worker.join().unwrap();
        main.drop_handle(core);
        universe.assert_all_gone(1);
        outcome(format!("trimmed {trimmed}"));
    });
}

/// Who wants to make room for a birth finds what a trimmer is just sending home: they come one after
/// the other. What rests in the depot is a magazine of two and a block.
#[test]
fn a_trim_meets_an_eviction() {
    let expected = ["all by the trimmer", "all evicted", "some each"];
    Model::new("a_trim_meets_an_eviction")
        .preemptions(Some(2))
        .check(&expected, || {
            let universe = Universe::new();
            let stand = Stand::new(&universe.log, 10, 2).evicting_in_turn();
            let core = universe.open_with(stand);
            let index = core.index();
            let filler = universe.arrive();
            let blocks = [filler.take(core).0, filler.take(core).0];
            let single = universe.pass_by().take(core).0;
            blocks.into_iter().for_each(|block| filler.give(block));
            filler.exit();
            let main = universe.pass_by();
            main.give(single);
            let evictor = spawn(&universe, move |universe| {
                let core = universe.core(index);
                universe.pass_gate();
                let thread = universe.pass_by();
                let evicted = [thread.make_room(core), thread.make_room(core)];
                evicted.into_iter().filter(|&evicted| evicted).count()
            });
            universe.pass_gate();
            let trimmed = main.trim(core);
            let evicted = evictor.join().unwrap();
            assert_eq!((core.ledger.held(), core.ledger.resting()), (0, 0));
            assert_eq!(core.depot_estimate(0), 0);
            assert_eq!(universe.log.deallocs(), 3);
            main.drop_handle(core);
            universe.assert_all_gone(1);
            outcome(match (trimmed, evicted) {
                (3, 0) => "all by the trimmer",
                (0, 2) => "all evicted",
                (1 | 2, 1) => "some each",
                other => panic!("{other:?} of three blocks"),
            });
        });
}

/// An eviction meets a thread that takes what rests and gives it back.
#[test]
fn an_eviction_meets_a_take_and_a_give() {
    let expected = [
        "evicted before the take",
        "evicted after the give",
        "missed while in use",
    ];
    let model = Model::new("an_eviction_meets_a_take_and_a_give");
    model.check(&expected, || {
        let universe = Universe::new();
        let core = universe.open(10, 0);
        let index = core.index();
        let main = universe.pass_by();
        let block = main.take(core).0;
        main.give(block);
        let worker = spawn(&universe, move |universe| {
            let thread = universe.pass_by();
            let (block, from) = thread.take(universe.core(index));
            thread.give(block);
            from
        });
        let evicted = main.make_room(core);
        let from = worker.join().unwrap();
        let resting = universe.log.allocs() - universe.log.deallocs();
        assert_eq!(core.ledger.held(), resting);
        assert_eq!(core.ledger.resting(), resting);
        main.drop_handle(core);
        universe.assert_all_gone(1);
        outcome(match (evicted, from) {
            (true, From::Source) => "evicted before the take",
            (true, _) => "evicted after the give",
            (false, _) => "missed while in use",
        });
    });
}

/// An interval ends while a thread works whose cache was left unused during the one before.
#[test]
fn ageing_meets_a_thread_that_works_and_exits() {
    let expected = ["aged 0", "aged 1"];
    let model = Model::new("ageing_meets_a_thread_that_works_and_exits");
    model.preemptions(Some(2)).check(&expected, || {
        let universe = Universe::new();
        let core = universe.open(10, 1);
        let index = core.index();
        let slot = universe.arrive_keeping(core);
        let main = universe.pass_by();
        assert_eq!(main.age(core), 0, "a cache in use is spared");
        let worker = spawn(&universe, move |universe| {
            let thread = universe.resume(slot);
            thread.work_and_exit(universe.core(index))
        });
        let aged = main.age(core);
        worker.join().unwrap();
        main.drop_handle(core);
        universe.assert_all_gone(1);
        outcome(format!("aged {aged}"));
    });
}

/// Who ages finds the turn taken, and does nothing; or trimmer and ager come one after the other.
#[test]
fn ageing_meets_a_trim() {
    let expected = ["aged 0, trimmed 1", "aged 1, trimmed 0"];
    check("ageing_meets_a_trim", &expected, || {
        let universe = Universe::new();
        let core = universe.open(10, 1);
        let index = core.index();
        let thread = universe.arrive();
        let (block, _) = thread.take(core);
        thread.give(block);
        let main = universe.pass_by();
        assert_eq!(main.age(core), 0, "a cache in use is spared");
        let ager = spawn(&universe, move |universe| {
            universe.pass_by().age(universe.core(index))
        });
        let trimmed = main.trim(core);
        let aged = ager.join().unwrap();
        thread.exit();
        main.drop_handle(core);
        universe.assert_all_gone(1);
        outcome(format!("aged {aged}, trimmed {trimmed}"));
    });
}

/// Somebody without a handle asks for one by the pool's life, while the last handle goes.
#[test]
fn an_upgrade_meets_the_last_handle() {
    let expected = ["upgraded", "too late"];
    check("an_upgrade_meets_the_last_handle", &expected, || {
        let universe = Universe::new();
        let core = universe.open(10, 0);
        let (index, life) = (core.index(), core.life());
        let other = spawn(&universe, move |universe| {
            let core = universe.core(index);
            let upgraded = core.upgrade(life);
            if upgraded {
                let thread = universe.pass_by();
                let (block, _) = thread.take(core);
                thread.give(block);
                thread.drop_handle(core);
            }
            upgraded
        });
        universe.pass_by().drop_handle(core);
        let upgraded = other.join().unwrap();
        universe.assert_all_gone(1);
        outcome(if upgraded { "upgraded" } else { "too late" });
    });
}

/// The same, but the core begins another life behind the last handle: a pool of that life is none of
/// the asker's business.
#[test]
fn an_upgrade_meets_another_life_of_the_core() {
    let expected = ["upgraded", "refused"];
    let model = Model::new("an_upgrade_meets_another_life_of_the_core");
    model.check(&expected, || {
        let universe = Universe::new();
        let core = universe.open(10, 0);
        let (index, life) = (core.index(), core.life());
        let other = spawn(&universe, move |universe| {
            let core = universe.core(index);
            let upgraded = core.upgrade(life);
            if upgraded {
                assert_eq!(core.life(), life, "a handle of another pool");
                let thread = universe.pass_by();
                thread.look(core);
                thread.drop_handle(core);
            }
            upgraded
        });
        let main = universe.pass_by();
        main.drop_handle(core);
        let next = universe.open(10, 0);
        main.drop_handle(next);
        let upgraded = other.join().unwrap();
        universe.assert_all_gone(2);
        outcome(if upgraded { "upgraded" } else { "refused" });
    });
}

/// Somebody asks for a handle of a pool by a life that just begins, and learns of it by the count of
/// handles alone.
#[test]
fn an_upgrade_meets_the_opening() {
    let expected = ["upgraded", "too early"];
    check("an_upgrade_meets_the_opening", &expected, || {
        let universe = Universe::new();
        let main = universe.pass_by();
        let before = universe.open(10, 0);
        let (index, life) = (before.index(), before.life() + 1);
        main.drop_handle(before);
        let other = spawn(&universe, move |universe| {
            let core = universe.core(index);
            let upgraded = core.upgrade(life);
            if upgraded {
                let thread = universe.pass_by();
                thread.look(core);
                thread.drop_handle(core);
            }
            upgraded
        });
        let core = universe.open(10, 0);
        main.drop_handle(core);
        let upgraded = other.join().unwrap();
        universe.assert_all_gone(2);
        outcome(if upgraded { "upgraded" } else { "too early" });
    });
}

/// A block dies in its last generation, by its owner or by who held a handle: its control block is
/// never used again, and the handle stays stale.
#[test]
fn a_block_that_dies_in_its_last_generation_is_not_used_again() {
    let name = "a_block_that_dies_in_its_last_generation_is_not_used_again";
    check(name, &["by the owner", "by the handle's"], || {
        let universe = Universe::new();
        let core = universe.open(0, 0);
        let main = universe.pass_by();
        let block = main.take(core).0;
        for _ in 1..LAST_GENERATION {
            block.state.share().unwrap();
            assert!(block.state.try_unique());
        }
        assert_eq!(block.state.share(), Ok(LAST_GENERATION));
        let index = block.index();
        let other = spawn(&universe, move |universe| {
            let block = universe.block(index);
            block.state.upgrade(LAST_GENERATION).is_ok()
                && universe.pass_by().release_and_retire(block)
        });
        let mine = main.release_and_retire(block);
        let others = other.join().unwrap();
        assert_ne!(mine, others, "the last owner is one");
        let next = main.take(core).0;
        assert_ne!(next.index(), index, "a retired control block is used again");
        assert_eq!(block.state.upgrade(LAST_GENERATION), Err(Stale));
        main.give(next);
        assert_eq!(core.numbers.retired.get(), 1);
        main.drop_handle(core);
        universe.assert_all_gone(1);
        outcome(if mine {
            "by the owner"
        } else {
            "by the handle's"
        });
    });
}

/// An audit takes everything out of the depot and puts it back, while a block comes home: afterwards
/// both rest there, each once.
#[test]
fn an_audit_meets_a_give() {
    check("an_audit_meets_a_give", &["1", "2", "mismatch"], || {
        let universe = Universe::new();
        let core = universe.open(10, 0);
        let main = universe.pass_by();
        let (resting, coming) = (main.take(core).0, main.take(core).0.index());
        main.give(resting);
        let giver = spawn(&universe, move |universe| {
            universe.pass_by().give(universe.block(coming));
        });
        let found = main.audit(core);
        giver.join().unwrap();
        assert_eq!(main.audit(core), Some(2), "a block is lost, or there twice");
        main.drop_handle(core);
        universe.assert_all_gone(1);
        outcome(found.map_or("mismatch".into(), |found| found.to_string()));
    });
}

/// The same while the pool closes: what the audit puts back does not stay in the closed pool.
#[test]
fn an_audit_meets_a_close() {
    check("an_audit_meets_a_close", &["0", "1"], || {
        let universe = Universe::new();
        let core = universe.open(10, 0);
        let index = core.index();
        let main = universe.pass_by();
        main.give(main.take(core).0);
        core.add_handle();
        let closer = spawn(&universe, move |universe| {
            let (thread, core) = (universe.pass_by(), universe.core(index));
            thread.close(core);
            thread.drop_handle(core);
        });
        let found = main.audit(core);
        closer.join().unwrap();
        assert_eq!(universe.log.deallocs(), 1, "a block rests in a closed pool");
        assert_eq!(main.audit(core), Some(0));
        main.drop_handle(core);
        universe.assert_all_gone(1);
        outcome(found.map_or("mismatch".into(), |found| found.to_string()));
    });
}
