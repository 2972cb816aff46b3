//! ndpool as a contender.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::time::Duration;

use ndpool::{Buffer, Pool, SharedBuffer};

use crate::contender::{Contender, Setup};
use crate::counts::Counting;

/// A pool as `Pool::new` gives it, or with its background trimmer on.
pub struct Ndpool<const TRIMMER: bool = false>(Pool);

/// How often the trimmer looks.
const INTERVAL: Duration = Duration::from_millis(250);

impl<const TRIMMER: bool> Contender for Ndpool<TRIMMER> {
    type Block = Buffer<MaybeUninit<u8>>;

    fn new(_: Setup) -> Self {
        Self(if TRIMMER {
            Pool::builder().trimmer(INTERVAL).build()
        } else {
            Pool::new()
        })
    }

    #[inline(always)]
    fn allocate(&'static self, len: usize) -> Self::Block {
        self.0.allocate::<u8>(len).expect("out of memory")
    }

    #[inline(always)]
    fn zeroed(&'static self, len: usize) -> Self::Block {
        self.0
            .zeroed::<MaybeUninit<u8>>(len)
            .expect("out of memory")
    }

    #[inline(always)]
    fn address(block: &mut Self::Block) -> *mut u8 {
        block.as_mut_ptr().cast()
    }

    #[inline(always)]
    fn free(&'static self, block: Self::Block) {
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
