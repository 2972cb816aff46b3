//! The kernel under shuttle: every interleaving of small models, random and probabilistic
//! concurrency testing (PCT) of operation programs over the whole pool.
//!
//! `NDPOOL_SHUTTLE_RUNS` sets how many schedules each of the latter gets.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ndpool::shuttle_model::count::{self, Step};
use ndpool::shuttle_model::kernel::arena::Arena;
use ndpool::shuttle_model::kernel::lease::{self, Content, Lease};
use ndpool::shuttle_model::kernel::reach::{Bias, Steal};
use ndpool::shuttle_model::kernel::reserve::Reserve;
use ndpool::shuttle_model::kernel::stack::{IndexStack, Links};
use ndpool::shuttle_model::kernel::state::{Released, State};
use ndpool::shuttle_model::pool::Setup;
use ndpool::shuttle_model::program::{self, Counts, Op};
use ndpool::shuttle_model::sync::{AtomicU32, CheckedCell};
use shuttle::scheduler::{
    DfsScheduler, PctScheduler, RandomScheduler, Schedule, Scheduler, Task, TaskId,
};
use shuttle::{Config, MaxSteps, Runner, thread};

fn config() -> Config {
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(200_000);
    config.silence_warnings = true;
    config
}

/// Explores every interleaving of `model`, which must be more than one and end before `most`.
fn every(most: usize, model: impl Fn() + Send + Sync + 'static) {
    let runs = Runner::new(DfsScheduler::new(Some(most), false), config()).run(model);
    assert!(runs > 1, "a single interleaving proves nothing");
    assert!(runs < most, "the search did not end within {most}");
    println!("{runs} interleavings");
}

fn runs() -> usize {
    std::env::var("NDPOOL_SHUTTLE_RUNS").map_or(1_000, |runs| runs.parse().expect("a number"))
}

/// Runs `model` under random schedules, and under PCT of depths 3 and 5.
fn sampled(model: impl Fn() + Send + Sync + 'static) {
    let model = Arc::new(model);
    let schedulers: [Box<dyn Scheduler + Send>; 3] = [
        Box::new(RandomScheduler::new_from_seed(1, runs())),
        Box::new(PctScheduler::new_from_seed(2, 3, runs())),
        Box::new(PctScheduler::new_from_seed(3, 5, runs())),
    ];
    for scheduler in schedulers {
        let model = Arc::clone(&model);
        let done = Runner::new(scheduler, config()).run(move || model());
        assert_eq!(done, runs());
    }
}

/// As [`sampled`]; what happened in all runs together.
fn sampled_and_counted(model: impl Fn() -> Counts + Send + Sync + 'static) -> Counts {
    let sums = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let totals = Arc::clone(&sums);
    sampled(move || {
        let Counts { retired, evicted } = model();
        // Ordering: Relaxed - one thread counts.
        totals[0].fetch_add(retired, Ordering::Relaxed);
        // Ordering: Relaxed - as above.
        totals[1].fetch_add(evicted, Ordering::Relaxed);
    });
    // Ordering: Relaxed - as above.
    let [retired, evicted] = [0, 1].map(|sum| sums[sum].load(Ordering::Relaxed));
    println!("{retired} blocks retired, {evicted} were evicted");
    Counts { retired, evicted }
}

/// Freezes one thread at one of its steps until nobody else can run, then lets it go on. The next
/// execution freezes it one step later.
struct Freezer {
    victim: usize,
    at: usize,
    most: usize,
    /// Steps of the victim in this execution.
    taken: usize,
}

impl Scheduler for Freezer {
    fn new_execution(&mut self) -> Option<Schedule> {
        // Past the victim's last step there is nothing to freeze any more.
        let passed = self.at > 0 && self.taken < self.at;
        if passed || self.at == self.most {
            assert!(passed, "the victim takes more than {} steps", self.most);
            return None;
        }
        self.at += 1;
        self.taken = 0;
        Some(Schedule::new(0))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        _is_yielding: bool,
    ) -> Option<TaskId> {
        let victim = runnable
            .iter()
            .find(|task| usize::from(task.id()) == self.victim);
        if let Some(victim) = victim
            && (self.taken < self.at || runnable.len() == 1)
        {
            self.taken += 1;
            return Some(victim.id());
        }
        // The others in turn, so that one that waits for another one gets nowhere only if it
        // waits for the victim.
        let others = || runnable.iter().map(|task| task.id());
        let others = || others().filter(|&id| usize::from(id) != self.victim);
        let after = current.and_then(|current| others().find(|&id| id > current));
        after.or_else(|| others().next())
    }

    fn next_u64(&mut self) -> u64 {
        0
    }
}

/// Freezes the first of `threads` at each of its steps in turn; the others must end meanwhile.
fn nobody_waits_for_the_first(setup: Setup, threads: Vec<Vec<Op>>) {
    // No birth is over the promise: that one may wait.
    let setup = Setup { floor: 64, ..setup };
    let scheduler = Freezer {
        victim: 1,
        at: 0,
        most: 20_000,
        taken: 0,
    };
    let mut config = config();
    config.max_steps = MaxSteps::FailAfter(100_000);
    let runs = Runner::new(scheduler, config).run(move || {
        program::run(setup, &threads);
    });
    println!("frozen at {runs} steps");
    assert!(runs > 20, "the victim does nothing");
}

/// A payload that its owners read, and that the last one takes.
#[derive(Default)]
struct Payload(CheckedCell<bool>);
#[allow(unsafe_code)]
// SAFETY: the checked cell panics where two accesses could race.
unsafe impl Sync for Payload {}

#[allow(unsafe_code)]
impl Payload {
    fn read(&self) {
        // SAFETY: the cell has found no writer inside.
        assert!(!self.0.with(|gone| unsafe { *gone }), "use after free");
    }

    fn free(&self) {
        // SAFETY: the cell has found nobody else inside.
        let gone = self.0.with_mut(|gone| unsafe { gone.replace(true) });
        assert!(!gone, "double free");
    }

    fn is_gone(&self) -> bool {
        // SAFETY: as in `read`.
        self.0.with(|gone| unsafe { *gone })
    }
}

#[test]
fn every_release_of_a_block_meets_every_upgrade() {
    every(200_000, || {
        let block = Arc::new((State::new(), Payload::default()));
        let generation = block.0.share().unwrap();
        let release = |block: &(State, Payload)| {
            block.1.read();
            if let Released::Last { .. } = block.0.release() {
                block.1.free();
            }
        };
        let handle = {
            let block = Arc::clone(&block);
            thread::spawn(move || {
                if block.0.upgrade(generation).is_ok() {
                    release(&block);
                }
            })
        };
        release(&block);
        handle.join().unwrap();
        assert!(block.1.is_gone() && block.0.load().is_released());
    });
}

/// Two owners release a block, while a third thread upgrades a handle of it: of this life, or of the
/// one before. Who was last is told by whether the upgrade succeeded.
fn two_releases_meet_an_upgrade(of_this_life: bool, expected: &[&str]) {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let outcomes = Arc::clone(&seen);
    every(1_000_000, move || {
        let block = Arc::new((State::new(), Payload::default()));
        let before = block.0.share().unwrap();
        assert_eq!(block.0.release(), Released::Last { retire: false });
        let now = block.0.share().unwrap();
        block.0.add();
        let release = |block: &(State, Payload)| {
            let last = block.0.release() != Released::Shared;
            if last {
                block.1.free();
            }
            last
        };
        let owner = {
            let block = Arc::clone(&block);
            thread::spawn(move || release(&block))
        };
        let handle = {
            let block = Arc::clone(&block);
            let generation = if of_this_life { now } else { before };
            thread::spawn(move || {
                let upgraded = block.0.upgrade(generation).is_ok();
                upgraded.then(|| {
                    block.1.read();
                    release(&block)
                })
            })
        };
        let main = release(&block);
        let last = [
            Some(main),
            Some(owner.join().unwrap()),
            handle.join().unwrap(),
        ];
        assert!(block.1.is_gone() && block.0.load().is_released());
        let name = match last {
            [Some(true), Some(false), None] => "stale, last: main",
            [Some(false), Some(true), None] => "stale, last: owner",
            [Some(true), Some(false), Some(false)] => "upgraded, last: main",
            [Some(false), Some(true), Some(false)] => "upgraded, last: owner",
            [Some(false), Some(false), Some(true)] => "upgraded, last: handle",
            _ => panic!("one thread is the last: {last:?}"),
        };
        outcomes.lock().unwrap().insert(name);
    });
    let seen = seen.lock().unwrap();
    assert!(seen.iter().eq(expected), "{seen:?}");
}

#[test]
fn every_two_releases_meet_every_upgrade() {
    let expected = [
        "stale, last: main",
        "stale, last: owner",
        "upgraded, last: handle",
        "upgraded, last: main",
        "upgraded, last: owner",
    ];
    two_releases_meet_an_upgrade(true, &expected);
}

#[test]
fn every_two_releases_meet_every_upgrade_of_an_earlier_life() {
    let expected = ["stale, last: main", "stale, last: owner"];
    two_releases_meet_an_upgrade(false, &expected);
}

#[test]
fn every_unique_take_back_meets_every_upgrade() {
    every(200_000, || {
        let block = Arc::new((State::new(), Payload::default()));
        let generation = block.0.share().unwrap();
        let other = Arc::clone(&block);
        let handle = thread::spawn(move || {
            let upgraded = other.0.upgrade(generation).is_ok();
            if upgraded {
                other.1.read();
            }
            upgraded
        });
        let unique = block.0.try_unique();
        if unique {
            block.1.free();
        }
        assert_ne!(unique, handle.join().unwrap());
    });
}

#[test]
fn every_last_release_of_a_count_meets_every_stray() {
    use Step::{Add, Release, Stray};
    every(1_000_000, || count::run(&[vec![Release], vec![Stray]]));
    every(1_000_000, || count::run(&[vec![Release], vec![Add]]));
}

#[test]
fn sampled_counts_with_strays() {
    use Step::{Add, Look, Release, Stray};
    sampled(|| {
        count::run(&[
            vec![Release, Look],
            vec![Stray, Release],
            vec![Add, Release, Stray],
        ]);
    });
}

struct Cells(Vec<AtomicU32>);

impl Links for Cells {
    fn link(&self, index: u32) -> &AtomicU32 {
        &self.0[index as usize]
    }
}

#[test]
fn every_pop_of_a_stack_yields_another_cell() {
    every(500_000, || {
        let cells = Cells((0..2).map(|_| AtomicU32::new(0)).collect());
        let stack = Arc::new((IndexStack::new(), cells));
        stack.0.push(&stack.1, 0);
        stack.0.push(&stack.1, 1);
        // A pop that is overtaken by pop, pop and push of the same cell: the case of the tag.
        let other = Arc::clone(&stack);
        let churn = thread::spawn(move || {
            let first = other.0.pop(&other.1);
            let second = other.0.pop(&other.1);
            if let Some(first) = first {
                other.0.push(&other.1, first);
            }
            second
        });
        let mine = stack.0.pop(&stack.1);
        let theirs = churn.join().unwrap();
        let left: Vec<u32> = std::iter::from_fn(|| stack.0.pop(&stack.1)).collect();
        let mut all: Vec<u32> = mine.into_iter().chain(theirs).chain(left).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1], "a cell was lost, or popped twice");
    });
}

#[test]
fn every_theft_of_a_cache_excludes_its_owner() {
    every(500_000, || {
        let shelf = Arc::new((Bias::vacant(), Payload::default()));
        assert!(shelf.0.adopt(|| ()));
        let owner = {
            let shelf = Arc::clone(&shelf);
            thread::spawn(move || {
                if shelf.0.enter() {
                    // Panics if the trimmer is inside as well.
                    touch(&shelf.1);
                    shelf.0.leave();
                }
                shelf.0.exit()
            })
        };
        let mut retires = false;
        if shelf.0.steal(true) == Steal::Taken {
            touch(&shelf.1);
            retires = !shelf.0.restore();
        }
        assert_ne!(
            retires,
            owner.join().unwrap(),
            "one of the two retires the cache"
        );
    });
}

/// Writes without freeing.
#[allow(unsafe_code)]
fn touch(payload: &Payload) {
    // SAFETY: the cell has found nobody else inside.
    payload.0.with_mut(|gone| unsafe { gone.write(false) });
}

#[test]
fn sampled_leases_end_once() {
    sampled(|| {
        let arena = Arc::new(Arena::<Lease>::new());
        let content = Content {
            target: 1,
            start: 2,
            len: 3,
            element: 4,
        };
        let name = lease::lease(&arena, content).unwrap();
        let other = {
            let arena = Arc::clone(&arena);
            thread::spawn(move || lease::end(&arena, name).is_ok())
        };
        let mine = lease::end(&arena, name).is_ok();
        assert_ne!(mine, other.join().unwrap());
    });
}

#[test]
fn every_reservation_stays_within_the_limit() {
    every(500_000, || {
        let reserve = Arc::new(Reserve::new());
        let held = Arc::new(AtomicUsize::new(0));
        let charge = |reserve: &Reserve, held: &AtomicUsize| {
            if reserve.try_reserve(2, 3).is_err() {
                return false;
            }
            // Ordering: Relaxed - the test's own; shuttle runs one thread at a time.
            assert!(held.fetch_add(2, Ordering::Relaxed) + 2 <= 3);
            held.fetch_sub(2, Ordering::Relaxed);
            reserve.release(2);
            true
        };
        let other = {
            let (reserve, held) = (Arc::clone(&reserve), Arc::clone(&held));
            thread::spawn(move || charge(&reserve, &held))
        };
        let mine = charge(&reserve, &held);
        assert!(mine | other.join().unwrap(), "both were refused");
        assert_eq!(reserve.used(), 0);
    });
}

/// A small generator, so that every run is the same.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

fn drawn_program(seed: u64) -> (Setup, Vec<Vec<Op>>) {
    let mut state = seed;
    let mut draw = |below: u64| next(&mut state) % below;
    let setup = Setup {
        rounds: draw(3) as u32,
        berths: 2 * draw(2) as u32,
        cap: [0, 1, 3, usize::MAX][draw(4) as usize],
        limit: [2, 4, 64][draw(3) as usize],
        slack: [0, 205, 1024][draw(3) as usize],
        floor: 0,
    };
    let threads = 2 + draw(2);
    let programs = (0..threads)
        .map(|_| {
            // Two lives of a block, so that the next one is its last: what is drawn is too short for
            // three of them.
            let lived = 2 * draw(2) as usize;
            let mut ops = [Op::Take, Op::Share(0), Op::Release(0)].repeat(lived);
            let len = 1 + draw(10);
            ops.extend((0..len).map(|_| Op::from_bytes(draw(256) as u8, draw(256) as u8)));
            ops
        })
        .collect();
    (setup, programs)
}

#[test]
fn sampled_programs_over_the_whole_pool() {
    let seeds = AtomicU64::new(0);
    let Counts { retired, evicted } = sampled_and_counted(move || {
        // Ordering: Relaxed - one thread counts.
        let (setup, threads) = drawn_program(seeds.fetch_add(1, Ordering::Relaxed));
        program::run(setup, &threads)
    });
    assert!(retired > 0, "no generation was the last one");
    assert!(evicted > 0, "nothing was evicted");
}

#[test]
fn sampled_takes_gives_and_trims() {
    let counts = sampled_and_counted(|| {
        let worker = vec![Op::Take, Op::Take, Op::Take, Op::Give(0), Op::Give(0)];
        let trimmer = vec![Op::Take, Op::Give(0), Op::Trim, Op::Leave, Op::Age];
        program::run(Setup::default(), &[worker.clone(), worker, trimmer])
    });
    assert!(counts.evicted > 0, "nothing was evicted");
}

#[test]
fn sampled_closes_under_gives_and_exits() {
    sampled(|| {
        let worker = vec![Op::Take, Op::Take, Op::Give(0), Op::Leave, Op::Take];
        let closer = vec![Op::Take, Op::Close, Op::Reopen, Op::Take];
        program::run(Setup::default(), &[worker.clone(), worker, closer]);
    });
}

#[test]
fn sampled_shares_handles_and_leases() {
    sampled(|| {
        let owner = vec![
            Op::Take,
            Op::Share(0),
            Op::Offer(0),
            Op::Lease(0),
            Op::End(0),
            Op::Release(0),
        ];
        let guest = vec![
            Op::Upgrade(0),
            Op::Unique(0),
            Op::Pick(0),
            Op::Renew(0),
            Op::End(0),
            Op::Share(0),
        ];
        program::run(Setup::default(), &[owner, guest.clone(), guest]);
    });
}

/// What never waits for anybody: takes, gives, shares, handles, leases, a forced release, and a
/// thread's exit.
fn free_of_waiting() -> Vec<Op> {
    vec![
        Op::Take,
        Op::Take,
        Op::Take,
        Op::Give(0),
        Op::Share(0),
        Op::Upgrade(0),
        Op::Offer(0),
        Op::Lease(0),
        Op::Renew(0),
        Op::End(0),
        Op::Release(0),
        Op::Unique(0),
        Op::Take,
        Op::Force(0),
        Op::Age,
        Op::Leave,
        Op::Take,
        Op::Give(0),
    ]
}

/// Blocks without magazines, for which a cache has berths.
fn berthed() -> Setup {
    Setup {
        rounds: 0,
        berths: 2,
        ..Setup::default()
    }
}

#[test]
fn nobody_waits_for_a_taker() {
    let sizes = (0..=2).map(|rounds| Setup {
        rounds,
        ..Setup::default()
    });
    for setup in sizes.chain([berthed()]) {
        let others = free_of_waiting();
        nobody_waits_for_the_first(setup, vec![free_of_waiting(), others.clone(), others]);
    }
}

/// The same with `op` amid it, and at its end.
fn free_but_for(op: Op) -> Vec<Op> {
    let mut ops = free_of_waiting();
    ops.insert(3, op);
    ops.push(op);
    ops
}

/// What is free of waiting does not wait for who does `op` amid the same.
fn takers_do_not_wait_for(op: Op) {
    let first = free_but_for(op);
    for setup in [Setup::default(), berthed()] {
        let others = free_of_waiting();
        nobody_waits_for_the_first(setup, vec![first.clone(), others.clone(), others]);
    }
}

#[test]
fn takers_do_not_wait_for_a_trimmer() {
    takers_do_not_wait_for(Op::Trim);
}

#[test]
fn takers_do_not_wait_for_an_auditor() {
    takers_do_not_wait_for(Op::Audit);
}

#[test]
fn takers_do_not_wait_for_a_closer() {
    takers_do_not_wait_for(Op::Close);
}

/// Who does `op` amid takes and gives does not wait for who takes and gives.
fn does_not_wait_for_takers(op: Op) {
    let second = free_but_for(op);
    // Who ages the pool has the trimmers' turn.
    let mut taker = free_of_waiting();
    taker.retain(|&op| op != Op::Age);
    for setup in [Setup::default(), berthed()] {
        nobody_waits_for_the_first(setup, vec![taker.clone(), second.clone()]);
    }
}

#[test]
fn a_trimmer_does_not_wait_for_takers() {
    does_not_wait_for_takers(Op::Trim);
}

#[test]
fn an_auditor_does_not_wait_for_takers() {
    does_not_wait_for_takers(Op::Audit);
}

#[test]
fn a_closer_does_not_wait_for_takers() {
    does_not_wait_for_takers(Op::Close);
}

/// The table of progress says that trimmers take turns: the test that finds waiting finds this.
#[test]
#[should_panic(expected = "max_steps")]
fn a_trimmer_waits_for_another() {
    let trimmer = vec![Op::Take, Op::Give(0), Op::Trim];
    nobody_waits_for_the_first(Setup::default(), vec![trimmer.clone(), trimmer]);
}
