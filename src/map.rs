//! Buffers over mapped files.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use std::fs::File;
use std::io;

use memmap2::{Mmap, MmapMut, MmapOptions};

use crate::buffer::Buffer;
use crate::error::AllocError;
use crate::shared::SharedBuffer;

impl SharedBuffer<u8> {
    /// The bytes of a file, read-only, paged in when they are touched; without a copy. The last
    /// owner unmaps them. Nothing ever writes here: [`try_unique`](Self::try_unique) hands the view
    /// back, and [`make_mut`](Self::make_mut) copies. An empty file gives an empty buffer.
    ///
    /// # Safety
    /// While the buffer lives, nobody changes the mapped bytes of the file or makes it shorter, in
    /// this process or another.
    ///
    /// # Errors
    /// Of the system; [`io::ErrorKind::OutOfMemory`], with an [`AllocError`] inside, if no control
    /// block is left.
    pub unsafe fn map_file(file: &File) -> io::Result<Self> {
        let Some(len) = len_of(file)? else {
            return Self::from_owner([0; 0]).map_err(no_block);
        };
        // SAFETY: the caller's promise.
        let mapping: Mmap = unsafe { MmapOptions::new().len(len).map(file) }?;
        Self::from_owner(mapping).map_err(no_block)
    }
}

impl Buffer<u8> {
    /// The bytes of a file, writable, copied page by page when they are written: the file never
    /// changes. The file need only be open for reading. An empty file gives an empty buffer, and
    /// none can grow beyond the file.
    ///
    /// # Safety
    /// While the buffer lives, nobody changes the mapped bytes of the file (whether that shows in
    /// pages that were not written here is up to the system) or makes it shorter, in this process
    /// or another.
    ///
    /// # Errors
    /// Of the system; [`io::ErrorKind::OutOfMemory`], with an [`AllocError`] inside, if no control
    /// block is left.
    pub unsafe fn map_file_copy(file: &File) -> io::Result<Self> {
        let Some(len) = len_of(file)? else {
            return empty();
        };
        // SAFETY: the caller's promise.
        let mapping = unsafe { MmapOptions::new().len(len).map_copy(file) }?;
        over(mapping)
    }

    /// The bytes of a file, writable in place: what is written here is in the file at once for
    /// whoever reads it, and on the disk after [`File::sync_all`] or when the system sees fit. The
    /// file must be open for reading and writing. An empty file gives an empty buffer, and none
    /// can grow beyond the file.
    ///
    /// # Safety
    /// While the buffer lives, nobody else reads or writes the mapped bytes through memory (another
    /// mapping of them, here or in another process), and nobody changes them or makes the file
    /// shorter by other means.
    ///
    /// # Errors
    /// Of the system; [`io::ErrorKind::OutOfMemory`], with an [`AllocError`] inside, if no control
    /// block is left.
    pub unsafe fn map_file_shared(file: &File) -> io::Result<Self> {
        let Some(len) = len_of(file)? else {
            return empty();
        };
        // SAFETY: the caller's promise.
        let mapping = unsafe { MmapOptions::new().len(len).map_mut(file) }?;
        over(mapping)
    }
}

/// Bytes of a file, `None` if it has none: an empty mapping does not exist.
fn len_of(file: &File) -> io::Result<Option<usize>> {
    let len = file.metadata()?.len();
    match usize::try_from(len) {
        Ok(0) => Ok(None),
        Ok(len) if len <= isize::MAX as usize => Ok(Some(len)),
        _ => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("{len} bytes of a file exceed what can be addressed"),
        )),
    }
}

fn empty() -> io::Result<Buffer<u8>> {
    // SAFETY: no byte is valid at any place.
    unsafe { Buffer::from_raw_parts(NonNull::dangling(), 0, |_, _| ()) }.map_err(no_block)
}

/// A buffer of all bytes of a writable mapping, which goes when the buffer does.
fn over(mut mapping: MmapMut) -> io::Result<Buffer<u8>> {
    let bytes = NonNull::from(&mut mapping[..]);
    // SAFETY: the mapping is ours alone and stays until the callback has dropped it.
    unsafe { Buffer::from_raw_parts(bytes.cast(), bytes.len(), move |_, _| drop(mapping)) }
        .map_err(no_block)
}

fn no_block(error: AllocError) -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, error)
}
