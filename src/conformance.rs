//! A conformance suite for implementors of [`BufferAllocator`].
//!
//! [`check`] drives an allocator through everything that the trait promises and answers with what
//! it did, or with the first promise that was broken. It never panics, and takes a few seconds in a
//! debug build. Requests may be refused (a limited allocator must refuse some): that is counted,
//! not blamed. So assert what you expect to be served:
//!
//! ```
//! # #[allow(dead_code)] // run as a test of the crate, not here: it takes a moment
//! fn my_allocator_keeps_the_promises() {
//!     let report = ndpool::conformance::check(&ndpool::allocator::System).unwrap();
//!     assert_eq!(report.refused, 0, "{report}");
//! }
//! ```
//!
//! The suite gives back every block, so afterwards the allocator's own counts must be what they
//! were before.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError, mpsc};

use crate::allocator::BufferAllocator;
use crate::error::AllocError;
use crate::source::splitmix;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{check}: {detail}")]
#[non_exhaustive]
pub struct Violation {
    /// Name of the check that found it.
    pub check: &'static str,
    /// What was done and what came of it.
    pub detail: String,
}

/// What the suite did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Requests that were served: blocks allocated, grown or shrunk.
    pub served: u64,
    /// Requests that can be served (less than 64 MiB, aligned to at most 4 KiB), but were refused.
    pub refused: u64,
    /// Requests beyond that, which were refused.
    pub refused_extremes: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            served,
            refused,
            refused_extremes,
        } = self;
        write!(
            f,
            "{served} requests served, {refused} refused, {refused_extremes} extremes refused"
        )
    }
}

/// Checks every promise of [`BufferAllocator`] on `allocator`, from several threads in the end.
///
/// # Errors
/// The first [`Violation`]. The blocks that were out at that moment are leaked.
pub fn check<A: BufferAllocator + ?Sized>(allocator: &A) -> Result<Report, Violation> {
    type Check<'a, A> = fn(&Suite<'a, A>) -> Result<(), String>;
    let checks: [(&'static str, Check<'_, A>); 9] = [
        ("capacity", Suite::capacity),
        ("sizes and alignments", Suite::sizes),
        ("extreme alignments", Suite::extreme_alignments),
        ("extreme sizes", Suite::extreme_sizes),
        ("zeroed", Suite::zeroed),
        ("grow and shrink", Suite::resizing),
        ("no overlap", Suite::overlap),
        ("deallocation on another thread", Suite::elsewhere),
        ("many threads", Suite::threads),
    ];
    let suite = Suite {
        allocator,
        report: Mutex::default(),
    };
    for (name, run) in checks {
        let violation = |detail| Violation {
            check: name,
            detail,
        };
        match catch_unwind(AssertUnwindSafe(|| run(&suite))) {
            Ok(outcome) => outcome.map_err(violation)?,
            Err(_) => return Err(violation("a method of the allocator unwound".to_owned())),
        }
    }
    let report = suite.report.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(*report)
}

/// Bytes up to which, and the alignment up to which, a refusal is counted apart.
const ORDINARY: (usize, usize) = (64 << 20, 4096);

/// Bytes after which the contents of blocks repeat.
const PERIOD: usize = 4093;

/// A block that is out, filled with a pattern that depends on its stamp.
struct Held {
    ptr: NonNull<u8>,
    layout: Layout,
    len: usize,
    stamp: u64,
}

// SAFETY: a block may be used and passed back on any thread.
unsafe impl Send for Held {}

impl Held {
    /// The bytes that belong in a block, over and over: they differ from stamp to stamp. The period
    /// is a prime, so that contents which moved by a whole page show.
    fn pattern(&self) -> Vec<u8> {
        let stamp = self.stamp as u8;
        (0..self.len.min(PERIOD))
            .map(|index| stamp ^ index as u8 ^ (index >> 8) as u8)
            .collect()
    }

    /// Fills the whole block, slack included.
    fn fill(&mut self) {
        let pattern = self.pattern();
        let bytes = NonNull::slice_from_raw_parts(self.ptr.cast::<MaybeUninit<u8>>(), self.len);
        // SAFETY: the block is ours and `len` bytes long, and these may be uninitialised.
        let bytes = unsafe { &mut *bytes.as_ptr() };
        for chunk in bytes.chunks_mut(PERIOD) {
            chunk.write_copy_of_slice(&pattern[..chunk.len()]);
        }
    }

    /// The first `len` bytes, which have been filled or came zeroed.
    fn bytes(&self, len: usize) -> &[u8] {
        let bytes = NonNull::slice_from_raw_parts(self.ptr, len.min(self.len));
        // SAFETY: the block is ours, and these bytes are initialised.
        unsafe { bytes.as_ref() }
    }

    /// Index of the first of `len` bytes that does not repeat `pattern`.
    fn differs(&self, len: usize, pattern: &[u8]) -> Option<usize> {
        let mut chunks = self.bytes(len).chunks(PERIOD).enumerate();
        let (chunk, bytes) = chunks.find(|(_, bytes)| *bytes != &pattern[..bytes.len()])?;
        let within = bytes
            .iter()
            .zip(pattern)
            .position(|(byte, wanted)| byte != wanted)?;
        Some(chunk * PERIOD + within)
    }

    /// Whether the first `len` bytes hold the pattern still.
    fn verify(&self, len: usize) -> Result<(), String> {
        match self.differs(len, &self.pattern()) {
            None => Ok(()),
            Some(index) => Err(format!("{self}: byte {index} was changed by someone else")),
        }
    }

    fn end(&self) -> usize {
        self.ptr.addr().get() + self.len
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (size, align) = (self.layout.size(), self.layout.align());
        write!(
            f,
            "block {:p} of {} bytes for {size} aligned to {align}",
            self.ptr, self.len
        )
    }
}

struct Suite<'a, A: ?Sized> {
    allocator: &'a A,
    report: Mutex<Report>,
}

fn layout(size: usize, align: usize) -> Result<Layout, String> {
    Layout::from_size_align(size, align).map_err(|error| format!("{size} by {align}: {error}"))
}

/// Sizes around every power of two up to `most`, and 0.
fn edges(most: usize) -> impl Iterator<Item = usize> + Clone {
    let powers = (0..=most.ilog2()).map(|k| 1usize << k);
    let around = powers.flat_map(|power| [power - 1, power, power + 1, power + power / 3]);
    around.filter(move |&size| size <= most)
}

impl<A: BufferAllocator + ?Sized> Suite<'_, A> {
    /// Counts the answer to a request, and checks a block that was served.
    fn take(
        &self,
        answer: Result<NonNull<[u8]>, AllocError>,
        layout: Layout,
        stamp: u64,
    ) -> Result<Option<Held>, String> {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(block) = answer else {
            if layout.size() < ORDINARY.0 && layout.align() <= ORDINARY.1 {
                report.refused += 1;
            } else {
                report.refused_extremes += 1;
            }
            return Ok(None);
        };
        report.served += 1;
        drop(report);
        let (ptr, len) = (block.cast::<u8>(), block.len());
        let held = Held {
            ptr,
            layout,
            len,
            stamp,
        };
        let capacity = self.allocator.capacity(layout);
        if len < capacity || capacity < layout.size() {
            return Err(format!(
                "{held}: shorter than its capacity {capacity}, or that than asked"
            ));
        }
        if !ptr.addr().get().is_multiple_of(layout.align()) {
            return Err(format!("{held}: not aligned"));
        }
        if len > isize::MAX as usize {
            return Err(format!("{held}: longer than a block can be"));
        }
        Ok(Some(held))
    }

    fn allocate(&self, layout: Layout, stamp: u64) -> Result<Option<Held>, String> {
        self.take(self.allocator.allocate(layout), layout, stamp)
    }

    /// A block of zeroes, which are checked.
    fn allocate_zeroed(&self, layout: Layout, stamp: u64) -> Result<Option<Held>, String> {
        let held = self.take(self.allocator.allocate_zeroed(layout), layout, stamp)?;
        if let Some(held) = &held
            && let Some(index) = held.differs(layout.size(), &[0; PERIOD])
        {
            return Err(format!(
                "{held}: allocated zeroed, but byte {index} is not zero"
            ));
        }
        Ok(held)
    }

    /// One of the layouts that fit a block: the one asked for, the longest, or one between.
    fn fitting(held: &Held) -> Result<Layout, String> {
        let asked = held.layout.size();
        let size = match held.stamp % 3 {
            0 => asked,
            1 => held.len,
            _ => asked + (held.len - asked) / 2,
        };
        // The longest may be more than a layout can say with its alignment.
        layout(size, held.layout.align()).or(Ok(held.layout))
    }

    /// Gives a block back with one of the layouts that fit it.
    fn deallocate(&self, held: Held) -> Result<(), String> {
        let layout = Self::fitting(&held)?;
        // SAFETY: the block is from this allocator, goes back once, and the layout fits it.
        unsafe { self.allocator.deallocate(held.ptr, layout) };
        Ok(())
    }

    /// The rules that `capacity` states.
    fn capacity(&self) -> Result<(), String> {
        for align in [1, 8, 64, 128, 4096] {
            let mut last = (0, 0);
            for size in edges(1 << 32) {
                let capacity = self.allocator.capacity(layout(size, align)?);
                let again = self.allocator.capacity(layout(capacity, align)?);
                if capacity < size || again != capacity {
                    return Err(format!(
                        "capacity({size}) is {capacity} and capacity({capacity}) is {again}"
                    ));
                }
                let between = size + (capacity - size) / 2;
                let middle = self.allocator.capacity(layout(between, align)?);
                if middle != capacity {
                    return Err(format!(
                        "capacity({between}) is {middle}, but capacity({size}) is {capacity}"
                    ));
                }
                if size >= last.0 && capacity < last.1 {
                    return Err(format!(
                        "capacity({size}) is less than capacity({})",
                        last.0
                    ));
                }
                if size >= last.0 {
                    last = (size, capacity);
                }
            }
        }
        Ok(())
    }

    /// Every size and alignment yields a block of its own, usable to the last byte.
    fn sizes(&self) -> Result<(), String> {
        for align in (0..=12).map(|k| 1 << k) {
            for (stamp, size) in edges(256 << 10).enumerate() {
                let Some(mut held) = self.allocate(layout(size, align)?, stamp as u64)? else {
                    continue;
                };
                held.fill();
                held.verify(held.len)?;
                self.deallocate(held)?;
            }
        }
        for (stamp, size) in [4 << 20, (4 << 20) + 1, 33 << 20].into_iter().enumerate() {
            if let Some(mut held) = self.allocate(layout(size, 64)?, stamp as u64)? {
                held.fill();
                held.verify(held.len)?;
                self.deallocate(held)?;
            }
        }
        // Many blocks of 0 bytes are out at once.
        let empty = layout(0, 64)?;
        let mut blocks = Vec::new();
        for stamp in 0..100 {
            blocks.extend(self.allocate(empty, stamp * 3)?);
        }
        blocks
            .into_iter()
            .try_for_each(|held| self.deallocate(held))
    }

    /// Alignments to 2 GiB are served as asked, or refused.
    fn extreme_alignments(&self) -> Result<(), String> {
        for align in (13..=31).map(|k| 1 << k) {
            for (stamp, size) in [0, 1, 100, 8192].into_iter().enumerate() {
                if let Some(mut held) = self.allocate(layout(size, align)?, stamp as u64)? {
                    held.len = size.max(held.len.min(8192));
                    held.fill();
                    held.verify(held.len)?;
                    held.stamp = 0; // goes back with the layout asked for
                    self.deallocate(held)?;
                }
            }
        }
        Ok(())
    }

    /// Sizes that no machine has are refused, whatever the alignment: nothing wraps around.
    fn extreme_sizes(&self) -> Result<(), String> {
        for align in (0..=30).map(|k| 1usize << k) {
            let most = isize::MAX as usize - (align - 1);
            for size in [most, most - 1, most - 100, most / 2 + 1] {
                let layout = layout(size, align)?;
                let plain = self.allocate(layout, 0)?;
                // Not to be looked at: nobody knows what is there.
                let zeroed = self.take(self.allocator.allocate_zeroed(layout), layout, 0)?;
                if let Some(held) = plain.or(zeroed) {
                    return Err(format!("{held}: nobody has that much"));
                }
            }
        }
        Ok(())
    }

    /// Zeroed memory is zero though the memory was dirty when it went back.
    fn zeroed(&self) -> Result<(), String> {
        for align in [1, 64, 4096] {
            for size in edges(512 << 10).chain([5 << 20]) {
                let layout = layout(size, align)?;
                let mut dirty = Vec::new();
                for stamp in 1..4 {
                    dirty.extend(self.allocate(layout, stamp)?);
                }
                for mut held in dirty {
                    held.fill();
                    self.deallocate(held)?;
                }
                let mut clean = Vec::new();
                for stamp in 1..4 {
                    clean.extend(self.allocate_zeroed(layout, stamp)?);
                }
                clean
                    .into_iter()
                    .try_for_each(|held| self.deallocate(held))?;
            }
        }
        Ok(())
    }

    /// Resizes a block and checks what it kept; a refusal must leave it as it was.
    fn resize(&self, held: Held, new: Layout) -> Result<Held, String> {
        let old = Self::fitting(&held)?;
        let answer = if new.size() >= old.size() {
            // SAFETY: the block is from this allocator, `old` fits it, and `new` is no shorter.
            unsafe { self.allocator.grow(held.ptr, old, new) }
        } else {
            // SAFETY: the block is from this allocator, `old` fits it, and `new` is shorter.
            unsafe { self.allocator.shrink(held.ptr, old, new) }
        };
        match self.take(answer, new, held.stamp)? {
            Some(mut resized) => {
                let kept = old.size().min(new.size());
                resized
                    .verify(kept)
                    .map_err(|error| format!("{error} ({old:?} to {new:?})"))?;
                resized.stamp += 1;
                resized.fill();
                Ok(resized)
            }
            None => {
                held.verify(held.len)?;
                Ok(held)
            }
        }
    }

    /// Growing and shrinking keep the contents, wherever the block lies afterwards.
    fn resizing(&self) -> Result<(), String> {
        for align in [1, 16, 64, 4096] {
            for stamp in 0..3 {
                let Some(mut held) = self.allocate(layout(0, align)?, stamp)? else {
                    continue;
                };
                held.fill();
                // Up and down again, by little steps and by large ones, to 0 and from it.
                let up = edges(2 << 20).step_by(5);
                let steps = [
                    1, 1, 2, 100, 101, 3, 100_000, 5_000_000, 0, 64, 0, 0, 4096, 4095,
                ];
                let down: Vec<_> = up.clone().collect();
                for size in up.chain(steps).chain(down.into_iter().rev()) {
                    held = self.resize(held, layout(size, align)?)?;
                }
                // Another alignment, up and down.
                for other in [align * 2, 1, 256, align] {
                    let len = held.len;
                    held = self.resize(held, layout(len + 1, other)?)?;
                }
                // What nobody can serve is refused, and leaves the block alone.
                let most = isize::MAX as usize - 4095;
                let before = held.len;
                held = self.resize(held, layout(most, align)?)?;
                if held.len != before {
                    return Err(format!("{held}: nobody has that much"));
                }
                held.verify(held.len)?;
                self.deallocate(held)?;
            }
        }
        Ok(())
    }

    /// Blocks that are out together lie apart and keep their contents.
    fn overlap(&self) -> Result<(), String> {
        let mut random = 1;
        let mut out = Vec::new();
        for round in 0..8 {
            for _ in 0..150 {
                random = splitmix(random);
                let size = (random % 0x4000) as usize >> ((random >> 32) % 12);
                let align = 1 << ((random >> 40) % 9);
                if let Some(mut held) = self.allocate(layout(size, align)?, random >> 8)? {
                    held.fill();
                    out.push(held);
                }
            }
            out.sort_unstable_by_key(|held| (held.ptr, held.len));
            for pair in out.windows(2) {
                if pair[0].end() > pair[1].ptr.addr().get() && pair[1].len > 0 {
                    return Err(format!("{} and {} overlap", pair[0], pair[1]));
                }
            }
            for (index, held) in core::mem::take(&mut out).into_iter().enumerate() {
                held.verify(held.len)?;
                if index % 3 == round % 3 {
                    out.push(held);
                } else {
                    self.deallocate(held)?;
                }
            }
        }
        out.into_iter().try_for_each(|held| self.deallocate(held))
    }

    /// Blocks go back on a thread that never allocated.
    fn elsewhere(&self) -> Result<(), String> {
        let (send, receive) = mpsc::sync_channel::<Held>(32);
        std::thread::scope(|scope| {
            let back = scope.spawn(move || {
                receive.into_iter().try_for_each(|held| {
                    held.verify(held.len)?;
                    self.deallocate(held)
                })
            });
            for (stamp, size) in edges(64 << 10).cycle().take(2000).enumerate() {
                if let Some(mut held) = self.allocate(layout(size, 64)?, stamp as u64)? {
                    held.fill();
                    if send.send(held).is_err() {
                        break; // the other thread has found something
                    }
                }
            }
            drop(send);
            back.join()
                .unwrap_or_else(|_| Err("a method unwound on another thread".to_owned()))
        })
    }

    /// Four threads churn, each giving back its own blocks and the others'.
    fn threads(&self) -> Result<(), String> {
        let shared = Mutex::new(VecDeque::new());
        std::thread::scope(|scope| {
            let shared = &shared;
            let threads: Vec<_> = (0..4)
                .map(|seed| scope.spawn(move || self.churn(splitmix(seed), shared)))
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err("a method unwound on some thread".to_owned()))
            })
        })?;
        let left = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        left.into_iter().try_for_each(|held| self.deallocate(held))
    }

    fn churn(&self, mut random: u64, shared: &Mutex<VecDeque<Held>>) -> Result<(), String> {
        for _ in 0..3000 {
            random = splitmix(random);
            let size = (random % 0x2000) as usize >> ((random >> 32) % 12);
            let layout = layout(size, 1 << ((random >> 40) % 8))?;
            let held = if random >> 63 == 0 {
                self.allocate(layout, random >> 8)?
            } else {
                self.allocate_zeroed(layout, random >> 8)?
            };
            let Some(mut held) = held else { continue };
            held.fill();
            let mut queue = shared.lock().unwrap_or_else(PoisonError::into_inner);
            queue.push_back(held);
            let other = if queue.len() > 64 {
                queue.pop_front()
            } else {
                None
            };
            drop(queue);
            if let Some(held) = other {
                held.verify(held.len)?;
                if held.stamp % 5 == 0 {
                    let (len, align) = (held.len, held.layout.align());
                    let new = Layout::from_size_align(len * 2, align).unwrap_or(held.layout);
                    let held = self.resize(held, new)?;
                    self.deallocate(held)?;
                } else {
                    self.deallocate(held)?;
                }
            }
        }
        Ok(())
    }
}
