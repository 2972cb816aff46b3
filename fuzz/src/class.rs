//! Any size and alignment: the class table, buffers of elements with alignments of their own, and
//! `BufferAllocator`s with a shadow of every block.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::NonNull;

use arbitrary::{Arbitrary, Unstructured};
use ndpool::allocator::{BufferAllocator, Limited, System, Tracked};
use ndpool::{AllocErrorKind, Element, Pool, class};

#[derive(Arbitrary, Debug)]
enum Op {
    Class(usize),
    Allocate(Size, u8),
    Zeroed(Size, u8),
    Grow(u8, Size),
    Shrink(u8, Size),
    Free(u8, u8),
    Elements(u8, Size),
    Overflow(u8, usize),
}

/// A size in bytes up to 16 MiB, all magnitudes alike; now and then any number.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Size {
    magnitude: u8,
    bits: u32,
}

impl Size {
    fn of(self) -> usize {
        self.bits as usize >> (8 + self.magnitude % 24)
    }
}

/// Blocks at most.
const MOST: usize = 16;
/// Bytes of a block that are filled and compared, at either end.
const EDGE: usize = 512;

struct Live {
    ptr: NonNull<u8>,
    layout: Layout,
    len: usize,
    fill: u8,
}

/// Runs one input.
pub fn run(input: &[u8]) {
    let mut u = Unstructured::new(input);
    let Ok(which) = u.arbitrary::<u8>() else {
        return;
    };
    let mut ops = Vec::new();
    while let Ok(op) = u.arbitrary::<Op>() {
        ops.push(op);
        if u.is_empty() || ops.len() == 200 {
            break;
        }
    }
    let pool = Pool::new();
    match which % 5 {
        0 => play(&System, &pool, &ops),
        1 => {
            let limited = Limited::new("class", 32 << 20, System);
            play(&limited, &pool, &ops);
            assert_eq!(limited.used(), 0, "bytes stayed charged");
        }
        2 => {
            play(&pool, &pool, &ops);
            assert_eq!(
                pool.audit().map(|audit| audit.live),
                Ok(0),
                "live blocks at the end"
            );
        }
        3 => {
            let tracked = Tracked::new(Limited::new("class", 32 << 20, pool.clone()));
            play(&tracked, &pool, &ops);
            assert_eq!(tracked.report().live_bytes, 0, "bytes stayed on the list");
            assert_eq!(
                pool.audit().map(|audit| audit.live),
                Ok(0),
                "live blocks at the end"
            );
        }
        _ => {
            let tracked = Tracked::new(Limited::new("class", 32 << 20, System));
            play(&tracked, &pool, &ops);
            let report = tracked.report();
            assert_eq!(report.live_bytes, 0, "bytes stayed on the list");
            assert_eq!(tracked.inner().used(), 0, "bytes stayed charged");
        }
    }
}

fn play(allocator: &dyn BufferAllocator, pool: &Pool, ops: &[Op]) {
    let mut live = Vec::new();
    for (step, op) in ops.iter().enumerate() {
        let fill = step as u8 | 1;
        match *op {
            Op::Class(size) => check_class(size),
            Op::Allocate(size, align) => {
                allocate(allocator, &mut live, layout(size, align), fill, false);
            }
            Op::Zeroed(size, align) => {
                allocate(allocator, &mut live, layout(size, align), fill, true);
            }
            Op::Grow(pick, size) => resize(allocator, &mut live, pick, size, fill, true),
            Op::Shrink(pick, size) => resize(allocator, &mut live, pick, size, fill, false),
            Op::Free(pick, fit) => {
                if let Some(index) = usize::from(pick).checked_rem(live.len()) {
                    free(allocator, live.swap_remove(index), fit);
                }
            }
            Op::Elements(kind, size) => elements(pool, kind, size.of()),
            Op::Overflow(kind, len) => overflow(pool, kind, len),
        }
    }
    for block in live {
        free(allocator, block, 0);
    }
    pool.trim();
}

/// The class of a size is the first in the table that holds it, at most a quarter larger.
fn check_class(size: usize) {
    let found = class::of(size);
    let expected = class::TABLE.partition_point(|&capacity| capacity < size);
    if size == 0 || expected == class::COUNT {
        assert!(found >= class::COUNT, "size {size} has class {found}");
        return;
    }
    assert_eq!(found, expected, "class of {size}");
    let capacity = class::capacity(found);
    assert!(capacity >= size);
    assert!(
        size < class::MIN_CAPACITY || capacity - size <= size.div_ceil(4),
        "{size}: {capacity}"
    );
}

fn layout(size: Size, align: u8) -> Layout {
    Layout::from_size_align(size.of(), 1 << (align % 23)).expect("far below isize::MAX")
}

fn allocate(
    allocator: &dyn BufferAllocator,
    live: &mut Vec<Live>,
    layout: Layout,
    fill: u8,
    zeroed: bool,
) {
    if live.len() == MOST {
        return;
    }
    let block = if zeroed {
        allocator.allocate_zeroed(layout)
    } else {
        allocator.allocate(layout)
    };
    let Ok(block) = block.map_err(|error| {
        assert_eq!(error.kind, AllocErrorKind::LimitExceeded, "{error}");
    }) else {
        return;
    };
    let live_block = Live {
        ptr: block.cast(),
        layout,
        len: block.len(),
        fill,
    };
    if zeroed {
        live_block.expect(0, layout.size());
    }
    live_block.admit(allocator);
    live.push(live_block);
}

impl Live {
    /// Checks what the contract promises of a block, and fills it.
    fn admit(&self, allocator: &dyn BufferAllocator) {
        assert!(self.len >= self.layout.size(), "too short");
        assert!(
            self.len >= allocator.capacity(self.layout),
            "shorter than promised"
        );
        assert!(
            self.ptr.addr().get().is_multiple_of(self.layout.align()),
            "not aligned"
        );
        for (start, len) in edges(self.len) {
            // SAFETY: the edges lie within the block, which is ours and `len` bytes long.
            let edge = unsafe { self.ptr.add(start) };
            // SAFETY: as above.
            unsafe { edge.write_bytes(self.fill, len) };
        }
    }

    /// The edges of the first `len` bytes hold `value`, where they were filled.
    fn expect(&self, value: u8, len: usize) {
        for (start, edge) in edges(len) {
            for at in start..start + edge {
                if value != 0 && at >= EDGE && at + EDGE < self.len {
                    continue;
                }
                // SAFETY: within the block; zeroed by the allocator or filled by `admit`.
                let place = unsafe { self.ptr.add(at) };
                // SAFETY: as above.
                let byte = unsafe { place.read() };
                assert_eq!(byte, value, "byte {at} of {len}");
            }
        }
    }
}

/// Start and length of the first and the last bytes.
fn edges(len: usize) -> [(usize, usize); 2] {
    [
        (0, len.min(EDGE)),
        (len.saturating_sub(EDGE), len.min(EDGE)),
    ]
}

fn free(allocator: &dyn BufferAllocator, block: Live, fit: u8) {
    block.expect(block.fill, block.len);
    // Any size between the one asked for and the one returned fits the block.
    let size = block.layout.size() + usize::from(fit) % (block.len - block.layout.size() + 1);
    let layout = Layout::from_size_align(size, block.layout.align()).expect("as the block's");
    // SAFETY: the block is from this allocator, and the layout fits it.
    unsafe { allocator.deallocate(block.ptr, layout) };
}

fn resize(
    allocator: &dyn BufferAllocator,
    live: &mut [Live],
    pick: u8,
    size: Size,
    fill: u8,
    grow: bool,
) {
    let Some(index) = usize::from(pick).checked_rem(live.len()) else {
        return;
    };
    let block = &mut live[index];
    let old = block.layout;
    let size = if grow {
        old.size() + size.of()
    } else {
        size.of().min(old.size())
    };
    let new = Layout::from_size_align(size, old.align()).expect("far below isize::MAX");
    block.expect(block.fill, block.len);
    let moved = if grow {
        // SAFETY: the block is from this allocator, `old` fits it, and `new` is not smaller.
        unsafe { allocator.grow(block.ptr, old, new) }
    } else {
        // SAFETY: the block is from this allocator, `old` fits it, and `new` is not larger.
        unsafe { allocator.shrink(block.ptr, old, new) }
    };
    if let Ok(moved) = moved {
        let (before, filled) = (block.fill, block.len);
        *block = Live {
            ptr: moved.cast(),
            layout: new,
            len: moved.len(),
            fill,
        };
        let kept = old.size().min(new.size()).min(filled).min(EDGE);
        for at in 0..kept {
            // SAFETY: the first bytes of the old block were filled, and are kept.
            let place = unsafe { block.ptr.add(at) };
            // SAFETY: as above.
            let byte = unsafe { place.read() };
            assert_eq!(byte, before, "byte {at} was not kept");
        }
        block.admit(allocator);
    } else {
        block.expect(block.fill, block.len);
    }
}

macro_rules! aligned {
    ($($name:ident: $align:literal),*) => {$(
        #[repr(C, align($align))]
        #[derive(Clone, Copy)]
        struct $name([u8; $align]);
        // SAFETY: bytes.
        unsafe impl bytemuck::Zeroable for $name {}
    )*};
}
aligned!(A256: 256, A4096: 4096, A64K: 65536, A4M: 4194304);

/// Buffers of elements with the alignment that `kind` chooses.
fn elements(pool: &Pool, kind: u8, bytes: usize) {
    match kind % 6 {
        0 => elements_of::<u8>(pool, bytes),
        1 => elements_of::<[u8; 3]>(pool, bytes),
        2 => elements_of::<A256>(pool, bytes),
        3 => elements_of::<A4096>(pool, bytes),
        4 => elements_of::<A64K>(pool, bytes),
        _ => elements_of::<A4M>(pool, bytes),
    }
}

fn elements_of<T: Element>(pool: &Pool, bytes: usize) {
    let len = bytes.div_ceil(size_of::<T>());
    let first = pool.allocate::<T>(len).expect("no limit");
    let mut second = pool.zeroed::<T>(len).expect("no limit");
    let ptr = second.as_mut_ptr().cast::<u8>();
    let align = if len == 0 {
        align_of::<T>()
    } else {
        align_of::<T>().max(ndpool::MIN_ALIGN)
    };
    assert!(ptr.addr().is_multiple_of(align) && first.as_ptr().addr().is_multiple_of(align));
    let size = len * size_of::<T>();
    let apart = ptr.addr().abs_diff(first.as_ptr().addr());
    assert!(apart >= size, "two live buffers overlap");
    assert!(second.capacity() >= len && first.capacity() >= len);
    for (start, len) in edges(size) {
        // SAFETY: within the zeroed buffer.
        let edge = unsafe { ptr.add(start) };
        // SAFETY: as above; bytes of plain elements.
        let edge = unsafe { std::slice::from_raw_parts(edge, len) };
        assert!(edge.iter().all(|&byte| byte == 0), "not zero");
    }
    // What rests must be cleared again.
    for (start, len) in edges(size) {
        // SAFETY: within the buffer, which is unique.
        let edge = unsafe { ptr.add(start) };
        // SAFETY: as above.
        unsafe { edge.write_bytes(0xEE, len) };
    }
}

fn overflow(pool: &Pool, kind: u8, len: usize) {
    let refused = match kind % 2 {
        0 => pool.allocate::<u64>(len | 1 << 61).map(drop),
        _ => pool.zeroed::<A4096>(len | 1 << 52).map(drop),
    };
    let kind = refused.expect_err("more than memory can hold").kind;
    assert_eq!(kind, AllocErrorKind::Overflow);
}
