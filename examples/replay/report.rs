//! What a replay reports: lines of JSON, and a table.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use indicatif::{BinaryBytes, HumanCount};
use serde::{Deserialize, Serialize};

use crate::contender::Kind;
use crate::plan::Plan;
use crate::run::Measured;

/// Columns of the longest bar.
const BAR: usize = 10;

/// One line of `--json`: what one contender needed for one trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The trace's name.
    pub trace: String,
    /// The contender's name.
    pub contender: String,
    /// Nanoseconds in the allocator per allocation or free, touching included.
    pub ns_per_op: f64,
    /// Minor page faults of the pass.
    pub minor_faults: Option<u64>,
    /// Requests served without the source of memory, per request; null where they are not counted.
    pub hit_rate: Option<f64>,
    /// The most bytes asked for and not yet freed.
    pub peak_live_bytes: u64,
    /// The most resident bytes during the pass, over those before the replay.
    pub peak_resident_bytes: Option<u64>,
    /// Resident bytes when all was freed, over those before the replay.
    pub resident_after_bytes: Option<u64>,
}

/// What a child process tells its parent: a row, and what stands below the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The row.
    pub row: Row,
    /// Bytes born for misses, per byte asked for.
    pub missed_bytes: Option<f64>,
    /// Nanoseconds that threads waited for another's block.
    pub waiting_ns: f64,
    /// Nanoseconds of stamping and checking.
    pub stamping_ns: f64,
    /// Whether the peak is that of the pass, or of the process's whole life.
    pub peak_is_exact: bool,
    /// Stamps read back, in all passes.
    pub stamps_checked: u64,
    /// Stamps of another owner, bytes that were not zero, blocks not aligned as asked.
    pub errors: u64,
}

impl Outcome {
    /// The outcome of one replay.
    pub fn new(plan: &Plan, contender: Kind, measured: &Measured) -> Outcome {
        let allocations = plan.allocations().max(1) as f64;
        let asked = plan.bytes_asked().max(1) as f64;
        let row = Row {
            trace: plan.name().to_owned(),
            contender: contender.name().to_owned(),
            ns_per_op: measured.allocator_ns / measured.operations.max(1) as f64,
            minor_faults: measured.minor_faults,
            hit_rate: measured
                .misses
                .map(|misses| 1.0 - misses.requests as f64 / allocations),
            peak_live_bytes: measured.peak_live as u64,
            peak_resident_bytes: measured.peak_resident,
            resident_after_bytes: measured.resident_after,
        };
        Outcome {
            row,
            missed_bytes: measured.misses.map(|misses| misses.bytes as f64 / asked),
            waiting_ns: measured.waiting_ns,
            stamping_ns: measured.stamping_ns,
            peak_is_exact: measured.peak_is_exact,
            stamps_checked: measured.checks.stamps,
            errors: measured.checks.errors(),
        }
    }

    /// Of several rounds the one with the median time, with the checks of all of them; `None` if
    /// there were none.
    pub fn median(mut rounds: Vec<Outcome>) -> Option<Outcome> {
        rounds.sort_by(|a, b| a.row.ns_per_op.total_cmp(&b.row.ns_per_op));
        let mut median = rounds.get(rounds.len().checked_sub(1)? / 2)?.clone();
        median.stamps_checked = rounds.iter().map(|round| round.stamps_checked).sum();
        median.errors = rounds.iter().map(|round| round.errors).sum();
        Some(median)
    }
}

/// The table of all outcomes.
pub fn table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "\ntrace",
        "\ncontender",
        "\nns/op",
        "of\nsystem",
        "",
        "minor\nfaults",
        "hit\nrate",
        "missed\nbytes",
        "peak\nlive",
        "peak\nresident",
        "resident\nat end",
    ]);
    for outcome in outcomes {
        table.add_row(cells(outcome, outcomes));
    }
    for numbers in [2, 3, 5, 6, 7, 8, 9, 10] {
        if let Some(column) = table.column_mut(numbers) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn cells(outcome: &Outcome, all: &[Outcome]) -> [String; 11] {
    let row = &outcome.row;
    let rivals = || {
        all.iter()
            .map(|other| &other.row)
            .filter(|other| other.trace == row.trace)
    };
    let system = rivals().find(|other| other.contender == Kind::System.name());
    let slowest = rivals().map(|other| other.ns_per_op).fold(0.0, f64::max);
    let bytes = |bytes: Option<u64>| known(bytes.map(BinaryBytes));
    [
        row.trace.clone(),
        row.contender.clone(),
        format!("{:.1}", row.ns_per_op),
        known(system.map(|system| format!("{:.2}", row.ns_per_op / system.ns_per_op))),
        bar(row.ns_per_op / slowest),
        known(row.minor_faults.map(HumanCount)),
        known(row.hit_rate.map(percent)),
        known(outcome.missed_bytes.map(percent)),
        bytes(Some(row.peak_live_bytes)),
        bytes(row.peak_resident_bytes),
        bytes(row.resident_after_bytes),
    ]
}

/// What was checked, and how the table is to be read.
pub fn summary(outcomes: &[Outcome], rounds: usize) -> String {
    let stamps: u64 = outcomes.iter().map(|outcome| outcome.stamps_checked).sum();
    let errors: u64 = outcomes.iter().map(|outcome| outcome.errors).sum();
    let mut text = format!(
        "{} stamps checked, {} errors. Each row: the last pass of a fresh process",
        HumanCount(stamps),
        HumanCount(errors),
    );
    if rounds > 1 {
        text += &format!(", the median by time of {rounds} rounds");
    }
    text += ".\nns/op: in the allocator, touching each page included.";
    for kind in Kind::ALL {
        let mine = || {
            outcomes
                .iter()
                .filter(|outcome| outcome.row.contender == kind.name())
        };
        let waiting: f64 = mine().map(|outcome| outcome.waiting_ns).sum();
        let stamping: f64 = mine().map(|outcome| outcome.stamping_ns).sum();
        if mine().next().is_some() {
            text += &format!(
                "\nBesides, {kind}: {:.1} ms waiting for blocks of other threads, {:.1} ms stamping.",
                waiting.max(0.0) / 1e6,
                stamping.max(0.0) / 1e6,
            );
        }
    }
    text += "\nResident: growth over the process before the replay, pages of files left out.";
    if outcomes.iter().any(|outcome| !outcome.peak_is_exact) {
        text += "\nThis system cannot reset the peak: peak resident is that of the process's life.";
    }
    text
}

fn known(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A share in percent, rounded down, so that only all is 100 %.
fn percent(share: f64) -> String {
    format!("{:.2} %", (share * 1e4).floor() / 1e2)
}

/// A bar of `share` of the full length, in steps of an eighth of a column.
fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (8 * BAR) as f64).round() as usize;
    let mut bar = "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
    if bar.is_empty() {
        bar.push('▏');
    }
    bar
}
