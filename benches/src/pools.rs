//! Buffer and object pools, each used as its README shows, with `Vec<u8>` as the object.
#![allow(unsafe_code)]

use std::cell::RefCell;

use crossbeam_queue::ArrayQueue;

use crate::contender::{Contender, Setup};

/// An empty vector with room for `len` bytes.
#[inline(always)]
fn roomy(mut vec: Vec<u8>, len: usize) -> Vec<u8> {
    if vec.capacity() < len {
        vec.reserve_exact(len);
    }
    vec
}

#[inline(always)]
fn fill(vec: &mut Vec<u8>, len: usize) {
    vec.clear();
    vec.resize(len, 0);
}

/// What a careful user writes by hand: a stack of vectors in a thread-local. It serves one size and one thread, and bounds the rest.
pub struct ByHand {
    live: usize,
}

thread_local! {
    static STACK: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

impl Contender for ByHand {
    type Block = Vec<u8>;

    fn new(setup: Setup) -> Self {
        Self { live: setup.live }
    }

    #[inline(always)]
    fn allocate(&'static self, len: usize) -> Vec<u8> {
        roomy(STACK.with_borrow_mut(Vec::pop).unwrap_or_default(), len)
    }

    #[inline(always)]
    fn zeroed(&'static self, len: usize) -> Vec<u8> {
        match STACK.with_borrow_mut(Vec::pop) {
            Some(mut vec) => {
                fill(&mut vec, len);
                vec
            }
            None => vec![0; len],
        }
    }

    #[inline(always)]
    fn address(block: &mut Vec<u8>) -> *mut u8 {
        block.as_mut_ptr()
    }

    #[inline(always)]
    fn free(&'static self, block: Vec<u8>) {
        STACK.with_borrow_mut(|stack| {
            if stack.len() < self.live {
                stack.push(block);
            }
        });
    }
}

/// The queue most people reach for.
pub struct Queue(ArrayQueue<Vec<u8>>);

impl Contender for Queue {
    type Block = Vec<u8>;

    fn new(setup: Setup) -> Self {
        Self(ArrayQueue::new(setup.live.max(1)))
    }

    #[inline(always)]
    fn allocate(&'static self, len: usize) -> Vec<u8> {
        roomy(self.0.pop().unwrap_or_default(), len)
    }

    #[inline(always)]
    fn zeroed(&'static self, len: usize) -> Vec<u8> {
        match self.0.pop() {
            Some(mut vec) => {
                fill(&mut vec, len);
                vec
            }
            None => vec![0; len],
        }
    }

    #[inline(always)]
    fn address(block: &mut Vec<u8>) -> *mut u8 {
        block.as_mut_ptr()
    }

    #[inline(always)]
    fn free(&'static self, block: Vec<u8>) {
        drop(self.0.push(block));
    }
}

#[cfg(feature = "pools")]
pub use peers::*;

#[cfg(feature = "pools")]
mod peers {
    use super::{Contender, Setup, fill};
    use zeropool::ZeroPool;

    /// zeropool: size classes, thread caches, shared queues.
    pub struct Zeropool(ZeroPool);

    /// zeropool's two kinds of buffer.
    pub enum ZeropoolBlock {
        Uninit(zeropool::BufUninit<'static>),
        Zeroed(zeropool::Buf<'static>),
    }

    impl Contender for Zeropool {
        type Block = ZeropoolBlock;

        fn new(_: Setup) -> Self {
            Self(ZeroPool::new())
        }

        #[inline(always)]
        fn allocate(&'static self, len: usize) -> ZeropoolBlock {
            ZeropoolBlock::Uninit(self.0.alloc_uninit(len))
        }

        #[inline(always)]
        fn zeroed(&'static self, len: usize) -> ZeropoolBlock {
            ZeropoolBlock::Zeroed(self.0.alloc(len))
        }

        #[inline(always)]
        fn address(block: &mut ZeropoolBlock) -> *mut u8 {
            match block {
                ZeropoolBlock::Uninit(it) => it.as_uninit_mut().as_mut_ptr().cast(),
                ZeropoolBlock::Zeroed(it) => it.as_mut_ptr(),
            }
        }

        #[inline(always)]
        fn free(&'static self, block: ZeropoolBlock) {
            drop(block);
        }

        fn trim(&'static self) {
            self.0.drain();
        }
    }

    /// opool: a bounded lock-free pool of objects.
    pub struct Opool(opool::Pool<Fresh, Vec<u8>>);

    /// Makes opool's objects.
    pub struct Fresh(usize);

    impl opool::PoolAllocator<Vec<u8>> for Fresh {
        fn allocate(&self) -> Vec<u8> {
            Vec::with_capacity(self.0)
        }
    }

    impl Contender for Opool {
        type Block = opool::RefGuard<'static, Fresh, Vec<u8>>;

        fn new(setup: Setup) -> Self {
            Self(opool::Pool::new(setup.live.max(1), Fresh(setup.size)))
        }

        #[inline(always)]
        fn allocate(&'static self, len: usize) -> Self::Block {
            let mut block = self.0.get();
            if block.capacity() < len {
                block.reserve_exact(len);
            }
            block
        }

        #[inline(always)]
        fn zeroed(&'static self, len: usize) -> Self::Block {
            let mut block = self.0.get();
            fill(&mut block, len);
            block
        }

        #[inline(always)]
        fn address(block: &mut Self::Block) -> *mut u8 {
            block.as_mut_ptr()
        }

        #[inline(always)]
        fn free(&'static self, block: Self::Block) {
            drop(block);
        }
    }

    /// object-pool: a mutex around a vector.
    pub struct ObjectPool(object_pool::Pool<Vec<u8>>);

    impl Contender for ObjectPool {
        type Block = object_pool::Reusable<'static, Vec<u8>>;

        fn new(_: Setup) -> Self {
            Self(object_pool::Pool::new(0, Vec::new))
        }

        #[inline(always)]
        fn allocate(&'static self, len: usize) -> Self::Block {
            let mut block = self.0.pull(Vec::new);
            if block.capacity() < len {
                block.reserve_exact(len);
            }
            block
        }

        #[inline(always)]
        fn zeroed(&'static self, len: usize) -> Self::Block {
            let mut block = self.0.pull(Vec::new);
            fill(&mut block, len);
            block
        }

        #[inline(always)]
        fn address(block: &mut Self::Block) -> *mut u8 {
            block.as_mut_ptr()
        }

        #[inline(always)]
        fn free(&'static self, block: Self::Block) {
            drop(block);
        }
    }

    /// lockfree-object-pool's linear pool.
    pub struct Linear(lockfree_object_pool::LinearObjectPool<Vec<u8>>);

    impl Contender for Linear {
        type Block = lockfree_object_pool::LinearReusable<'static, Vec<u8>>;

        fn new(_: Setup) -> Self {
            Self(lockfree_object_pool::LinearObjectPool::new(
                Vec::new,
                |_| (),
            ))
        }

        #[inline(always)]
        fn allocate(&'static self, len: usize) -> Self::Block {
            let mut block = self.0.pull();
            if block.capacity() < len {
                block.reserve_exact(len);
            }
            block
        }

        #[inline(always)]
        fn zeroed(&'static self, len: usize) -> Self::Block {
            let mut block = self.0.pull();
            fill(&mut block, len);
            block
        }

        #[inline(always)]
        fn address(block: &mut Self::Block) -> *mut u8 {
            block.as_mut_ptr()
        }

        #[inline(always)]
        fn free(&'static self, block: Self::Block) {
            drop(block);
        }
    }

    /// sharded-slab's pool.
    pub struct Sharded(sharded_slab::Pool<Vec<u8>>);

    /// An object of [`Sharded`]: its key and its memory. The guard, which stays on its thread, is let go at once.
    pub struct Keyed {
        key: usize,
        start: *mut u8,
    }

    // SAFETY: the object stays the key's until it is cleared, on any thread.
    unsafe impl Send for Keyed {}

    impl Contender for Sharded {
        type Block = Keyed;

        fn new(_: Setup) -> Self {
            Self(sharded_slab::Pool::new())
        }

        #[inline(always)]
        fn allocate(&'static self, len: usize) -> Keyed {
            let mut vec = self.0.create().expect("sharded-slab has room");
            if vec.capacity() < len {
                vec.reserve_exact(len);
            }
            Keyed {
                key: vec.key(),
                start: vec.as_mut_ptr(),
            }
        }

        #[inline(always)]
        fn zeroed(&'static self, len: usize) -> Keyed {
            let mut vec = self.0.create().expect("sharded-slab has room");
            fill(&mut vec, len);
            Keyed {
                key: vec.key(),
                start: vec.as_mut_ptr(),
            }
        }

        #[inline(always)]
        fn address(block: &mut Keyed) -> *mut u8 {
            block.start
        }

        #[inline(always)]
        fn free(&'static self, block: Keyed) {
            self.0.clear(block.key);
        }
    }
}
