//! Every allocator of the crate, stacks of adaptors and hostile upstreams, under one suite.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use ndpool::Pool;
use ndpool::allocator::{BufferAllocator, Limited, System, Tracked};
use ndpool::conformance::{Report, check};

mod hostile;
use hostile::{Broken, Flaky, Rounding, Secretive, free, layout};

const PLENTY: usize = 1 << 36;

/// Runs the suite; everything ordinary must be served.
fn passes(allocator: &(impl BufferAllocator + ?Sized)) -> Report {
    let report = check(allocator).unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(report.refused, 0, "{report}");
    assert!(report.served > 10_000, "{report}");
    report
}

/// Nothing is out, nothing was wrong.
fn settled<A>(tracked: &Tracked<A>) {
    let report = tracked.report();
    assert_eq!((report.live_blocks, report.live_bytes), (0, 0), "{report}");
    assert_eq!(report.misuse_count, 0, "{report}");
    assert_eq!(tracked.outstanding(), []);
    assert!(
        report.peak_bytes > 0 && report.total_bytes >= report.peak_bytes,
        "{report}"
    );
}

#[test]
fn system_and_pointers_to_it_keep_the_promises() {
    passes(&System);
    passes(&&System);
    passes(&Arc::new(System));
    passes(&(Box::new(System) as Box<dyn BufferAllocator>));
    passes(&(Arc::new(&System) as Arc<dyn BufferAllocator>));
    passes(&System as &dyn BufferAllocator);
}

#[test]
fn adaptors_keep_the_promises_and_end_where_they_began() {
    let limited = Limited::new("plenty", PLENTY, System);
    passes(&limited);
    assert_eq!(limited.used(), 0);
    for tracked in [
        Tracked::checked(System),
        Tracked::unchecked(System),
        Tracked::new(System),
    ] {
        passes(&tracked);
        settled(&tracked);
    }
}

#[test]
fn stacks_of_adaptors_keep_the_promises() {
    let inner = Arc::new(Tracked::checked(Limited::new("inner", PLENTY, Rounding)));
    let outer: Box<dyn BufferAllocator> = Box::new(Limited::new(
        "outer",
        PLENTY,
        Tracked::checked(inner.clone()),
    ));
    let outer = Tracked::checked(Limited::new("outermost", PLENTY, outer));
    passes(&outer);
    settled(&outer);
    settled(&inner);
    assert_eq!((outer.inner().used(), inner.inner().used()), (0, 0));
}

#[test]
fn blocks_longer_than_asked_never_make_accounting_drift_f68() {
    passes(&Rounding);
    passes(&Secretive(AtomicU64::new(0)));
    for slack in [
        Box::new(Rounding) as Box<dyn BufferAllocator>,
        Box::new(Secretive(AtomicU64::new(0))),
    ] {
        let node = Tracked::checked(Limited::new("node", PLENTY, Tracked::checked(slack)));
        passes(&node);
        settled(&node);
        settled(node.inner().inner());
        assert_eq!(node.inner().used(), 0);
    }
    // A length that the upstream keeps to itself is cut off by the first adaptor, whichever it is.
    let node = Limited::new("node", PLENTY, Secretive(AtomicU64::new(0)));
    passes(&node);
    assert_eq!(node.used(), 0);
    // Asked, returned or between: the charge is the class, and so is the discharge.
    let node = Limited::new("node", PLENTY, Rounding);
    for (size, class) in [(1, 48), (48, 48), (49, 96), (1000, 1008)] {
        for back in [size, usize::midpoint(size, class), class] {
            let block = node.allocate(layout(size, 8)).unwrap();
            assert_eq!((block.len(), node.used()), (class, class));
            free(&node, block, layout(back, 8));
            assert_eq!(node.used(), 0, "{size} came back as {back}");
        }
    }
}

#[test]
fn a_limit_below_the_suite_refuses_and_keeps_count() {
    let node = Tracked::checked(Limited::new("small", 100_000, System));
    let report = check(&node).unwrap();
    assert!(report.refused > 1000 && report.served > 10_000, "{report}");
    settled(&node);
    assert_eq!(node.inner().used(), 0);
    assert!(node.report().peak_bytes <= 100_000);
}

#[test]
fn hostile_upstreams_are_harmless_behind_adaptors() {
    for (k, slow) in [(0, true), (1, false), (2, false), (3, true), (7, false)] {
        let node = Tracked::checked(Limited::new("node", PLENTY, Flaky::new(k, slow)));
        let report = check(&node).unwrap();
        let upstream = node.inner().inner();
        assert_eq!(upstream.failed.load(Relaxed) > 0, k > 0);
        assert_eq!(report.refused > 0, k > 0, "{report}");
        let counts = node.report();
        assert_eq!((counts.live_blocks, counts.live_bytes), (0, 0), "{counts}");
        assert_eq!(counts.misuse_count, 0, "{counts}");
        assert_eq!(node.inner().used(), 0);
    }
}

#[test]
fn the_suite_finds_what_it_looks_for() {
    for (promise, found) in [
        (0, "capacity"),
        (1, "not aligned"),
        (2, "shorter than its capacity"),
        (3, "extreme sizes"),
        (4, "overlap"),
        (5, "byte 100 is not zero"),
        (6, "grow and shrink"),
        (7, "unwound"),
    ] {
        let stuck = AtomicUsize::new(0);
        let violation = check(&Broken { promise, stuck }).expect_err("a broken promise");
        assert!(
            violation.to_string().contains(found),
            "promise {promise}: {violation}"
        );
    }
}

#[test]
fn pools_keep_the_promises_and_end_where_they_began() {
    for pool in [
        Pool::new(),
        Pool::builder().max_class(1 << 12).build(),
        Pool::builder().cache_budget(0).build(),
        Pool::builder().cap(0).slack(0.0).build(),
    ] {
        passes(&pool);
        assert_eq!(pool.audit().unwrap().live, 0);
        let tracked = Tracked::checked(Limited::new("plenty", PLENTY, &pool));
        passes(&tracked);
        settled(&tracked);
        assert_eq!(tracked.inner().used(), 0);
        assert_eq!(pool.audit().unwrap().live, 0);
        pool.trim();
        assert_eq!(pool.stats().held_bytes, 0);
    }
}
