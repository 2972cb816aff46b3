//! Models of berths: single blocks of a class without magazines in a thread's cache, beyond the budget,
//! where they count as resting whether they are in or out.

#![allow(unsafe_code)]

mod support;

use ndpool::loom_model::{Model, outcome, spawn};
use support::{From, Stand, StandCore, Universe};

/// A pool without magazines whose caches have berths, all of them beyond the budget.
fn open(universe: &Universe) -> &StandCore {
    let stand = Stand::new(&universe.log, 10, 0);
    universe.open_with(stand.with_berths(2, 1))
}

/// What exists is held, and all of it rests in the depot: no berth is left.
fn assert_balance(universe: &Universe, core: &StandCore) {
    let exist = universe.log.allocs() - universe.log.deallocs();
    assert_eq!(core.ledger.held(), exist);
    assert_eq!(core.ledger.resting(), exist);
    assert_eq!(core.depot_estimate(0), exist as u64);
}

/// Room for a birth is made from the berth of a thread that works and exits.
#[test]
fn an_eviction_meets_an_owner_that_works_and_exits() {
    let expected = ["vacant", "with its block", "not reached"];
    let model = Model::new("an_eviction_meets_an_owner_that_works_and_exits");
    model.preemptions(Some(2)).check(&expected, || {
        let universe = Universe::new();
        let core = open(&universe);
        let index = core.index();
        let slot = universe.arrive_keeping(core);
        assert_eq!((core.ledger.resting(), core.depot_estimate(0)), (1, 0));
        let worker = spawn(&universe, move |universe| {
            let thread = universe.resume(slot);
            thread.work_and_exit(universe.core(index));
        });
        let main = universe.pass_by();
        let evicted = main.make_room(core);
        let killed = universe.log.deallocs();
        worker.join().unwrap();
        assert_balance(&universe, core);
        main.drop_handle(core);
        universe.assert_all_gone(1);
        outcome(match (evicted, killed) {
            (true, 0) => "vacant",
            (true, _) => "with its block",
            (false, _) => "not reached",
        });
    });
}

/// The same where the owner itself makes room, between a trimmer's steps.
#[test]
fn an_owner_that_evicts_meets_a_trim() {
    let expected = ["by the owner", "by the trimmer"];
    let model = Model::new("an_owner_that_evicts_meets_a_trim");
    model.preemptions(Some(2)).check(&expected, || {
        let universe = Universe::new();
        let core = open(&universe);
        let index = core.index();
        let slot = universe.arrive_keeping(core);
        let worker = spawn(&universe, move |universe| {
            let thread = universe.resume(slot);
            let evicted = thread.make_room(universe.core(index));
            thread.exit();
            evicted
        });
        let main = universe.pass_by();
        let trimmed = main.trim(core);
        let evicted = worker.join().unwrap();
        assert_balance(&universe, core);
        main.drop_handle(core);
        universe.assert_all_gone(1);
        outcome(match (evicted, trimmed) {
            (true, 0) => "by the owner",
            (false, 0 | 1) => "by the trimmer",
            other => panic!("{other:?} of one block"),
        });
    });
}

/// A berth is added while the pool's last handle goes.
#[test]
fn a_new_berth_meets_the_last_handle() {
    let expected = ["closed before", "closed after"];
    let model = Model::new("a_new_berth_meets_the_last_handle");
    model.preemptions(Some(2)).check(&expected, || {
        let universe = Universe::new();
        let core = open(&universe);
        let thread = universe.arrive_at(core);
        let (block, _) = thread.take(core);
        let (slot, block) = (thread.slot_index(), block.index());
        let worker = spawn(&universe, move |universe| {
            let thread = universe.resume(slot);
            thread.give(universe.block(block));
            let before = universe.log.deallocs() == 0;
            thread.exit();
            before
        });
        universe.pass_by().drop_handle(core);
        let kept = worker.join().unwrap();
        universe.assert_all_gone(1);
        outcome(if kept {
            "closed after"
        } else {
            "closed before"
        });
    });
}

/// An interval ends twice while a thread uses its berth, or leaves it unused.
#[test]
fn ageing_meets_a_thread_that_uses_its_berth() {
    let expected = ["aged 0", "aged 1"];
    let model = Model::new("ageing_meets_a_thread_that_uses_its_berth");
    model.preemptions(Some(2)).check(&expected, || {
        let universe = Universe::new();
        let core = open(&universe);
        let index = core.index();
        let slot = universe.arrive_keeping(core);
        let main = universe.pass_by();
        main.age(core);
        let worker = spawn(&universe, move |universe| {
            let thread = universe.resume(slot);
            thread.work_and_exit(universe.core(index))
        });
        let aged = main.age(core);
        worker.join().unwrap();
        assert_balance(&universe, core);
        main.drop_handle(core);
        universe.assert_all_gone(1);
        outcome(format!("aged {aged}"));
    });
}

/// A thread that only gives has no berth: what it gives is for others. One that takes has as many as
/// it took elsewhere, and finds its own block again without a look at the depot.
#[test]
fn berths_are_for_those_who_take() {
    Model::new("berths_are_for_those_who_take").check(&["kept", "passed on"], || {
        let universe = Universe::new();
        let core = open(&universe);
        let index = core.index();
        let taker = universe.arrive_at(core);
        let (first, second) = (taker.take(core).0, taker.take(core).0);
        let second = second.index();
        let giver = spawn(&universe, move |universe| {
            let thread = universe.arrive_at(universe.core(index));
            thread.give(universe.block(second));
            let slot = universe.world.slots.at(thread.slot_index());
            assert!(!slot.cache(index).unwrap().has_berths());
            thread.exit();
        });
        taker.give(first);
        let (again, from) = taker.take(core);
        assert_eq!((again.index(), from), (first.index(), From::Cache));
        let (other, from) = taker.take(core);
        outcome(if from == From::Tiers {
            "passed on"
        } else {
            "kept"
        });
        giver.join().unwrap();
        taker.give(again);
        taker.give(other);
        taker.exit();
        assert_balance(&universe, core);
        universe.pass_by().drop_handle(core);
        universe.assert_all_gone(1);
    });
}
