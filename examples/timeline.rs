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

use ndpool::timeline::Timeline;
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

    let pool = Pool::builder()
        .limit(160 << 20)
        .timeline(Timeline::new(1 << 20).operations(true))
        .build();
    replay(&pool, &trace)?;
    pool.trim();
    replay(&pool, &trace)?;
    // A request too many: the limit refuses it, and the page says so.
    let refused = pool.allocate::<u8>(192 << 20).is_err();
    pool.trim();

    let recording = pool.timeline().ok_or("the pool keeps a timeline")?;
    fs::create_dir_all(&folder)?;
    let page = folder.join("timeline.html");
    let trace = folder.join("trace.json");
    recording.write_html(BufWriter::new(File::create(&page)?))?;
    recording.write_trace(BufWriter::new(File::create(&trace)?))?;
    println!("{}", pool.stats());
    println!(
        "{} events, {} lost, refused: {refused}\n{}\n{}",
        recording.events().len(),
        recording.lost(),
        page.display(),
        trace.display()
    );
    Ok(())
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
