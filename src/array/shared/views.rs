//! Views of a shared array, each an owner of the buffer.

#![allow(unsafe_code)]

use bytemuck::{AnyBitPattern, NoUninit};
use ndarray::{ArrayView, Axis, Dimension, IntoDimension, Ix1, SliceArg};

use super::SharedArray;
use crate::array::error::{ArrayError, settle};
use crate::array::layout::{Layout, size_of_dim};
use crate::array::operand::broadcast;
use crate::array::owned::{reshaped_copy, shape_error};
use crate::element::Element;
use crate::shared::ViewError;

/// Views.
impl<T: Element, D: Dimension> SharedArray<T, D> {
    /// A view made by `f` from this array's: any view that lies in this array's buffer. It is an
    /// owner of its own. All other views are made by this.
    ///
    /// ```
    /// use ndarray::{Axis, s};
    /// let pool = ndpool::Pool::new();
    /// let whole = pool.from_shape_fn((4, 5), |(i, j)| i * 10 + j).share();
    /// let odd = whole.map_view(|view| view.slice_move(s![1..;2, ..]))?;
    /// drop(whole);
    /// assert_eq!(odd[(1, 4)], 34);
    /// # Ok::<(), ndpool::ArrayError>(())
    /// ```
    ///
    /// # Errors
    /// [`ArrayError::Outside`] if the view is of other elements (a static's).
    pub fn map_view<E, F>(&self, f: F) -> Result<SharedArray<T, E>, ArrayError>
    where
        E: Dimension,
        F: for<'a> FnOnce(ArrayView<'a, T, D>) -> ArrayView<'a, T, E>,
    {
        let view = f(self.view.view());
        if view.is_empty() {
            return Ok(SharedArray::empty(view.raw_dim()));
        }
        let Some(buffer) = &self.buffer else {
            return Err(ArrayError::Outside { elements: 0 });
        };
        let layout = Layout::of(&view, buffer.as_ptr(), buffer.len())?;
        buffer.note_view(view.len());
        // SAFETY: the layout was just checked.
        Ok(unsafe { SharedArray::from_layout(buffer.clone(), &layout) })
    }

    /// [`map_view`](Self::map_view) with a view that is known to lie inside.
    #[track_caller]
    fn inner_view<E, F>(&self, f: F) -> SharedArray<T, E>
    where
        E: Dimension,
        F: for<'a> FnOnce(ArrayView<'a, T, D>) -> ArrayView<'a, T, E>,
    {
        settle(self.map_view(f))
    }

    /// A slice, as [`ndarray::ArrayRef::slice`]'s.
    ///
    /// # Panics
    /// If an index is out of bounds or a step is 0.
    #[track_caller]
    #[must_use]
    pub fn slice<I: SliceArg<D>>(&self, info: I) -> SharedArray<T, I::OutDim> {
        self.inner_view(|view| view.slice_move(info))
    }

    /// The array with its axes in reverse order.
    #[must_use]
    pub fn t(&self) -> Self {
        self.inner_view(|view| view.reversed_axes())
    }

    /// The array with its axes in another order.
    ///
    /// # Errors
    /// [`ArrayError::Axis`] if `axes` is not a permutation of the array's axes.
    pub fn permute(&self, axes: &[usize]) -> Result<Self, ArrayError> {
        let ndim = self.view.ndim();
        let mut sorted = axes.to_vec();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..ndim) {
            return Err(ArrayError::Axis {
                axes: axes.to_vec(),
                ndim,
            });
        }
        let mut order = D::zeros(ndim);
        for (place, &axis) in axes.iter().enumerate() {
            order[place] = axis;
        }
        self.map_view(|view| view.permuted_axes(order))
    }

    /// The array with one axis backwards.
    ///
    /// # Errors
    /// [`ArrayError::Axis`].
    pub fn reversed(&self, axis: Axis) -> Result<Self, ArrayError> {
        let ndim = self.view.ndim();
        if axis.index() >= ndim {
            return Err(ArrayError::Axis {
                axes: vec![axis.index()],
                ndim,
            });
        }
        self.map_view(|mut view| {
            view.invert_axis(axis);
            view
        })
    }

    /// The elements under another shape, in logical order: a view where they lie dense and
    /// row-major, else a copy in a buffer of its own.
    ///
    /// # Errors
    /// [`ArrayError::Shape`], or [`ArrayError::Alloc`] of the copy.
    pub fn reshape<E: IntoDimension>(
        &self,
        shape: E,
    ) -> Result<SharedArray<T, E::Dim>, ArrayError> {
        let dim = shape.into_dimension();
        if size_of_dim::<T, _>(&dim)? != self.view.len() {
            return Err(shape_error(&dim, self.view.len()));
        }
        if !self.view.is_standard_layout() {
            return Ok(reshaped_copy(&self.view, self.memory(), dim)?.share());
        }
        let Some(buffer) = &self.buffer else {
            return Ok(SharedArray::empty(dim));
        };
        let dense = Layout::dense(dim, false);
        let (dim, strides) = (dense.dim().clone(), dense.strides().clone());
        let layout = self.layout();
        let layout = layout.relabelled(dim, strides, layout.first());
        // SAFETY: as many dense elements from the same place on.
        Ok(unsafe { SharedArray::from_layout(buffer.clone(), &layout) })
    }

    /// The array repeated along new or unit axes, without a copy.
    ///
    /// # Errors
    /// [`ArrayError::Broadcast`].
    pub fn broadcast<E: IntoDimension>(
        &self,
        shape: E,
    ) -> Result<SharedArray<T, E::Dim>, ArrayError> {
        let dim = shape.into_dimension();
        size_of_dim::<T, _>(&dim)?;
        let view = broadcast(&self.view, &dim)?;
        let Some(buffer) = self.buffer.as_ref().filter(|_| !view.is_empty()) else {
            return Ok(SharedArray::empty(dim));
        };
        let layout = Layout::of(&view, buffer.as_ptr(), buffer.len())?;
        // SAFETY: the layout was just checked.
        Ok(unsafe { SharedArray::from_layout(buffer.clone(), &layout) })
    }

    /// The elements whose indices are all equal.
    #[must_use]
    pub fn diagonal(&self) -> SharedArray<T, Ix1> {
        self.inner_view(|view| view.into_diag())
    }

    /// The same bytes as elements of another type. Where the sizes differ, the last axis grows or
    /// shrinks, and must be dense.
    ///
    /// ```
    /// let array = ndpool::Pool::new().ones::<usize, _>(3).share();
    /// assert_eq!(array.reinterpret::<u8>().unwrap().len(), 3 * size_of::<usize>());
    /// ```
    /// ```compile_fail,E0277
    /// let array = ndpool::Pool::new().ones::<usize, _>(3).share();
    /// array.reinterpret::<&'static str>(); // no plain data
    /// ```
    ///
    /// # Errors
    /// [`ArrayError::View`] with the sizes or the address that do not fit.
    pub fn reinterpret<U>(&self) -> Result<SharedArray<U, D>, ArrayError>
    where
        T: NoUninit,
        U: Element + AnyBitPattern,
    {
        let (from, to) = (size_of::<T>(), size_of::<U>());
        let refused = ViewError::Size {
            bytes: from * self.view.len(),
            size: to,
        };
        if from == 0 || to == 0 {
            return Err(refused.into());
        }
        let layout = self.layout();
        let rescaled = rescale(&layout, from, to).ok_or(refused)?;
        let Some(buffer) = self.buffer.as_ref() else {
            return Ok(SharedArray::empty(rescaled.dim().clone()));
        };
        // A tail that makes no whole element is cut off: no element of the view is there.
        let whole = buffer.len() - buffer.len() % (to / gcd(from, to));
        let buffer = buffer.slice(..whole)?.reinterpret::<U>()?;
        if !rescaled.fits(buffer.len()) {
            return Err(refused.into());
        }
        // SAFETY: the layout fits the elements of the other type, which any bytes make.
        Ok(unsafe { SharedArray::from_layout(buffer, &rescaled) })
    }
}

/// Greatest common divisor of two positive numbers.
fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A layout of elements of `from` bytes as one of elements of `to` bytes, where that is possible.
fn rescale<D: Dimension>(layout: &Layout<D>, from: usize, to: usize) -> Option<Layout<D>> {
    let (mut dim, mut strides) = (layout.dim().clone(), layout.strides().clone());
    if from == to {
        return Some(layout.relabelled(dim, strides, layout.first()));
    }
    let last = dim.ndim().checked_sub(1)?;
    if dim[last] > 1 && strides[last] != 1 {
        return None;
    }
    let whole = |elements: isize| {
        let bytes = elements.checked_mul(from as isize)?;
        (bytes % to as isize == 0).then_some(bytes / to as isize)
    };
    for axis in 0..last {
        // The stride of an axis with one index is never used, and may be anything.
        strides[axis] = match dim[axis] {
            0 | 1 => 0,
            _ => whole(strides[axis] as isize)? as usize,
        };
    }
    dim[last] = whole(dim[last] as isize)? as usize;
    strides[last] = 1;
    if dim.size() == 0 {
        return Some(Layout::dense(dim, false));
    }
    let first = whole(layout.first() as isize)? as usize;
    Some(layout.relabelled(dim, strides, first))
}
