//! Buffers over mapped files.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};

use ndpool::{Buffer, SharedBuffer};

/// A file of our own with these bytes, open for reading and writing.
fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn contents(mut file: &File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7) as u8).collect()
}

#[test]
fn a_read_only_mapping_is_the_file_and_is_never_written() {
    let data = bytes(3 * 4096 + 5);
    let file = file(&data);
    // SAFETY: the file is ours, and nobody changes it.
    let mut shared = unsafe { SharedBuffer::map_file(&file) }.unwrap();
    assert_eq!(&shared[..], data);
    assert!(shared.is_read_only());
    assert_eq!(shared.owners(), 1);
    shared = shared
        .try_unique()
        .expect_err("the only owner, of read-only memory");
    let mapped = shared.as_ptr();
    let part = shared.slice(4096..4100).unwrap();
    shared.make_mut().unwrap()[4096] = 0xEE;
    assert_ne!(shared.as_ptr(), mapped, "written in a copy");
    assert_eq!(part[0], data[4096]);
    assert_eq!(part.as_ptr(), mapped.wrapping_add(4096));
    assert_eq!(contents(&file), data);
    let words = part.reinterpret::<u32>().unwrap();
    drop(part);
    assert_eq!(words[0].to_ne_bytes(), data[4096..4100]);
}

#[test]
fn writes_to_a_copy_on_write_mapping_do_not_reach_the_file() {
    let data = bytes(2 * 4096 + 1);
    let named = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(named.path(), &data).unwrap();
    let read_only = File::open(named.path()).unwrap();
    // SAFETY: the file is ours, and nobody changes it.
    let mut buffer = unsafe { Buffer::map_file_copy(&read_only) }.unwrap();
    assert_eq!(&buffer[..], data);
    buffer[0] = !data[0];
    buffer[8192] = !data[8192];
    let shared = buffer.share();
    assert!(!shared.is_read_only());
    let mut buffer = shared.try_unique().unwrap();
    assert_eq!(
        (buffer[0], buffer[1], buffer[8192]),
        (!data[0], data[1], !data[8192])
    );
    assert!(
        buffer.resize(data.len() + 1, 0).is_err(),
        "a mapping cannot grow"
    );
    assert_eq!(buffer.len(), data.len());
    drop(buffer);
    assert_eq!(std::fs::read(named.path()).unwrap(), data);
}

#[test]
fn writes_to_a_shared_mapping_reach_the_file() {
    let data = bytes(4096 + 3);
    let file = file(&data);
    // SAFETY: the file is ours, and nobody else maps or changes it.
    let mut buffer = unsafe { Buffer::map_file_shared(&file) }.unwrap();
    buffer[4098] = !data[4098];
    let mut expected = data.clone();
    expected[4098] = !data[4098];
    assert_eq!(contents(&file), expected, "at once, for whoever reads");
    let mut shared = buffer.share();
    let place = shared.as_ptr();
    shared.make_mut().unwrap()[0] = !data[0];
    assert_eq!(shared.as_ptr(), place, "the only owner writes in place");
    expected[0] = !data[0];
    // The last owner goes on another thread.
    std::thread::spawn(move || drop(shared)).join().unwrap();
    assert_eq!(contents(&file), expected);
}

#[test]
fn empty_files_give_empty_buffers() {
    let file = file(&[]);
    // SAFETY: the file is ours, and nobody changes it.
    let shared = unsafe { SharedBuffer::map_file(&file) }.unwrap();
    assert!(shared.is_empty() && shared.is_read_only());
    assert_eq!(shared.slice(..).unwrap().len(), 0);
    // SAFETY: as above.
    let copy = unsafe { Buffer::map_file_copy(&file) }.unwrap();
    assert!(copy.is_empty());
    // SAFETY: as above.
    let mut in_place = unsafe { Buffer::map_file_shared(&file) }.unwrap();
    assert_eq!(in_place.as_mut(), [0u8; 0]);
    assert!(copy.share().slice(..).is_ok());
}

#[test]
fn a_file_that_cannot_be_mapped_is_an_error() {
    let named = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(named.path(), b"text").unwrap();
    let read_only = File::open(named.path()).unwrap();
    // SAFETY: nobody else maps or changes the file.
    let error = unsafe { Buffer::map_file_shared(&read_only) }.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    let write_only = OpenOptions::new().write(true).open(named.path()).unwrap();
    // SAFETY: as above.
    let error = unsafe { SharedBuffer::map_file(&write_only) }.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
}
