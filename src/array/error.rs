//! What can go wrong with arrays.

use crate::error::AllocError;
use crate::shared::ViewError;

/// An array could not be made or changed; carries the numbers. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrayError {
    /// Memory was refused.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// The elements cannot be viewed like that.
    #[error(transparent)]
    View(#[from] ViewError),
    /// Two shapes do not broadcast together, or one not to the other.
    #[error("shapes {left:?} and {right:?} do not broadcast together")]
    Broadcast {
        /// Shape of the left operand, or of the target.
        left: Vec<usize>,
        /// Shape of the right operand.
        right: Vec<usize>,
    },
    /// A shape has another number of elements than there are.
    #[error("shape {shape:?} does not hold {elements} elements")]
    Shape {
        /// Shape asked for.
        shape: Vec<usize>,
        /// Elements there are.
        elements: usize,
    },
    /// A view was returned that does not lie in the array's own buffer.
    #[error("the view does not lie within the {elements} elements of the buffer")]
    Outside {
        /// Elements of the buffer.
        elements: usize,
    },
    /// The buffer has other owners, so its size cannot change.
    #[error("{owners} owners share the buffer; its size cannot change")]
    Shared {
        /// Owners of the buffer, this array included.
        owners: u32,
    },
    /// The array was disposed.
    #[error("the array was disposed")]
    Disposed,
    /// The axis does not exist, or the list of axes is not a permutation.
    #[error("axes {axes:?} do not fit {ndim} dimensions")]
    Axis {
        /// Axes asked for.
        axes: Vec<usize>,
        /// Dimensions there are.
        ndim: usize,
    },
    /// No array was given where one at least is needed.
    #[error("no array to join")]
    NothingToJoin,
    /// No control word is left for another disposable array.
    #[error("no lease is left in the process")]
    LeasesExhausted,
}

/// The value, or a panic with the error's text: for operators, which cannot return a `Result`.
#[track_caller]
#[inline]
pub(crate) fn settle<V>(result: Result<V, ArrayError>) -> V {
    match result {
        Ok(value) => value,
        Err(error) => refuse(&error),
    }
}

#[cold]
#[track_caller]
fn refuse(error: &ArrayError) -> ! {
    panic!("{error}")
}
