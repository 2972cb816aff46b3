//! Models of the map from addresses to control blocks: an entry publishes what is behind it, and
//! threads that build the same nodes at once lose nothing.

use std::sync::Arc;

use loom::thread;
use ndpool::loom_model::kernel::pagemap::{PageMap, Uncovered};
use ndpool::loom_model::{Witness, check, outcome};

/// Addresses of two payloads in one leaf.
const HERE: usize = 0;
const THERE: usize = 64;

struct Mapped {
    map: PageMap,
    payload: Witness,
}

fn mapped() -> Arc<Mapped> {
    Arc::new(Mapped {
        map: PageMap::new(),
        payload: Witness::new(1),
    })
}

#[test]
fn an_entry_publishes_its_block() {
    check(
        "an_entry_publishes_its_block",
        &["found", "not yet"],
        || {
            let mapped = mapped();
            // The nodes are there already: only the entry itself can publish.
            mapped.map.insert(THERE, 6).unwrap();
            let reader = {
                let mapped = Arc::clone(&mapped);
                thread::spawn(move || {
                    let found = mapped.map.get(HERE);
                    if found.is_some() {
                        assert_eq!((found, mapped.payload.read()), (Some(5), 7));
                    }
                    found.is_some()
                })
            };
            mapped.payload.write(7);
            mapped.map.insert(HERE, 5).unwrap();
            let found = reader.join().unwrap();
            assert_eq!(mapped.map.get(HERE), Some(5));
            outcome(if found { "found" } else { "not yet" });
        },
    );
}

#[test]
fn two_entries_build_one_tree() {
    check("two_entries_build_one_tree", &["found", "not yet"], || {
        let mapped = mapped();
        let other = {
            let mapped = Arc::clone(&mapped);
            thread::spawn(move || {
                mapped.map.insert(THERE, 6).unwrap();
                mapped.map.get(HERE)
            })
        };
        mapped.map.insert(HERE, 5).unwrap();
        let seen = other.join().unwrap();
        assert!(seen.is_none() || seen == Some(5), "read {seen:?}");
        assert_eq!(mapped.map.get(HERE), Some(5), "an entry was lost");
        assert_eq!(mapped.map.get(THERE), Some(6), "an entry was lost");
        outcome(if seen.is_some() { "found" } else { "not yet" });
    });
}

#[test]
fn a_removed_entry_is_gone_and_its_neighbour_stays() {
    let expected = ["found", "gone"];
    check(
        "a_removed_entry_is_gone_and_its_neighbour_stays",
        &expected,
        || {
            let mapped = mapped();
            mapped.map.insert(HERE, 5).unwrap();
            mapped.map.insert(THERE, 6).unwrap();
            let reader = {
                let mapped = Arc::clone(&mapped);
                thread::spawn(move || (mapped.map.get(HERE), mapped.map.get(THERE)))
            };
            mapped.map.remove(HERE);
            let (here, there) = reader.join().unwrap();
            assert_eq!(there, Some(6));
            assert_eq!(mapped.map.get(HERE), None);
            assert_eq!(mapped.map.insert(HERE + 1, 7), Err(Uncovered));
            outcome(if here.is_some() { "found" } else { "gone" });
        },
    );
}
