//! [`Table`]: something beside each cell of a process-wide arena, by index, without a lock: what is
//! replaced is reclaimed by epochs, since reports read while owners write.

#![allow(unsafe_code)]

use std::sync::atomic::Ordering;

use crossbeam_epoch::{self as epoch, Atomic, Guard, Owned, Shared};

use crate::constants::watch::{CHUNK, CHUNKS};

type Chunk<T> = [Atomic<T>; CHUNK];

/// One `T` for each index below `CHUNK * CHUNKS`, or none. Chunks are made when they are first
/// needed and stay.
pub(super) struct Table<T> {
    chunks: [Atomic<Chunk<T>>; CHUNKS],
}

impl<T: Send + Sync> Table<T> {
    pub(super) const fn new() -> Self {
        Self {
            chunks: [const { Atomic::null() }; CHUNKS],
        }
    }

    /// The place of an index, if its chunk exists.
    fn place<'g>(&'g self, index: u32, guard: &'g Guard) -> Option<&'g Atomic<T>> {
        let chunk = self.chunks.get(index as usize / CHUNK)?;
        // Ordering: Acquire - with `make`: the chunk is written.
        let chunk = chunk.load(Ordering::Acquire, guard);
        // SAFETY: null, or a chunk, which is never freed.
        let chunk = unsafe { chunk.as_ref() }?;
        Some(&chunk[index as usize % CHUNK])
    }

    /// Makes the chunk of an index, unless somebody else does.
    #[cold]
    fn make(&self, index: u32, guard: &Guard) {
        let Some(place) = self.chunks.get(index as usize / CHUNK) else {
            return;
        };
        let chunk = Owned::new([const { Atomic::null() }; CHUNK]);
        // Ordering: Release - with `place`: the chunk is written. Relaxed on failure: the loser
        // frees its own chunk, and looks again.
        let _ = place.compare_exchange(
            Shared::null(),
            chunk,
            Ordering::Release,
            Ordering::Relaxed,
            guard,
        );
    }

    /// Replaces what is at an index. Each index has one writer at a time.
    pub(super) fn set(&self, index: u32, value: Option<T>) {
        let guard = &epoch::pin();
        if self.place(index, guard).is_none() {
            if value.is_none() {
                return;
            }
            self.make(index, guard);
        }
        let Some(place) = self.place(index, guard) else {
            return;
        };
        // Ordering: AcqRel - with `look`, `each` and other calls: the value is written.
        let former = match value {
            Some(value) => place.swap(Owned::new(value), Ordering::AcqRel, guard),
            None => place.swap(Shared::null(), Ordering::AcqRel, guard),
        };
        if !former.is_null() {
            // SAFETY: it was just unlinked, by this call alone; readers hold pins of their own.
            unsafe { guard.defer_destroy(former) };
        }
    }

    /// Looks at what is at an index.
    pub(super) fn look<R>(&self, index: u32, look: impl FnOnce(&T) -> R) -> Option<R> {
        let guard = &epoch::pin();
        let place = self.place(index, guard)?;
        // Ordering: Acquire - with `set`: the value is written.
        let value = place.load(Ordering::Acquire, guard);
        // SAFETY: null, or a value that this pin keeps from being reclaimed.
        unsafe { value.as_ref() }.map(look)
    }

    /// Looks at everything there is, by index.
    pub(super) fn each(&self, mut look: impl FnMut(u32, &T)) {
        for chunk in 0..CHUNKS as u32 {
            let first = chunk * CHUNK as u32;
            if self.place(first, &epoch::pin()).is_none() {
                continue;
            }
            for index in first..first + CHUNK as u32 {
                self.look(index, |value| look(index, value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn values_are_found_by_index_and_freed_when_replaced() {
        static TABLE: Table<Arc<u32>> = Table::new();
        let (first, second) = (Arc::new(1), Arc::new(2));
        TABLE.set(7, Some(Arc::clone(&first)));
        TABLE.set(5000, Some(Arc::clone(&second)));
        assert_eq!(TABLE.look(7, |value| **value), Some(1));
        assert_eq!(TABLE.look(8, |value| **value), None);
        assert_eq!(TABLE.look(u32::MAX, |value| **value), None);
        let mut all = Vec::new();
        TABLE.each(|index, value| all.push((index, **value)));
        assert_eq!(all, [(7, 1), (5000, 2)]);
        TABLE.set(7, None);
        assert_eq!(TABLE.look(7, |value| **value), None);
        for _ in 0..10_000 {
            epoch::pin().flush();
            if Arc::strong_count(&first) == 1 {
                break;
            }
            std::thread::yield_now();
        }
        assert_eq!(Arc::strong_count(&first), 1, "the replaced value is freed");
        assert_eq!(Arc::strong_count(&second), 2);
    }
}
