//! Shared work: a [pipeline](super::pipeline) of copies here and at workers.
//!
//! ```text
//! Farm::run ──> permit ──> pipeline: one copy ──> Farm::run
//! ```
//!
//! At most two jobs for each copy are in the pipeline; further callers wait outside, where they
//! cost nothing yet. When workers come or go, a new pipeline replaces the current one. The old one
//! completes its jobs; no third one should be started before that.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result as Anyhow;
use bytes::Bytes;
use seekwire_flow::{Guarantee, Policy};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::failure::{Failure, Result};
use crate::render::memory::Taken;
use crate::render::pipeline::{Dealt, Here, Job, Options, Outcome, Pipeline, Work};
use crate::workers::remote::Given;
use crate::workers::wire::Task;

/// If a latency is guaranteed, complete updates may take so many times as long as partial ones.
const COMPLETE: u32 = 10;

/// Copies that do work, here and at workers. Dropping it waits for the current work.
pub(crate) struct Farm {
    options: Options,
    current: Mutex<Pipeline>,
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

fn ends() -> Failure {
    Failure::unavailable("the server is shutting down")
}

impl Farm {
    /// Starts `copies` threads that do `work`. `name` is for thread names and reports.
    pub(crate) fn start(name: &'static str, copies: usize, work: Work) -> Anyhow<Self> {
        Self::with(Options { name, copies, work, policy: Policy::default(), guarantee: None })
    }

    /// The same, with the policy and guarantee in the options.
    pub(crate) fn with(options: Options) -> Anyhow<Self> {
        let here = Arc::new(Here::new(options.copies));
        let current = Mutex::new(Pipeline::start(&options, &[], &here)?);
        Ok(Self { options, current, old: Arc::default(), here })
    }

    fn current(&self) -> MutexGuard<'_, Pipeline> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the copies of these farms to this process and these workers. If there are not enough
    /// threads for that, nothing changes.
    pub(crate) fn all_work_with(farms: &[&Self], given: &[Given]) -> Anyhow<()> {
        let start = |farm: &&Self| Pipeline::start(&farm.options, given, &farm.here);
        let next: Anyhow<Vec<Pipeline>> = farms.iter().map(start).collect();
        farms.iter().zip(next?).for_each(|(farm, next)| farm.goes_on_by(next));
        Ok(())
    }

    fn goes_on_by(&self, next: Pipeline) {
        let count = Old::new(&self.old);
        let old = std::mem::replace(&mut *self.current(), next);
        // Callers that wait for their turn go to the new pipeline.
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

    /// Waits for a turn, does the work, and returns the result; `None` if `wanted` returned false
    /// when the turn came.
    pub(crate) async fn run(
        &self,
        task: Task,
        block: Bytes,
        wanted: impl FnOnce() -> bool,
    ) -> Result<Option<Bytes>> {
        self.run_with(task, block, None, wanted).await
    }

    /// The same, and keeps the block's share of a resource until the work is done, even if nobody
    /// waits for it any more.
    pub(crate) async fn run_with(
        &self,
        task: Task,
        block: Bytes,
        taken: Option<Taken>,
        wanted: impl FnOnce() -> bool,
    ) -> Result<Option<Bytes>> {
        let turn = self.turn().await?;
        if !wanted() {
            return Ok(None);
        }
        self.run_now(turn, task, block, taken).await.map(Some)
    }

    /// Waits for a turn.
    pub(crate) async fn turn(&self) -> Result<OwnedSemaphorePermit> {
        loop {
            let permits = Arc::clone(self.current().permits());
            match Arc::clone(&permits).acquire_owned().await {
                Ok(permit) => return Ok(permit),
                Err(_) if Arc::ptr_eq(&permits, self.current().permits()) => return Err(ends()),
                Err(_) => {}
            }
        }
    }

    /// Does work whose [turn](Self::turn) has come.
    pub(crate) async fn run_now(
        &self,
        turn: OwnedSemaphorePermit,
        task: Task,
        block: Bytes,
        taken: Option<Taken>,
    ) -> Result<Bytes> {
        let (answer, answered) = oneshot::channel();
        self.current().begin(Job { task, block, answer, permit: Some(turn), taken });
        outcome(answered.await)
    }

    /// Begins an update if there is a guarantee: its jobs are done together, and keep its share of
    /// a resource.
    pub(crate) fn update(
        self: &Arc<Self>,
        is_complete: bool,
        taken: Option<Taken>,
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
        Some(Arc::new(Update { farm, deadline, taken, jobs }))
    }

    /// Maximum number of blocks waiting or in process.
    pub(crate) fn window(&self) -> usize {
        self.current().window()
    }

    /// Total time of the work done here.
    pub(crate) fn busy(&self) -> Duration {
        Duration::from_nanos(self.here.busy.load(Ordering::Relaxed))
    }

    /// How jobs are currently distributed.
    pub(crate) fn dealt(&self) -> Dealt {
        self.current().dealt()
    }
}

fn outcome(answered: std::result::Result<Outcome, oneshot::error::RecvError>) -> Result<Bytes> {
    match answered {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(what)) => Err(Failure::internal(what)),
        Err(_) => Err(Failure::unavailable("the work was interrupted")),
    }
}

/// Jobs of one update, which begin when every owner has added its jobs and dropped this.
pub(crate) struct Update {
    farm: Arc<Farm>,
    deadline: Option<Instant>,
    taken: Option<Taken>,
    jobs: Mutex<Vec<Job>>,
}

impl Update {
    /// Adds a job, and waits for its result.
    pub(crate) async fn run(self: Arc<Self>, task: Task, block: Bytes) -> Result<Bytes> {
        let (answer, answered) = oneshot::channel();
        let job = Job { task, block, answer, permit: None, taken: self.taken.clone() };
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).push(job);
        drop(self);
        outcome(answered.await)
    }
}

impl Drop for Update {
    fn drop(&mut self) {
        let jobs = std::mem::take(self.jobs.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.farm.current().update(jobs, self.deadline);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kind of task does not matter here.
    const TASK: Task = Task::Decompress;

    fn farm(
        copies: usize,
        work: impl Fn(&[u8]) -> std::result::Result<Vec<u8>, String> + Send + Sync + 'static,
    ) -> Farm {
        Farm::start("work", copies, Arc::new(move |_, bytes| work(&bytes))).unwrap()
    }

    #[tokio::test]
    async fn each_answer_is_that_to_its_own_block() {
        let farm = Arc::new(farm(3, |bytes| match bytes {
            [] => Err("nothing".into()),
            [0, ..] => panic!("of a decoder"),
            _ => Ok(bytes.iter().rev().copied().collect()),
        }));
        let runs = (1..=200_u8).map(|number| {
            let farm = Arc::clone(&farm);
            tokio::spawn(async move { farm.run(TASK, vec![number, 1, 2].into(), || true).await })
        });
        for (number, run) in (1..).zip(runs.collect::<Vec<_>>()) {
            assert_eq!(run.await.unwrap().unwrap().unwrap(), [2, 1, number].as_slice());
        }
        assert_eq!(&*farm.run(TASK, Bytes::new(), || true).await.unwrap_err().what, "nothing");
        let failure = farm.run(TASK, vec![0].into(), || true).await.unwrap_err();
        assert!(failure.what.contains("panicked"), "{failure}");
        // The farm continues.
        assert_eq!(farm.run(TASK, vec![9].into(), || true).await.unwrap().unwrap(), [9].as_slice());
        assert_eq!(farm.window(), 6);
    }

    #[tokio::test]
    async fn what_nobody_wants_when_its_turn_comes_is_not_done() {
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let done = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&done);
        let farm = Arc::new(farm(1, move |bytes| {
            gate.lock().unwrap().recv().unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            Ok(bytes.to_vec())
        }));
        let run = |wanted: bool| {
            let farm = Arc::clone(&farm);
            tokio::spawn(async move { farm.run(TASK, vec![1].into(), move || wanted).await })
        };
        let all = [run(true), run(true), run(false), run(true)];
        // A job whose client disconnects before its turn.
        let gone = {
            let farm = Arc::clone(&farm);
            tokio::spawn(
                async move { farm.run(TASK, vec![2].into(), || panic!("its turn came")).await },
            )
        };
        // Lets all of them reach the point where they wait.
        tokio::task::yield_now().await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        (0..3).for_each(|_| open.send(()).unwrap());
        let mut results = Vec::new();
        for run in all {
            results.push(run.await.unwrap().unwrap().is_some());
        }
        assert_eq!(results, [true, true, false, true]);
        assert_eq!(done.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn what_a_job_takes_is_free_when_it_is_done_and_not_before() {
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let farm = Arc::new(farm(1, move |bytes| {
            gate.lock().unwrap().recv().unwrap();
            Ok(bytes.to_vec())
        }));
        let memory = Arc::new(tokio::sync::Semaphore::new(1));
        let taken = Arc::new(Arc::clone(&memory).acquire_owned().await.unwrap());
        let runs = Arc::clone(&farm);
        let run = async move { runs.run_with(TASK, vec![1].into(), Some(taken), || true).await };
        let run = tokio::spawn(run);
        // The job gets its turn.
        tokio::task::yield_now().await;
        run.abort();
        assert!(run.await.unwrap_err().is_cancelled());
        assert_eq!(memory.available_permits(), 0);
        open.send(()).unwrap();
        drop(memory.acquire().await.unwrap());
    }

    #[tokio::test]
    async fn what_was_begun_is_done_when_another_pipeline_takes_over() {
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let farm = Arc::new(farm(1, move |bytes| {
            gate.lock().unwrap().recv().unwrap();
            Ok(bytes.to_vec())
        }));
        // Two have their turn, and the others wait for it.
        let runs: Vec<_> = (0..6_u8)
            .map(|number| {
                let farm = Arc::clone(&farm);
                tokio::spawn(async move { farm.run(TASK, vec![number].into(), || true).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(!farm.is_changing());
        Farm::all_work_with(&[&farm], &[]).unwrap();
        assert!(farm.is_changing());
        (0..6).for_each(|_| open.send(()).unwrap());
        for (number, run) in (0..).zip(runs) {
            assert_eq!(run.await.unwrap().unwrap().unwrap(), [number].as_slice());
        }
        while farm.is_changing() {
            thread::yield_now();
        }
    }

    #[tokio::test]
    async fn farms_change_together_or_not_at_all() {
        let [one, mut other] = [(); 2].map(|()| farm(1, |bytes| Ok(bytes.to_vec())));
        // A pipeline cannot have two filters of the same name.
        other.options.name = "told";
        let before = Arc::clone(one.current().permits());
        assert!(Farm::all_work_with(&[&one, &other], &[]).is_err());
        assert!(Arc::ptr_eq(&before, one.current().permits()) && !one.is_changing());
        other.options.name = "work";
        Farm::all_work_with(&[&one, &other], &[]).unwrap();
        assert!(!Arc::ptr_eq(&before, one.current().permits()));
        for farm in [one, other] {
            assert!(farm.run(TASK, vec![1].into(), || true).await.unwrap().is_some());
        }
    }

    #[tokio::test]
    async fn an_update_is_done_when_all_of_it_is_known() {
        for guarantee in [Guarantee::Latency(Duration::from_millis(50)), Guarantee::Rate(10.0)] {
            let work: Work = Arc::new(|_, bytes| match &bytes[..] {
                [0] => Err("nothing".into()),
                _ => Ok(bytes.to_vec()),
            });
            let options = Options {
                name: "work",
                copies: 2,
                work,
                policy: Policy::default(),
                guarantee: Some(guarantee),
            };
            let farm = Arc::new(Farm::with(options).unwrap());
            for count in [1, 40, 3] {
                let update = farm.update(count > 4, None).unwrap();
                let run =
                    |number: u8| tokio::spawn(Arc::clone(&update).run(TASK, vec![number].into()));
                let runs: Vec<_> = (0..count).map(run).collect();
                // An owner that adds nothing.
                drop(update);
                for (number, run) in (0..).zip(runs) {
                    match run.await.unwrap() {
                        Ok(bytes) => assert_eq!(bytes, [number].as_slice()),
                        Err(failure) => assert_eq!((number, &*failure.what), (0, "nothing")),
                    }
                }
            }
            drop(farm.update(false, None));
            let alone = farm.run(TASK, vec![7].into(), || true).await.unwrap();
            assert_eq!(alone.unwrap(), [7].as_slice());
            let dealt = farm.dealt();
            assert!((1..=8).contains(&dealt.together), "{dealt:?}");
        }
    }
}
