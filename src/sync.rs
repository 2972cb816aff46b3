//! The facade between the kernel and what orders its threads: here std's, in `loom_model` and
//! `shuttle_model` a model checker's.

pub use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// A cell whose every access goes through a closure, so that a model checker can watch it.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// A cell that holds `value`.
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Gives `f` a pointer to read through.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Gives `f` a pointer to write through.
    #[inline(always)]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// The owner's half of the asymmetric store-load barrier: costs nothing, orders the compiler only.
/// Pairs with [`heavy_barrier`], which makes every other thread execute a full one.
#[inline(always)]
pub fn light_barrier() {
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// The other half of [`light_barrier`]: `false` where this system has none, and then nothing may
/// be concluded about what owners have stored.
pub fn heavy_barrier() -> bool {
    crate::os::membarrier()
}

/// Whether [`heavy_barrier`] is to be had here, and with it the caches of threads that sleep.
pub fn is_reachable() -> bool {
    crate::os::has_membarrier()
}

/// Stores to a word that nobody else may change now, though others may try by compare-and-swap. The
/// models swap: they take a plain store beside a read-modify-write for a race.
#[inline(always)]
pub fn set(word: &AtomicU64, value: u64, order: Ordering) {
    word.store(value, order);
}

/// One look of waiting for another thread, of which there have been `looks` before. Whoever waits long
/// sleeps: a thread of lower priority may be in need of this core.
pub fn pause(looks: u32) {
    if looks < 1_000 {
        std::thread::yield_now();
    } else {
        std::thread::sleep(core::time::Duration::from_micros(100));
    }
}

/// A number for the calling thread, never 0, that no other living thread has.
pub fn this_thread() -> u64 {
    thread_local! { static NAME: u8 = const { 0 } }
    // Without a destructor: it is there until the thread is gone.
    NAME.with(|name| core::ptr::from_ref(name).addr() as u64)
}

/// A statistic with one writer: orders nothing, is not modelled.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Tally(AtomicU64);

impl Tally {
    /// A tally of 0.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `n`; only the one writer may call this.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        // Ordering: Relaxed - statistic with one writer; nothing is published through it.
        self.0
            .store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    /// Back to 0; only the one writer may call this. Returns what it was.
    pub fn reset(&self) -> u64 {
        let was = self.get();
        // Ordering: Relaxed - as in `add`.
        self.0.store(0, Ordering::Relaxed);
        was
    }

    /// The value now, or shortly before.
    pub fn get(&self) -> u64 {
        // Ordering: Relaxed - as in `add`.
        self.0.load(Ordering::Relaxed)
    }
}

/// A statistic with many writers: orders nothing, is not modelled.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter of 0.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        // Ordering: Relaxed - statistic; nothing is published through it.
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Adds `n` unless that would exceed `limit`; then what it was before.
    pub fn try_add(&self, n: u64, limit: u64) -> Option<u64> {
        // Ordering: Relaxed - a sum; nothing is published through it.
        let update = self
            .0
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                now.checked_add(n).filter(|&sum| sum <= limit)
            });
        update.ok()
    }

    /// Adds `n` and returns what it was before.
    pub fn tick(&self, n: u64) -> u64 {
        // Ordering: Relaxed - statistic; nothing is published through it.
        self.0.fetch_add(n, Ordering::Relaxed)
    }

    /// Raises the value to `n` if it is below.
    pub fn raise(&self, n: u64) {
        // Ordering: Relaxed - statistic; nothing is published through it.
        if self.0.load(Ordering::Relaxed) < n {
            // Ordering: Relaxed - as above.
            self.0.fetch_max(n, Ordering::Relaxed);
        }
    }

    /// Lowers the value to `n` if it is above.
    pub fn lower(&self, n: u64) {
        // Ordering: Relaxed - statistic; nothing is published through it.
        if self.0.load(Ordering::Relaxed) > n {
            // Ordering: Relaxed - as above.
            self.0.fetch_min(n, Ordering::Relaxed);
        }
    }

    /// Replaces `old` by `new`; says whether it did.
    pub fn turn(&self, old: u64, new: u64) -> bool {
        // Ordering: Relaxed - a clock's hand; nothing is published through it.
        self.0
            .compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Replaces the value and returns what it was.
    pub fn replace(&self, n: u64) -> u64 {
        // Ordering: Relaxed - statistic; nothing is published through it.
        self.0.swap(n, Ordering::Relaxed)
    }

    /// Takes `n` away.
    pub fn sub(&self, n: u64) {
        // Ordering: Relaxed - statistic; nothing is published through it.
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    /// The value now, or shortly before.
    pub fn get(&self) -> u64 {
        // Ordering: Relaxed - statistic; nothing is published through it.
        self.0.load(Ordering::Relaxed)
    }
}

/// Makes the functions in it `const` where the facade's constructors are.
macro_rules! const_fn {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $body:block)*) => {
        $($(#[$meta])* $vis const fn $name($($arg: $ty),*) -> $ret $body)*
    };
}
pub(crate) use const_fn;

/// An array of `n` equal, freshly built values.
macro_rules! array {
    ($value:expr; $n:expr) => {
        [const { $value }; $n]
    };
}
pub(crate) use array;

/// Stands before an Acquire fence, with the word whose releases it acquires: ThreadSanitizer knows no
/// fences, and builds for it pass `--cfg ndpool_tsan`.
macro_rules! before_fence {
    ($word:expr) => {
        #[cfg(ndpool_tsan)]
        $word.load(core::sync::atomic::Ordering::Acquire);
    };
}
pub(crate) use before_fence;
