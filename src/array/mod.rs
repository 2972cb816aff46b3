//! Arrays in pooled memory: shape, strides and kernels from [`ndarray`], memory from here.
//!
//! | type | what |
//! |---|---|
//! | [`PoolArray`] | owned, unique, writable; operators; lends its memory to results |
//! | [`SharedArray`] | counted, read-only; every view of it is an owner |
//! | [`Disposable`] | shared by many threads, any of which may dispose it, once |
//! | [`Scope`], [`Temp`] | `Copy` handles of transients that go back together |
//!
//! ```
//! use ndpool::array::{Elementwise, Functions};
//!
//! let pool = ndpool::Pool::new();
//! let a = pool.linspace(0.0, 1.0, 1000);
//! let b = pool.ones::<f64, _>(1000);
//! let c = (&a + &b) * 2.0 - &a; // one buffer: the sum's is reused to the end
//! assert_eq!(c[999], 3.0);
//! let near = (&c).sqrt().less(1.5);
//! assert!(near[0] && !near[999]);
//! ```
//!
//! # Memory of results
//!
//! A result comes from the pool of its left operand, else of its right one, else from the ambient
//! pool of the thread ([`Pool::enter`](crate::Pool::enter)). An operand that is given by value, of
//! the result's element type and shape, is the result's memory.
//!
//! # Errors
//!
//! Operators and constructors panic with the error's text where shapes do not fit or memory is
//! refused; each has a `try_` form that returns an [`ArrayError`].

mod construct;
mod disposable;
mod elementwise;
mod error;
mod join;
mod layout;
mod matmul;
mod memory;
mod operand;
mod ops;
mod owned;
mod reduce;
mod scope;
mod shared;

pub use construct::*;
pub use disposable::Disposable;
pub use elementwise::{Elementwise, Functions, Joined};
pub use error::ArrayError;
pub use join::{concatenate, stack, try_concatenate, try_stack};
pub use matmul::{Multiplied, Product, matmul, try_matmul};
pub use memory::{Entered, Memory};
pub use operand::{Broadcast, Operand};
pub use owned::PoolArray;
pub use reduce::Reduce;
pub use scope::{Scope, Survive, Temp};
pub use shared::{SharedArray, WritableArray};
