//! Models of the stack of indices, as it is shipped; and of the same stack without its tag, or with
//! one that comes round too soon, which must be seen to fail.

use std::sync::Arc;

use loom::thread;
use ndpool::loom_model::kernel::stack::{IndexStack, Links, TAG_BITS};
use ndpool::loom_model::sync::{AtomicU32, Ordering};
use ndpool::loom_model::{Witness, check, must_fail, outcome, spawn};

/// Three cells. Each belongs to whoever has popped it, who may write to it.
struct Cells<const TAG: u32 = TAG_BITS> {
    stack: IndexStack<TAG>,
    links: [AtomicU32; 3],
    cells: [Witness; 3],
}

impl<const TAG: u32> Links for Cells<TAG> {
    fn link(&self, index: u32) -> &AtomicU32 {
        &self.links[index as usize]
    }
}

impl<const TAG: u32> Cells<TAG> {
    /// Pushes the cells in this order.
    fn with(pushed: &[u32]) -> Arc<Self> {
        let cells = Self {
            stack: IndexStack::with_tag(),
            links: [0; 3].map(AtomicU32::new),
            cells: [0, 1, 2].map(Witness::new),
        };
        pushed.iter().for_each(|index| cells.push(*index));
        Arc::new(cells)
    }

    fn push(&self, index: u32) {
        self.cells[index as usize].write(index);
        self.stack.push(self, index);
    }

    /// Pops a cell, and touches it as its only owner.
    fn pop(&self) -> Option<u32> {
        let index = self.stack.pop(self)?;
        assert_eq!(self.cells[index as usize].read(), index);
        self.cells[index as usize].write(index);
        Some(index)
    }

    /// Empties the stack; the cells in the order they come.
    fn drain(&self) -> Vec<u32> {
        std::iter::from_fn(|| self.pop()).collect()
    }
}

/// Every cell once, whoever has it.
fn assert_each_once(mut all: Vec<u32>, count: u32) {
    all.sort_unstable();
    assert_eq!(
        all,
        (0..count).collect::<Vec<_>>(),
        "a cell is lost or has two owners"
    );
}

#[test]
fn two_pushes_and_two_pops() {
    check("two_pushes_and_two_pops", &["own", "crossed"], || {
        let cells = Cells::<TAG_BITS>::with(&[]);
        let trade = |cells: &Cells, index| {
            cells.push(index);
            cells.pop().expect("nobody pops twice")
        };
        let other = spawn(&cells, move |cells| trade(cells, 1));
        let main = trade(&cells, 0);
        let other = other.join().unwrap();
        assert_each_once(vec![main, other], 2);
        assert_eq!(cells.pop(), None);
        outcome(if main == 0 { "own" } else { "crossed" });
    });
}

#[test]
fn a_push_hands_its_cell_over() {
    check("a_push_hands_its_cell_over", &["empty", "popped"], || {
        let cells = Cells::<TAG_BITS>::with(&[]);
        let other = spawn(&cells, Cells::pop);
        cells.push(0);
        let popped = other.join().unwrap();
        assert_each_once([popped, cells.pop()].into_iter().flatten().collect(), 1);
        outcome(if popped.is_some() { "popped" } else { "empty" });
    });
}

#[test]
fn two_pops_take_two_cells() {
    check(
        "two_pops_take_two_cells",
        &["main: top", "main: below"],
        || {
            let cells = Cells::<TAG_BITS>::with(&[0, 1]);
            let other = spawn(&cells, Cells::pop);
            let main = cells.pop().unwrap();
            assert_each_once(vec![main, other.join().unwrap().unwrap()], 2);
            outcome(if main == 1 {
                "main: top"
            } else {
                "main: below"
            });
        },
    );
}

#[test]
fn a_pop_sees_older_pushes_through_newer_ones() {
    let expected = ["0 left", "1 left", "2 left"];
    check(
        "a_pop_sees_older_pushes_through_newer_ones",
        &expected,
        || {
            let cells = Cells::<TAG_BITS>::with(&[]);
            let first = spawn(&cells, |cells| cells.push(0));
            let second = spawn(&cells, |cells| cells.push(1));
            let mut all: Vec<_> = [cells.pop(), cells.pop()].into_iter().flatten().collect();
            first.join().unwrap();
            second.join().unwrap();
            let left = cells.drain();
            outcome(format!("{} left", left.len()));
            all.extend(left);
            assert_each_once(all, 2);
        },
    );
}

/// One thread pops, while the other takes the top away, then what was below, and brings the old
/// top back: the head is the same index, and what was read of its link is wrong.
#[test]
fn an_index_that_comes_back_is_not_the_one_that_was_seen() {
    let expected = ["popped 0", "popped 1", "popped 2"];
    check(
        "an_index_that_comes_back_is_not_the_one_that_was_seen",
        &expected,
        || {
            let cells = Cells::<TAG_BITS>::with(&[0, 1, 2]);
            let other = spawn(&cells, |cells| {
                let top = cells.pop();
                let below = cells.pop();
                if let Some(top) = top {
                    cells.push(top);
                }
                below
            });
            let main = cells.pop();
            let mut all: Vec<_> = [main, other.join().unwrap()]
                .into_iter()
                .flatten()
                .collect();
            all.extend(cells.drain());
            assert_each_once(all, 3);
            outcome(format!("popped {}", main.unwrap()));
        },
    );
}

/// One thread pops, while the other does four operations that end with the same index on top, over
/// another cell: a tag of 1 bit has come round twice by then.
fn comes_round<const TAG: u32>() -> Option<u32> {
    let cells = Cells::<TAG>::with(&[0, 1, 2]);
    let other = spawn(&cells, |cells| {
        // Not every one of them succeeds if main has popped before.
        let popped: [_; 3] = std::array::from_fn(|_| cells.stack.pop(cells));
        if let Some(top) = popped[0] {
            cells.stack.push(cells, top);
        }
        [popped[1], popped[2]]
    });
    let main = cells.stack.pop(&*cells);
    let mut all: Vec<_> = other
        .join()
        .unwrap()
        .into_iter()
        .chain([main])
        .flatten()
        .collect();
    // A cell with two owners may have left a circle of links.
    all.extend((0..4).map_while(|_| cells.stack.pop(&*cells)));
    assert_each_once(all, 3);
    main
}

#[test]
fn the_shipped_tag_does_not_come_round() {
    let expected = ["empty", "popped 0", "popped 1", "popped 2"];
    check("the_shipped_tag_does_not_come_round", &expected, || {
        let main = comes_round::<TAG_BITS>();
        outcome(main.map_or("empty".into(), |main| format!("popped {main}")));
    });
}

#[test]
fn with_a_tag_that_comes_round_a_cell_has_two_owners() {
    must_fail(
        "with_a_tag_that_comes_round_a_cell_has_two_owners",
        "is lost or has two owners",
        || {
            comes_round::<1>();
        },
    );
}

/// The same stack without a tag.
struct Tagless {
    head: AtomicU32,
    links: [AtomicU32; 3],
}

impl Tagless {
    fn push(&self, index: u32) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            self.links[index as usize].store(head, Ordering::Relaxed);
            let pushed = index + 1;
            match self
                .head
                .compare_exchange(head, pushed, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn pop(&self) -> Option<u32> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let index = head.checked_sub(1)?;
            let next = self.links[index as usize].load(Ordering::Relaxed);
            match self
                .head
                .compare_exchange(head, next, Ordering::Relaxed, Ordering::Acquire)
            {
                Ok(_) => return Some(index),
                Err(now) => head = now,
            }
        }
    }
}

#[test]
fn without_a_tag_a_cell_has_two_owners() {
    must_fail(
        "without_a_tag_a_cell_has_two_owners",
        "is lost or has two owners",
        || {
            let cells = Arc::new(Tagless {
                head: AtomicU32::new(0),
                links: [0; 3].map(AtomicU32::new),
            });
            (0..3).for_each(|index| cells.push(index));
            let stack = Arc::clone(&cells);
            let other = thread::spawn(move || {
                let top = stack.pop();
                let below = stack.pop();
                if let Some(top) = top {
                    stack.push(top);
                }
                below
            });
            let mut all: Vec<_> = [cells.pop(), other.join().unwrap()]
                .into_iter()
                .flatten()
                .collect();
            all.extend((0..4).map_while(|_| cells.pop()));
            assert_each_once(all, 3);
        },
    );
}
