//! Models of a thread slot's table of caches: its thread extends it while a trimmer looks a cache up
//! or walks over all of them. Pools beyond the first table are the ones that need a further one.

mod support;

use std::sync::Arc;

use ndpool::loom_model::kernel::arena::{Arena, Cell};
use ndpool::loom_model::kernel::cache::Cache;
use ndpool::loom_model::kernel::reach::DEAD;
use ndpool::loom_model::kernel::slots::Slot;
use ndpool::loom_model::tuning::POOLS_PER_TABLE;
use ndpool::loom_model::{check, outcome, spawn};
use support::Stand;

/// A pool whose cache is in the third table.
const FAR: u32 = 2 * POOLS_PER_TABLE as u32;

struct Seat {
    slot: Slot<Stand>,
    caches: Arena<Cache<Stand>>,
}

impl Seat {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            slot: Slot::new(0),
            caches: Arena::new(),
        })
    }

    /// The slot's thread.
    fn ensure(&self, pool: u32) -> &Cache<Stand> {
        self.slot.ensure_cache(&self.caches, pool).unwrap()
    }
}

/// What a trimmer sees of a cache that nobody has adopted.
#[track_caller]
fn assert_built(cache: &Cache<Stand>) {
    assert_eq!(cache.bias.request(), DEAD);
}

#[test]
fn a_look_up_meets_a_new_table() {
    let expected = ["found", "not yet"];
    check("a_look_up_meets_a_new_table", &expected, || {
        let seat = Seat::new();
        let trimmer = spawn(&seat, |seat| {
            seat.slot
                .cache(FAR)
                .inspect(|cache| assert_built(cache))
                .is_some()
        });
        let built = seat.ensure(FAR);
        assert!(std::ptr::eq(built, seat.slot.cache(FAR).unwrap()));
        let found = trimmer.join().unwrap();
        outcome(if found { "found" } else { "not yet" });
    });
}

#[test]
fn a_walk_meets_a_new_table() {
    let expected = ["0", "1", "2"];
    check("a_walk_meets_a_new_table", &expected, || {
        let seat = Seat::new();
        let trimmer = spawn(&seat, |seat| {
            seat.slot
                .caches()
                .inspect(|cache| assert_built(cache))
                .count()
        });
        seat.ensure(0);
        seat.ensure(FAR);
        assert_eq!(seat.slot.caches().count(), 2);
        outcome(trimmer.join().unwrap().to_string());
    });
}
