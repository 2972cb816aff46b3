//! What a scope's end reports: arrays of the scope that neither came back nor were returned.

use std::mem;

use ndpool::{Checks, LeakLevel, Pool, PoolArray, Scope};

fn pool() -> Pool {
    let checks = Checks::new().leaks(LeakLevel::All);
    Pool::builder().checks(checks).build()
}

#[inline(never)]
fn forget_one(scope: &Scope) {
    let x = scope.pool().from_shape_fn(1000, |i| i as f64);
    mem::forget(x);
}

#[test]
fn an_array_forgotten_in_a_scope_is_reported_at_its_end() {
    let pool = pool();
    let before = pool.from_shape_fn(1000, |i| i as f64);
    let scope = pool.open();
    let x = scope.lift(&before);
    let _square = x * x;
    forget_one(&scope);
    let report = scope.finish_checked().expect_err("one is forgotten");
    assert_eq!((report.buffers, report.groups.len()), (1, 1));
    let caller = report.groups[0].site.as_ref().expect("a site").caller();
    assert!(caller.contains("forget_one"), "{caller}");
    drop(before);
    let report = pool.close_checked().expect_err("it is out still");
    assert_eq!(report.buffers, 1);
}

#[test]
fn what_goes_back_or_is_returned_is_no_leak_of_a_scope() {
    let pool = pool();
    let before = pool.from_shape_fn(1000, |i| i as f64);
    let scope = pool.open();
    let x = scope.lift(&before);
    let transient = x * x + x;
    let kept = scope.returns((transient.sqrt(), x));
    let made: PoolArray<f64, _> = pool.from_shape_fn(10, |i| i as f64);
    let made = scope.returns(made);
    let inner = scope.open();
    let passed = inner.returns(inner.lift(&before) + 1.0);
    assert_eq!(inner.finish_checked(), Ok(()));
    let passed = scope.add_shared(passed);
    let passed = scope.returns(passed - 1.0);
    // Another thread's arrays are not this scope's.
    let other = std::thread::scope(|threads| {
        let other = threads.spawn(|| pool.from_shape_fn(10, |i| i as f32));
        other.join().expect("no panic")
    });
    assert_eq!(scope.finish_checked(), Ok(()));
    assert_eq!(passed[3], 3.0);
    assert_eq!(made[3], 3.0);
    assert_eq!(kept.1[3], 3.0);
    assert_eq!(other[3], 3.0);
    drop((kept, made, passed, other, before));
    assert_eq!(pool.close_checked(), Ok(()));
}

#[test]
fn a_scope_works_in_a_guarded_and_in_a_quarantined_pool() {
    for checks in [
        "guard",
        "poison,quarantine=1m,wipe",
        "leaks=all,backtrace=1",
    ] {
        let checks: Checks = checks.parse().expect("checks");
        let pool = Pool::builder().checks(checks).build();
        let x = pool.from_shape_fn(1000, |i| i as f64);
        for _ in 0..5 {
            let sum = pool.scope(|s| {
                let x = s.lift(&x);
                let mut y = x + 1.0;
                for _ in 0..40 {
                    y = (y + x) * 0.5;
                }
                s.returns(y)
            });
            assert!((sum[999] - 999.0).abs() < 1e-9);
        }
        drop(x);
        assert_eq!(pool.close_checked(), Ok(()), "{checks:?}");
    }
}
