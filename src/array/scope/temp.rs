//! [`Temp`]: a handle of a scope's array.

#![allow(unsafe_code)]

use core::fmt;
use core::ops::{Add, BitAnd, BitOr, BitXor, Deref, Div, Mul, Neg, Not, Rem, Shl, Shr, Sub};
use core::ptr::NonNull;

use ndarray::{ArrayRef, ArrayView, DimMax, Dimension, IntoDimension, SliceArg};
use num_traits::Float;

use super::Scope;
use super::arena::Node;
use crate::array::elementwise::Elementwise;
use crate::array::error::{ArrayError, settle};
use crate::array::kernels::{binary, mapped, unary};
use crate::array::layout::size_of_dim;
use crate::array::memory::Memory;
use crate::array::operand::{Broadcast, Operand};
use crate::array::owned::{copy_of, reshaped_copy, shape_error};
use crate::array::{PoolArray, SharedArray};
use crate::element::Element;

/// An array of a [`Scope`]: `Copy`, read-only, alive as long as the scope's borrow.
///
/// It dereferences to [`ndarray::ArrayRef`] for reading. Operators and functions give handles of
/// the same scope; the left operand's where two scopes meet.
pub struct Temp<'s, T: Element, D: Dimension> {
    scope: &'s Scope,
    /// In the scope's arena, where it stays while the scope is borrowed. No reference, for that
    /// would have a dimension prove that it outlives `'s`.
    node: NonNull<Node<T, D>>,
}

impl<T: Element, D: Dimension> Clone for Temp<'_, T, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element, D: Dimension> Copy for Temp<'_, T, D> {}

impl<T: Element, D: Dimension> Deref for Temp<'_, T, D> {
    type Target = ArrayRef<T, D>;

    #[inline]
    fn deref(&self) -> &ArrayRef<T, D> {
        self.node().view()
    }
}

impl<T: Element + fmt::Debug, D: Dimension> fmt::Debug for Temp<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<'s, T: Element, D: Dimension> Temp<'s, T, D> {
    /// # Safety
    /// The node is of the scope's arena, or what it shows is lent for `'s` as well.
    pub(super) unsafe fn new(scope: &'s Scope, node: NonNull<Node<T, D>>) -> Self {
        Self { scope, node }
    }

    #[inline]
    fn node(&self) -> &Node<T, D> {
        // SAFETY: the scope is borrowed for `'s`, so the node is there.
        unsafe { self.node.as_ref() }
    }

    /// The elements, for as long as the scope is borrowed.
    #[must_use]
    pub fn view(self) -> ArrayView<'s, T, D> {
        let raw = self.node().view().raw_view();
        // SAFETY: the node keeps the elements for `'s`, and nobody writes them.
        unsafe { raw.deref_into_view() }
    }

    /// A view of the same elements as a handle of the same scope; no copy, no count.
    ///
    /// # Panics
    /// If memory for the handle is refused.
    #[track_caller]
    #[must_use]
    pub fn map_view<E: Dimension>(
        self,
        f: impl FnOnce(ArrayView<'s, T, D>) -> ArrayView<'s, T, E>,
    ) -> Temp<'s, T, E> {
        let view = f(self.view());
        let raw = view.raw_view();
        // SAFETY: the elements are borrowed for `'s`, and the handle lives no longer.
        let view = unsafe { raw.deref_into_view() };
        // SAFETY: as above; after `'s` the node is not looked at, only ended.
        settle(unsafe { self.scope.name(view, self.node().held_by_view()) })
    }

    /// A slice, as [`ndarray::ArrayRef::slice`]'s.
    ///
    /// # Panics
    /// If an index is out of bounds or a step is 0.
    #[track_caller]
    #[must_use]
    pub fn slice<I: SliceArg<D>>(self, info: I) -> Temp<'s, T, I::OutDim> {
        self.map_view(|view| view.slice_move(info))
    }

    /// The array with its axes in reverse order.
    #[must_use]
    pub fn t(self) -> Self {
        self.map_view(|view| view.reversed_axes())
    }

    /// The elements under another shape, in logical order; a copy where they do not lie dense.
    ///
    /// # Panics
    /// If the numbers of elements differ, or memory is refused.
    #[track_caller]
    #[must_use]
    pub fn reshape<E: IntoDimension>(self, shape: E) -> Temp<'s, T, E::Dim> {
        let dim = shape.into_dimension();
        if size_of_dim::<T, _>(&dim) != Ok(self.len()) {
            return settle(Err(shape_error(&dim, self.len())));
        }
        if !self.is_standard_layout() {
            return self.keep(reshaped_copy(&*self, self.memory(), dim));
        }
        self.map_view(|view| {
            let reshaped = view.into_shape_with_order(dim);
            reshaped.expect("as many elements, and they lie dense")
        })
    }

    /// `f` of every element, as an array of any type.
    ///
    /// # Panics
    /// If memory is refused.
    #[track_caller]
    #[must_use]
    pub fn map<V: Element>(self, f: impl Fn(T) -> V) -> Temp<'s, V, D> {
        self.keep(mapped(&*self, self.memory(), f))
    }

    /// `f` of every pair of elements, broadcast, as an array of any type.
    ///
    /// # Panics
    /// If the shapes do not broadcast together, or memory is refused.
    #[track_caller]
    #[must_use]
    pub fn zip_with<U, V, R>(
        self,
        right: R,
        f: impl Fn(T, U) -> V,
    ) -> Temp<'s, V, Broadcast<D, R::Dim>>
    where
        U: Element,
        V: Element,
        R: Operand<U>,
        D: DimMax<R::Dim>,
    {
        self.keep(Elementwise::try_zip_with(self, right, f))
    }

    pub(crate) fn memory(&self) -> Memory<'s> {
        Memory::of_pool(&self.scope.pool)
    }

    /// A result as a handle of this one's scope.
    #[track_caller]
    pub(crate) fn keep<V: Element, E: Dimension>(
        self,
        result: Result<PoolArray<V, E>, ArrayError>,
    ) -> Temp<'s, V, E> {
        settle(result.and_then(|array| self.scope.try_add(array)))
    }

    /// What is left of this handle outside: a share of its memory, or a copy of what is not the
    /// scope's.
    pub(super) fn returned(self, scope: &Scope) -> Result<SharedArray<T, D>, ArrayError> {
        // A view may as well be of something that is not the scope's.
        let own = self.node().share();
        let array = match own.map(|buffer| SharedArray::from_view(buffer, self.node().view())) {
            Some(Ok(array)) => array,
            _ => copy_of(&*self, Memory::of_pool(&scope.pool))?.share(),
        };
        array.mark_survivor();
        Ok(array)
    }
}

impl<T: Element, D: Dimension> Operand<T> for Temp<'_, T, D> {
    type Dim = D;

    fn operand_view(&self) -> ArrayView<'_, T, D> {
        self.node().view().view()
    }

    fn operand_memory(&self) -> Memory<'_> {
        self.memory()
    }
}

/// `temp op anything`, and `scalar op temp`.
macro_rules! binary_operators {
    ($($op:ident $method:ident)*; $scalars:tt) => {$(
        impl<'s, T, D, R> $op<R> for Temp<'s, T, D>
        where
            T: Element + $op<Output = T>,
            D: Dimension + DimMax<R::Dim>,
            R: Operand<T>,
        {
            type Output = Temp<'s, T, Broadcast<D, R::Dim>>;

            #[track_caller]
            fn $method(self, right: R) -> Self::Output {
                self.keep(binary(self, right, $op::$method))
            }
        }

        binary_operators!(@ $op $method $scalars);
    )*};
    (@ $op:ident $method:ident [$($scalar:ty)*]) => {$(
        impl<'s, D: Dimension> $op<Temp<'s, $scalar, D>> for $scalar {
            type Output = Temp<'s, $scalar, D>;

            #[track_caller]
            fn $method(self, right: Temp<'s, $scalar, D>) -> Self::Output {
                right.map(|element| $op::$method(self, element))
            }
        }
    )*};
}

binary_operators! {
    Add add Sub sub Mul mul Div div Rem rem;
    [f32 f64 i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize]
}
binary_operators! {
    BitAnd bitand BitOr bitor BitXor bitxor;
    [bool i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize]
}
binary_operators! {
    Shl shl Shr shr;
    [i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize]
}

impl<'s, T: Element + Neg<Output = T>, D: Dimension> Neg for Temp<'s, T, D> {
    type Output = Self;

    #[track_caller]
    fn neg(self) -> Self {
        self.map(T::neg)
    }
}

impl<'s, T: Element + Not<Output = T>, D: Dimension> Not for Temp<'s, T, D> {
    type Output = Self;

    #[track_caller]
    fn not(self) -> Self {
        self.map(T::not)
    }
}

/// Functions of one float, and comparisons.
macro_rules! functions {
    ($($name:ident, $doc:literal;)*) => {
        /// Functions of floats, element by element.
        impl<'s, T: Element + Float, D: Dimension> Temp<'s, T, D> {$(
            #[doc = $doc]
            ///
            /// # Panics
            /// If memory is refused.
            #[track_caller]
            #[must_use]
            pub fn $name(self) -> Self {
                self.keep(unary(self, T::$name))
            }
        )*}
    };
}

functions! {
    abs, "Absolute value of each element.";
    sqrt, "Square root of each element.";
    cbrt, "Cubic root of each element.";
    recip, "`1 / x` of each element.";
    exp, "`e^x` of each element.";
    exp2, "`2^x` of each element.";
    exp_m1, "`e^x - 1` of each element.";
    ln, "Natural logarithm of each element.";
    ln_1p, "`ln(1 + x)` of each element.";
    log2, "Logarithm to base 2 of each element.";
    log10, "Logarithm to base 10 of each element.";
    sin, "Sine of each element, in radians.";
    cos, "Cosine of each element, in radians.";
    tan, "Tangent of each element, in radians.";
    asin, "Arc sine of each element, in radians.";
    acos, "Arc cosine of each element, in radians.";
    atan, "Arc tangent of each element, in radians.";
    sinh, "Hyperbolic sine of each element.";
    cosh, "Hyperbolic cosine of each element.";
    tanh, "Hyperbolic tangent of each element.";
    floor, "Largest integer not above each element.";
    ceil, "Smallest integer not below each element.";
    round, "Nearest integer of each element, halves away from 0.";
    trunc, "Integer part of each element.";
    fract, "Fractional part of each element.";
    signum, "Sign of each element: 1, -1 or NaN.";
}

macro_rules! comparisons {
    ($($method:ident, $bound:ident, $sign:tt;)*) => {
        /// Comparisons, which give `bool` arrays.
        impl<'s, T: Element, D: Dimension> Temp<'s, T, D> {$(
            #[doc = concat!("`self ", stringify!($sign), " right` of every pair of elements.")]
            ///
            /// # Panics
            /// If the shapes do not broadcast together, or memory is refused.
            #[track_caller]
            #[must_use]
            pub fn $method<R>(self, right: R) -> Temp<'s, bool, Broadcast<D, R::Dim>>
            where
                T: $bound,
                R: Operand<T>,
                D: DimMax<R::Dim>,
            {
                self.zip_with(right, |x: T, y: T| x $sign y)
            }
        )*}
    };
}

comparisons! {
    equal, PartialEq, ==;
    not_equal, PartialEq, !=;
    less, PartialOrd, <;
    less_equal, PartialOrd, <=;
    greater, PartialOrd, >;
    greater_equal, PartialOrd, >=;
}
