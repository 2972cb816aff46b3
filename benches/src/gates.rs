//! The gates of `performance.md`, judged on what was measured.

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{Cell, CellAlignment, LineStyle, Table};

use crate::case::{ALLOCATORS, ARRAYS, OURS, bytes};
use crate::report::significant;
use crate::rows::{PEAK, Run, TIME};

/// Ratios near 1 are judged with this tolerance.
const TOLERANCE: f64 = 1.05;

/// One line of the table of gates.
pub struct Check {
    pub number: u8,
    pub scenario: String,
    pub against: String,
    /// What was measured; `None` if the run did not cover it.
    pub measured: Option<f64>,
    pub gate: f64,
    pub stretch: f64,
}

/// How a gate fared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    NotCovered,
    Stretch,
    Met,
    NotMet,
}

impl Verdict {
    /// As tables show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotCovered => "not covered",
            Self::Stretch => "stretch goal met",
            Self::Met => "met",
            Self::NotMet => "NOT MET",
        }
    }
}

impl Check {
    pub fn verdict(&self) -> Verdict {
        let allowed = |limit: f64| {
            if (0.9..1.1).contains(&limit) {
                limit * TOLERANCE
            } else {
                limit
            }
        };
        match self.measured {
            None => Verdict::NotCovered,
            Some(it) if it <= allowed(self.stretch) => Verdict::Stretch,
            Some(it) if it <= allowed(self.gate) => Verdict::Met,
            Some(_) => Verdict::NotMet,
        }
    }
}

/// Prints every gate that the rows cover.
pub fn print(run: &Run) {
    let checks = covered(run);
    if checks.is_empty() {
        return;
    }
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    table.set_header([
        "gate", "scenario", "against", "measured", "gate", "stretch", "verdict",
    ]);
    for check in &checks {
        let number = |value: f64| Cell::new(significant(value)).set_alignment(CellAlignment::Right);
        table.add_row(vec![
            Cell::new(check.number),
            Cell::new(&check.scenario),
            Cell::new(&check.against),
            check.measured.map_or(Cell::new("-"), number),
            number(check.gate),
            number(check.stretch),
            Cell::new(check.verdict().name()),
        ]);
    }
    println!("\ngates: ours / theirs unless said otherwise, medians over the rounds\n{table}");
    println!("{} of {} met", met(&checks), checks.len());
}

/// Every gate that the rows cover, by number.
pub fn covered(run: &Run) -> Vec<Check> {
    let mut checks = checks(run);
    checks.retain(|it| it.measured.is_some());
    checks.sort_by_key(|it| it.number);
    checks
}

/// How many of them are met.
pub fn met(checks: &[Check]) -> usize {
    let missed = |it: &&Check| it.verdict() != Verdict::NotMet;
    checks.iter().filter(missed).count()
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn checks(rows: &Run) -> Vec<Check> {
    let mut checks = Vec::new();
    pair(rows, &mut checks);
    instructions(rows, &mut checks);
    counting(rows, &mut checks);
    threads(rows, &mut checks);
    larson(rows, &mut checks);
    expressions(rows, &mut checks);
    traces(rows, &mut checks);
    checks
}

fn pair(rows: &Run, checks: &mut Vec<Check>) {
    let mut against = |number, size, how: &str, depth, theirs: &str, gate, stretch| {
        let case = format!("{}, {how}, depth {depth}", bytes(size));
        let measured = rows.ratio("pair", &case, theirs);
        checks.push(Check {
            number,
            scenario: format!("pair, {case}"),
            against: theirs.into(),
            measured,
            gate,
            stretch,
        });
    };
    for size in [64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB] {
        against(
            1,
            size,
            "untouched",
            1,
            "glibc",
            if size == MIB { 0.45 } else { 0.35 },
            0.20,
        );
    }
    for (size, gate, stretch) in [
        (64 * KIB, 0.35, 0.20),
        (256 * KIB, 0.35, 0.20),
        (MIB, 0.05, 0.02),
        (16 * MIB, 0.03, 0.01),
    ] {
        against(2, size, "untouched", 1, "mimalloc", gate, stretch);
    }
    against(4, 64, "untouched", 1, "snmalloc", 1.3, 1.0);
    against(4, 64, "untouched", 1, "glibc", 0.7, 0.5);
    for size in [64 * KIB, 256 * KIB, MIB] {
        against(8, size, "a byte a page", 4, "glibc", 0.02, 0.005);
    }
    for size in [64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB] {
        against(8, size, "a byte a page", 4, "mimalloc", 1.05, 0.8);
    }
    against(9, 256 * MIB, "written", 1, "glibc", 0.15, 0.08);
    against(9, 256 * MIB, "written", 1, "mimalloc", 1.15, 1.0);
    for size in [
        KIB,
        4 * KIB,
        16 * KIB,
        64 * KIB,
        256 * KIB,
        MIB,
        4 * MIB,
        16 * MIB,
        256 * MIB,
    ] {
        let case = format!("{}, untouched, depth 1", bytes(size));
        checks.push(Check {
            number: 3,
            measured: rows
                .worst_ratio("pair", &case, OURS, &ALLOCATORS)
                .map(|it| it.0),
            scenario: format!("pair, {case}"),
            against: "the best allocator".into(),
            gate: 1.0,
            stretch: 0.7,
        });
    }
    checks.sort_by_key(|it| it.number);
}

/// Counted only where the kernel or callgrind can.
fn instructions(rows: &Run, checks: &mut Vec<Check>) {
    for size in [64, 4 * KIB, 64 * KIB, MIB, 16 * MIB] {
        let case = format!("{}, untouched, depth 1", bytes(size));
        checks.push(Check {
            number: 5,
            measured: rows.figure("pair", &case, OURS, |it| it.instructions_per_op),
            scenario: format!("pair, {case}"),
            against: "instructions".into(),
            gate: 40.0,
            stretch: 30.0,
        });
    }
}

fn counting(rows: &Run, checks: &mut Vec<Check>) {
    checks.push(Check {
        number: 6,
        scenario: "clone + drop, one thread".into(),
        against: "arc".into(),
        measured: rows.ratio("clone", "one thread", "arc"),
        gate: 1.1,
        stretch: 1.0,
    });
    for size in [64, 4 * KIB, 64 * KIB, MIB] {
        checks.push(Check {
            number: 7,
            scenario: format!("allocate, share, drop, {}", bytes(size)),
            against: "published-3rmw".into(),
            measured: rows.ratio("share", &bytes(size), "published-3rmw"),
            gate: 0.75,
            stretch: 0.55,
        });
    }
}

fn threads(rows: &Run, checks: &mut Vec<Check>) {
    for depth in [1, 4] {
        for size in [64, 4 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB] {
            let scenario = format!("own, {}, depth {depth}, 2 threads", bytes(size));
            let one = rows.figure(
                "own",
                &format!("{}, depth {depth}, 1 thread", bytes(size)),
                OURS,
                TIME,
            );
            let two = rows.figure(
                "own",
                &format!("{}, depth {depth}, 2 threads", bytes(size)),
                OURS,
                TIME,
            );
            checks.push(if size <= 256 * KIB {
                let measured = two.zip(one).map(|(two, one)| two / one);
                Check {
                    number: 10,
                    scenario,
                    against: "itself on one thread".into(),
                    measured,
                    gate: 1.25,
                    stretch: 1.1,
                }
            } else {
                Check {
                    number: 10,
                    scenario,
                    against: "ns per pair".into(),
                    measured: two,
                    gate: 300.0,
                    stretch: 50.0,
                }
            });
        }
        for size in [4 * KIB, 64 * KIB, MIB] {
            let case = format!("{}, depth {depth}", bytes(size));
            for (theirs, gate, stretch) in [
                ("array-queue", 0.15, 0.06),
                ("opool", 0.15, 0.06),
                ("lockfree-object-pool", 0.15, 0.06),
                ("object-pool", 0.15, 0.06),
                ("zeropool", 0.8, 0.4),
            ] {
                checks.push(Check {
                    number: 11,
                    scenario: format!("shared pool, {case}"),
                    against: theirs.into(),
                    measured: rows.ratio("shared-pool", &case, theirs),
                    gate,
                    stretch,
                });
            }
        }
    }
    for (size, theirs, gate, stretch) in [
        (4 * KIB, "mimalloc", 0.4, 0.25),
        (64 * KIB, "mimalloc", 0.4, 0.25),
        (64, "snmalloc", 2.2, 1.1),
    ] {
        checks.push(Check {
            number: 12,
            scenario: format!("producer to consumer, {}", bytes(size)),
            against: theirs.into(),
            measured: rows.ratio("pipe", &bytes(size), theirs),
            gate,
            stretch,
        });
    }
    checks.sort_by_key(|it| it.number);
}

fn larson(rows: &Run, checks: &mut Vec<Check>) {
    const SMALL: [&str; 2] = [
        "4 KiB to 256 KiB, untouched, 1 thread",
        "4 KiB to 256 KiB, untouched, 2 threads",
    ];
    const LARGE: &str = "64 KiB to 16 MiB, a byte a page, 1 thread";
    let mut add = |number, case: &str, against: &str, measured, gate, stretch| {
        checks.push(Check {
            number,
            scenario: format!("larson, {case}"),
            against: against.into(),
            measured,
            gate,
            stretch,
        });
    };
    for case in SMALL {
        add(
            13,
            case,
            "mimalloc",
            rows.ratio("larson", case, "mimalloc"),
            0.6,
            0.35,
        );
        add(
            13,
            case,
            "the best allocator",
            rows.worst_ratio("larson", case, OURS, &ALLOCATORS)
                .map(|it| it.0),
            0.8,
            0.5,
        );
    }
    add(
        14,
        LARGE,
        "mimalloc",
        rows.ratio("larson", LARGE, "mimalloc"),
        1.5,
        1.0,
    );
    for case in SMALL.into_iter().chain([LARGE]) {
        let measured = rows.ratio_between("larson", case, OURS, "mimalloc", PEAK);
        add(15, case, "mimalloc, peak resident", measured, 1.2, 0.9);
    }
}

/// Once by buffers and once by owned arrays, which are what the rows are about.
fn expressions(rows: &Run, checks: &mut Vec<Check>) {
    let mut add = |number, n: u32, against: &str, gate, stretch| {
        let case = format!("n = {n}");
        for (ours, how) in [(OURS, "buffers"), (ARRAYS, "owned arrays")] {
            checks.push(Check {
                number,
                scenario: format!("(a + b) * d, {how}, {case}"),
                against: against.into(),
                measured: rows.ratio_between("expr", &case, ours, against, TIME),
                gate,
                stretch,
            });
        }
    };
    for (n, gate, stretch) in [
        (10_000, 0.3, 0.2),
        (100_000, 0.15, 0.1),
        (1_000_000, 0.35, 0.2),
        (10_000_000, 0.35, 0.2),
    ] {
        add(16, n, "glibc", gate, stretch);
    }
    for (n, gate, stretch) in [
        (1_000, 0.95, 0.8),
        (3_000, 1.0, 0.9),
        (10_000, 1.0, 0.9),
        (100_000, 1.0, 0.9),
        (1_000_000, 1.05, 1.0),
        (10_000_000, 1.05, 1.0),
    ] {
        add(17, n, "mimalloc", gate, stretch);
    }
    for n in [1_000, 3_000, 10_000, 100_000, 1_000_000, 10_000_000] {
        add(18, n, "reused", 1.05, 1.0);
    }
}

fn traces(rows: &Run, checks: &mut Vec<Check>) {
    for trace in ["digits", "image", "expr", "pipeline"] {
        for (theirs, gate, stretch) in [("glibc", 0.7, 0.4), ("mimalloc", 1.0, 0.7)] {
            checks.push(Check {
                number: 19,
                scenario: format!("trace {trace}"),
                against: theirs.into(),
                measured: rows.ratio("trace", trace, theirs),
                gate,
                stretch,
            });
        }
    }
    for trace in ["image", "expr", "pipeline"] {
        checks.push(Check {
            number: 20,
            scenario: format!("trace {trace}"),
            against: "peak resident / peak live".into(),
            measured: rows.figure("trace", trace, OURS, |it| {
                Some(it.peak_kib? as f64 / it.live_kib? as f64)
            }),
            gate: 1.4,
            stretch: 1.25,
        });
    }
    checks.sort_by_key(|it| it.number);
}
