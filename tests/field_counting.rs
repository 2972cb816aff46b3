//! Field cases B: counts that come back to life, wrap, or are used after the end. Each test is named
//! for the behaviour, with the number of the report.

#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ndpool::kernel::state::{Released, State};
use ndpool::source::{Faulty, Os};
use ndpool::{AllocErrorKind, Buffer, Handle, Pool, SharedBuffer, StaleReason, Token};

mod field;
use field::{Stop, at_once, rounds, watched, within};

/// F16: one owner; a retain (an upgrade) races two releases of it. Exactly one release succeeds,
/// and the memory goes back once: when the retain lost, with the release; when it won, with it.
#[test]
fn a_retain_racing_two_releases_revives_nothing_f16() {
    let (pool, source) = watched();
    let (handle, token) = (AtomicU64::new(0), AtomicU64::new(0));
    let (released, retained) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let mut won = 0;
    let meet = Barrier::new(3);
    let won_rounds = at_once(3, |id| {
        let mut won = 0;
        for round in 0..rounds(10_000, 1_000_000) {
            if id == 0 {
                let shared = pool.filled(8, round).unwrap().share();
                handle.store(shared.handle().to_bits(), Ordering::Relaxed);
                let bits = shared.into_token().unwrap().to_bits();
                token.store(bits, Ordering::Relaxed);
                released.store(0, Ordering::Relaxed);
                retained.store(0, Ordering::Relaxed);
            }
            meet.wait();
            let name = Handle::from_bits(handle.load(Ordering::Relaxed));
            if id == 0 {
                if let Ok(shared) = name.upgrade::<u64>() {
                    assert!(shared.iter().all(|&word| word == round));
                    won += 1;
                    retained.store(1, Ordering::Relaxed);
                }
            } else if Token::from_bits(token.load(Ordering::Relaxed))
                .release()
                .is_ok()
            {
                released.fetch_add(1, Ordering::Relaxed);
            }
            meet.wait();
            assert_eq!(released.load(Ordering::Relaxed), 1);
            assert!(name.is_released(), "revived: {} owners", name.owners());
            meet.wait();
        }
        won
    });
    won += won_rounds[0];
    assert!(won > 0, "the retain never won: no race");
    pool.trim();
    assert_eq!(source.live(), 0);
}

/// F18: a stale handle is asked for while its memory is taken and given back again and again. No
/// stale retain ever succeeds, and every new owner can release: its count is its own.
#[test]
fn stale_retains_never_touch_a_later_owner_f18() {
    let (pool, source) = watched();
    let stale = pool.filled(8, 1u64).unwrap().share().handle();
    assert!(stale.is_released());
    let done = AtomicBool::new(false);
    at_once(2, |id| {
        if id == 0 {
            let _stop = Stop(&done);
            for round in 0..rounds(200_000, 10_000_000) {
                let shared = pool.filled(8, round).unwrap().share();
                debug_assert_eq!(shared.owners(), 1);
                let second = shared.clone();
                drop(shared);
                let unique = second.try_unique().expect("nobody else owns it");
                assert_eq!(unique[7], round);
            }
        } else {
            while !done.load(Ordering::Relaxed) {
                for _ in 0..100 {
                    let error = stale.upgrade::<u64>().unwrap_err();
                    assert_eq!(error.reason, StaleReason::Gone);
                }
                std::thread::yield_now();
            }
        }
    });
    pool.trim();
    assert_eq!(source.live(), 0);
}

/// The word of a count, to set it near its limit: counting that far takes seconds.
fn preset(state: &State, owners: u32) {
    let word = std::ptr::from_ref(state).cast::<AtomicU64>();
    // SAFETY: `State` is a transparent wrapper of this one atomic.
    let word = unsafe { &*word };
    let generation = state.load().generation();
    word.store(
        u64::from(owners - 1) << 32 | u64::from(generation),
        Ordering::SeqCst,
    );
}

/// F19: the count stands one below its limit, and three threads clone. It saturates: it neither
/// wraps nor is ever released again, and nothing panics.
#[test]
fn a_count_at_its_limit_saturates_and_is_never_released_f19() {
    const LIMIT: u32 = 1 << 30;
    let state = State::new();
    state.share().unwrap();
    preset(&state, LIMIT - 1);
    let adds = at_once(3, |_| {
        catch_unwind(AssertUnwindSafe(|| (0..10_000).for_each(|_| state.add()))).is_ok()
    });
    assert_eq!(adds, [true; 3]);
    assert!(state.load().is_saturated());
    // Far more releases than owners were ever counted: immortal all the same.
    at_once(3, |_| {
        for _ in 0..100_000 {
            assert_eq!(state.release(), Released::Shared);
        }
    });
    let now = state.load();
    assert!(now.is_saturated() && !now.is_released());
    assert_eq!(now.generation(), 1);
    assert!(!state.try_unique());
    assert!(state.upgrade(1).is_ok());
    assert!(state.force_release(1).is_err(), "a saturated block stays");
}

/// F19, whole: 2^30 clones of one buffer that are forgotten; at night, since it takes seconds.
#[test]
fn a_buffer_cloned_and_forgotten_to_the_limit_stays_alive_f19() {
    let (pool, source) = watched();
    let shared = pool.filled(8, 5u8).unwrap().share();
    let clones = rounds(1 << 16, (1 << 30) + (1 << 20));
    at_once(2, |_| {
        for _ in 0..clones / 2 {
            std::mem::forget(shared.clone());
        }
    });
    let handle = shared.handle();
    assert!(u64::from(shared.owners()) > clones.min(1 << 30));
    drop(shared);
    assert!(!handle.is_released(), "leaked, never freed under an owner");
    assert_eq!(handle.upgrade::<u8>().unwrap()[7], 5);
    pool.trim();
    assert_eq!(source.live(), 1);
}

/// F22: a reader's view keeps its bytes whatever happens to the buffer it came from: growing,
/// writing and releasing go on in other memory, or are refused. (That a unique buffer cannot change
/// its capacity under a reader at all is a matter of borrowing: see `compile_fail` in the source.)
#[test]
fn readers_keep_their_bytes_whatever_the_owner_does_f22() {
    let (pool, _source) = watched();
    for round in 0..rounds(300, 30_000) {
        let mut shared = pool.filled(256, round).unwrap().share();
        let reader = shared.clone();
        at_once(2, |id| {
            if id == 0 {
                for _ in 0..50 {
                    assert!(reader.iter().all(|&word| word == round));
                }
            } else {
                let mut own = reader.copied().unwrap();
                own.resize(100_000, round + 1).unwrap();
                assert_eq!(own[256], round + 1);
            }
        });
        shared.make_mut().unwrap().fill(u64::MAX);
        let refused = reader.clone().try_unique().expect_err("two owners");
        drop(refused);
        drop(shared);
        drop(pool.filled(256, 0u64).unwrap());
        assert!(reader.iter().all(|&word| word == round));
    }
}

/// F23: the same buffer donated twice: the second is a typed error.
#[test]
fn a_second_donation_of_one_buffer_is_an_error_f23() {
    let pool = Pool::new();
    let token = pool.filled(8, 1f32).unwrap().share().into_token().unwrap();
    let donate = |token: Token| -> Result<Buffer<f32>, StaleReason> {
        let shared = token.redeem::<f32>().map_err(|error| error.reason)?;
        Ok(shared.try_unique().expect("the donor was the only owner"))
    };
    let first = donate(token).unwrap();
    assert_eq!(donate(token).unwrap_err(), StaleReason::Gone);
    assert_eq!(first[7], 1.0);
    // By handle: what was donated is not there to be had a second time.
    let shared = first.share();
    let handle = shared.handle();
    let mut unique = shared.try_unique().unwrap();
    assert_eq!(
        handle.upgrade::<f32>().unwrap_err().reason,
        StaleReason::Gone
    );
    unique[0] = 2.0;
}

/// F24: an operation whose input is also its donated output refuses or copies, and never hangs.
#[test]
fn an_input_that_is_also_the_donated_output_is_refused_or_copied_f24() {
    fn add(x: &SharedBuffer<u32>, donated: SharedBuffer<u32>) -> (Buffer<u32>, bool) {
        let (mut out, in_place) = match donated.try_unique() {
            Ok(unique) => (unique, true),
            Err(shared) => (shared.copied().unwrap(), false),
        };
        for (out, x) in out.iter_mut().zip(x.iter()) {
            *out += x;
        }
        (out, in_place)
    }
    within(Duration::from_secs(60), "donation to itself", || {
        let pool = Pool::new();
        let x = pool.filled(100, 21u32).unwrap().share();
        let (sum, in_place) = add(&x, x.clone());
        assert!(!in_place);
        assert_eq!((sum[99], x[99]), (42, 21));
        let (sum, in_place) = add(&x, sum.share());
        assert!(in_place, "nobody else owned it");
        assert_eq!(sum[99], 63);
        let mut y = x.clone();
        y.make_mut().unwrap()[0] = 1;
        assert_eq!((x[0], y[0]), (21, 1));
    });
}

/// F27: an array of five buffers is built and the third allocation fails: what was built before it
/// goes back, and nothing is outstanding.
#[test]
fn a_third_of_five_allocations_that_fails_leaves_nothing_f27() {
    let source = std::sync::Arc::new(Faulty::every(field::Watched::default(), 3));
    let pool = Pool::builder().source(source.clone()).build();
    let build = || -> Result<Vec<SharedBuffer<u8>>, AllocErrorKind> {
        (1..=5)
            .map(|n| {
                let buffer = pool.filled(n << 17, 0u8).map_err(|error| error.kind)?;
                Ok(buffer.share())
            })
            .collect()
    };
    assert_eq!(build().unwrap_err(), AllocErrorKind::SourceFailed);
    assert_eq!(source.calls(), 3);
    pool.trim();
    assert_eq!(source.inner().live(), 0);
    assert_eq!(source.inner().live_bytes(), 0);
    assert_eq!(pool.stats().held_bytes, 0, "{pool:?}");
}

/// A stray on a live buffer: there it steals another owner's reference. Here a forged or used-up
/// token names no lease, and the owners keep theirs.
#[test]
fn strays_on_a_live_buffer_steal_nothing() {
    let pool = Pool::builder().source(Os::new()).build();
    let shared = pool.filled(8, 9u16).unwrap().share();
    let used_up = shared.clone().into_token().unwrap();
    used_up.release().unwrap();
    let before = ndpool::stray_releases();
    for bits in [
        used_up.to_bits(),
        shared.handle().to_bits(),
        0,
        u64::MAX,
        1 << 63,
    ] {
        // A handle's bits may happen to name a lease of another test's; it would not be live here.
        if bits == shared.handle().to_bits() {
            continue;
        }
        let token = Token::from_bits(bits);
        if bits == 0 {
            assert!(token.redeem::<fn_never::Never>().is_err());
        } else {
            assert!(token.release().is_err(), "{bits:#x}");
        }
        assert_eq!(shared.owners(), 1);
    }
    assert!(ndpool::stray_releases() >= before + 4);
    assert_eq!(shared[7], 9);
}

mod fn_never {
    /// An element type that nobody leases.
    #[derive(Clone, Copy)]
    pub struct Never;

    // SAFETY: a type without bytes is valid when all of them are zero.
    unsafe impl bytemuck::Zeroable for Never {}
}
