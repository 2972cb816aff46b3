//! The loops of `examples/reference_loops.rs`, each held to what it shall show. What looks at
//! resident memory runs alone in its process.

#[path = "../examples/reference_loops.rs"]
mod reference_loops;
use reference_loops::{Races, cycles, hundred_buffers, races};

mod field;
use field::alone;

const MIB: usize = 1 << 20;

#[test]
fn a_hundred_disposed_buffers_are_not_live_at_once_and_not_resident_after_a_trim() {
    if !alone(
        "a_hundred_disposed_buffers_are_not_live_at_once_and_not_resident_after_a_trim",
        false,
    ) {
        return;
    }
    let seen = hundred_buffers();
    assert_eq!(seen.live, [0, 800 * MIB, 0, 0]);
    let [before, alive, _, trimmed] = seen.resident;
    assert!(alive >= before + 780 * MIB, "{seen:?}");
    assert!(trimmed <= before + 4 * MIB, "{seen:?}");
}

#[test]
fn ten_thousand_cycles_leave_resident_memory_unchanged() {
    if alone("ten_thousand_cycles_leave_resident_memory_unchanged", false) {
        let (_, more) = cycles();
        assert!(more <= 256 << 10, "{more} bytes more are resident");
    }
}

#[test]
fn ten_thousand_races_of_an_add_against_the_last_release_count_exactly() {
    let seen = races();
    assert_eq!(
        seen,
        Races {
            races: 10_000,
            added: 10_000 - seen.refused,
            refused: seen.refused,
            released: 10_000,
            strays: 10_000,
            left: 0,
        }
    );
}
