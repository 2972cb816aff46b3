//! Bytes choose operation programs over the kernel, or over one `RefCount`, and the interleaving.

use std::sync::Mutex;

use arbitrary::{Result, Unstructured};
use ndpool::shuttle_model::count::{self, Step};
use ndpool::shuttle_model::pool::Setup;
use ndpool::shuttle_model::program::{self, Op};
use ndpool::shuttle_model::schedule::{Job, Persistent};

/// One runner thread for all inputs.
static RUNNER: Mutex<Persistent> = Mutex::new(Persistent::new());

/// Runs one input.
pub fn run(input: &[u8]) {
    let Ok(job) = job(&mut Unstructured::new(input)) else {
        return;
    };
    let mut runner = RUNNER
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Err(fault) = runner.run(job) {
        drop(runner);
        panic!("{fault}");
    }
}

fn job(u: &mut Unstructured) -> Result<Job> {
    let shape = u.arbitrary::<u8>()?;
    let threads = 2 + usize::from(shape >> 1 & 1);
    let model: Box<dyn Fn() + Send + Sync> = if shape & 1 == 0 {
        let steps = lists(u, threads, 4, |u| u.arbitrary().map(Step::from_byte))?;
        Box::new(move || count::run(&steps))
    } else {
        let setup = setup(u.arbitrary()?);
        let ops = lists(u, threads, 12, |u| {
            Ok(Op::from_bytes(u.arbitrary()?, u.arbitrary()?))
        })?;
        Box::new(move || {
            program::run(setup, &ops);
        })
    };
    Ok(Job {
        model,
        schedule: u.bytes(u.len())?.to_vec(),
    })
}

fn setup(byte: u8) -> Setup {
    let choose = |at: u32, of: [usize; 4]| of[usize::from(byte >> at & 3)];
    Setup {
        rounds: choose(0, [2, 1, 0, 0]) as u32,
        // The last choice of the line above, in blocks that have no magazine.
        berths: choose(0, [0, 0, 0, 2]) as u32,
        cap: choose(2, [usize::MAX, 0, 1, 3]),
        limit: choose(4, [64, 2, 3, 5]),
        slack: choose(6, [1024, 0, 205, 1024]) as u64,
        floor: 0,
    }
}

/// One list a thread, each of up to `most` items.
fn lists<'a, T>(
    u: &mut Unstructured<'a>,
    threads: usize,
    most: usize,
    mut item: impl FnMut(&mut Unstructured<'a>) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    (0..threads)
        .map(|_| {
            let len = usize::from(u.arbitrary::<u8>()?) % (most + 1);
            (0..len).map(|_| item(u)).collect()
        })
        .collect()
}
