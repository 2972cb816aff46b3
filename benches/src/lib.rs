//! `cargo bench -p ndpool-bench`: ndpool beside what its users would pick instead.
//!
//! Every cell (a case of a workload, for one contender) runs in a process of its own, since allocators tune themselves
//! as they run. The contenders of a case take turns, round by round, so that all meet the same load on the machine.

#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]
#![deny(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block
)]

mod case;
mod contender;
mod counts;
mod document;
mod gates;
mod machine;
mod measure;
mod ours;
mod plots;
mod pools;
mod report;
mod rows;
mod runner;
mod workloads;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::case::Workload;
use crate::rows::Run;
use crate::runner::{Counted, Outcome, Plan, Row};

/// ndpool beside what its users would pick instead.
#[derive(Parser)]
#[command(name = "cargo bench -p ndpool-bench --", version)]
struct Options {
    /// Run the most telling cases only, three rounds; about two minutes
    #[arg(long)]
    quick: bool,
    /// Run this workload only; may be repeated, see --list
    #[arg(long, value_name = "WORKLOAD")]
    only: Vec<String>,
    /// Run cases only whose label contains TEXT
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Run this contender only; may be repeated
    #[arg(long, value_name = "NAME")]
    contender: Vec<String>,
    /// Repeat every cell N times [default: 5, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Timed time per cell, in milliseconds [default: 50, with --quick 18]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u16).range(1..))]
    budget: Option<u16>,
    /// Count instructions too, by valgrind's callgrind where the kernel cannot (two more seconds per cell)
    #[arg(long)]
    instructions: bool,
    /// Write the row of every cell and round to FILE, and what it ran on; packed if FILE ends in .gz
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Measure nothing; take the rows that --csv wrote to FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "only", "case", "contender", "rounds", "budget", "instructions", "csv"])]
    from: Option<PathBuf>,
    /// Write plots to FOLDER, as SVG
    #[arg(long, value_name = "FOLDER")]
    plot: Option<PathBuf>,
    /// Fill the blocks of FILE that are marked `<!-- bench: NAME -->`; may be repeated
    #[arg(long, value_name = "FILE")]
    report: Vec<PathBuf>,
    /// Keep the rows in benches/results.csv.gz, write docs/images/bench and fill docs/benchmarks.md and README.md
    #[arg(long, conflicts_with_all = ["csv", "plot", "report"])]
    publish: bool,
    /// List workloads and their cases
    #[arg(long)]
    list: bool,
    /// What `cargo bench` passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// The whole program: a run, or one cell of it.
pub fn main() -> ExitCode {
    let result = match std::env::var(runner::CELL) {
        Ok(budget) => cell(&budget),
        Err(_) => bench(&Options::parse().resolved()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ndpool-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn cell(budget: &str) -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    runner::cell(workloads::ALL, &arguments, budget)
}

impl Options {
    /// With `--publish` resolved: `cargo bench` starts programs in their package's folder, wherever it is called.
    fn resolved(mut self) -> Self {
        if self.publish {
            let package = Path::new(env!("CARGO_MANIFEST_DIR"));
            if self.from.is_none() {
                self.csv = Some(package.join("results.csv.gz"));
            }
            self.plot = Some(package.join("../docs/images/bench"));
            self.report = ["../docs/benchmarks.md", "../README.md"]
                .map(|it| package.join(it))
                .into();
        }
        self
    }
}

fn bench(options: &Options) -> io::Result<()> {
    let plan = plan(options);
    if options.list {
        for workload in chosen(options)? {
            println!("{}: {}", workload.name, workload.title);
            for case in plan.cases(workload) {
                println!("    {} ({})", case.label, case.contenders.join(", "));
            }
        }
        return Ok(());
    }
    let run = match &options.from {
        Some(path) => read(path)?,
        None => measure(&plan, &chosen(options)?)?,
    };
    gates::print(&run);
    if let Some(path) = &options.csv {
        run.write(path)?;
        println!("\n{} rows in {}", run.rows.len(), path.display());
    }
    if let Some(folder) = &options.plot {
        let plots = plots::write(folder, &run)?;
        println!("{plots} plots in {}", folder.display());
    }
    for path in &options.report {
        document::fill(path, &run)?;
        println!("{} filled", path.display());
    }
    Ok(())
}

fn plan(options: &Options) -> Plan {
    let or =
        |given: Option<u16>, full, quick| given.unwrap_or(if options.quick { quick } else { full });
    Plan {
        rounds: or(options.rounds, 5, 3).into(),
        budget: Duration::from_millis(or(options.budget, 50, 18).into()),
        quick: options.quick,
        instructions: match (options.instructions, options.publish) {
            (true, _) => Counted::All,
            (false, true) => Counted::Ours,
            (false, false) => Counted::Nobodys,
        },
        contenders: options.contender.clone(),
        case: options.case.clone(),
    }
}

fn chosen(options: &Options) -> io::Result<Vec<&'static Workload>> {
    let known = |name: &String| workloads::ALL.iter().any(|it| it.name == *name);
    if let Some(unknown) = options.only.iter().find(|name| !known(name)) {
        return Err(io::Error::other(format!(
            "no workload {unknown}; see --list"
        )));
    }
    let wanted =
        |it: &&Workload| options.only.is_empty() || options.only.iter().any(|name| name == it.name);
    Ok(workloads::ALL.iter().filter(wanted).collect())
}

/// Measures, and prints the table of each workload as it is done.
fn measure(plan: &Plan, workloads: &[&'static Workload]) -> io::Result<Run> {
    let mut run = Run {
        facts: machine::facts(plan),
        rows: Vec::new(),
    };
    for workload in workloads {
        let cases = plan.cases(workload);
        if cases.is_empty() {
            continue;
        }
        let outcome = plan.run(workload, &cases)?;
        report::print(workload, &cases, &outcome);
        run.rows.extend(outcome.rows);
    }
    Ok(run)
}

/// Takes the rows of an earlier run, and prints its tables.
fn read(path: &Path) -> io::Result<Run> {
    let run = Run::read(path)?;
    for workload in workloads::ALL {
        let of = |row: &&Row| row.workload == workload.name;
        let outcome = Outcome {
            rows: run.rows.iter().filter(of).cloned().collect(),
            ..Outcome::default()
        };
        if !outcome.rows.is_empty() {
            report::print(workload, &(workload.cases)(), &outcome);
        }
    }
    Ok(run)
}
