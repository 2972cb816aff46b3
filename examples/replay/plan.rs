//! What each thread of a replay does: a trace, sorted by thread.

use std::alloc::Layout;

use crate::trace::{Record, Trace};

/// A trace made ready to be replayed.
#[derive(Debug)]
pub struct Plan {
    /// The steps of each thread, in order.
    pub threads: Vec<ThreadPlan>,
    /// Blocks that another thread frees than the one that allocates them.
    pub crossings: usize,
    _places: Vec<Place>,
    trace: Trace,
}

/// The steps of one thread.
#[derive(Debug, Default)]
pub struct ThreadPlan {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Frees of the blocks that the thread still holds after its steps.
    pub closing: Vec<Step>,
    /// Slots that the steps use, numbered from 0: the most blocks the thread holds at once.
    pub slots: usize,
    free_slots: Vec<u32>,
}

/// One step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Allocate block `block` and put it into its place.
    Allocate {
        /// The block's number.
        block: u32,
        /// Where it goes.
        place: Place,
        /// Bytes and alignment.
        layout: Layout,
        /// Whether the bytes must be zero.
        zeroed: bool,
    },
    /// Take block `block` from its place and free it.
    Free {
        /// The block's number.
        block: u32,
        /// Where it is.
        place: Place,
    },
}

/// Where a block is kept while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a slot of the thread's own.
    Slot(u32),
    /// Handed over to another thread, which waits for it.
    Crossing(u32),
}

impl Plan {
    /// Sorts a trace by thread. The plan keeps what it was made from, so that nothing large is
    /// freed before the replay (see [`crate::trace`]).
    pub fn new(trace: Trace) -> Plan {
        let mut places = vec![Place::Slot(0); trace.held.len()];
        let crossings = mark_crossings(&trace, &mut places);
        let mut threads = Vec::new();
        threads.resize_with(trace.threads, ThreadPlan::default);
        for record in &trace.records {
            let thread: &mut ThreadPlan = &mut threads[record.thread()];
            match *record {
                Record::Allocate {
                    block,
                    layout,
                    zeroed,
                    ..
                } => {
                    let place = &mut places[block as usize];
                    if let Place::Slot(slot) = place {
                        *slot = thread.take_slot();
                    }
                    thread.steps.push(Step::Allocate {
                        block,
                        place: *place,
                        layout,
                        zeroed,
                    });
                    if trace.held[block as usize] {
                        thread.closing.push(Step::Free {
                            block,
                            place: *place,
                        });
                    }
                }
                Record::Free { block, .. } => {
                    let place = places[block as usize];
                    if let Place::Slot(slot) = place {
                        thread.free_slots.push(slot);
                    }
                    thread.steps.push(Step::Free { block, place });
                }
            }
        }
        Plan {
            threads,
            crossings,
            _places: places,
            trace,
        }
    }

    /// The trace's name.
    pub fn name(&self) -> &str {
        &self.trace.name
    }

    /// Allocations of all threads.
    pub fn allocations(&self) -> usize {
        self.trace.held.len()
    }

    /// Bytes that all allocations together ask for.
    pub fn bytes_asked(&self) -> u64 {
        self.trace
            .records
            .iter()
            .map(|record| match record {
                Record::Allocate { layout, .. } => layout.size() as u64,
                Record::Free { .. } => 0,
            })
            .sum()
    }

    /// Steps of all threads.
    pub fn operations(&self) -> usize {
        self.threads.iter().map(|thread| thread.steps.len()).sum()
    }
}

impl ThreadPlan {
    fn take_slot(&mut self) -> u32 {
        self.free_slots.pop().unwrap_or_else(|| {
            self.slots += 1;
            (self.slots - 1) as u32
        })
    }
}

/// Gives a crossing to each block whose free is on another thread than its allocation; returns how
/// many there are. Until its slot is known, any other block's place tells its owner.
fn mark_crossings(trace: &Trace, places: &mut [Place]) -> usize {
    let mut crossings = 0;
    for record in &trace.records {
        match *record {
            Record::Allocate { thread, block, .. } => {
                places[block as usize] = Place::Slot(thread.into());
            }
            Record::Free { thread, block } => {
                let place = &mut places[block as usize];
                if *place != Place::Slot(thread.into()) {
                    *place = Place::Crossing(crossings);
                    crossings += 1;
                }
            }
        }
    }
    crossings as usize
}
