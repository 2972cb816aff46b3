//! [`Disposable`]: an array that any of many threads may dispose, once.

#![allow(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;

use ndarray::Dimension;

use super::error::ArrayError;
use super::layout::Layout;
use super::memory::Memory;
use super::shared::SharedArray;
use crate::block;
use crate::element::Element;
use crate::handle::Token;

/// An array that can be disposed through `&self`, by any of many threads, once; for programs that
/// must say when memory goes back, and cannot say it with ownership.
///
/// It owns one share of its buffer, in a lease of its own that ends exactly once: a second
/// disposal, also a concurrent one, ends nothing and touches no other owner. Readers
/// [`get`](Self::get) shares of their own, so a disposal never frees under a reader: the memory
/// goes back with the last share. Dropping disposes as well. The share keeps the pool's core as
/// long as it lives, so the pool's handles may go first; afterwards nothing of the pool is touched.
///
/// No method waits.
///
/// ```
/// use ndpool::{ArrayError, Disposable};
/// let pool = ndpool::Pool::new();
/// let image = Disposable::new(pool.ones::<f32, _>((64, 64)))?;
/// let reader = image.get()?;
/// assert!(image.dispose() && !image.dispose());
/// assert_eq!(image.get().unwrap_err(), ArrayError::Disposed);
/// assert_eq!(reader.sum(), 4096.0);
/// # Ok::<(), ArrayError>(())
/// ```
pub struct Disposable<T: Element, D: Dimension> {
    token: Token,
    layout: Layout<D>,
    element: PhantomData<T>,
}

impl<T: Element, D: Dimension> Disposable<T, D> {
    /// A scope gives the array away.
    pub(crate) fn mark_survivor(&self) {
        // SAFETY: the token was made from a buffer of `T`.
        if let Some(buffer) = unsafe { self.token.look::<T>() } {
            // SAFETY: the buffer owns a share.
            unsafe { block::mark_survivor(buffer.block()) };
        }
    }

    /// A disposable array from an owned or a shared one, of which it takes over the share.
    ///
    /// # Errors
    /// [`ArrayError::LeasesExhausted`]; [`ArrayError::Alloc`] for an array without elements, which
    /// gets an empty buffer.
    pub fn new(array: impl Into<SharedArray<T, D>>) -> Result<Self, ArrayError> {
        let (buffer, layout) = array.into().into_layout();
        let buffer = match buffer {
            Some(buffer) => buffer,
            None => Memory::ambient().take_zeroed(0)?.share(),
        };
        let token = buffer
            .into_token()
            .map_err(|_| ArrayError::LeasesExhausted)?;
        Ok(Self {
            token,
            layout,
            element: PhantomData,
        })
    }

    /// A share of the array, for reading.
    ///
    /// # Errors
    /// [`ArrayError::Disposed`].
    pub fn get(&self) -> Result<SharedArray<T, D>, ArrayError> {
        // SAFETY: the token was made from a buffer of `T`.
        let buffer = unsafe { self.token.look::<T>() }.ok_or(ArrayError::Disposed)?;
        // SAFETY: the layout was checked against the leased buffer.
        Ok(unsafe { SharedArray::from_layout(buffer, &self.layout) })
    }

    /// A second object over the same buffer, with a share of its own, disposed on its own.
    ///
    /// # Errors
    /// [`ArrayError::Disposed`], [`ArrayError::LeasesExhausted`].
    pub fn share(&self) -> Result<Self, ArrayError> {
        // SAFETY: the token was made from a buffer of `T`.
        let buffer = unsafe { self.token.look::<T>() }.ok_or(ArrayError::Disposed)?;
        let token = buffer
            .into_token()
            .map_err(|_| ArrayError::LeasesExhausted)?;
        Ok(Self {
            token,
            layout: self.layout.clone(),
            element: PhantomData,
        })
    }

    /// Gives up this object's share; says whether it was this call that did it.
    pub fn dispose(&self) -> bool {
        self.token.release_once()
    }

    /// Whether this object was disposed. The buffer may have other owners.
    #[must_use]
    pub fn is_disposed(&self) -> bool {
        !self.token.is_live()
    }

    /// Axis lengths; known after a disposal as well.
    #[must_use]
    pub fn shape(&self) -> D {
        self.layout.dim().clone()
    }
}

impl<T: Element, D: Dimension> Drop for Disposable<T, D> {
    fn drop(&mut self) {
        self.token.release_once();
    }
}

impl<T: Element + fmt::Debug, D: Dimension> fmt::Debug for Disposable<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Ok(array) => f.debug_tuple("Disposable").field(&array).finish(),
            Err(_) => f.write_str("Disposable(disposed)"),
        }
    }
}

static_assertions::assert_impl_all!(Disposable<f64, ndarray::IxDyn>: Send, Sync, core::panic::UnwindSafe, core::panic::RefUnwindSafe);
static_assertions::assert_not_impl_any!(Disposable<f64, ndarray::Ix1>: Clone);
