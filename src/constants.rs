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
    /// Lease slots of one slab.
    pub const LEASES_PER_SLAB: usize = 256;
    /// Address bits resolved by the root of the page map.
    pub const ROOT_BITS: u32 = 12;
    /// Address bits resolved by each of its two inner levels.
    pub const NODE_BITS: u32 = 10;
    /// Address bits resolved by its leaves; a leaf covers 64 KiB. With the six bits below, 48.
    pub const LEAF_BITS: u32 = 10;
    /// Last generation of a control block; a block that has reached it retires. Under `--cfg
    /// ndpool_narrow`, for stress on real threads, soon.
    pub const LAST_GENERATION: u32 = if cfg!(ndpool_narrow) { 7 } else { u32::MAX };
    /// Owners at which a count saturates: the buffer is leaked, never freed under an owner.
    pub const OWNERS_LIMIT: u32 = 1 << 30;
    /// Times that a trimmer looks at a busy owner before it leaves a request instead.
    pub const BUSY_LOOKS: u32 = 200;
    /// Times that an audit looks at threads that are on their way out.
    pub const AUDIT_LOOKS: u32 = 100_000;
    /// Most blocks of one class without magazines that a cache has berths for.
    pub const BERTHS_PER_CLASS: u32 = 4;
    /// Magazines for which a class charges the budget of a cache: loaded, previous, one in flight.
    pub const MAGAZINES_PER_SHELF: usize = 3;
}

/// The same constants, small, for loom and shuttle.
#[cfg_attr(not(any(feature = "loom", feature = "shuttle")), allow(dead_code))]
pub mod model {
    /// See `super::kernel::MAGAZINE_ROUNDS`.
    pub const MAGAZINE_ROUNDS: usize = 2;
    /// See `super::kernel::CLASSES`.
    pub const CLASSES: usize = 1;
    /// See `super::kernel::POOLS_PER_TABLE`.
    pub const POOLS_PER_TABLE: usize = 2;
    /// See `super::kernel::SLABS`.
    pub const SLABS: usize = 2;
    /// See `super::kernel::LEASES_PER_SLAB`.
    pub const LEASES_PER_SLAB: usize = 2;
    /// See `super::kernel::ROOT_BITS`.
    pub const ROOT_BITS: u32 = 1;
    /// See `super::kernel::NODE_BITS`.
    pub const NODE_BITS: u32 = 1;
    /// See `super::kernel::LEAF_BITS`.
    pub const LEAF_BITS: u32 = 1;
    /// See `super::kernel::LAST_GENERATION`.
    pub const LAST_GENERATION: u32 = 3;
    /// See `super::kernel::OWNERS_LIMIT`.
    pub const OWNERS_LIMIT: u32 = 8;
    /// See `super::kernel::BUSY_LOOKS`.
    pub const BUSY_LOOKS: u32 = 1;
    /// See `super::kernel::AUDIT_LOOKS`.
    pub const AUDIT_LOOKS: u32 = 1;
    /// See `super::kernel::BERTHS_PER_CLASS`.
    pub const BERTHS_PER_CLASS: u32 = 2;
    /// See `super::kernel::MAGAZINES_PER_SHELF`.
    pub const MAGAZINES_PER_SHELF: usize = 3;
}

/// Values of the pool.
pub mod pool {
    /// Least alignment of a payload, in bytes: what the widest consumers ask for.
    pub const MIN_ALIGN: usize = if cfg!(target_arch = "x86_64") {
        128
    } else {
        64
    };
    /// Control blocks of one slab: 64 KiB.
    pub const BLOCKS_PER_SLAB: usize = 1024;
    /// Magazines of one slab: 16 KiB.
    pub const MAGAZINES_PER_SLAB: usize = 32;
    /// Caches of one slab.
    pub const CACHES_PER_SLAB: usize = 4;
    /// Thread slots of one slab.
    pub const SLOTS_PER_SLAB: usize = 16;
    /// Cores of one slab.
    pub const CORES_PER_SLAB: usize = 4;
    /// Bytes that one magazine may hold.
    pub const MAGAZINE_BYTES: usize = 32 << 10;
    /// Blocks of the classes without magazines that one thread's cache may keep: those of which
    /// less than two fit a magazine.
    pub const BERTHS: u32 = 64;
    /// Largest default class, in bytes.
    pub const MAX_CLASS: usize = 1 << 30;
    /// Bytes of one thread's cache that count as in use, and not as resting (C).
    pub const CACHE_BUDGET: usize = 2 << 20;
    /// Bytes that a pool may hold whatever its recent peak is. Without it a program that lives on
    /// 2 MiB would fault its memory in again and again (trace `digits`).
    pub const FLOOR: usize = 6 << 20;
    /// Requests from this size up may be served by a larger resting block.
    pub const REUSE_FROM: usize = 64 << 10;
    /// Classes above its own that may serve a request: four would be twice the size.
    pub const REUSE_CLASSES: usize = 3;
    /// Interval of ageing on slow paths.
    pub const INTERVAL: core::time::Duration = core::time::Duration::from_secs(1);
    /// Births and takes from the depot between two looks at the clock of ageing.
    pub const LOOK_EVERY: u64 = 64;
    /// Slack over the recent peak, in 1024ths.
    pub const SLACK_1024: u64 = 287;
    /// Births and takes from the depot in one window of the recent peak.
    pub const WINDOW: u64 = 20_000;
}

/// Values of the ledger that finds misuse of an allocator.
pub mod ledger {
    /// Shards by address, so that threads seldom meet at a lock.
    pub const SHARDS: usize = 16;
    /// Addresses that each shard remembers after their blocks went back.
    pub const REMEMBERED: usize = 256;
    /// Misuses that are kept with their details; more are only counted.
    pub const KEPT: usize = 64;
}

/// Values of timelines.
pub mod timeline {
    /// Events that a ring keeps, unless told.
    pub const EVENTS: usize = 1 << 16;
    /// Most events that a ring may keep: of 56 bytes each, 900 MB.
    pub const MOST_EVENTS: usize = 1 << 24;
    /// Threads whose names are known, the first ones.
    pub const NAMED_THREADS: usize = 1024;
    /// Stretches of time into which a page cuts a recording.
    #[cfg(feature = "timeline")]
    pub const STRETCHES: usize = 800;
    /// Classes that have a colour of their own on a page.
    #[cfg(feature = "timeline")]
    pub const COLOURED_CLASSES: usize = 9;
}

/// Values of the checks.
pub mod watch {
    /// Frames of a stack that are remembered.
    pub const FRAMES: usize = 48;
    /// Entries of one chunk of what is remembered beside the cells of an arena.
    pub const CHUNK: usize = 1024;
    /// Chunks that there can be: enough for every control block and lease.
    pub const CHUNKS: usize = super::kernel::SLABS;
    /// Fills what was released, and what lies between a guarded buffer and its guard.
    pub const PATTERN: u8 = 0xDB;
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
