//! From an address to the control block whose payload begins there, for callers that bring back
//! nothing but a pointer: a radix tree over the address, wait-free to read, whose nodes are never
//! freed. It depends neither on the layout that the caller names nor on the block's end.

#![allow(unsafe_code)]

use core::ptr;

use super::sync::{AtomicPtr, AtomicU32, Ordering, array, const_fn};
use super::tuning::{LEAF_BITS, NODE_BITS, ROOT_BITS};

/// Payloads are aligned to this many bits at least.
const GRAIN_BITS: u32 = 6;
/// Bytes between two addresses that a map tells apart.
pub const GRAIN: usize = 1 << GRAIN_BITS;
/// Address bits that the tree covers.
const ADDRESS_BITS: u32 = ROOT_BITS + 2 * NODE_BITS + LEAF_BITS + GRAIN_BITS;

/// The address lies beyond what the tree covers, or is not aligned as payloads are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uncovered;

struct Leaf([AtomicU32; 1 << LEAF_BITS]);

struct Node<T>([AtomicPtr<T>; 1 << NODE_BITS]);

/// The map. It holds `index + 1` of a control block for each payload that was entered.
pub struct PageMap {
    root: [AtomicPtr<Node<Node<Leaf>>>; 1 << ROOT_BITS],
}

impl Default for Leaf {
    fn default() -> Self {
        Self(core::array::from_fn(|_| AtomicU32::new(0)))
    }
}

impl<T> Default for Node<T> {
    fn default() -> Self {
        Self(core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())))
    }
}

impl PageMap {
    const_fn! {
        /// An empty map.
        pub fn new() -> PageMap {
            PageMap {
                root: array![AtomicPtr::new(ptr::null_mut()); 1 << ROOT_BITS],
            }
        }
    }

    /// Enters block `index` at `address`; the caller owns the payload there.
    pub fn insert(&self, address: usize, index: u32) -> Result<(), Uncovered> {
        let [root, upper, lower, leaf] = split(address).ok_or(Uncovered)?;
        let upper = &ensure(&self.root[root]).0[upper];
        let lower = &ensure(upper).0[lower];
        let place = &ensure(lower).0[leaf];
        // Ordering: Release - E17, with `get`: the block behind the index is filled.
        place.swap(index + 1, Ordering::Release);
        Ok(())
    }

    /// The block that was entered at `address`, if any. Any number may be asked for.
    pub fn get(&self, address: usize) -> Option<u32> {
        let [root, upper, lower, leaf] = split(address)?;
        let upper = &find(&self.root[root])?.0[upper];
        let lower = &find(upper)?.0[lower];
        let place = &find(lower)?.0[leaf];
        // Ordering: Acquire - E17, with `insert`: the block behind the index is filled.
        place.load(Ordering::Acquire).checked_sub(1)
    }

    /// Takes the entry at `address` out; the caller owns the payload there, which dies.
    pub fn remove(&self, address: usize) {
        let Some([root, upper, lower, leaf]) = split(address) else {
            return;
        };
        let Some(upper) = find(&self.root[root]).map(|node| &node.0[upper]) else {
            return;
        };
        let Some(lower) = find(upper).map(|node| &node.0[lower]) else {
            return;
        };
        if let Some(found) = find(lower) {
            // Ordering: Release - E17, with `get`: nothing is published, a reader finds nothing.
            found.0[leaf].swap(0, Ordering::Release);
        }
    }
}

/// Indices of the four levels.
fn split(address: usize) -> Option<[usize; 4]> {
    let grains = address >> GRAIN_BITS;
    let aligned = address.trailing_zeros() >= GRAIN_BITS;
    if !aligned || grains >> (ADDRESS_BITS - GRAIN_BITS) != 0 {
        return None;
    }
    let part = |shift: u32, bits: u32| (grains >> shift) & ((1 << bits) - 1);
    Some([
        part(LEAF_BITS + 2 * NODE_BITS, ROOT_BITS),
        part(LEAF_BITS + NODE_BITS, NODE_BITS),
        part(LEAF_BITS, NODE_BITS),
        part(0, LEAF_BITS),
    ])
}

/// The node behind a pointer, if it was built.
fn find<T>(place: &AtomicPtr<T>) -> Option<&T> {
    // Ordering: Acquire - E18, with `ensure`: the node is initialised.
    let node = place.load(Ordering::Acquire);
    // SAFETY: nodes are initialised before they are installed, and never freed while the map is.
    unsafe { node.as_ref() }
}

/// The node behind a pointer, built if it is missing.
fn ensure<T: Default>(place: &AtomicPtr<T>) -> &T {
    if let Some(node) = find(place) {
        return node;
    }
    let node = Box::into_raw(Box::<T>::default());
    // Ordering: Release, on failure Acquire - E18, with `find`: the node is initialised.
    let installed =
        place.compare_exchange(ptr::null_mut(), node, Ordering::Release, Ordering::Acquire);
    match installed {
        // SAFETY: just built; never freed while the map is.
        Ok(_) => unsafe { &*node },
        Err(first) => {
            // SAFETY: built above, installed nowhere.
            drop(unsafe { Box::from_raw(node) });
            // SAFETY: another thread's node, installed for good.
            unsafe { &*first }
        }
    }
}

impl Drop for PageMap {
    /// Only a model's map ever drops; the process-wide one is a static.
    fn drop(&mut self) {
        fn each<T>(places: &[AtomicPtr<T>], mut inner: impl FnMut(&T)) {
            for place in places {
                // Ordering: Acquire - E18, with `ensure`; exclusive access orders the rest.
                let node = place.load(Ordering::Acquire);
                if !node.is_null() {
                    // SAFETY: the map owns its nodes, and drops each once.
                    let node = unsafe { Box::from_raw(node) };
                    inner(&node);
                }
            }
        }
        each(&self.root, |upper| {
            each(&upper.0, |lower| each(&lower.0, |_| ()));
        });
    }
}
