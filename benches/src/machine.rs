//! What a run ran on: the machine, the versions, the settings.

use std::fs;
use std::process::Command;
use std::thread;

use crate::runner::{Plan, tcmalloc};

/// The lock file that this program was built by.
const LOCK: &str = include_str!("../../Cargo.lock");
/// Contenders by crate.
const CRATES: [&str; 13] = [
    "mimalloc",
    "tikv-jemallocator",
    "snmalloc-rs",
    "rpmalloc",
    "zeropool",
    "opool",
    "object-pool",
    "lockfree-object-pool",
    "sharded-slab",
    "crossbeam-queue",
    "triomphe",
    "bytes",
    "ndarray",
];

/// Each fact with its name, as far as the machine tells.
pub fn facts(plan: &Plan) -> Vec<(String, String)> {
    let crates = CRATES
        .iter()
        .filter_map(|name| Some(format!("{name} {}", locked(name)?)));
    let facts = [
        ("date", said("date", &["-u", "+%F"])),
        ("commit", said("git", &["describe", "--always", "--dirty"])),
        ("processor", processor()),
        ("memory", memory()),
        ("system", system()),
        ("huge pages", huge_pages()),
        ("load at the start", load()),
        ("compiler", said("rustc", &["-V"])),
        ("crates", Some(crates.collect::<Vec<_>>().join(", "))),
        (
            "by preload",
            tcmalloc().map(|it| it.canonicalize().unwrap_or(it).display().to_string()),
        ),
        ("rounds", Some(plan.rounds.to_string())),
        (
            "timed time per cell",
            Some(format!("{} ms", plan.budget.as_millis())),
        ),
    ];
    facts
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// The version of a package in the lock file.
fn locked(name: &str) -> Option<&'static str> {
    let quoted = format!("name = \"{name}\"");
    LOCK.split("[[package]]")
        .find(|package| package.lines().any(|line| line == quoted))?
        .lines()
        .find_map(|line| line.strip_prefix("version = "))
        .map(|version| version.trim_matches('"'))
}

/// The first line that a command prints.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next()?;
    (output.status.success() && !line.is_empty()).then(|| line.to_owned())
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    Some(format!(
        "{}, family {} model {}, {cores} logical cores",
        field("model name")?,
        field("cpu family")?,
        field("model\t")?
    ))
}

fn memory() -> Option<String> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(format!("{} GiB", kib >> 20))
}

fn system() -> Option<String> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let glibc = said("getconf", &["GNU_LIBC_VERSION"]);
    Some(format!(
        "Linux {}, {}",
        kernel.trim(),
        glibc.as_deref().unwrap_or("no glibc")
    ))
}

/// The setting in brackets.
fn huge_pages() -> Option<String> {
    let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn load() -> Option<String> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    Some(text.split(' ').next()?.to_owned())
}
