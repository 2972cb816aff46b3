//! Element by element: what every operand can do besides operators.

use core::ops;

use ndarray::{ArrayRef, DimMax, Dimension, Zip};
use num_traits::Float;

use super::error::{ArrayError, settle};
use super::kernels::{Joined, binary, binary_into, mapped, unary, zipped};
use super::operand::{Operand, broadcast, broadcast_shape};
use super::owned::PoolArray;
use crate::element::Element;

/// `try_` and `_into` forms of the binary operators.
macro_rules! fallible_operators {
    ($($op:ident, $method:ident, $try_method:ident, $into:ident, $sign:literal;)*) => {$(
        #[doc = concat!("`self ", $sign, " right`, with an error instead of a panic.")]
        ///
        /// # Errors
        /// [`ArrayError::Broadcast`] or [`ArrayError::Alloc`].
        fn $try_method<R>(self, right: R) -> Result<Joined<T, Self::Dim, R::Dim>, ArrayError>
        where
            T: ops::$op<Output = T>,
            R: Operand<T>,
            Self::Dim: DimMax<R::Dim>,
        {
            binary(self, right, ops::$op::$method)
        }

        #[doc = concat!("`out = self ", $sign, " right`, into an array that is there.")]
        ///
        /// # Errors
        /// [`ArrayError::Broadcast`] if an operand does not broadcast to the shape of `out`, which
        /// is unchanged then.
        fn $into<R, D>(self, right: R, out: &mut ArrayRef<T, D>) -> Result<(), ArrayError>
        where
            T: ops::$op<Output = T>,
            R: Operand<T>,
            D: Dimension,
        {
            binary_into(&self, &right, out, ops::$op::$method)
        }
    )*};
}

/// Comparisons, which give `bool` arrays.
macro_rules! comparisons {
    ($($method:ident, $try_method:ident, $into:ident, $bound:ident, $sign:tt;)*) => {$(
        #[doc = concat!("`self ", stringify!($sign), " right` of every pair of elements.")]
        ///
        /// # Panics
        /// If the shapes do not broadcast together, or memory is refused.
        #[track_caller]
        fn $method<R>(self, right: R) -> Joined<bool, Self::Dim, R::Dim>
        where
            T: $bound,
            R: Operand<T>,
            Self::Dim: DimMax<R::Dim>,
        {
            settle(self.$try_method(right))
        }

        #[doc = concat!("`self ", stringify!($sign), " right` of every pair of elements.")]
        ///
        /// # Errors
        /// [`ArrayError::Broadcast`] or [`ArrayError::Alloc`].
        fn $try_method<R>(self, right: R) -> Result<Joined<bool, Self::Dim, R::Dim>, ArrayError>
        where
            T: $bound,
            R: Operand<T>,
            Self::Dim: DimMax<R::Dim>,
        {
            self.try_zip_with(right, |x: T, y: T| x $sign y)
        }

        #[doc = concat!("`out = self ", stringify!($sign), " right`, into an array that is there.")]
        ///
        /// # Errors
        /// [`ArrayError::Broadcast`]; `out` is unchanged then.
        fn $into<R, D>(self, right: R, out: &mut ArrayRef<bool, D>) -> Result<(), ArrayError>
        where
            T: $bound,
            R: Operand<T>,
            D: Dimension,
        {
            binary_into(&self, &right, out, |x: T, y: T| x $sign y)
        }
    )*};
}

/// What every operand can do element by element, besides operators: `try_` and `_into` forms,
/// comparisons, maps. By value, an array lends its memory; `(&a).try_add(..)` keeps it.
pub trait Elementwise<T: Element>: Operand<T> {
    fallible_operators! {
        Add, add, try_add, add_into, "+";
        Sub, sub, try_sub, sub_into, "-";
        Mul, mul, try_mul, mul_into, "*";
        Div, div, try_div, div_into, "/";
        Rem, rem, try_rem, rem_into, "%";
        BitAnd, bitand, try_bitand, bitand_into, "&";
        BitOr, bitor, try_bitor, bitor_into, "|";
        BitXor, bitxor, try_bitxor, bitxor_into, "^";
        Shl, shl, try_shl, shl_into, "<<";
        Shr, shr, try_shr, shr_into, ">>";
    }

    comparisons! {
        equal, try_equal, equal_into, PartialEq, ==;
        not_equal, try_not_equal, not_equal_into, PartialEq, !=;
        less, try_less, less_into, PartialOrd, <;
        less_equal, try_less_equal, less_equal_into, PartialOrd, <=;
        greater, try_greater, greater_into, PartialOrd, >;
        greater_equal, try_greater_equal, greater_equal_into, PartialOrd, >=;
    }

    /// `-self`, with an error instead of a panic.
    ///
    /// # Errors
    /// [`ArrayError::Alloc`].
    fn try_neg(self) -> Result<PoolArray<T, Self::Dim>, ArrayError>
    where
        T: ops::Neg<Output = T>,
    {
        unary(self, ops::Neg::neg)
    }

    /// `!self`, with an error instead of a panic.
    ///
    /// # Errors
    /// [`ArrayError::Alloc`].
    fn try_not(self) -> Result<PoolArray<T, Self::Dim>, ArrayError>
    where
        T: ops::Not<Output = T>,
    {
        unary(self, ops::Not::not)
    }

    /// `f` of every element; of the same type, in the operand's own memory where it is given by
    /// value.
    ///
    /// # Errors
    /// [`ArrayError::Alloc`].
    fn try_apply(self, f: impl Fn(T) -> T) -> Result<PoolArray<T, Self::Dim>, ArrayError> {
        unary(self, f)
    }

    /// `f` of every element, into an array that is there.
    ///
    /// # Errors
    /// [`ArrayError::Broadcast`]; `out` is unchanged then.
    fn apply_into<V, D: Dimension>(
        self,
        out: &mut ArrayRef<V, D>,
        f: impl Fn(T) -> V,
    ) -> Result<(), ArrayError> {
        let view = self.operand_view();
        let view = broadcast(&view, &out.raw_dim())?;
        Zip::from(out).and(view).for_each(|out, &x| *out = f(x));
        Ok(())
    }

    /// `f` of every pair of elements, broadcast, as an array of any type.
    ///
    /// # Panics
    /// If the shapes do not broadcast together, or memory is refused.
    #[track_caller]
    fn zip_with<U, V, R>(self, right: R, f: impl Fn(T, U) -> V) -> Joined<V, Self::Dim, R::Dim>
    where
        U: Element,
        V: Element,
        R: Operand<U>,
        Self::Dim: DimMax<R::Dim>,
    {
        settle(self.try_zip_with(right, f))
    }

    /// `f` of every pair of elements, broadcast, as an array of any type.
    ///
    /// # Errors
    /// [`ArrayError::Broadcast`] or [`ArrayError::Alloc`].
    fn try_zip_with<U, V, R>(
        self,
        right: R,
        f: impl Fn(T, U) -> V,
    ) -> Result<Joined<V, Self::Dim, R::Dim>, ArrayError>
    where
        U: Element,
        V: Element,
        R: Operand<U>,
        Self::Dim: DimMax<R::Dim>,
    {
        let shape = broadcast_shape(
            &self.operand_view().raw_dim(),
            &right.operand_view().raw_dim(),
        )?;
        zipped(shape, &self, &right, f)
    }

    /// `f` of every pair of elements, into an array that is there.
    ///
    /// # Errors
    /// [`ArrayError::Broadcast`] if an operand does not broadcast to the shape of `out`, which is
    /// unchanged then.
    fn zip_into<U, V, R, D>(
        self,
        right: R,
        out: &mut ArrayRef<V, D>,
        f: impl Fn(T, U) -> V,
    ) -> Result<(), ArrayError>
    where
        U: Element,
        R: Operand<U>,
        D: Dimension,
    {
        binary_into(&self, &right, out, f)
    }
}

impl<T: Element, O: Operand<T>> Elementwise<T> for O {}

/// Functions of one float: as trait methods of every operand, and as methods of the owned array,
/// where they come before ndarray's, which give heap arrays.
macro_rules! functions {
    ($($name:ident, $try_name:ident, $into:ident, $doc:literal;)*) => {
        /// Functions of floats, element by element. By value, an array lends its memory;
        /// `(&a).sqrt()` keeps it.
        pub trait Functions<T: Element + Float>: Operand<T> {$(
            #[doc = $doc]
            ///
            /// # Panics
            /// If memory is refused.
            #[track_caller]
            fn $name(self) -> PoolArray<T, Self::Dim> {
                settle(self.$try_name())
            }

            #[doc = $doc]
            ///
            /// # Errors
            /// [`ArrayError::Alloc`].
            fn $try_name(self) -> Result<PoolArray<T, Self::Dim>, ArrayError> {
                unary(self, T::$name)
            }

            #[doc = $doc]
            ///
            /// # Errors
            /// [`ArrayError::Broadcast`]; `out` is unchanged then.
            fn $into<D: Dimension>(self, out: &mut ArrayRef<T, D>) -> Result<(), ArrayError> {
                self.apply_into(out, T::$name)
            }
        )*}

        impl<T: Element + Float, O: Operand<T>> Functions<T> for O {}

        /// Functions of floats, in the array's own memory.
        impl<T: Element + Float, D: Dimension> PoolArray<T, D> {$(
            #[doc = $doc]
            #[must_use]
            pub fn $name(mut self) -> Self {
                self.elements_mut().map_inplace(|x| *x = T::$name(*x));
                self
            }
        )*}
    };
}

functions! {
    abs, try_abs, abs_into, "Absolute value of each element.";
    sqrt, try_sqrt, sqrt_into, "Square root of each element.";
    cbrt, try_cbrt, cbrt_into, "Cubic root of each element.";
    recip, try_recip, recip_into, "`1 / x` of each element.";
    exp, try_exp, exp_into, "`e^x` of each element.";
    exp2, try_exp2, exp2_into, "`2^x` of each element.";
    exp_m1, try_exp_m1, exp_m1_into, "`e^x - 1` of each element.";
    ln, try_ln, ln_into, "Natural logarithm of each element.";
    ln_1p, try_ln_1p, ln_1p_into, "`ln(1 + x)` of each element.";
    log2, try_log2, log2_into, "Logarithm to base 2 of each element.";
    log10, try_log10, log10_into, "Logarithm to base 10 of each element.";
    sin, try_sin, sin_into, "Sine of each element, in radians.";
    cos, try_cos, cos_into, "Cosine of each element, in radians.";
    tan, try_tan, tan_into, "Tangent of each element, in radians.";
    asin, try_asin, asin_into, "Arc sine of each element, in radians.";
    acos, try_acos, acos_into, "Arc cosine of each element, in radians.";
    atan, try_atan, atan_into, "Arc tangent of each element, in radians.";
    sinh, try_sinh, sinh_into, "Hyperbolic sine of each element.";
    cosh, try_cosh, cosh_into, "Hyperbolic cosine of each element.";
    tanh, try_tanh, tanh_into, "Hyperbolic tangent of each element.";
    floor, try_floor, floor_into, "Largest integer not above each element.";
    ceil, try_ceil, ceil_into, "Smallest integer not below each element.";
    round, try_round, round_into, "Nearest integer of each element, halves away from 0.";
    trunc, try_trunc, trunc_into, "Integer part of each element.";
    fract, try_fract, fract_into, "Fractional part of each element.";
    signum, try_signum, signum_into, "Sign of each element: 1, -1 or NaN.";
}

/// Methods of the owned array that come before ndarray's of the same name, which give heap arrays.
impl<T: Element, D: Dimension> PoolArray<T, D> {
    /// `f` of every element, as a new array of any type.
    ///
    /// # Panics
    /// If memory is refused.
    #[track_caller]
    #[must_use]
    pub fn map<V: Element>(&self, f: impl Fn(T) -> V) -> PoolArray<V, D> {
        settle(self.try_map(f))
    }

    /// `f` of every element, as a new array of any type.
    ///
    /// # Errors
    /// [`ArrayError::Alloc`].
    pub fn try_map<V: Element>(&self, f: impl Fn(T) -> V) -> Result<PoolArray<V, D>, ArrayError> {
        mapped(self, self.memory(), f)
    }

    /// `f` of every element, in the array's own memory.
    #[must_use]
    pub fn apply(mut self, f: impl Fn(T) -> T) -> Self {
        self.elements_mut().map_inplace(|x| *x = f(*x));
        self
    }
}

impl<T: Element, D: Dimension> super::shared::SharedArray<T, D> {
    /// `f` of every element, as a new array of any type.
    ///
    /// # Panics
    /// If memory is refused.
    #[track_caller]
    #[must_use]
    pub fn map<V: Element>(&self, f: impl Fn(T) -> V) -> PoolArray<V, D> {
        settle(self.try_map(f))
    }

    /// `f` of every element, as a new array of any type.
    ///
    /// # Errors
    /// [`ArrayError::Alloc`].
    pub fn try_map<V: Element>(&self, f: impl Fn(T) -> V) -> Result<PoolArray<V, D>, ArrayError> {
        mapped(self, self.memory(), f)
    }
}
