//! Reductions along an axis, in pooled memory. The order of the additions is ndarray's, so the
//! results are the same bit for bit.

#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use core::ops::{Add, Div, Mul};

use ndarray::{ArrayView, ArrayView1, Axis, Dimension, RemoveAxis, Zip};
use num_traits::{Float, FromPrimitive, One, Zero};

use super::elementwise::unary;
use super::error::{ArrayError, settle};
use super::operand::Operand;
use super::owned::PoolArray;
use super::scope::Temp;
use super::shared::SharedArray;
use crate::element::Element;

type Reduced<D> = <D as Dimension>::Smaller;

fn check_axis<T, D: Dimension>(view: &ArrayView<'_, T, D>, axis: Axis) -> Result<(), ArrayError> {
    if axis.index() < view.ndim() {
        return Ok(());
    }
    Err(ArrayError::Axis {
        axes: vec![axis.index()],
        ndim: view.ndim(),
    })
}

/// `f` of every lane of an operand along an axis.
fn lanes<T, V, O>(
    operand: &O,
    axis: Axis,
    f: impl Fn(ArrayView1<'_, T>) -> V,
) -> Result<PoolArray<V, Reduced<O::Dim>>, ArrayError>
where
    T: Element,
    V: Element,
    O: Operand<T>,
    O::Dim: RemoveAxis,
{
    let view = operand.operand_view();
    check_axis(&view, axis)?;
    let dim = view.raw_dim().remove_axis(axis);
    let mut out = PoolArray::<MaybeUninit<V>, _>::fresh(operand.operand_memory(), dim, false)?;
    Zip::from(out.elements_mut())
        .and(view.lanes(axis))
        .for_each(|out, lane| {
            out.write(f(lane));
        });
    // SAFETY: every element was written.
    Ok(unsafe { out.assume_init() })
}

/// The axis with the smallest stride; the last of several.
fn min_stride_axis<T, D: Dimension>(view: &ArrayView<'_, T, D>) -> Axis {
    let axes = (0..view.ndim()).rev();
    let nearest = axes.min_by_key(|&axis| view.strides()[axis].unsigned_abs());
    Axis(nearest.unwrap_or(0))
}

/// A fold of the sub-arrays along an axis, from `start` everywhere. ndarray goes lane by lane along
/// the axis with the smallest stride, and sub-array by sub-array along the others.
fn folded<T, O>(
    operand: &O,
    axis: Axis,
    start: T,
    f: impl Fn(T, T) -> T,
    of_lane: impl Fn(ArrayView1<'_, T>) -> T,
) -> Result<PoolArray<T, Reduced<O::Dim>>, ArrayError>
where
    T: Element,
    O: Operand<T>,
    O::Dim: RemoveAxis,
{
    let view = operand.operand_view();
    check_axis(&view, axis)?;
    if axis == min_stride_axis(&view) {
        return lanes(operand, axis, of_lane);
    }
    let dim = view.raw_dim().remove_axis(axis);
    let fresh = PoolArray::<MaybeUninit<T>, _>::fresh(operand.operand_memory(), dim, false)?;
    let mut out = fresh.init_full(start);
    for part in view.axis_iter(axis) {
        out.elements_mut()
            .zip_mut_with(&part, |out, &x| *out = f(*out, x));
    }
    Ok(out)
}

/// Reductions along an axis, for every operand.
pub trait Reduce<T: Element>: Operand<T>
where
    Self::Dim: RemoveAxis,
{
    /// Sums along `axis`.
    ///
    /// # Errors
    /// [`ArrayError::Axis`] or [`ArrayError::Alloc`].
    fn try_sum_axis(&self, axis: Axis) -> Result<PoolArray<T, Reduced<Self::Dim>>, ArrayError>
    where
        T: Zero + Add<Output = T>,
    {
        folded(self, axis, T::zero(), Add::add, |lane| lane.sum())
    }

    /// Products along `axis`.
    ///
    /// # Errors
    /// [`ArrayError::Axis`] or [`ArrayError::Alloc`].
    fn try_product_axis(&self, axis: Axis) -> Result<PoolArray<T, Reduced<Self::Dim>>, ArrayError>
    where
        T: One + Mul<Output = T>,
    {
        folded(self, axis, T::one(), Mul::mul, |lane| lane.product())
    }

    /// Means along `axis`; of no elements: what `0 / 0` is for `T`, a panic for integers.
    ///
    /// # Errors
    /// [`ArrayError::Axis`] or [`ArrayError::Alloc`].
    fn try_mean_axis(&self, axis: Axis) -> Result<PoolArray<T, Reduced<Self::Dim>>, ArrayError>
    where
        T: Zero + FromPrimitive + Add<Output = T> + Div<Output = T>,
    {
        let sum = self.try_sum_axis(axis)?;
        let len = self.operand_view().len_of(axis);
        let len = T::from_usize(len).expect("the element type holds the axis length");
        unary(sum, |sum| sum / len)
    }

    /// Variances along `axis`, with the divisor `n - ddof`.
    ///
    /// # Panics
    /// If `ddof` is negative or above the axis length.
    ///
    /// # Errors
    /// [`ArrayError::Axis`] or [`ArrayError::Alloc`].
    fn try_var_axis(
        &self,
        axis: Axis,
        ddof: T,
    ) -> Result<PoolArray<T, Reduced<Self::Dim>>, ArrayError>
    where
        T: Float + FromPrimitive,
    {
        lanes(self, axis, |lane| lane.var(ddof))
    }

    /// The smallest element along `axis` by `PartialOrd`; an element that compares with nothing is
    /// passed over, unless it comes first.
    ///
    /// # Errors
    /// [`ArrayError::Axis`], [`ArrayError::Alloc`]; [`ArrayError::Shape`] for an axis without
    /// elements.
    fn try_min_axis(&self, axis: Axis) -> Result<PoolArray<T, Reduced<Self::Dim>>, ArrayError>
    where
        T: PartialOrd,
    {
        extremes(self, axis, |best, x| x < best)
    }

    /// The largest element along `axis`; see [`try_min_axis`](Self::try_min_axis).
    ///
    /// # Errors
    /// As [`try_min_axis`](Self::try_min_axis).
    fn try_max_axis(&self, axis: Axis) -> Result<PoolArray<T, Reduced<Self::Dim>>, ArrayError>
    where
        T: PartialOrd,
    {
        extremes(self, axis, |best, x| x > best)
    }

    /// `f` of every lane along `axis`.
    ///
    /// # Errors
    /// [`ArrayError::Axis`] or [`ArrayError::Alloc`].
    fn try_map_axis<V: Element>(
        &self,
        axis: Axis,
        f: impl Fn(ArrayView1<'_, T>) -> V,
    ) -> Result<PoolArray<V, Reduced<Self::Dim>>, ArrayError> {
        lanes(self, axis, f)
    }
}

impl<T: Element, O: Operand<T>> Reduce<T> for O where O::Dim: RemoveAxis {}

fn extremes<T, O>(
    operand: &O,
    axis: Axis,
    better: impl Fn(T, T) -> bool,
) -> Result<PoolArray<T, Reduced<O::Dim>>, ArrayError>
where
    T: Element,
    O: Operand<T>,
    O::Dim: RemoveAxis,
{
    let view = operand.operand_view();
    check_axis(&view, axis)?;
    if view.len_of(axis) == 0 {
        return Err(super::owned::shape_error(&view.raw_dim(), 0));
    }
    lanes(operand, axis, |lane| {
        let choose = |best, &x| if better(best, x) { x } else { best };
        lane.iter().fold(lane[0], choose)
    })
}

/// The panicking forms, which come before ndarray's methods of the same name.
macro_rules! panicking {
    ($(
        fn $name:ident / $try_name:ident ($($arg:ident: $type:ty),*) where [$($bounds:tt)*] $doc:literal;
    )*) => {
        panicking!(@ [] PoolArray<T, D>: PoolArray<T, Reduced<D>>, |array, result| settle(result); $(
            $name $try_name ($($arg: $type),*) [$($bounds)*] $doc;
        )*);
        panicking!(@ [] SharedArray<T, D>: PoolArray<T, Reduced<D>>, |array, result| settle(result); $(
            $name $try_name ($($arg: $type),*) [$($bounds)*] $doc;
        )*);
        panicking!(@ ['s,] Temp<'s, T, D>: Temp<'s, T, Reduced<D>>, |array, result| array.keep(result); $(
            $name $try_name ($($arg: $type),*) [$($bounds)*] $doc;
        )*);
    };
    (@ [$($lifetime:tt)*] $array:ty: $reduced:ty, |$self:ident, $result:ident| $settle:expr; $(
        $name:ident $try_name:ident ($($arg:ident: $type:ty),*) [$($bounds:tt)*] $doc:literal;
    )*) => {
        /// Reductions along an axis.
        impl<$($lifetime)* T: Element, D: RemoveAxis> $array {$(
            #[doc = $doc]
            ///
            /// # Panics
            /// If there is no such axis, memory is refused, or as the `try_` form says.
            #[track_caller]
            #[must_use]
            pub fn $name(&self, $($arg: $type),*) -> $reduced
            where
                T: $($bounds)*
            {
                let ($self, $result) = (self, Reduce::$try_name(self, $($arg),*));
                let _ = $self;
                $settle
            }
        )*}
    };
}

panicking! {
    fn sum_axis / try_sum_axis (axis: Axis) where [Zero + Add<Output = T>] "Sums along `axis`.";
    fn product_axis / try_product_axis (axis: Axis) where [One + Mul<Output = T>] "Products along `axis`.";
    fn mean_axis / try_mean_axis (axis: Axis) where [Zero + FromPrimitive + Add<Output = T> + Div<Output = T>] "Means along `axis`.";
    fn var_axis / try_var_axis (axis: Axis, ddof: T) where [Float + FromPrimitive] "Variances along `axis`, with the divisor `n - ddof`.";
    fn min_axis / try_min_axis (axis: Axis) where [PartialOrd] "Smallest elements along `axis`.";
    fn max_axis / try_max_axis (axis: Axis) where [PartialOrd] "Largest elements along `axis`.";
}
