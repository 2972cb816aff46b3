//! The facade of `crate::sync` on loom's types.
//!
//! loom keeps one last access per location, so a thread that loads and then stores hides another
//! thread's earlier load, and a compare-and-swap loop may be explored in a single execution. Each
//! atomic here therefore carries a shadow: in [shadow mode](super::Mode) every operation is
//! preceded by a Relaxed read-modify-write of it, which makes loom order the operations of a
//! location against each other without ordering any data.

use core::fmt;
use std::hash::{Hash, Hasher};

use loom::sync::atomic as model;

pub(crate) use super::super::sync::before_fence;
pub use super::super::sync::{Counter, Tally};
pub use core::sync::atomic::Ordering;
pub use loom::sync::atomic::fence;

/// The shadow of one atomic.
#[derive(Debug)]
struct Shadow(model::AtomicUsize);

impl Shadow {
    #[track_caller]
    fn new() -> Self {
        Self(model::AtomicUsize::new(0))
    }

    /// Called before every operation.
    #[track_caller]
    fn touch(&self) {
        if super::mode() == super::Mode::Shadow {
            // Ordering: Relaxed - makes loom branch here; must not order anything else.
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

macro_rules! common {
    ($ty:ty, $new:path) => {
        /// An atomic that holds `value`.
        #[track_caller]
        pub fn new(value: $ty) -> Self {
            Self {
                shadow: Shadow::new(),
                value: $new(value),
            }
        }

        /// See std.
        #[track_caller]
        pub fn load(&self, order: Ordering) -> $ty {
            self.shadow.touch();
            self.value.load(order)
        }

        /// See std.
        #[track_caller]
        pub fn store(&self, value: $ty, order: Ordering) {
            self.shadow.touch();
            self.value.store(value, order);
        }

        /// See std.
        #[track_caller]
        pub fn swap(&self, value: $ty, order: Ordering) -> $ty {
            self.shadow.touch();
            self.value.swap(value, order)
        }

        /// See std.
        #[track_caller]
        pub fn compare_exchange(
            &self,
            current: $ty,
            new: $ty,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$ty, $ty> {
            self.shadow.touch();
            self.value.compare_exchange(current, new, success, failure)
        }

        /// See std; it never fails spuriously here.
        #[track_caller]
        pub fn compare_exchange_weak(
            &self,
            current: $ty,
            new: $ty,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$ty, $ty> {
            self.compare_exchange(current, new, success, failure)
        }

        /// Exclusive access to the value, which loom checks to be exclusive.
        #[track_caller]
        pub fn with_mut<R>(&mut self, f: impl FnOnce(&mut $ty) -> R) -> R {
            self.value.with_mut(f)
        }
    };
}

macro_rules! integer {
    ($name:ident, $ty:ty) => {
        /// loom's atomic of this name, with a shadow.
        #[derive(Debug)]
        pub struct $name {
            shadow: Shadow,
            value: model::$name,
        }

        impl $name {
            common!($ty, model::$name::new);

            /// See std.
            #[track_caller]
            pub fn fetch_add(&self, value: $ty, order: Ordering) -> $ty {
                self.shadow.touch();
                self.value.fetch_add(value, order)
            }

            /// See std.
            #[track_caller]
            pub fn fetch_sub(&self, value: $ty, order: Ordering) -> $ty {
                self.shadow.touch();
                self.value.fetch_sub(value, order)
            }

            /// See std.
            #[track_caller]
            pub fn fetch_and(&self, value: $ty, order: Ordering) -> $ty {
                self.shadow.touch();
                self.value.fetch_and(value, order)
            }

            /// See std.
            #[track_caller]
            pub fn fetch_or(&self, value: $ty, order: Ordering) -> $ty {
                self.shadow.touch();
                self.value.fetch_or(value, order)
            }

            /// See std.
            #[track_caller]
            pub fn fetch_max(&self, value: $ty, order: Ordering) -> $ty {
                self.shadow.touch();
                self.value.fetch_max(value, order)
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(0)
            }
        }
    };
}

integer!(AtomicU32, u32);
integer!(AtomicU64, u64);
integer!(AtomicUsize, usize);

/// loom's atomic pointer, with a shadow.
pub struct AtomicPtr<T> {
    shadow: Shadow,
    value: model::AtomicPtr<T>,
}

impl<T> AtomicPtr<T> {
    common!(*mut T, model::AtomicPtr::new);
}

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(core::ptr::null_mut())
    }
}

impl<T> fmt::Debug for AtomicPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// loom's cell: it fails the model when two accesses are not ordered.
#[derive(Debug, Default)]
pub struct UnsafeCell<T>(loom::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// A cell that holds `value`.
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self(loom::cell::UnsafeCell::new(value))
    }

    /// Gives `f` a pointer to read through.
    #[track_caller]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        self.0.with(f)
    }

    /// Gives `f` a pointer to write through.
    #[track_caller]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        self.0.with_mut(f)
    }
}

/// The owner's half: a full fence, the weakest thing in loom that orders its store before its load.
pub fn light_barrier() {
    // Ordering: SeqCst - stands for what the other half makes this thread execute.
    fence(Ordering::SeqCst);
}

/// The other half of [`light_barrier`].
pub fn heavy_barrier() -> bool {
    // Ordering: SeqCst - the pair of the fence in `light_barrier`.
    fence(Ordering::SeqCst);
    true
}

/// Whether [`heavy_barrier`] is to be had.
pub fn is_reachable() -> bool {
    true
}

/// Stores to a word that nobody else may change now.
pub fn set(word: &AtomicU64, value: u64, order: Ordering) {
    word.swap(value, order);
}

/// One turn of waiting: loom runs another thread first.
pub fn pause(_looks: u32) {
    loom::thread::yield_now();
}

/// A number for the calling thread, never 0, that no other thread has.
pub fn this_thread() -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    loom::thread::current().id().hash(&mut hasher);
    hasher.finish() | 1
}

/// Like the original, without `const`: loom's constructors are none.
macro_rules! const_fn {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $body:block)*) => {
        $($(#[$meta])* $vis fn $name($($arg: $ty),*) -> $ret $body)*
    };
}
pub(crate) use const_fn;

/// An array of `n` equal, freshly built values.
#[allow(unused_macros)]
macro_rules! array {
    ($value:expr; $n:expr) => {
        ::core::array::from_fn::<_, { $n }, _>(|_| $value)
    };
}
#[allow(unused_imports)]
pub(crate) use array;
