//! Names for buffers that are not owners, and owners that are only names: [`Handle`], [`Token`].

#![allow(unsafe_code)]

use core::any::TypeId;
use core::ptr::NonNull;

use crate::block::{self, Block, ElementTag, LEASES, RECORDED, WORLD};
use crate::element::Element;
use crate::kernel::lease::{self, Content};
use crate::kernel::state;
use crate::report::{self, Report};
use crate::shared::SharedBuffer;
use crate::sync::Counter;
use crate::watch;

static STALE: Counter = Counter::new();
static STRAYS: Counter = Counter::new();

/// Upgrades refused in this process so far.
pub fn stale_upgrades() -> u64 {
    STALE.get()
}

/// Tokens refused in this process so far.
pub fn stray_releases() -> u64 {
    STRAYS.get()
}

/// Why a handle was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StaleReason {
    /// The buffer was released, or its memory serves another one by now; or there never was such a
    /// buffer.
    Gone,
    /// The buffer is alive and holds elements of another type.
    OtherElement,
}

/// A handle does not name a living buffer of the type asked for. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("handle {handle:#018x} is stale: {reason:?}")]
#[non_exhaustive]
pub struct Stale {
    /// Bits of the handle.
    pub handle: u64,
    /// Why.
    pub reason: StaleReason,
}

/// A token does not name a live lease: released or redeemed before, or never made; or its buffer
/// holds elements of another type. No owner was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {token:#018x} is stray: {reason:?}")]
#[non_exhaustive]
pub struct StrayRelease {
    /// Bits of the token.
    pub token: u64,
    /// Why.
    pub reason: StaleReason,
}

/// A name of a shared buffer that owns nothing: 64 bits that may be copied, stored, forged, and
/// asked for at any time, on any thread, after anything died.
///
/// Every method is a look or one compare-exchange loop on the buffer's state word; a stale handle
/// never touches the pool. A handle does not keep its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(u64);

impl Handle {
    pub(crate) fn new(index: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(index))
    }

    /// The handle as a number.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// A handle from a number; any number will do.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn block(self) -> Option<&'static Block> {
        WORLD.blocks.get(self.0 as u32)
    }

    fn stale(self, reason: StaleReason) -> Stale {
        STALE.add(1);
        Stale {
            handle: self.0,
            reason,
        }
    }

    /// An owner of the whole buffer, if it is alive and was shared with elements of type `T`.
    ///
    /// # Errors
    /// [`Stale`], without a write to the buffer's state unless only the type is wrong.
    pub fn upgrade<T: Element>(self) -> Result<SharedBuffer<T>, Stale> {
        let block = self.block().ok_or_else(|| self.stale(StaleReason::Gone))?;
        block
            .state
            .upgrade(self.generation())
            .map_err(|state::Stale| self.stale(StaleReason::Gone))?;
        // SAFETY: the upgrade made us an owner.
        let (base, len, element) = unsafe { block.payload(|p| (p.base, p.len, p.element)) };
        if element() != TypeId::of::<T>() {
            // SAFETY: our share, given up.
            unsafe { block::release(block) };
            return Err(self.stale(StaleReason::OtherElement));
        }
        // SAFETY: the base of a shared block is not null.
        let ptr = unsafe { NonNull::new_unchecked(base) }.cast();
        // SAFETY: our share; the owner that shared the block recorded these.
        Ok(unsafe { SharedBuffer::from_share(block, ptr, len) })
    }

    /// Whether the buffer of this handle is released (or never was), now or shortly before.
    #[must_use]
    pub fn is_released(self) -> bool {
        self.owners() == 0
    }

    /// Whether the buffer of this handle has one owner, now or shortly before.
    #[must_use]
    pub fn is_unique(self) -> bool {
        self.owners() == 1
    }

    /// Owners of the buffer of this handle, now or shortly before; 0 once it is released.
    #[must_use]
    pub fn owners(self) -> u32 {
        let Some(block) = self.block() else { return 0 };
        let now = block.state.load();
        if now.generation() == self.generation() && !now.is_released() {
            now.owners()
        } else {
            0
        }
    }
}

/// An owner in 64 bits, for languages that can hold a number and no destructor.
///
/// Each token has a lease of its own: it can be released or redeemed once, and a second time is a
/// [`StrayRelease`] for ever, which touches no other owner. All functions are safe, on any thread;
/// a token that is never released keeps its buffer.
#[must_use = "a token that is dropped keeps its buffer for ever"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(u64);

impl<T: Element> SharedBuffer<T> {
    /// Moves this owner into a token.
    ///
    /// # Errors
    /// The view itself, if no lease is left in the process.
    pub fn into_token(self) -> Result<Token, Self> {
        let content = Content {
            target: self.handle().to_bits(),
            start: self.as_ptr().addr(),
            len: self.len(),
            element: (TypeId::of::<T> as ElementTag as *const ()).expose_provenance(),
        };
        match lease::lease(&LEASES, content) {
            Ok(name) => {
                remember(name, &self);
                let _leased = self.into_parts();
                Ok(Token(name))
            }
            Err(_) => Err(self),
        }
    }
}

impl Token {
    /// The token as a number.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// A token from a number; any number will do, and only a live one can be used.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    fn stray(self, reason: StaleReason) -> StrayRelease {
        STRAYS.add(1);
        if reason == StaleReason::Gone
            && lease::peek(&LEASES, self.0).is_err()
            && let Some((capacity, history)) = watch::lease::history(self.0)
        {
            report::emit(&Report::StrayToken {
                token: self.0,
                capacity,
                history,
            });
        }
        StrayRelease {
            token: self.0,
            reason,
        }
    }

    /// Gives this owner up: the last one gives the memory back.
    ///
    /// # Errors
    /// [`StrayRelease`] if the token was released or redeemed before.
    pub fn release(self) -> Result<(), StrayRelease> {
        if self.release_once() {
            Ok(())
        } else {
            Err(self.stray(StaleReason::Gone))
        }
    }

    /// Makes the token an owner in Rust again; the token is used up.
    ///
    /// # Errors
    /// [`StrayRelease`] if the token was released or redeemed before, or holds elements of another
    /// type; in the latter case it stays live.
    pub fn redeem<T: Element>(self) -> Result<SharedBuffer<T>, StrayRelease> {
        let content = lease::peek(&LEASES, self.0).map_err(|_| self.stray(StaleReason::Gone))?;
        if element_of(&content)() != TypeId::of::<T>() {
            return Err(self.stray(StaleReason::OtherElement));
        }
        let Some((block, content)) = self.end() else {
            return Err(self.stray(StaleReason::Gone));
        };
        // SAFETY: the lease's share is ours; the view was valid when it was leased.
        Ok(unsafe { SharedBuffer::from_share(block, start_of(block, &content), content.len) })
    }

    /// A second token of the same view, with a share of its own.
    ///
    /// # Errors
    /// [`StrayRelease`] if the token was released or redeemed before, or no lease is left.
    pub fn clone_token(self) -> Result<Self, StrayRelease> {
        let Some((block, content)) = self.add() else {
            return Err(self.stray(StaleReason::Gone));
        };
        match lease::lease(&LEASES, content) {
            Ok(name) => {
                watch::lease::cloned(self.0, name);
                Ok(Self(name))
            }
            Err(_) => {
                // SAFETY: the share that was added.
                unsafe { block::release(block) };
                Err(self.stray(StaleReason::Gone))
            }
        }
    }

    /// Ends the lease, exactly once: its share of the block is the caller's.
    fn end(self) -> Option<(&'static Block, Content)> {
        let content = lease::end(&LEASES, self.0).ok()?;
        let block = Handle(content.target).block();
        let block = block.expect("a lease holds a share of a block");
        // SAFETY: the lease's share is ours.
        if unsafe { block.label() }.flags & RECORDED != 0 {
            watch::lease::ended(self.0);
        }
        Some((block, content))
    }

    /// One share more of the leased block, while the lease is live: it is the caller's.
    fn add(self) -> Option<(&'static Block, Content)> {
        let content = lease::peek(&LEASES, self.0).ok()?;
        let handle = Handle(content.target);
        let block = handle.block()?;
        // A release of this token meanwhile may have been the last: then the CAS refuses.
        block.state.upgrade(handle.generation()).ok()?;
        Some((block, content))
    }

    /// Releases the lease's share; says whether it was this call that ended the lease.
    pub(crate) fn release_once(self) -> bool {
        let Some((block, _)) = self.end() else {
            return false;
        };
        // SAFETY: the lease's share, which ended exactly once.
        unsafe { block::release(block) };
        true
    }
}

/// For arrays that many threads may dispose: a miss is no stray there.
#[cfg(feature = "ndarray")]
impl Token {
    /// Whether the lease is live, now or shortly before.
    pub(crate) fn is_live(self) -> bool {
        lease::peek(&LEASES, self.0).is_ok()
    }

    /// Another owner of the leased view, while the lease is live.
    ///
    /// # Safety
    /// The token was made from a buffer of `T`.
    pub(crate) unsafe fn look<T: Element>(self) -> Option<SharedBuffer<T>> {
        let (block, content) = self.add()?;
        // SAFETY: the added share; the view was valid when it was leased, and the generation is
        // the same.
        Some(unsafe { SharedBuffer::from_share(block, start_of(block, &content), content.len) })
    }
}

/// Remembers whose a token is, where the pool wants to know.
fn remember<T: Element>(token: u64, view: &SharedBuffer<T>) {
    if view.is_recorded() {
        let block = view.block();
        // SAFETY: the view owns a share.
        let life = unsafe { watch::life(block) };
        watch::lease::made(token, block.index(), life, view.retained_bytes());
    }
}

/// The element tag of a lease's content.
fn element_of(content: &Content) -> ElementTag {
    let tag = core::ptr::with_exposed_provenance::<()>(content.element);
    // SAFETY: `into_token` stored the address of an `ElementTag`, and the lease's generation has
    // proved that the content is its own.
    unsafe { core::mem::transmute::<*const (), ElementTag>(tag) }
}

/// First element of a leased view.
fn start_of<T>(block: &'static Block, content: &Content) -> NonNull<T> {
    // SAFETY: the lease's share is the caller's.
    let base = unsafe { block.payload(|payload| payload.base) };
    // SAFETY: a leased view is not null, and lies in its block.
    unsafe { NonNull::new_unchecked(base.with_addr(content.start).cast()) }
}

static_assertions::assert_impl_all!(Handle: Copy, Send, Sync);
static_assertions::const_assert_eq!(size_of::<Handle>(), 8);
static_assertions::const_assert_eq!(size_of::<Token>(), 8);
