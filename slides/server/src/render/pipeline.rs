//! A filter of `seekwire-flow` with copies here and at workers, which process jobs.
//!
//! ```text
//! jobs (source) ──> filter, copy 0..n here, copy n.. at workers ──> ends (sink)
//! ```
//!
//! Only the numbers of jobs pass through the first stream: their bytes and clients are in a table of
//! this process. Nothing passes through the second one: its sink learns when a unit of work ends. A
//! copy at a worker sends it the bytes and waits for the answer; if none comes, it does the work
//! itself.
//!
//! Without a guarantee, the pipeline runs one unit of work for its whole life. With one, each
//! update is a unit of its own, and flow chooses how many jobs form a block, as V. Melnyk et al.
//! (2024) choose the size of their blocks: with small blocks, a partial update does not wait for
//! long; with large ones, more complete updates are done per second.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use anyhow::{Context, Result as Anyhow};
use bytes::Bytes;
use seekwire_flow::{
    Block, Cut, DealingPolicy, Filter, FilterError, Graph, Guarantee, GuaranteeReport, Outputs,
    Ports, Running, SizeBounds, SizeReason, Step, StreamOptions, Unit,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::failure;
use crate::render::executor::Here;
use crate::render::memory::MemoryPermit;
use crate::render::work::{self, Input};
use crate::workers::protocol::Task;
use crate::workers::remote::{Remote, WorkerThreads};

/// Maps a block to its result or an error, the same in every copy.
pub(crate) type WorkFn = Arc<dyn Fn(Task, Input) -> Result<Vec<u8>, String> + Send + Sync>;

/// The result of work.
pub(crate) type Outcome = Result<Bytes, String>;

/// The result of a job; `None` if nobody wanted it when its turn came.
pub(crate) type Answer = failure::Result<Option<Outcome>>;

/// How jobs are done.
pub(crate) struct PipelineOptions {
    /// Name of the threads, also for reports.
    pub(crate) name: &'static str,
    /// Number of copies in this process.
    pub(crate) copies: usize,
    pub(crate) work: WorkFn,
    /// How jobs are distributed among the copies.
    pub(crate) policy: DealingPolicy,
    pub(crate) guarantee: Option<Guarantee>,
}

/// Jobs in the pipeline for each copy: the current one, and the next. It is also the number of
/// copies for each thread of a worker, so that a job is always on the way to it.
pub(crate) const WINDOW: usize = 2;

/// Bytes of a job's number.
const NUMBER: usize = 8;

/// Maximum jobs in a block, if flow chooses.
pub(crate) const TOGETHER: usize = 8;

/// Pause before the unit of work is restarted after a failure.
const PAUSE: Duration = Duration::from_millis(100);

/// A piece of work, and its client.
pub(crate) struct Job {
    pub(crate) task: Task,
    pub(crate) block: Bytes,
    pub(crate) answer: oneshot::Sender<Answer>,
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// The block's share of a resource, held until the job is done.
    pub(crate) memory: Option<MemoryPermit>,
}

/// The unfinished jobs.
#[derive(Default)]
struct Waiting {
    state: Mutex<State>,
    is_empty: Condvar,
    next: AtomicU64,
}

#[derive(Default)]
struct State {
    jobs: HashMap<u64, Job>,
    /// The jobs of each update.
    updates: HashMap<u64, Arc<Vec<u64>>>,
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, job: Job) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.state().jobs.insert(number, job);
        number
    }

    /// `None` if the job's unit has failed.
    fn job(&self, number: u64) -> Option<(Task, Bytes)> {
        let state = self.state();
        state.jobs.get(&number).map(|job| (job.task, job.block.clone()))
    }

    /// Answers a job, unless its unit has failed meanwhile.
    fn answer(&self, number: u64, outcome: Outcome) {
        if let Some(Job { answer, permit, block, memory, .. }) = self.take(number) {
            drop((permit, block, memory));
            // The client may have disconnected.
            let _ = answer.send(Ok(Some(outcome)));
        }
    }

    /// Removes a job. Its client gets no answer if the job is dropped.
    fn take(&self, number: u64) -> Option<Job> {
        let mut state = self.state();
        let job = state.jobs.remove(&number);
        if state.jobs.is_empty() {
            self.is_empty.notify_all();
        }
        job
    }

    fn clear(&self) {
        let jobs = std::mem::take(&mut self.state().jobs);
        self.is_empty.notify_all();
        drop(jobs);
    }

    fn until_empty(&self) {
        let mut state = self.state();
        while !state.jobs.is_empty() {
            state = self.is_empty.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The pipeline. Dropping it waits for its jobs.
pub(crate) struct Pipeline {
    /// `None` during shutdown, or if each update is a unit.
    jobs: Option<mpsc::UnboundedSender<u64>>,
    permits: Arc<Semaphore>,
    waiting: Arc<Waiting>,
    running: Arc<Running>,
    keeper: Option<JoinHandle<()>>,
    copies: usize,
}

/// How jobs are currently distributed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DealingStats {
    /// False if an executor does them all.
    pub(crate) is_dealt: bool,
    /// Copies of the filter, here and at workers, or threads of the executor.
    pub(crate) copies: usize,
    /// Jobs in a block, and the reason.
    pub(crate) together: usize,
    pub(crate) reason: Option<SizeReason>,
    /// Flow's report on its part of the guarantee.
    pub(crate) guarantee: Option<GuaranteeReport>,
}

impl Pipeline {
    /// Starts a thread for each copy here, and two for each thread of a worker.
    pub(crate) fn start(
        options: &PipelineOptions,
        workers: &[WorkerThreads],
        here: &Arc<Here>,
    ) -> Anyhow<Self> {
        let name = options.name;
        let mut copy_workers: Vec<Option<Arc<Remote>>> = vec![None; options.copies];
        for WorkerThreads { remote, threads } in workers {
            copy_workers.extend((0..threads * WINDOW).map(|_| Some(Arc::clone(remote))));
        }
        let copies = copy_workers.len();
        let copy_workers =
            Arc::new(CopyWorkers { workers: copy_workers, numbers: Mutex::default() });
        let (sender, receiver) = mpsc::unbounded_channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let waiting = Arc::new(Waiting::default());
        let mut graph = Graph::new();
        let of = Arc::clone(&waiting);
        let jobs =
            move || Jobs { jobs: Arc::clone(&receiver), waiting: Arc::clone(&of), update: None };
        graph.filter("jobs", 1, Ports::source(), jobs)?;
        let (of, work, here) = (Arc::clone(&waiting), Arc::clone(&options.work), Arc::clone(here));
        let copy = move || JobFilter {
            waiting: Arc::clone(&of),
            work: Arc::clone(&work),
            here: Arc::clone(&here),
            remote: copy_workers.of_this_thread(),
        };
        graph.filter(name, copies, Ports::step(), copy)?;
        let of = Arc::clone(&waiting);
        let ends = move || UnitSink { waiting: Arc::clone(&of), update: None };
        graph.filter("ends", 1, Ports::sink(), ends)?;
        let cut = match options.guarantee {
            None => Cut::Whole,
            Some(_) => {
                Cut::Auto(SizeBounds { least: NUMBER, most: TOGETHER * NUMBER, record: NUMBER })
            }
        };
        let policy = options.policy;
        graph.connect("jobs", name, StreamOptions { policy, cut, ..StreamOptions::default() })?;
        graph.connect(name, "ends", StreamOptions::default())?;
        if let Some(guarantee) = options.guarantee {
            graph.guarantee(within(guarantee))?;
        }
        let running = Arc::new(graph.start()?);
        let permits = Arc::new(Semaphore::new(copies * WINDOW));
        let mut pipeline = Self { jobs: None, permits, waiting, running, keeper: None, copies };
        if options.guarantee.is_none() {
            let (running, waiting) = (Arc::clone(&pipeline.running), Arc::clone(&pipeline.waiting));
            let keep = move || keep(&running, &waiting);
            let keeper = thread::Builder::new().name(format!("{name}.keeper")).spawn(keep);
            pipeline.keeper = Some(keeper.context("no thread for a pipeline")?);
            pipeline.jobs = Some(sender);
        }
        Ok(pipeline)
    }

    /// One permit for each job that the pipeline accepts at once.
    pub(crate) fn permits(&self) -> &Arc<Semaphore> {
        &self.permits
    }

    /// Copies of the filter, here and at workers.
    pub(crate) fn copies(&self) -> usize {
        self.copies
    }

    /// Does a job. With a guarantee, it is an update of its own.
    pub(crate) fn begin(&self, job: Job) {
        let Some(jobs) = &self.jobs else { return self.update(vec![job], None) };
        let number = self.waiting.add(job);
        if jobs.send(number).is_err() {
            self.waiting.take(number);
        }
    }

    /// Does the jobs of an update, if there is a guarantee.
    pub(crate) fn update(&self, jobs: Vec<Job>, deadline: Option<Instant>) {
        let numbers: Vec<u64> = jobs.into_iter().map(|job| self.waiting.add(job)).collect();
        let Some(number) = numbers.first().copied() else { return };
        self.waiting.state().updates.insert(number, Arc::new(numbers));
        let unit = Unit::new(number.to_string());
        let unit = match deadline {
            Some(deadline) => unit.deadline(deadline),
            None => unit,
        };
        // The sink notifies the clients.
        drop(self.running.submit(unit));
    }

    pub(crate) fn dealt(&self) -> DealingStats {
        let streams = self.running.streams();
        let stream = streams.first();
        let block = stream.and_then(|stream| stream.block.as_ref());
        DealingStats {
            is_dealt: true,
            copies: self.copies,
            together: block.map_or(1, |block| (block.size / NUMBER).max(1)),
            reason: block.and_then(|block| block.decisions.last()).map(|last| last.reason),
            guarantee: self.running.guarantee(),
        }
    }
}

/// Half of a latency is left for the other steps: reading, scaling, encoding.
fn within(guarantee: Guarantee) -> Guarantee {
    match guarantee {
        Guarantee::Latency(time) => Guarantee::Latency(time / 2),
        rate => rate,
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        // The source ends when its channel closes, and the unit ends with the source.
        self.jobs = None;
        match self.keeper.take() {
            Some(keeper) => drop(keeper.join()),
            None => self.waiting.until_empty(),
        }
    }
}

/// Runs units of work until the source ends.
fn keep(running: &Running, waiting: &Waiting) {
    loop {
        let outcome = running.submit(Unit::new("")).wait();
        // The remaining jobs get no answer.
        waiting.clear();
        match outcome {
            Ok(_) | Err(seekwire_flow::Failure::Stopped) => return,
            Err(failure) => tracing::error!("the pipeline begins again: {failure}"),
        }
        thread::sleep(PAUSE);
    }
}

/// Assigns workers to copies in the order in which their threads start.
struct CopyWorkers {
    workers: Vec<Option<Arc<Remote>>>,
    numbers: Mutex<HashMap<ThreadId, usize>>,
}

impl CopyWorkers {
    fn of_this_thread(&self) -> Option<Arc<Remote>> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = numbers.len();
        let number = *numbers.entry(thread::current().id()).or_insert(next);
        self.workers.get(number).cloned().flatten()
    }
}

struct Jobs {
    jobs: Arc<Mutex<mpsc::UnboundedReceiver<u64>>>,
    waiting: Arc<Waiting>,
    /// The jobs of one update, if this unit is one.
    update: Option<Arc<Vec<u64>>>,
}

impl Filter for Jobs {
    fn init(&mut self, argument: &str, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        if !argument.is_empty() {
            let update = self.waiting.state().updates.get(&argument.parse()?).cloned();
            self.update = Some(update.unwrap_or_default());
        }
        Ok(())
    }

    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        if let Some(update) = &self.update {
            let numbers: Vec<u8> = update.iter().flat_map(|number| number.to_le_bytes()).collect();
            if !numbers.is_empty() {
                out.send(0, numbers)?;
            }
            return Ok(Step::Done);
        }
        // There is only one copy, so this lock is never contended.
        let job = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        let Some(number) = job else { return Ok(Step::Done) };
        let sent = out.send(0, number.to_le_bytes().to_vec());
        if sent.is_err() {
            self.waiting.take(number);
        }
        sent.map(|()| Step::More)
    }
}

/// A copy, here or at a worker.
struct JobFilter {
    waiting: Arc<Waiting>,
    work: WorkFn,
    here: Arc<Here>,
    remote: Option<Arc<Remote>>,
}

impl JobFilter {
    fn outcome(&self, task: Task, block: &Bytes) -> Outcome {
        if let Some(remote) = self.remote.as_ref().filter(|_| work::travels(task, block)) {
            let fits = |answer: &Bytes| work::fits(task, block, answer);
            if let Some(answer) = remote.call(task, block, fits) {
                return Ok(answer);
            }
        }
        self.here.work(|| (self.work)(task, block.clone().into())).map(Bytes::from)
    }
}

impl Filter for JobFilter {
    fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        for number in block.chunks(NUMBER) {
            let number = u64::from_le_bytes(number.try_into()?);
            // Its unit may have failed.
            if let Some((task, block)) = self.waiting.job(number) {
                // Otherwise its client would wait for the end of a unit that goes on.
                let outcome = catch_unwind(AssertUnwindSafe(|| self.outcome(task, &block)));
                let outcome = outcome.unwrap_or_else(|_| Err("the work panicked".into()));
                self.waiting.answer(number, outcome);
            }
        }
        Ok(())
    }
}

/// Observes the end of each unit.
struct UnitSink {
    waiting: Arc<Waiting>,
    update: Option<u64>,
}

impl Filter for UnitSink {
    fn init(&mut self, argument: &str, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.update = (!argument.is_empty()).then(|| argument.parse()).transpose()?;
        Ok(())
    }

    fn process(&mut self, _: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        Ok(())
    }
}

impl Drop for UnitSink {
    fn drop(&mut self) {
        let Some(update) = self.update else { return };
        let numbers = self.waiting.state().updates.remove(&update);
        // Jobs unfinished by now will never be done.
        for number in numbers.iter().flat_map(|numbers| numbers.iter()) {
            self.waiting.take(*number);
        }
    }
}
