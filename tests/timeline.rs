//! Timelines: what is recorded, in which order, what is lost; the trace that is written of it, put
//! before a validator that is itself shown to refuse planted faults; and snapshots.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ndpool::source::{Faulty, Os};
use ndpool::timeline::{EventKind, Level, Recording, Timeline, TimelineError};
use ndpool::{Buffer, Checks, Pool, PoolBuilder, Stats, class};
use serde_json::{Value, json};

#[allow(dead_code)]
#[path = "../examples/replay/trace.rs"]
mod trace;
use trace::{Record, Trace};

mod field;
use field::Stop;

/// A pool whose every event is asked for, and that never ages by itself.
fn recorded(timeline: Timeline) -> PoolBuilder {
    Pool::builder()
        .checks(Checks::new())
        .interval(Duration::from_secs(3600))
        .timeline(timeline)
}

fn kinds(recording: &Recording) -> Vec<EventKind> {
    recording.events().iter().map(|event| event.kind).collect()
}

/// Replays a recorded program, each of its threads on one of ours; a free on another thread than
/// its allocation stays where it was allocated, which keeps the threads apart.
fn replay(pool: &Pool, name: &str) {
    let path = format!("benches/traces/{name}.csv.gz");
    let trace = Trace::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let mut owner = BTreeMap::new();
    let mut steps: Vec<Vec<Record>> = vec![Vec::new(); trace.threads];
    for record in &trace.records {
        let thread = match *record {
            Record::Allocate { thread, block, .. } => *owner.entry(block).or_insert(thread),
            Record::Free { block, .. } => owner[&block],
        };
        steps[usize::from(thread)].push(*record);
    }
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for (id, steps) in steps.iter().enumerate() {
            let worker = thread::Builder::new().name(format!("worker {id}"));
            let run = move || {
                let mut live = BTreeMap::new();
                for step in steps {
                    match *step {
                        Record::Allocate { block, layout, .. } => {
                            live.insert(block, pool.allocate::<u8>(layout.size()).unwrap());
                        }
                        Record::Free { block, .. } => drop(live.remove(&block)),
                    }
                }
            };
            workers.push(worker.spawn_scoped(scope, run).unwrap());
        }
        // A join waits for what a thread sends home at its exit, the end of a scope does not.
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

/// The levels of a quiet pool, as its statistics have them.
fn levels(stats: &Stats, operations: bool) -> BTreeMap<String, [u64; 3]> {
    let mut levels = BTreeMap::new();
    let mut classed = 0;
    for row in stats.classes.iter().filter(|row| row.capacity > 0) {
        let [live, cached, depot] =
            [row.live, row.cached, row.depot].map(|blocks| blocks * row.charge as u64);
        classed += live + cached + depot;
        let parts = if operations {
            [live, cached, depot]
        } else {
            [0, live + cached, depot]
        };
        levels.insert(row.capacity.to_string(), parts);
    }
    let other = stats.held_bytes as u64 - classed;
    let parts = if operations {
        [other, 0, 0]
    } else {
        [0, other, 0]
    };
    levels.insert("other".to_owned(), parts);
    levels.retain(|_, parts| *parts != [0; 3]);
    levels
}

fn closing(recording: &Recording) -> BTreeMap<String, [u64; 3]> {
    let name = |class: Option<u8>| match class {
        Some(class) => class::capacity(class.into()).to_string(),
        None => "other".to_owned(),
    };
    recording
        .closing()
        .map(|(class, level)| {
            let Level { live, depot, .. } = level;
            (name(class), [live, level.elsewhere(), depot])
        })
        .filter(|(_, parts)| *parts != [0; 3])
        .collect()
}

// --- what is recorded ---

#[test]
fn a_pool_without_a_timeline_has_none() {
    assert!(Pool::new().timeline().is_none());
}

#[test]
fn each_kind_of_event_is_recorded_in_its_order() {
    use EventKind::*;
    let limit = 8 << 20;
    // Without room in caches everything goes through the depot.
    let pool = recorded(Timeline::new(1000).operations(true))
        .limit(limit)
        .cache_budget(0)
        .source(Faulty::every(Os::new(), 3))
        .build();
    let large = 1 << 20;
    drop(pool.allocate::<u8>(large).unwrap());
    let again = pool.allocate::<u8>(large).unwrap();
    assert!(pool.allocate::<u8>(limit + 1).is_err());
    let small = pool.allocate::<u8>(100).unwrap();
    assert!(
        pool.allocate::<u8>(300).is_err(),
        "the third call of the source"
    );
    drop(small);
    drop(again);
    pool.trim();
    let recording = pool.timeline().unwrap();
    assert_eq!(
        kinds(&recording),
        [
            Birth,
            Allocate,
            Drop,
            Rest,
            Wake,
            Allocate,
            Refusal { limit },
            Birth,
            Allocate,
            Failure,
            Drop,
            Rest,
            Drop,
            Rest,
            Evict,
            Death,
            Evict,
            Death,
            Trim,
        ]
    );
    let stats = pool.stats();
    let charges: Vec<usize> = stats.classes.iter().map(|row| row.charge).collect();
    let events = recording.events();
    assert_eq!((events[0].bytes, events[0].blocks), (charges[1], 1));
    assert_eq!(events[0].class, Some(class::of(large) as u8));
    assert_eq!(
        (events[6].bytes, events[6].class),
        (class::capacity(class::of(limit + 1)), None)
    );
    assert_eq!(events[7].class, Some(class::of(100) as u8));
    assert_eq!(
        events[18].bytes,
        charges[0] + charges[1],
        "the trim tells what went"
    );
    assert!(events.is_sorted_by_key(|event| event.nanos));
    assert_eq!((recording.lost(), recording.opening().count()), (0, 0));
    assert!(pool.timeline().unwrap().events().is_empty(), "drained");
}

#[test]
fn without_operations_a_hit_records_nothing() {
    let pool = recorded(Timeline::new(100)).build();
    for _ in 0..50 {
        drop(pool.allocate::<u8>(1000).unwrap());
    }
    assert_eq!(kinds(&pool.timeline().unwrap()), [EventKind::Birth]);
}

#[test]
fn a_full_ring_loses_the_oldest_and_counts_them() {
    let pool = recorded(Timeline::new(4)).build();
    let kept: Vec<Buffer<_>> = (0..10)
        .map(|_| pool.allocate::<u8>(5000).unwrap())
        .collect();
    let recording = pool.timeline().unwrap();
    assert_eq!((recording.events().len(), recording.lost()), (4, 6));
    let charge = recording.events()[0].bytes as u64;
    let opening: Vec<u64> = recording.opening().map(|(_, level)| level.held).collect();
    assert_eq!(opening, [6 * charge], "what the lost events have left");
    assert_eq!(closing(&recording), levels(&pool.stats(), false));
    drop(kept);
    assert!(pool.timeline().unwrap().lost() <= 6, "counted once");
}

#[test]
fn oversized_and_empty_buffers_are_recorded_without_a_class() {
    let pool = recorded(Timeline::new(100).operations(true))
        .max_class(1 << 20)
        .build();
    let oversized = pool.allocate::<u8>(3 << 20).unwrap();
    let empty = pool.allocate::<u8>(0).unwrap();
    let recording = pool.timeline().unwrap();
    assert!(recording.events().iter().all(|event| event.class.is_none()));
    assert_eq!(closing(&recording), levels(&pool.stats(), true));
    assert_eq!(closing(&recording)["other"], [3 << 20, 0, 0]);
    drop((oversized, empty));
    let recording = pool.timeline().unwrap();
    assert_eq!(recording.opening().next().unwrap().1.live, 3 << 20);
    assert_eq!(closing(&recording), BTreeMap::new());
}

#[test]
fn replays_begin_with_nothing_and_end_with_what_the_statistics_say() {
    for operations in [true, false] {
        for name in ["digits", "pipeline"] {
            let pool = recorded(Timeline::new(1 << 19).operations(operations)).build();
            replay(&pool, name);
            let recording = pool.timeline().unwrap();
            assert_eq!(recording.lost(), 0);
            // The opening is what the statistics say less what the events did: all of it.
            assert_eq!(recording.opening().count(), 0, "{name}");
            assert_eq!(
                closing(&recording),
                levels(&pool.stats(), operations),
                "{name}"
            );
            let count = |kind| kinds(&recording).iter().filter(|it| **it == kind).count() as u64;
            let stats = pool.stats();
            assert_eq!(count(EventKind::Birth), stats.births);
            assert_eq!(count(EventKind::Death), stats.deaths);
            assert_eq!(
                count(EventKind::Rest) + count(EventKind::Wake),
                stats.exchanges
            );
            let takes = if operations {
                stats.hits + stats.misses
            } else {
                0
            };
            assert_eq!(count(EventKind::Allocate), takes);
            assert_eq!(count(EventKind::Drop), takes);
            let seen = validate(&written(&recording)).unwrap();
            assert_eq!(seen.closing, closing_counters(&recording), "{name}");
        }
    }
}

#[test]
fn what_scopes_give_back_is_recorded_too() {
    let pool = recorded(Timeline::new(1 << 16).operations(true)).build();
    let scope = pool.open();
    for n in 1..200 {
        let array = scope.zeros::<f64, _>(n * 10);
        assert_eq!(array.len(), n * 10);
    }
    drop(scope);
    let recording = pool.timeline().unwrap();
    assert_eq!((recording.lost(), recording.opening().count()), (0, 0));
    assert_eq!(closing(&recording), levels(&pool.stats(), true));
    assert_eq!(pool.stats().live_bytes, 0);
}

#[test]
fn recordings_made_while_threads_work_lose_and_repeat_nothing() {
    let pool = recorded(Timeline::new(1 << 18).operations(true)).build();
    let done = AtomicBool::new(false);
    let recordings = thread::scope(|scope| {
        let stop = Stop(&done);
        let workers: Vec<_> = (0..3)
            .map(|id| {
                let pool = &pool;
                scope.spawn(move || {
                    for n in 0..3_000usize {
                        drop(pool.allocate::<u8>(100 + 7_000 * ((n + id) % 9)).unwrap());
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut recordings = Vec::new();
            while !done.load(Ordering::Relaxed) {
                recordings.push(pool.timeline().unwrap());
                thread::sleep(Duration::from_millis(1));
            }
            recordings
        });
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
        drop(stop);
        reader.join().unwrap()
    });
    pool.audit().unwrap();
    let rest = pool.timeline().unwrap();
    let all = recordings.iter().chain([&rest]);
    let count = |kind| {
        let events = all.clone().flat_map(|recording| recording.events());
        let lost: u64 = all.clone().map(Recording::lost).sum();
        assert_eq!(lost, 0);
        events.filter(|event| event.kind == kind).count() as u64
    };
    let stats = pool.stats();
    assert_eq!(count(EventKind::Allocate), 9_000);
    assert_eq!(count(EventKind::Drop), 9_000);
    assert_eq!(count(EventKind::Birth), stats.births);
    assert_eq!(
        count(EventKind::Rest) + count(EventKind::Wake),
        stats.exchanges
    );
    for recording in all {
        validate(&written(recording)).unwrap();
    }
}

#[test]
fn threads_are_told_apart_and_named() {
    let pool = recorded(Timeline::new(100)).build();
    for name in ["first <script>", "second"] {
        let pool = pool.clone();
        let thread = thread::Builder::new().name(name.to_owned());
        let run = move || drop(pool.allocate::<u8>(100_000).unwrap());
        thread.spawn(run).unwrap().join().unwrap();
    }
    pool.audit().unwrap();
    let recording = pool.timeline().unwrap();
    let seen = validate(&written(&recording)).unwrap();
    let named = |name: &str| seen.threads.values().any(|it| it == name);
    assert!(
        named("first <script>") && named("second"),
        "{:?}",
        seen.threads
    );
    let mut page = Vec::new();
    recording.write_html(&mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(
        page.contains("first \\u003cscript>"),
        "no name ends the script"
    );
    assert_eq!(page.matches("<script").count(), 1);
}

// --- how it is asked for ---

#[test]
fn descriptions_are_read_word_by_word() {
    let default = Timeline::default();
    assert_eq!("events=65536".parse(), Ok(default.clone()));
    assert_eq!("ops".parse(), Ok(default.operations(true)));
    assert_eq!(
        "ops, events=7".parse(),
        Ok(Timeline::new(7).operations(true))
    );
    for bad in [
        "",
        "opps",
        "events",
        "events=",
        "events=0",
        "events=-1",
        "events=16777217",
        "events=1e3",
        "events=99999999999999999999999",
        "ops=1",
        "=",
    ] {
        let error = format!("ops,{bad}").parse::<Timeline>().unwrap_err();
        assert_eq!(error.word, bad);
        let TimelineError { word, .. } = &error;
        assert!(error.to_string().contains(&format!("`{word}`")), "{error}");
    }
    let clamped = recorded(Timeline::new(0)).build();
    drop(clamped.allocate::<u8>(1).unwrap());
    assert_eq!(clamped.timeline().unwrap().events().len(), 1);
}

/// Runs a test of this file, by its name, in a process with a variable set.
fn in_environment(test: &str, value: &str) -> (bool, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("NDPOOL_TIMELINE", value)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), text)
}

/// Does nothing but in a child of the tests below.
#[test]
fn child_of_an_environment() {
    let Some(value) = std::env::var_os("NDPOOL_TIMELINE") else {
        return;
    };
    let pools = [Pool::new(), Pool::new()];
    for pool in &pools {
        drop(pool.allocate::<u8>(1000).unwrap());
    }
    let told = recorded(Timeline::new(5)).build();
    assert!(
        !told.timeline().unwrap().has_operations(),
        "the builder goes before"
    );
    match value.to_str().unwrap() {
        "events=100,ops" => {
            let recording = pools[1].timeline().unwrap();
            assert_eq!(recording.events().len(), 3, "{:?}", recording.events());
        }
        _ => assert!(pools.iter().all(|pool| pool.timeline().is_none())),
    }
    assert_eq!(
        ndpool::report::emitted(),
        u64::from(value == "events=many"),
        "a malformed value is reported once a process"
    );
}

#[test]
fn the_environment_gives_a_timeline_to_pools_that_were_not_told() {
    let (passed, text) = in_environment("child_of_an_environment", "events=100,ops");
    assert!(passed, "{text}");
    let (passed, text) = in_environment("child_of_an_environment", "");
    assert!(passed, "{text}");
}

#[test]
fn a_malformed_environment_is_reported_with_the_word() {
    let (passed, text) = in_environment("child_of_an_environment", "events=many");
    assert!(passed, "{text}");
    assert!(
        text.contains("NDPOOL_TIMELINE: `events=many` is neither"),
        "{text}"
    );
}

/// A child of a fork does not touch a ring in which its parent's threads may have been at work.
#[cfg(unix)]
#[test]
fn a_forked_child_records_in_its_own_pools_only() {
    let pool = recorded(Timeline::new(100)).build();
    drop(pool.allocate::<u8>(1000).unwrap());
    // SAFETY: the child uses the pool, which promises to work there, and ends without unwinding.
    #[allow(unsafe_code)]
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let run = || {
            drop(pool.allocate::<u8>(5000).unwrap());
            let inherited = pool.timeline().unwrap().events().len();
            let own = recorded(Timeline::new(100)).build();
            drop(own.allocate::<u8>(5000).unwrap());
            (inherited, own.timeline().unwrap().events().len())
        };
        let code = match std::panic::catch_unwind(run) {
            Ok((0, 1)) => 0,
            Ok(_) => 1,
            Err(_) => 2,
        };
        // SAFETY: ends the child.
        #[allow(unsafe_code)]
        unsafe {
            libc::_exit(code)
        };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    #[allow(unsafe_code)]
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!((waited, status), (pid, 0));
    assert_eq!(pool.timeline().unwrap().events().len(), 1);
}

// --- the trace ---

fn written(recording: &Recording) -> Value {
    let mut bytes = Vec::new();
    recording.write_trace(&mut bytes).unwrap();
    serde_json::from_slice(&bytes).expect("the trace is JSON")
}

/// What a valid trace says.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    /// The last values of each counter.
    closing: BTreeMap<String, BTreeMap<String, u64>>,
    threads: BTreeMap<u64, String>,
    instants: usize,
}

/// Checks a trace by the rules of the trace-event format and of counters.
fn validate(trace: &Value) -> Result<Seen, String> {
    let mut seen = Seen::default();
    let mut last: BTreeMap<u64, f64> = BTreeMap::new();
    let entries = trace["traceEvents"].as_array().ok_or("no traceEvents")?;
    for entry in entries {
        let fault = |what: &str| format!("{what}: {entry}");
        let name = entry["name"].as_str().ok_or_else(|| fault("no name"))?;
        let ph = entry["ph"].as_str().ok_or_else(|| fault("no phase"))?;
        let ts = entry["ts"].as_f64().ok_or_else(|| fault("no time"))?;
        let pid = entry["pid"].as_u64().ok_or_else(|| fault("no process"))?;
        let tid = entry["tid"].as_u64().ok_or_else(|| fault("no thread"))?;
        let args = entry["args"]
            .as_object()
            .ok_or_else(|| fault("no arguments"))?;
        if pid != u64::from(std::process::id()) || ts < 0.0 {
            return Err(fault("another process, or before the beginning"));
        }
        if ph != "M" && last.insert(tid, ts).is_some_and(|before| before > ts) {
            return Err(fault("goes back in time"));
        }
        match ph {
            "M" if name == "thread_name" || name == "process_name" => {
                let what = args["name"]
                    .as_str()
                    .ok_or_else(|| fault("no name to give"))?;
                if name == "thread_name" {
                    seen.threads.insert(tid, what.to_owned());
                }
            }
            "C" => {
                let mut values = BTreeMap::new();
                for (key, value) in args {
                    let value = value.as_u64().ok_or_else(|| fault("a counter below 0"))?;
                    values.insert(key.clone(), value);
                }
                if values.is_empty() {
                    return Err(fault("a counter without a value"));
                }
                seen.closing.insert(name.to_owned(), values);
            }
            "i" if matches!(entry["s"].as_str(), Some("t" | "p" | "g")) => {
                if !seen.threads.contains_key(&tid) {
                    return Err(fault("on a thread without a name"));
                }
                seen.instants += 1;
            }
            _ => return Err(fault("unknown phase, name or scope")),
        }
    }
    Ok(seen)
}

/// The counters that a trace of a recording has to end with: those of the statistics.
fn closing_counters(recording: &Recording) -> BTreeMap<String, BTreeMap<String, u64>> {
    let operations = recording.has_operations();
    let counters = |[live, cached, depot]: [u64; 3]| {
        let values = if operations {
            vec![("live", live), ("cached", cached), ("depot", depot)]
        } else {
            vec![("used", cached), ("depot", depot)]
        };
        values
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    };
    let levels = levels(recording.stats(), operations);
    let mut total = [0; 3];
    let mut closing: BTreeMap<_, _> = recording
        .closing()
        .map(|(class, _)| {
            let bytes = class.map(|class| class::capacity(class.into()));
            let key = bytes.map_or("other".to_owned(), |bytes| bytes.to_string());
            let level = levels.get(&key).copied().unwrap_or_default();
            total = [0, 1, 2].map(|part| total[part] + level[part]);
            let name = bytes.map_or("no class".to_owned(), people);
            (format!("class {name}"), counters(level))
        })
        .collect();
    closing.insert("memory".to_owned(), counters(total));
    closing
}

/// The capacity of a class as people write it.
fn people(bytes: usize) -> String {
    let units = [
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
        (1, "B"),
    ];
    // A thousand of a unit is written in the next.
    let (unit, name) = units
        .into_iter()
        .find(|(unit, _)| bytes * 1024 / 1000 >= *unit && bytes >= 1000 * unit / 1024)
        .unwrap();
    let value = bytes as f64 / unit as f64;
    match value.fract() {
        0.0 => format!("{value:.0} {name}"),
        _ if value >= 100.0 => format!("{value:.0} {name}"),
        _ => format!("{value:.1} {name}"),
    }
}

#[test]
fn the_validator_refuses_planted_faults() {
    let pool = recorded(Timeline::new(100).operations(true)).build();
    drop(pool.allocate::<u8>(100_000).unwrap());
    drop(pool.allocate::<u8>(10_000_000).unwrap());
    pool.trim();
    let good = written(&pool.timeline().unwrap());
    let seen = validate(&good).unwrap();
    assert!(seen.instants >= 8 && seen.closing.len() == 3, "{seen:?}");
    let entries = good["traceEvents"].as_array().unwrap();
    let counter = entries.iter().position(|entry| entry["ph"] == "C").unwrap();
    let instant = entries
        .iter()
        .rposition(|entry| entry["ph"] == "i")
        .unwrap();
    for (at, key, value, fault) in [
        (instant, "name", Value::Null, "no name"),
        (instant, "ph", json!(7), "no phase"),
        (instant, "ph", json!("?"), "unknown phase"),
        (instant, "s", Value::Null, "unknown phase, name or scope"),
        (instant, "ts", json!("0"), "no time"),
        (instant, "ts", json!(0.0), "back in time"),
        (instant, "pid", json!(0), "another process"),
        (instant, "tid", json!(-1), "no thread"),
        (instant, "tid", json!(999_999), "without a name"),
        (counter, "args", json!({"live": -1}), "below 0"),
        (counter, "args", json!({}), "without a value"),
        (counter, "args", Value::Null, "no arguments"),
    ] {
        let mut bad = good.clone();
        bad["traceEvents"][at][key] = value;
        let found = validate(&bad).unwrap_err();
        assert!(found.contains(fault), "{fault} is expected: {found}");
    }
    assert!(validate(&json!({})).is_err());
}

#[test]
fn a_writer_that_fails_is_told_of() {
    let pool = recorded(Timeline::new(100)).build();
    drop(pool.allocate::<u8>(1000).unwrap());
    let recording = pool.timeline().unwrap();
    let mut short = [0u8; 100];
    assert!(recording.write_trace(&mut short[..]).is_err());
    assert!(recording.write_html(&mut short[..]).is_err());
}

// --- snapshots ---

#[test]
fn a_snapshot_is_the_statistics_by_class_with_the_settings() {
    let pool = Pool::builder().limit(1 << 30).build();
    let kept = pool.allocate::<u8>(100_000).unwrap();
    drop(pool.allocate::<u8>(1000).unwrap());
    let snapshot = pool.snapshot();
    assert_eq!(snapshot.stats, pool.stats());
    let json: Value = serde_json::from_str(&snapshot.to_json()).unwrap();
    assert_eq!(json["settings"]["limit"], 1 << 30);
    assert_eq!(json["settings"]["cap"], Value::Null);
    assert_eq!(json["settings"]["source"], "os");
    let stats = pool.stats();
    assert_eq!(json["stats"]["held_bytes"], stats.held_bytes);
    let classes = json["stats"]["classes"].as_array().unwrap();
    assert_eq!(classes.len(), 2);
    for (told, row) in classes.iter().zip(&stats.classes) {
        assert_eq!(told["capacity"], row.capacity);
        assert_eq!(told["charge"], row.charge);
        assert_eq!(
            (&told["live"], &told["cached"]),
            (&json!(row.live), &json!(row.cached))
        );
    }
    let unbounded: Value = serde_json::from_str(&Pool::new().snapshot().to_json()).unwrap();
    assert_eq!(unbounded["stats"]["headroom_bytes"], Value::Null);
    drop(kept);
}
