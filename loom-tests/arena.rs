//! Models of the type-stable arena: cells change hands with what was done to them, slabs are
//! installed once, and any index may be asked for at any time.

use std::ptr;
use std::sync::Arc;

use ndpool::loom_model::kernel::arena::{Arena, Cell};
use ndpool::loom_model::{Witness, check, outcome, spawn};

/// A cell whose owner writes to it, and which remembers its index from its making.
struct Counter {
    index: u32,
    owners: Witness,
}

impl Cell for Counter {
    const PER_SLAB: usize = 2;

    fn new(index: u32) -> Self {
        Self {
            index,
            owners: Witness::new(0),
        }
    }
}

/// What the owner of a cell does.
fn use_up(cell: &Counter) {
    assert_eq!(cell.owners.read(), 0, "two owners");
    cell.owners.write(1);
    cell.owners.write(0);
}

fn claim(arena: &Arena<Counter>) -> u32 {
    let (index, cell) = arena.claim().unwrap();
    assert_eq!(cell.index, index);
    use_up(cell);
    index
}

/// One cell is left for two threads: one has it, the other a refusal.
#[test]
fn two_threads_claim_the_last_cell() {
    check(
        "two_threads_claim_the_last_cell",
        &["main", "other"],
        || {
            let arena = Arc::new(Arena::new());
            (0..3).for_each(|index| assert_eq!(claim(&arena), index));
            let last = |arena: &Arena<Counter>| arena.claim().ok().map(|(index, _)| index);
            let other = spawn(&arena, last);
            let main = last(&arena);
            match (main, other.join().unwrap()) {
                (Some(3), None) => outcome("main"),
                (None, Some(3)) => outcome("other"),
                both => panic!("claimed {both:?}"),
            }
        },
    );
}

#[test]
fn two_threads_claim_the_first_cells() {
    check(
        "two_threads_claim_the_first_cells",
        &["0, 1", "1, 0"],
        || {
            let arena = Arc::new(Arena::new());
            let claim = |arena: &Arena<Counter>| {
                let index = claim(arena);
                (index, ptr::from_ref(arena.at(index)).addr())
            };
            let other = spawn(&arena, claim);
            let main = claim(&arena);
            let other = other.join().unwrap();
            for (index, cell) in [main, other] {
                let now = ptr::from_ref(arena.at(index)).addr();
                assert_eq!(cell, now, "cell {index} has moved");
            }
            outcome(format!("{}, {}", main.0, other.0));
        },
    );
}

#[test]
fn a_cell_changes_hands_with_what_was_done_to_it() {
    check(
        "a_cell_changes_hands_with_what_was_done_to_it",
        &["again", "fresh"],
        || {
            let arena = Arc::new(Arena::new());
            let first = claim(&arena);
            let other = spawn(&arena, claim);
            arena.release(first);
            let second = other.join().unwrap();
            outcome(if first == second { "again" } else { "fresh" });
        },
    );
}

#[test]
fn a_forged_index_meets_the_first_slab() {
    check(
        "a_forged_index_meets_the_first_slab",
        &["none", "some"],
        || {
            let arena = Arc::new(Arena::new());
            let other = spawn(&arena, |arena| {
                assert!(arena.get(u32::MAX).is_none());
                let found = arena.get(1);
                found.map(|cell: &Counter| cell.index)
            });
            claim(&arena);
            outcome(match other.join().unwrap() {
                Some(index) => {
                    assert_eq!(index, 1);
                    "some"
                }
                None => "none",
            });
        },
    );
}

#[test]
fn a_walk_meets_a_claim() {
    check("a_walk_meets_a_claim", &["0", "1"], || {
        let arena = Arc::new(Arena::new());
        let other = spawn(&arena, |arena| {
            let met: Vec<u32> = arena.iter().map(|cell: &Counter| cell.index).collect();
            assert!(met.iter().copied().eq(0..met.len() as u32));
            met.len()
        });
        claim(&arena);
        outcome(other.join().unwrap().to_string());
    });
}
