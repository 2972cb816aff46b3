//! The kernel on loom's types, and the harness that every model goes through.
//!
//! A model that passes proves little by itself: loom may have run one execution, or never reached
//! the case that the model is about. So [`check`] runs each model twice, plain and with shadows
//! (see [`sync`]), wants more than one execution of each, and wants every expected outcome to have
//! occurred and no other. [`must_fail`] is for protocols that are known to be wrong.

#![allow(missing_docs, dead_code, unused_imports)]

#[path = "../kernel/mod.rs"]
#[allow(clippy::duplicate_mod)]
pub mod kernel;
pub mod sync;
mod witness;
pub use crate::constants::model as tuning;
pub use witness::Witness;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How the atomics of [`sync`] behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As loom's.
    Plain,
    /// Each operation is preceded by one on a shadow.
    Shadow,
}

// loom runs all threads of a model on the OS thread that started it, so these are the model's own.
std::thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Plain) };
    static OUTCOMES: RefCell<BTreeMap<String, usize>> = const { RefCell::new(BTreeMap::new()) };
}

/// Mode of the model that runs on this OS thread.
pub fn mode() -> Mode {
    MODE.get()
}

/// Records how this execution ended. A model calls it once per execution, from its main thread.
pub fn outcome(name: impl Into<String>) {
    OUTCOMES.with_borrow_mut(|seen| *seen.entry(name.into()).or_default() += 1);
}

/// Runs `f` on `shared` in a further thread of the model.
pub fn spawn<T: 'static, R: 'static>(
    shared: &Arc<T>,
    f: impl FnOnce(&T) -> R + 'static,
) -> loom::thread::JoinHandle<R> {
    let shared = Arc::clone(shared);
    loom::thread::spawn(move || f(&shared))
}

/// Checks `f` in both modes, at the usual bounds. See [`Model::check`].
pub fn check(name: &str, expected: &[&str], f: impl Fn() + Send + Sync + 'static) {
    Model::new(name).check(expected, f);
}

/// Passes only if `f` fails as a model. See [`Model::must_fail`].
pub fn must_fail(name: &str, because: &str, f: impl Fn() + Send + Sync + 'static) {
    Model::new(name).must_fail(because, f);
}

/// Set in the child process that [`Model::must_fail`] starts.
const CHILD: &str = "NDPOOL_MODEL_CHILD";
/// The preemption bound of every model instead of its own: a number, or `none`.
const BOUND: &str = "NDPOOL_MODEL_BOUND";
/// Seconds after which the search of one mode ends, finished or not, and says which; an unfinished
/// one need not have met every expected outcome. Without it none ends before it is finished.
const SECONDS: &str = "NDPOOL_MODEL_SECONDS";
/// Executions between two of loom's looks at the clock.
const CHECKPOINT: usize = 1_000;

/// What a search has done.
struct Search {
    executions: usize,
    finished: bool,
}

/// A model and its bounds.
#[derive(Debug)]
pub struct Model<'a> {
    name: &'a str,
    preemptions: Option<usize>,
    branches: usize,
}

impl<'a> Model<'a> {
    /// A model with a bound of 3 preemptions and 10,000 branches. `name` is the path of the test
    /// function in its binary.
    pub fn new(name: &'a str) -> Self {
        Self {
            name,
            preemptions: Some(3),
            branches: 10_000,
        }
        .bounded_by_environment()
    }

    /// Explores at most `bound` preemptions per execution, or any number; unless the environment
    /// says otherwise.
    #[must_use]
    pub fn preemptions(mut self, bound: Option<usize>) -> Self {
        self.preemptions = bound;
        self.bounded_by_environment()
    }

    fn bounded_by_environment(mut self) -> Self {
        match std::env::var(BOUND) {
            Ok(bound) if bound == "none" => self.preemptions = None,
            Ok(bound) => {
                let bound = bound
                    .parse()
                    .expect("NDPOOL_MODEL_BOUND: a number, or `none`");
                self.preemptions = Some(bound);
            }
            Err(_) => {}
        }
        self
    }

    /// Allows `branches` in one execution.
    #[must_use]
    pub fn branches(mut self, branches: usize) -> Self {
        self.branches = branches;
        self
    }

    /// Runs `f` plain and with shadows.
    ///
    /// # Panics
    /// If the model fails, if a mode ran a single execution, if another [`outcome`] than those
    /// `expected` occurred, or if one of these never did (both modes together, both finished).
    pub fn check(self, expected: &[&str], f: impl Fn() + Send + Sync + 'static) {
        let f: Arc<dyn Fn() + Send + Sync> = Arc::new(f);
        OUTCOMES.with_borrow_mut(BTreeMap::clear);
        let mut finished = true;
        for mode in [Mode::Plain, Mode::Shadow] {
            let search = self.explore(mode, Arc::clone(&f));
            finished &= search.finished;
            assert!(
                search.executions > 1,
                "{}: {mode:?} ran a single execution and proves nothing",
                self.name
            );
        }
        let seen = OUTCOMES.with_borrow_mut(core::mem::take);
        if let Err(fault) = compare(expected, &seen, finished) {
            panic!("{}: {fault}; seen: {seen:?}", self.name);
        }
    }

    /// Runs `f` with shadows in a child process, this test binary again with this one test, since
    /// a model that fails may abort the process.
    ///
    /// # Panics
    /// If the child passes, or fails without saying `because`.
    pub fn must_fail(self, because: &str, f: impl Fn() + Send + Sync + 'static) {
        if std::env::var(CHILD).is_ok_and(|name| name == self.name) {
            self.explore(Mode::Shadow, Arc::new(f));
            return;
        }
        let program = std::env::current_exe().expect("a test knows its own binary");
        let child = Command::new(program)
            .args(["--exact", self.name, "--nocapture", "--test-threads=1"])
            .env(CHILD, self.name)
            .env_remove(SECONDS)
            .env_remove("RUST_BACKTRACE")
            .output()
            .expect("a test can start its own binary again");
        let said = [child.stdout, child.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(
            !child.status.success(),
            "{}: must fail, but passes:\n{said}",
            self.name
        );
        assert!(
            said.contains(because),
            "{}: fails, but not because of `{because}`:\n{said}",
            self.name
        );
        println!("{}: fails as it must, {because}", self.name);
    }

    /// Explores `f` in one mode.
    fn explore(&self, mode: Mode, f: Arc<dyn Fn() + Send + Sync>) -> Search {
        let executions = Arc::new(AtomicUsize::new(0));
        let mut builder = loom::model::Builder::new();
        builder.max_branches = self.branches;
        builder.preemption_bound = self.preemptions;
        builder.max_duration = seconds_by_environment();
        // Would end an unfinished search as if it had passed.
        builder.max_permutations = None;
        builder.checkpoint_interval = CHECKPOINT;
        let limit = builder.max_duration.unwrap_or(Duration::MAX);
        let start = Instant::now();
        MODE.set(mode);
        let count = Arc::clone(&executions);
        builder.check(move || {
            // Ordering: Relaxed - a statistic on one OS thread.
            count.fetch_add(1, Ordering::Relaxed);
            f();
        });
        MODE.set(Mode::Plain);
        // Ordering: Relaxed - as above.
        let executions = executions.load(Ordering::Relaxed);
        let took = start.elapsed();
        // loom looks before the execution of that number, and ends there if it ends early.
        let finished = took < limit || !(executions + 1).is_multiple_of(CHECKPOINT);
        let end = if finished {
            ""
        } else {
            ", UNFINISHED: expected outcomes are not demanded"
        };
        let bound = match self.preemptions {
            Some(bound) => format!("bound {bound}"),
            None => "no bound".into(),
        };
        println!(
            "{}: {mode:?}, {bound}, {executions} executions, {took:.2?}{end}",
            self.name
        );
        Search {
            executions,
            finished,
        }
    }
}

fn seconds_by_environment() -> Option<Duration> {
    let seconds = std::env::var(SECONDS).ok()?;
    let seconds = seconds.parse().expect("NDPOOL_MODEL_SECONDS: a number");
    Some(Duration::from_secs(seconds))
}

/// Whether only expected outcomes were seen; and each of them, if the search was `finished`.
fn compare(
    expected: &[&str],
    seen: &BTreeMap<String, usize>,
    finished: bool,
) -> Result<(), String> {
    for name in expected {
        if finished && !seen.contains_key(*name) {
            return Err(format!("the expected outcome `{name}` never occurred"));
        }
    }
    for name in seen.keys() {
        if !expected.contains(&name.as_str()) {
            return Err(format!("unexpected outcome `{name}`"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{check, compare, outcome};
    use std::collections::BTreeMap;

    fn seen(names: &[&str]) -> BTreeMap<String, usize> {
        names.iter().map(|name| (name.to_string(), 1)).collect()
    }

    #[test]
    fn outcomes_are_compared_both_ways() {
        assert_eq!(compare(&["a", "b"], &seen(&["b", "a"]), true), Ok(()));
        assert!(
            compare(&["a", "b"], &seen(&["a"]), true)
                .unwrap_err()
                .contains("never occurred")
        );
        assert!(
            compare(&["a"], &seen(&["a", "c"]), true)
                .unwrap_err()
                .contains("unexpected")
        );
        assert!(compare(&[], &seen(&["c"]), true).is_err());
    }

    #[test]
    fn an_unfinished_search_may_miss_outcomes_but_not_find_others() {
        assert_eq!(compare(&["a", "b"], &seen(&["a"]), false), Ok(()));
        assert!(compare(&["a"], &seen(&["a", "c"]), false).is_err());
    }

    #[test]
    #[should_panic(expected = "single execution")]
    fn a_model_without_a_second_thread_is_refused() {
        check("sequential", &["done"], || outcome("done"));
    }

    #[test]
    #[should_panic(expected = "never occurred")]
    fn a_model_that_never_gets_there_is_refused() {
        check("unreached", &["read 1", "read 2"], || {
            use super::sync::{AtomicU32, Ordering};
            let cell = loom::sync::Arc::new(AtomicU32::new(0));
            let other = loom::sync::Arc::clone(&cell);
            let writer = loom::thread::spawn(move || other.store(1, Ordering::Relaxed));
            if cell.load(Ordering::Relaxed) == 1 {
                outcome("read 1");
            }
            writer.join().unwrap();
        });
    }
}
