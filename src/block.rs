//! The kernel bound to real memory: what a control block says of its payload, and how a payload of
//! each kind dies.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::any::TypeId;
use core::cell::Cell;
use core::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use crate::class;
use crate::clock::Clock;
use crate::constants;
use crate::kernel;
use crate::kernel::backing::{Backing, Note};
use crate::kernel::block::{Label, UNCLASSED};
use crate::kernel::cache::Class;
use crate::kernel::lease::Lease;
use crate::kernel::ledger::Policy;
use crate::kernel::pagemap::{GRAIN, PageMap};
use crate::kernel::state::Released;
use crate::report::{self, Report};
use crate::source::Source;
#[cfg(feature = "tracing")]
use crate::telemetry;
use crate::thread::{self, Place};
use crate::timeline::EventKind;
use crate::timeline::ring::Ring;
use crate::trimmer;
use crate::tuning::CLASSES;
use crate::watch::Watch;

/// A control block of the process.
pub(crate) type Block = kernel::block::Block<Bound>;
/// A pool's core.
pub(crate) type Core = kernel::core::Core<Bound>;
/// A thread's cache of one pool.
pub(crate) type Cache = kernel::cache::Cache<Bound>;
/// A thread slot.
pub(crate) type Slot = kernel::slots::Slot<Bound>;

/// Every control block, magazine, cache, thread slot and core of the process.
pub(crate) static WORLD: kernel::core::World<Bound> = kernel::core::World::new();
/// Every lease of the process.
pub(crate) static LEASES: kernel::arena::Arena<Lease> = kernel::arena::Arena::new();
/// Blocks that were lent by address, since their birth.
pub(crate) static PAGE_MAP: PageMap = PageMap::new();

/// What a view owns while its buffer is lent out to be written: nothing, for ever.
pub(crate) static NOTHING: Block = Block::immortal();

static_assertions::const_assert_eq!(size_of::<Block>(), 64);
static_assertions::const_assert_eq!(align_of::<Block>(), 64);
static_assertions::const_assert_eq!(size_of::<crate::kernel::core::Store>(), 128);
static_assertions::assert_impl_all!(Block: Send, Sync);

/// A scope gives the memory of a block away: it is no leak of that scope.
///
/// # Safety
/// The block is the caller's, alone or shared.
#[cfg(feature = "ndarray")]
pub(crate) unsafe fn mark_survivor(block: &'static Block) {
    // SAFETY: the caller's promise.
    if unsafe { block.label() }.flags & RECORDED != 0 {
        crate::watch::record::survived(block.index());
    }
}

/// Where the page map has the block whose memory is at `address`. Payloads are aligned as it asks,
/// but for guarded ones: these begin anywhere, and no two lie on one page.
pub(crate) fn map_key(address: usize) -> usize {
    address - address % GRAIN
}

/// Names an element type without a registry: the function is called, never compared.
pub(crate) type ElementTag = fn() -> TypeId;

/// What a control block says of its memory.
#[derive(Debug)]
pub(crate) struct Payload {
    /// First byte.
    pub(crate) base: *mut u8,
    /// Usable bytes.
    pub(crate) capacity: usize,
    /// The source's or the owner's own word.
    pub(crate) token: usize,
    /// Shared: length in elements.
    pub(crate) len: usize,
    /// Shared: the element type.
    pub(crate) element: ElementTag,
}

/// What kind of memory a block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// From the pool's source.
    Pooled,
    /// No memory: a size of 0.
    Empty,
    /// Somebody else's, held by an owner object; the token is a `Box<Holder>`.
    Foreign,
    /// Borrowed for ever.
    Borrowed,
}

impl Kind {
    pub(crate) fn of(label: Label) -> Self {
        match label.kind {
            0 => Self::Pooled,
            1 => Self::Empty,
            2 => Self::Foreign,
            _ => Self::Borrowed,
        }
    }
}

/// Flag of a label: the memory must not be written.
pub(crate) const READ_ONLY: u8 = 1;

/// Flag of a label: the block is in the page map.
pub(crate) const MAPPED: u8 = 2;
/// Flag of a label: the block is out with a borrower that will bring a pointer back.
pub(crate) const LENT: u8 = 4;
/// Flag of a label: the block came back to a watched pool, which has seen to its contents.
pub(crate) const RESTED: u8 = 8;
/// Flag of a label: it is recorded who took the block.
pub(crate) const RECORDED: u8 = 16;

/// What holds foreign memory; dropping it gives the memory back to where it came from.
pub(crate) type Holder = Box<dyn Send>;

/// A callback that frees memory of the user's own when a limit is reached: gets the bytes that are
/// wanted, says whether it freed something.
pub(crate) type Reclaim = Arc<dyn Fn(usize) -> bool + Send + Sync>;

/// A pool's source and configuration.
pub(crate) struct Bound {
    pub(crate) source: Box<dyn Source>,
    pub(crate) policy: Policy,
    pub(crate) budget: usize,
    /// Classes from this one on are not pooled.
    pub(crate) classes: usize,
    pub(crate) charges: Box<[usize; CLASSES]>,
    pub(crate) rounds: Box<[u8; CLASSES]>,
    pub(crate) reclaim: Option<Reclaim>,
    /// Classes above its own that may serve a request.
    pub(crate) reuse: usize,
    /// What stays unused for so long goes back.
    pub(crate) interval: Duration,
    /// The interval of the background trimmer, if the pool has one.
    pub(crate) trimmer: Option<Duration>,
    pub(crate) clock: Clock,
    /// Where events are recorded, if anywhere.
    pub(crate) timeline: Option<Ring>,
    /// The checks of the pool, if it has any, or if its timeline records operations; then no thread's hit path serves it.
    pub(crate) watch: Option<Box<Watch>>,
}

impl Bound {
    /// Asks the user's callback to free something; with no lock held. What a callback itself
    /// allocates is refused at once where it meets a limit. A panic in it frees nothing.
    pub(crate) fn reclaim(&self, bytes: usize) -> bool {
        thread_local! {
            static RECLAIMING: Cell<bool> = const { Cell::new(false) };
        }
        let Some(reclaim) = &self.reclaim else {
            return false;
        };
        let mut freed = false;
        report::unless_running(&RECLAIMING, || guarded(|| freed = reclaim(bytes)));
        freed
    }

    /// A block was given to a user or comes back from one: recorded if the timeline wants it.
    ///
    /// # Safety
    /// The block, of this pool, is the caller's.
    pub(crate) unsafe fn operated(&self, kind: EventKind, block: &Block) {
        if let Some(timeline) = self.timeline.as_ref().filter(|it| it.wants_operations()) {
            // SAFETY: the caller's block.
            let label = unsafe { block.label() };
            // SAFETY: as above.
            let bytes = unsafe { block.payload(|payload| self.charge(label, payload)) };
            timeline.record(kind, label.class, 1, bytes);
        }
    }

    /// A request for `bytes` bytes was turned down, by the limit or by the source.
    #[cold]
    pub(crate) fn turned_down(&self, kind: EventKind, bytes: usize) {
        if let Some(timeline) = &self.timeline {
            timeline.record(kind, UNCLASSED, 0, bytes);
        }
        #[cfg(feature = "tracing")]
        report::caught(|| telemetry::events::turned_down(kind, bytes));
    }

    /// Whether every block is to end at a guard.
    pub(crate) fn is_guarding(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.is_guarding())
    }

    /// Largest class whose resting blocks may serve a request of `class`.
    pub(crate) fn last_serving(&self, class: usize) -> usize {
        if class >= FIRST_REUSING {
            class.saturating_add(self.reuse).min(self.classes - 1)
        } else {
            class
        }
    }
}

/// Classes from here on may be served by a larger resting block.
const FIRST_REUSING: usize = class::of(constants::pool::REUSE_FROM);

impl Backing for Bound {
    type Payload = Payload;
    const NO_PAYLOAD: Payload = Payload {
        base: core::ptr::null_mut(),
        capacity: 0,
        token: 0,
        len: 0,
        element: TypeId::of::<()>,
    };
    const BLOCKS_PER_SLAB: usize = constants::pool::BLOCKS_PER_SLAB;
    const MAGAZINES_PER_SLAB: usize = constants::pool::MAGAZINES_PER_SLAB;
    const CACHES_PER_SLAB: usize = constants::pool::CACHES_PER_SLAB;
    const SLOTS_PER_SLAB: usize = constants::pool::SLOTS_PER_SLAB;
    const CORES_PER_SLAB: usize = constants::pool::CORES_PER_SLAB;

    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn class_charge(&self, class: usize) -> usize {
        self.charges[class]
    }

    fn charge(&self, label: Label, payload: &Payload) -> usize {
        match Kind::of(label) {
            Kind::Pooled if label.class != UNCLASSED => self.charges[usize::from(label.class)],
            Kind::Pooled => self.source.footprint(layout_of(label, payload)),
            Kind::Empty | Kind::Foreign | Kind::Borrowed => 0,
        }
    }

    fn rounds(&self, class: usize) -> u32 {
        u32::from(self.rounds[class])
    }

    fn budget(&self) -> usize {
        self.budget
    }

    fn berths(&self) -> u32 {
        if self.budget == 0 {
            0
        } else {
            constants::pool::BERTHS
        }
    }

    fn is_unattended(&self) -> bool {
        self.trimmer.is_some() && trimmer::is_alone()
    }

    fn stirred(&self) {
        if self.trimmer.is_some() {
            trimmer::stirred();
        }
    }

    fn note(&self, note: Note) {
        if let Some(timeline) = &self.timeline {
            timeline.note(note);
        }
        #[cfg(feature = "tracing")]
        report::caught(|| telemetry::events::note(note));
    }

    fn closed(&self) {
        if let Some(watch) = &self.watch {
            watch.drain();
        }
    }

    fn end(self) {
        guarded(|| drop(self));
    }

    fn dealloc(&self, label: Label, payload: &Payload) {
        match Kind::of(label) {
            Kind::Pooled => {
                let base = NonNull::new(payload.base).expect("a pooled block has memory");
                let layout = layout_of(label, payload);
                if label.flags & MAPPED != 0 {
                    PAGE_MAP.remove(map_key(payload.base.addr()));
                }
                if let Some(watch) = &self.watch {
                    // SAFETY: the block is the dying one's alone.
                    unsafe { watch.dying(label, payload) };
                }
                guarded(|| {
                    // SAFETY: the block's memory came from this source with this layout and
                    // token, and the kernel calls this once, at the block's death.
                    unsafe { self.source.dealloc(base, layout, payload.token) };
                });
            }
            Kind::Foreign => release_foreign(payload.token),
            Kind::Empty | Kind::Borrowed => {}
        }
    }
}

/// The layout with which a pooled block's memory was asked for.
pub(crate) fn layout_of(label: Label, payload: &Payload) -> Layout {
    Layout::from_size_align(payload.capacity, 1 << label.align)
        .expect("the layout was valid at the birth")
}

/// Alignment of every block of `capacity` bytes, when the request asks for no more.
pub(crate) fn natural_align(capacity: usize) -> usize {
    let page = crate::os::page_size();
    if capacity >= constants::source::HUGE_PAGE {
        constants::source::HUGE_PAGE
    } else if capacity >= page {
        page
    } else {
        constants::pool::MIN_ALIGN
    }
}

/// Capacity and alignment of the blocks of `class`.
pub(crate) fn class_layout(class: usize) -> Layout {
    let capacity = class::capacity(class);
    Layout::from_size_align(capacity, natural_align(capacity)).expect("a class fits in memory")
}

/// Wraps a holder of foreign memory into a token.
pub(crate) fn foreign_token(holder: Holder) -> usize {
    Box::into_raw(Box::new(holder)).expose_provenance()
}

/// Drops what a foreign block's token holds.
fn release_foreign(token: usize) {
    let holder = core::ptr::with_exposed_provenance_mut::<Holder>(token);
    // SAFETY: made by `foreign_token`, and released once, at the block's death.
    let holder = unsafe { Box::from_raw(holder) };
    guarded(|| drop(holder));
}

/// Runs somebody else's release code. A panic in it ends here: it is counted and reported, and the
/// pool's own accounting goes on.
fn guarded(release: impl FnOnce()) {
    if report::caught(release).is_none() {
        report::emit(&Report::ReleasePanicked);
    }
}

/// Gives a block back that nobody owns any more: to the pool it came from, or to the holder of its
/// foreign memory.
///
/// # Safety
/// The block is the caller's alone; the caller gives it up.
#[inline]
pub(crate) unsafe fn give(block: &'static Block) {
    // SAFETY: the caller's block.
    let core = unsafe { block.core() };
    // SAFETY: cores are cells of a static arena.
    if let Some(core) = unsafe { core.as_ref() } {
        // SAFETY: the caller's block.
        let class = unsafe { block.label() }.class;
        // SAFETY: the block's own class and pool.
        if unsafe { thread::push(Place::of(core), Class::new(class.into()), block) } {
            return;
        }
    }
    // SAFETY: the caller's block.
    unsafe { give_slow(block) };
}

/// The rest of [`give`], when the thread's cache refuses.
///
/// # Safety
/// As [`give`].
#[cold]
#[inline(never)]
pub(crate) unsafe fn give_slow(block: &'static Block) {
    // SAFETY: the caller's block.
    let core = unsafe { block.core() };
    // SAFETY: the caller's block.
    let label = unsafe { block.label() };
    // SAFETY: cores are cells of a static arena.
    let Some(core) = (unsafe { core.as_ref() }) else {
        if Kind::of(label) == Kind::Foreign {
            // SAFETY: the caller's block.
            release_foreign(unsafe { block.payload(|payload| payload.token) });
        }
        if block.state.load().generation() < crate::tuning::LAST_GENERATION {
            WORLD.blocks.release(block.index());
        }
        return;
    };
    // SAFETY: the block keeps the pool alive.
    let backing = unsafe { core.backing() };
    if let Some(watch) = &backing.watch {
        // SAFETY: the caller's block, of this pool.
        unsafe { watch.given(block) };
        // SAFETY: the caller's block, given up.
        if unsafe { watch.hold(core, block) } {
            return;
        }
    }
    // SAFETY: the caller's block, given up.
    unsafe { give_to_tiers(core, backing, block) };
}

/// Gives a block to the tiers of its pool that was held back by the pool's checks.
///
/// # Safety
/// The block, of a pool, is the caller's alone; the caller gives it up.
pub(crate) unsafe fn give_home(block: &'static Block) {
    // SAFETY: the caller's block.
    let core = unsafe { block.core() };
    // SAFETY: cores are cells of a static arena.
    let core = unsafe { core.as_ref() }.expect("the block is of a pool");
    // SAFETY: the block keeps the pool alive.
    let backing = unsafe { core.backing() };
    // SAFETY: the caller's block, given up.
    unsafe { give_to_tiers(core, backing, block) };
}

/// Gives a block to the tiers of its pool.
///
/// # Safety
/// The block, of the pool, is the caller's alone; the caller gives it up.
unsafe fn give_to_tiers(core: &'static Core, backing: &Bound, block: &'static Block) {
    // SAFETY: the caller's block.
    unsafe { backing.operated(EventKind::Drop, block) };
    // SAFETY: the caller's block.
    let cache = if unsafe { block.label() }.class == UNCLASSED {
        None
    } else {
        // SAFETY: the block keeps the pool alive.
        unsafe { thread::cache(core) }
    };
    // SAFETY: as above; the cache is this thread's, bound to the pool.
    unsafe { trimmer::tick(core, backing, cache) };
    // SAFETY: the caller's block, given up.
    unsafe { core.give_slow(cache, block) };
}

/// One share of a block fewer; the last one gives the block back.
///
/// # Safety
/// The caller owned a share and gives it up.
#[inline]
pub(crate) unsafe fn release(block: &'static Block) {
    if let Released::Last { retire } = block.state.release() {
        // SAFETY: the last owner has claimed the block.
        unsafe { give_last(block, retire) };
    }
}

/// Gives back a block that its last owner, or a forced release, has claimed.
///
/// # Safety
/// The caller has claimed the block and gives it up.
#[inline]
pub(crate) unsafe fn give_last(block: &'static Block, retire: bool) {
    if retire {
        // SAFETY: the caller's block.
        unsafe { give_retired(block) };
    } else {
        // SAFETY: the caller's block.
        unsafe { give(block) };
    }
}

/// T10: the memory moves on with a fresh control block; without one it dies with the old.
///
/// # Safety
/// As [`give_last`].
#[cold]
unsafe fn give_retired(block: &'static Block) {
    // SAFETY: the caller's block.
    let core = unsafe { block.core() };
    // SAFETY: cores are cells of a static arena.
    let renewed = match unsafe { core.as_ref() } {
        // SAFETY: the caller's block.
        Some(core) => unsafe { core.renew(block) },
        None => None,
    };
    match renewed {
        Some(fresh) => {
            // SAFETY: cores are cells of a static arena.
            if let Some(core) = unsafe { core.as_ref() }
                // SAFETY: the fresh block keeps the pool alive.
                && let Some(watch) = &unsafe { core.backing() }.watch
            {
                watch.renewed(block, fresh);
            }
            // SAFETY: the fresh block is ours alone.
            if unsafe { fresh.label() }.flags & MAPPED != 0 {
                // SAFETY: as above.
                let address = unsafe { fresh.payload(|payload| payload.base.addr()) };
                let entered = PAGE_MAP.insert(map_key(address), fresh.index());
                debug_assert!(entered.is_ok(), "the address was entered before");
            }
            // SAFETY: it took over the memory and the pool's share.
            unsafe { give(fresh) };
        }
        None => {
            // SAFETY: the caller's block.
            match unsafe { core.as_ref() } {
                Some(core) => {
                    // SAFETY: the block keeps the pool alive.
                    let backing = unsafe { core.backing() };
                    if let Some(watch) = &backing.watch {
                        // SAFETY: the caller's block, of this pool.
                        unsafe { watch.given(block) };
                    }
                    // SAFETY: as above.
                    unsafe { backing.operated(EventKind::Drop, block) };
                    // SAFETY: the caller's block.
                    unsafe { core.death(block) };
                }
                // SAFETY: the caller's block.
                None => unsafe { give_slow(block) },
            }
        }
    }
}
