//! Fills the marked blocks of a Markdown file with what a run gave; the prose around them stays.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use crate::case::{ALLOCATORS, ARRAYS, Case, OURS, POOLS, Workload};
use crate::gates::{self, Check, Verdict};
use crate::report::{self, Column, Summary, significant, summaries, time};
use crate::rows::{Run, TIME};
use crate::runner::Row;
use crate::workloads;

const OPEN: &str = "<!-- bench: ";
const OPEN_END: &str = " -->";
const CLOSE: &str = "<!-- /bench -->";

/// Spread from which a time is shown with it.
const NOTABLE_SPREAD: f64 = 0.1;
/// Faults per operation from which a case is shown among those with faults.
const NOTABLE_FAULTS: f64 = 0.01;

/// Writes each block between `<!-- bench: NAME -->` and `<!-- /bench -->` anew. NAME is `machine`, `gates`, `missed`,
/// `summary` or a workload.
///
/// # Errors
/// If the file has no block, one without an end, or one of a name that is not known; it is not written then.
pub fn fill(path: &Path, run: &Run) -> io::Result<()> {
    let text = filled(&fs::read_to_string(path)?, run)
        .map_err(|why| io::Error::other(format!("{}: {why}", path.display())))?;
    fs::write(path, text)
}

fn filled(text: &str, run: &Run) -> Result<String, String> {
    let mut out = String::new();
    let mut lines = text.lines();
    let mut blocks = 0;
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let Some(name) = line
            .strip_prefix(OPEN)
            .and_then(|it| it.strip_suffix(OPEN_END))
        else {
            continue;
        };
        out.push_str(&block(name, run).ok_or_else(|| format!("no block is called {name}"))?);
        if !lines.any(|line| line == CLOSE) {
            return Err(format!("the block {name} has no end"));
        }
        out.push_str(CLOSE);
        out.push('\n');
        blocks += 1;
    }
    if blocks == 0 {
        return Err(format!("no block, which starts with {OPEN}NAME{OPEN_END}"));
    }
    Ok(out)
}

fn block(name: &str, run: &Run) -> Option<String> {
    let text = match name {
        "machine" => machine(run),
        "gates" => all_gates(&gates::covered(run)),
        "missed" => missed(&gates::covered(run)),
        "summary" => summary(run),
        _ => tables(workloads::ALL.iter().find(|it| it.name == name)?, run),
    };
    Some(if text.is_empty() {
        "Not part of this run.\n".into()
    } else {
        text
    })
}

fn machine(run: &Run) -> String {
    let rows = run
        .facts
        .iter()
        .map(|(name, value)| vec![name.clone(), value.clone()]);
    table(&["", ""], rows)
}

fn all_gates(checks: &[Check]) -> String {
    let mut text = table(
        &[
            "#", "scenario", "against", "measured", "gate", "stretch", "verdict",
        ],
        checks.iter().map(gate),
    );
    if !checks.is_empty() {
        let stretch = checks
            .iter()
            .filter(|it| it.verdict() == Verdict::Stretch)
            .count();
        let _ = writeln!(
            text,
            "\n{} of {} met, {stretch} of them with the stretch goal.",
            gates::met(checks),
            checks.len()
        );
    }
    text
}

fn missed(checks: &[Check]) -> String {
    let missed: Vec<&Check> = checks
        .iter()
        .filter(|it| it.verdict() == Verdict::NotMet)
        .collect();
    if missed.is_empty() && !checks.is_empty() {
        return "None.\n".into();
    }
    table(
        &["#", "scenario", "against", "measured", "gate"],
        missed.into_iter().map(|check| {
            let mut cells = gate(check);
            cells.truncate(5);
            cells
        }),
    )
}

fn gate(check: &Check) -> Vec<String> {
    let verdict = check.verdict();
    vec![
        check.number.to_string(),
        check.scenario.clone(),
        check.against.clone(),
        check.measured.map_or("-".into(), significant),
        significant(check.gate),
        significant(check.stretch),
        if verdict == Verdict::NotMet {
            "**not met**".into()
        } else {
            verdict.name().into()
        },
    ]
}

/// A line of the short table: what it is called, and where it was measured.
struct Line {
    name: &'static str,
    workload: &'static str,
    case: &'static str,
    ours: &'static str,
}

const fn line(name: &'static str, workload: &'static str, case: &'static str) -> Line {
    Line {
        name,
        workload,
        case,
        ours: OURS,
    }
}

const SUMMARY: [Line; 14] = [
    line("allocate + free, 64 B", "pair", "64 B, untouched, depth 1"),
    line(
        "allocate + free, 64 KiB",
        "pair",
        "64 KiB, untouched, depth 1",
    ),
    line(
        "allocate + free, 16 MiB",
        "pair",
        "16 MiB, untouched, depth 1",
    ),
    line(
        "four buffers of 64 KiB, a byte a page written",
        "pair",
        "64 KiB, a byte a page, depth 4",
    ),
    line(
        "four buffers of 1 MiB, a byte a page written",
        "pair",
        "1 MiB, a byte a page, depth 4",
    ),
    line(
        "256 MiB, written in full",
        "pair",
        "256 MiB, written, depth 1",
    ),
    line(
        "two threads on one pool, 64 KiB",
        "shared-pool",
        "64 KiB, depth 1",
    ),
    line("producer to consumer, 64 KiB", "pipe", "64 KiB"),
    line(
        "random sizes of 4 to 256 KiB",
        "larson",
        "4 KiB to 256 KiB, untouched, 1 thread",
    ),
    line(
        "random sizes of 64 KiB to 16 MiB, touched",
        "larson",
        "64 KiB to 16 MiB, a byte a page, 1 thread",
    ),
    Line {
        ours: ARRAYS,
        ..line("`(a + b) * d`, 100,000 numbers", "expr", "n = 100000")
    },
    Line {
        ours: ARRAYS,
        ..line("`(a + b) * d`, 1,000,000 numbers", "expr", "n = 1000000")
    },
    line("recorded program `image`", "trace", "image"),
    line("clone + drop of a counted buffer", "clone", "one thread"),
];

/// Ours in time, and the ratios to what users would pick.
fn summary(run: &Run) -> String {
    // What is written by hand for one thread and one size is a bound, not a choice.
    let others: Vec<&str> = ALLOCATORS
        .into_iter()
        .chain(POOLS)
        .chain(["arc", "triomphe", "bytes"])
        .filter(|&it| it != OURS && it != "by-hand")
        .collect();
    let ratio = |it: Option<f64>| it.map_or("-".into(), significant);
    let rows = SUMMARY.iter().filter_map(|line| {
        let Line {
            name,
            workload,
            case,
            ours,
        } = *line;
        let to = |theirs| run.ratio_between(workload, case, ours, theirs, TIME);
        let best = run.worst_ratio(workload, case, ours, &others);
        Some(vec![
            name.to_owned(),
            time(run.figure(workload, case, ours, TIME)?),
            ratio(to("glibc")),
            ratio(to("mimalloc")),
            best.map_or("-".into(), |(it, who)| {
                format!("{} ({who})", significant(it))
            }),
        ])
    });
    table(
        &[
            "per operation",
            "ndpool",
            "ours / glibc",
            "ours / mimalloc",
            "ours / the fastest other",
        ],
        rows,
    )
}

/// The tables of a workload, a column for each contender.
fn tables(workload: &Workload, run: &Run) -> String {
    let rows: Vec<Row> = run
        .rows
        .iter()
        .filter(|row| row.workload == workload.name)
        .cloned()
        .collect();
    let mut cases = (workload.cases)();
    cases.retain(|case| rows.iter().any(|row| row.case == case.label));
    if cases.is_empty() {
        return String::new();
    }
    let measured: Vec<(Case, Vec<Summary>)> = cases
        .into_iter()
        .map(|case| {
            let summaries = summaries(&case, &rows);
            (case, summaries)
        })
        .collect();
    let mut text = format!("Time per {}:\n\n", workload.op);
    text += &matrix(&measured, |_| true, shown_time);
    for column in report::columns(&rows) {
        let shown = |it: &Summary| it.figure(column.of).map_or("-".into(), column.show);
        let some_faults = |summaries: &[Summary]| {
            summaries
                .iter()
                .any(|it| it.figure(column.of).is_some_and(|it| it >= NOTABLE_FAULTS))
        };
        let heading = long_name(column);
        if !column.is_a_count() {
            let _ = write!(
                text,
                "\n{heading}:\n\n{}",
                matrix(&measured, |_| true, shown)
            );
        } else if measured.iter().any(|(_, it)| some_faults(it)) {
            let _ = write!(
                text,
                "\n{heading}, in the cases in which a contender has any:\n\n{}",
                matrix(&measured, some_faults, shown)
            );
        }
    }
    text
}

fn shown_time(it: &Summary) -> String {
    let mut text = time(it.ns);
    if it.spread >= NOTABLE_SPREAD {
        let _ = write!(text, " ±{:.0} %", it.spread * 100.0);
    }
    text
}

fn long_name(column: &Column) -> String {
    match column.heading {
        "faults" => "Minor page faults per operation".into(),
        "syscalls" => "System calls per operation".into(),
        "instr" => "Instructions per operation".into(),
        "peak MiB" => "Peak resident memory, MiB".into(),
        "live MiB" => "Most bytes asked for at once, MiB".into(),
        "freed MiB" => "Resident when all is freed, MiB".into(),
        "2 s later" => "Resident two seconds later, MiB".into(),
        "trimmed" => "Resident after a trim, MiB".into(),
        quantile => format!("Latency, {quantile}"),
    }
}

/// A row for each case that is `wanted`, a column for each contender that any of them has.
fn matrix(
    measured: &[(Case, Vec<Summary>)],
    wanted: impl Fn(&[Summary]) -> bool,
    shown: impl Fn(&Summary) -> String,
) -> String {
    let measured: Vec<_> = measured.iter().filter(|(_, it)| wanted(it)).collect();
    let mut contenders: Vec<&str> = Vec::new();
    for summary in measured.iter().flat_map(|(_, summaries)| summaries) {
        if !contenders.contains(&summary.contender) {
            contenders.push(summary.contender);
        }
    }
    let headings: Vec<&str> = ["case"].into_iter().chain(contenders.clone()).collect();
    let rows = measured.iter().map(|(case, summaries)| {
        let cells = contenders.iter().map(|&name| {
            let summary = summaries.iter().find(|it| it.contender == name);
            summary.map_or("-".into(), &shown)
        });
        [case.label.clone()].into_iter().chain(cells).collect()
    });
    table(&headings, rows)
}

/// A Markdown table; nothing without rows.
fn table(headings: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut body = String::new();
    for cells in rows {
        let _ = writeln!(body, "| {} |", cells.join(" | "));
    }
    if body.is_empty() {
        return body;
    }
    format!(
        "| {} |\n|{}\n{body}",
        headings.join(" | "),
        "---|".repeat(headings.len())
    )
}
