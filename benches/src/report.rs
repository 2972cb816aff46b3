//! Tables for people, rows for programs.

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;

use comfy_table::{Cell, CellAlignment, LineStyle, Table};

use crate::case::{Case, OURS, Workload};
use crate::measure::{Sample, median};
use crate::rows::Figure;
use crate::runner::{Outcome, Row};

/// Longest bar, in characters.
const LONGEST: usize = 24;

/// Medians of one contender over the rounds.
pub struct Summary {
    pub contender: &'static str,
    pub ns: f64,
    /// Half of the range over the rounds, as a fraction of the median.
    pub spread: f64,
    /// Median over the rounds of ours / this one's; `None` without ours.
    pub ratio: Option<f64>,
    pub rows: Vec<Sample>,
}

impl Summary {
    /// Median of a figure over the rounds that have it.
    pub fn figure(&self, of: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let mut values: Vec<f64> = self.rows.iter().filter_map(of).collect();
        if values.is_empty() {
            None
        } else {
            Some(median(&mut values))
        }
    }
}

/// The contenders of a case that were measured, in the case's order.
pub fn summaries(case: &Case, rows: &[Row]) -> Vec<Summary> {
    let of = |contender: &str| -> Vec<Row> {
        rows.iter()
            .filter(|row| row.case == case.label && row.contender == contender)
            .cloned()
            .collect()
    };
    let ours = of(OURS);
    case.contenders
        .iter()
        .map(|&contender| (contender, of(contender)))
        .filter(|(_, theirs)| !theirs.is_empty())
        .map(|(contender, theirs)| {
            let mut times: Vec<f64> = theirs.iter().map(|row| row.sample.ns_per_op).collect();
            let ns = median(&mut times);
            let spread = (times[times.len() - 1] - times[0]) / 2.0 / ns;
            Summary {
                contender,
                ns,
                spread,
                ratio: ratio(&ours, &theirs),
                rows: theirs.into_iter().map(|row| row.sample).collect(),
            }
        })
        .collect()
}

/// Ratios are taken within a round, where both ran under the same load.
fn ratio(ours: &[Row], theirs: &[Row]) -> Option<f64> {
    let mut ratios: Vec<f64> = theirs
        .iter()
        .filter_map(|their| {
            let our = ours.iter().find(|our| our.round == their.round)?;
            Some(our.sample.ns_per_op / their.sample.ns_per_op)
        })
        .collect();
    if ratios.is_empty() {
        None
    } else {
        Some(median(&mut ratios))
    }
}

/// A column that is shown only if a row has it.
pub struct Column {
    pub heading: &'static str,
    pub of: Figure,
    pub show: fn(f64) -> String,
}

impl Column {
    /// Whether it counts events of an operation, of which most cases have none.
    pub fn is_a_count(&self) -> bool {
        ["faults", "syscalls"].contains(&self.heading)
    }
}

const COLUMNS: &[Column] = &[
    Column {
        heading: "faults",
        of: |it| Some(it.faults_per_op),
        show: count,
    },
    Column {
        heading: "syscalls",
        of: |it| it.syscalls_per_op,
        show: count,
    },
    Column {
        heading: "instr",
        of: |it| it.instructions_per_op,
        show: count,
    },
    Column {
        heading: "peak MiB",
        of: |it| it.peak_kib.map(|kib| kib as f64),
        show: mebibytes,
    },
    Column {
        heading: "live MiB",
        of: |it| it.live_kib.map(|kib| kib as f64),
        show: mebibytes,
    },
    Column {
        heading: "p50",
        of: |it| it.p50_ns.map(|ns| ns as f64),
        show: time,
    },
    Column {
        heading: "p99",
        of: |it| it.p99_ns.map(|ns| ns as f64),
        show: time,
    },
    Column {
        heading: "p99.9",
        of: |it| it.p999_ns.map(|ns| ns as f64),
        show: time,
    },
    Column {
        heading: "max",
        of: |it| it.max_ns.map(|ns| ns as f64),
        show: time,
    },
    Column {
        heading: "freed MiB",
        of: |it| it.freed_kib.map(|kib| kib as f64),
        show: mebibytes,
    },
    Column {
        heading: "2 s later",
        of: |it| it.settled_kib.map(|kib| kib as f64),
        show: mebibytes,
    },
    Column {
        heading: "trimmed",
        of: |it| it.trimmed_kib.map(|kib| kib as f64),
        show: mebibytes,
    },
];

/// The columns that some of these rows have.
pub fn columns(rows: &[Row]) -> Vec<&'static Column> {
    COLUMNS
        .iter()
        .filter(|column| rows.iter().any(|row| (column.of)(&row.sample).is_some()))
        .collect()
}

/// Prints a workload's table.
pub fn print(workload: &Workload, cases: &[Case], outcome: &Outcome) {
    let columns = columns(&outcome.rows);
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    let headings = ["case", "contender", "time", "+-"]
        .into_iter()
        .chain(columns.iter().map(|it| it.heading));
    table.set_header(headings.chain([
        "ours/theirs",
        "slower than the fastest: a block per doubling",
    ]));
    for case in cases {
        let summaries = summaries(case, &outcome.rows);
        let fastest = summaries
            .iter()
            .map(|it| it.ns)
            .fold(f64::INFINITY, f64::min);
        for (index, summary) in summaries.iter().enumerate() {
            let label = if index == 0 { case.label.as_str() } else { "" };
            let mut row = vec![Cell::new(label), Cell::new(summary.contender)];
            row.push(number(time(summary.ns)));
            row.push(number(format!("{:.0}%", summary.spread * 100.0)));
            for column in &columns {
                row.push(number(
                    summary.figure(column.of).map_or("-".into(), column.show),
                ));
            }
            row.push(number(match summary.ratio {
                Some(ratio) if summary.contender != OURS => significant(ratio),
                _ => "-".into(),
            }));
            row.push(Cell::new(bar(summary.ns / fastest)));
            table.add_row(row);
        }
    }
    println!(
        "\n{}: {} [per {}]\n{table}",
        workload.name, workload.title, workload.op
    );
    for failure in &outcome.failures {
        println!(
            "  no result: {}, {}: {}",
            failure.case, failure.contender, failure.why
        );
    }
}

fn number(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn bar(times_the_fastest: f64) -> String {
    let length = 1 + times_the_fastest.log2().round().max(0.0) as usize;
    "█".repeat(length.min(LONGEST))
}

/// A time with its unit.
pub fn time(ns: f64) -> String {
    match ns {
        ..1e3 => format!("{} ns", significant(ns)),
        ..1e6 => format!("{} us", significant(ns / 1e3)),
        ..1e9 => format!("{} ms", significant(ns / 1e6)),
        _ => format!("{} s", significant(ns / 1e9)),
    }
}

fn count(value: f64) -> String {
    if value < 0.0005 {
        "0".into()
    } else {
        significant(value)
    }
}

fn mebibytes(kib: f64) -> String {
    format!("{:.1}", kib / 1024.0)
}

/// Three digits.
pub fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        ..0.1 => 4,
        ..1.0 => 3,
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}
