//! [`Operand`]: what stands on either side of an operator.

use ndarray::{ArrayRef, ArrayView, DimMax, Dimension, Ix0, aview0};

use super::error::ArrayError;
use super::memory::Memory;
use super::owned::PoolArray;
use super::shared::SharedArray;
use crate::element::Element;

/// Dimension of a result: the larger one of two operands'.
pub type Broadcast<D, E> = <D as DimMax<E>>::Output;

/// What an operator takes: arrays by value or reference, views, scalars, handles of a scope.
///
/// By value, a [`PoolArray`] lends its memory to the result where the shape allows. Implemented
/// here for all of them, and not meant to be implemented elsewhere.
pub trait Operand<T: Element>: Sized {
    /// Dimension of the operand; [`type@Ix0`] for a scalar.
    type Dim: Dimension;

    /// The elements.
    #[doc(hidden)]
    fn operand_view(&self) -> ArrayView<'_, T, Self::Dim>;

    /// The element, if the operand is a scalar.
    #[doc(hidden)]
    fn operand_scalar(&self) -> Option<T> {
        None
    }

    /// Where a result's memory comes from.
    #[doc(hidden)]
    fn operand_memory(&self) -> Memory<'_> {
        Memory::ambient()
    }

    /// The operand as the result's memory, if it is one of the result's shape; else itself.
    #[doc(hidden)]
    fn operand_reuse(self, shape: &[usize]) -> Result<PoolArray<T, Self::Dim>, Self> {
        let _ = shape;
        Err(self)
    }
}

impl<T: Element> Operand<T> for T {
    type Dim = Ix0;

    fn operand_view(&self) -> ArrayView<'_, T, Ix0> {
        aview0(self)
    }

    fn operand_scalar(&self) -> Option<T> {
        Some(*self)
    }
}

impl<T: Element, D: Dimension> Operand<T> for PoolArray<T, D> {
    type Dim = D;

    fn operand_view(&self) -> ArrayView<'_, T, D> {
        (**self).view()
    }

    fn operand_memory(&self) -> Memory<'_> {
        self.memory()
    }

    fn operand_reuse(self, shape: &[usize]) -> Result<Self, Self> {
        // An owned array has no broadcast axis: its indices name different elements.
        if self.shape() == shape {
            Ok(self)
        } else {
            Err(self)
        }
    }
}

/// Operands that are only looked at.
macro_rules! looked_at {
    ($([$($generics:tt)*] $operand:ty, |$self:ident| $view:expr $(, $memory:expr)?;)*) => {$(
        impl<$($generics)* T: Element, D: Dimension> Operand<T> for $operand {
            type Dim = D;

            fn operand_view(&self) -> ArrayView<'_, T, D> {
                let $self = self;
                $view
            }

            $(fn operand_memory(&self) -> Memory<'_> {
                let $self = self;
                $memory
            })?
        }
    )*};
}

looked_at! {
    ['a,] &'a PoolArray<T, D>, |it| (***it).view(), it.memory();
    [] SharedArray<T, D>, |it| (**it).view(), it.memory();
    ['a,] &'a SharedArray<T, D>, |it| (***it).view(), it.memory();
    ['a,] &'a ArrayRef<T, D>, |it| (**it).view();
    ['a,] &'a ndarray::Array<T, D>, |it| (***it).view();
    ['a,] ArrayView<'a, T, D>, |it| (**it).view();
    ['a, 'b,] &'a ArrayView<'b, T, D>, |it| (***it).view();
}

/// The shape that two shapes broadcast to.
pub(crate) fn broadcast_shape<D, E>(left: &D, right: &E) -> Result<Broadcast<D, E>, ArrayError>
where
    D: DimMax<E> + Dimension,
    E: Dimension,
{
    let ndim = left.ndim().max(right.ndim());
    let mut shape = Broadcast::<D, E>::zeros(ndim);
    for back in 1..=ndim {
        let of_left = left.ndim().checked_sub(back).map_or(1, |axis| left[axis]);
        let of_right = right.ndim().checked_sub(back).map_or(1, |axis| right[axis]);
        shape[ndim - back] = match (of_left, of_right) {
            (1, len) | (len, 1) => len,
            (a, b) if a == b => a,
            _ => return Err(mismatch(left, right)),
        };
    }
    Ok(shape)
}

#[cold]
fn mismatch<D: Dimension, E: Dimension>(left: &D, right: &E) -> ArrayError {
    ArrayError::Broadcast {
        left: left.as_array_view().to_vec(),
        right: right.as_array_view().to_vec(),
    }
}

/// A view broadcast to a shape.
pub(crate) fn broadcast<'a, T, D: Dimension, E: Dimension>(
    view: &'a ArrayRef<T, D>,
    shape: &E,
) -> Result<ArrayView<'a, T, E>, ArrayError> {
    view.broadcast(shape.clone())
        .ok_or_else(|| mismatch(shape, &view.raw_dim()))
}
