//! [`Survive`]: what can be returned from a scope.

use ndarray::Dimension;

use super::{Scope, Temp};
use crate::array::error::ArrayError;
use crate::array::{Disposable, PoolArray, SharedArray};
use crate::element::Element;

/// A value that can leave a scope: a handle becomes a counted array, containers become containers
/// of survivors, and values that no scope holds pass through.
///
/// A type of your own that holds no handle passes through with an implementation whose `Survivor`
/// is `Self`.
pub trait Survive {
    /// What is left of it outside.
    type Survivor;

    /// Makes the survivor.
    ///
    /// # Errors
    /// [`ArrayError::Alloc`] of the copy of a lifted input.
    fn survive(self, scope: &Scope) -> Result<Self::Survivor, ArrayError>;
}

impl<T: Element, D: Dimension> Survive for Temp<'_, T, D> {
    type Survivor = SharedArray<T, D>;

    fn survive(self, scope: &Scope) -> Result<SharedArray<T, D>, ArrayError> {
        self.returned(scope)
    }
}

impl<V: Survive> Survive for Vec<V> {
    type Survivor = Vec<V::Survivor>;

    fn survive(self, scope: &Scope) -> Result<Self::Survivor, ArrayError> {
        self.into_iter().map(|value| value.survive(scope)).collect()
    }
}

impl<V: Survive> Survive for Option<V> {
    type Survivor = Option<V::Survivor>;

    fn survive(self, scope: &Scope) -> Result<Self::Survivor, ArrayError> {
        self.map(|value| value.survive(scope)).transpose()
    }
}

impl<V: Survive, E> Survive for Result<V, E> {
    type Survivor = Result<V::Survivor, E>;

    fn survive(self, scope: &Scope) -> Result<Self::Survivor, ArrayError> {
        self.map(|value| value.survive(scope))
            .map_or_else(|error| Ok(Err(error)), |survivor| survivor.map(Ok))
    }
}

macro_rules! tuples {
    ($(($($value:ident),+);)*) => {$(
        impl<$($value: Survive),+> Survive for ($($value,)+) {
            type Survivor = ($($value::Survivor,)+);

            fn survive(self, scope: &Scope) -> Result<Self::Survivor, ArrayError> {
                #[allow(non_snake_case)]
                let ($($value,)+) = self;
                Ok(($($value.survive(scope)?,)+))
            }
        }
    )*};
}

tuples! {
    (A);
    (A, B);
    (A, B, C);
    (A, B, C, D);
    (A, B, C, D, E);
    (A, B, C, D, E, F);
    (A, B, C, D, E, F, G);
    (A, B, C, D, E, F, G, H);
}

macro_rules! arrays {
    ($($array:ident),*) => {$(
        impl<T: Element, D: Dimension> Survive for $array<T, D> {
            type Survivor = Self;

            fn survive(self, _: &Scope) -> Result<Self, ArrayError> {
                self.mark_survivor();
                Ok(self)
            }
        }
    )*};
}

arrays!(PoolArray, SharedArray, Disposable);

macro_rules! pass_through {
    ($([$($generics:tt)*] $value:ty),* $(,)?) => {$(
        impl<$($generics)*> Survive for $value {
            type Survivor = Self;

            fn survive(self, _: &Scope) -> Result<Self, ArrayError> {
                Ok(self)
            }
        }
    )*};
}

pass_through! {
    [A, D: Dimension] ndarray::Array<A, D>,
    [] (), [] bool, [] char, [] String, [] &'static str,
    [] f32, [] f64,
    [] i8, [] i16, [] i32, [] i64, [] i128, [] isize,
    [] u8, [] u16, [] u32, [] u64, [] u128, [] usize,
}
