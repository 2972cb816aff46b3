//! Schedules from bytes: the fuzzer's input chooses the thread that runs next at every operation
//! of an atomic or a cell.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use super::pool::lock;

/// A model to run, and the bytes that schedule it.
pub struct Job {
    /// Runs on shuttle's threads.
    pub model: Model,
    /// Each byte is one decision: the low three bits choose the thread, the others how many
    /// operations it runs at least.
    pub schedule: Vec<u8>,
}

/// Steps of one execution.
const MAX_STEPS: usize = 200_000;

/// A thread of its own that runs one job after another; starting shuttle anew for each input would
/// cost more than the input.
pub struct Persistent {
    worker: Option<Worker>,
}

struct Worker {
    jobs: Sender<Job>,
    verdicts: Receiver<Result<(), String>>,
}

impl Default for Persistent {
    fn default() -> Self {
        Self::new()
    }
}

impl Persistent {
    pub const fn new() -> Self {
        Self { worker: None }
    }

    /// Runs a job.
    ///
    /// # Errors
    /// What the model's panic said.
    pub fn run(&mut self, job: Job) -> Result<(), String> {
        let worker = self.worker.get_or_insert_with(Worker::start);
        worker.jobs.send(job).expect("the worker waits for jobs");
        let verdict = worker
            .verdicts
            .recv()
            .unwrap_or_else(|_| Err("the worker is gone".into()));
        if verdict.is_err() {
            self.worker = None;
        }
        verdict
    }
}

impl Worker {
    fn start() -> Self {
        let (jobs, waiting) = channel();
        let (tell, verdicts) = channel();
        thread::spawn(move || serve(waiting, tell));
        Self { jobs, verdicts }
    }
}

/// Runs jobs until one fails or the sender is gone.
fn serve(jobs: Receiver<Job>, verdicts: Sender<Result<(), String>>) {
    let model = Arc::new(Mutex::new(None));
    let scheduler = Bytes {
        jobs,
        verdicts: verdicts.clone(),
        model: Arc::clone(&model),
        schedule: Vec::new().into_iter(),
        stay: 0,
        running: false,
    };
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(MAX_STEPS);
    config.silence_warnings = true;
    let run = move || {
        let model: Option<Model> = lock(&model).take();
        model.expect("each execution has its model")();
    };
    let runner = Runner::new(scheduler, config);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| runner.run(run))) {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
            .unwrap_or_else(|| "a panic without a text".into());
        // The one who waits may have given up.
        let _ = verdicts.send(Err(text));
    }
}

/// What is run under the schedules.
type Model = Box<dyn Fn() + Send + Sync>;

/// The scheduler.
struct Bytes {
    jobs: Receiver<Job>,
    verdicts: Sender<Result<(), String>>,
    model: Arc<Mutex<Option<Model>>>,
    schedule: std::vec::IntoIter<u8>,
    stay: u32,
    running: bool,
}

impl Bytes {
    /// The next byte's thread; without bytes the present one stays, or the one after it is next.
    fn decide(&mut self, choices: &[TaskId], current: Option<TaskId>) -> Option<TaskId> {
        if let Some(byte) = self.schedule.next() {
            self.stay = u32::from(byte >> 3);
            return choices.get(usize::from(byte & 7) % choices.len()).copied();
        }
        let current = current?;
        if choices.contains(&current) {
            return Some(current);
        }
        let next = choices.iter().find(|&&choice| choice > current);
        next.or(choices.first()).copied()
    }
}

impl Scheduler for Bytes {
    fn new_execution(&mut self) -> Option<Schedule> {
        if core::mem::replace(&mut self.running, true) && self.verdicts.send(Ok(())).is_err() {
            return None;
        }
        let job = self.jobs.recv().ok()?;
        self.schedule = job.schedule.into_iter();
        self.stay = 0;
        *lock(&self.model) = Some(job.model);
        Some(Schedule::new(0))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        if let [only] = runnable {
            return Some(only.id());
        }
        let mut choices: Vec<TaskId> = runnable.iter().map(|task| task.id()).collect();
        if let Some(current) = current {
            if is_yielding {
                choices.retain(|&choice| choice != current);
            } else if self.stay > 0 && choices.contains(&current) {
                self.stay -= 1;
                return Some(current);
            }
        }
        self.decide(&choices, current).or(choices.first().copied())
    }

    fn next_u64(&mut self) -> u64 {
        0
    }
}
