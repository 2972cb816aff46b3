//! Replays a recorded allocation trace of a real program through a pool that keeps its timeline, and
//! writes what the pool did as a page to look at and as a trace for Perfetto.
//!
//! `cargo run --release --features timeline --example timeline -- [TRACE] [FOLDER]`: `image` and
//! `target` unless told.

use std::error::Error;
use std::fs::{self, File};
use std::io::BufWriter;
use std::mem::MaybeUninit;
use std::path::PathBuf;

use ndpool::timeline::{Recording, Timeline};
use ndpool::{Buffer, Pool};

#[allow(dead_code)]
#[path = "replay/trace.rs"]
mod trace;
use trace::{Record, Trace};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "image".to_owned());
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| "target".to_owned()));
    let trace = Trace::read(&trace::locate(&name))?;

    fs::create_dir_all(&folder)?;
    let page = folder.join("timeline.html");
    let recording = record(&trace, Timeline::new(1 << 20).operations(true))?;
    recording.write_html(BufWriter::new(File::create(&page)?))?;
    // Without operations: half a million of them make a trace of 150 MB.
    let file = folder.join("trace.json");
    let slow_paths = record(&trace, Timeline::new(1 << 16))?;
    slow_paths.write_trace(BufWriter::new(File::create(&file)?))?;
    for (recording, path) in [(recording, page), (slow_paths, file)] {
        let (events, lost) = (recording.events().len(), recording.lost());
        println!("{}: {events} events, {lost} lost", path.display());
    }
    Ok(())
}

/// Runs the program twice through a pool that keeps a timeline, with a trim after each run.
fn record(trace: &Trace, timeline: Timeline) -> Result<Recording, Box<dyn Error>> {
    let pool = Pool::builder().limit(160 << 20).timeline(timeline).build();
    replay(&pool, trace)?;
    pool.trim();
    replay(&pool, trace)?;
    // A request too many: the limit refuses it, and the page says so.
    if pool.allocate::<u8>(192 << 20).is_ok() {
        return Err("192 MiB were not refused".into());
    }
    pool.trim();
    println!("{}", pool.stats());
    pool.timeline()
        .ok_or_else(|| "the pool keeps no timeline".into())
}

/// Does what the program did, on one thread, and drops what it held at its end.
fn replay(pool: &Pool, trace: &Trace) -> Result<(), Box<dyn Error>> {
    let mut live: Vec<Option<Buffer<MaybeUninit<u8>>>> = Vec::new();
    for record in &trace.records {
        match *record {
            Record::Allocate { block, layout, .. } => {
                let mut buffer = pool.allocate::<u8>(layout.size())?;
                // A byte a page, as a program that uses its memory.
                for page in buffer.chunks_mut(4096) {
                    page[0].write(1);
                }
                let block = block as usize;
                live.resize_with(live.len().max(block + 1), || None);
                live[block] = Some(buffer);
            }
            Record::Free { block, .. } => live[block as usize] = None,
        }
    }
    Ok(())
}
