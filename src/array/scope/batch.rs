//! What a scope gives back when it closes: chains of blocks by class, linked through the blocks
//! themselves, that go home in whole magazines.

#![allow(unsafe_code)]

use crate::block::{self, Block, Core, WORLD};
use crate::buffer::Buffer;
use crate::element::Element;
use crate::kernel::backing::Backing;
use crate::kernel::block::UNCLASSED;
use crate::kernel::cache::Class;
use crate::thread::{self, Place};

/// Classes that one batch sorts; the blocks of further ones go back one by one.
const CLASSES: usize = 16;

/// Blocks of one class. A block that is unique has no use for the length that shared owners read,
/// so that word links the chain.
#[derive(Clone, Copy)]
struct Chain {
    class: u8,
    blocks: usize,
    first: u32,
}

/// Blocks of one pool on their way home.
pub(super) struct Batch {
    core: &'static Core,
    place: Place,
    chains: [Chain; CLASSES],
    used: usize,
}

impl Batch {
    pub(super) fn new(core: &'static Core, place: Place) -> Self {
        let chain = Chain {
            class: UNCLASSED,
            blocks: 0,
            first: 0,
        };
        Self {
            core,
            place,
            chains: [chain; CLASSES],
            used: 0,
        }
    }

    /// Takes a buffer along, or drops it where it does not go with the others.
    pub(super) fn add<T: Element>(&mut self, buffer: Buffer<T>) {
        let block = buffer.block();
        // SAFETY: the buffer owns its block.
        let class = unsafe { block.label() }.class;
        // SAFETY: as above.
        let ours = core::ptr::eq(unsafe { block.core() }, self.core);
        if !ours || class == UNCLASSED {
            return;
        }
        let place = self.chains[..self.used]
            .iter()
            .position(|chain| chain.class == class);
        let place = match place {
            Some(place) => place,
            None if self.used < CLASSES => {
                self.used += 1;
                self.chains[self.used - 1].class = class;
                self.used - 1
            }
            None => return,
        };
        let (block, ..) = buffer.into_parts();
        let chain = &mut self.chains[place];
        // SAFETY: the block was the buffer's alone, and is ours now.
        unsafe { block.payload_mut(|payload| payload.len = chain.first as usize) };
        chain.first = block.index();
        chain.blocks += 1;
    }

    /// Sends everything home: into the thread's cache while it has room, the rest in whole
    /// magazines, one exchange with the depot each.
    pub(super) fn give(mut self) {
        for place in 0..self.used {
            let class = usize::from(self.chains[place].class);
            self.fill_cache(place);
            // SAFETY: the scope holds a handle of the pool.
            let backing = unsafe { self.core.backing() };
            // A watched pool wants to see every block that comes home.
            let rounds = match backing.watch {
                Some(_) => 0,
                None => backing.rounds(class),
            };
            while rounds > 0 && self.chains[place].blocks >= rounds as usize {
                let chain = &mut self.chains[place];
                // SAFETY: the chain's blocks are of this class and pool, and ours.
                let gone = unsafe { self.core.give_magazine(class, rounds, || pop(chain)) };
                if !gone {
                    break;
                }
            }
            while self.chains[place].blocks > 0 {
                let block = pop(&mut self.chains[place]);
                // SAFETY: the block is ours, given up.
                unsafe { block::give_slow(block) };
                self.fill_cache(place);
            }
        }
        self.used = 0;
    }

    /// Pushes blocks into the thread's cache until it refuses.
    fn fill_cache(&mut self, place: usize) {
        let chain = &mut self.chains[place];
        while chain.blocks > 0 {
            let rest = *chain;
            let block = pop(chain);
            // SAFETY: the block's own class and pool; ours, given up.
            if !unsafe { thread::push(self.place, Class::new(usize::from(rest.class)), block) } {
                *chain = rest;
                return;
            }
        }
    }
}

/// Takes the first block off a chain that has one.
fn pop(chain: &mut Chain) -> &'static Block {
    let block = WORLD.blocks.get(chain.first);
    let block = block.expect("a chain holds blocks of the arena");
    chain.blocks -= 1;
    // SAFETY: the chain's blocks are the batch's alone.
    chain.first = unsafe { block.payload(|payload| payload.len) } as u32;
    block
}
