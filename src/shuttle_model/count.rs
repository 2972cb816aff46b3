//! Programs over one [`RefCount`]: owners that add and release, and strays that own nothing.

use std::sync::Mutex;

use shuttle::thread;

use super::kernel::count::{RefCount, Released};
use super::pool::lock;

/// What a thread does to the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Adds an owner, if it may, and releases it at the end of the thread.
    Add,
    /// Releases what the thread owns.
    Release,
    /// Releases though it owns nothing more than before.
    Stray,
    /// Looks.
    Look,
}

impl Step {
    /// The step that a byte names.
    pub fn from_byte(byte: u8) -> Self {
        match byte % 4 {
            0 => Self::Release,
            1 => Self::Stray,
            2 => Self::Add,
            _ => Self::Look,
        }
    }
}

/// Runs one list of steps a thread, each of which starts as an owner.
///
/// A stray among owners takes the place of one of their releases, so memory behind the count would
/// be gone too early; but always exactly one release is told to free, and the cell ends released.
///
/// # Panics
/// If not.
pub fn run(threads: &[Vec<Step>]) {
    let count = RefCount::new();
    for _ in 1..threads.len() {
        count.try_add().expect("the first owner is still there");
    }
    let claims = Mutex::new(0u32);
    let release = || {
        let released = count.release();
        if released == Released::Claimed {
            *lock(&claims) += 1;
        }
    };
    thread::scope(|scope| {
        for steps in threads {
            let (count, release) = (&count, &release);
            scope.spawn(move || {
                let mut owned = 1;
                for step in steps {
                    match step {
                        Step::Add => owned += usize::from(count.try_add().is_ok()),
                        Step::Release if owned > 0 => {
                            owned -= 1;
                            release();
                        }
                        Step::Release | Step::Stray => release(),
                        Step::Look => assert!(count.count() >= -1),
                    }
                }
                (0..owned).for_each(|_| release());
            });
        }
    });
    if count.is_immortal() {
        return assert_eq!(*lock(&claims), 0, "an immortal cell was freed");
    }
    assert_eq!(*lock(&claims), 1, "releases that were told to free");
    assert_eq!(count.count(), -1, "owners at the end");
    assert!(count.try_add().is_err());
}
