//! Recorded allocation traces: one gzip (or plain) CSV file with the columns
//! `op,thread,id,bytes,align`, as `benches/traces/README.md` describes them.
//!
//! Reading frees nothing large, so that it leaves the thresholds of the C library's allocator,
//! which move with every freed mapping, as a fresh process has them.

use std::alloc::Layout;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use serde::Deserialize;

/// Threads that a trace may name; each costs an operating system thread in a replay.
pub const MAX_THREADS: usize = 1024;

/// A recorded program: its heap requests, in the order they were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The file's name without its endings.
    pub name: String,
    /// What happened, in order.
    pub records: Vec<Record>,
    /// Threads: the highest number named, plus 1.
    pub threads: usize,
    /// For each block, whether the program still held it at the end.
    pub held: Vec<bool>,
}

/// One heap request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Block `block` is allocated. Blocks are numbered from 0 in the order of their allocation.
    Allocate {
        /// The thread that asks.
        thread: u16,
        /// The block's number.
        block: u32,
        /// Bytes and alignment asked for.
        layout: Layout,
        /// Whether the bytes must be zero.
        zeroed: bool,
    },
    /// Block `block`, which is live, is freed.
    Free {
        /// The thread that frees, which need not be the one that allocated.
        thread: u16,
        /// The block's number.
        block: u32,
    },
}

/// Why a file is not a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read or decompressed.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system or the decompressor said.
        source: io::Error,
    },
    /// A line is not a record, or not in its place.
    #[error("{path}, line {line}: {fault}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1 (the header).
        line: u64,
        /// What is wrong there.
        fault: Fault,
    },
}

/// What is wrong with a line of a trace.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Not the five columns, or not numbers.
    #[error(transparent)]
    Csv(#[from] csv::Error),
    /// The operation is none of `a`, `z` and `f`.
    #[error("unknown operation {0:?}")]
    UnknownOperation(String),
    /// A thread number that no trace has.
    #[error("thread {0} is beyond the limit of {MAX_THREADS}")]
    TooManyThreads(u64),
    /// An allocation without its size or alignment.
    #[error("an allocation needs bytes and align")]
    NoLayout,
    /// A size and alignment that no allocation can have.
    #[error("{bytes} bytes aligned to {align} are no valid layout")]
    BadLayout {
        /// Bytes asked for.
        bytes: usize,
        /// Alignment asked for.
        align: usize,
    },
    /// An allocation whose id is not the next number.
    #[error("allocations are numbered in order: {expected} was expected, not {found}")]
    OutOfOrder {
        /// The number due.
        expected: usize,
        /// The number there.
        found: u64,
    },
    /// A free of a block that is not live: never allocated, or freed already.
    #[error("block {0} is freed but not live")]
    NotLive(u64),
}

#[derive(Deserialize)]
struct Line<'a> {
    op: &'a str,
    thread: u64,
    id: u64,
    bytes: Option<usize>,
    align: Option<usize>,
}

impl Record {
    /// The thread that asks.
    pub fn thread(&self) -> usize {
        match *self {
            Record::Allocate { thread, .. } | Record::Free { thread, .. } => usize::from(thread),
        }
    }
}

impl Trace {
    /// Reads a trace from a file, decompressing it if it is compressed.
    ///
    /// # Errors
    /// [`TraceError`], with the place.
    pub fn read(path: &Path) -> Result<Trace, TraceError> {
        let unreadable = |source| TraceError::Io {
            path: path.to_path_buf(),
            source,
        };
        let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
        let gzip = file
            .fill_buf()
            .map_err(unreadable)?
            .starts_with(&[0x1f, 0x8b]);
        if gzip {
            Trace::parse(path, MultiGzDecoder::new(file))
        } else {
            Trace::parse(path, file)
        }
    }

    /// Reads a trace from its CSV text; `path` names it, in errors too.
    ///
    /// # Errors
    /// [`TraceError`], with the place.
    pub fn parse(path: &Path, text: impl Read) -> Result<Trace, TraceError> {
        let mut trace = Trace {
            name: name_of(path),
            records: Vec::new(),
            threads: 0,
            held: Vec::new(),
        };
        let mut reader = csv::Reader::from_reader(text);
        let malformed = |line, fault| TraceError::Malformed {
            path: path.to_path_buf(),
            line,
            fault,
        };
        let header = reader
            .headers()
            .cloned()
            .map_err(|error| malformed(1, error.into()))?;
        let mut row = csv::StringRecord::new();
        loop {
            let line = reader.position().line();
            match reader.read_record(&mut row) {
                Ok(false) => return Ok(trace),
                Ok(true) => {
                    row.deserialize(Some(&header))
                        .map_err(Fault::from)
                        .and_then(|parsed| trace.push(parsed))
                        .map_err(|fault| malformed(line, fault))?;
                }
                Err(error) => return Err(unread(path, line, error)),
            }
        }
    }

    /// Moves everything to one thread, in the recorded order.
    pub fn merge_threads(&mut self) {
        for record in &mut self.records {
            match record {
                Record::Allocate { thread, .. } | Record::Free { thread, .. } => *thread = 0,
            }
        }
        self.threads = self.threads.min(1);
    }

    fn push(&mut self, line: Line<'_>) -> Result<(), Fault> {
        let thread = match u16::try_from(line.thread) {
            Ok(thread) if usize::from(thread) < MAX_THREADS => thread,
            _ => return Err(Fault::TooManyThreads(line.thread)),
        };
        let record = match line.op {
            "a" | "z" => {
                let (Some(bytes), Some(align)) = (line.bytes, line.align) else {
                    return Err(Fault::NoLayout);
                };
                let layout = Layout::from_size_align(bytes, align)
                    .map_err(|_| Fault::BadLayout { bytes, align })?;
                let block = next_block(line.id, self.held.len())?;
                self.held.push(true);
                Record::Allocate {
                    thread,
                    block,
                    layout,
                    zeroed: line.op == "z",
                }
            }
            "f" => {
                let block = u32::try_from(line.id).map_err(|_| Fault::NotLive(line.id))?;
                match self.held.get_mut(block as usize) {
                    Some(held) if *held => *held = false,
                    _ => return Err(Fault::NotLive(line.id)),
                }
                Record::Free { thread, block }
            }
            other => return Err(Fault::UnknownOperation(other.to_owned())),
        };
        self.threads = self.threads.max(usize::from(thread) + 1);
        self.records.push(record);
        Ok(())
    }
}

/// The traces that come with the crate, in the order of their names.
///
/// # Errors
/// If the folder cannot be listed.
pub fn bundled() -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in folder().read_dir()? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(".csv.gz") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// The file that `name` means: a trace that comes with the crate, or else a path.
pub fn locate(name: &str) -> PathBuf {
    let bundled = folder().join(format!("{name}.csv.gz"));
    if bundled.is_file() {
        bundled
    } else {
        PathBuf::from(name)
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/traces")
}

fn name_of(path: &Path) -> String {
    let file = path
        .file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy();
    file.split('.').next().unwrap_or_default().to_owned()
}

fn next_block(id: u64, expected: usize) -> Result<u32, Fault> {
    match u32::try_from(id) {
        Ok(block) if block as usize == expected => Ok(block),
        _ => Err(Fault::OutOfOrder {
            expected,
            found: id,
        }),
    }
}

/// An error of the CSV reader: a broken file if the bytes under it could not be read, else a
/// malformed line.
fn unread(path: &Path, line: u64, error: csv::Error) -> TraceError {
    let path = path.to_path_buf();
    if !error.is_io_error() {
        return TraceError::Malformed {
            path,
            line,
            fault: error.into(),
        };
    }
    match error.into_kind() {
        csv::ErrorKind::Io(source) => TraceError::Io { path, source },
        other => TraceError::Io {
            path,
            source: io::Error::other(format!("{other:?}")),
        },
    }
}
