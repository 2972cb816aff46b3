//! Workloads, their cases, and the contenders by name.

use std::alloc::System;

use crate::contender::{self, Allocator, Contender, Raised, Setup};
use crate::measure::{Budget, Sample};
use crate::ours;
use crate::pools;

/// What is done with a buffer between its allocation and its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Nothing.
    Untouched,
    /// One byte a page is written.
    Page,
    /// Every byte is written.
    Full,
}

impl Touch {
    /// As labels name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Untouched => "untouched",
            Self::Page => "a byte a page",
            Self::Full => "written",
        }
    }
}

/// One row group of a table: the same work for every contender.
#[derive(Clone, Debug)]
pub struct Case {
    /// Names it within its workload.
    pub label: String,
    /// Part of `--quick`.
    pub quick: bool,
    /// Smallest request, in bytes; equal to `size` where sizes do not vary.
    pub low: usize,
    /// Largest request, in bytes.
    pub size: usize,
    /// Alignment asked of allocators. Pools give what they give.
    pub align: usize,
    /// Buffers alive at once on a thread.
    pub depth: usize,
    /// What is done with a buffer.
    pub touch: Touch,
    /// Threads at work.
    pub threads: usize,
    /// Who takes part.
    pub contenders: Vec<&'static str>,
}

impl Case {
    /// One thread, one untouched buffer at a time, alignment 16.
    pub fn of(label: impl Into<String>, size: usize, contenders: &[&'static str]) -> Self {
        Self {
            label: label.into(),
            quick: false,
            low: size,
            size,
            align: 16,
            depth: 1,
            touch: Touch::Untouched,
            threads: 1,
            contenders: contenders.to_vec(),
        }
    }
}

impl Case {
    /// A fresh contender, for buffers of up to this case's size of which so many are alive at once, over all threads.
    pub fn start<C: Contender>(&self, live: usize) -> &'static C {
        let size = self.size;
        contender::start(Setup { size, live })
    }
}

/// A question, and how it is put.
pub struct Workload {
    /// As `--only` takes it.
    pub name: &'static str,
    /// The table's heading.
    pub title: &'static str,
    /// What one operation is.
    pub op: &'static str,
    /// All its cases.
    pub cases: fn() -> Vec<Case>,
    /// Measures one case for one contender; `None` if that contender is not built.
    pub run: fn(&Case, &str, Budget) -> Option<Sample>,
}

/// Our own row, the one that ratios are taken of.
pub const OURS: &str = "ndpool";
/// Ours with its background trimmer on.
pub const TRIMMER: &str = "ndpool-trimmer";
/// Ours as users of arrays meet it: owned arrays and their operators.
pub const ARRAYS: &str = "arrays";
/// Joins by preload.
pub const PRELOADED: &str = "tcmalloc";
/// General allocators.
pub const ALLOCATORS: [&str; 8] = [
    OURS,
    "glibc",
    "glibc-raised",
    "mimalloc",
    "jemalloc",
    "snmalloc",
    "rpmalloc",
    PRELOADED,
];
/// Pools, and what is written by hand in their place.
pub const POOLS: [&str; 8] = [
    OURS,
    "by-hand",
    "array-queue",
    "zeropool",
    "opool",
    "object-pool",
    "lockfree-object-pool",
    "sharded-slab",
];

/// Allocators, and some more.
pub fn allocators_and<const N: usize>(more: [&'static str; N]) -> Vec<&'static str> {
    ALLOCATORS.into_iter().chain(more).collect()
}

/// All of them, ours once.
pub fn everyone() -> Vec<&'static str> {
    ALLOCATORS.iter().chain(&POOLS[1..]).copied().collect()
}

/// Work that is generic over the contender.
pub trait Visit {
    /// What it returns.
    type Output;
    /// Does it.
    fn with<C: Contender>(self) -> Self::Output;
}

/// Runs `visit` with the contender of that name; `None` if it is not built.
pub fn visit<V: Visit>(name: &str, visit: V) -> Option<V::Output> {
    #[cfg(feature = "pools")]
    match name {
        "zeropool" => return Some(visit.with::<pools::Zeropool>()),
        "opool" => return Some(visit.with::<pools::Opool>()),
        "object-pool" => return Some(visit.with::<pools::ObjectPool>()),
        "lockfree-object-pool" => return Some(visit.with::<pools::Linear>()),
        "sharded-slab" => return Some(visit.with::<pools::Sharded>()),
        _ => {}
    }
    match name {
        OURS => Some(visit.with::<ours::Ndpool>()),
        TRIMMER => Some(visit.with::<ours::Ndpool<true>>()),
        "by-hand" => Some(visit.with::<pools::ByHand>()),
        "array-queue" => Some(visit.with::<pools::Queue>()),
        _ => visit_allocator::<V, 16>(name, visit),
    }
}

/// Runs `visit` with the allocator of that name at an alignment; `None` if it is not built.
pub fn visit_allocator<V: Visit, const ALIGN: usize>(name: &str, visit: V) -> Option<V::Output> {
    match name {
        "glibc" | PRELOADED => Some(visit.with::<Allocator<System, ALIGN>>()),
        "glibc-raised" => Some(visit.with::<Allocator<Raised, ALIGN>>()),
        #[cfg(feature = "mimalloc")]
        "mimalloc" => Some(visit.with::<Allocator<mimalloc::MiMalloc, ALIGN>>()),
        #[cfg(feature = "jemalloc")]
        "jemalloc" => Some(visit.with::<Allocator<tikv_jemallocator::Jemalloc, ALIGN>>()),
        #[cfg(feature = "snmalloc")]
        "snmalloc" => Some(visit.with::<Allocator<snmalloc_rs::SnMalloc, ALIGN>>()),
        #[cfg(feature = "rpmalloc")]
        "rpmalloc" => Some(visit.with::<Allocator<rpmalloc::RpMalloc, ALIGN>>()),
        _ => None,
    }
}

/// A size in binary units, as labels show it.
pub fn bytes(size: usize) -> String {
    match size {
        0..1024 => format!("{size} B"),
        1024..1_048_576 => format!("{} KiB", size >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", size >> 20),
        _ => format!("{} GiB", size >> 30),
    }
}

/// A number of threads, as labels show it.
pub fn threads(count: usize) -> String {
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}
