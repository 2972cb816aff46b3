//! Pooled memory in other crates' buffers: it goes in without a copy, and comes home from another
//! thread. These are the snippets for adopters, compiled; none of them needs a feature of ours.

#![cfg(test)]
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;

use ndpool::{Pool, SharedBuffer};

/// The address at which the pool serves the next request of `len` words.
fn next_address(pool: &Pool, len: usize) -> usize {
    pool.allocate::<u64>(len).unwrap().as_ptr().addr()
}

/// Small enough for a thread's magazine, and large enough to go to the depot directly.
const LENGTHS: [usize; 2] = [1000, 3 << 20];

#[test]
fn bytes_takes_a_buffer_without_a_copy_and_sends_it_home() {
    let pool = Pool::new();
    for len in LENGTHS {
        let buffer = pool.collect((0..len * 8).map(|n| n as u8)).unwrap();
        let address = buffer.as_ptr().addr();
        let bytes = bytes::Bytes::from_owner(buffer);
        assert_eq!(bytes.as_ptr().addr(), address);
        let tail = bytes.slice(len * 8 - 3..);
        drop(bytes);
        thread::spawn(move || {
            let expected: Vec<u8> = (len * 8 - 3..len * 8).map(|n| n as u8).collect();
            assert_eq!(&tail[..], expected);
        })
        .join()
        .unwrap();
        assert_eq!(next_address(&pool, len), address);
    }
}

#[test]
fn bytes_takes_a_shared_buffer_beside_other_owners() {
    let pool = Pool::new();
    let shared = pool.copied(b"one buffer, two worlds").unwrap().share();
    let bytes = bytes::Bytes::from_owner(shared.slice(4..10).unwrap());
    assert_eq!(&bytes[..], b"buffer");
    assert_eq!(bytes.as_ptr(), shared[4..].as_ptr());
    assert_eq!(shared.owners(), 2);
    drop(bytes);
    assert_eq!(shared.owners(), 1);
}

/// The other way round: foreign bytes behind our count.
#[test]
fn a_shared_buffer_takes_bytes_without_a_copy() {
    let bytes = bytes::Bytes::from(vec![1u8, 2, 3]);
    let address = bytes.as_ptr();
    let shared = SharedBuffer::from_owner(bytes).unwrap();
    assert_eq!((shared.as_ptr(), &shared[..]), (address, &[1u8, 2, 3][..]));
    assert!(shared.is_read_only());
}

#[test]
fn arrow_takes_a_shared_buffer_without_a_copy_and_sends_it_home() {
    let pool = Pool::new();
    for len in LENGTHS {
        let shared = pool.collect((0..len).map(|n| n as u64)).unwrap().share();
        let address = shared.as_ptr().addr();
        let bytes = NonNull::from(&shared[..]).cast::<u8>();
        let size = size_of_val(&shared[..]);
        // SAFETY: the bytes are plain, and the owner that goes along keeps them, read-only.
        let arrow =
            unsafe { arrow_buffer::Buffer::from_custom_allocation(bytes, size, Arc::new(shared)) };
        assert_eq!(arrow.as_ptr().addr(), address);
        let words = arrow_buffer::ScalarBuffer::<u64>::from(arrow);
        assert_eq!(words[len - 1], len as u64 - 1);
        let part = words.slice(len - 2, 2);
        drop(words);
        thread::spawn(move || assert_eq!(part[..], [len as u64 - 2, len as u64 - 1]))
            .join()
            .unwrap();
        assert_eq!(next_address(&pool, len), address);
    }
}

/// Arrow panics on foreign memory that is not aligned for its widest types: ours always is.
#[test]
fn arrow_finds_pooled_memory_aligned_for_its_widest_types() {
    let pool = Pool::new();
    for len in [1, 16, 100, 5000] {
        let buffer = pool.filled(len, 0xA5u8).unwrap();
        assert!(
            buffer
                .as_ptr()
                .addr()
                .is_multiple_of(arrow_buffer::alloc::ALIGNMENT)
        );
        let shared = buffer.share();
        let bytes = NonNull::from(&shared[..]).cast::<u8>();
        // SAFETY: the bytes are plain, and the owner that goes along keeps them, read-only.
        let arrow = unsafe {
            arrow_buffer::Buffer::from_custom_allocation(bytes, len / 16 * 16, Arc::new(shared))
        };
        let wide = arrow_buffer::ScalarBuffer::<i128>::from(arrow);
        assert_eq!(wide.len(), len / 16);
    }
}

#[test]
fn polars_takes_a_shared_buffer_without_a_copy_and_sends_it_home() {
    let pool = Pool::new();
    for len in LENGTHS {
        let shared = pool.collect((0..len).map(|n| n as u64)).unwrap().share();
        let address = shared.as_ptr().addr();
        let polars = polars_buffer::Buffer::from_owner(shared);
        assert_eq!(polars.as_slice().as_ptr().addr(), address);
        let part = polars.clone().sliced(len - 2..);
        drop(polars);
        thread::spawn(move || {
            assert_eq!(part.as_slice(), [len as u64 - 2, len as u64 - 1]);
        })
        .join()
        .unwrap();
        assert_eq!(next_address(&pool, len), address);
    }
}
