//! [`SharedArray`]: counted, read-only.

#![allow(unsafe_code)]

use core::fmt;
use core::ops::{Deref, DerefMut};

use ndarray::{ArrayRef, ArrayView, ArrayViewMut, Dimension, IntoDimension};

use super::error::ArrayError;
use super::layout::{Layout, size_of_dim};
use super::memory::Memory;
use super::owned::{PoolArray, copy_of, shape_error};
use crate::block;
use crate::element::Element;
use crate::handle::Handle;
use crate::shared::{SharedBuffer, Writable};

mod views;

/// A counted, read-only n-dimensional array: a view with a share of its buffer of its own.
///
/// Each view made from it (slice, transpose, reshape, another element type, ..) is an owner of the
/// buffer as well, so parents can go first; the memory goes back the instant the last owner is
/// dropped, on that thread. An array without elements holds no buffer.
///
/// It dereferences to [`ndarray::ArrayRef`] for reading.
pub struct SharedArray<T: Element, D: Dimension> {
    /// Lies within `buffer`; empty if there is none. It leaves this struct with a lifetime of the
    /// struct's borrow only.
    view: ArrayView<'static, T, D>,
    buffer: Option<SharedBuffer<T>>,
}

/// A shared array, lent out to be written; see [`SharedArray::make_mut`]. It dereferences to
/// [`ndarray::ArrayRef`].
pub struct WritableArray<'a, T: Element, D: Dimension> {
    /// Lies within the buffer of the guard beside it; leaves this struct with a shorter lifetime.
    view: ArrayViewMut<'a, T, D>,
    /// Shares the buffer again when it is dropped.
    _buffer: Option<Writable<'a, T>>,
}

impl<T: Element, D: Dimension> Deref for WritableArray<'_, T, D> {
    type Target = ArrayRef<T, D>;

    fn deref(&self) -> &ArrayRef<T, D> {
        &self.view
    }
}

impl<T: Element, D: Dimension> DerefMut for WritableArray<'_, T, D> {
    fn deref_mut(&mut self) -> &mut ArrayRef<T, D> {
        &mut self.view
    }
}

impl<T: Element + fmt::Debug, D: Dimension> fmt::Debug for WritableArray<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.view, f)
    }
}

impl<T: Element, D: Dimension> SharedArray<T, D> {
    /// # Safety
    /// The layout fits the buffer.
    pub(crate) unsafe fn from_layout(buffer: SharedBuffer<T>, layout: &Layout<D>) -> Self {
        if layout.dim().size() == 0 {
            return Self::empty(layout.dim().clone());
        }
        // SAFETY: the caller's promise. The buffer's share keeps the elements while the view is
        // beside it, and nobody writes them while there is a share.
        let view = unsafe { layout.view(buffer.as_ptr()) };
        Self {
            view,
            buffer: Some(buffer),
        }
    }

    /// An array without elements.
    fn empty(dim: D) -> Self {
        debug_assert_eq!(dim.size(), 0);
        let nothing = core::ptr::NonNull::dangling().as_ptr();
        // SAFETY: there is no element to be valid.
        let view = unsafe { Layout::dense(dim, false).view(nothing) };
        Self { view, buffer: None }
    }

    pub(crate) fn from_owned(array: PoolArray<T, D>) -> Self {
        let (buffer, layout) = array.into_layout();
        // Sharing may move elements to the base of their block, so the view is made after it.
        // SAFETY: the layout was the array's own.
        unsafe { Self::from_layout(buffer.share(), &layout) }
    }

    /// The elements of a shared buffer, row-major.
    ///
    /// # Errors
    /// [`ArrayError::Shape`] if the lengths differ; the share is dropped then.
    pub fn from_buffer<Sh>(shape: Sh, buffer: SharedBuffer<T>) -> Result<Self, ArrayError>
    where
        Sh: IntoDimension<Dim = D>,
    {
        let dim = shape.into_dimension();
        if size_of_dim::<T, D>(&dim)? != buffer.len() {
            return Err(shape_error(&dim, buffer.len()));
        }
        // SAFETY: a dense layout of as many elements as the buffer has.
        Ok(unsafe { Self::from_layout(buffer, &Layout::dense(dim, false)) })
    }

    /// An array with a view of `buffer` that is there already, if it lies in the buffer.
    pub(crate) fn from_view(
        buffer: SharedBuffer<T>,
        view: &ArrayRef<T, D>,
    ) -> Result<Self, ArrayError> {
        let layout = Layout::of(view, buffer.as_ptr(), buffer.len())?;
        // SAFETY: the layout was just checked.
        Ok(unsafe { Self::from_layout(buffer, &layout) })
    }

    /// Gives up the array for its share and its view.
    ///
    /// # Safety
    /// The view is used while the share is kept only.
    pub(crate) unsafe fn into_view(self) -> (ArrayView<'static, T, D>, Option<SharedBuffer<T>>) {
        (self.view, self.buffer)
    }

    fn layout(&self) -> Layout<D> {
        let layout = match &self.buffer {
            Some(buffer) => Layout::of(&self.view, buffer.as_ptr(), buffer.len()),
            None => Ok(Layout::dense(self.view.raw_dim(), false)),
        };
        layout.expect("the view of an array lies within its buffer")
    }

    /// Gives up the array for its share, and where its elements lie in the buffer. `None`: an array
    /// without elements.
    pub(crate) fn into_layout(self) -> (Option<SharedBuffer<T>>, Layout<D>) {
        let layout = self.layout();
        (self.buffer, layout)
    }

    /// A scope gives the array away.
    pub(crate) fn mark_survivor(&self) {
        if let Some(buffer) = &self.buffer {
            // SAFETY: the array has a share of the block.
            unsafe { block::mark_survivor(buffer.block()) };
        }
    }

    /// The pool of the array's memory.
    pub(crate) fn memory(&self) -> Memory<'_> {
        match &self.buffer {
            // SAFETY: the array has a share of the block while it is borrowed.
            Some(buffer) => unsafe { Memory::beside(buffer.block()) },
            None => Memory::ambient(),
        }
    }

    /// Owners of the buffer now, or shortly before; 0 for an array without elements.
    #[must_use]
    pub fn owners(&self) -> u32 {
        self.buffer.as_ref().map_or(0, SharedBuffer::owners)
    }

    /// A name of the buffer that owns nothing; `None` for an array without elements.
    #[must_use]
    pub fn handle(&self) -> Option<Handle> {
        self.buffer.as_ref().map(SharedBuffer::handle)
    }

    /// Bytes of the buffer that this array keeps alive.
    #[must_use]
    pub fn retained_bytes(&self) -> usize {
        self.buffer.as_ref().map_or(0, SharedBuffer::retained_bytes)
    }

    /// A dense copy in a buffer of its own, from the same pool; column-major if the array is.
    ///
    /// # Errors
    /// [`ArrayError::Alloc`].
    pub fn try_copy(&self) -> Result<PoolArray<T, D>, ArrayError> {
        copy_of(&self.view, self.memory())
    }

    /// Takes the array back as unique if this is the only owner, without a copy.
    ///
    /// # Errors
    /// The array itself, unchanged: there are other owners, the memory is read-only, or an element
    /// has several indices (broadcast).
    pub fn try_unique(self) -> Result<PoolArray<T, D>, Self> {
        let layout = self.layout();
        if !layout.is_injective() {
            return Err(self);
        }
        let Self { view, buffer } = self;
        let Some(buffer) = buffer else {
            return copy_of(&view, Memory::ambient()).map_err(|_| Self { view, buffer: None });
        };
        match buffer.try_unique() {
            // SAFETY: the layout was this array's own, and no two indices meet.
            Ok(buffer) => Ok(unsafe { PoolArray::from_layout(buffer, &layout) }),
            Err(buffer) => Err(Self {
                view,
                buffer: Some(buffer),
            }),
        }
    }

    /// The array as unique: without a copy if this is the only owner, else a copy.
    ///
    /// # Errors
    /// [`ArrayError::Alloc`] of the copy.
    pub fn into_unique(self) -> Result<PoolArray<T, D>, ArrayError> {
        self.try_unique().or_else(|shared| shared.try_copy())
    }

    /// The elements, writable: in place if this is the only owner (names of the buffer are stale
    /// from then on); in a copy if the buffer has other owners, an element has several indices, or
    /// the memory is read-only. While the guard lives, nothing names the buffer. A guard that is
    /// forgotten takes the buffer with it, and the array can then only be dropped.
    ///
    /// # Errors
    /// [`ArrayError::Alloc`] of the copy; the array is unchanged then.
    pub fn make_mut(&mut self) -> Result<WritableArray<'_, T, D>, ArrayError> {
        let layout = self.layout();
        let in_place = match &self.buffer {
            Some(buffer) => {
                // A part of a block would move to the block's base, away from the view.
                buffer.owners() == 1
                    && !buffer.is_read_only()
                    && buffer.is_whole()
                    && layout.is_injective()
            }
            None => true,
        };
        if !in_place {
            *self = self.try_copy()?.share();
            return self.make_mut();
        }
        let Some(buffer) = &mut self.buffer else {
            // SAFETY: there is no element to be valid.
            let view = unsafe { layout.view_mut(core::ptr::NonNull::dangling().as_ptr()) };
            return Ok(WritableArray {
                view,
                _buffer: None,
            });
        };
        // A copy all the same if a handle has become an owner in between: then of the whole
        // buffer, in which the layout is the same.
        let mut buffer = buffer.make_mut()?;
        let base = buffer.as_mut_ptr();
        // Where the buffer will be when the guard has shared it again; and if the guard is
        // forgotten, so is the buffer, which then stays where it is for ever.
        // SAFETY: the layout was this array's own; nobody reads it before the guard has gone.
        self.view = unsafe { layout.view(base) };
        // SAFETY: as above; no two indices meet, and the guard's buffer is unique.
        let view = unsafe { layout.view_mut(base) };
        Ok(WritableArray {
            view,
            _buffer: Some(buffer),
        })
    }

    /// Changes the shape, keeping elements in logical order from the front; new ones are zero. As
    /// many elements as before are relabelled, if they lie dense. Otherwise the array must be the
    /// only owner.
    ///
    /// # Errors
    /// [`ArrayError::Shared`] if there are other owners, [`ArrayError::Alloc`]; the array is
    /// unchanged then.
    pub fn resize<Sh: IntoDimension<Dim = D>>(&mut self, shape: Sh) -> Result<(), ArrayError> {
        let dim = shape.into_dimension();
        if size_of_dim::<T, D>(&dim)? == self.view.len() && self.view.is_standard_layout() {
            *self = self.reshape(dim)?;
            return Ok(());
        }
        let owners = self.owners();
        if owners > 1 {
            return Err(ArrayError::Shared { owners });
        }
        self.resize_detached(dim)
    }

    /// [`resize`](Self::resize) whatever the number of owners: other views keep the old buffer, and
    /// this array leaves it.
    ///
    /// # Errors
    /// [`ArrayError::Alloc`]; the array is unchanged then.
    pub fn resize_detached<Sh>(&mut self, shape: Sh) -> Result<(), ArrayError>
    where
        Sh: IntoDimension<Dim = D>,
    {
        let dim = shape.into_dimension();
        size_of_dim::<T, D>(&dim)?;
        let taken = self.take_unique();
        let whole = taken.is_some();
        let mut array = match taken {
            Some(array) => array,
            None => self.try_copy()?,
        };
        let resized = array.resize(dim);
        if whole || resized.is_ok() {
            *self = array.share();
        }
        resized
    }

    /// The array as unique without a copy, leaving an array without elements behind.
    fn take_unique(&mut self) -> Option<PoolArray<T, D>> {
        let dim = D::zeros(self.view.ndim());
        if dim.size() > 0 {
            return None;
        }
        match core::mem::replace(self, Self::empty(dim)).try_unique() {
            Ok(array) => Some(array),
            Err(shared) => {
                *self = shared;
                None
            }
        }
    }

    /// Drops this owner; the same as letting it go out of scope.
    pub fn dispose(self) {}
}

impl<T: Element, D: Dimension> From<PoolArray<T, D>> for SharedArray<T, D> {
    fn from(array: PoolArray<T, D>) -> Self {
        array.share()
    }
}

impl<T: Element, D: Dimension> Clone for SharedArray<T, D> {
    fn clone(&self) -> Self {
        Self {
            view: self.view.clone(),
            buffer: self.buffer.clone(),
        }
    }
}

impl<T: Element, D: Dimension> Deref for SharedArray<T, D> {
    type Target = ArrayRef<T, D>;

    #[inline]
    fn deref(&self) -> &ArrayRef<T, D> {
        &self.view
    }
}

impl<'a, T: Element, D: Dimension> IntoIterator for &'a SharedArray<T, D> {
    type Item = &'a T;
    type IntoIter = ndarray::iter::Iter<'a, T, D>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: Element + PartialEq, D: Dimension> PartialEq for SharedArray<T, D> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Element + PartialEq, D: Dimension> PartialEq<PoolArray<T, D>> for SharedArray<T, D> {
    fn eq(&self, other: &PoolArray<T, D>) -> bool {
        **self == **other
    }
}

impl<T: Element + PartialEq, D: Dimension> PartialEq<ndarray::Array<T, D>> for SharedArray<T, D> {
    fn eq(&self, other: &ndarray::Array<T, D>) -> bool {
        **self == **other
    }
}

impl<T: Element + fmt::Debug, D: Dimension> fmt::Debug for SharedArray<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.view, f)
    }
}

static_assertions::assert_impl_all!(SharedArray<f64, ndarray::IxDyn>: Send, Sync, core::panic::UnwindSafe, core::panic::RefUnwindSafe, Clone);
static_assertions::assert_not_impl_any!(SharedArray<f64, ndarray::Ix1>: core::ops::DerefMut);
