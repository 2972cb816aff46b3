//! Products of matrices and vectors, in pooled memory, by ndarray's kernels.

use ndarray::linalg::{general_mat_mul, general_mat_vec_mul};
use ndarray::{ArrayView1, ArrayView2, Dimension, Ix1, Ix2, LinalgScalar, ShapeBuilder};

use super::error::{ArrayError, settle};
use super::layout::Layout;
use super::memory::Memory;
use super::operand::Operand;
use super::owned::PoolArray;
use super::scope::Temp;
use super::shared::SharedArray;
use crate::element::Element;

/// Pairs of dimensions that have a matrix product.
pub trait Product<E>: Dimension {
    /// Dimension of the product.
    type Joined: Dimension;

    /// The product.
    #[doc(hidden)]
    fn product<T, L, R>(left: &L, right: &R) -> Result<PoolArray<T, Self::Joined>, ArrayError>
    where
        T: Element + LinalgScalar,
        L: Operand<T, Dim = Self>,
        R: Operand<T, Dim = E>;
}

/// A product of two operands' dimensions.
pub type Multiplied<T, D, E> = PoolArray<T, <D as Product<E>>::Joined>;

fn zeros<T: Element, D: Dimension>(
    memory: Memory<'_>,
    shape: impl ShapeBuilder<Dim = D>,
) -> Result<PoolArray<T, D>, ArrayError> {
    let (layout, len) = Layout::of_shape::<T>(shape.into_shape_with_order())?;
    PoolArray::from_dense(memory.take_zeroed(len)?, &layout)
}

/// Where the product's memory comes from, if the inner lengths are equal.
fn memory_of<'a, T: Element, L: Operand<T>, R: Operand<T>>(
    (left, inner_left): (&'a L, usize),
    (right, inner_right): (&'a R, usize),
) -> Result<Memory<'a>, ArrayError> {
    if inner_left != inner_right {
        return Err(ArrayError::Broadcast {
            left: left.operand_view().shape().to_vec(),
            right: right.operand_view().shape().to_vec(),
        });
    }
    Ok(left.operand_memory().or(right.operand_memory()))
}

fn matrix_vector<T: Element + LinalgScalar>(
    memory: Memory<'_>,
    matrix: &ArrayView2<'_, T>,
    vector: &ArrayView1<'_, T>,
) -> Result<PoolArray<T, Ix1>, ArrayError> {
    let mut out = zeros(memory, matrix.nrows())?;
    general_mat_vec_mul(T::one(), matrix, vector, T::zero(), out.elements_mut());
    Ok(out)
}

impl Product<Ix2> for Ix2 {
    type Joined = Ix2;

    fn product<T, L, R>(left: &L, right: &R) -> Result<PoolArray<T, Ix2>, ArrayError>
    where
        T: Element + LinalgScalar,
        L: Operand<T, Dim = Ix2>,
        R: Operand<T, Dim = Ix2>,
    {
        let (a, b) = (left.operand_view(), right.operand_view());
        let memory = memory_of((left, a.ncols()), (right, b.nrows()))?;
        let column_major = a.strides()[0] == 1 && b.strides()[0] == 1;
        let mut out = zeros(memory, (a.nrows(), b.ncols()).set_f(column_major))?;
        general_mat_mul(T::one(), &a, &b, T::zero(), out.elements_mut());
        Ok(out)
    }
}

impl Product<Ix1> for Ix2 {
    type Joined = Ix1;

    fn product<T, L, R>(left: &L, right: &R) -> Result<PoolArray<T, Ix1>, ArrayError>
    where
        T: Element + LinalgScalar,
        L: Operand<T, Dim = Ix2>,
        R: Operand<T, Dim = Ix1>,
    {
        let (a, b) = (left.operand_view(), right.operand_view());
        let memory = memory_of((left, a.ncols()), (right, b.len()))?;
        matrix_vector(memory, &a, &b)
    }
}

impl Product<Ix2> for Ix1 {
    type Joined = Ix1;

    fn product<T, L, R>(left: &L, right: &R) -> Result<PoolArray<T, Ix1>, ArrayError>
    where
        T: Element + LinalgScalar,
        L: Operand<T, Dim = Ix1>,
        R: Operand<T, Dim = Ix2>,
    {
        let (a, b) = (left.operand_view(), right.operand_view());
        let memory = memory_of((left, a.len()), (right, b.nrows()))?;
        matrix_vector(memory, &b.t(), &a)
    }
}

/// The matrix product of two operands: matrix by matrix, matrix by vector, vector by matrix; bit
/// for bit ndarray's `dot`. For two vectors see ndarray's `dot`, which needs no memory.
///
/// # Errors
/// [`ArrayError::Broadcast`] if the inner lengths differ; [`ArrayError::Alloc`].
pub fn try_matmul<T, L, R>(left: L, right: R) -> Result<Multiplied<T, L::Dim, R::Dim>, ArrayError>
where
    T: Element + LinalgScalar,
    L: Operand<T>,
    R: Operand<T>,
    L::Dim: Product<R::Dim>,
{
    L::Dim::product(&left, &right)
}

/// The matrix product; see [`try_matmul`].
///
/// # Panics
/// If the inner lengths differ, or memory is refused.
#[track_caller]
#[must_use]
pub fn matmul<T, L, R>(left: L, right: R) -> Multiplied<T, L::Dim, R::Dim>
where
    T: Element + LinalgScalar,
    L: Operand<T>,
    R: Operand<T>,
    L::Dim: Product<R::Dim>,
{
    settle(try_matmul(left, right))
}

impl<'s, T: Element + LinalgScalar, D: Dimension> Temp<'s, T, D> {
    /// The matrix product; see [`try_matmul`].
    ///
    /// # Panics
    /// If the inner lengths differ, or memory is refused.
    #[track_caller]
    #[must_use]
    pub fn matmul<R>(self, right: R) -> Temp<'s, T, <D as Product<R::Dim>>::Joined>
    where
        R: Operand<T>,
        D: Product<R::Dim>,
    {
        self.keep(D::product(&self, &right))
    }
}

impl<T: Element + LinalgScalar, D: Dimension> PoolArray<T, D> {
    /// The matrix product; see [`try_matmul`].
    ///
    /// # Panics
    /// If the inner lengths differ, or memory is refused.
    #[track_caller]
    #[must_use]
    pub fn matmul<R>(&self, right: R) -> Multiplied<T, D, R::Dim>
    where
        R: Operand<T>,
        D: Product<R::Dim>,
    {
        settle(D::product(&self, &right))
    }
}

impl<T: Element + LinalgScalar, D: Dimension> SharedArray<T, D> {
    /// The matrix product; see [`try_matmul`].
    ///
    /// # Panics
    /// If the inner lengths differ, or memory is refused.
    #[track_caller]
    #[must_use]
    pub fn matmul<R>(&self, right: R) -> Multiplied<T, D, R::Dim>
    where
        R: Operand<T>,
        D: Product<R::Dim>,
    {
        settle(D::product(&self, &right))
    }
}
