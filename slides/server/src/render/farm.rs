//! Shared work: done by an [executor](super::executor) of this process, or, with workers or a
//! guarantee, dealt to the copies of a [pipeline](super::pipeline) here and at workers.
//!
//! ```text
//! Farm::run ──> executor: a thread, or the queue ──> Farm::run
//! Farm::run ──> permit ──> pipeline: one copy ──> Farm::run
//! ```
//!
//! At most two jobs for each copy are in the pipeline; further callers wait outside, where they
//! cost nothing yet. When workers come or go, a new pipeline replaces the current one, or the
//! executor takes over if none are left. The old one completes its jobs; no third one should be
//! started before that. Jobs that wait for the executor when the first worker comes stay there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result as Anyhow;
use bytes::Bytes;
use seekwire_flow::{DealingPolicy, Guarantee};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::spawn_blocking;

use crate::failure::{Failure, Result};
use crate::render::executor::{Executor, Here, LocalJob};
use crate::render::memory::MemoryPermit;
use crate::render::pipeline::{
    Answer, DealingStats, Job, Pipeline, PipelineOptions, WINDOW, WorkFn,
};
use crate::render::work::Input;
use crate::workers::protocol::Task;
use crate::workers::remote::WorkerThreads;

/// If a latency is guaranteed, complete updates may take so many times as long as partial ones.
const COMPLETE: u32 = 10;

/// Does one kind of work, here and at workers. Dropping it waits for the work in a pipeline.
pub(crate) struct Farm {
    options: PipelineOptions,
    /// `None` while the executor does all work.
    pipeline: Mutex<Option<Pipeline>>,
    executor: Arc<Executor>,
    /// Number of old pipelines with unfinished jobs.
    old: Arc<AtomicUsize>,
    here: Arc<Here>,
}

/// One old pipeline.
struct Old(Arc<AtomicUsize>);

impl Old {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Old {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The pipeline for these workers; `None` without workers and without a guarantee.
fn start(
    options: &PipelineOptions,
    workers: &[WorkerThreads],
    here: &Arc<Here>,
) -> Anyhow<Option<Pipeline>> {
    let is_dealt = !workers.is_empty() || options.guarantee.is_some();
    is_dealt.then(|| Pipeline::start(options, workers, here)).transpose()
}

impl Farm {
    /// Does `work` in as many as `copies` threads. `name` is for reports.
    pub(crate) fn start(name: &'static str, copies: usize, work: WorkFn) -> Anyhow<Self> {
        Self::with(PipelineOptions {
            name,
            copies,
            work,
            policy: DealingPolicy::default(),
            guarantee: None,
        })
    }

    /// The same, with the policy and guarantee in the options.
    pub(crate) fn with(options: PipelineOptions) -> Anyhow<Self> {
        let here = Arc::new(Here::new(options.copies));
        let executor = Arc::new(Executor::new(options.copies));
        let pipeline = Mutex::new(start(&options, &[], &here)?);
        Ok(Self { options, pipeline, executor, old: Arc::default(), here })
    }

    fn pipeline(&self) -> MutexGuard<'_, Option<Pipeline>> {
        self.pipeline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the work of these farms to this process and these workers. If there are not enough
    /// threads for that, nothing changes.
    pub(crate) fn all_work_with(farms: &[&Self], workers: &[WorkerThreads]) -> Anyhow<()> {
        let start = |farm: &&Self| start(&farm.options, workers, &farm.here);
        let next: Anyhow<Vec<Option<Pipeline>>> = farms.iter().map(start).collect();
        farms.iter().zip(next?).for_each(|(farm, next)| farm.goes_on_by(next));
        Ok(())
    }

    fn goes_on_by(&self, next: Option<Pipeline>) {
        let Some(old) = std::mem::replace(&mut *self.pipeline(), next) else { return };
        let count = Old::new(&self.old);
        // Callers that wait for their turn go elsewhere.
        old.permits().close();
        let name = format!("{}.old", self.options.name);
        // The counter is dropped last.
        let old = (old, count);
        // Without a thread for this, it blocks here.
        let _ = thread::Builder::new().name(name).spawn(move || drop(old));
    }

    /// True while an old pipeline is still working.
    pub(crate) fn is_changing(&self) -> bool {
        self.old.load(Ordering::SeqCst) > 0
    }

    /// Does a task when its turn comes. Then `make` returns its input, in a thread that can block,
    /// or none if nobody wants the task any more. Keeps the task's share of a resource until it is
    /// done, even if nobody waits for it.
    pub(crate) async fn run<I: Into<Input> + 'static>(
        self: &Arc<Self>,
        task: Task,
        update: Option<Arc<Update>>,
        memory: Option<MemoryPermit>,
        make: impl FnOnce() -> Option<I> + Send + 'static,
    ) -> Answer {
        let (answer, answered) = oneshot::channel();
        match self.turn(update).await {
            None => self.executor.spawn(self.local(task, memory, make, answer)),
            Some(turn) => {
                let make = move || make().map(|input| input.into().into_block());
                let made = spawn_blocking(move || (make(), memory)).await;
                let (block, memory) = made.map_err(interrupted)?;
                let Some(block) = block else { return Ok(None) };
                self.deal(turn, Job { task, block, answer, permit: None, memory });
            }
        }
        answered.await.map_err(interrupted)?
    }

    /// The same for an input that is read before the turn comes. A thread of the executor that has
    /// read one does the task as well, if it is its turn.
    pub(crate) async fn read_and_run<I: Into<Input> + Send + 'static>(
        self: &Arc<Self>,
        task: Task,
        update: Option<Arc<Update>>,
        read: impl FnOnce() -> Result<I> + Send + 'static,
        is_wanted: impl FnOnce() -> bool + Send + 'static,
    ) -> Answer {
        let read = move || {
            let read = catch_unwind(AssertUnwindSafe(read));
            read.unwrap_or_else(|_| Err(Failure::internal("reading the tile panicked")))
        };
        let (answer, answered) = oneshot::channel();
        if self.pipeline().is_none() {
            let farm = Arc::clone(self);
            let work = move || match read() {
                Ok(input) => {
                    let make = move || is_wanted().then_some(input);
                    farm.executor.run(farm.local(task, None, make, answer));
                }
                Err(failure) => drop(answer.send(Err(failure))),
            };
            drop(spawn_blocking(work));
            return answered.await.map_err(interrupted)?;
        }
        let read = move || read().map(|input| input.into().into_block());
        let block = spawn_blocking(read).await.map_err(interrupted)??;
        let Some(turn) = self.turn(update).await else {
            return self.run(task, None, None, move || is_wanted().then_some(block)).await;
        };
        if !is_wanted() {
            return Ok(None);
        }
        self.deal(turn, Job { task, block, answer, permit: None, memory: None });
        answered.await.map_err(interrupted)?
    }

    /// The turn of a task in the pipeline; `None` if the executor does it.
    async fn turn(&self, update: Option<Arc<Update>>) -> Option<Turn> {
        if let Some(update) = update {
            return Some(Turn::Update(update));
        }
        loop {
            let permits = Arc::clone(self.pipeline().as_ref()?.permits());
            // They are closed when another pipeline or the executor takes over.
            if let Ok(permit) = permits.acquire_owned().await {
                return Some(Turn::Own(permit));
            }
        }
    }

    /// Gives a job whose turn has come to the pipeline.
    fn deal(self: &Arc<Self>, turn: Turn, mut job: Job) {
        match turn {
            Turn::Update(update) => {
                job.memory.clone_from(&update.memory);
                update.jobs.lock().unwrap_or_else(PoisonError::into_inner).push(job);
            }
            Turn::Own(permit) => {
                job.permit = Some(permit);
                match &*self.pipeline() {
                    Some(pipeline) => pipeline.begin(job),
                    // The last worker has gone meanwhile.
                    None => {
                        let Job { task, block, answer, memory, .. } = job;
                        self.executor.spawn(self.local(task, memory, move || Some(block), answer));
                    }
                }
            }
        }
    }

    /// A task for the executor.
    fn local<I: Into<Input> + 'static>(
        self: &Arc<Self>,
        task: Task,
        memory: Option<MemoryPermit>,
        make: impl FnOnce() -> Option<I> + Send + 'static,
        answer: oneshot::Sender<Answer>,
    ) -> LocalJob {
        let farm = Arc::clone(self);
        Box::new(move || {
            // The client may have disconnected.
            if answer.is_closed() {
                return;
            }
            let work = || make().map(|input| (farm.options.work)(task, input.into())).transpose();
            let done = farm.here.work(work).transpose();
            drop(memory);
            let _ = answer.send(Ok(done.map(|outcome| outcome.map(Bytes::from))));
        })
    }

    /// Begins an update if there is a guarantee: its jobs are done together, and keep its share of
    /// a resource.
    pub(crate) fn update(
        self: &Arc<Self>,
        is_complete: bool,
        memory: Option<MemoryPermit>,
    ) -> Option<Arc<Update>> {
        let now = Instant::now();
        let deadline = match (self.options.guarantee?, is_complete) {
            (Guarantee::Latency(time), false) => now.checked_add(time),
            (Guarantee::Latency(time), true) => now.checked_add(time * COMPLETE),
            // As soon as possible, as long as the guaranteed rate of complete updates is met.
            (Guarantee::Rate(_), false) => Some(now),
            (Guarantee::Rate(_), true) => None,
        };
        let (farm, jobs) = (Arc::clone(self), Mutex::default());
        Some(Arc::new(Update { farm, deadline, memory, jobs }))
    }

    pub(crate) fn has_guarantee(&self) -> bool {
        self.options.guarantee.is_some()
    }

    /// Number of blocks that keep all copies busy: the current one of each, and the next.
    pub(crate) fn window(&self) -> usize {
        self.pipeline().as_ref().map_or(self.options.copies, Pipeline::copies) * WINDOW
    }

    /// Total time of the work done here.
    pub(crate) fn busy(&self) -> Duration {
        Duration::from_nanos(self.here.busy.load(Ordering::Relaxed))
    }

    /// How jobs are currently distributed.
    pub(crate) fn dealt(&self) -> DealingStats {
        let alone = || DealingStats {
            is_dealt: false,
            copies: self.options.copies,
            together: 1,
            reason: None,
            guarantee: None,
        };
        self.pipeline().as_ref().map_or_else(alone, Pipeline::dealt)
    }
}

fn interrupted<E>(_: E) -> Failure {
    Failure::unavailable("the work was interrupted")
}

/// The turn of a task in the pipeline.
enum Turn {
    Own(OwnedSemaphorePermit),
    /// Its update has the turn.
    Update(Arc<Update>),
}

/// Jobs of one update, which begin when every owner has added its jobs and dropped this.
pub(crate) struct Update {
    farm: Arc<Farm>,
    deadline: Option<Instant>,
    memory: Option<MemoryPermit>,
    jobs: Mutex<Vec<Job>>,
}

impl Drop for Update {
    fn drop(&mut self) {
        let jobs = std::mem::take(self.jobs.get_mut().unwrap_or_else(PoisonError::into_inner));
        if let Some(pipeline) = &*self.farm.pipeline() {
            pipeline.update(jobs, self.deadline);
        }
    }
}

#[cfg(test)]
#[path = "farm_tests.rs"]
mod tests;
