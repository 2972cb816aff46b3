//! Generated programs of takes and drops on one or several threads, each the shape of a report of
//! memory that stayed. Sizes and order depend on the seed only.

pub mod random;

use random::Random;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// One step of a program.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Take { block: usize, bytes: usize },
    Drop { block: usize },
}

/// Steps that one thread takes in a row.
#[derive(Clone, Debug)]
pub enum Batch {
    Run { thread: usize, steps: Vec<Step> },
    Exit { thread: usize },
}

/// A program.
#[derive(Clone, Debug)]
pub struct Program {
    pub name: &'static str,
    pub batches: Vec<Batch>,
    /// Threads of the program that live at once, at most.
    pub threads: usize,
}

/// Builds a program: knows what is live.
struct Builder {
    batches: Vec<Batch>,
    live: Vec<usize>,
    next: usize,
    random: Random,
}

impl Builder {
    fn new(seed: u64) -> Self {
        Self {
            batches: Vec::new(),
            live: Vec::new(),
            next: 0,
            random: Random::new(seed),
        }
    }

    fn steps(&mut self, on: usize) -> &mut Vec<Step> {
        let same = matches!(self.batches.last(), Some(Batch::Run { thread, .. }) if *thread == on);
        if !same {
            self.batches.push(Batch::Run {
                thread: on,
                steps: Vec::new(),
            });
        }
        match self.batches.last_mut() {
            Some(Batch::Run { steps, .. }) => steps,
            _ => unreachable!("just pushed"),
        }
    }

    fn take(&mut self, thread: usize, bytes: usize) {
        let block = self.next;
        self.next += 1;
        self.live.push(block);
        self.steps(thread).push(Step::Take { block, bytes });
    }

    /// Drops the `n`-th of what is live.
    fn drop_nth(&mut self, thread: usize, n: usize) {
        let block = self.live.remove(n);
        self.steps(thread).push(Step::Drop { block });
    }

    fn drop_oldest(&mut self, thread: usize, keep: usize) {
        while self.live.len() > keep {
            self.drop_nth(thread, 0);
        }
    }

    fn drop_any(&mut self, thread: usize, keep: usize) {
        while self.live.len() > keep {
            let n = self.random.below(self.live.len());
            self.drop_nth(thread, n);
        }
    }

    fn exit(&mut self, thread: usize) {
        self.batches.push(Batch::Exit { thread });
    }

    fn finish(mut self, name: &'static str, threads: usize, last: usize) -> Program {
        self.drop_oldest(last, 0);
        Program {
            name,
            batches: self.batches,
            threads,
        }
    }
}

/// Two thousand buffers at once, then one in a hundred of that.
pub fn burst_then_idle(seed: u64) -> Program {
    let mut it = Builder::new(seed);
    for _ in 0..2_000 {
        let bytes = it.random.size(KIB, 256 * KIB);
        it.take(0, bytes);
    }
    it.drop_any(0, 0);
    for _ in 0..2_000 {
        it.take(0, 3_000);
        it.drop_oldest(0, 20);
    }
    it.finish("burst then idle", 1, 0)
}

/// Every size once, from small to huge and back down.
pub fn size_walk(seed: u64) -> Program {
    let mut it = Builder::new(seed);
    let up: Vec<usize> = (6..27)
        .flat_map(|k| [4, 5, 6, 7].map(|q| q << (k - 2)))
        .collect();
    for &bytes in up.iter().chain(up.iter().rev()) {
        for _ in 0..4 {
            it.take(0, bytes);
        }
        it.drop_any(0, 0);
    }
    it.finish("size walk", 1, 0)
}

/// One request in a hundred is a thousand times the others.
pub fn outliers(seed: u64) -> Program {
    let mut it = Builder::new(seed);
    for _ in 0..8_000 {
        let bytes = if it.random.below(100) == 0 {
            it.random.size(2 * MIB, 16 * MIB)
        } else {
            it.random.size(2 * KIB, 8 * KIB)
        };
        it.take(0, bytes);
        it.drop_any(0, 16);
    }
    it.finish("1 % outliers", 1, 0)
}

/// Sizes that grow by a thousandth a request, from 8 KiB to 16 MiB.
pub fn slow_drift(seed: u64) -> Program {
    let mut it = Builder::new(seed);
    let mut bytes = 8.0 * KIB as f64;
    while bytes < 16.0 * MIB as f64 {
        bytes *= 1.001;
        it.take(0, bytes as usize);
        it.drop_any(0, 8);
    }
    it.finish("slow drift", 1, 0)
}

/// Four threads take, one drops.
pub fn four_to_one(seed: u64) -> Program {
    let mut it = Builder::new(seed);
    for round in 0..240 {
        for _ in 0..16 {
            let bytes = it.random.size(KIB, MIB);
            it.take(round % 4, bytes);
        }
        it.drop_oldest(4, 32);
    }
    it.finish("producers to consumer 4:1", 5, 4)
}

/// One thread takes, four drop.
pub fn one_to_four(seed: u64) -> Program {
    let mut it = Builder::new(seed);
    for round in 0..240 {
        for _ in 0..16 {
            let bytes = it.random.size(KIB, MIB);
            it.take(0, bytes);
        }
        it.drop_oldest(1 + round % 4, 32);
    }
    it.finish("producer to consumers 1:4", 5, 4)
}

/// One thread only ever drops, in bursts.
pub fn free_only(seed: u64) -> Program {
    let mut it = Builder::new(seed);
    for _ in 0..20 {
        for _ in 0..300 {
            let bytes = it.random.size(64, 64 * KIB);
            it.take(0, bytes);
        }
        it.drop_any(1, 0);
    }
    it.finish("free-only thread", 2, 1)
}

/// Forty threads in turn: each takes, drops half, and exits; the next one drops the rest.
pub fn thread_churn(seed: u64) -> Program {
    const LAST: usize = 40;
    let mut it = Builder::new(seed);
    for thread in 0..LAST {
        it.drop_oldest(thread, 0);
        for _ in 0..100 {
            let bytes = it.random.size(64, 512 * KIB);
            it.take(thread, bytes);
        }
        it.drop_any(thread, 50);
        it.exit(thread);
    }
    it.finish("thread churn", 1, LAST)
}

/// Any size from one byte to 64 MiB.
pub fn random_sizes(seed: u64) -> Program {
    let mut it = Builder::new(seed);
    for _ in 0..6_000 {
        let bytes = it.random.size(1, 64 * MIB);
        it.take(0, bytes);
        let keep = it.random.below(12);
        it.drop_any(0, keep);
    }
    it.finish("random sizes", 1, 0)
}

/// All of them.
pub const ALL: [fn(u64) -> Program; 9] = [
    burst_then_idle,
    size_walk,
    outliers,
    slow_drift,
    four_to_one,
    one_to_four,
    free_only,
    thread_churn,
    random_sizes,
];
