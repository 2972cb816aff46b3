//! A recording as a trace in the trace-event format of Chrome and Perfetto: each event as an
//! instant on its thread, and what each class holds as counters.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

use super::event::{Event, EventKind, class_name};
use super::levels::{Level, Levels};
use super::recording::Recording;

/// One entry of `traceEvents`.
#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    /// The phase: `M` metadata, `C` counter, `i` instant.
    ph: &'static str,
    /// Microseconds since the pool was opened.
    ts: f64,
    pid: u32,
    tid: u32,
    /// The scope of an instant: `t` thread, `p` process.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    args: Value,
}

impl Recording {
    /// Writes the recording as a trace: JSON that `chrome://tracing` and
    /// [ui.perfetto.dev](https://ui.perfetto.dev) open.
    ///
    /// Each event is an instant on its thread, with its class, blocks and bytes; `memory`, and
    /// `class N` for each class, are counters in bytes: `live` (with operations; else `used`, which
    /// is live and in thread caches), `cached` (with operations) and `depot`. Times are
    /// microseconds since the pool was opened.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write_trace(&self, to: impl Write) -> io::Result<()> {
        Writer {
            to,
            recording: self,
            pid: std::process::id(),
            is_first: true,
        }
        .write()
    }

    /// The counters of a level.
    fn counters(&self, level: Level) -> Value {
        if self.operations {
            json!({"live": level.live, "cached": level.elsewhere(), "depot": level.depot})
        } else {
            json!({"used": level.elsewhere(), "depot": level.depot})
        }
    }
}

struct Writer<'a, W> {
    to: W,
    recording: &'a Recording,
    pid: u32,
    is_first: bool,
}

impl<W: Write> Writer<'_, W> {
    fn write(mut self) -> io::Result<()> {
        self.to.write_all(b"{\"traceEvents\":[\n")?;
        self.names()?;
        let mut levels = self.recording.opening.clone();
        self.opening(&levels)?;
        for event in &self.recording.events {
            self.instant(event)?;
            if let Some(level) = levels.step(event) {
                self.counter(event, event.class, level)?;
                self.total(event.nanos, event.thread, &levels)?;
            }
        }
        for (class, level) in &levels.0 {
            self.level(self.recording.nanos, 0, &counter_name(*class), *level)?;
        }
        self.total(self.recording.nanos, 0, &levels)?;
        self.to
            .write_all(b"\n],\"displayTimeUnit\":\"ns\",\"otherData\":")?;
        let recording = self.recording;
        let other = json!({
            "writer": concat!("ndpool ", env!("CARGO_PKG_VERSION")),
            "pool": recording.pool,
            "events": recording.events.len(),
            "lost": recording.lost,
            "operations": recording.operations,
        });
        serde_json::to_writer(&mut self.to, &other)?;
        self.to.write_all(b"}\n")?;
        self.to.flush()
    }

    fn entry(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        if !self.is_first {
            self.to.write_all(b",\n")?;
        }
        self.is_first = false;
        serde_json::to_writer(&mut self.to, entry)?;
        Ok(())
    }

    /// Names of the process and of each thread that has one.
    fn names(&mut self) -> io::Result<()> {
        let recording = self.recording;
        let name = format!("ndpool, pool {}", recording.pool);
        self.metadata("process_name", 0, &name)?;
        let threads: BTreeSet<u32> = recording.events.iter().map(|event| event.thread).collect();
        for thread in threads {
            let name = recording.name_of(thread);
            self.metadata("thread_name", thread, &name)?;
        }
        Ok(())
    }

    fn metadata(&mut self, what: &str, tid: u32, name: &str) -> io::Result<()> {
        let pid = self.pid;
        self.entry(&Entry {
            name: what,
            ph: "M",
            ts: 0.0,
            pid,
            tid,
            s: None,
            cat: None,
            args: json!({ "name": name }),
        })
    }

    fn opening(&mut self, levels: &Levels) -> io::Result<()> {
        let start = self.recording.events.first().map_or(0, |event| event.nanos);
        for (class, level) in &levels.0 {
            self.level(start, 0, &counter_name(*class), *level)?;
        }
        self.total(start, 0, levels)
    }

    fn counter(&mut self, event: &Event, class: Option<u8>, level: Level) -> io::Result<()> {
        self.level(event.nanos, event.thread, &counter_name(class), level)
    }

    fn total(&mut self, nanos: u64, thread: u32, levels: &Levels) -> io::Result<()> {
        self.level(nanos, thread, "memory", levels.total())
    }

    fn level(&mut self, nanos: u64, tid: u32, name: &str, level: Level) -> io::Result<()> {
        let pid = self.pid;
        self.entry(&Entry {
            name,
            ph: "C",
            ts: micros(nanos),
            pid,
            tid,
            s: None,
            cat: None,
            args: self.recording.counters(level),
        })
    }

    fn instant(&mut self, event: &Event) -> io::Result<()> {
        let (scope, args) = match event.kind {
            EventKind::Refusal { limit } => {
                ("p", json!({"requested": event.bytes, "limit": limit}))
            }
            EventKind::Failure => ("p", json!({ "requested": event.bytes })),
            EventKind::Trim => ("p", json!({ "bytes": event.bytes })),
            _ => (
                "t",
                json!({
                    "class": class_name(event.class),
                    "blocks": event.blocks,
                    "bytes": event.bytes,
                }),
            ),
        };
        let pid = self.pid;
        self.entry(&Entry {
            name: event.kind.name(),
            ph: "i",
            ts: micros(event.nanos),
            pid,
            tid: event.thread,
            s: Some(scope),
            cat: Some("pool"),
            args,
        })
    }
}

fn counter_name(class: Option<u8>) -> String {
    format!("class {}", class_name(class))
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}
