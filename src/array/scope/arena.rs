//! Where a scope keeps what its handles point to: nodes in pooled chunks, on one intrusive list.

#![allow(unsafe_code)]

use core::cell::{Cell, RefCell};
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use bytemuck::Zeroable;
use ndarray::{ArrayRef, ArrayView, Dimension};

use super::batch::Batch;
use crate::buffer::Buffer;
use crate::element::Element;
use crate::error::AllocError;
use crate::pool::Pool;
use crate::shared::SharedBuffer;

/// Bytes of a scope's first chunk; each later one is twice as long.
const FIRST_CHUNK: usize = 2048;

/// What chunks consist of, so that they are aligned for every node even where buffers are aligned
/// as their elements ask and no more.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

// SAFETY: bytes, all of which may be zero.
unsafe impl Zeroable for Line {}

/// What every node starts with.
#[repr(C)]
struct Head {
    next: *const Head,
    /// Ends the node of this head: its memory goes into the batch.
    end: unsafe fn(*const Head, &mut Batch),
}

/// Whose memory a node's elements are.
pub(super) enum Held<T: Element> {
    /// The scope's alone.
    Unique(Buffer<T>),
    /// The scope's and others': it was returned, or came in shared.
    Shared(SharedBuffer<T>),
    /// Another node's of the same arena: this one is a view of it.
    Of(NonNull<Cell<Held<T>>>),
    /// Somebody's who outlives the scope; or nobody's, without elements.
    Lifted,
}

/// A share of what a node holds; it is counted from now on. `None`: it is not the scope's.
fn share<T: Element>(held: &Cell<Held<T>>) -> Option<SharedBuffer<T>> {
    let shared = match held.replace(Held::Lifted) {
        // The buffer starts at its base, so sharing it moves nothing under a reader.
        Held::Unique(buffer) => buffer.share(),
        Held::Shared(shared) => shared,
        Held::Of(other) => {
            held.set(Held::Of(other));
            // SAFETY: the other node is in the arena as long as this one.
            return share(unsafe { other.as_ref() });
        }
        Held::Lifted => return None,
    };
    held.set(Held::Shared(shared.clone()));
    Some(shared)
}

/// One array of a scope.
#[repr(C)]
pub(super) struct Node<T: Element, D: Dimension> {
    head: Head,
    /// Valid while the scope is: what `held` holds moves nowhere in that time.
    view: ArrayView<'static, T, D>,
    held: Cell<Held<T>>,
}

impl<T: Element, D: Dimension> Node<T, D> {
    /// The elements.
    pub(super) fn view(&self) -> &ArrayRef<T, D> {
        &self.view
    }

    /// A share of the memory; it is counted from now on. `None`: it is not the scope's.
    pub(super) fn share(&self) -> Option<SharedBuffer<T>> {
        share(&self.held)
    }

    /// What a view of this node holds.
    pub(super) fn held_by_view(&self) -> Held<T> {
        let held = self.held.replace(Held::Lifted);
        let of = match held {
            Held::Unique(_) | Held::Shared(_) => Held::Of(NonNull::from(&self.held)),
            Held::Of(other) => Held::Of(other),
            Held::Lifted => Held::Lifted,
        };
        self.held.set(held);
        of
    }
}

/// Ends a node.
///
/// # Safety
/// `head` is the head of a `Node<T, D>` that is used no more.
unsafe fn end<T: Element, D: Dimension>(head: *const Head, batch: &mut Batch) {
    // SAFETY: the caller's promise; the head is the node's first field.
    let Node { view, held, .. } = unsafe { ptr::read(head.cast::<Node<T, D>>()) };
    drop(view);
    match held.into_inner() {
        Held::Unique(buffer) => batch.add(buffer),
        Held::Shared(shared) => drop(shared),
        Held::Of(_) | Held::Lifted => {}
    }
}

/// A chunk of memory for nodes, filled from the front.
#[derive(Default)]
struct Chunks {
    current: Option<Buffer<MaybeUninit<Line>>>,
    full: Vec<Buffer<MaybeUninit<Line>>>,
    used: usize,
}

/// The nodes of one scope.
pub(super) struct Arena {
    chunks: RefCell<Chunks>,
    list: Cell<*const Head>,
    nodes: Cell<usize>,
}

impl Arena {
    pub(super) fn new() -> Self {
        Self {
            chunks: RefCell::new(Chunks::default()),
            list: Cell::new(ptr::null()),
            nodes: Cell::new(0),
        }
    }

    /// Nodes in the arena.
    pub(super) fn nodes(&self) -> usize {
        self.nodes.get()
    }

    /// A node for a view and what holds its memory. It stays where it is until the arena is
    /// emptied, which takes `&mut`.
    ///
    /// # Safety
    /// The view is valid as long as what is held is kept, or, if nothing is, as long as the arena.
    ///
    /// # Errors
    /// [`AllocError`] of a chunk.
    pub(super) unsafe fn add<T: Element, D: Dimension>(
        &self,
        pool: &Pool,
        view: ArrayView<'static, T, D>,
        held: Held<T>,
    ) -> Result<NonNull<Node<T, D>>, AllocError> {
        let place = self.place::<Node<T, D>>(pool)?;
        let node = Node {
            head: Head {
                next: self.list.get(),
                end: end::<T, D>,
            },
            view,
            held: Cell::new(held),
        };
        // SAFETY: the place is aligned, large enough, and nobody else's.
        unsafe { place.write(node) };
        self.list.set(place.as_ptr().cast());
        self.nodes.set(self.nodes.get() + 1);
        Ok(place)
    }

    /// A place for an `N` in the current chunk, or at the start of a new one.
    fn place<N>(&self, pool: &Pool) -> Result<NonNull<N>, AllocError> {
        const { assert!(align_of::<N>() <= align_of::<Line>()) };
        let mut chunks = self.chunks.borrow_mut();
        let start = chunks.used.next_multiple_of(align_of::<N>());
        let len = chunks
            .current
            .as_ref()
            .map_or(0, |chunk| size_of_val(&chunk[..]));
        let start = if start + size_of::<N>() <= len {
            start
        } else {
            let wanted = (2 * len).max(FIRST_CHUNK).max(size_of::<N>());
            let fresh = pool.allocate::<Line>(wanted.div_ceil(size_of::<Line>()))?;
            if let Some(full) = chunks.current.replace(fresh) {
                chunks.full.push(full);
            }
            0
        };
        chunks.used = start + size_of::<N>();
        let chunk = chunks.current.as_mut().expect("there is a current chunk");
        let chunk = NonNull::new(chunk.as_mut_ptr())
            .expect("a buffer is not null")
            .cast::<u8>();
        // SAFETY: the place lies within the chunk.
        Ok(unsafe { chunk.add(start) }.cast())
    }

    /// Ends every node, newest first.
    pub(super) fn empty(&mut self, batch: &mut Batch) {
        let mut head = self.list.replace(ptr::null());
        self.nodes.set(0);
        while !head.is_null() {
            // SAFETY: the heads on the list are of nodes that were not ended yet.
            let next = unsafe { (*head).next };
            // SAFETY: as above.
            let end = unsafe { (*head).end };
            // SAFETY: `&mut self`: nobody points to a node any more.
            unsafe { end(head, batch) };
            head = next;
        }
        let chunks = self.chunks.get_mut();
        chunks.full.clear();
        chunks.used = 0;
    }
}
