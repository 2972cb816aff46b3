//! The facade of `crate::sync` on shuttle's types.

use std::hash::{Hash, Hasher};

pub use super::super::sync::{Counter, Tally};
pub use core::sync::atomic::Ordering;
pub use shuttle::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence};

/// What [`CheckedCell`] counts while a writer is inside.
const WRITER: u32 = 1 << 16;

/// A cell that panics when an access overlaps another that it must not overlap. Entering and
/// leaving are operations that shuttle may switch threads at, so whatever can overlap will.
#[derive(Debug, Default)]
pub struct CheckedCell<T> {
    inside: AtomicU32,
    value: core::cell::UnsafeCell<T>,
}

/// The name by which the kernel knows it.
pub type UnsafeCell<T> = CheckedCell<T>;

impl<T> CheckedCell<T> {
    /// A cell that holds `value`.
    pub const fn new(value: T) -> Self {
        Self {
            inside: AtomicU32::new(0),
            value: core::cell::UnsafeCell::new(value),
        }
    }

    /// Gives `f` a pointer to read through.
    ///
    /// # Panics
    /// If a writer is inside.
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        // Ordering: SeqCst - shuttle knows no other; it is the checker's own bookkeeping.
        let before = self.inside.fetch_add(1, Ordering::SeqCst);
        assert!(before < WRITER, "data race: a read overlaps a write");
        let result = f(self.value.get());
        // Ordering: SeqCst - as above.
        self.inside.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Gives `f` a pointer to write through.
    ///
    /// # Panics
    /// If anyone is inside.
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        // Ordering: SeqCst - as in `with`.
        let before = self.inside.fetch_add(WRITER, Ordering::SeqCst);
        assert!(before == 0, "data race: a write overlaps another access");
        let result = f(self.value.get());
        // Ordering: SeqCst - as in `with`.
        self.inside.fetch_sub(WRITER, Ordering::SeqCst);
        result
    }
}

/// The owner's half: threads are sequentially consistent here.
pub fn light_barrier() {}

/// The other half of [`light_barrier`].
pub fn heavy_barrier() -> bool {
    true
}

/// Whether [`heavy_barrier`] is to be had.
pub fn is_reachable() -> bool {
    true
}

/// Stores to a word that nobody else may change now.
pub fn set(word: &AtomicU64, value: u64, order: Ordering) {
    word.swap(value, order);
}

/// One turn of waiting.
pub fn pause(_looks: u32) {
    shuttle::thread::yield_now();
}

/// A number for the calling thread, never 0, that no other thread has.
pub fn this_thread() -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    shuttle::thread::current().id().hash(&mut hasher);
    hasher.finish() | 1
}

pub(crate) use super::super::sync::{array, before_fence, const_fn};

#[cfg(test)]
mod tests {
    use super::CheckedCell;
    use std::sync::Arc;

    struct Shared(CheckedCell<u32>);
    #[allow(unsafe_code)]
    // SAFETY: shuttle runs one thread at a time, and the tests below touch no value.
    unsafe impl Sync for Shared {}

    fn overlap() {
        let cell = Arc::new(Shared(CheckedCell::new(0)));
        let other = Arc::clone(&cell);
        let writer = shuttle::thread::spawn(move || other.0.with_mut(|_| ()));
        cell.0.with(|_| ());
        writer.join().unwrap();
    }

    #[test]
    #[should_panic(expected = "data race")]
    fn an_overlapping_access_is_seen() {
        shuttle::check_dfs(overlap, None);
    }

    #[test]
    fn two_readers_may_overlap() {
        shuttle::check_dfs(
            || {
                let cell = Arc::new(Shared(CheckedCell::new(0)));
                let other = Arc::clone(&cell);
                let reader = shuttle::thread::spawn(move || other.0.with(|_| ()));
                cell.0.with(|_| ());
                reader.join().unwrap();
            },
            None,
        );
    }
}
