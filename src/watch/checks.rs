//! [`Checks`]: which misuse a pool looks for.

use core::str::FromStr;
use std::sync::OnceLock;

use crate::report::{self, Report};

/// Which outstanding buffers a leak report can name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeakLevel {
    /// None: a report has counts and bytes only.
    #[default]
    Off,
    /// One allocation in so many (0 is taken for 1).
    Sampled(u32),
    /// Every one.
    All,
}

/// What a pool looks for; see `docs/diagnosis.md` for what each check finds and costs.
///
/// A pool with any check has no inlined hit path: each take and give passes through the checks. A
/// pool without any pays nothing.
///
/// ```
/// use ndpool::{Checks, LeakLevel, Pool};
///
/// let checks = Checks::new().poison().quarantine(16 << 20).leaks(LeakLevel::All);
/// assert_eq!("poison,quarantine=16m,leaks=all".parse(), Ok(checks));
/// let pool = Pool::builder().checks(checks).build();
/// # drop(pool.zeroed::<u8>(1000)?);
/// # Ok::<(), ndpool::AllocError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    pub(crate) guard: bool,
    pub(crate) poison: bool,
    pub(crate) quarantine: usize,
    pub(crate) wipe: bool,
    pub(crate) leaks: LeakLevel,
    pub(crate) backtraces: u32,
}

/// A word of a list of checks that none has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{word}` is no check: guard, poison, quarantine=BYTES, wipe, leaks=all|N|off, backtrace=N, \
     with k, m or g behind bytes"
)]
#[non_exhaustive]
pub struct CheckError {
    /// The word.
    pub word: String,
}

impl Checks {
    /// No check.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The checks that the environment variable `NDPOOL_CHECK` lists, read once a process; none
    /// without it. Words are separated by commas, each a method of this type by name:
    /// `guard,poison,quarantine=16m,wipe,leaks=all,backtrace=1` (`leaks=100`: one in a hundred).
    /// A word that is none of these is reported once (see [`report`](crate::report)); the others
    /// count.
    #[must_use]
    pub fn from_env() -> Self {
        static CHECKS: OnceLock<Checks> = OnceLock::new();
        *CHECKS.get_or_init(|| {
            let list = std::env::var_os("NDPOOL_CHECK").unwrap_or_default();
            let mut checks = Self::new();
            for word in list.to_string_lossy().split(',') {
                if let Err(CheckError { word }) = checks.add(word) {
                    report::emit(&Report::UnknownCheck { word });
                }
            }
            checks
        })
    }

    /// Every buffer ends at an inaccessible page, so that a write or read past its end faults at
    /// the instruction. The pool is bypassed: each buffer is a mapping of its own, its source is
    /// not used, and buffers are aligned as their elements ask and no more. On Linux and macOS;
    /// elsewhere opening the pool fails.
    #[must_use]
    pub fn guard(mut self) -> Self {
        self.guard = true;
        self
    }

    /// Fills what was released with a pattern and looks at it when it is taken again: a write in
    /// between is reported.
    #[must_use]
    pub fn poison(mut self) -> Self {
        self.poison = true;
        self
    }

    /// Keeps the last `bytes` bytes that were released from being taken again. They count as live
    /// in statistics and audits; a trim, the limit and the end of the pool send them home.
    #[must_use]
    pub fn quarantine(mut self, bytes: usize) -> Self {
        self.quarantine = bytes;
        self
    }

    /// As [`PoolBuilder::wipe_on_return`](crate::PoolBuilder::wipe_on_return).
    #[must_use]
    pub fn wipe(mut self) -> Self {
        self.wipe = true;
        self
    }

    /// Remembers where outstanding buffers were allocated, for leak reports.
    #[must_use]
    pub fn leaks(mut self, level: LeakLevel) -> Self {
        self.leaks = level;
        self
    }

    /// Remembers where one in `n` buffers was allocated, and where it was released, for reports of
    /// misuse; 0 for none.
    #[must_use]
    pub fn backtraces(mut self, n: u32) -> Self {
        self.backtraces = n;
        self
    }

    /// Whether there is any check.
    #[must_use]
    pub fn is_any(&self) -> bool {
        *self != Self::new()
    }

    /// Adds the check that a word of a list names.
    fn add(&mut self, word: &str) -> Result<(), CheckError> {
        let word = word.trim();
        let error = || CheckError {
            word: word.to_owned(),
        };
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        match (name, value) {
            ("", None) => {}
            ("guard", None) => self.guard = true,
            ("poison", None) => self.poison = true,
            ("wipe", None) => self.wipe = true,
            ("quarantine", Some(value)) => self.quarantine = bytes(value).ok_or_else(error)?,
            ("leaks", Some("all")) => self.leaks = LeakLevel::All,
            ("leaks", Some("off")) => self.leaks = LeakLevel::Off,
            ("leaks", Some(n)) => {
                self.leaks = LeakLevel::Sampled(n.parse().map_err(|_| error())?);
            }
            ("backtrace", Some(n)) => self.backtraces = n.parse().map_err(|_| error())?,
            _ => return Err(error()),
        }
        Ok(())
    }
}

impl FromStr for Checks {
    type Err = CheckError;

    /// The checks that a list names, in the words of [`from_env`](Self::from_env).
    ///
    /// # Errors
    /// [`CheckError`] with the first word that is none.
    fn from_str(list: &str) -> Result<Self, CheckError> {
        let mut checks = Self::new();
        list.split(',').try_for_each(|word| checks.add(word))?;
        Ok(checks)
    }
}

/// A number of bytes, with k, m or g behind it for powers of 1024.
fn bytes(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let unit: usize = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_word_by_word() {
        let all = "guard, poison,quarantine=16m,leaks=all,wipe,backtrace=1";
        let expected = Checks::new()
            .guard()
            .poison()
            .quarantine(16 << 20)
            .leaks(LeakLevel::All)
            .wipe()
            .backtraces(1);
        assert_eq!(all.parse(), Ok(expected));
        assert_eq!("".parse(), Ok(Checks::new()));
        let sampled = Checks::new().leaks(LeakLevel::Sampled(100));
        assert_eq!("leaks=100".parse(), Ok(sampled));
        assert_eq!("quarantine=3k".parse(), Ok(Checks::new().quarantine(3072)));
    }

    #[test]
    fn a_word_that_is_no_check_is_named() {
        for bad in [
            "gaurd",
            "guard=1",
            "quarantine",
            "quarantine=",
            "quarantine=16q",
            "quarantine=-1",
            "quarantine=99999999999999999999g",
            "quarantine=18446744073709551615k",
            "leaks",
            "leaks=some",
            "backtrace=x",
            "=",
        ] {
            let error = format!("poison,{bad}").parse::<Checks>().unwrap_err();
            assert_eq!(error.word, bad);
            assert!(error.to_string().contains(bad), "{error}");
        }
    }
}
