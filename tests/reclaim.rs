//! What goes back, when, and which first: ageing, eviction and trims at their edges.

use std::process::Command;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use ndpool::{Buffer, Pool, PoolBuilder};

mod field;
use field::{Watched, eventually};

const MIB: usize = 1 << 20;

fn strict(source: &Arc<Watched>) -> PoolBuilder {
    Pool::builder()
        .source(Arc::clone(source))
        .slack(0.0)
        .floor(0)
        .cache_budget(0)
        .reuse_classes(0)
        .interval(Duration::from_secs(3600))
}

fn take(pool: &Pool, bytes: usize, count: usize) -> Vec<Buffer<u8>> {
    (0..count)
        .map(|_| pool.zeroed::<u8>(bytes).unwrap())
        .collect()
}

/// What makes room for a birth is what has rested for long, also between the depot and the thread's
/// own berths: of a class in use part rests in the depot, and does not go for that before a berth that
/// serves nobody.
#[test]
fn an_idle_berth_makes_room_before_a_busy_class_of_the_depot() {
    let source = Watched::new();
    let pool = strict(&source).slack(0.25).cache_budget(2 * MIB).build();
    let (idle, busy) = (5 * MIB, 8 * MIB);
    let of = |bytes| {
        let classes = pool.stats().classes;
        let class = classes.into_iter().find(|class| class.capacity == bytes);
        class.unwrap()
    };
    drop((take(&pool, idle, 1), take(&pool, busy, 6)));
    for _ in 0..10 {
        drop(take(&pool, busy, 6));
    }
    let rests = (of(idle).cached, of(busy).cached, of(busy).depot);
    assert_eq!(rests, (1, 4, 2));
    // 53 MiB and 16 more, of 66.
    drop(take(&pool, 16 * MIB, 1));
    assert_eq!((of(idle).deaths, of(busy).deaths), (1, 0));
    drop(take(&pool, busy, 6));
    assert_eq!(of(busy).births, 6);
    pool.audit().unwrap();
}

/// Nor does what is in use at every moment, where classes go to the depot without magazines.
#[test]
fn idle_blocks_make_room_before_busy_ones() {
    let source = Watched::new();
    let pool = strict(&source).build();
    let (idle, busy) = (MIB, 3 * MIB / 2);
    drop((take(&pool, idle, 4), take(&pool, busy, 4)));
    for _ in 0..1000 {
        drop(take(&pool, busy, 1));
    }
    assert_eq!((source.births(), source.deaths()), (8, 0));
    // Two mebibytes more than were ever in use: two idle ones have to go.
    let newcomer = take(&pool, 2 * MIB, 1);
    assert_eq!((source.births(), source.deaths()), (9, 2));
    drop(take(&pool, busy, 4));
    assert_eq!(source.births(), 9, "busy blocks were sent home");
    drop(newcomer);
}

/// The background thread is woken by large blocks as well, which rest without magazines, and takes
/// them home with no traffic at all.
#[test]
fn the_background_thread_ages_large_blocks_without_traffic() {
    let source = Watched::new();
    let pool = Pool::builder()
        .source(Arc::clone(&source))
        .trimmer(Duration::from_millis(20))
        .build();
    drop(take(&pool, 16 * MIB, 3));
    assert_eq!(source.births(), 3);
    eventually("large blocks age", || source.live() == 0);
}

/// One pool's long interval does not keep the background thread from another's short one.
#[test]
fn a_long_interval_of_one_pool_does_not_hold_up_another() {
    let (slow_source, source) = (Watched::new(), Watched::new());
    let slow = Pool::builder()
        .source(Arc::clone(&slow_source))
        .trimmer(Duration::from_secs(3600))
        .build();
    drop(take(&slow, 1000, 3));
    // The thread is asleep for an hour now, if it sleeps by the first pool alone.
    thread::sleep(Duration::from_millis(100));
    let pool = Pool::builder()
        .source(Arc::clone(&source))
        .trimmer(Duration::from_millis(20))
        .build();
    drop(take(&pool, 1000, 3));
    eventually("the second pool ages", || source.live() == 0);
    assert!(slow_source.live() > 0, "aged before its time");
}

/// Where a trimmer can only leave a request, because this system has no membarrier: the owner's own
/// trim answers it, and nothing rests afterwards.
#[test]
fn a_trim_answers_what_an_earlier_one_left_to_this_thread() {
    const NAME: &str = "a_trim_answers_what_an_earlier_one_left_to_this_thread";
    if std::env::var_os("NDPOOL_NO_MEMBARRIER").is_none() {
        let status = Command::new(std::env::current_exe().unwrap())
            .args([NAME, "--exact"])
            .env("NDPOOL_NO_MEMBARRIER", "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let (pool, source) = field::watched();
    drop(take(&pool, 1000, 20));
    assert_eq!(source.live(), 20);
    thread::scope(|scope| scope.spawn(|| pool.trim()).join().unwrap());
    assert_eq!(source.live(), 20, "left to the owner");
    assert!(pool.trim() >= 20_000);
    assert_eq!(source.live(), 0);
    pool.audit().unwrap();

    // A close is answered at the owner's next operation, or by its exit.
    let (pool, source) = field::watched();
    let (ready, closed) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        let owner = scope.spawn(|| {
            drop(take(&pool, 1000, 20));
            ready.wait();
            closed.wait();
        });
        ready.wait();
        pool.close();
        assert_eq!(source.live(), 20, "left to the owner");
        closed.wait();
        owner.join().unwrap();
        assert_eq!(source.live(), 0);
    });
}

/// A source whose deallocation drops a buffer of the very pool that is being trimmed.
#[derive(Debug, Default)]
struct Dropping {
    os: ndpool::source::Os,
    kept: std::sync::Mutex<Vec<ndpool::Buffer<std::mem::MaybeUninit<u8>>>>,
}

// SAFETY: the memory is `Os`'s; the drop of a buffer touches none of it.
#[allow(unsafe_code)]
unsafe impl ndpool::source::Source for Dropping {
    fn name(&self) -> &'static str {
        "dropping"
    }

    fn alloc(
        &self,
        layout: std::alloc::Layout,
        zeroed: bool,
    ) -> Result<ndpool::source::Memory, ndpool::AllocError> {
        self.os.alloc(layout, zeroed)
    }

    unsafe fn dealloc(
        &self,
        base: std::ptr::NonNull<u8>,
        layout: std::alloc::Layout,
        token: usize,
    ) {
        let kept = self.kept.lock().unwrap().pop();
        drop(kept);
        // SAFETY: the caller's promise, passed on.
        unsafe { self.os.dealloc(base, layout, token) };
    }

    fn footprint(&self, layout: std::alloc::Layout) -> usize {
        self.os.footprint(layout)
    }
}

/// What comes home while its thread empties its own cache finds a place whose charge is kept.
#[test]
fn a_source_that_drops_a_buffer_during_a_trim_leaves_the_books_right() {
    let source = Arc::new(Dropping::default());
    let pool = Pool::builder().source(Arc::clone(&source)).build();
    for _ in 0..3 {
        // Taken elsewhere, so that each may have a berth.
        let kept: Vec<_> = (0..4)
            .map(|_| pool.allocate::<u8>(3 << 20).unwrap())
            .collect();
        drop(pool.allocate::<u8>(100 << 10).unwrap());
        source.kept.lock().unwrap().extend(kept);
        pool.trim();
        pool.audit().unwrap();
        while pool.trim() > 0 {}
        pool.audit().unwrap();
        assert_eq!(pool.stats().held_bytes, 0, "{}", pool.stats());
    }
}
