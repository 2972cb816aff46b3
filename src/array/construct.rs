//! Constructors: of a given pool, and of the ambient one.

use core::mem::MaybeUninit;

use ndarray::{ArrayRef, Dimension, Ix1, ShapeBuilder};
use num_traits::{Float, NumCast, One};

use super::error::{ArrayError, settle};
use super::layout::Layout;
use super::memory::Memory;
use super::owned::{PoolArray, copy_of};
use super::scope::{Scope, Temp};
use crate::element::Element;
use crate::pool::Pool;

/// Each constructor in four forms: of the pool it is called on or of the ambient pool, panicking
/// or fallible. The body is written once.
macro_rules! constructors {
    ($(
        $(#[$doc:meta])*
        fn $name:ident / $try_name:ident [$($generics:tt)*] ($($arg:ident: $type:ty),*)
            -> [$element:ty, $dim:ty]
        where [$($bounds:tt)*] $body:expr;
    )*) => {
        /// Constructors of arrays in this pool; row-major, or column-major with
        /// [`ShapeBuilder::f`].
        impl Pool {$(
            $(#[$doc])*
            ///
            /// # Panics
            /// If memory is refused or an argument does not fit, with the error's text.
            #[track_caller]
            #[must_use]
            pub fn $name<$($generics)*>(&self $(, $arg: $type)*) -> PoolArray<$element, $dim>
            where $($bounds)*
            {
                settle(self.$try_name($($arg),*))
            }

            $(#[$doc])*
            ///
            /// # Errors
            /// [`ArrayError::Alloc`], or [`ArrayError::Shape`] if an argument does not fit.
            pub fn $try_name<$($generics)*>(
                &self $(, $arg: $type)*
            ) -> Result<PoolArray<$element, $dim>, ArrayError>
            where $($bounds)*
            {
                let body = $body;
                body(Memory::of_pool(self) $(, $arg)*)
            }
        )*}

        constructors!(@scope $(
            $(#[$doc])*
            fn $name / $try_name [$($generics)*] ($($arg: $type),*) -> [$element, $dim]
            where [$($bounds)*];
        )*);

        $(
            $(#[$doc])*
            /// In the ambient pool of the thread; see [`Pool::enter`].
            ///
            /// # Panics
            /// If memory is refused or an argument does not fit, with the error's text.
            #[track_caller]
            #[must_use]
            pub fn $name<$($generics)*>($($arg: $type),*) -> PoolArray<$element, $dim>
            where $($bounds)*
            {
                settle($try_name($($arg),*))
            }

            $(#[$doc])*
            /// In the ambient pool of the thread; see [`Pool::enter`].
            ///
            /// # Errors
            /// [`ArrayError::Alloc`], or [`ArrayError::Shape`] if an argument does not fit.
            pub fn $try_name<$($generics)*>(
                $($arg: $type),*
            ) -> Result<PoolArray<$element, $dim>, ArrayError>
            where $($bounds)*
            {
                let body = $body;
                body(Memory::ambient() $(, $arg)*)
            }
        )*
    };
    // A handle cannot be written, so the first constructor, of unspecified contents, has no place
    // in a scope.
    (@scope
        $(#[$_doc:meta])*
        fn uninit / try_uninit $_generics:tt $_args:tt -> $_result:tt where $_bounds:tt;
        $(
            $(#[$doc:meta])*
            fn $name:ident / $try_name:ident [$($generics:tt)*] ($($arg:ident: $type:ty),*)
                -> [$element:ty, $dim:ty]
            where [$($bounds:tt)*];
        )*
    ) => {
        /// Constructors of arrays in this scope; row-major, or column-major with
        /// [`ShapeBuilder::f`].
        impl Scope {$(
            $(#[$doc])*
            ///
            /// # Panics
            /// If memory is refused or an argument does not fit, with the error's text.
            #[track_caller]
            pub fn $name<$($generics)*>(&self $(, $arg: $type)*) -> Temp<'_, $element, $dim>
            where $($bounds)*
            {
                settle(self.$try_name($($arg),*))
            }

            $(#[$doc])*
            ///
            /// # Errors
            /// [`ArrayError::Alloc`], or [`ArrayError::Shape`] if an argument does not fit.
            pub fn $try_name<$($generics)*>(
                &self $(, $arg: $type)*
            ) -> Result<Temp<'_, $element, $dim>, ArrayError>
            where $($bounds)*
            {
                self.try_add(self.pool().$try_name($($arg),*)?)
            }
        )*}
    };
}

constructors! {
    /// An array with unspecified contents; see its safe initialisers.
    fn uninit / try_uninit [T, Sh] (shape: Sh) -> [MaybeUninit<T>, Sh::Dim]
    where [T: Element, Sh: ShapeBuilder] make::uninit::<T, Sh>;

    /// An array of zeroes.
    fn zeros / try_zeros [T, Sh] (shape: Sh) -> [T, Sh::Dim]
    where [T: Element, Sh: ShapeBuilder] make::zeros::<T, Sh>;

    /// An array of ones.
    fn ones / try_ones [T, Sh] (shape: Sh) -> [T, Sh::Dim]
    where [T: Element + One, Sh: ShapeBuilder]
    |memory, shape| make::full(memory, shape, T::one());

    /// An array with the same element everywhere.
    fn full / try_full [T, Sh] (shape: Sh, value: T) -> [T, Sh::Dim]
    where [T: Element, Sh: ShapeBuilder] make::full::<T, Sh>;

    /// An array whose elements are `f` of their indices.
    fn from_shape_fn / try_from_shape_fn [T, Sh, F] (shape: Sh, f: F) -> [T, Sh::Dim]
    where [T: Element, Sh: ShapeBuilder, F: FnMut(<Sh::Dim as Dimension>::Pattern) -> T]
    make::from_shape_fn::<T, Sh, F>;

    /// An array with the elements of a vector, in memory order.
    fn from_vec / try_from_vec [T, Sh] (shape: Sh, elements: Vec<T>) -> [T, Sh::Dim]
    where [T: Element, Sh: ShapeBuilder]
    |memory, shape, elements: Vec<T>| make::from_slice(memory, shape, &elements);

    /// An array with the elements of a slice, in memory order.
    fn from_slice / try_from_slice [T, Sh] (shape: Sh, elements: &[T]) -> [T, Sh::Dim]
    where [T: Element, Sh: ShapeBuilder] make::from_slice::<T, Sh>;

    /// A one-dimensional array of as many elements as the iterator yields.
    fn from_iter / try_from_iter [T, I] (elements: I) -> [T, Ix1]
    where [T: Element, I: IntoIterator<Item = T>] make::from_iter::<T, I>;

    /// A dense copy of a view; column-major if the view is.
    fn from_view / try_from_view [T, D] (view: &ArrayRef<T, D>) -> [T, D]
    where [T: Element, D: Dimension] |memory, view| copy_of(view, memory);

    /// `start`, `start + step`, .. below `end` (above it, for a negative step): numpy's `arange`.
    fn arange / try_arange [T] (start: T, end: T, step: T) -> [T, Ix1]
    where [T: Element + PartialOrd + NumCast + core::ops::Add<Output = T> + core::ops::Mul<Output = T>]
    make::arange::<T>;

    /// `len` elements from `start` to `end`, both included, evenly spaced; as ndarray's `linspace`.
    fn linspace / try_linspace [T] (start: T, end: T, len: usize) -> [T, Ix1]
    where [T: Element + Float] make::linspace::<T>;
}

/// The bodies.
mod make {
    use super::*;

    pub(super) fn uninit<T: Element, Sh: ShapeBuilder>(
        memory: Memory<'_>,
        shape: Sh,
    ) -> Result<PoolArray<MaybeUninit<T>, Sh::Dim>, ArrayError> {
        let (layout, len) = Layout::of_shape::<T>(shape.into_shape_with_order())?;
        let buffer = memory.take::<T>(len)?;
        PoolArray::from_dense(buffer, &layout)
    }

    pub(super) fn zeros<T: Element, Sh: ShapeBuilder>(
        memory: Memory<'_>,
        shape: Sh,
    ) -> Result<PoolArray<T, Sh::Dim>, ArrayError> {
        let (layout, len) = Layout::of_shape::<T>(shape.into_shape_with_order())?;
        let buffer = memory.take_zeroed::<T>(len)?;
        PoolArray::from_dense(buffer, &layout)
    }

    pub(super) fn full<T: Element, Sh: ShapeBuilder>(
        memory: Memory<'_>,
        shape: Sh,
        value: T,
    ) -> Result<PoolArray<T, Sh::Dim>, ArrayError> {
        Ok(uninit(memory, shape)?.init_full(value))
    }

    pub(super) fn from_shape_fn<T, Sh, F>(
        memory: Memory<'_>,
        shape: Sh,
        f: F,
    ) -> Result<PoolArray<T, Sh::Dim>, ArrayError>
    where
        T: Element,
        Sh: ShapeBuilder,
        F: FnMut(<Sh::Dim as Dimension>::Pattern) -> T,
    {
        Ok(uninit(memory, shape)?.init_with(f))
    }

    pub(super) fn from_slice<T: Element, Sh: ShapeBuilder>(
        memory: Memory<'_>,
        shape: Sh,
        elements: &[T],
    ) -> Result<PoolArray<T, Sh::Dim>, ArrayError> {
        let (layout, len) = Layout::of_shape::<T>(shape.into_shape_with_order())?;
        if len != elements.len() {
            return Err(super::super::owned::shape_error(
                layout.dim(),
                elements.len(),
            ));
        }
        let buffer = memory.take::<T>(len)?.write_copy_of(elements);
        PoolArray::from_dense(buffer, &layout)
    }

    pub(super) fn from_iter<T, I>(
        memory: Memory<'_>,
        elements: I,
    ) -> Result<PoolArray<T, Ix1>, ArrayError>
    where
        T: Element,
        I: IntoIterator<Item = T>,
    {
        let buffer = memory.collect(elements)?;
        let len = buffer.len();
        PoolArray::from_dense(buffer, &Layout::dense(Ix1(len), false))
    }

    pub(super) fn arange<T>(
        memory: Memory<'_>,
        start: T,
        end: T,
        step: T,
    ) -> Result<PoolArray<T, Ix1>, ArrayError>
    where
        T: Element + PartialOrd + NumCast + core::ops::Add<Output = T> + core::ops::Mul<Output = T>,
    {
        let number = |value: T| value.to_f64().unwrap_or(f64::NAN);
        let steps = ((number(end) - number(start)) / number(step)).ceil();
        // A step of 0 makes no step count, and a step the wrong way a negative one.
        let len = if steps.is_finite() && steps > 0.0 {
            steps as usize
        } else {
            0
        };
        let (layout, _) = Layout::of_shape::<T>(len.into_shape_with_order())?;
        let buffer = memory.take::<T>(len)?;
        let buffer = buffer.fill_with(|index| {
            let index: T = NumCast::from(index).unwrap_or(start);
            start + index * step
        });
        PoolArray::from_dense(buffer, &layout)
    }

    pub(super) fn linspace<T: Element + Float>(
        memory: Memory<'_>,
        start: T,
        end: T,
        len: usize,
    ) -> Result<PoolArray<T, Ix1>, ArrayError> {
        let (layout, _) = Layout::of_shape::<T>(len.into_shape_with_order())?;
        let buffer = memory.take::<T>(len)?;
        let mut elements = ndarray::linspace(start, end, len);
        let buffer = buffer.fill_with(|_| elements.next().unwrap_or(end));
        PoolArray::from_dense(buffer, &layout)
    }
}
