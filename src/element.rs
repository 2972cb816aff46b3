//! What a buffer can hold.

use bytemuck::Zeroable;

/// An element of a buffer: plain enough to be moved by copy, read from any thread, and valid when
/// all its bytes are zero (bytemuck's [`Zeroable`]; so `bool` is one).
///
/// Implemented for every type that fits; an element needs no more alignment than
/// [`MIN_ALIGN`](crate::MIN_ALIGN) unless it is asked for by layout.
pub trait Element: Copy + Send + Sync + Zeroable + 'static {}

impl<T: Copy + Send + Sync + Zeroable + 'static> Element for T {}
