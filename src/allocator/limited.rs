//! [`Limited`]: a node with a limit in bytes, over any allocator.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::cell::Cell;
use core::fmt;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;

use super::{BufferAllocator, cut, empty};
use crate::error::{AllocError, AllocErrorKind};
use crate::kernel::reserve::Reserve;
use crate::report::{self, Report};
use crate::watch::Checks;

/// Frees memory when asked for a number of bytes; says how many it freed.
type Reclaim = dyn Fn(usize) -> usize + Send + Sync;

/// An allocator with a limit on the bytes of its blocks.
///
/// Each block is charged the inner allocator's [`capacity`](BufferAllocator::capacity) for its
/// layout: reserved in one step with the check before the inner allocator is asked, refunded if
/// that fails, discharged when the block is back. So the bytes in blocks never exceed the limit,
/// at no time and with any number of threads. A block that [`grow`](BufferAllocator::grow) may
/// move is charged for both places meanwhile; [`shrink`](BufferAllocator::shrink) is not refused
/// by the limit. Blocks of 0 bytes are free and never reach the inner allocator.
///
/// Nodes nest: the error names the node that refused, and its numbers are that node's charges.
///
/// A node that is dropped with bytes still charged, or is given back more than it has charged, is
/// reported (see [`report`]) in debug builds, and where `NDPOOL_CHECK` names any check: a block was
/// forgotten, or came back past the node.
///
/// Charging is lock-free. A reclaim callback runs on the allocating thread with no lock held.
pub struct Limited<A> {
    inner: A,
    limit: usize,
    charges: Charges,
    reclaim: Option<Box<Reclaim>>,
}

// The callback would hide these: a panic in it ends here, and leaves no charge half-done.
impl<A: UnwindSafe> UnwindSafe for Limited<A> {}
impl<A: RefUnwindSafe> RefUnwindSafe for Limited<A> {}

impl<A> Limited<A> {
    /// A node `name` over `inner` that holds at most `limit` bytes.
    pub fn new(name: &'static str, limit: usize, inner: A) -> Self {
        Self {
            inner,
            limit,
            charges: Charges {
                name,
                used: Reserve::new(),
                strict: cfg!(debug_assertions) || Checks::from_env().is_any(),
            },
            reclaim: None,
        }
    }

    /// Asks `reclaim` for memory before refusing.
    ///
    /// It gets the number of bytes wanted, gives back blocks of this node (cached ones, say), and
    /// says how many bytes it freed; the charge is then tried again, for as long as it frees
    /// something. It is not asked for more than the whole limit, nor for what a callback itself
    /// allocates, which is refused at once. A panic in it counts as nothing freed.
    #[must_use]
    pub fn with_reclaim(
        mut self,
        reclaim: impl Fn(usize) -> usize + Send + Sync + 'static,
    ) -> Self {
        self.reclaim = Some(Box::new(reclaim));
        self
    }

    /// Name of this node.
    pub fn name(&self) -> &'static str {
        self.charges.name
    }

    /// Most bytes that this node holds.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes charged now, or shortly before.
    pub fn used(&self) -> usize {
        self.charges.used.used()
    }

    /// Bytes that are left of the limit now, or shortly before.
    pub fn headroom(&self) -> usize {
        self.limit.saturating_sub(self.used())
    }

    /// The allocator inside.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    /// Charges `bytes` for a block of `layout`, reclaiming if need be.
    fn charge(&self, bytes: usize, layout: Layout) -> Result<Charge<'_>, AllocError> {
        loop {
            match self.charges.used.try_reserve(bytes, self.limit) {
                Ok(_) => {
                    return Ok(Charge {
                        used: &self.charges.used,
                        bytes,
                    });
                }
                Err(in_use) => {
                    if bytes > self.limit || !self.reclaim(bytes) {
                        let kind = AllocErrorKind::LimitExceeded;
                        return Err(AllocError::new(kind, bytes, layout.align(), self.name())
                            .with_limit(in_use, 0, self.limit));
                    }
                }
            }
        }
    }

    /// Whether the callback freed something.
    #[cold]
    fn reclaim(&self, bytes: usize) -> bool {
        thread_local! {
            static RECLAIMING: Cell<bool> = const { Cell::new(false) };
        }
        let Some(reclaim) = &self.reclaim else {
            return false;
        };
        // A callback's own allocation: the callback that runs already does what can be done.
        let freed = report::unless_running(&RECLAIMING, || report::caught(|| reclaim(bytes)));
        freed.flatten().is_some_and(|bytes| bytes > 0)
    }
}

/// What a node has charged.
struct Charges {
    name: &'static str,
    used: Reserve,
    /// Whether what does not balance is reported.
    strict: bool,
}

impl Charges {
    /// Takes back a charge of `bytes` bytes, whose memory is back already; where this is strict, no
    /// more than there is.
    fn discharge(&self, bytes: usize) {
        let charged = self.used.used();
        // The charge of a block that comes back is among them, so fewer prove an imbalance.
        if self.strict && charged < bytes {
            self.report(charged, bytes - charged);
            self.used.release(charged);
        } else {
            self.used.release(bytes);
        }
    }

    #[cold]
    fn report(&self, charged: usize, excess: usize) {
        report::emit(&Report::UnbalancedLimit {
            name: self.name,
            charged,
            excess,
        });
    }
}

impl Drop for Charges {
    fn drop(&mut self) {
        let charged = self.used.used();
        if self.strict && charged > 0 {
            self.report(charged, 0);
        }
    }
}

/// A charge that is refunded unless it is kept.
struct Charge<'a> {
    used: &'a Reserve,
    bytes: usize,
}

impl Charge<'_> {
    fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.used.release(self.bytes);
        }
    }
}

impl<A: BufferAllocator> Limited<A> {
    /// A block from `allocate`, charged before it is asked for.
    fn serve(
        &self,
        layout: Layout,
        allocate: impl FnOnce(&A, Layout) -> Result<NonNull<[u8]>, AllocError>,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let bytes = self.capacity(layout);
        if bytes == 0 {
            return Ok(empty(layout));
        }
        let charge = self.charge(bytes, layout)?;
        let block = allocate(&self.inner, layout)?;
        charge.keep();
        Ok(cut(block, bytes))
    }
}

// SAFETY: blocks are the inner allocator's, cut to its capacity for their layout: every layout that
// fits the cut block fits the inner one. Callbacks' panics are caught.
unsafe impl<A: BufferAllocator> BufferAllocator for Limited<A> {
    fn capacity(&self, layout: Layout) -> usize {
        if layout.size() == 0 {
            0
        } else {
            self.inner.capacity(layout)
        }
    }

    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.serve(layout, A::allocate)
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.serve(layout, A::allocate_zeroed)
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        let bytes = self.capacity(layout);
        if bytes == 0 {
            return;
        }
        // SAFETY: the caller's promise; a block with bytes is the inner allocator's.
        unsafe { self.inner.deallocate(ptr, layout) };
        self.charges.discharge(bytes);
    }

    unsafe fn grow(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let (before, after) = (self.capacity(old), self.capacity(new));
        if before == 0 {
            return self.allocate(new);
        }
        let charge = if before == after {
            None
        } else {
            Some(self.charge(after, new)?)
        };
        // SAFETY: the caller's promise; a block with bytes is the inner allocator's.
        let block = unsafe { self.inner.grow(ptr, old, new) }?;
        if let Some(charge) = charge {
            charge.keep();
            self.charges.discharge(before);
        }
        Ok(cut(block, after))
    }

    unsafe fn shrink(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let (before, after) = (self.capacity(old), self.capacity(new));
        if after == 0 {
            // SAFETY: the caller's promise, passed on.
            unsafe { self.deallocate(ptr, old) };
            return Ok(empty(new));
        }
        // A larger alignment may make even a shorter block larger.
        let charge = match after.checked_sub(before) {
            Some(more) if more > 0 => Some(self.charge(more, new)?),
            _ => None,
        };
        // SAFETY: the caller's promise; a block with bytes is the inner allocator's.
        let block = unsafe { self.inner.shrink(ptr, old, new) }?;
        match charge {
            Some(charge) => charge.keep(),
            None => self.charges.discharge(before - after),
        }
        Ok(cut(block, after))
    }
}

impl<A: fmt::Debug> fmt::Debug for Limited<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limited")
            .field("name", &self.name())
            .field("limit", &self.limit)
            .field("used", &self.used())
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
