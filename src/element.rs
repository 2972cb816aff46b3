//! What a buffer can hold.

use bytemuck::Zeroable;

/// An element of a buffer: plain enough to be moved by copy, read from any thread, and valid when
/// all its bytes are zero (bytemuck's [`Zeroable`]; so `bool` is one).
///
/// Implemented for every type that fits, whatever its alignment; one above
/// [`MIN_ALIGN`](crate::MIN_ALIGN) takes the slow path at every request.
pub trait Element: Copy + Send + Sync + Zeroable + 'static {}

impl<T: Copy + Send + Sync + Zeroable + 'static> Element for T {}
