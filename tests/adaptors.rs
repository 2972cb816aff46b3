//! `Limited` and `Tracked` under races, failures, misuse and impossible requests.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex, OnceLock, Weak};

use ndpool::AllocErrorKind;
use ndpool::allocator::{BufferAllocator, Limited, MisuseKind, System, Tracked};

mod hostile;
use hostile::{Flaky, Reissuing, Rounding, Watching, free, layout};

/// Runs `work` on `threads` threads that start together.
fn together(threads: usize, work: impl Fn(usize) + Sync) {
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(thread);
            });
        }
    });
}

#[test]
fn the_ledger_is_clear_before_the_address_can_come_again_f62() {
    // RMM 2303: the upstream issues an address again at once, to another thread.
    let node = Tracked::checked(Limited::new("node", 1 << 30, Reissuing::default()));
    together(8, |thread| {
        for round in 0..2000 {
            let layout = layout(64 << (round % 2), 64);
            let block = node.allocate(layout).expect("within the limit");
            if (round + thread).is_multiple_of(3) {
                let longer = hostile::layout(layout.size() * 2, 64);
                // SAFETY: the block is ours, `layout` is its own, and the new one is longer.
                let block = unsafe { node.grow(block.cast(), layout, longer) }.expect("memory");
                free(&node, block, longer);
            } else {
                free(&node, block, layout);
            }
        }
    });
    let report = node.report();
    assert!(
        node.inner().inner().reissued.load(Relaxed) > 1000,
        "the upstream was not hostile"
    );
    assert_eq!(
        (report.misuse_count, report.live_blocks, report.live_bytes),
        (0, 0, 0),
        "{report}"
    );
    assert_eq!(node.inner().used(), 0);
}

#[test]
fn foreign_pointers_wrong_layouts_and_second_deallocations_change_no_count_f63() {
    // RMM 2404: an unknown pointer made the counter underflow.
    let node = Tracked::checked(Limited::new("node", 1 << 20, Rounding));
    let asked = layout(100, 64);
    let kept = node.allocate(asked).expect("memory");
    assert_eq!(kept.len(), 144);
    let counts = |node: &Tracked<_>| (node.report().live_bytes, node.report().live_blocks);

    let mut elsewhere = [0u8; 100];
    let foreign = NonNull::from(&mut elsewhere).cast::<u8>();
    // SAFETY: it is not: the ledger must stop it before it reaches the heap.
    unsafe { node.deallocate(foreign, layout(100, 1)) };
    // SAFETY: as above.
    let grown = unsafe { node.grow(foreign, layout(100, 1), layout(200, 1)) };
    assert_eq!(
        grown.expect_err("foreign").kind,
        AllocErrorKind::Unsupported
    );
    assert_eq!((counts(&node), node.inner().used()), ((144, 1), 144));

    // SAFETY: the layout does not fit, and the ledger must say so and leave the block alone.
    let shrunk = unsafe { node.shrink(kept.cast(), layout(145, 64), layout(10, 64)) };
    assert_eq!(
        shrunk.expect_err("wrong layout").kind,
        AllocErrorKind::Unsupported
    );
    assert_eq!((counts(&node), node.inner().used()), ((144, 1), 144));
    assert_eq!(
        node.outstanding(),
        [(kept.cast::<u8>().addr().get(), asked)]
    );

    free(&node, kept, layout(99, 64)); // too short: reported, and the right one is used
    assert_eq!((counts(&node), node.inner().used()), ((0, 0), 0));
    free(&node, kept, asked); // a second time
    assert_eq!((counts(&node), node.inner().used()), ((0, 0), 0));

    let report = node.report();
    let kinds: Vec<_> = report.misuses.iter().map(|misuse| misuse.kind).collect();
    let wrong = MisuseKind::WrongLayout {
        allocated: asked,
        returned: 144,
    };
    let foreign = MisuseKind::Foreign;
    assert_eq!(
        kinds,
        [foreign, foreign, wrong, wrong, MisuseKind::DeallocatedTwice]
    );
    assert_eq!(report.misuse_count, 5);
    assert!(report.to_string().contains("went back already"), "{report}");
}

#[test]
fn every_layout_that_fits_comes_back_without_a_report() {
    let node = Tracked::checked(Rounding);
    for size in 1..200 {
        for back in [0, 1, 2] {
            let block = node.allocate(layout(size, 8)).expect("memory");
            let back = [size, block.len(), usize::midpoint(size, block.len())][back];
            free(&node, block, layout(back, 8));
        }
    }
    let report = node.report();
    assert_eq!(
        (report.misuse_count, report.live_bytes, report.total_blocks),
        (0, 0, 597)
    );
}

#[test]
fn the_limit_holds_at_every_moment_under_threads_f64() {
    // The upstream's own count of bytes that are really out is the judge, growing included.
    const LIMIT: usize = 16_000;
    let node = Limited::new("node", LIMIT, Watching::default());
    let (served, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    together(8, |thread| {
        let mut held: Vec<(NonNull<[u8]>, Layout)> = Vec::new();
        for round in 0..4000usize {
            let asked = layout(1 + (round * 7919 + thread * 104_729) % 9000, 64);
            match node.allocate(asked) {
                Ok(block) => {
                    served.fetch_add(1, Relaxed);
                    held.push((block, asked));
                }
                Err(error) => {
                    refused.fetch_add(1, Relaxed);
                    assert_eq!(
                        (error.kind, error.limit),
                        (AllocErrorKind::LimitExceeded, LIMIT)
                    );
                    assert!(error.in_use + error.requested > LIMIT, "{error}");
                    assert!(error.in_use <= LIMIT, "{error}");
                }
            }
            if round % 5 == 0
                && let Some((block, old)) = held.pop()
            {
                let new = layout(old.size() * 2, 64);
                // SAFETY: the block is ours, `old` is its own, and the new one is longer.
                match unsafe { node.grow(block.cast(), old, new) } {
                    Ok(block) => held.push((block, new)),
                    Err(_) => held.push((block, old)),
                }
            }
            assert!(node.used() <= LIMIT);
            if held.len() > 2 {
                let (block, layout) = held.swap_remove(round % 3);
                free(&node, block, layout);
            }
        }
        held.into_iter()
            .for_each(|(block, layout)| free(&node, block, layout));
    });
    assert!(
        served.into_inner() > 1000 && refused.into_inner() > 100,
        "not at the limit"
    );
    assert!(node.inner().most.load(Relaxed) <= LIMIT);
    assert_eq!((node.used(), node.inner().out.load(Relaxed)), (0, 0));
}

#[test]
fn of_two_requests_for_more_than_half_at_once_just_one_is_served_f65() {
    const LIMIT: usize = 10_000;
    let half = layout(LIMIT / 2 + 1, 8);
    let node = Limited::new("node", LIMIT, System);
    for _ in 0..500 {
        let served = Mutex::new(Vec::new());
        together(2, |_| {
            if let Ok(block) = node.allocate(half) {
                served
                    .lock()
                    .unwrap()
                    .push(block.as_ptr() as *mut u8 as usize);
            }
        });
        let served = served.into_inner().unwrap();
        assert_eq!(served.len(), 1);
        let base = std::ptr::with_exposed_provenance_mut(served[0]);
        let base = NonNull::new(base).expect("a block's address");
        free(
            &node,
            NonNull::slice_from_raw_parts(base, half.size()),
            half,
        );
        assert_eq!(node.used(), 0);
    }
}

#[test]
fn sums_of_huge_charges_do_not_overflow_f67() {
    // Arrow 35960: the parent's sum overflowed and went negative later.
    let parent = Limited::new("parent", usize::MAX, Watching::default());
    let child = Limited::new("child", usize::MAX, &parent);
    let small = child.allocate(layout(64, 8)).expect("memory");
    for _ in 0..3 {
        let huge = layout(isize::MAX as usize, 1);
        let error = child.allocate(huge).expect_err("nobody has that");
        assert_eq!(error.kind, AllocErrorKind::SourceFailed);
        assert_eq!((child.used(), parent.used()), (64, 64));
    }
    free(&child, small, layout(64, 8));
    assert_eq!((child.used(), parent.used()), (0, 0));

    let reserve = ndpool::kernel::reserve::Reserve::new();
    let most = i64::MAX as usize;
    assert_eq!(reserve.try_reserve(most, usize::MAX), Ok(most));
    assert_eq!(reserve.try_reserve(most, usize::MAX), Ok(2 * most));
    assert_eq!(reserve.try_reserve(most, usize::MAX), Err(2 * most));
    assert_eq!(reserve.try_reserve(1, usize::MAX), Ok(usize::MAX));
    assert_eq!(reserve.try_reserve(1, usize::MAX), Err(usize::MAX));
    reserve.release(usize::MAX);
    assert_eq!(reserve.used(), 0);
}

#[test]
fn an_upstream_that_fails_after_the_limit_passed_leaves_no_charge_f69() {
    let node = Tracked::checked(Limited::new("node", 1 << 20, Flaky::new(2, false)));
    let (one, two) = (layout(1000, 64), layout(2000, 64));
    let block = node.allocate(one).expect("the first call is served");
    assert!(node.allocate(one).is_err());
    assert!(node.allocate_zeroed(one).is_ok_and(|block| {
        free(&node, block, one);
        true
    }));
    // SAFETY: the block is ours, `one` is its own layout, and the new one is longer.
    let error = unsafe { node.grow(block.cast(), one, two) }.expect_err("the fourth call fails");
    assert_eq!(error.refused_by, "hostile");
    assert_eq!(
        (node.inner().used(), node.report().live_bytes),
        (1000, 1000)
    );
    assert_eq!(node.report().refused, 2);
    // The block is where it was, and still known.
    // SAFETY: as above; the refused call changed nothing.
    let block = unsafe { node.grow(block.cast(), one, two) }.expect("the fifth call is served");
    assert_eq!(
        (node.inner().used(), node.report().live_bytes),
        (2000, 2000)
    );
    free(&node, block, two);
    assert_eq!((node.inner().used(), node.report().misuse_count), (0, 0));
}

#[test]
fn concurrent_blocks_of_zero_bytes_never_reach_the_upstream_f77() {
    // RMM 2312: they shared a pointer, and the ledger's assertion aborted.
    let node = Tracked::checked(Limited::new("node", 0, Watching::default()));
    together(8, |_| {
        for align in [1, 64, 4096] {
            let (none, some) = (layout(0, align), layout(1, align));
            for _ in 0..500 {
                let blocks = [(); 4].map(|()| node.allocate(none).expect("nothing is asked for"));
                assert!(
                    blocks
                        .iter()
                        .all(|block| block.cast::<u8>().addr().get() % align == 0)
                );
                for block in blocks {
                    // SAFETY: the block is ours, empty, and the new layout is no shorter.
                    let grown = unsafe { node.grow(block.cast(), none, some) };
                    assert_eq!(grown.expect_err("the limit is 0").refused_by, "node");
                    // SAFETY: the refused call changed nothing; the new layout is no longer.
                    let block = unsafe { node.shrink(block.cast(), none, none) }.expect("nothing");
                    free(&node, block, none);
                }
            }
        }
    });
    assert_eq!(node.inner().inner().requests.load(Relaxed), 0);
    assert_eq!(
        (node.report().misuse_count, node.report().total_blocks),
        (0, 0)
    );
}

#[test]
fn impossible_sizes_are_refused_without_a_charge_f78_f79() {
    // RMM's align_up rounded SIZE_MAX - 100 to 0. What no layout can say does not get this far:
    for align in (0..=30).map(|k| 1usize << k) {
        let most = isize::MAX as usize - (align - 1);
        for size in [
            usize::MAX,
            usize::MAX - 1,
            isize::MAX as usize + 1,
            most + 1,
        ] {
            assert!(
                Layout::from_size_align(size, align).is_err(),
                "{size} by {align}"
            );
        }
        // What one can say is refused by the limit before the upstream hears of it, or by the heap.
        for (limit, by) in [(1 << 40, "node"), (usize::MAX, "system")] {
            let node = Tracked::checked(Limited::new("node", limit, Watching::default()));
            for size in [most, most - 1, usize::MAX / 4 + 1] {
                let error = node
                    .allocate(layout(size, align))
                    .expect_err("nobody has that");
                assert_eq!((error.requested, error.refused_by), (size, by), "{error}");
                assert!(node.allocate_zeroed(layout(size, align)).is_err());
            }
            let upstream = node.inner().inner();
            assert_eq!(upstream.requests.load(Relaxed) == 0, by == "node");
            assert_eq!((node.inner().used(), upstream.out.load(Relaxed)), (0, 0));
            assert_eq!((node.report().total_blocks, node.report().refused), (0, 6));
        }
    }
}

#[test]
fn every_adaptor_passes_the_alignment_on_f81() {
    // RMM 2003: adaptors dropped the caller's alignment.
    let watching = Arc::new(Watching::default());
    let plain: Arc<dyn BufferAllocator> = watching.clone();
    let stacks: [Box<dyn BufferAllocator>; 5] = [
        Box::new(plain.clone()),
        Box::new(Limited::new("node", usize::MAX, plain.clone())),
        Box::new(Tracked::checked(plain.clone())),
        Box::new(Tracked::unchecked(Limited::new(
            "node",
            usize::MAX,
            plain.clone(),
        ))),
        Box::new(Limited::new(
            "node",
            usize::MAX,
            Arc::new(Tracked::checked(plain)),
        )),
    ];
    for stack in &stacks {
        for align in [1, 8, 64, 256, 4096, 2 << 20] {
            let seen = || watching.align.swap(0, Relaxed);
            let (one, two) = (layout(100, align), layout(5000, align));
            let block = stack.allocate(one).expect("memory");
            assert_eq!(seen(), align);
            assert_eq!(block.cast::<u8>().addr().get() % align, 0);
            // SAFETY: the block is ours, `one` is its own layout, and the new one is longer.
            let block = unsafe { stack.grow(block.cast(), one, two) }.expect("memory");
            assert_eq!(seen(), align);
            // SAFETY: the block is ours, `two` is its own layout, and the new one is shorter.
            let block = unsafe { stack.shrink(block.cast(), two, one) }.expect("memory");
            assert_eq!(seen(), align);
            free(stack, block, one);
            let block = stack.allocate_zeroed(one).expect("memory");
            assert_eq!(seen(), align);
            free(stack, block, one);
        }
    }
    assert_eq!(watching.out.load(Relaxed), 0);
}

#[test]
fn nested_nodes_have_limits_of_their_own_and_the_error_names_the_one_that_refused() {
    let root = Arc::new(Limited::new("root", 10_000, System));
    let left = Limited::new("left", 8000, root.clone());
    let right = Limited::new("right", 8000, root.clone());
    let six = layout(6000, 64);
    let block = left.allocate(six).expect("within both limits");
    assert_eq!(
        (root.used(), left.used(), right.headroom()),
        (6000, 6000, 8000)
    );

    let error = left.allocate(six).expect_err("over left's");
    assert_eq!(
        (error.refused_by, error.in_use, error.limit),
        ("left", 6000, 8000)
    );
    let error = right.allocate(six).expect_err("over the root's");
    assert_eq!(
        (error.refused_by, error.in_use, error.limit),
        ("root", 6000, 10_000)
    );
    assert_eq!(
        error.to_string(),
        "root: 6000 bytes refused: 6000 in use + 0 resting, limit 10000"
    );
    assert_eq!((root.used(), right.used()), (6000, 0));
    free(&left, block, six);
    assert_eq!((root.used(), left.used()), (0, 0));
}

/// A cache over a limited node that gives up one block at a time.
struct Cache {
    node: OnceLock<Weak<Limited<System>>>,
    blocks: Mutex<Vec<usize>>,
    calls: AtomicUsize,
}

const CACHED: usize = 1000;

impl Cache {
    fn node(&self) -> Arc<Limited<System>> {
        self.node.get().and_then(Weak::upgrade).expect("set")
    }

    fn fill(&self, blocks: usize) {
        let node = self.node();
        for _ in 0..blocks {
            let block = node.allocate(layout(CACHED, 8)).expect("within the limit");
            self.blocks
                .lock()
                .unwrap()
                .push(block.cast::<u8>().as_ptr().expose_provenance());
        }
    }

    fn give_up_one(&self) -> usize {
        self.calls.fetch_add(1, Relaxed);
        let Some(address) = self.blocks.lock().unwrap().pop() else {
            return 0;
        };
        let base = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("a block");
        let block = NonNull::slice_from_raw_parts(base, CACHED);
        free(&self.node(), block, layout(CACHED, 8));
        CACHED
    }
}

#[test]
fn before_a_refusal_the_callback_is_asked_for_as_long_as_it_frees() {
    let cache = Arc::new(Cache {
        node: OnceLock::new(),
        blocks: Mutex::default(),
        calls: AtomicUsize::new(0),
    });
    let callback = cache.clone();
    let node = Limited::new("node", 10_000, System).with_reclaim(move |wanted| {
        assert!(wanted >= 3500, "told how much is wanted");
        callback.give_up_one()
    });
    let node = Arc::new(node);
    cache.node.set(Arc::downgrade(&node)).expect("set once");
    cache.fill(10);
    let calls = || cache.calls.swap(0, Relaxed);

    // Four blocks make room for 3,500 bytes; not one more is given up.
    let wanted = layout(3500, 8);
    let block = node.allocate(wanted).expect("room was made");
    assert_eq!((calls(), node.used()), (4, 9500));
    // What the cache cannot yield is refused after it gave up everything.
    let error = node
        .allocate(layout(7000, 8))
        .expect_err("3,500 are in use");
    assert_eq!((calls(), error.in_use, node.used()), (7, 3500, 3500));
    // What exceeds the whole limit costs the cache nothing.
    cache.fill(2);
    assert!(node.allocate(layout(10_001, 8)).is_err());
    assert_eq!((calls(), node.used()), (0, 5500));
    free(&node, block, wanted);
    while cache.give_up_one() > 0 {}
    assert_eq!(node.used(), 0);
}

#[test]
fn a_callback_may_allocate_at_its_node_and_may_panic() {
    let slot: Arc<OnceLock<Weak<Limited<System>>>> = Arc::default();
    let (own, panics) = (slot.clone(), Arc::new(AtomicBool::new(false)));
    let panics_too = panics.clone();
    let node = Limited::new("node", 1000, System).with_reclaim(move |_| {
        // No lock is held, and its own refusal does not call it again.
        let error = own
            .get()
            .and_then(Weak::upgrade)
            .expect("set")
            .allocate(layout(999, 8))
            .expect_err("still full");
        assert_eq!(error.refused_by, "node");
        assert!(!panics_too.load(Relaxed), "a panic that must be caught");
        0
    });
    let node = Arc::new(node);
    slot.set(Arc::downgrade(&node)).expect("set once");
    let block = node.allocate(layout(500, 8)).expect("within the limit");
    for panic in [false, true, false] {
        panics.store(panic, Relaxed);
        let error = node
            .allocate(layout(600, 8))
            .expect_err("nothing was freed");
        assert_eq!((error.in_use, node.used()), (500, 500));
    }
    free(&node, block, layout(500, 8));
}

#[test]
fn shrinking_is_never_refused_by_the_limit() {
    let node = Limited::new("node", 1000, System);
    let (all, half) = (layout(1000, 8), layout(500, 8));
    let block = node.allocate(all).expect("just fits");
    // SAFETY: the block is ours, `all` is its own layout, and the new one is shorter.
    let block = unsafe { node.shrink(block.cast(), all, half) }.expect("no more is asked for");
    assert_eq!((node.used(), node.headroom()), (500, 500));
    // SAFETY: the block is ours, `half` is its own layout, and the new one is shorter.
    let block = unsafe { node.shrink(block.cast(), half, layout(0, 8)) }.expect("nothing");
    assert_eq!((block.len(), node.used()), (0, 0));
}

#[test]
fn counts_are_of_64_bits_and_exact_when_quiet() {
    let node = Tracked::unchecked(System);
    together(4, |thread| {
        for round in 0..5000 {
            let layout = layout(1 + (round * 31 + thread) % 3000, 8);
            let block = node.allocate(layout).expect("memory");
            free(&node, block, layout);
        }
    });
    let report = node.report();
    assert_eq!(
        (report.live_blocks, report.live_bytes, report.total_blocks),
        (0, 0, 20_000)
    );
    assert!((3000..=12_000).contains(&report.peak_bytes), "{report}");
    assert!(report.total_bytes > 20_000 * 1000);
}
