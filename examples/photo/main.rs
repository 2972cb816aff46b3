//! One picture through one pipeline (Gaussian blur, total-variation denoising, Sobel, local
//! contrast; `f32`), written three times: with fresh heap arrays, with pooled owned arrays, and in
//! scopes. Checks that all three agree bit for bit, writes the pictures, and prints what each cost.
//!
//! ```sh
//! cargo run --release --features ndarray --example photo -- [picture.png] [output folder]
//! ```

mod counting;
mod heap;
mod owned;
mod picture;
mod scoped;

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use ndarray::Array2;
use ndpool::Pool;

use counting::Counting;
use picture::Picture;

#[global_allocator]
static HEAP: Counting = Counting::new();

/// Timed runs of each way, after one to warm up.
const RUNS: u32 = 5;

/// What the pipeline makes of one channel.
pub struct Stages {
    /// After the Gaussian.
    pub blurred: Array2<f32>,
    /// After the denoising.
    pub denoised: Array2<f32>,
    /// The Sobel magnitude.
    pub edges: Array2<f32>,
    /// After the local contrast.
    pub contrast: Array2<f32>,
}

impl Stages {
    fn named(&self) -> [(&'static str, &Array2<f32>); 4] {
        [
            ("blurred", &self.blurred),
            ("denoised", &self.denoised),
            ("edges", &self.edges),
            ("contrast", &self.contrast),
        ]
    }
}

/// Cost of one way.
struct Cost {
    time: Duration,
    faults: u64,
    taken: u64,
    given: u64,
    peak: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let input = arguments.next().map_or_else(
        || {
            PathBuf::from(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/examples/data/chelsea.png"
            ))
        },
        PathBuf::from,
    );
    let output = arguments.next().map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target/photo")),
        PathBuf::from,
    );
    let picture = Picture::read(&input)?;
    let channels = &picture.channels;
    let (height, width) = channels[0].dim();
    println!(
        "{}: {width} x {height}, {} channels",
        input.display(),
        channels.len()
    );

    let steps = 3 * u64::from(RUNS + 1) * channels.len() as u64;
    let style = ProgressStyle::with_template("{msg:>14} [{bar:40}] {pos}/{len} channels")?;
    let bar = ProgressBar::new(steps).with_style(style);

    let (heap, heap_cost) = measure(&bar, "heap arrays", channels, None, &|x| Ok(heap::run(x)))?;
    let pool = Pool::new();
    let entered = pool.enter();
    let (owned, owned_cost) = measure(&bar, "owned arrays", channels, Some(&pool), &owned::run)?;
    drop(entered);
    let pool = Pool::new();
    let run = |x: &Array2<f32>| scoped::run(&pool, x);
    let (scoped, scoped_cost) = measure(&bar, "scopes", channels, Some(&pool), &run)?;
    bar.finish_and_clear();

    agree("owned arrays", &heap, &owned)?;
    agree("scopes", &heap, &scoped)?;
    println!("all three agree bit for bit");
    std::fs::create_dir_all(&output)?;
    for stage in 0..4 {
        let name = heap[0].named()[stage].0;
        let path = output.join(format!("{name}.png"));
        let planes: Vec<_> = heap
            .iter()
            .map(|channel| channel.named()[stage].1)
            .collect();
        picture.write(&path, &planes)?;
        println!("wrote {}", path.display());
    }
    print_costs(&[
        ("heap arrays", heap_cost),
        ("owned arrays", owned_cost),
        ("scopes", scoped_cost),
    ]);
    Ok(())
}

type Run<'a> = &'a dyn Fn(&Array2<f32>) -> Result<Stages, ndpool::ArrayError>;

/// Runs one way over all channels: once to warm up, then timed. Costs are of one run.
fn measure(
    bar: &ProgressBar,
    name: &'static str,
    channels: &[Array2<f32>],
    pool: Option<&Pool>,
    run: Run<'_>,
) -> Result<(Vec<Stages>, Cost), Box<dyn Error>> {
    bar.set_message(name);
    let all = || -> Result<Vec<Stages>, ndpool::ArrayError> {
        let stages = channels.iter().map(|channel| {
            let stages = run(channel);
            bar.inc(1);
            stages
        });
        stages.collect()
    };
    let mut result = all()?;
    let traffic = || pool.map_or_else(|| HEAP.traffic(), traffic_of);
    HEAP.forget_peak();
    let ((taken, given), faults, start) = (traffic(), minor_faults(), Instant::now());
    for _ in 0..RUNS {
        result = all()?;
    }
    let time = start.elapsed() / RUNS;
    let (all_taken, all_given) = traffic();
    let peak = pool.map_or_else(|| HEAP.peak(), |pool| pool.stats().peak_used_bytes as u64);
    let cost = Cost {
        time,
        faults: (minor_faults() - faults) / u64::from(RUNS),
        taken: (all_taken - taken) / u64::from(RUNS),
        given: (all_given - given) / u64::from(RUNS),
        peak,
    };
    Ok((result, cost))
}

/// Buffers that a pool's users took, and that they gave back.
fn traffic_of(pool: &Pool) -> (u64, u64) {
    let classes = pool.stats().classes;
    let taken: u64 = classes.iter().map(|class| class.takes).sum();
    let live: u64 = classes.iter().map(|class| class.live).sum();
    (taken, taken - live)
}

/// Page faults of this process without a disk access so far; 0 where the system does not say.
fn minor_faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields);
    let faults = fields.and_then(|fields| fields.split(' ').nth(7));
    faults.and_then(|faults| faults.parse().ok()).unwrap_or(0)
}

fn agree(name: &str, left: &[Stages], right: &[Stages]) -> Result<(), Box<dyn Error>> {
    for (left, right) in left.iter().zip(right) {
        for ((stage, left), (_, right)) in left.named().into_iter().zip(right.named()) {
            let same = left.dim() == right.dim()
                && left
                    .iter()
                    .zip(right)
                    .all(|(x, y)| x.to_bits() == y.to_bits());
            if !same {
                return Err(format!("{name}: stage `{stage}` differs from the heap's").into());
            }
        }
    }
    Ok(())
}

fn print_costs(costs: &[(&str, Cost)]) {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "per picture",
        "time, ms",
        "page faults",
        "buffers taken",
        "given back",
        "peak, MiB",
    ]);
    for (name, cost) in costs {
        table.add_row([
            (*name).to_owned(),
            format!("{:.1}", cost.time.as_secs_f64() * 1e3),
            cost.faults.to_string(),
            cost.taken.to_string(),
            cost.given.to_string(),
            format!("{:.1}", cost.peak as f64 / f64::from(1 << 20)),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
}
