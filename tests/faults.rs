//! Injected failures of memory: each rule and their combinations, repeatable by seed; and programs
//! over a pool that meet them at every place: nothing is lost, nothing is half-done.

use std::alloc::Layout;
use std::sync::Arc;
use std::thread;

use ndpool::source::{Faulty, Os, Source};
use ndpool::timeline::{EventKind, Timeline};
use ndpool::{AllocError, AllocErrorKind, Pool, SharedBuffer};

mod field;
use field::{Watched, at_once};

/// Which of the next calls for `sizes` bytes are served; what is served goes back at once.
fn served(source: &dyn Source, sizes: impl IntoIterator<Item = usize>) -> Vec<bool> {
    let one = |size| {
        let layout = Layout::from_size_align(size, 64).unwrap();
        match source.alloc(layout, false) {
            Ok(memory) => {
                // SAFETY: just served for this layout, and given back once.
                #[allow(unsafe_code)]
                unsafe {
                    source.dealloc(memory.base, layout, memory.token);
                }
                true
            }
            Err(error) => {
                assert_eq!(error.kind, AllocErrorKind::SourceFailed);
                assert_eq!((error.requested, error.refused_by), (size, "faulty"));
                false
            }
        }
    };
    sizes.into_iter().map(one).collect()
}

/// Numbers, from 1, of the calls that failed.
fn failed(served: &[bool]) -> Vec<usize> {
    let numbered = served.iter().enumerate();
    numbered
        .filter(|(_, ok)| !**ok)
        .map(|(at, _)| at + 1)
        .collect()
}

// --- rules ---

#[test]
fn rules_fail_what_any_of_them_says() {
    let source = Faulty::every(Os::new(), 4).and_at(7).and_after_bytes(1000);
    let sizes = [100; 12];
    // Each of the eight that are let through counts against the bytes, the failed ones do not.
    assert_eq!(failed(&served(&source, sizes)), [4, 7, 8, 12]);
    assert_eq!(failed(&served(&source, [100; 4])), [3, 4]);
    assert_eq!((source.calls(), source.failures()), (16, 6));
    assert_eq!(
        failed(&served(&Faulty::never(Os::new()).and_at(1), [64; 3])),
        [1]
    );
    let none = Faulty::every(Os::new(), 2).and_every(0).and_at(0);
    assert_eq!(failed(&served(&none, [64; 9])), [0usize; 0]);
    let never = Faulty::with_probability(Os::new(), f64::NAN, 1);
    assert_eq!(failed(&served(&never, [64; 99])), [0usize; 0]);
}

#[test]
fn bytes_are_counted_by_size() {
    let source = Faulty::after_bytes(Os::new(), 10_000);
    let sizes = [4000, 7000, 6000, 1, 100_000];
    assert_eq!(failed(&served(&source, sizes)), [2, 4, 5]);
}

#[test]
fn small_calls_can_be_spared_and_have_no_number() {
    let source = Faulty::every(Os::new(), 2).sparing_below(1000);
    let sizes = [64, 1000, 64, 64, 1000, 64, 5000, 2000];
    assert_eq!(failed(&served(&source, sizes)), [5, 8]);
    assert_eq!(source.calls(), 8);
}

#[test]
fn failures_end_after_as_many_as_were_asked_for() {
    let source = Faulty::every(Os::new(), 1).at_most(3);
    assert_eq!(failed(&served(&source, [64; 10])), [1, 2, 3]);
    assert_eq!(source.failures(), 3);
}

#[test]
fn a_pause_takes_the_rules_out_of_force() {
    let source = Faulty::every(Os::new(), 2);
    source.pause(true);
    assert_eq!(failed(&served(&source, [64; 9])), [0usize; 0]);
    source.pause(false);
    assert_eq!(failed(&served(&source, [64; 5])), [2, 4]);
}

#[test]
fn chance_is_repeatable_by_seed_and_of_the_size_asked_for() {
    let run = |probability, seed| {
        let source = Faulty::with_probability(Os::new(), probability, seed);
        failed(&served(&source, [64; 4000]))
    };
    assert_eq!(run(0.25, 9), run(0.25, 9));
    assert_ne!(run(0.25, 9), run(0.25, 10));
    for (probability, least, most) in [(0.01, 15, 70), (0.25, 880, 1120), (0.9, 3520, 3680)] {
        let failures = run(probability, 1).len();
        assert!(
            (least..=most).contains(&failures),
            "{failures} at {probability}"
        );
    }
}

/// Which thread meets a failure is chance; how many there are of so many calls is not.
#[test]
fn as_many_calls_fail_on_threads_as_on_one() {
    let rules = || Faulty::with_probability(Os::new(), 0.3, 5).and_every(7);
    let alone = rules();
    served(&alone, [64; 4000]);
    let shared = rules();
    let failures: usize = at_once(4, |_| failed(&served(&shared, [64; 1000])).len())
        .into_iter()
        .sum();
    assert_eq!(
        (shared.calls(), shared.failures()),
        (4000, alone.failures())
    );
    assert_eq!(failures as u64, alone.failures());
}

// --- programs ---

/// Buffers of many kinds and sizes, shared and unique, resized, copied, from scopes; fails at the
/// first failure, with all that it has.
fn program(pool: &Pool) -> Result<u64, AllocError> {
    let ones = pool.filled(3000, 1u64)?;
    let mut sum = ones.iter().sum::<u64>();
    let shared = ones.share();
    let views: Vec<SharedBuffer<u64>> = (0..5).map(|n| shared.slice(n..100).unwrap()).collect();
    let mut changed = shared.clone();
    changed.make_mut()?[0] = 7;
    sum += changed[0] + shared[0];
    let mut grown = pool.zeroed::<u64>(10)?;
    for size in [1000, 100_000, 40_000] {
        grown.resize(size, 2)?;
    }
    sum += grown.iter().sum::<u64>();
    let collected = pool.collect((0..2500u64).filter(|n| n % 2 == 0))?;
    let copies = (0..6).map(|n| pool.copied(&collected[n..]));
    let copies: Result<Vec<_>, AllocError> = copies.collect();
    sum += copies?.iter().map(|copy| copy[0]).sum::<u64>();
    let large = pool.allocate::<u8>(3 << 20)?.fill_value(1);
    sum += u64::from(large[1 << 20]);
    drop(views);
    Ok(sum)
}

fn assert_balanced(pool: &Pool, source: &Watched) {
    pool.audit().unwrap();
    let stats = pool.stats();
    assert_eq!(
        (stats.live_bytes, stats.held_bytes as i64),
        (0, source.live_bytes())
    );
    pool.trim();
    assert_eq!((pool.stats().held_bytes, source.live()), (0, 0));
    pool.audit().unwrap();
}

#[test]
fn every_call_of_a_program_fails_in_turn_and_nothing_is_lost() {
    let sums: Vec<u64> = [None, Some(0), Some(16 << 20)]
        .map(|cap| {
            let mut sum = 0;
            let runs = Faulty::in_turn(Arc::new(Watched::default()), |source| {
                let builder = Pool::builder().limit(64 << 20);
                let builder = match cap {
                    Some(cap) => builder.cap(cap),
                    None => builder,
                };
                let pool = builder.source(Arc::clone(&source)).build();
                match program(&pool) {
                    Ok(total) => sum = total,
                    Err(error) => assert_eq!(error.kind, AllocErrorKind::SourceFailed),
                }
                assert_eq!(
                    pool.stats().headroom_bytes,
                    (64 << 20) - pool.stats().held_bytes
                );
                assert_balanced(&pool, source.inner());
                // Memory is to be had again: the same pool does the same work.
                source.pause(true);
                assert!(program(&pool).is_ok());
                assert_balanced(&pool, source.inner());
            });
            assert!(runs > 10, "{runs} runs");
            sum
        })
        .into();
    assert!(
        sums.iter().all(|sum| *sum == sums[0] && *sum > 0),
        "{sums:?}"
    );
}

#[test]
fn arrays_and_scopes_that_meet_a_failure_lose_nothing() {
    let runs = Faulty::in_turn(Arc::new(Watched::default()), |source| {
        let pool = Pool::builder().source(Arc::clone(&source)).build();
        let work = || {
            let x = pool.full((40, 50), 2.0f64);
            let y = &x * 3.0 + &x;
            assert_eq!(y.sum(), 16_000.0);
            let wide = pool.full((200, 300), 1.0f64);
            assert_eq!((&wide + &wide).sum(), 120_000.0);
        };
        let failed = std::panic::catch_unwind(work).is_err();
        assert_eq!(
            failed,
            source.failures() > 0,
            "operators cannot return an error"
        );
        assert_balanced(&pool, source.inner());
    });
    assert!(runs > 3, "{runs} runs");
}

#[test]
fn threads_that_meet_failures_by_chance_lose_nothing() {
    for seed in 0..4 {
        let rules = Faulty::with_probability(Watched::default(), 0.1, seed).and_every(13);
        let source = Arc::new(rules);
        let pool = Pool::builder()
            .limit(48 << 20)
            .source(Arc::clone(&source))
            .timeline(Timeline::new(1 << 16))
            .build();
        let done: usize = thread::scope(|scope| {
            let worker = |_| {
                scope.spawn(|| {
                    let round = |n| {
                        if n % 8 == 0 {
                            pool.trim();
                        }
                        program(&pool).is_ok()
                    };
                    (0..60).filter(|&n| round(n)).count()
                })
            };
            let workers: Vec<_> = (0..4).map(worker).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap())
                .sum()
        });
        assert!(done > 0 && done < 240, "{done} of 240");
        let recording = pool.timeline().unwrap();
        let failures = recording.events().iter();
        let failures = failures
            .filter(|event| event.kind == EventKind::Failure)
            .count();
        assert_eq!((failures as u64, recording.lost()), (source.failures(), 0));
        assert_balanced(&pool, source.inner());
    }
}
