//! Several arrays into one: along an axis that is there, or along a new one.

#![allow(unsafe_code)]

use core::mem::MaybeUninit;

use ndarray::{ArrayView, Axis, Dimension, RemoveAxis, Slice};

use super::error::{ArrayError, settle};
use super::memory::Memory;
use super::operand::Operand;
use super::owned::PoolArray;
use crate::element::Element;

/// The arrays one after the other along `axis`, in the pool of the first.
///
/// # Panics
/// As the errors of [`try_concatenate`].
#[track_caller]
#[must_use]
pub fn concatenate<T, O>(axis: Axis, arrays: &[O]) -> PoolArray<T, O::Dim>
where
    T: Element,
    O: Operand<T>,
    O::Dim: RemoveAxis,
{
    settle(try_concatenate(axis, arrays))
}

/// The arrays one after the other along `axis`, in the pool of the first.
///
/// # Errors
/// [`ArrayError::NothingToJoin`]; [`ArrayError::Axis`]; [`ArrayError::Broadcast`] if two arrays
/// differ in another axis; [`ArrayError::Alloc`].
pub fn try_concatenate<T, O>(axis: Axis, arrays: &[O]) -> Result<PoolArray<T, O::Dim>, ArrayError>
where
    T: Element,
    O: Operand<T>,
    O::Dim: RemoveAxis,
{
    let views: Vec<_> = arrays.iter().map(Operand::operand_view).collect();
    let first = views.first().ok_or(ArrayError::NothingToJoin)?;
    if axis.index() >= first.ndim() {
        return Err(no_axis(axis, first.ndim()));
    }
    let mut dim = first.raw_dim();
    dim[axis.index()] = 0;
    for view in &views {
        let mut like = view.raw_dim();
        if like.ndim() == dim.ndim() {
            like[axis.index()] = dim[axis.index()];
        }
        if like != dim {
            return Err(mismatch(first, view));
        }
        let len = dim[axis.index()].checked_add(view.len_of(axis));
        dim[axis.index()] = len.ok_or_else(super::layout::overflow::<T>)?;
    }
    joined(arrays[0].operand_memory(), dim, axis, &views)
}

/// The arrays side by side along a new `axis`, in the pool of the first.
///
/// # Panics
/// As the errors of [`try_stack`].
#[track_caller]
#[must_use]
pub fn stack<T, O>(axis: Axis, arrays: &[O]) -> PoolArray<T, <O::Dim as Dimension>::Larger>
where
    T: Element,
    O: Operand<T>,
    <O::Dim as Dimension>::Larger: RemoveAxis,
{
    settle(try_stack(axis, arrays))
}

/// The arrays side by side along a new `axis`, in the pool of the first.
///
/// # Errors
/// [`ArrayError::NothingToJoin`]; [`ArrayError::Axis`] if `axis` is above the number of dimensions;
/// [`ArrayError::Broadcast`] if two shapes differ; [`ArrayError::Alloc`].
pub fn try_stack<T, O>(
    axis: Axis,
    arrays: &[O],
) -> Result<PoolArray<T, <O::Dim as Dimension>::Larger>, ArrayError>
where
    T: Element,
    O: Operand<T>,
    <O::Dim as Dimension>::Larger: RemoveAxis,
{
    let views: Vec<_> = arrays.iter().map(Operand::operand_view).collect();
    let first = views.first().ok_or(ArrayError::NothingToJoin)?;
    if axis.index() > first.ndim() {
        return Err(no_axis(axis, first.ndim()));
    }
    if let Some(view) = views.iter().find(|view| view.shape() != first.shape()) {
        return Err(mismatch(first, view));
    }
    let mut dim = first.raw_dim().insert_axis(axis);
    dim[axis.index()] = views.len();
    let views: Vec<_> = views
        .into_iter()
        .map(|view| view.insert_axis(axis))
        .collect();
    joined(arrays[0].operand_memory(), dim, axis, &views)
}

/// An array of shape `dim`, filled with the views along `axis`.
fn joined<T: Element, D: RemoveAxis>(
    memory: Memory<'_>,
    dim: D,
    axis: Axis,
    views: &[ArrayView<'_, T, D>],
) -> Result<PoolArray<T, D>, ArrayError> {
    let mut out = PoolArray::<MaybeUninit<T>, D>::fresh(memory, dim, false)?;
    let mut start = 0;
    for view in views {
        let end = start + view.len_of(axis);
        let place = out
            .elements_mut()
            .slice_axis_mut(axis, Slice::from(start..end));
        ndarray::Zip::from(place).and(view).for_each(|place, &x| {
            place.write(x);
        });
        start = end;
    }
    // SAFETY: the views fill the axis, so every element was written.
    Ok(unsafe { out.assume_init() })
}

fn no_axis(axis: Axis, ndim: usize) -> ArrayError {
    ArrayError::Axis {
        axes: vec![axis.index()],
        ndim,
    }
}

fn mismatch<T, D: Dimension>(
    left: &ArrayView<'_, T, D>,
    right: &ArrayView<'_, T, D>,
) -> ArrayError {
    ArrayError::Broadcast {
        left: left.shape().to_vec(),
        right: right.shape().to_vec(),
    }
}
