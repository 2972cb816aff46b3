//! Who is measured: the pool, and the system's allocator.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;
use std::str::FromStr;

/// An allocator under measurement.
pub trait Contender: Sync {
    /// A block of memory; dropping it frees it.
    type Block: Block;

    /// Allocates `layout.size()` bytes, with unspecified contents.
    ///
    /// # Errors
    /// The contender's own words.
    fn allocate(&self, layout: Layout) -> Result<Self::Block, String>;

    /// Allocates `layout.size()` zero bytes.
    ///
    /// # Errors
    /// The contender's own words.
    fn zeroed(&self, layout: Layout) -> Result<Self::Block, String>;

    /// Requests so far that went to the source of memory, all others being hits; `None` from a
    /// contender that does not know.
    fn misses(&self) -> Option<Misses>;
}

/// A block of a contender.
pub trait Block: Send {
    /// The bytes asked for.
    fn payload(&mut self) -> &mut [MaybeUninit<u8>];
}

/// What went to the source of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misses {
    /// Requests.
    pub requests: u64,
    /// Bytes of the blocks that were born for them.
    pub bytes: u64,
}

impl Misses {
    /// What went there after `earlier`.
    pub fn since(self, earlier: Misses) -> Misses {
        Misses {
            requests: self.requests - earlier.requests,
            bytes: self.bytes - earlier.bytes,
        }
    }
}

/// The contenders by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A pool with the default configuration.
    Ndpool,
    /// The system's allocator as it is.
    System,
    /// glibc's allocator, told not to give memory back early.
    SystemRaised,
}

impl Kind {
    /// Those that are measured where none is named.
    pub const DEFAULT: [Kind; 2] = [Kind::Ndpool, Kind::System];

    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::Ndpool, Kind::System, Kind::SystemRaised];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ndpool => "ndpool",
            Kind::System => "system",
            Kind::SystemRaised => "system-raised",
        }
    }

    /// A variable of the environment that the contender's process needs.
    pub fn environment(self) -> Option<(&'static str, &'static str)> {
        let tunables =
            "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=1073741824";
        (self == Kind::SystemRaised).then_some(("GLIBC_TUNABLES", tunables))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Kind, String> {
        let found = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| format!("no contender is called {name:?}"))
    }
}

/// The system's allocator.
#[derive(Debug)]
pub struct SystemAllocator;

/// A block of the system's allocator.
#[derive(Debug)]
pub struct SystemBlock {
    start: NonNull<u8>,
    layout: Layout,
    bytes: usize,
}

// SAFETY: the block is owned by whoever holds it, as a `Box` is, and the system's allocator takes a
// block back on any thread.
unsafe impl Send for SystemBlock {}

impl Contender for SystemAllocator {
    type Block = SystemBlock;

    #[inline]
    fn allocate(&self, layout: Layout) -> Result<SystemBlock, String> {
        let asked = at_least_one(layout);
        // SAFETY: `asked` is not of size zero.
        let start = unsafe { System.alloc(asked) };
        SystemBlock::new(start, asked, layout.size())
    }

    #[inline]
    fn zeroed(&self, layout: Layout) -> Result<SystemBlock, String> {
        let asked = at_least_one(layout);
        // SAFETY: `asked` is not of size zero.
        let start = unsafe { System.alloc_zeroed(asked) };
        SystemBlock::new(start, asked, layout.size())
    }

    fn misses(&self) -> Option<Misses> {
        None
    }
}

impl SystemBlock {
    #[inline]
    fn new(start: *mut u8, layout: Layout, bytes: usize) -> Result<SystemBlock, String> {
        match NonNull::new(start) {
            Some(start) => Ok(SystemBlock {
                start,
                layout,
                bytes,
            }),
            None => Err(format!("the system refused {layout:?}")),
        }
    }
}

impl Block for SystemBlock {
    #[inline]
    fn payload(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the block is `bytes` long at least, is ours alone while it lives, and
        // `MaybeUninit` asks nothing of its contents.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.bytes) }
    }
}

impl Drop for SystemBlock {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `System` returned the block for this layout, and nobody else can free it.
        unsafe { System.dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// `layout`, or one byte where it asks for none, which `System` must not be asked for.
fn at_least_one(layout: Layout) -> Layout {
    if layout.size() == 0 {
        // SAFETY: the alignment is that of a layout, and one byte does not overflow.
        unsafe { Layout::from_size_align_unchecked(1, layout.align()) }
    } else {
        layout
    }
}
