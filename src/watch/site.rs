//! [`Site`]: a place in the program, as a stack of return addresses that is resolved when shown.

#![allow(unsafe_code)]

use core::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::constants::watch::FRAMES;

/// Where a buffer was allocated or released.
///
/// `{}` shows the first function outside of this crate and the standard library with its line,
/// `{:#}` the whole stack, a frame a line. Names and lines are those that the program's debug
/// information has. Taking one costs about a microsecond per ten frames; showing one, milliseconds.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Site(Arc<[usize]>);

/// What is known of a buffer's last owner, for reports; by [`Checks::backtraces`](crate::Checks::backtraces).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct History {
    /// Where the buffer was allocated.
    pub allocated: Option<Site>,
    /// Where its last owner released it.
    pub released: Option<Site>,
}

/// One function on a stack.
struct Function {
    name: String,
    /// File and line.
    place: Option<(PathBuf, u32)>,
}

/// Crates whose frames are not a buffer's site.
const INNER: [&str; 5] = ["ndpool", "core", "alloc", "std", "backtrace"];
/// Where the files of this crate are.
const OWN_FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
/// What the paths of the standard library's files, and of the unwinder's, contain.
const INNER_FILES: [&str; 3] = ["/rustc/", "/library/", "/backtrace-"];

impl Site {
    /// The caller's stack, [`FRAMES`] deep at most.
    #[cold]
    #[inline(never)]
    pub(super) fn here() -> Self {
        let mut frames = [0; FRAMES];
        let mut depth = 0;
        let walk = |frame: &backtrace::Frame| {
            frames[depth] = frame.ip().addr();
            depth += 1;
            depth < FRAMES
        };
        #[cfg(unix)]
        // SAFETY: what needs synchronising is Windows' debug library; the unwinder of these systems
        // walks any number of threads at once. So no lock is held that a forked child could inherit.
        unsafe {
            backtrace::trace_unsynchronized(walk);
        }
        #[cfg(not(unix))]
        backtrace::trace(walk);
        Self(Arc::from(&frames[..depth]))
    }

    /// The first function outside of this crate and the standard library with its file and line,
    /// or an address where the program has no debug information.
    #[must_use]
    pub fn caller(&self) -> String {
        self.callers().swap_remove(0)
    }

    /// Every function as [`caller`](Self::caller) shows it, innermost first; at least one. Two sites
    /// may have the same, where a loop was unrolled.
    #[must_use]
    pub fn callers(&self) -> Vec<String> {
        let functions = self.functions();
        let outer = functions.iter().filter(|function| !function.is_inner());
        let mut callers: Vec<_> = outer
            .map(|function| match function.line() {
                Some(line) => format!("{} ({line})", function.name),
                None => function.name.clone(),
            })
            .collect();
        if callers.is_empty() {
            callers.push(format!("{:#x}", self.0.last().copied().unwrap_or(0)));
        }
        callers
    }

    /// Every function on the stack, innermost first; inlined ones too.
    fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        for &address in &*self.0 {
            // A return address is behind the call.
            let call = core::ptr::without_provenance_mut(address.saturating_sub(1));
            backtrace::resolve(call, |symbol| {
                let Some(name) = symbol.name() else { return };
                let line = symbol.lineno().unwrap_or(0);
                functions.push(Function {
                    name: format!("{name:#}"),
                    place: symbol.filename().map(|file| (file.to_owned(), line)),
                });
            });
        }
        functions
    }
}

impl Function {
    /// The last three parts of the file's path, and the line.
    fn line(&self) -> Option<String> {
        let (path, line) = self.place.as_ref()?;
        let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
        let file = parts[parts.len().saturating_sub(3)..].join("/");
        Some(format!("{file}:{line}"))
    }

    /// Whether the function is this crate's or the standard library's: by its file, since inlined
    /// functions may have no more than their bare name; else by its path.
    fn is_inner(&self) -> bool {
        if let Some((path, _)) = &self.place {
            let text = path.to_string_lossy();
            return path.starts_with(OWN_FILES)
                || INNER_FILES.iter().any(|inner| text.contains(inner))
                || self.has_inner_path();
        }
        self.has_inner_path() || !self.name.contains("::")
    }

    /// Whether the path of the function's name is this crate's or the standard library's.
    fn has_inner_path(&self) -> bool {
        let of = |path: &str| {
            let path = path.trim_start_matches(['<', '&', '*', '[', '(']);
            let path = path.trim_start_matches("mut ").trim_start_matches("dyn ");
            INNER.iter().any(|inner| {
                path.strip_prefix(inner)
                    .is_some_and(|rest| rest.starts_with("::"))
            })
        };
        match self.name.split_once(" as ") {
            // A trait's own method, on a type whose path is not told.
            Some((of_type, of_trait)) if !of_type.contains("::") => of(of_trait),
            Some((of_type, _)) => of(of_type),
            None => of(&self.name),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return f.pad(&self.caller());
        }
        for (depth, function) in self.functions().iter().enumerate() {
            write!(f, "\n  {depth:>2}: {}", function.name)?;
            if let Some(line) = function.line() {
                write!(f, "\n        at {line}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Site({})", self.caller())
    }
}

impl fmt::Display for History {
    /// Nothing where nothing is known; else it begins with a semicolon.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, site) in [("allocated", &self.allocated), ("released", &self.released)] {
            let Some(site) = site else { continue };
            if f.alternate() {
                write!(f, "; {what} at{site:#}")?;
            } else {
                write!(f, "; {what} at {site}")?;
            }
        }
        Ok(())
    }
}

static_assertions::assert_impl_all!(Site: Send, Sync);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_own_frames_are_told_from_the_crates() {
        for (name, inner) in [
            ("ndpool::pool::Pool::allocate", true),
            (
                "<ndpool::buffer::Buffer<f64> as core::ops::drop::Drop>::drop",
                true,
            ),
            ("core::ptr::drop_in_place<ndpool::buffer::Buffer<u8>>", true),
            ("<T as core::convert::Into<U>>::into", true),
            ("<&mut ndpool::Pool as Clone>::clone", true),
            ("__rust_begin_short_backtrace", true),
            ("main", true),
            ("app::main", false),
            ("<app::Keeper as core::ops::drop::Drop>::drop", false),
            ("ndpool_app::run", false),
            ("diagnosis::leak::{{closure}}", false),
        ] {
            let function = Function {
                name: name.to_owned(),
                place: None,
            };
            assert_eq!(function.is_inner(), inner, "{name}");
        }
        for (file, inner) in [
            (concat!(env!("CARGO_MANIFEST_DIR"), "/src/pool.rs"), true),
            ("/rustc/0123/library/core/src/ops/function.rs", true),
            ("/home/me/app/src/pool.rs", false),
        ] {
            let function = Function {
                name: "bare".to_owned(),
                place: Some((file.into(), 1)),
            };
            assert_eq!(function.is_inner(), inner, "{file}");
        }
    }
}
