//! The kernels behind operators and maps: one pass over the elements each. Dense operands of one shape
//! and scalars, the common case, go by a loop over slices, which needs no set-up; all others by
//! ndarray's.

#![allow(unsafe_code)]

use core::mem::MaybeUninit;

use ndarray::{ArrayRef, DimMax, Dimension, Zip};

use super::error::ArrayError;
use super::layout::is_column_major;
use super::memory::Memory;
use super::operand::{Broadcast, Operand, broadcast, broadcast_shape};
use super::owned::PoolArray;
use crate::element::Element;

/// A result: pooled, with the dimension that two operands broadcast to.
pub type Joined<T, D, E> = PoolArray<T, Broadcast<D, E>>;

/// Axis lengths as a slice.
fn lengths<D: Dimension>(shape: &D) -> &[usize] {
    let view = shape.as_array_view();
    view.to_slice().expect("a shape lies dense")
}

/// `f` of every pair of elements, in the memory of an operand given by value where it suits.
pub(crate) fn binary<T, L, R>(
    left: L,
    right: R,
    f: impl Fn(T, T) -> T,
) -> Result<Joined<T, L::Dim, R::Dim>, ArrayError>
where
    T: Element,
    L: Operand<T>,
    R: Operand<T>,
    L::Dim: DimMax<R::Dim>,
{
    let shape = broadcast_shape(
        &left.operand_view().raw_dim(),
        &right.operand_view().raw_dim(),
    )?;
    let left = match left.operand_reuse(lengths(&shape)) {
        Ok(mut array) => {
            update(array.elements_mut(), &right, f)?;
            return Ok(array.redimension());
        }
        Err(left) => left,
    };
    let right = match right.operand_reuse(lengths(&shape)) {
        Ok(mut array) => {
            update(array.elements_mut(), &left, |y, x| f(x, y))?;
            return Ok(array.redimension());
        }
        Err(right) => right,
    };
    zipped(shape, &left, &right, f)
}

/// `f` of every pair of elements, in fresh memory.
pub(crate) fn zipped<T, U, V, L, R, D>(
    shape: D,
    left: &L,
    right: &R,
    f: impl Fn(T, U) -> V,
) -> Result<PoolArray<V, D>, ArrayError>
where
    T: Element,
    U: Element,
    V: Element,
    L: Operand<T>,
    R: Operand<U>,
    D: Dimension,
{
    let memory = left.operand_memory().or(right.operand_memory());
    let (x, y) = (left.operand_view(), right.operand_view());
    if let Some((x, y)) = row(left, &x, &shape).zip(row(right, &y, &shape)) {
        let mut place = memory.take::<V>(shape.size())?;
        match (x, y) {
            (Row::All(x), Row::All(y)) => {
                for ((out, &x), &y) in place.iter_mut().zip(x).zip(y) {
                    out.write(f(x, y));
                }
            }
            (Row::All(x), Row::Each(y)) => {
                for (out, &x) in place.iter_mut().zip(x) {
                    out.write(f(x, y));
                }
            }
            (Row::Each(x), Row::All(y)) => {
                for (out, &y) in place.iter_mut().zip(y) {
                    out.write(f(x, y));
                }
            }
            (Row::Each(x), Row::Each(y)) => place.fill(MaybeUninit::new(f(x, y))),
        }
        // SAFETY: every element was written: a row is as long as the shape is large.
        let buffer = unsafe { place.assume_init() };
        // SAFETY: as many elements as the shape is large.
        return Ok(unsafe { PoolArray::dense(buffer, shape, false) });
    }
    let (x, y) = (broadcast(&x, &shape)?, broadcast(&y, &shape)?);
    let column_major = match (left.operand_scalar(), right.operand_scalar()) {
        (Some(_), _) => is_column_major(&y),
        (None, Some(_)) => is_column_major(&x),
        (None, None) => is_column_major(&x) && is_column_major(&y),
    };
    let mut out = PoolArray::<MaybeUninit<V>, D>::fresh(memory, shape.clone(), column_major)?;
    let place = out.elements_mut();
    match (left.operand_scalar(), right.operand_scalar()) {
        (None, Some(y)) => Zip::from(place).and(x).for_each(|out, &x| {
            out.write(f(x, y));
        }),
        (Some(x), None) => Zip::from(place).and(y).for_each(|out, &y| {
            out.write(f(x, y));
        }),
        _ => Zip::from(place).and(x).and(y).for_each(|out, &x, &y| {
            out.write(f(x, y));
        }),
    }
    // SAFETY: every element was written.
    Ok(unsafe { out.assume_init() })
}

/// `f` of every pair of elements, into a given array.
pub(crate) fn binary_into<T, U, V, L, R, D>(
    left: &L,
    right: &R,
    out: &mut ArrayRef<V, D>,
    f: impl Fn(T, U) -> V,
) -> Result<(), ArrayError>
where
    T: Element,
    U: Element,
    L: Operand<T>,
    R: Operand<U>,
    D: Dimension,
{
    let shape = out.raw_dim();
    let (x, y) = (left.operand_view(), right.operand_view());
    let (x, y) = (broadcast(&x, &shape)?, broadcast(&y, &shape)?);
    match (left.operand_scalar(), right.operand_scalar()) {
        (None, Some(y)) => Zip::from(out).and(x).for_each(|out, &x| *out = f(x, y)),
        (Some(x), None) => Zip::from(out).and(y).for_each(|out, &y| *out = f(x, y)),
        _ => Zip::from(out)
            .and(x)
            .and(y)
            .for_each(|out, &x, &y| *out = f(x, y)),
    }
    Ok(())
}

/// `f` of every element, in place on the left: `a += b` and its kin.
pub(crate) fn binary_assign<T, D, R>(
    left: &mut PoolArray<T, D>,
    right: &R,
    f: impl Fn(T, T) -> T,
) -> Result<(), ArrayError>
where
    T: Element,
    D: Dimension,
    R: Operand<T>,
{
    update(left.elements_mut(), right, f)
}

/// `f` of every element and its partner, in place.
fn update<T, D, R>(
    place: &mut ArrayRef<T, D>,
    right: &R,
    f: impl Fn(T, T) -> T,
) -> Result<(), ArrayError>
where
    T: Element,
    D: Dimension,
    R: Operand<T>,
{
    let view = right.operand_view();
    match row(right, &view, &place.raw_dim()) {
        Some(Row::Each(y)) => place.map_inplace(|x| *x = f(*x, y)),
        Some(Row::All(row)) if place.is_standard_layout() => {
            let place = place.as_slice_mut().expect("it lies dense");
            place.iter_mut().zip(row).for_each(|(x, &y)| *x = f(*x, y));
        }
        _ => {
            let view = broadcast(&view, &place.raw_dim())?;
            place.zip_mut_with(&view, |x, &y| *x = f(*x, y));
        }
    }
    Ok(())
}

/// The elements of an operand where they need no index.
enum Row<'a, T> {
    /// One for each element of the result, in its order.
    All(&'a [T]),
    /// The same for all.
    Each(T),
}

/// The operand's elements as a row, if it is a scalar, or has the shape of the result and lies dense.
#[inline]
fn row<'a, T, O, D>(operand: &O, view: &'a ArrayRef<T, O::Dim>, shape: &D) -> Option<Row<'a, T>>
where
    T: Element,
    O: Operand<T>,
    D: Dimension,
{
    if let Some(element) = operand.operand_scalar() {
        return Some(Row::Each(element));
    }
    if view.shape() != lengths(shape) {
        return None;
    }
    view.as_slice().map(Row::All)
}

/// `f` of every element, in the operand's own memory where it is given by value.
pub(crate) fn unary<T, O>(
    operand: O,
    f: impl Fn(T) -> T,
) -> Result<PoolArray<T, O::Dim>, ArrayError>
where
    T: Element,
    O: Operand<T>,
{
    let shape = operand.operand_view().raw_dim();
    match operand.operand_reuse(lengths(&shape)) {
        Ok(mut array) => {
            array.elements_mut().map_inplace(|x| *x = f(*x));
            Ok(array)
        }
        Err(operand) => mapped(&operand.operand_view(), operand.operand_memory(), f),
    }
}

/// `f` of every element, in fresh memory.
pub(crate) fn mapped<T, V, D>(
    view: &ArrayRef<T, D>,
    memory: Memory<'_>,
    f: impl Fn(T) -> V,
) -> Result<PoolArray<V, D>, ArrayError>
where
    T: Element,
    V: Element,
    D: Dimension,
{
    let column_major = is_column_major(view);
    let mut out = PoolArray::<MaybeUninit<V>, D>::fresh(memory, view.raw_dim(), column_major)?;
    let place = out.elements_mut();
    Zip::from(place).and(view).for_each(|out, &x| {
        out.write(f(x));
    });
    // SAFETY: every element was written.
    Ok(unsafe { out.assume_init() })
}
