//! The replay of recorded traces: it reads what was recorded, notices memory with two owners, and
//! reports in the promised form.

#![allow(unsafe_code, missing_docs)]
// The parts of the example that these tests leave out are used by the example.
#![allow(dead_code)]

#[path = "../examples/replay/clock.rs"]
mod clock;
#[path = "../examples/replay/contender.rs"]
mod contender;
#[path = "../examples/replay/memory.rs"]
mod memory;
#[path = "../examples/replay/plan.rs"]
mod plan;
#[path = "../examples/replay/pooled.rs"]
mod pooled;
#[path = "../examples/replay/run.rs"]
mod run;
#[path = "../examples/replay/stamp.rs"]
mod stamp;
#[path = "../examples/replay/trace.rs"]
mod trace;

use std::alloc::Layout;
use std::collections::BTreeSet;
use std::env;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::slice;

use contender::{Block, Contender, Misses, SystemAllocator};
use plan::Plan;
use pooled::PoolAllocator;
use trace::{Fault, Trace, TraceError};

const HEADER: &str = "op,thread,id,bytes,align\n";

fn parse(lines: &str) -> Result<Trace, TraceError> {
    Trace::parse(
        Path::new("made-up.csv"),
        format!("{HEADER}{lines}").as_bytes(),
    )
}

fn fault(lines: &str) -> (u64, Fault) {
    match parse(lines) {
        Err(TraceError::Malformed { line, fault, .. }) => (line, fault),
        other => panic!("{lines:?} is no trace, but reads as {other:?}"),
    }
}

#[test]
fn bundled_traces_read_as_their_readme_says() {
    let expected = [
        ("digits", 15_130, 1, 0),
        ("expr", 35_090, 1, 0),
        ("image", 197_790, 1, 0),
        ("pipeline", 44_503, 5, 137),
    ];
    let paths = trace::bundled().expect("benches/traces is there");
    assert_eq!(paths.len(), expected.len());
    for (path, (name, records, threads, crossings)) in paths.iter().zip(expected) {
        let trace = Trace::read(path).expect("a bundled trace is well-formed");
        assert_eq!(
            (&*trace.name, trace.records.len(), trace.threads),
            (name, records, threads)
        );
        let plan = Plan::new(trace);
        assert_eq!((plan.operations(), plan.crossings), (records, crossings));
    }
}

#[test]
fn malformed_traces_are_refused_with_line_and_reason() {
    let (line, reason) = fault("a,0,0,64,16\nf,0,0,,\nf,0,0,,\n");
    assert!(matches!((line, reason), (4, Fault::NotLive(0))));
    assert!(matches!(fault("f,0,7,,\n").1, Fault::NotLive(7)));
    assert!(matches!(
        fault("f,0,99999999999,,\n").1,
        Fault::NotLive(99_999_999_999)
    ));
    assert!(matches!(
        fault("a,0,1,64,16\n").1,
        Fault::OutOfOrder {
            expected: 0,
            found: 1
        }
    ));
    assert!(matches!(
        fault("a,0,0,64,3\n").1,
        Fault::BadLayout {
            bytes: 64,
            align: 3
        }
    ));
    assert!(matches!(
        fault("z,0,0,9223372036854775807,16\n").1,
        Fault::BadLayout { .. }
    ));
    assert!(matches!(fault("a,0,0,,\n").1, Fault::NoLayout));
    assert!(matches!(
        fault("a,1024,0,64,16\n").1,
        Fault::TooManyThreads(1024)
    ));
    assert!(matches!(
        fault("x,0,0,64,16\n").1,
        Fault::UnknownOperation(_)
    ));
    assert!(matches!(fault("a,0,-1,64,16\n").1, Fault::Csv(_)));
    assert!(matches!(fault("a,0,0\n").1, Fault::Csv(_)));
    let missing = Trace::read(Path::new("/nowhere/at-all.csv.gz"));
    assert!(matches!(missing, Err(TraceError::Io { .. })));
}

#[test]
fn truncated_file_is_refused() {
    let whole = std::fs::read(trace::locate("digits")).expect("the trace is there");
    let text = flate2::read::MultiGzDecoder::new(&whole[..whole.len() / 2]);
    let outcome = Trace::parse(Path::new("half.csv.gz"), text);
    assert!(matches!(outcome, Err(TraceError::Io { .. })), "{outcome:?}");
}

#[test]
fn system_replays_digits_without_an_error() {
    let trace = Trace::read(&trace::locate("digits")).expect("the trace is there");
    let measured = run::replay(&SystemAllocator, &Plan::new(trace), 2).expect("nothing is refused");
    assert_eq!(measured.operations, 15_130);
    assert_eq!(measured.peak_live, 1_877_920);
    assert_eq!(measured.checks.errors(), 0);
    // Two passes of 7,568 blocks with two stamps at the least.
    assert!(
        measured.checks.stamps >= 2 * 2 * 7_568,
        "{:?}",
        measured.checks
    );
    assert!(
        measured.checks.zeros >= 2 * 183 * 100,
        "{:?}",
        measured.checks
    );
    assert!(measured.allocator_ns > 0.0 && measured.stamping_ns > 0.0);
}

#[test]
fn pool_replays_every_trace_without_an_error() {
    for path in trace::bundled().expect("benches/traces is there") {
        let plan = Plan::new(Trace::read(&path).expect("a bundled trace is well-formed"));
        let pool = PoolAllocator::new().expect("a pool opens");
        let measured = run::replay(&pool, &plan, 2).expect("nothing is refused");
        assert_eq!(measured.checks.errors(), 0, "{}", plan.name());
    }
}

/// In the recorded order: where threads run ahead of each other, the peak of what is live is another
/// in each pass, and what it exceeds the last one by is cold.
#[test]
fn pool_replays_every_trace_warm() {
    for path in trace::bundled().expect("benches/traces is there") {
        let mut trace = Trace::read(&path).expect("a bundled trace is well-formed");
        trace.merge_threads();
        let plan = Plan::new(trace);
        let pool = PoolAllocator::new().expect("a pool opens");
        let measured = run::replay(&pool, &plan, 2).expect("nothing is refused");
        assert_eq!(measured.checks.errors(), 0, "{}", plan.name());
        let misses = measured.misses.expect("the pool's misses are counted");
        let rate = 1.0 - misses.requests as f64 / plan.allocations() as f64;
        assert!(rate >= 0.97, "{}: {rate} of the requests hit", plan.name());
    }
}

#[test]
fn free_on_another_thread_waits_for_its_block() {
    // Thread 0 frees what threads 1 and 2 allocate, and thread 1 what thread 0 allocates then.
    let lines = "a,1,0,4096,16\nf,0,0,,\na,2,1,70000,16\na,0,2,1024,16\nf,1,2,,\nf,0,1,,\n";
    let plan = Plan::new(parse(lines).expect("a trace"));
    assert_eq!(plan.crossings, 3);
    for _ in 0..50 {
        let measured = run::replay(&SystemAllocator, &plan, 3).expect("nothing is refused");
        assert_eq!(measured.checks.errors(), 0);
        assert_eq!(measured.checks.stamps, 3 * (5 + 5 + 2));
    }
}

/// Serves every request from the same memory: each block has as many owners as blocks are live.
struct OneForAll {
    memory: *mut u8,
    bytes: usize,
    dirt: u8,
}

struct Alias {
    memory: *mut u8,
    bytes: usize,
}

// SAFETY: the traces below have one thread.
unsafe impl Sync for OneForAll {}
// SAFETY: as above.
unsafe impl Send for Alias {}

impl OneForAll {
    fn new(bytes: usize, dirt: u8) -> OneForAll {
        let memory = Box::leak(vec![dirt; bytes].into_boxed_slice());
        OneForAll {
            memory: memory.as_mut_ptr(),
            bytes,
            dirt,
        }
    }
}

impl Drop for OneForAll {
    fn drop(&mut self) {
        let memory = std::ptr::slice_from_raw_parts_mut(self.memory, self.bytes);
        // SAFETY: leaked by `new`, and a replay has dropped its blocks when it returns.
        drop(unsafe { Box::from_raw(memory) });
    }
}

impl Contender for OneForAll {
    type Block = Alias;

    fn allocate(&self, layout: Layout) -> Result<Alias, String> {
        if layout.size() > self.bytes {
            return Err(format!("{} bytes are too many", layout.size()));
        }
        Ok(Alias {
            memory: self.memory,
            bytes: layout.size(),
        })
    }

    fn zeroed(&self, layout: Layout) -> Result<Alias, String> {
        let mut block = self.allocate(layout)?;
        block.payload().fill(MaybeUninit::new(self.dirt));
        Ok(block)
    }

    fn misses(&self) -> Option<Misses> {
        None
    }
}

impl Block for Alias {
    fn payload(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the memory is there until the contender goes and long enough, and no other slice
        // of it is used while this one is.
        unsafe { slice::from_raw_parts_mut(self.memory.cast(), self.bytes) }
    }
}

#[test]
fn memory_with_two_owners_is_noticed() {
    let alone = parse("a,0,0,4096,1\nf,0,0,,\na,0,1,4096,1\nf,0,1,,\n").expect("a trace");
    let contender = OneForAll::new(8192, 0);
    let measured = run::replay(&contender, &Plan::new(alone), 2).expect("nothing is refused");
    assert_eq!(
        measured.checks.errors(),
        0,
        "one block after the other is no error"
    );

    let together = parse("a,0,0,4096,1\na,0,1,4096,1\nf,0,1,,\nf,0,0,,\n").expect("a trace");
    let measured = run::replay(&contender, &Plan::new(together), 1).expect("nothing is refused");
    assert_eq!(
        measured.checks.stamps_wrong, 5,
        "all stamps of the first block are gone"
    );

    let held = parse("a,0,0,4096,1\na,0,1,64,1\n").expect("a trace");
    let measured = run::replay(&contender, &Plan::new(held), 1).expect("nothing is refused");
    assert_eq!(
        (measured.checks.stamps, measured.checks.stamps_wrong),
        (5 + 2, 1),
        "blocks held at the end are checked too"
    );
}

#[test]
fn stale_bytes_in_zeroed_memory_are_noticed() {
    let plan = Plan::new(parse("z,0,0,100000,1\nf,0,0,,\n").expect("a trace"));
    let clean = run::replay(&OneForAll::new(100_000, 0), &plan, 1).expect("nothing is refused");
    assert_eq!(clean.checks.zeros_wrong, 0);
    let dirty = run::replay(&OneForAll::new(100_000, 9), &plan, 1).expect("nothing is refused");
    assert_eq!(dirty.checks.zeros_wrong, dirty.checks.zeros);
    assert!(dirty.checks.zeros > 1000);
}

#[test]
fn refusal_ends_the_replay_with_the_contenders_words() {
    // Thread 0 waits for the block that thread 1 is refused.
    let plan = Plan::new(parse("a,1,0,4096,1\nf,0,0,,\n").expect("a trace"));
    let refused = run::replay(&OneForAll::new(64, 0), &plan, 2);
    assert_eq!(refused.err().as_deref(), Some("4096 bytes are too many"));
}

#[test]
fn json_has_exactly_the_promised_keys() {
    let keys = BTreeSet::from([
        "trace",
        "contender",
        "ns_per_op",
        "minor_faults",
        "hit_rate",
        "peak_live_bytes",
        "peak_resident_bytes",
        "resident_after_bytes",
    ]);
    let output = example(&["--json", "--rounds", "1", "digits"]);
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    let summary = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{summary}");
    assert!(summary.contains("stamps checked, 0 errors"), "{summary}");
    let rows: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object per line"))
        .collect();
    let contenders: Vec<_> = rows.iter().map(|row| row["contender"].as_str()).collect();
    assert_eq!(contenders, [Some("ndpool"), Some("system")]);
    for row in &rows {
        let object = row.as_object().expect("an object per line");
        assert_eq!(
            object.keys().map(String::as_str).collect::<BTreeSet<_>>(),
            keys
        );
        assert_eq!(row["trace"], "digits");
        assert_eq!(row["peak_live_bytes"], 1_877_920);
        assert!(
            row["ns_per_op"].as_f64().is_some_and(|time| time > 0.0),
            "{row}"
        );
    }
    assert!(
        rows[0]["hit_rate"]
            .as_f64()
            .is_some_and(|rate| (0.97..=1.0).contains(&rate))
    );
    assert!(rows[1]["hit_rate"].is_null());
}

#[test]
fn bad_command_lines_fail_with_a_reason() {
    for (arguments, reason) in [
        (
            &["--contender", "nobody"][..],
            "no contender is called \"nobody\"",
        ),
        (&["--passes", "0"], "a number from 1 up is needed"),
        (&["--frobnicate"], "invalid option"),
        (&["no-such-trace"], "cannot read no-such-trace"),
    ] {
        let output = example(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(words.contains(reason), "{arguments:?}: {words}");
    }
}

/// Runs the example, which `cargo test` builds beside the tests; where only this test was built,
/// cargo builds it now.
fn example(arguments: &[&str]) -> Output {
    let beside = env::current_exe().ok().and_then(|test| {
        let file = format!("examples/replay{}", env::consts::EXE_SUFFIX);
        let path: PathBuf = test.parent()?.parent()?.join(file);
        path.is_file().then_some(path)
    });
    let mut command = match beside {
        Some(path) => Command::new(path),
        None => {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["run", "--quiet", "--manifest-path"]);
            cargo.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
            cargo.args(["--example", "replay", "--"]);
            cargo
        }
    };
    command.args(arguments).output().expect("the example runs")
}
