//! Replays recorded allocation traces of real programs through `ndpool` and through the system's
//! allocator, each in a fresh process, and prints what they cost.
//!
//! `cargo run --release --example replay -- --help`

mod clock;
mod contender;
mod memory;
mod plan;
mod pooled;
mod report;
mod run;
mod stamp;
mod trace;

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use contender::{Kind, SystemAllocator};
use plan::Plan;
use pooled::PoolAllocator;
use report::Outcome;
use trace::Trace;

const HELP: &str = "\
Replays recorded allocation traces through ndpool and through the system's allocator.

Usage: replay [OPTIONS] [TRACE]...

  TRACE               a trace of benches/traces by name, or a file; all of benches/traces if none
  --trace TRACE       the same
  --contender NAME    only NAME: ndpool, system, or system-raised (glibc with raised thresholds);
                      may be repeated
  --passes N          passes in each process, of which the last is measured [default: 2]
  --rounds N          fresh processes per row, of which the median counts [default: 5]
  --check MODES       with the pool's checks: guard, poison, quarantine=16m, wipe, leaks=all,
                      backtrace=1, several separated by commas; a report is an error
  --in-order          all on one thread, in the recorded order: nothing runs ahead
  --json              one JSON object per line instead of the table
  -h, --help          this text

The exit code is 1 if a stamp, a zero or an alignment was wrong, or if a replay failed.";

/// What the command line asks for.
#[derive(Debug)]
struct Options {
    traces: Vec<PathBuf>,
    contenders: Vec<Kind>,
    passes: usize,
    rounds: usize,
    in_order: bool,
    json: bool,
    /// The pool's checks, in the words of `NDPOOL_CHECK`.
    check: Option<String>,
    /// Whether this process is to replay the one trace with the one contender itself.
    child: bool,
}

fn main() -> ExitCode {
    let done = match Options::read() {
        Ok(Some(options)) if options.child => child(&options),
        Ok(Some(options)) => parent(&options),
        Ok(None) => writeln!(io::stdout(), "{HELP}").map_err(Into::into),
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("replay: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    /// Reads the command line; `None` if it asks for help.
    fn read() -> Result<Option<Options>, Box<dyn Error>> {
        use lexopt::prelude::*;
        let mut options = Options {
            traces: Vec::new(),
            contenders: Vec::new(),
            passes: 2,
            rounds: 5,
            in_order: false,
            json: false,
            check: None,
            child: false,
        };
        let mut arguments = lexopt::Parser::from_env();
        while let Some(argument) = arguments.next()? {
            match argument {
                Short('h') | Long("help") => return Ok(None),
                Long("json") => options.json = true,
                Long("in-order") => options.in_order = true,
                Long("child") => options.child = true,
                Long("check") => options.check = Some(checks(&arguments.value()?.string()?)?),
                Long("passes") => options.passes = at_least_one(arguments.value()?)?,
                Long("rounds") => options.rounds = at_least_one(arguments.value()?)?,
                Long("contender") => options.contenders.push(arguments.value()?.parse()?),
                Long("trace") => options
                    .traces
                    .push(trace::locate(&arguments.value()?.string()?)),
                Value(name) => options.traces.push(trace::locate(&name.string()?)),
                other => return Err(other.unexpected().into()),
            }
        }
        if options.traces.is_empty() {
            options.traces = trace::bundled()?;
        }
        if options.contenders.is_empty() {
            options.contenders = Kind::DEFAULT.to_vec();
        }
        Ok(Some(options))
    }
}

/// The list of checks, if every word is one.
fn checks(list: &str) -> Result<String, ndpool::CheckError> {
    list.parse::<ndpool::Checks>()?;
    Ok(list.to_owned())
}

fn at_least_one(value: OsString) -> Result<usize, Box<dyn Error>> {
    use lexopt::ValueExt;
    match value.parse()? {
        0 => Err("a number from 1 up is needed, not 0".into()),
        number => Ok(number),
    }
}

/// Replays every trace with every contender in processes of their own, and reports.
fn parent(options: &Options) -> Result<(), Box<dyn Error>> {
    let cells = options.traces.len() * options.contenders.len() * options.rounds;
    let progress = ProgressBar::new(cells as u64).with_style(ProgressStyle::with_template(
        "{bar:32} {pos}/{len} {msg} ({elapsed}, {eta} left)",
    )?);
    progress.enable_steady_tick(Duration::from_millis(200));
    let mut outcomes = Vec::new();
    for path in &options.traces {
        let mut rounds = vec![Vec::new(); options.contenders.len()];
        for _ in 0..options.rounds {
            for (kind, rounds) in options.contenders.iter().zip(&mut rounds) {
                let name = path.file_name().unwrap_or_default().display();
                progress.set_message(format!("{name} through {kind}"));
                rounds.push(in_fresh_process(path, *kind, options)?);
                progress.inc(1);
            }
        }
        outcomes.extend(rounds.into_iter().filter_map(Outcome::median));
    }
    progress.finish_and_clear();
    print(&outcomes, options)?;
    let errors: u64 = outcomes.iter().map(|outcome| outcome.errors).sum();
    if errors > 0 {
        return Err(format!("{errors} errors: memory was not its owner's alone").into());
    }
    Ok(())
}

/// Prints the table, or the lines of JSON; then what was checked goes to the standard error.
fn print(outcomes: &[Outcome], options: &Options) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let summary = report::summary(outcomes, options.rounds);
    if !options.json {
        return writeln!(out, "{}\n{summary}", report::table(outcomes));
    }
    for outcome in outcomes {
        writeln!(out, "{}", serde_json::to_string(&outcome.row)?)?;
    }
    out.flush()?;
    writeln!(io::stderr(), "{summary}")
}

/// Runs [`child`] in a process of its own.
fn in_fresh_process(path: &Path, kind: Kind, options: &Options) -> Result<Outcome, Box<dyn Error>> {
    let mut command = Command::new(env::current_exe()?);
    command.args([
        "--child",
        "--contender",
        kind.name(),
        "--passes",
        &options.passes.to_string(),
    ]);
    if options.in_order {
        command.arg("--in-order");
    }
    command
        .arg("--")
        .arg(path)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .envs(kind.environment());
    if let Some(check) = &options.check {
        command.env("NDPOOL_CHECK", check);
    }
    let output = command.output()?;
    if !output.status.success() {
        let path = path.display();
        return Err(format!("replaying {path} through {kind} failed: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Replays one trace with one contender in this process, and prints the outcome for the parent.
fn child(options: &Options) -> Result<(), Box<dyn Error>> {
    let ([path], [kind]) = (&options.traces[..], &options.contenders[..]) else {
        return Err("a child replays one trace with one contender".into());
    };
    abort_on_panic();
    let mut trace = Trace::read(path)?;
    if options.in_order {
        trace.merge_threads();
    }
    let plan = Plan::new(trace);
    let measured = match kind {
        Kind::System | Kind::SystemRaised => run::replay(&SystemAllocator, &plan, options.passes)?,
        Kind::Ndpool => {
            let allocator = PoolAllocator::new()?;
            let measured = run::replay(&allocator, &plan, options.passes)?;
            allocator.finish()?;
            measured
        }
    };
    let reports = ndpool::report::emitted();
    if reports > 0 {
        return Err(format!("the pool's checks reported {reports} faults").into());
    }
    let outcome = Outcome::new(&plan, *kind, &measured);
    Ok(writeln!(
        io::stdout(),
        "{}",
        serde_json::to_string(&outcome)?
    )?)
}

/// Makes a panic on any thread end the process, so that no other thread waits for the one that is
/// gone.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}
