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
    /// Cells of one slab of an arena.
    pub const SLAB_CELLS: usize = 256;
    /// Slabs that an arena can have: 2^24 cells in all.
    pub const SLABS: usize = 1 << 16;
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
    /// See [`super::kernel::SLAB_CELLS`].
    pub const SLAB_CELLS: usize = 4;
    /// See [`super::kernel::SLABS`].
    pub const SLABS: usize = 2;
    /// See [`super::kernel::LAST_GENERATION`].
    pub const LAST_GENERATION: u32 = 3;
    /// See [`super::kernel::OWNERS_LIMIT`].
    pub const OWNERS_LIMIT: u32 = 8;
    /// See [`super::kernel::BUSY_LOOKS`].
    pub const BUSY_LOOKS: u32 = 1;
}
