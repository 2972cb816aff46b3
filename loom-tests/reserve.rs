//! Models of the reservation word of limits: never above the limit, no refusal without its reason,
//! and room that is made only by memory that has really gone.

use std::sync::Arc;

use loom::thread;
use ndpool::loom_model::kernel::reserve::Reserve;
use ndpool::loom_model::sync::{AtomicUsize, Ordering};
use ndpool::loom_model::{Witness, check, must_fail, outcome};

#[test]
fn of_two_charges_over_half_just_one_is_served_f65() {
    check(
        "of_two_charges_over_half_just_one_is_served_f65",
        &["main", "other"],
        || {
            let reserve = Arc::new(Reserve::new());
            let other = Arc::clone(&reserve);
            let other = thread::spawn(move || other.try_reserve(2, 3).is_ok());
            let main = reserve.try_reserve(2, 3).is_ok();
            assert!(main ^ other.join().unwrap());
            assert_eq!(reserve.used(), 2);
            outcome(if main { "main" } else { "other" });
        },
    );
}

/// A limit that has room for one block, and the place where that block lies.
struct Node {
    reserve: Reserve,
    place: Witness,
}

impl Node {
    /// Allocates and deallocates, if there is room: `Err` with what was in use if not.
    fn turn(&self, value: u32) -> Result<(), usize> {
        self.reserve.try_reserve(2, 2)?;
        self.place.write(value);
        assert_eq!(self.place.read(), value);
        self.reserve.release(2);
        Ok(())
    }
}

#[test]
fn memory_has_gone_before_its_charge_makes_room_f64() {
    check(
        "memory_has_gone_before_its_charge_makes_room_f64",
        &["both served", "main refused", "other refused"],
        || {
            let node = Arc::new(Node {
                reserve: Reserve::new(),
                place: Witness::new(0),
            });
            let other = Arc::clone(&node);
            let other = thread::spawn(move || other.turn(1));
            let main = node.turn(2);
            let other = other.join().unwrap();
            outcome(match (main, other) {
                (Ok(()), Ok(())) => "both served",
                (Err(2), Ok(())) => "main refused",
                (Ok(()), Err(2)) => "other refused",
                wrong => panic!("refused without a reason: {wrong:?}"),
            });
            assert_eq!(node.reserve.used(), 0);
        },
    );
}

#[test]
fn three_charges_leave_the_sum_of_those_served() {
    check(
        "three_charges_leave_the_sum_of_those_served",
        &["1 and 2", "1 and 3", "2 and 1", "3"],
        || {
            // Room for 4: 1 is taken and given back meanwhile, 3 and 2 exclude each other.
            let reserve = Arc::new(Reserve::new());
            let (two, three) = (Arc::clone(&reserve), Arc::clone(&reserve));
            let two = thread::spawn(move || two.try_reserve(2, 4));
            let three = thread::spawn(move || three.try_reserve(3, 4));
            let one = reserve.try_reserve(1, 4);
            let (two, three) = (two.join().unwrap(), three.join().unwrap());
            let served = |answer: Result<usize, usize>, n| answer.map_or(0, |_| n);
            let sum = served(one, 1) + served(two, 2) + served(three, 3);
            assert_eq!(reserve.used(), sum);
            assert!(sum <= 4 && (two.is_ok() ^ three.is_ok()));
            outcome(match (one, two, three) {
                (Ok(1), Ok(_), Err(_)) => "1 and 2",
                (Ok(1), Err(_), Ok(_)) => "1 and 3",
                (Ok(_), Ok(_), Err(_)) => "2 and 1",
                (Ok(_), Err(_), Ok(_)) => "3",
                wrong => panic!("{wrong:?}"),
            });
        },
    );
}

#[test]
fn a_check_apart_from_its_charge_goes_over_the_limit() {
    must_fail(
        "a_check_apart_from_its_charge_goes_over_the_limit",
        "over the limit",
        || {
            let used = Arc::new(AtomicUsize::new(0));
            let charge = |used: &AtomicUsize| {
                if used.load(Ordering::Acquire) + 2 <= 3 {
                    let sum = used.fetch_add(2, Ordering::AcqRel) + 2;
                    assert!(sum <= 3, "over the limit");
                }
            };
            let other = Arc::clone(&used);
            let other = thread::spawn(move || charge(&other));
            charge(&used);
            other.join().unwrap();
        },
    );
}
