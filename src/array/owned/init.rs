//! Arrays with unspecified contents, and how they become arrays.

#![allow(unsafe_code)]

use core::mem::MaybeUninit;

use ndarray::{ArrayRef, Dimension, Zip};

use super::PoolArray;
use crate::array::error::ArrayError;
use crate::array::layout::size_of_dim;
use crate::array::memory::Memory;
use crate::array::operand::broadcast;
use crate::element::Element;

/// Safe initialisation of an array with unspecified contents.
impl<T: Element, D: Dimension> PoolArray<MaybeUninit<T>, D> {
    /// An uninitialised array.
    #[inline]
    pub(crate) fn fresh(
        memory: Memory<'_>,
        dim: D,
        column_major: bool,
    ) -> Result<Self, ArrayError> {
        let len = size_of_dim::<T, D>(&dim)?;
        let buffer = memory.take::<T>(len)?;
        // SAFETY: as many elements as the shape is large.
        Ok(unsafe { Self::dense(buffer, dim, column_major) })
    }

    /// Takes the elements as initialised.
    ///
    /// # Safety
    /// Every element of the view is initialised.
    #[inline]
    #[must_use]
    pub unsafe fn assume_init(mut self) -> PoolArray<T, D> {
        if self.view.len() != self.buffer.len() {
            self.clear_beyond();
        }
        // SAFETY: the caller's promise; the rest of the buffer was cleared above.
        let buffer = unsafe { self.buffer.assume_init() };
        // SAFETY: the caller's promise.
        let view = unsafe { self.view.assume_init() };
        PoolArray { view, buffer }
    }

    /// Zeroes what a cut view does not name, so that the whole buffer is initialised.
    #[cold]
    fn clear_beyond(&mut self) {
        let base = self.buffer.as_ptr();
        let mut named = vec![false; self.buffer.len()];
        for element in &self.view {
            let bytes = core::ptr::from_ref(element).addr() - base.addr();
            if let Some(index) = bytes.checked_div(size_of::<T>()) {
                named[index] = true;
            }
        }
        let start = self.buffer.as_mut_ptr();
        for (index, _) in named.iter().enumerate().filter(|(_, named)| !**named) {
            // SAFETY: the index is below the buffer's length.
            let place = unsafe { start.add(index) };
            // SAFETY: in bounds and ours.
            unsafe { place.write(MaybeUninit::zeroed()) };
        }
    }

    /// Initialises every element with `f` of its index. If `f` panics, the array is dropped.
    #[must_use]
    pub fn init_with(mut self, mut f: impl FnMut(D::Pattern) -> T) -> PoolArray<T, D> {
        for (index, place) in self.view.indexed_iter_mut() {
            place.write(f(index));
        }
        // SAFETY: every element was written.
        unsafe { self.assume_init() }
    }

    /// Initialises every element with `value`.
    #[must_use]
    pub fn init_full(mut self, value: T) -> PoolArray<T, D> {
        self.view.fill(MaybeUninit::new(value));
        // SAFETY: every element was written.
        unsafe { self.assume_init() }
    }

    /// Initialises the elements with those of a view, broadcast to this shape.
    ///
    /// # Errors
    /// [`ArrayError::Broadcast`]; the array is dropped then.
    pub fn init_from<E: Dimension>(
        mut self,
        source: &ArrayRef<T, E>,
    ) -> Result<PoolArray<T, D>, ArrayError> {
        let source = broadcast(source, &self.view.raw_dim())?;
        Zip::from(&mut self.view)
            .and(source)
            .for_each(|place, &element| {
                place.write(element);
            });
        // SAFETY: every element was written.
        Ok(unsafe { self.assume_init() })
    }
}
