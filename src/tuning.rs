//! Every constant of the pool in one place. `kernel` holds what the concurrent algorithms need;
//! beside it stand the small values with which the model checkers compile the same code.

/// Values of the shipped kernel.
pub mod kernel {
    /// Rounds that a magazine has room for.
    pub const MAGAZINE_ROUNDS: usize = 63;
    /// Classes that one pool can have.
    pub const CLASSES: usize = crate::class::COUNT;
    /// Pools with a place in the inline table of a thread; the rest take the slow table.
    pub const POOLS_PER_TABLE: usize = 64;
    /// Slabs that an arena can have; of 1,024 control blocks that is 2^24 in all.
    pub const SLABS: usize = 1 << 14;
    /// Last generation of a control block; a block that has reached it retires.
    pub const LAST_GENERATION: u32 = u32::MAX;
    /// Owners at which a count saturates: the buffer is leaked, never freed under an owner.
    pub const OWNERS_LIMIT: u32 = 1 << 30;
    /// Times that a trimmer looks at a busy owner before it leaves a request instead.
    pub const BUSY_LOOKS: u32 = 200;
}

/// The same constants, small, for loom and shuttle.
pub mod model {
    /// See [`super::kernel::MAGAZINE_ROUNDS`].
    pub const MAGAZINE_ROUNDS: usize = 2;
    /// See [`super::kernel::CLASSES`].
    pub const CLASSES: usize = 1;
    /// See [`super::kernel::POOLS_PER_TABLE`].
    pub const POOLS_PER_TABLE: usize = 2;
    /// See [`super::kernel::SLABS`].
    pub const SLABS: usize = 2;
    /// See [`super::kernel::LAST_GENERATION`].
    pub const LAST_GENERATION: u32 = 3;
    /// See [`super::kernel::OWNERS_LIMIT`].
    pub const OWNERS_LIMIT: u32 = 8;
    /// See [`super::kernel::BUSY_LOOKS`].
    pub const BUSY_LOOKS: u32 = 1;
}

/// Values of the memory sources.
pub mod source {
    /// Blocks from this size up are mappings of their own (glibc's own threshold to begin with).
    pub const MAPPED_FROM: usize = 128 << 10;
    /// Size of a huge page.
    pub const HUGE_PAGE: usize = 2 << 20;
    /// Mappings from this size up are aligned to a huge page, with the advice to use them.
    /// Resting ones are zeroed by `MADV_DONTNEED`, smaller ones by a fill. Microseconds to make
    /// a resident block zero, then also to write all of it (medians, 2-core Zen 3 VM, Linux 6.18;
    /// table in `docs/measurements.md`):
    ///
    /// | block | pages | fill | discard | fill + write | discard + write |
    /// |---|---|---|---|---|---|
    /// | 1 MiB | 4 KiB | 22 | 67 | 46 | 630 |
    /// | 2 MiB | 4 KiB | 46 | 130 | 98 | 1,270 |
    /// | 2 MiB | 2 MiB | 43 | 11 | 86 | 125 |
    /// | 16 MiB | 2 MiB | 491 | 55 | 974 | 1,140 |
    /// | 80 MB | 2 MiB | 2,379 | 262 | 6,733 | 10,041 |
    ///
    /// With 4 KiB pages a fill wins always. With huge pages discarding is 4 to 13 times cheaper
    /// for what is not touched, and costs at most 1.2 to 2 times as much in all if everything is.
    pub const HUGE_FROM: usize = HUGE_PAGE;
    /// Largest alignment that the heap gives without padding.
    pub const HEAP_NATURAL_ALIGN: usize = 16;
    /// Larger alignments are raised to this, from which on glibc packs padded blocks.
    pub const HEAP_PACKED_ALIGN: usize = 128;
    /// Bytes in front of each aligned block of glibc's heap.
    pub const HEAP_HEADER: usize = 16;
}
