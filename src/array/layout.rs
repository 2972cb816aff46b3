//! [`Layout`]: where in a buffer the elements of a view lie, without a pointer.
//!
//! A view may be a strict part of its buffer, start anywhere, and have strides of either sign or 0
//! (`slice_collapse` and `invert_axis` on an array make such views). So no pointer outlives a move of
//! its buffer: the layout is taken, the buffer moves, and the view is made anew from the base.

#![allow(unsafe_code)]

use ndarray::{
    ArrayRef, ArrayView, ArrayViewMut, Axis, Dimension, RawArrayView, RawArrayViewMut, Shape,
    ShapeBuilder, StrideShape,
};

use super::error::ArrayError;
use crate::error::{AllocError, AllocErrorKind};

/// Axis lengths, strides and the place of the first element, all in elements.
#[derive(Clone, Debug)]
pub(crate) struct Layout<D> {
    dim: D,
    strides: D,
    first: usize,
}

/// Smallest and largest offset from the first element; `None` if there is no element.
fn span<D: Dimension>(dim: &D, strides: &D) -> Option<(isize, isize)> {
    let (mut low, mut high) = (0isize, 0isize);
    for axis in 0..dim.ndim() {
        let last = (dim[axis] as isize).checked_sub(1).filter(|&n| n >= 0)?;
        let reach = last.checked_mul(strides[axis] as isize)?;
        if reach < 0 {
            low = low.checked_add(reach)?;
        } else {
            high = high.checked_add(reach)?;
        }
    }
    Some((low, high))
}

/// Elements of a shape, if neither they nor the product of its non-zero lengths overflow.
pub(crate) fn size_of_dim<T, D: Dimension>(dim: &D) -> Result<usize, AllocError> {
    let mut product = 1usize;
    for axis in 0..dim.ndim() {
        if dim[axis] != 0 {
            product = match product.checked_mul(dim[axis]) {
                Some(product) if product <= isize::MAX as usize => product,
                _ => return Err(overflow::<T>()),
            };
        }
    }
    if product.checked_mul(size_of::<T>().max(1)).is_none() {
        return Err(overflow::<T>());
    }
    Ok(dim.size())
}

#[cold]
pub(crate) fn overflow<T>() -> AllocError {
    AllocError::new(
        AllocErrorKind::Overflow,
        usize::MAX,
        align_of::<T>(),
        "array",
    )
}

/// Strides of a dense array, column-major if `column_major`.
fn dense_strides<D: Dimension>(dim: &D, column_major: bool) -> D {
    let mut strides = D::zeros(dim.ndim());
    let mut step = usize::from(dim.size() > 0);
    let mut set = |axis| {
        strides[axis] = step;
        step *= dim[axis];
    };
    if column_major {
        (0..dim.ndim()).for_each(&mut set);
    } else {
        (0..dim.ndim()).rev().for_each(&mut set);
    }
    strides
}

/// Whether a view is dense and column-major, and not row-major as well.
pub(crate) fn is_column_major<T, D: Dimension>(view: &ArrayRef<T, D>) -> bool {
    if view.is_standard_layout() {
        return false;
    }
    let mut step = 1;
    for (&len, &stride) in view.shape().iter().zip(view.strides()) {
        if len != 1 && stride != step {
            return false;
        }
        step *= len as isize;
    }
    true
}

impl<D: Dimension> Layout<D> {
    /// A dense layout from the base on.
    pub(crate) fn dense(dim: D, column_major: bool) -> Self {
        let strides = dense_strides(&dim, column_major);
        Self {
            dim,
            strides,
            first: 0,
        }
    }

    /// The layout that a constructor was asked for, with the number of elements.
    pub(crate) fn of_shape<T>(shape: Shape<D>) -> Result<(Self, usize), AllocError> {
        let dim = shape.raw_dim().clone();
        let len = size_of_dim::<T, D>(&dim)?;
        // SAFETY: nothing is read through this pointer; the shape was checked.
        let probe = unsafe { RawArrayView::<T, D>::from_shape_ptr(shape, dangling()) };
        let mut strides = D::zeros(dim.ndim());
        for (axis, &stride) in probe.strides().iter().enumerate() {
            strides[axis] = stride as usize;
        }
        let layout = Self {
            dim,
            strides,
            first: 0,
        };
        Ok((layout, len))
    }

    /// Where `view` lies in the `len` elements from `base` on; checked.
    pub(crate) fn of<T>(
        view: &ArrayRef<T, D>,
        base: *const T,
        len: usize,
    ) -> Result<Self, ArrayError> {
        if view.is_empty() {
            return Ok(Self::dense(view.raw_dim(), false));
        }
        let dim = view.raw_dim();
        let mut strides = D::zeros(dim.ndim());
        for (axis, &stride) in view.strides().iter().enumerate() {
            strides[axis] = stride as usize;
        }
        let outside = || ArrayError::Outside { elements: len };
        if size_of::<T>() == 0 {
            // Elements without size lie anywhere.
            return Ok(Self::dense(dim, false));
        }
        let bytes = view.as_ptr().addr().wrapping_sub(base.addr()) as isize;
        let size = size_of::<T>() as isize;
        if bytes % size != 0 {
            return Err(outside());
        }
        let first = bytes / size;
        let (low, high) = span(&dim, &strides).ok_or_else(outside)?;
        let inside = first.checked_add(low).is_some_and(|low| low >= 0)
            && first
                .checked_add(high)
                .is_some_and(|high| high >= 0 && (high as usize) < len);
        if !inside {
            return Err(outside());
        }
        Ok(Self {
            dim,
            strides,
            first: first as usize,
        })
    }

    /// Axis lengths.
    pub(crate) fn dim(&self) -> &D {
        &self.dim
    }

    /// Strides, each an `isize` in disguise.
    pub(crate) fn strides(&self) -> &D {
        &self.strides
    }

    /// Place of the first element.
    pub(crate) fn first(&self) -> usize {
        self.first
    }

    /// The same elements under other axes. Check the result with [`fits`](Self::fits).
    pub(crate) fn relabelled<E: Dimension>(&self, dim: E, strides: E, first: usize) -> Layout<E> {
        Layout {
            dim,
            strides,
            first,
        }
    }

    /// Whether every element lies within `len` elements.
    pub(crate) fn fits(&self, len: usize) -> bool {
        span(&self.dim, &self.strides).is_none_or(|(low, high)| {
            self.first as isize + low >= 0 && self.first as isize + high < len as isize
        })
    }

    /// Whether no two indices name the same element: then the view may be written.
    pub(crate) fn is_injective(&self) -> bool {
        if self.dim.size() == 0 {
            return true;
        }
        let mut axes: Vec<(usize, usize)> = (0..self.dim.ndim())
            .filter(|&axis| self.dim[axis] > 1)
            .map(|axis| {
                (
                    (self.strides[axis] as isize).unsigned_abs(),
                    self.dim[axis] - 1,
                )
            })
            .collect();
        axes.sort_unstable();
        let mut reach = 0;
        axes.iter().all(|&(stride, last)| {
            let apart = stride > reach;
            reach += stride * last;
            apart
        })
    }

    /// Whether the elements lie dense and row-major, from the base on.
    pub(crate) fn is_dense(&self) -> bool {
        self.first == 0 && self.strides == dense_strides(&self.dim, false)
    }

    /// The axes with strides made positive, and the place of the lowest element.
    fn rebased(&self) -> (D, isize) {
        let mut strides = self.strides.clone();
        let mut low = self.first as isize;
        for axis in 0..self.dim.ndim() {
            let stride = strides[axis] as isize;
            if stride < 0 {
                low += stride * (self.dim[axis] as isize - 1).max(0);
                strides[axis] = stride.unsigned_abs();
            }
        }
        (strides, low)
    }

    /// The axes with given strides; without elements, with none of their own.
    fn shape(&self, strides: D) -> StrideShape<D> {
        if self.dim.size() == 0 {
            self.dim.clone().into()
        } else {
            self.dim.clone().strides(strides)
        }
    }

    /// The axes that run backwards.
    fn backward(&self) -> impl Iterator<Item = Axis> + '_ {
        (0..self.dim.ndim())
            .filter(|&axis| (self.strides[axis] as isize) < 0)
            .map(Axis)
    }

    /// The view of this layout from `base` on.
    ///
    /// # Safety
    /// The layout [`fits`](Self::fits) the elements from `base` on, which are valid for reads, and
    /// not written, for `'a`.
    pub(crate) unsafe fn view<'a, T>(&self, base: *const T) -> ArrayView<'a, T, D> {
        let (strides, low) = self.rebased();
        let shape = self.shape(strides);
        // SAFETY: the caller's promise; the strides are not negative.
        let raw = unsafe { RawArrayView::from_shape_ptr(shape, base.wrapping_offset(low)) };
        // SAFETY: the caller's promise.
        let mut view = unsafe { raw.deref_into_view() };
        for axis in self.backward() {
            view.invert_axis(axis);
        }
        view
    }

    /// The writable view of this layout from `base` on.
    ///
    /// # Safety
    /// The layout [`fits`](Self::fits) the elements from `base` on and
    /// [`is_injective`](Self::is_injective); the elements are valid, and used through this view
    /// only, for `'a`.
    pub(crate) unsafe fn view_mut<'a, T>(&self, base: *mut T) -> ArrayViewMut<'a, T, D> {
        let (strides, low) = self.rebased();
        let shape = self.shape(strides);
        // SAFETY: the caller's promise; the strides are not negative.
        let raw = unsafe { RawArrayViewMut::from_shape_ptr(shape, base.wrapping_offset(low)) };
        // SAFETY: the caller's promise.
        let mut view = unsafe { raw.deref_into_view_mut() };
        for axis in self.backward() {
            view.invert_axis(axis);
        }
        view
    }
}

/// A well-aligned pointer to nothing.
fn dangling<T>() -> *const T {
    core::ptr::NonNull::dangling().as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array, Ix2, s};

    #[test]
    fn a_layout_rebuilds_views_of_either_direction() {
        let array = Array::from_shape_fn((4, 5), |(i, j)| i * 10 + j);
        let base = array.as_ptr();
        for view in [
            array.view(),
            array.slice(s![..;-1, 1..;2]),
            array.slice(s![1..3, ..;-2]),
            array.t(),
            array.slice(s![2..2, ..]),
            array.slice(s![..1;-1, ..1;-1]),
        ] {
            let layout = Layout::of(&view, base, 20).unwrap();
            // SAFETY: the array outlives the view, and the layout was checked.
            let again = unsafe { layout.view(base) };
            assert_eq!(view, again);
            assert!(layout.fits(20) && layout.is_injective());
        }
        assert!(Layout::<Ix2>::of(&array.view(), base, 19).is_err());
        assert!(Layout::<Ix2>::of(&array.view(), base.wrapping_add(1), 20).is_err());
    }

    #[test]
    fn overlapping_elements_are_found() {
        let array = Array::from_elem(3, 1u8);
        let wide = array.broadcast((2, 3)).unwrap();
        let layout = Layout::of(&wide, array.as_ptr(), 3).unwrap();
        assert!(layout.fits(3) && !layout.is_injective());
    }
}
