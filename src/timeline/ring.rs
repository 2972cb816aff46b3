//! The ring that events go into: of a fixed capacity; when it is full the oldest event goes. It takes
//! no lock, but a thread may have to wait for another that has claimed a slot and not yet written it.

use std::fmt;
use std::time::Instant;

use crossbeam_queue::ArrayQueue;

use super::event::{Event, EventKind};
use super::{Timeline, threads};
use crate::kernel::backing::Note;
use crate::kernel::block::UNCLASSED;
use crate::sync::Counter;
use crate::trimmer;

/// The ring of one pool.
pub(crate) struct Ring {
    start: Instant,
    queue: ArrayQueue<Event>,
    lost: Counter,
    operations: bool,
    /// Forks of this process before the ring was made: a child leaves its parent's rings alone,
    /// since a slot may have been claimed by a thread that does not exist there.
    forks: u64,
}

impl Ring {
    pub(crate) fn new(timeline: &Timeline) -> Self {
        let queue = ArrayQueue::new(timeline.events);
        Self {
            start: Instant::now(),
            queue,
            lost: Counter::new(),
            operations: timeline.operations,
            forks: trimmer::forks(),
        }
    }

    /// Whether every allocate and drop is to be recorded.
    pub(crate) fn wants_operations(&self) -> bool {
        self.operations
    }

    /// Records what the kernel tells of.
    pub(crate) fn note(&self, note: Note) {
        let (kind, class, blocks, bytes) = match note {
            Note::Birth { class, bytes } => (EventKind::Birth, class, 1, bytes),
            Note::Death { class, bytes } => (EventKind::Death, class, 1, bytes),
            Note::Rest {
                class,
                blocks,
                bytes,
            } => (EventKind::Rest, class, blocks, bytes),
            Note::Wake {
                class,
                blocks,
                bytes,
            } => (EventKind::Wake, class, blocks, bytes),
            Note::Evict {
                class,
                blocks,
                bytes,
            } => (EventKind::Evict, class, blocks, bytes),
            Note::Trim { bytes } => (EventKind::Trim, UNCLASSED, 0, bytes),
        };
        self.record(kind, class, blocks, bytes);
    }

    /// Records one event of now.
    pub(crate) fn record(&self, kind: EventKind, class: u8, blocks: u32, bytes: usize) {
        if self.is_inherited() {
            return;
        }
        let event = Event {
            nanos: self.nanos(),
            thread: threads::number(),
            kind,
            class: (class != UNCLASSED).then_some(class),
            blocks,
            bytes,
        };
        if self.queue.force_push(event).is_some() {
            self.lost.add(1);
        }
    }

    /// Nanoseconds since the pool was opened.
    pub(super) fn nanos(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Takes out what is in the ring now, and the number of events lost since the last time. Ends
    /// also while others go on recording.
    pub(super) fn drain(&self) -> (Vec<Event>, u64) {
        if self.is_inherited() {
            return (Vec::new(), 0);
        }
        let len = self.queue.len();
        let mut events = Vec::with_capacity(len);
        events.extend(std::iter::from_fn(|| self.queue.pop()).take(len));
        (events, self.lost.replace(0))
    }

    fn is_inherited(&self) -> bool {
        self.forks != trimmer::forks()
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("capacity", &self.queue.capacity())
            .field("operations", &self.operations)
            .finish_non_exhaustive()
    }
}
