//! [`Site`]: a place in the program, as a stack of return addresses that is resolved when shown.

#![allow(unsafe_code)]

use core::fmt;
use std::path::Path;
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
    place: Option<String>,
}

/// Crates whose frames are not a buffer's site.
const INNER: [&str; 5] = ["ndpool", "core", "alloc", "std", "backtrace"];

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
        let functions = self.functions();
        match functions.iter().find(|function| !function.is_inner()) {
            Some(Function {
                name,
                place: Some(place),
            }) => format!("{name} ({place})"),
            Some(Function { name, place: None }) => name.clone(),
            None => format!("{:#x}", self.0.last().copied().unwrap_or(0)),
        }
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
                let place = symbol.filename().map(|file| (short(file), line));
                functions.push(Function {
                    name: format!("{name:#}"),
                    place: place.map(|(file, line)| format!("{file}:{line}")),
                });
            });
        }
        functions
    }
}

/// The last three parts of a path.
fn short(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    parts[parts.len().saturating_sub(3)..].join("/")
}

impl Function {
    /// Whether the function is this crate's or the standard library's.
    fn is_inner(&self) -> bool {
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
            None => of(&self.name) || !self.name.contains("::"),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return f.pad(&self.caller());
        }
        for (depth, Function { name, place }) in self.functions().iter().enumerate() {
            write!(f, "\n  {depth:>2}: {name}")?;
            if let Some(place) = place {
                write!(f, "\n        at {place}")?;
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
    }
}
