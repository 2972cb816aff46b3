//! Runs every cell in a process of its own, the contenders of a case one after the other, round by round.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::case::{Case, OURS, PRELOADED, Touch, Workload};
use crate::measure::{Budget, Count, Sample};

/// The environment variable that turns this program into one cell. Its value is the cell's budget, as JSON.
pub const CELL: &str = "NDPOOL_BENCH_CELL";

/// Workloads whose instructions a simulator counts: each does the same on every run.
const SIMULATED: [&str; 5] = ["pair", "clone", "share", "view", "two-pools"];
/// Operations of the two simulated runs; what they differ by is counted.
const SIMULATED_OPS: [u64; 2] = [1_000, 51_000];

/// Whose instructions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    Nobodys,
    Ours,
    All,
}

/// How much to run.
pub struct Plan {
    /// Repeats of every cell.
    pub rounds: usize,
    /// Timed time per cell.
    pub budget: Duration,
    /// Only the cases marked for it.
    pub quick: bool,
    /// Whose instructions to count by callgrind, where the kernel cannot.
    pub instructions: Counted,
    /// Only contenders with one of these names; all if empty.
    pub contenders: Vec<String>,
    /// Only cases whose label contains this.
    pub case: Option<String>,
}

/// One measured cell.
#[derive(Clone, Debug)]
pub struct Row {
    pub workload: &'static str,
    pub case: String,
    pub contender: &'static str,
    pub round: usize,
    pub sample: Sample,
}

/// A cell that gave no sample, and why.
pub struct Failure {
    pub case: String,
    pub contender: &'static str,
    pub why: String,
}

/// What a workload gave.
#[derive(Default)]
pub struct Outcome {
    pub rows: Vec<Row>,
    pub failures: Vec<Failure>,
}

impl Plan {
    /// The cases to run, with the contenders to run them for.
    pub fn cases(&self, workload: &Workload) -> Vec<Case> {
        let mut cases = (workload.cases)();
        cases.retain(|case| {
            (!self.quick || case.quick)
                && self
                    .case
                    .as_ref()
                    .is_none_or(|part| case.label.contains(part.as_str()))
        });
        for case in &mut cases {
            case.contenders.retain(|it| {
                self.contenders.is_empty() || self.contenders.iter().any(|name| name == it)
            });
        }
        cases.retain(|case| !case.contenders.is_empty());
        cases
    }

    fn counts(&self, contender: &str) -> bool {
        match self.instructions {
            Counted::Nobodys => false,
            Counted::Ours => contender == OURS,
            Counted::All => true,
        }
    }

    /// Runs the cases of one workload.
    pub fn run(&self, workload: &'static Workload, cases: &[Case]) -> io::Result<Outcome> {
        let program = std::env::current_exe()?;
        let preload = tcmalloc();
        let cells: usize = cases
            .iter()
            .map(|case| case.contenders.len() * self.rounds)
            .sum();
        let progress = bar(cells, workload.name);
        let mut outcome = Outcome::default();
        for case in cases {
            // Contenders that are not here, or that failed in an earlier round.
            let mut given_up = BTreeSet::new();
            for round in 0..self.rounds {
                for &contender in &case.contenders {
                    progress.inc(1);
                    progress.set_message(format!("{} {contender}", case.label));
                    if given_up.contains(contender) {
                        continue;
                    }
                    let cell = Cell {
                        program: &program,
                        workload,
                        case,
                        contender,
                        preload: preload.as_deref(),
                    };
                    // Counters are slow to open and close, and exact: one round of them is enough.
                    let count = if round == 0 {
                        Count::Kernel
                    } else {
                        Count::Nothing
                    };
                    match cell.measure(Budget {
                        time: self.budget,
                        count,
                        averaged: false,
                    })? {
                        Answer::Measured(mut sample) => {
                            if round == 0 && self.counts(contender) && cell.can_be_simulated() {
                                sample.instructions_per_op =
                                    sample.instructions_per_op.or(cell.simulate()?);
                            }
                            outcome.rows.push(Row {
                                workload: workload.name,
                                case: case.label.clone(),
                                contender,
                                round,
                                sample: *sample,
                            });
                        }
                        Answer::Absent => {
                            given_up.insert(contender);
                        }
                        Answer::Failed(why) => {
                            given_up.insert(contender);
                            outcome.failures.push(Failure {
                                case: case.label.clone(),
                                contender,
                                why,
                            });
                        }
                    }
                }
            }
        }
        progress.finish_and_clear();
        Ok(outcome)
    }
}

/// A case for a contender, as a process.
struct Cell<'a> {
    program: &'a Path,
    workload: &'a Workload,
    case: &'a Case,
    contender: &'a str,
    preload: Option<&'a Path>,
}

impl Cell<'_> {
    fn measure(&self, budget: Budget) -> io::Result<Answer> {
        if self.contender == PRELOADED && self.preload.is_none() {
            return Ok(Answer::Absent);
        }
        let output = self.command(Command::new(self.program), budget)?.output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let last = text
                .lines()
                .rev()
                .find(|line| !line.is_empty() && !line.starts_with("note:"));
            return Ok(Answer::Failed(format!(
                "{}: {}",
                output.status,
                last.unwrap_or("no message")
            )));
        }
        let sample: Option<Sample> = serde_json::from_slice(&output.stdout)?;
        Ok(sample.map_or(Answer::Absent, |it| Answer::Measured(Box::new(it))))
    }

    fn command(&self, mut command: Command, budget: Budget) -> io::Result<Command> {
        command.args([self.workload.name, self.case.label.as_str(), self.contender]);
        command
            .env(CELL, serde_json::to_string(&budget)?)
            .stdin(Stdio::null());
        if let (PRELOADED, Some(library)) = (self.contender, self.preload) {
            command.env("LD_PRELOAD", library);
        }
        Ok(command)
    }

    fn can_be_simulated(&self) -> bool {
        SIMULATED.contains(&self.workload.name)
            && self.case.threads == 1
            && self.case.touch == Touch::Untouched
    }

    /// Instructions of one operation; `None` if valgrind is not here or does not bear the contender.
    fn simulate(&self) -> io::Result<Option<f64>> {
        let mut totals = Vec::new();
        for ops in SIMULATED_OPS {
            let mut valgrind = Command::new("valgrind");
            valgrind
                .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
                .arg(self.program);
            let budget = Budget {
                time: Duration::ZERO,
                count: Count::Outside(ops),
                averaged: false,
            };
            let output = match self.command(valgrind, budget)?.output() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                output => output?,
            };
            let sample = serde_json::from_slice::<Option<Sample>>(&output.stdout)
                .ok()
                .flatten();
            let (Some(sample), Some(total)) = (sample, collected(&output.stderr)) else {
                return Ok(None);
            };
            totals.push((sample.ops as f64, total));
        }
        let [(few, less), (many, more)] = totals[..] else {
            return Ok(None);
        };
        Ok(Some((more - less) / (many - few)))
    }
}

/// The total in callgrind's summary.
fn collected(stderr: &[u8]) -> Option<f64> {
    let text = String::from_utf8_lossy(stderr);
    let (_, total) = text
        .lines()
        .find_map(|line| line.split_once("Collected :"))?;
    total.trim().parse().ok()
}

enum Answer {
    Measured(Box<Sample>),
    /// Not built, or not installed.
    Absent,
    Failed(String),
}

/// The child's side: measures one cell and prints it as JSON.
pub fn cell(workloads: &[Workload], arguments: &[String], budget: &str) -> io::Result<()> {
    let [name, label, contender] = arguments else {
        return Err(io::Error::other(
            "a cell is a workload, a case and a contender",
        ));
    };
    let workload = workloads
        .iter()
        .find(|it| it.name == name)
        .ok_or_else(|| io::Error::other("no such workload"))?;
    let cases = (workload.cases)();
    let case = cases
        .iter()
        .find(|it| it.label == *label)
        .ok_or_else(|| io::Error::other("no such case"))?;
    let sample = (workload.run)(case, contender, serde_json::from_str(budget)?);
    Ok(serde_json::to_writer(io::stdout(), &sample)?)
}

fn bar(cells: usize, name: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:>14} [{bar:30}] {pos}/{len} {msg}")
        .expect("a valid template");
    ProgressBar::new(cells as u64)
        .with_style(style.progress_chars("=> "))
        .with_prefix(name)
}

/// tcmalloc's library where Debian and its kin put it.
pub fn tcmalloc() -> Option<PathBuf> {
    [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/lib",
    ]
    .iter()
    .map(|folder| Path::new(folder).join("libtcmalloc_minimal.so.4"))
    .find(|path| path.exists())
}
