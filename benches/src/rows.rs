//! The rows of a run and what it ran on: written, read back, and asked by name.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::Deserialize;

use crate::case::OURS;
use crate::measure::{Sample, median};
use crate::runner::Row;
use crate::workloads;

/// Opens a line of the file that tells a fact rather than a row.
const FACT: &str = "# ";

/// All that a run measured.
pub struct Run {
    /// The machine, the versions and the settings, each with its name.
    pub facts: Vec<(String, String)>,
    /// A row for each cell and round.
    pub rows: Vec<Row>,
}

/// A figure of a sample, where it has it.
pub type Figure = fn(&Sample) -> Option<f64>;

/// Wall time of one operation, in nanoseconds.
pub const TIME: Figure = |it| Some(it.ns_per_op);
/// Peak resident memory, in KiB.
pub const PEAK: Figure = |it| it.peak_kib.map(|kib| kib as f64);

impl Run {
    /// The samples of a contender in a case.
    pub fn of<'a>(
        &'a self,
        workload: &'a str,
        case: &'a str,
        contender: &'a str,
    ) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |it| {
            it.workload == workload && it.case == case && it.contender == contender
        })
    }

    /// Median of a figure over the rounds that have it.
    pub fn figure(
        &self,
        workload: &str,
        case: &str,
        contender: &str,
        of: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<f64> {
        self.of(workload, case, contender)
            .filter_map(|row| of(&row.sample))
            .collect::<Values>()
            .median()
    }

    /// Median over the rounds of one contender's figure by another's: within a round both met the same load.
    pub fn ratio_between(
        &self,
        workload: &str,
        case: &str,
        ours: &str,
        theirs: &str,
        of: Figure,
    ) -> Option<f64> {
        self.of(workload, case, theirs)
            .filter_map(|their| {
                let mut rounds = self.of(workload, case, ours);
                let our = rounds.find(|our| our.round == their.round)?;
                Some(of(&our.sample)? / of(&their.sample)?)
            })
            .collect::<Values>()
            .median()
    }

    /// The same, of ours in time.
    pub fn ratio(&self, workload: &str, case: &str, theirs: &str) -> Option<f64> {
        self.ratio_between(workload, case, OURS, theirs, TIME)
    }

    /// The ratio to whoever of `theirs` does best, and who that is.
    pub fn worst_ratio<'a>(
        &self,
        workload: &str,
        case: &str,
        ours: &str,
        theirs: &[&'a str],
    ) -> Option<(f64, &'a str)> {
        theirs
            .iter()
            .filter(|&&name| name != ours)
            .filter_map(|&name| {
                let ratio = self.ratio_between(workload, case, ours, name, TIME)?;
                Some((ratio, name))
            })
            .max_by(|x, y| x.0.total_cmp(&y.0))
    }

    /// Writes facts and rows as CSV, compressed if the name ends in `.gz`.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        if is_gz(path) {
            let mut packed = GzEncoder::new(file, Compression::best());
            self.write_to(&mut packed)?;
            packed.finish()?.flush()
        } else {
            self.write_to(file)
        }
    }

    fn write_to(&self, mut to: impl Write) -> io::Result<()> {
        for (name, value) in &self.facts {
            writeln!(to, "{FACT}{name}: {value}")?;
        }
        let mut writer = csv::Writer::from_writer(to);
        writer.write_record(HEADER)?;
        for row in &self.rows {
            writer.write_record(fields(row))?;
        }
        writer.flush()
    }

    /// Reads what [`Run::write`] wrote.
    ///
    /// # Errors
    /// If the file cannot be read, or names a workload or a contender that is not known.
    pub fn read(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut from: Box<dyn Read> = if is_gz(path) {
            Box::new(GzDecoder::new(file))
        } else {
            Box::new(file)
        };
        let mut text = Vec::new();
        from.read_to_end(&mut text)?;
        let mut facts = Vec::new();
        for line in BufReader::new(&text[..]).lines() {
            let line = line?;
            let Some(fact) = line.strip_prefix(FACT) else {
                break;
            };
            if let Some((name, value)) = fact.split_once(": ") {
                facts.push((name.to_owned(), value.to_owned()));
            }
        }
        let mut reader = csv::ReaderBuilder::new()
            .comment(Some(b'#'))
            .from_reader(&text[..]);
        let headers = reader.headers()?.clone();
        let rows = reader
            .records()
            .map(|record| {
                let record = record?;
                let names: Names = record.deserialize(Some(&headers))?;
                let sample: Sample = record.deserialize(Some(&headers))?;
                names.row(sample)
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { facts, rows })
    }
}

fn is_gz(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "gz")
}

/// What tells a row from the others.
#[derive(Deserialize)]
struct Names {
    workload: String,
    case: String,
    contender: String,
    round: usize,
}

impl Names {
    fn row(self, sample: Sample) -> io::Result<Row> {
        let unknown =
            |what: &str, name: &str| io::Error::other(format!("no {what} is called {name}"));
        let workload = workloads::ALL
            .iter()
            .find(|it| it.name == self.workload)
            .ok_or_else(|| unknown("workload", &self.workload))?;
        let contender = (workload.cases)()
            .iter()
            .flat_map(|case| case.contenders.clone())
            .find(|&it| it == self.contender)
            .ok_or_else(|| unknown("contender", &self.contender))?;
        Ok(Row {
            workload: workload.name,
            case: self.case,
            contender,
            round: self.round,
            sample,
        })
    }
}

/// The names are those of the fields of [`Names`] and [`Sample`].
const HEADER: [&str; 18] = [
    "workload",
    "case",
    "contender",
    "round",
    "ops",
    "ns_per_op",
    "faults_per_op",
    "syscalls_per_op",
    "instructions_per_op",
    "peak_kib",
    "live_kib",
    "p50_ns",
    "p99_ns",
    "p999_ns",
    "max_ns",
    "freed_kib",
    "settled_kib",
    "trimmed_kib",
];

fn fields(row: &Row) -> [String; HEADER.len()] {
    let it = &row.sample;
    let whole = |value: Option<u64>| value.map_or(String::new(), |it| it.to_string());
    let real = |value: Option<f64>| value.map_or(String::new(), |it| it.to_string());
    [
        row.workload.to_owned(),
        row.case.clone(),
        row.contender.to_owned(),
        row.round.to_string(),
        it.ops.to_string(),
        it.ns_per_op.to_string(),
        it.faults_per_op.to_string(),
        real(it.syscalls_per_op),
        real(it.instructions_per_op),
        whole(it.peak_kib),
        whole(it.live_kib),
        whole(it.p50_ns),
        whole(it.p99_ns),
        whole(it.p999_ns),
        whole(it.max_ns),
        whole(it.freed_kib),
        whole(it.settled_kib),
        whole(it.trimmed_kib),
    ]
}

/// Some figures, of which there may be none.
#[derive(Default)]
struct Values(Vec<f64>);

impl FromIterator<f64> for Values {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl Values {
    fn median(mut self) -> Option<f64> {
        (!self.0.is_empty()).then(|| median(&mut self.0))
    }
}
