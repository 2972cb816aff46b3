//! ndpool as a contender.

use std::mem::MaybeUninit;
use std::ops::Range;

use ndpool::{Buffer, Pool, SharedBuffer};

use crate::contender::{Contender, Setup};
use crate::counts::Counting;

/// A pool as `Pool::new` gives it.
pub struct Ndpool(Pool);

/// Uninitialised or zeroed; the harness writes through a pointer either way.
pub enum Block {
    Uninit(Buffer<MaybeUninit<u8>>),
    Zeroed(Buffer<u8>),
}

impl Contender for Ndpool {
    type Block = Block;

    fn new(_: Setup) -> Self {
        Self(Pool::new())
    }

    #[inline(always)]
    fn allocate(&'static self, len: usize) -> Block {
        Block::Uninit(self.0.allocate::<u8>(len).expect("out of memory"))
    }

    #[inline(always)]
    fn zeroed(&'static self, len: usize) -> Block {
        Block::Zeroed(self.0.zeroed::<u8>(len).expect("out of memory"))
    }

    #[inline(always)]
    fn address(block: &mut Block) -> *mut u8 {
        match block {
            Block::Uninit(it) => it.as_mut_ptr().cast(),
            Block::Zeroed(it) => it.as_mut_ptr(),
        }
    }

    #[inline(always)]
    fn free(&'static self, block: Block) {
        drop(block);
    }

    fn trim(&'static self) {
        self.0.trim();
    }
}

impl Counting for Ndpool {
    type Owner = SharedBuffer<MaybeUninit<u8>>;
    type View = Self::Owner;

    fn new(_: Setup) -> Self {
        Self(Pool::new())
    }

    #[inline(always)]
    fn share(&'static self, len: usize) -> Self::Owner {
        self.0.allocate::<u8>(len).expect("out of memory").share()
    }

    #[inline(always)]
    fn view(owner: &Self::Owner, range: Range<usize>) -> Self::View {
        owner.slice(range).expect("within the buffer")
    }
}
