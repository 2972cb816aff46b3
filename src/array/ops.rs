//! The operators, one line each in a table; the kernels are in `elementwise`.

use core::ops::{
    Add, AddAssign, BitAnd, BitAndAssign, BitOr, BitOrAssign, BitXor, BitXorAssign, Div, DivAssign,
    Mul, MulAssign, Neg, Not, Rem, RemAssign, Shl, ShlAssign, Shr, ShrAssign, Sub, SubAssign,
};

use ndarray::{ArrayView, DimMax, Dimension};

use super::elementwise::{Joined, binary, binary_assign, unary};
use super::error::{ArrayError, settle};
use super::operand::Operand;
use super::owned::PoolArray;
use super::shared::SharedArray;
use crate::element::Element;

/// `left op right` for one kind of left operand and any right one.
macro_rules! array_on_the_left {
    ($op:ident, $method:ident: $([$($lifetime:lifetime)?] $left:ty),* $(,)?) => {$(
        impl<$($lifetime,)? T, D, R> $op<R> for $left
        where
            T: Element + $op<Output = T>,
            D: Dimension + DimMax<R::Dim>,
            R: Operand<T>,
        {
            type Output = Joined<T, D, R::Dim>;

            #[track_caller]
            fn $method(self, right: R) -> Self::Output {
                settle(binary(self, right, $op::$method))
            }
        }
    )*};
}

/// `view op array`: the view's type is ndarray's, so the right operands are listed.
macro_rules! view_on_the_left {
    ($op:ident, $method:ident: $([$($lifetime:lifetime)?] $right:ty),* $(,)?) => {$(
        impl<'v, $($lifetime,)? T, D, E> $op<$right> for ArrayView<'v, T, D>
        where
            T: Element + $op<Output = T>,
            D: Dimension + DimMax<E>,
            E: Dimension,
        {
            type Output = Joined<T, D, E>;

            #[track_caller]
            fn $method(self, right: $right) -> Self::Output {
                settle(binary(self, right, $op::$method))
            }
        }
    )*};
}

/// One binary operator with its assigning form.
macro_rules! binary_operators {
    ($($op:ident $method:ident $assign:ident $assign_method:ident $try_assign:ident $sign:literal;)*) => {$(
        array_on_the_left!($op, $method:
            [] PoolArray<T, D>,
            ['a] &'a PoolArray<T, D>,
            [] SharedArray<T, D>,
            ['a] &'a SharedArray<T, D>,
        );
        view_on_the_left!($op, $method:
            [] PoolArray<T, E>,
            ['a] &'a PoolArray<T, E>,
            [] SharedArray<T, E>,
            ['a] &'a SharedArray<T, E>,
        );

        impl<T, D, R> $assign<R> for PoolArray<T, D>
        where
            T: Element + $op<Output = T>,
            D: Dimension,
            R: Operand<T>,
        {
            #[track_caller]
            fn $assign_method(&mut self, right: R) {
                settle(binary_assign(self, &right, $op::$method));
            }
        }

        impl<T, D> PoolArray<T, D>
        where
            T: Element + $op<Output = T>,
            D: Dimension,
        {
            #[doc = concat!("`self ", $sign, " right`, with an error instead of a panic.")]
            ///
            /// # Errors
            /// [`ArrayError::Broadcast`] if `right` does not broadcast to this shape; nothing is
            /// changed then.
            pub fn $try_assign<R: Operand<T>>(&mut self, right: R) -> Result<(), ArrayError> {
                binary_assign(self, &right, $op::$method)
            }
        }
    )*};
}

binary_operators! {
    Add add AddAssign add_assign try_add_assign "+=";
    Sub sub SubAssign sub_assign try_sub_assign "-=";
    Mul mul MulAssign mul_assign try_mul_assign "*=";
    Div div DivAssign div_assign try_div_assign "/=";
    Rem rem RemAssign rem_assign try_rem_assign "%=";
    BitAnd bitand BitAndAssign bitand_assign try_bitand_assign "&=";
    BitOr bitor BitOrAssign bitor_assign try_bitor_assign "|=";
    BitXor bitxor BitXorAssign bitxor_assign try_bitxor_assign "^=";
    Shl shl ShlAssign shl_assign try_shl_assign "<<=";
    Shr shr ShrAssign shr_assign try_shr_assign ">>=";
}

/// `scalar op array`: the scalar's type is the language's, so the types are listed.
macro_rules! scalar_on_the_left {
    ($op:ident $method:ident: $($scalar:ty)*) => {$(
        scalar_on_the_left!(@ $op $method $scalar: [] PoolArray<$scalar, D>);
        scalar_on_the_left!(@ $op $method $scalar: ['a,] &'a PoolArray<$scalar, D>);
        scalar_on_the_left!(@ $op $method $scalar: [] SharedArray<$scalar, D>);
        scalar_on_the_left!(@ $op $method $scalar: ['a,] &'a SharedArray<$scalar, D>);
    )*};
    (@ $op:ident $method:ident $scalar:ty: [$($lifetime:tt)*] $right:ty) => {
        impl<$($lifetime)* D: Dimension> $op<$right> for $scalar {
            type Output = PoolArray<$scalar, D>;

            #[track_caller]
            fn $method(self, right: $right) -> Self::Output {
                // `Ix0` and `D` join to `D`, which the type system knows only the other way round.
                settle(binary(right, self, |array: $scalar, scalar| {
                    $op::$method(scalar, array)
                }))
            }
        }
    };
}

/// Scalars that have an operator.
macro_rules! scalars {
    ($($op:ident $method:ident)*; $scalars:tt) => {$(
        scalars!(@ $op $method $scalars);
    )*};
    (@ $op:ident $method:ident [$($scalar:ty)*]) => {
        scalar_on_the_left!($op $method: $($scalar)*);
    };
}

scalars! {
    Add add Sub sub Mul mul Div div Rem rem;
    [f32 f64 i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize]
}
scalars! {
    BitAnd bitand BitOr bitor BitXor bitxor;
    [bool i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize]
}
scalars! {
    Shl shl Shr shr;
    [i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize]
}

/// `-array` and `!array`.
macro_rules! unary_operators {
    ($($op:ident $method:ident: $([$($lifetime:lifetime)?] $operand:ty),*;)*) => {$($(
        impl<$($lifetime,)? T, D> $op for $operand
        where
            T: Element + $op<Output = T>,
            D: Dimension,
        {
            type Output = PoolArray<T, D>;

            #[track_caller]
            fn $method(self) -> PoolArray<T, D> {
                settle(unary(self, $op::$method))
            }
        }
    )*)*};
}

unary_operators! {
    Neg neg: [] PoolArray<T, D>, ['a] &'a PoolArray<T, D>, [] SharedArray<T, D>, ['a] &'a SharedArray<T, D>;
    Not not: [] PoolArray<T, D>, ['a] &'a PoolArray<T, D>, [] SharedArray<T, D>, ['a] &'a SharedArray<T, D>;
}
