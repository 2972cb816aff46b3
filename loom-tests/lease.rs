//! Models of leases: a name ends exactly once, and what is read by a name is what was leased.

use std::sync::Arc;

use ndpool::loom_model::kernel::arena::Arena;
use ndpool::loom_model::kernel::lease::{Content, Lease, Stray, end, lease, peek};
use ndpool::loom_model::tuning::LAST_GENERATION;
use ndpool::loom_model::{Witness, check, outcome, spawn};

/// Leases, and the payload that the share in one of them is of.
struct Leases {
    arena: Arena<Lease>,
    payload: Witness,
}

impl Leases {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            arena: Arena::new(),
            payload: Witness::new(1),
        })
    }
}

/// A content all of whose words say `n`.
fn content(n: usize) -> Content {
    Content {
        target: n as u64,
        start: n,
        len: n,
        element: n,
    }
}

#[test]
fn a_lease_ends_once() {
    check("a_lease_ends_once", &["main", "other"], || {
        let leases = Leases::new();
        leases.payload.write(7);
        let name = lease(&leases.arena, content(1)).unwrap();
        let redeem = move |leases: &Leases| {
            let redeemed = end(&leases.arena, name);
            if let Ok(found) = redeemed {
                assert_eq!(found, content(1));
                leases.payload.free();
            }
            redeemed.is_ok()
        };
        let other = spawn(&leases, redeem);
        let main = redeem(&leases);
        assert!(main ^ other.join().unwrap());
        assert_eq!(end(&leases.arena, name), Err(Stray));
        outcome(if main { "main" } else { "other" });
    });
}

#[test]
fn a_name_carries_the_payload() {
    check(
        "a_name_carries_the_payload",
        &["redeemed", "too early"],
        || {
            let leases = Leases::new();
            // The first slot in its first generation: the name is known before it is leased, as if
            // it had come by a channel that orders nothing.
            let other = spawn(&leases, |leases| match end(&leases.arena, 0) {
                Ok(found) => {
                    assert_eq!(found, content(1));
                    assert_eq!(leases.payload.read(), 7);
                    leases.payload.free();
                    true
                }
                Err(Stray) => false,
            });
            leases.payload.write(7);
            assert_eq!(lease(&leases.arena, content(1)), Ok(0));
            outcome(if other.join().unwrap() {
                "redeemed"
            } else {
                "too early"
            });
        },
    );
}

#[test]
fn a_second_release_never_meets_the_next_lease() {
    let expected = ["refused", "first"];
    check(
        "a_second_release_never_meets_the_next_lease",
        &expected,
        || {
            let leases = Leases::new();
            let old = lease(&leases.arena, content(1)).unwrap();
            let other = spawn(&leases, move |leases| end(&leases.arena, old).is_ok());
            let main = end(&leases.arena, old).is_ok();
            let new = main.then(|| {
                let new = lease(&leases.arena, content(2)).unwrap();
                assert_ne!(new, old);
                assert_eq!(new as u32, old as u32, "the slot is used again");
                new
            });
            let first = other.join().unwrap();
            assert!(main ^ first);
            if let Some(new) = new {
                assert_eq!(end(&leases.arena, new), Ok(content(2)));
            }
            outcome(if first { "first" } else { "refused" });
        },
    );
}

#[test]
fn a_look_sees_one_lease_or_none() {
    check("a_look_sees_one_lease_or_none", &["live", "stray"], || {
        let leases = Leases::new();
        let old = lease(&leases.arena, content(1)).unwrap();
        let other = spawn(&leases, move |leases| match peek(&leases.arena, old) {
            Ok(found) => {
                assert_eq!(found, content(1), "words of two leases");
                true
            }
            Err(Stray) => false,
        });
        assert_eq!(end(&leases.arena, old), Ok(content(1)));
        let new = lease(&leases.arena, content(2)).unwrap();
        assert_eq!(peek(&leases.arena, new), Ok(content(2)));
        outcome(if other.join().unwrap() {
            "live"
        } else {
            "stray"
        });
    });
}

#[test]
fn a_slot_at_its_last_generation_retires() {
    check(
        "a_slot_at_its_last_generation_retires",
        &["main", "other"],
        || {
            let leases = Leases::new();
            for _ in 0..LAST_GENERATION {
                let name = lease(&leases.arena, content(1)).unwrap();
                assert_eq!(end(&leases.arena, name), Ok(content(1)));
            }
            let last = lease(&leases.arena, content(1)).unwrap();
            assert_eq!(last >> 32, u64::from(LAST_GENERATION));
            let other = spawn(&leases, move |leases| end(&leases.arena, last).is_ok());
            let main = end(&leases.arena, last).is_ok();
            assert!(main ^ other.join().unwrap());
            let next = lease(&leases.arena, content(2)).unwrap();
            assert_ne!(next as u32, last as u32, "a name will come round again");
            outcome(if main { "main" } else { "other" });
        },
    );
}

#[test]
fn forged_names_are_refused() {
    check("forged_names_are_refused", &["refused"], || {
        let leases = Leases::new();
        let other = spawn(&leases, |leases| {
            [
                peek(&leases.arena, u64::MAX),
                peek(&leases.arena, 1 << 32),
                end(&leases.arena, 3),
            ]
        });
        assert_eq!(lease(&leases.arena, content(1)), Ok(0));
        assert_eq!(other.join().unwrap(), [Err(Stray); 3]);
        outcome("refused");
    });
}
