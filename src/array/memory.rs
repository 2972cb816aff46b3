//! Where the memory of a result comes from: the pool of an operand, else the ambient pool.

#![allow(unsafe_code)]

use core::cell::RefCell;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use std::sync::{Arc, OnceLock};

use crate::allocator::BufferAllocator;
use crate::block::Block;
use crate::buffer::Buffer;
use crate::element::Element;
use crate::error::AllocError;
use crate::pool::Pool;
use crate::thread;
use crate::tiers;

thread_local! {
    static ENTERED: RefCell<Entries> = const { RefCell::new(Entries { next: 0, pools: Vec::new() }) };
}

struct Entries {
    next: u64,
    pools: Vec<(u64, Pool)>,
}

/// The pool of constructors that name none, where no pool was entered. It is never closed.
static DEFAULT: OnceLock<Pool> = OnceLock::new();

/// While it lives, constructors on this thread that name no pool use this one. Of several, the one
/// entered last counts; they may be dropped in any order.
#[must_use = "the pool is left when this is dropped"]
#[derive(Debug)]
pub struct Entered {
    id: u64,
    /// The entry is this thread's.
    stays: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // The pool is dropped after the borrow: that may run its source's code.
        let _left = ENTERED.try_with(|entries| {
            let mut entries = entries.borrow_mut();
            let place = entries.pools.iter().position(|&(id, _)| id == self.id)?;
            Some(entries.pools.remove(place))
        });
    }
}

impl Pool {
    /// Makes this the ambient pool of the thread until the guard is dropped: constructors such as
    /// [`array::zeros`](super::zeros) use it.
    pub fn enter(&self) -> Entered {
        let pool = self.clone();
        let id = ENTERED.with(|entries| {
            let mut entries = entries.borrow_mut();
            let id = entries.next;
            entries.next += 1;
            entries.pools.push((id, pool));
            id
        });
        Entered {
            id,
            stays: PhantomData,
        }
    }

    /// The pool that this thread has entered last, else the process's default pool, which is made
    /// at the first use.
    ///
    /// # Errors
    /// [`AllocError`] if the default pool cannot be made.
    pub fn ambient() -> Result<Self, AllocError> {
        let entered = ENTERED
            .try_with(|entries| entries.borrow().pools.last().map(|(_, pool)| pool.clone()))
            .ok()
            .flatten();
        if let Some(pool) = entered.or_else(|| DEFAULT.get().cloned()) {
            return Ok(pool);
        }
        let fresh = Self::builder().try_build()?;
        Ok(DEFAULT.get_or_init(|| fresh).clone())
    }
}

/// Where a result's memory comes from.
#[derive(Clone, Copy)]
pub struct Memory<'a>(Place<'a>);

#[derive(Clone, Copy)]
enum Place<'a> {
    Ambient,
    Pool(&'a Pool),
    /// The pool of a block that lives for `'a`.
    Beside(&'static Block, PhantomData<&'a ()>),
}

impl<'a> Memory<'a> {
    pub(crate) fn ambient() -> Self {
        Self(Place::Ambient)
    }

    pub(crate) fn of_pool(pool: &'a Pool) -> Self {
        Self(Place::Pool(pool))
    }

    /// The pool of a block; the ambient pool if it has none.
    ///
    /// # Safety
    /// The caller owns a share of the block for `'a`.
    #[inline]
    pub(crate) unsafe fn beside(block: &'static Block) -> Self {
        // SAFETY: the caller's promise.
        if unsafe { block.core() }.is_null() {
            Self(Place::Ambient)
        } else {
            Self(Place::Beside(block, PhantomData))
        }
    }

    /// This one, or the other where this one names no pool.
    pub(crate) fn or(self, other: Self) -> Self {
        match self.0 {
            Place::Ambient => other,
            _ => self,
        }
    }

    /// A buffer of `len` elements with unspecified contents.
    #[inline]
    pub(crate) fn take<T: Element>(self, len: usize) -> Result<Buffer<MaybeUninit<T>>, AllocError> {
        match self.0 {
            Place::Ambient => Pool::ambient()?.allocate(len),
            Place::Pool(pool) => pool.allocate(len),
            Place::Beside(block, _) => {
                let bytes = tiers::bytes_of::<T>(len)?;
                // SAFETY: the block lives for `'a`.
                let taken = unsafe { tiers::beside(block, bytes, align_of::<T>()) }?;
                // SAFETY: just taken, large enough and aligned; uninitialised elements are valid.
                Ok(unsafe { Buffer::from_taken(taken, len) })
            }
        }
    }

    /// A buffer of the elements of an iterator.
    pub(crate) fn collect<T: Element>(
        self,
        elements: impl IntoIterator<Item = T>,
    ) -> Result<Buffer<T>, AllocError> {
        match self.0 {
            Place::Pool(pool) => pool.collect(elements),
            _ => Pool::ambient()?.collect(elements),
        }
    }

    /// A buffer of `len` zero elements.
    pub(crate) fn take_zeroed<T: Element>(self, len: usize) -> Result<Buffer<T>, AllocError> {
        match self.0 {
            Place::Ambient => Pool::ambient()?.zeroed(len),
            Place::Pool(pool) => pool.zeroed(len),
            Place::Beside(block, _) => {
                // SAFETY: the block lives for `'a`.
                let core = unsafe { block.core() };
                // SAFETY: cores are cells of a static arena, and `beside` has seen that this is one.
                let core = unsafe { &*core };
                let bytes = tiers::bytes_of::<T>(len)?;
                let place = thread::Place::of(core);
                // SAFETY: the block keeps the pool alive.
                let taken = unsafe { tiers::take_zeroed(core, place, bytes, align_of::<T>()) }?;
                // SAFETY: just taken and zero, which is valid for every element type.
                Ok(unsafe { Buffer::from_taken(taken, len) })
            }
        }
    }
}

/// A zeroed buffer in memory of any allocator.
pub(crate) fn zeroed_in<T: Element>(
    len: usize,
    allocator: Arc<dyn BufferAllocator>,
) -> Result<Buffer<T>, AllocError> {
    let bytes = tiers::bytes_of::<T>(len)?;
    let layout = core::alloc::Layout::from_size_align(bytes, align_of::<T>().max(64))
        .map_err(|_| super::layout::overflow::<T>())?;
    let (block, ptr, _) = Buffer::<u8>::new_in(layout, allocator)?.into_parts();
    // SAFETY: the block is ours, large enough and aligned for the elements, and zero.
    Ok(unsafe { Buffer::from_claimed(block, ptr.cast::<T>(), len) })
}
