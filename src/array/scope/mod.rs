//! Scopes: transients that go back together.

#![allow(unsafe_code)]

use core::fmt;

use ndarray::{ArrayRef, ArrayView, Dimension};

use super::error::{ArrayError, settle};
use super::owned::PoolArray;
use super::shared::SharedArray;
use crate::element::Element;
use crate::leaks::LeakReport;
use crate::pool::Pool;
use crate::watch::record;

mod arena;
mod batch;
mod survive;
mod temp;

use arena::{Arena, Held};
use batch::Batch;
pub use survive::Survive;
pub use temp::Temp;

/// A scope of a pool: everything made in it goes back together when it closes, except what is
/// returned from it.
///
/// Its arrays are named by [`Temp`] handles: `Copy`, read-only, and bound to the scope's lifetime,
/// so operators need no `&` and an escape does not compile. The scope closes when it is dropped,
/// also by a panic; [`finish`](Self::finish) says it aloud. It stays on its thread.
///
/// ```
/// let pool = ndpool::Pool::new();
/// let (a, b) = (pool.ones::<f64, _>(1000), pool.full(1000, 2.0));
/// let s = pool.open();
/// let (x, y) = (s.lift(&a), s.lift(&b));
/// let norm = (x * x + y * y).sqrt();
/// let scaled = s.returns((x / norm, y / norm));
/// s.finish();
/// let unique = scaled.0.try_unique().unwrap(); // no copy
/// assert!((unique[0] - 0.2f64.sqrt()).abs() < 1e-15);
/// ```
///
/// # Scopes or owned arrays
///
/// Owned arrays give each temporary back, or reuse it, at its last use: `(&a + &b) * &d` holds one
/// buffer. A scope holds all its transients to its end: the same expression holds two. So owned
/// arrays are the first choice: they hold less, what they reuse is warmer, and they are as fast. A
/// scope is for formula-heavy code, where values are used several times and each `&` or clone
/// would be noise; and where many small transients go back at once, in whole magazines. To hold
/// less, open a child scope for a part of the work, [`reset`](Self::reset) between rounds, or use
/// owned arrays inside.
///
/// `(a + b) * d` on arrays of `f64`, from the benchmark `expr`; outputs kept by hand are the bound:
///
/// | per expression | instructions at n = 1,000 | buffers held |
/// |---|---|---|
/// | outputs kept by hand | 5,781 | 2, for ever |
/// | owned arrays | 5,834 | 1 |
/// | a scope for each | 6,903 | 2, and 2 KiB of handles |
///
/// `examples/photo` does one pipeline (a 451 x 300 picture in three channels, 500 KiB a plane) in
/// three ways; of one run on two shared cores:
///
/// | one picture | ms | page faults | buffers taken | peak MiB |
/// |---|---|---|---|---|
/// | heap arrays | 567 | 12,347 | 1,740 | 16.1 |
/// | owned arrays | 229 | 698 | 1,827 | 5.6 |
/// | scopes | 330 | 984 | 3,636 | 15.6 |
pub struct Scope {
    arena: Arena,
    pool: Pool,
    /// Records from this one on are of the scope.
    serial: u64,
}

impl Pool {
    /// Opens a scope; it closes when the guard is dropped.
    #[must_use]
    pub fn open(&self) -> Scope {
        Scope {
            arena: Arena::new(),
            pool: self.clone(),
            serial: record::next_serial(),
        }
    }

    /// Runs `work` in a scope, and gives its result after the scope has closed. What is made inside
    /// gets out by [`Scope::returns`].
    ///
    /// ```
    /// let pool = ndpool::Pool::new();
    /// let sum = pool.scope(|s| {
    ///     let x = s.arange(0.0, 10.0, 1.0);
    ///     s.returns(x * x - x)
    /// });
    /// assert_eq!(sum.into_unique()?.sum(), 240.0);
    /// # Ok::<(), ndpool::ArrayError>(())
    /// ```
    pub fn scope<R>(&self, work: impl FnOnce(&Scope) -> R) -> R {
        let scope = self.open();
        work(&scope)
    }
}

impl Scope {
    /// The pool of the scope.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A scope inside this one, of the same pool. Values of this scope can be used in it; its
    /// results come here by [`add_shared`](Self::add_shared).
    #[must_use]
    pub fn open(&self) -> Self {
        self.pool.open()
    }

    /// Handles that were given out since the scope was opened or reset.
    #[must_use]
    pub fn len(&self) -> usize {
        self.arena.nodes()
    }

    /// Whether nothing was made in the scope yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A handle of a view and what holds its memory.
    ///
    /// # Safety
    /// The view is valid as long as what is held is kept, or, if nothing is, as long as the handle.
    unsafe fn name<T: Element, D: Dimension>(
        &self,
        view: ArrayView<'static, T, D>,
        held: Held<T>,
    ) -> Result<Temp<'_, T, D>, ArrayError> {
        // SAFETY: the caller's promise.
        let node = unsafe { self.arena.add(&self.pool, view, held) }?;
        // SAFETY: the node is of this arena.
        Ok(unsafe { Temp::new(self, node) })
    }

    /// Brings an input in, without a copy and without a count; it stays whose it is.
    ///
    /// # Panics
    /// If memory for a handle is refused.
    #[track_caller]
    pub fn lift<'s, T: Element, D: Dimension>(&'s self, x: &'s ArrayRef<T, D>) -> Temp<'s, T, D> {
        let raw = x.raw_view();
        // SAFETY: the elements are borrowed for `'s`, and the handle lives no longer.
        let view = unsafe { raw.deref_into_view() };
        // SAFETY: as above; after `'s` the node is not looked at, only ended.
        settle(unsafe { self.name(view, Held::Lifted) })
    }

    /// Takes an owned array into the scope.
    ///
    /// # Panics
    /// If memory for a handle is refused; see [`try_add`](Self::try_add).
    #[track_caller]
    pub fn add<T: Element, D: Dimension>(&self, array: PoolArray<T, D>) -> Temp<'_, T, D> {
        settle(self.try_add(array))
    }

    /// Takes an owned array into the scope.
    ///
    /// # Errors
    /// [`ArrayError::Alloc`] of the handle; the array is dropped then.
    pub fn try_add<T: Element, D: Dimension>(
        &self,
        array: PoolArray<T, D>,
    ) -> Result<Temp<'_, T, D>, ArrayError> {
        if !array.is_at_base() {
            // Sharing it later would move its elements under a reader.
            return self.try_add_shared(array.share());
        }
        // SAFETY: the node keeps the buffer where it is, and nobody writes it there.
        let (view, buffer) = unsafe { array.into_view() };
        // SAFETY: the view is valid as long as the buffer is kept.
        unsafe { self.name(view, Held::Unique(buffer)) }
    }

    /// Takes a share of an array into the scope: for results of an inner scope.
    ///
    /// # Panics
    /// If memory for a handle is refused; see [`try_add_shared`](Self::try_add_shared).
    #[track_caller]
    pub fn add_shared<T: Element, D: Dimension>(&self, array: SharedArray<T, D>) -> Temp<'_, T, D> {
        settle(self.try_add_shared(array))
    }

    /// Takes a share of an array into the scope: for results of an inner scope.
    ///
    /// # Errors
    /// [`ArrayError::Alloc`] of the handle; the share is dropped then.
    pub fn try_add_shared<T: Element, D: Dimension>(
        &self,
        array: SharedArray<T, D>,
    ) -> Result<Temp<'_, T, D>, ArrayError> {
        // SAFETY: the node keeps the share.
        let (view, buffer) = unsafe { array.into_view() };
        let held = buffer.map_or(Held::Lifted, Held::Shared);
        // SAFETY: the view is valid as long as the share is kept.
        unsafe { self.name(view, held) }
    }

    /// What survives the scope: handles become counted arrays, in tuples, `Vec`, `Option` and
    /// `Result` as well; whatever else is in there passes through. A returned array is unique, and
    /// writable without a copy, once the scope has closed; until then the scope is an owner too.
    ///
    /// # Panics
    /// If the copy of a lifted input is refused; see [`try_returns`](Self::try_returns).
    #[track_caller]
    pub fn returns<S: Survive>(&self, survivor: S) -> S::Survivor {
        settle(self.try_returns(survivor))
    }

    /// What survives the scope; see [`returns`](Self::returns).
    ///
    /// # Errors
    /// [`ArrayError::Alloc`] of the copy of a lifted input.
    pub fn try_returns<S: Survive>(&self, survivor: S) -> Result<S::Survivor, ArrayError> {
        survivor.survive(self)
    }

    /// Gives everything back that was made so far; no handle can be left. The scope goes on.
    pub fn reset(&mut self) {
        let mut batch = Batch::new(self.pool.core(), self.pool.place());
        self.arena.empty(&mut batch);
        batch.give();
    }

    /// Closes the scope; the same as dropping it.
    pub fn finish(self) {}

    /// Closes the scope, and says which buffers its pool gave to this thread meanwhile that neither
    /// came back nor were returned by [`returns`](Self::returns): forgotten arrays, and those that
    /// were moved out by other means. Of those only that the pool's
    /// [`LeakLevel`](crate::LeakLevel) records; without, there are none.
    ///
    /// # Errors
    /// The [`LeakReport`], if there is any.
    pub fn finish_checked(mut self) -> Result<(), LeakReport> {
        self.reset();
        self.arena = Arena::new();
        let report = self.pool.leaks_since(self.serial);
        if report.is_empty() {
            Ok(())
        } else {
            Err(report)
        }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.reset();
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("pool", &self.pool)
            .field("len", &self.len())
            .finish()
    }
}

static_assertions::assert_not_impl_any!(Scope: Send, Sync, Clone);
static_assertions::assert_impl_all!(Temp<'static, f64, ndarray::IxDyn>: Copy);
static_assertions::assert_not_impl_any!(Temp<'static, f64, ndarray::Ix1>: Send, Sync, core::ops::DerefMut);
