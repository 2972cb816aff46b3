//! What was in a buffer does not travel with its memory when the pool wipes on return.

#![allow(unsafe_code)]

use std::alloc::Layout;

use ndpool::{BufferAllocator, Checks, Pool};

const SECRET: u8 = 0xA7;

/// Bytes of `block` that still hold the secret.
fn remaining(block: *const u8, capacity: usize) -> usize {
    // SAFETY: the callers' blocks were written in full by their last owner, and are theirs alone.
    let bytes = unsafe { std::slice::from_raw_parts(block, capacity) };
    bytes.iter().filter(|&&byte| byte == SECRET).count()
}

/// Writes the secret into the whole capacity of a buffer of `len` bytes, drops it, takes the same
/// memory again, and counts the bytes of the secret in it.
fn found_by_the_next_owner(pool: &Pool, len: usize) -> usize {
    let mut buffer = pool.zeroed::<u8>(len).expect("memory");
    let (base, capacity) = (buffer.as_mut_ptr(), buffer.retained_bytes());
    // SAFETY: the buffer owns its whole capacity.
    unsafe { base.write_bytes(SECRET, capacity) };
    drop(buffer);
    let next = pool.allocate::<u8>(len).expect("memory");
    assert_eq!(next.as_ptr().cast(), base.cast_const(), "the same memory");
    remaining(base, capacity)
}

#[test]
fn the_next_owner_finds_nothing_up_to_the_capacity_f85() {
    let plain = Pool::builder().checks(Checks::new()).build();
    let wiping = Pool::builder().wipe_on_return().build();
    for len in [1, 60, 1000, 5000, 100_000, 3_000_000] {
        let capacity = ndpool::class::capacity(ndpool::class::of(len));
        assert_eq!(found_by_the_next_owner(&plain, len), capacity, "{len}");
        assert_eq!(found_by_the_next_owner(&wiping, len), 0, "{len}");
    }
}

#[test]
fn shared_views_and_lent_blocks_are_wiped_by_their_last_owner_f85() {
    let pool = Pool::builder().wipe_on_return().build();
    let shared = pool.filled(1000, SECRET).expect("memory").share();
    let view = shared.slice(10..20).expect("in range");
    let base = shared.as_ptr();
    drop(shared);
    assert_eq!(view[0], SECRET, "there is an owner left");
    drop(view);
    let next = pool.allocate::<u8>(1000).expect("memory");
    assert_eq!(next.as_ptr().cast(), base);
    assert_eq!(remaining(base, 1000), 0);
    drop(next);

    let layout = Layout::from_size_align(1000, 8).expect("a layout");
    let lent = BufferAllocator::allocate(&pool, layout).expect("memory");
    let base = lent.cast::<u8>().as_ptr();
    // SAFETY: the block is ours, `lent.len()` bytes long.
    unsafe { base.write_bytes(SECRET, lent.len()) };
    // SAFETY: lent by this pool with this layout.
    unsafe { pool.deallocate(lent.cast(), layout) };
    let again = BufferAllocator::allocate(&pool, layout).expect("memory");
    assert_eq!(again, lent);
    assert_eq!(remaining(base, lent.len()), 0);
    // SAFETY: as above.
    unsafe { pool.deallocate(again.cast(), layout) };
}
