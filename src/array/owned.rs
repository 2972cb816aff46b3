//! [`PoolArray`]: owned, unique, writable.

#![allow(unsafe_code)]

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use ndarray::{
    ArrayRef, ArrayView, ArrayViewMut, Axis, Dimension, IntoDimension, RemoveAxis, ShapeBuilder,
    SliceArg, Zip,
};

use super::error::{ArrayError, settle};
use super::layout::{Layout, is_column_major, size_of_dim};
use super::memory::{Memory, zeroed_in};
use super::shared::SharedArray;
use crate::allocator::BufferAllocator;
use crate::block;
use crate::buffer::Buffer;
use crate::element::Element;
use crate::error::AllocError;

mod init;

/// An n-dimensional array in a [`Buffer`]: owned, unique, writable.
///
/// It dereferences to [`ndarray::ArrayRef`], so ndarray's methods work on it: indexing, slicing,
/// iterators, [`Zip`], in-place maps. Methods of the same name here give pooled arrays where
/// ndarray's would give heap arrays. Operators work as ndarray's do, element for element, with
/// broadcasting; an operand given by value lends its memory to the result where the shape allows,
/// so an expression of owned arrays holds no more temporaries than it needs.
///
/// The memory goes back to its pool when the array is dropped, on any thread.
pub struct PoolArray<T: Element, D: Dimension> {
    /// Lies within `buffer`, and no two of its indices name the same element: every constructor
    /// sees to it, and what a `&mut ArrayRef` can do to it (cut, permute, invert) keeps it so. It
    /// leaves this struct with a lifetime of the struct's borrow only.
    view: ArrayViewMut<'static, T, D>,
    buffer: Buffer<T>,
}

// A panic can leave elements half-written, as in a `Vec`, but not the array. Without these, the
// view's `&mut` would hide it.
impl<T: Element, D: Dimension> UnwindSafe for PoolArray<T, D> {}
impl<T: Element, D: Dimension> RefUnwindSafe for PoolArray<T, D> {}

impl<T: Element, D: Dimension> PoolArray<T, D> {
    /// # Safety
    /// The layout fits the buffer and is injective.
    #[inline]
    pub(crate) unsafe fn from_layout(mut buffer: Buffer<T>, layout: &Layout<D>) -> Self {
        // SAFETY: the caller's promise. The view goes where the buffer goes, which keeps the
        // elements until both are dropped and lends them to nobody else.
        let view = unsafe { layout.view_mut(buffer.as_mut_ptr()) };
        Self { view, buffer }
    }

    /// A dense array of a whole buffer.
    ///
    /// # Safety
    /// The buffer has as many elements as the shape.
    #[inline]
    pub(crate) unsafe fn dense(mut buffer: Buffer<T>, dim: D, column_major: bool) -> Self {
        let shape = dim.set_f(column_major);
        // SAFETY: the caller's promise. The view goes where the buffer goes, as above.
        let view = unsafe { ArrayViewMut::from_shape_ptr(shape, buffer.as_mut_ptr()) };
        Self { view, buffer }
    }

    /// An array in a buffer of its own, which the layout names from end to end.
    pub(crate) fn from_dense(buffer: Buffer<T>, layout: &Layout<D>) -> Result<Self, ArrayError> {
        if layout.dim().size() != buffer.len() || !layout.fits(buffer.len()) {
            return Err(shape_error(layout.dim(), buffer.len()));
        }
        debug_assert!(layout.is_injective());
        // SAFETY: the layout fits; it is a shape's, so no two indices meet.
        Ok(unsafe { Self::from_layout(buffer, layout) })
    }

    /// Gives up the array for its buffer, and where its elements lie in it.
    pub(crate) fn into_layout(self) -> (Buffer<T>, Layout<D>) {
        let layout = self.layout();
        (self.buffer, layout)
    }

    /// Gives up the array for its buffer and a read-only view of it.
    ///
    /// # Safety
    /// The view is used while the buffer is kept where it is, and not written, only.
    pub(crate) unsafe fn into_view(self) -> (ArrayView<'static, T, D>, Buffer<T>) {
        let raw = self.view.raw_view();
        // SAFETY: the view was valid; the caller's promise.
        let view = unsafe { raw.deref_into_view() };
        (view, self.buffer)
    }

    /// Whether sharing the array moves nothing.
    pub(crate) fn is_at_base(&self) -> bool {
        self.buffer.is_at_base()
    }

    fn layout(&self) -> Layout<D> {
        let layout = Layout::of(&self.view, self.buffer.as_ptr(), self.buffer.len());
        layout.expect("the view of an array lies within its buffer")
    }

    /// A scope gives the array away.
    pub(crate) fn mark_survivor(&self) {
        // SAFETY: the array owns the block.
        unsafe { block::mark_survivor(self.buffer.block()) };
    }

    /// The pool of the array's memory.
    #[inline]
    pub(crate) fn memory(&self) -> Memory<'_> {
        // SAFETY: the array owns the block while it is borrowed.
        unsafe { Memory::beside(self.buffer.block()) }
    }

    /// The elements, writable, for the crate's own kernels.
    pub(crate) fn elements_mut(&mut self) -> &mut ArrayRef<T, D> {
        &mut self.view
    }

    /// An array in a given buffer, row-major, or column-major with [`ShapeBuilder::f`].
    ///
    /// # Errors
    /// [`ArrayError::Shape`] if the lengths differ; the buffer is dropped then.
    pub fn from_buffer<Sh>(shape: Sh, buffer: Buffer<T>) -> Result<Self, ArrayError>
    where
        Sh: ShapeBuilder<Dim = D>,
    {
        let (layout, len) = Layout::of_shape::<T>(shape.into_shape_with_order())?;
        if len != buffer.len() {
            return Err(ArrayError::Shape {
                shape: layout.dim().as_array_view().to_vec(),
                elements: buffer.len(),
            });
        }
        // SAFETY: a dense layout of as many elements as the buffer has.
        Ok(unsafe { Self::from_layout(buffer, &layout) })
    }

    /// An array of zeroes in memory of any allocator. Results of operators on it come from the
    /// ambient pool; to have them from the same allocator, make it a pool's source.
    ///
    /// # Errors
    /// [`ArrayError::Alloc`].
    pub fn zeros_in<Sh>(shape: Sh, allocator: Arc<dyn BufferAllocator>) -> Result<Self, ArrayError>
    where
        Sh: ShapeBuilder<Dim = D>,
    {
        let (layout, len) = Layout::of_shape::<T>(shape.into_shape_with_order())?;
        let buffer = zeroed_in(len, allocator)?;
        // SAFETY: a dense layout of as many elements as the buffer has.
        Ok(unsafe { Self::from_layout(buffer, &layout) })
    }

    /// The array with its number of dimensions in the type, or without it.
    ///
    /// # Errors
    /// The array itself, if it has another number of dimensions.
    pub fn into_dimensionality<E: Dimension>(self) -> Result<PoolArray<T, E>, Self> {
        let Self { view, buffer } = self;
        if E::NDIM.is_some_and(|ndim| ndim != view.ndim()) {
            return Err(Self { view, buffer });
        }
        let view = view.into_dimensionality();
        let view = view.expect("the number of dimensions is the same");
        Ok(PoolArray { view, buffer })
    }

    /// [`into_dimensionality`](Self::into_dimensionality) where the number is known to fit.
    pub(crate) fn redimension<E: Dimension>(self) -> PoolArray<T, E> {
        let fitted = self.into_dimensionality();
        fitted.unwrap_or_else(|_| unreachable!("the number of dimensions fits"))
    }

    /// Shares the array: counted and read-only from here on. One atomic store, no copy.
    #[must_use]
    pub fn share(self) -> SharedArray<T, D> {
        SharedArray::from_owned(self)
    }

    /// A dense copy in a buffer of its own, from the same pool; column-major if the array is.
    ///
    /// # Errors
    /// [`ArrayError::Alloc`].
    pub fn try_clone(&self) -> Result<Self, ArrayError> {
        copy_of(&self.view, self.memory())
    }

    /// The elements under another shape, in logical order. No copy where they lie dense and
    /// row-major; else into a new buffer.
    ///
    /// # Errors
    /// [`ArrayError::Shape`] if the numbers of elements differ, [`ArrayError::Alloc`]; the array is
    /// dropped then.
    pub fn into_shape<E: IntoDimension>(
        self,
        shape: E,
    ) -> Result<PoolArray<T, E::Dim>, ArrayError> {
        let dim = shape.into_dimension();
        if size_of_dim::<T, _>(&dim)? != self.view.len() {
            return Err(shape_error(&dim, self.view.len()));
        }
        if !self.view.is_standard_layout() {
            return reshaped_copy(&self.view, self.memory(), dim);
        }
        let (buffer, layout) = self.into_layout();
        let fresh = Layout::dense(dim, false);
        let (dim, strides) = (fresh.dim().clone(), fresh.strides().clone());
        let fresh = layout.relabelled(dim, strides, layout.first());
        // SAFETY: as many dense elements from the same place on.
        Ok(unsafe { PoolArray::from_layout(buffer, &fresh) })
    }

    /// Changes the shape, keeping elements in logical order from the front; new ones are zero. In
    /// place while the memory is large enough, else in a new buffer.
    ///
    /// # Errors
    /// [`ArrayError::Alloc`]; the array is unchanged then.
    pub fn resize<Sh: IntoDimension<Dim = D>>(&mut self, shape: Sh) -> Result<(), ArrayError> {
        let dim = shape.into_dimension();
        let len = size_of_dim::<T, D>(&dim)?;
        let kept = self.view.len().min(len);
        if self.layout().is_dense() && self.grow_in_place(kept, len).is_ok() {
            self.view = PoolArray::view_over(&mut self.buffer, dim);
            return Ok(());
        }
        let mut buffer = self.memory().take_zeroed::<T>(len)?;
        for (place, &element) in buffer.iter_mut().zip(&self.view) {
            *place = element;
        }
        self.view = PoolArray::view_over(&mut buffer, dim);
        self.buffer = buffer;
        Ok(())
    }

    fn grow_in_place(&mut self, kept: usize, len: usize) -> Result<(), AllocError> {
        // Beyond the view may lie elements that were cut off earlier: they must read as zero.
        if kept < self.buffer.len() {
            self.buffer.truncate(kept);
        }
        // Fails only where it grows, and then the view still names elements that are there.
        self.buffer.resize(len, T::zeroed())
    }

    fn view_over(buffer: &mut Buffer<T>, dim: D) -> ArrayViewMut<'static, T, D> {
        debug_assert_eq!(dim.size(), buffer.len());
        // SAFETY: a dense layout of as many elements as the buffer has; the view is stored beside
        // the buffer.
        unsafe { Layout::dense(dim, false).view_mut(buffer.as_mut_ptr()) }
    }

    /// Cuts the array down to a slice of itself, without a copy; the rest of the memory stays with
    /// it.
    ///
    /// # Panics
    /// As [`ndarray::ArrayBase::slice_move`].
    #[track_caller]
    #[must_use]
    pub fn slice_move<I: SliceArg<D>>(self, info: I) -> PoolArray<T, I::OutDim> {
        PoolArray {
            view: self.view.slice_move(info),
            buffer: self.buffer,
        }
    }

    /// The array with its axes in reverse order, without a copy.
    #[must_use]
    pub fn reversed_axes(self) -> Self {
        Self {
            view: self.view.reversed_axes(),
            buffer: self.buffer,
        }
    }

    /// The array with an axis of length 1 put in, without a copy.
    ///
    /// # Panics
    /// If `axis` is above the number of dimensions.
    #[track_caller]
    #[must_use]
    pub fn insert_axis(self, axis: Axis) -> PoolArray<T, D::Larger> {
        PoolArray {
            view: self.view.insert_axis(axis),
            buffer: self.buffer,
        }
    }

    /// The array at `index` of `axis`, without a copy; the rest of the memory stays with it.
    ///
    /// # Panics
    /// If `axis` or `index` is out of bounds.
    #[track_caller]
    #[must_use]
    pub fn index_axis_move(self, axis: Axis, index: usize) -> PoolArray<T, D::Smaller>
    where
        D: RemoveAxis,
    {
        PoolArray {
            view: self.view.index_axis_move(axis, index),
            buffer: self.buffer,
        }
    }

    /// Drops the array; the same as letting it go out of scope.
    pub fn dispose(self) {}
}

/// The error of a shape for another number of elements.
pub(crate) fn shape_error<D: Dimension>(dim: &D, elements: usize) -> ArrayError {
    ArrayError::Shape {
        shape: dim.as_array_view().to_vec(),
        elements,
    }
}

/// A dense copy of a view; column-major if the view is.
pub(crate) fn copy_of<T: Element, D: Dimension>(
    view: &ArrayRef<T, D>,
    memory: Memory<'_>,
) -> Result<PoolArray<T, D>, ArrayError> {
    copy_in_order(view, memory, is_column_major(view))
}

/// The elements of a view in another shape of as many elements, in logical order, copied.
pub(crate) fn reshaped_copy<T: Element, D: Dimension, E: Dimension>(
    view: &ArrayRef<T, D>,
    memory: Memory<'_>,
    dim: E,
) -> Result<PoolArray<T, E>, ArrayError> {
    copy_in_order(view, memory, false)?.into_shape(dim)
}

fn copy_in_order<T: Element, D: Dimension>(
    view: &ArrayRef<T, D>,
    memory: Memory<'_>,
    column_major: bool,
) -> Result<PoolArray<T, D>, ArrayError> {
    let mut copy = PoolArray::fresh(memory, view.raw_dim(), column_major)?;
    Zip::from(&mut copy.view)
        .and(view)
        .for_each(|place, &element| {
            place.write(element);
        });
    // SAFETY: every element was written.
    Ok(unsafe { copy.assume_init() })
}

impl<T: Element, D: Dimension> Deref for PoolArray<T, D> {
    type Target = ArrayRef<T, D>;

    #[inline]
    fn deref(&self) -> &ArrayRef<T, D> {
        &self.view
    }
}

impl<T: Element, D: Dimension> DerefMut for PoolArray<T, D> {
    #[inline]
    fn deref_mut(&mut self) -> &mut ArrayRef<T, D> {
        &mut self.view
    }
}

impl<T: Element, D: Dimension> Clone for PoolArray<T, D> {
    /// See [`PoolArray::try_clone`].
    ///
    /// # Panics
    /// If memory is refused.
    #[track_caller]
    fn clone(&self) -> Self {
        settle(self.try_clone())
    }
}

impl<'a, T: Element, D: Dimension> IntoIterator for &'a PoolArray<T, D> {
    type Item = &'a T;
    type IntoIter = ndarray::iter::Iter<'a, T, D>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T: Element, D: Dimension> IntoIterator for &'a mut PoolArray<T, D> {
    type Item = &'a mut T;
    type IntoIter = ndarray::iter::IterMut<'a, T, D>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<T: Element + PartialEq, D: Dimension, E: Dimension> PartialEq<PoolArray<T, E>>
    for PoolArray<T, D>
where
    ArrayRef<T, D>: PartialEq<ArrayRef<T, E>>,
{
    fn eq(&self, other: &PoolArray<T, E>) -> bool {
        **self == **other
    }
}

impl<T: Element + PartialEq, D: Dimension> PartialEq<ArrayRef<T, D>> for PoolArray<T, D> {
    fn eq(&self, other: &ArrayRef<T, D>) -> bool {
        **self == *other
    }
}

impl<'a, T: Element + PartialEq, D: Dimension> PartialEq<ArrayView<'a, T, D>> for PoolArray<T, D> {
    fn eq(&self, other: &ArrayView<'a, T, D>) -> bool {
        **self == **other
    }
}

impl<T: Element + PartialEq, D: Dimension> PartialEq<ndarray::Array<T, D>> for PoolArray<T, D> {
    fn eq(&self, other: &ndarray::Array<T, D>) -> bool {
        **self == **other
    }
}

impl<T: Element + fmt::Debug, D: Dimension> fmt::Debug for PoolArray<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.view, f)
    }
}

impl<T: Element + fmt::Display, D: Dimension> fmt::Display for PoolArray<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.view, f)
    }
}

static_assertions::assert_impl_all!(PoolArray<f64, ndarray::IxDyn>: Send, Sync, UnwindSafe, RefUnwindSafe, Clone);
