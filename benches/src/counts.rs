//! Counted buffers: ours, `Arc` and its neighbours, and the published protocol that ours replaces.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::contender::Setup;

/// A way to count the owners of a buffer.
pub trait Counting: Sync + Sized + 'static {
    /// One owner.
    type Owner: Clone + Send + Sync + 'static;
    /// An owner of a part.
    type View;

    fn new(setup: Setup) -> Self;

    /// Allocates a buffer, contents unspecified, and makes it shareable.
    fn share(&'static self, len: usize) -> Self::Owner;

    /// A further owner, of a part.
    fn view(owner: &Self::Owner, range: Range<usize>) -> Self::View;
}

/// `Arc<[u8]>` on the program's allocator, which is glibc here.
pub struct StdArc;

/// A part kept alive by a clone of the whole, as crates with `Arc` inside do it.
#[expect(
    dead_code,
    reason = "what a view has to hold; the benchmark only drops it"
)]
pub struct Part<O> {
    whole: O,
    range: Range<usize>,
}

impl Counting for StdArc {
    type Owner = Arc<[MaybeUninit<u8>]>;
    type View = Part<Self::Owner>;

    fn new(_: Setup) -> Self {
        Self
    }

    #[inline(always)]
    fn share(&'static self, len: usize) -> Self::Owner {
        Arc::new_uninit_slice(len)
    }

    #[inline(always)]
    fn view(owner: &Self::Owner, range: Range<usize>) -> Self::View {
        Part {
            whole: owner.clone(),
            range,
        }
    }
}

/// triomphe's `Arc`, which has no weak count.
#[cfg(feature = "counts")]
pub struct Triomphe;

#[cfg(feature = "counts")]
impl Counting for Triomphe {
    type Owner = triomphe::Arc<[MaybeUninit<u8>]>;
    type View = Part<Self::Owner>;

    fn new(_: Setup) -> Self {
        Self
    }

    #[inline(always)]
    fn share(&'static self, len: usize) -> Self::Owner {
        triomphe::UniqueArc::new_uninit_slice(len).shareable()
    }

    #[inline(always)]
    fn view(owner: &Self::Owner, range: Range<usize>) -> Self::View {
        Part {
            whole: owner.clone(),
            range,
        }
    }
}

/// `Bytes` over a vector.
#[cfg(feature = "counts")]
pub struct BytesCrate;

#[cfg(feature = "counts")]
impl Counting for BytesCrate {
    type Owner = bytes::Bytes;
    type View = bytes::Bytes;

    fn new(_: Setup) -> Self {
        Self
    }

    #[inline(always)]
    fn share(&'static self, len: usize) -> Self::Owner {
        // `Bytes` has no uninitialised form; the zeroed request is the cheapest that it takes.
        bytes::Bytes::from(vec![0; len])
    }

    #[inline(always)]
    fn view(owner: &Self::Owner, range: Range<usize>) -> Self::View {
        owner.slice(range)
    }
}

/// The protocol of the system that ndpool carries to Rust, over a thread-local stack: share by CAS, release by
/// decrement, claim by CAS. Three read-modify-writes from allocation to give-back, where ndpool has two.
pub struct Published;

/// A block of [`Published`]: its count beside its payload.
struct Block {
    /// Owners; -1 when released.
    owners: AtomicI64,
    payload: Vec<MaybeUninit<u8>>,
}

thread_local! {
    // Boxed, because owners keep the address of a block.
    #[allow(clippy::vec_box)]
    static RESTING: RefCell<Vec<Box<Block>>> = const { RefCell::new(Vec::new()) };
}

/// An owner of a [`Block`].
pub struct PublishedOwner(NonNull<Block>);

// SAFETY: the block is shared by its count alone.
unsafe impl Send for PublishedOwner {}
// SAFETY: as above.
unsafe impl Sync for PublishedOwner {}

impl PublishedOwner {
    #[inline(always)]
    fn block(&self) -> &Block {
        // SAFETY: this owner is counted, so the block is not released.
        unsafe { self.0.as_ref() }
    }
}

#[inline(always)]
fn add(owners: &AtomicI64) {
    let mut seen = owners.load(Ordering::Relaxed);
    while let Err(now) =
        owners.compare_exchange_weak(seen, seen + 1, Ordering::Relaxed, Ordering::Relaxed)
    {
        seen = now;
    }
}

impl Clone for PublishedOwner {
    #[inline(always)]
    fn clone(&self) -> Self {
        add(&self.block().owners);
        Self(self.0)
    }
}

impl Drop for PublishedOwner {
    #[inline(always)]
    fn drop(&mut self) {
        let owners = &self.block().owners;
        if owners.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        if owners
            .compare_exchange(0, -1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
        {
            // SAFETY: the claim makes this the only pointer, and it came from `Box::leak`.
            let block = unsafe { Box::from_raw(self.0.as_ptr()) };
            RESTING.with_borrow_mut(|stack| stack.push(block));
        }
    }
}

impl Counting for Published {
    type Owner = PublishedOwner;
    type View = Part<PublishedOwner>;

    fn new(_: Setup) -> Self {
        Self
    }

    #[inline(always)]
    fn share(&'static self, len: usize) -> PublishedOwner {
        let mut block = RESTING.with_borrow_mut(Vec::pop).unwrap_or_else(|| {
            Box::new(Block {
                owners: AtomicI64::new(-1),
                payload: Vec::new(),
            })
        });
        if block.payload.capacity() < len {
            block.payload.reserve_exact(len);
        }
        block.owners.store(0, Ordering::Relaxed);
        add(&block.owners);
        PublishedOwner(NonNull::from(Box::leak(block)))
    }

    #[inline(always)]
    fn view(owner: &PublishedOwner, range: Range<usize>) -> Part<PublishedOwner> {
        Part {
            whole: owner.clone(),
            range,
        }
    }
}

/// Work that is generic over the way of counting.
pub trait VisitCounting {
    type Output;
    fn with<C: Counting>(self) -> Self::Output;
}

/// The ways to count, ours first.
pub const COUNTS: [&str; 5] = [
    crate::case::OURS,
    "arc",
    "triomphe",
    "bytes",
    "published-3rmw",
];

/// Runs `visit` with the way of counting of that name; `None` if it is not built.
pub fn visit<V: VisitCounting>(name: &str, visit: V) -> Option<V::Output> {
    match name {
        crate::case::OURS => Some(visit.with::<crate::ours::Ndpool>()),
        "arc" => Some(visit.with::<StdArc>()),
        #[cfg(feature = "counts")]
        "triomphe" => Some(visit.with::<Triomphe>()),
        #[cfg(feature = "counts")]
        "bytes" => Some(visit.with::<BytesCrate>()),
        "published-3rmw" => Some(visit.with::<Published>()),
        _ => None,
    }
}
