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
mod gates;
mod measure;
mod ours;
mod pools;
mod report;
mod runner;
mod workloads;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::runner::{Plan, Row};

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
    /// Timed time per cell, in milliseconds [default: 90, with --quick 18]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u16).range(1..))]
    budget: Option<u16>,
    /// Count instructions too, by valgrind's callgrind where the kernel cannot (two more seconds per cell)
    #[arg(long)]
    instructions: bool,
    /// Write the row of every cell and round to FILE
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
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
        Err(_) => bench(&Options::parse()),
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

fn bench(options: &Options) -> io::Result<()> {
    if let Some(unknown) = options
        .only
        .iter()
        .find(|name| workloads::ALL.iter().all(|it| it.name != **name))
    {
        return Err(io::Error::other(format!(
            "no workload {unknown}; see --list"
        )));
    }
    let chosen = workloads::ALL
        .iter()
        .filter(|it| options.only.is_empty() || options.only.iter().any(|name| name == it.name));
    let plan = Plan {
        rounds: options
            .rounds
            .unwrap_or(if options.quick { 3 } else { 5 })
            .into(),
        budget: Duration::from_millis(
            options
                .budget
                .unwrap_or(if options.quick { 18 } else { 90 })
                .into(),
        ),
        quick: options.quick,
        instructions: options.instructions,
        contenders: options.contender.clone(),
        case: options.case.clone(),
    };
    let mut rows: Vec<Row> = Vec::new();
    for workload in chosen {
        let cases = plan.cases(workload);
        if options.list {
            println!("{}: {}", workload.name, workload.title);
            for case in &cases {
                println!("    {} ({})", case.label, case.contenders.join(", "));
            }
            continue;
        }
        if cases.is_empty() {
            continue;
        }
        let outcome = plan.run(workload, &cases)?;
        report::print(workload, &cases, &outcome);
        rows.extend(outcome.rows);
    }
    gates::print(&rows);
    if let Some(path) = &options.csv {
        report::write_csv(path, &rows)?;
        println!("\n{} rows in {}", rows.len(), path.display());
    }
    Ok(())
}
