//! What our types promise to the compiler, asserted: other crates' bounds are met without a feature
//! of ours. What must *not* compile is in `src/compile_fail.rs`. (F1, F12)

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};

use ndpool::allocator::{BufferAllocator, Limited, Misuse, System, Tracked};
use ndpool::count::RefCount;
use ndpool::report::Report;
use ndpool::source::{Faulty, Heap, Memory, Mmap, Os, Source};
use ndpool::{
    AllocError, AllocErrorKind, Audit, AuditError, Buffer, Element, Handle, Pool, PoolBuilder,
    SharedBuffer, Stale, StaleReason, Stats, StrayRelease, Token, ViewError,
};
use static_assertions::{
    assert_impl_all, assert_not_impl_any, assert_obj_safe, assert_type_eq_all,
};

/// Everything that foreign crates ask of an owner of bytes.
trait Owner<T>:
    Deref<Target = [T]>
    + AsRef<[T]>
    + Send
    + Sync
    + UnwindSafe
    + RefUnwindSafe
    + Debug
    + Unpin
    + 'static
{
}

impl<T, O> Owner<T> for O where
    O: Deref<Target = [T]>
        + AsRef<[T]>
        + Send
        + Sync
        + UnwindSafe
        + RefUnwindSafe
        + Debug
        + Unpin
        + 'static
{
}

assert_impl_all!(Buffer<u8>: Owner<u8>, AsMut<[u8]>, DerefMut);
assert_impl_all!(Buffer<f64>: Owner<f64>);
assert_impl_all!(Buffer<bool>: Owner<bool>);
assert_impl_all!(Buffer<[f32; 4]>: Owner<[f32; 4]>);
assert_impl_all!(SharedBuffer<u8>: Owner<u8>, Clone, From<Buffer<u8>>);
assert_impl_all!(SharedBuffer<u128>: Owner<u128>);
// One owner, who alone may write; many, who never may.
assert_not_impl_any!(Buffer<u8>: Clone, Copy);
assert_not_impl_any!(SharedBuffer<u8>: Copy, DerefMut, AsMut<[u8]>);

// Names are numbers, free to be copied, stored and sent.
assert_impl_all!(Handle: Copy, Send, Sync, UnwindSafe, RefUnwindSafe, Debug, Eq, Hash, Unpin);
assert_impl_all!(Token: Copy, Send, Sync, UnwindSafe, RefUnwindSafe, Debug, Eq, Hash, Unpin);

assert_impl_all!(Pool: Clone, Default, Debug, Send, Sync, UnwindSafe, RefUnwindSafe, Unpin);
assert_impl_all!(Pool: BufferAllocator);
assert_impl_all!(PoolBuilder: Send, Default, Unpin);
assert_impl_all!(RefCount: Send, Sync, UnwindSafe, RefUnwindSafe, Debug, Default);
assert_not_impl_any!(RefCount: Clone);

assert_impl_all!(Os: Source, Copy, Default, UnwindSafe, RefUnwindSafe);
assert_impl_all!(Heap: Source, Copy, Default, UnwindSafe, RefUnwindSafe);
assert_impl_all!(Mmap: Source, Copy, Default, UnwindSafe, RefUnwindSafe);
assert_impl_all!(Faulty<Os>: Source, Debug, UnwindSafe, RefUnwindSafe);
assert_impl_all!(Memory: Copy, Debug);
assert_obj_safe!(Source);
assert_obj_safe!(BufferAllocator);
assert_impl_all!(Box<dyn Source>: Source, Send, Sync);
assert_impl_all!(std::sync::Arc<dyn BufferAllocator>: BufferAllocator, Send, Sync);
assert_impl_all!(&'static dyn BufferAllocator: BufferAllocator);
assert_impl_all!(Tracked<Limited<Pool>>: BufferAllocator, Send, Sync, UnwindSafe, RefUnwindSafe);
assert_impl_all!(Limited<System>: BufferAllocator, Send, Sync, UnwindSafe, RefUnwindSafe);
assert_impl_all!(System: BufferAllocator, Send, Sync);

// Errors and numbers travel: to other threads, into `Box<dyn Error + Send + Sync>`, into logs.
trait Error: std::error::Error + Display + Send + Sync + UnwindSafe + RefUnwindSafe + 'static {}
impl<E: std::error::Error + Send + Sync + UnwindSafe + RefUnwindSafe + 'static> Error for E {}
assert_impl_all!(AllocError: Error, Copy, Eq);
assert_impl_all!(Stale: Error, Copy, Eq);
assert_impl_all!(StrayRelease: Error, Copy, Eq);
assert_impl_all!(ViewError: Error, Copy, Eq);
assert_impl_all!(AuditError: Error, Copy, Eq);
assert_impl_all!(AllocErrorKind: Copy, Eq, Hash, Debug, Send, Sync);
assert_impl_all!(StaleReason: Copy, Eq, Debug, Send, Sync);
assert_impl_all!(Stats: Clone, Display, Debug, Send, Sync, UnwindSafe, RefUnwindSafe);
assert_impl_all!(Audit: Copy, Debug, Send, Sync);
assert_impl_all!(Report: Clone, Display, Debug, Send, Sync);
assert_impl_all!(Misuse: Clone, Display, Debug, Send, Sync);

// What an element is: plain, sendable, zero when its bytes are.
assert_impl_all!(bool: Element);
assert_impl_all!(char: Element);
assert_impl_all!(f64: Element);
assert_impl_all!([u8; 3]: Element);
assert_impl_all!(std::mem::MaybeUninit<u64>: Element);
assert_not_impl_any!(String: Element);
assert_not_impl_any!(&'static u8: Element);
assert_not_impl_any!(Box<u8>: Element);
assert_not_impl_any!(std::rc::Rc<u8>: Element);
assert_not_impl_any!(std::cell::Cell<u8>: Element);
assert_not_impl_any!(std::num::NonZeroU8: Element);
assert_type_eq_all!(<Buffer<u8> as Deref>::Target, [u8]);

/// F12: the assertions above are compiled; this one is run, so that the file counts as a test.
#[test]
fn owners_go_where_other_crates_keep_them_f12() {
    fn keep(owner: impl Owner<u8>) -> Box<dyn std::any::Any + Send> {
        std::thread::spawn(move || Box::new(owner) as _)
            .join()
            .unwrap()
    }
    let pool = Pool::new();
    let buffer = pool.filled(3, 1u8).unwrap();
    assert!(keep(buffer).is::<Buffer<u8>>());
    let shared = pool.filled(3, 1u8).unwrap().share();
    let panicked = std::panic::catch_unwind(|| assert_eq!(shared[2], 2));
    assert!(panicked.is_err());
    assert!(keep(shared).is::<SharedBuffer<u8>>());
}
