//! A filter of `seekwire-flow` with several copies, to which single blocks are given and which
//! gives an answer to each.
//!
//! ```text
//! Farm::run ──> jobs (source) ──> filter, copy 0..n ──> answers (sink) ──> Farm::run
//! ```
//!
//! The pipeline runs one unit of work, as long as the farm is there. What goes through it is bytes
//! only: all that a copy needs is in the block. At most two blocks for each copy are in it; who
//! asks for more waits outside, where nothing has been done for it yet.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result as Anyhow};
use bytes::Bytes;
use seekwire_flow::{
    Block, Filter, FilterError, Graph, Outputs, Ports, Running, Step, StreamOptions, Unit,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::failure::{Failure, Result};

/// What a copy makes of a block, or what is wrong with it. The same whichever copy does it.
pub(crate) type Work = Arc<dyn Fn(Bytes) -> std::result::Result<Vec<u8>, String> + Send + Sync>;

/// Blocks in the pipeline for each copy: one that it works at, and one that it finds then.
const WINDOW: usize = 2;

/// Behind the bytes of each block: the number of the job.
const NUMBER: usize = 8;
/// Behind the bytes of each answer, before the number: whether they are a result.
const DONE: u8 = 1;
const FAILED: u8 = 0;

/// Before the unit of work is begun again, where it has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// The pipeline, and who waits for what. Dropping it waits for the blocks that copies work at.
pub(crate) struct Farm {
    /// `None` when it ends.
    jobs: Option<mpsc::Sender<Bytes>>,
    permits: Arc<Semaphore>,
    waiting: Arc<Waiting>,
    running: Arc<Running>,
    keeper: Option<JoinHandle<()>>,
}

/// Who waits for the answer to which job.
#[derive(Default)]
struct Waiting {
    jobs: Mutex<HashMap<u64, Client>>,
    next: AtomicU64,
}

struct Client {
    answer: oneshot::Sender<std::result::Result<Bytes, String>>,
    _permit: OwnedSemaphorePermit,
}

impl Waiting {
    fn jobs(&self) -> MutexGuard<'_, HashMap<u64, Client>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Farm {
    /// Starts `copies` threads that do `work`. `name` is for their names, and for reports; `limit`
    /// is how many bytes may be in the pipeline, so it is the largest block, too.
    pub(crate) fn start(name: &str, copies: usize, limit: usize, work: Work) -> Anyhow<Self> {
        let permits = copies * WINDOW;
        let (sender, receiver) = mpsc::channel(permits);
        let receiver = Arc::new(Mutex::new(receiver));
        let waiting = Arc::new(Waiting::default());
        let mut graph = Graph::new();
        let lost = Arc::clone(&waiting);
        let jobs = move || Jobs { jobs: Arc::clone(&receiver), waiting: Arc::clone(&lost) };
        graph.filter("jobs", 1, Ports::source(), jobs)?;
        graph.filter(name, copies, Ports::step(), move || Worker { work: Arc::clone(&work) })?;
        let told = Arc::clone(&waiting);
        let answers = move || Answers { waiting: Arc::clone(&told) };
        graph.filter("answers", 1, Ports::sink(), answers)?;
        graph.connect("jobs", name, StreamOptions { limit, ..StreamOptions::default() })?;
        graph.connect(name, "answers", StreamOptions { limit, ..StreamOptions::default() })?;
        let running = Arc::new(graph.start()?);
        let keeper = {
            let (running, waiting) = (Arc::clone(&running), Arc::clone(&waiting));
            let keep = move || keep(&running, &waiting);
            thread::Builder::new().name(format!("{name}.keeper")).spawn(keep)
        };
        let keeper = Some(keeper.context("no thread for a pipeline")?);
        let permits = Arc::new(Semaphore::new(permits));
        Ok(Self { jobs: Some(sender), permits, waiting, running, keeper })
    }

    /// Waits for its turn, has the work done, and gives what comes of it; `None`: when its turn
    /// came, `wanted` said that nobody wants it any more.
    pub(crate) async fn run(
        &self,
        mut block: Vec<u8>,
        wanted: impl FnOnce() -> bool,
    ) -> Result<Option<Bytes>> {
        let ends = || Failure::unavailable("the server ends");
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| ends())?;
        if !wanted() {
            return Ok(None);
        }
        let number = self.waiting.next.fetch_add(1, Ordering::Relaxed);
        block.extend_from_slice(&number.to_le_bytes());
        let (answer, answered) = oneshot::channel();
        self.waiting.jobs().insert(number, Client { answer, _permit: permit });
        let sent = self.jobs.as_ref().map(|jobs| jobs.try_send(block.into()));
        // It has room for as many as there are permits.
        if !matches!(sent, Some(Ok(()))) {
            self.waiting.jobs().remove(&number);
            return Err(ends());
        }
        match answered.await {
            Ok(Ok(bytes)) => Ok(Some(bytes)),
            Ok(Err(what)) => Err(Failure::internal(what)),
            Err(_) => Err(Failure::unavailable("the work was interrupted")),
        }
    }

    /// So many blocks can wait or be in process at once.
    pub(crate) fn window(&self) -> usize {
        self.copies() * WINDOW
    }

    fn copies(&self) -> usize {
        self.running.copies().len().saturating_sub(2)
    }

    /// How long copies have been busy until now, all together.
    pub(crate) fn busy(&self) -> Duration {
        let copies = self.running.copies();
        let steps = copies.iter().filter(|copy| !matches!(&*copy.filter, "jobs" | "answers"));
        steps.map(|copy| copy.busy).sum()
    }
}

impl Drop for Farm {
    fn drop(&mut self) {
        // The source ends with its channel, and the unit with the source.
        self.jobs = None;
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

/// Has a unit of work run until there are no more jobs. It ends before only if a copy is lost whose
/// work nobody else can do.
fn keep(running: &Running, waiting: &Waiting) {
    loop {
        let outcome = running.submit(Unit::new("")).wait();
        // Of those that wait now, nobody is told anything any more.
        waiting.jobs().clear();
        match outcome {
            Ok(_) | Err(seekwire_flow::Failure::Stopped) => return,
            Err(failure) => tracing::error!("the pipeline begins again: {failure}"),
        }
        thread::sleep(PAUSE);
    }
}

struct Jobs {
    jobs: Arc<Mutex<mpsc::Receiver<Bytes>>>,
    waiting: Arc<Waiting>,
}

impl Filter for Jobs {
    fn generate(&mut self, out: &mut Outputs<'_>) -> std::result::Result<Step, FilterError> {
        // There is one copy, so nobody waits for this lock.
        let job = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        let Some(block) = job else { return Ok(Step::Done) };
        let number = split(&block).map(|(_, number)| number);
        let sent = out.send(0, block);
        if let (Err(_), Some(number)) = (&sent, number) {
            self.waiting.jobs().remove(&number);
        }
        sent.map(|()| Step::More)
    }
}

/// The bytes before the number, and the number.
fn split(bytes: &Bytes) -> Option<(Bytes, u64)> {
    let at = bytes.len().checked_sub(NUMBER)?;
    let number = u64::from_le_bytes(bytes[at..].try_into().ok()?);
    Some((bytes.slice(..at), number))
}

struct Worker {
    work: Work,
}

impl Filter for Worker {
    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> std::result::Result<(), FilterError> {
        let (payload, number) = split(&block.into()).ok_or("a block without a number")?;
        // A panic would end the work of all others, too.
        let work = AssertUnwindSafe(|| (self.work)(payload));
        let outcome = catch_unwind(work).unwrap_or_else(|_| Err("the decoder panicked".into()));
        let (mut answer, state) = match outcome {
            Ok(answer) => (answer, DONE),
            Err(what) => (what.into_bytes(), FAILED),
        };
        answer.push(state);
        answer.extend_from_slice(&number.to_le_bytes());
        out.send(0, answer)
    }
}

struct Answers {
    waiting: Arc<Waiting>,
}

impl Filter for Answers {
    fn process(
        &mut self,
        block: Block,
        _: usize,
        _: &mut Outputs<'_>,
    ) -> std::result::Result<(), FilterError> {
        let (mut answer, number) = split(&block.into()).ok_or("an answer without a number")?;
        let state = answer.last().copied().ok_or("an answer without a state")?;
        answer.truncate(answer.len() - 1);
        let answer = match state {
            DONE => Ok(answer),
            _ => Err(String::from_utf8_lossy(&answer).into_owned()),
        };
        let client = self.waiting.jobs().remove(&number);
        if let Some(client) = client {
            // Who asked may have gone.
            let _ = client.answer.send(answer);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    fn farm(
        copies: usize,
        work: impl Fn(&[u8]) -> std::result::Result<Vec<u8>, String> + Send + Sync + 'static,
    ) -> Farm {
        Farm::start("work", copies, 1 << 20, Arc::new(move |bytes| work(&bytes))).unwrap()
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
            tokio::spawn(async move { farm.run(vec![number, 1, 2], || true).await })
        });
        for (number, run) in (1..).zip(runs.collect::<Vec<_>>()) {
            assert_eq!(run.await.unwrap().unwrap().unwrap(), [2, 1, number].as_slice());
        }
        assert_eq!(&*farm.run(vec![], || true).await.unwrap_err().what, "nothing");
        let failure = farm.run(vec![0], || true).await.unwrap_err();
        assert!(failure.what.contains("panicked"), "{failure}");
        // And it goes on.
        assert_eq!(farm.run(vec![9], || true).await.unwrap().unwrap(), [9].as_slice());
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
            tokio::spawn(async move { farm.run(vec![1], move || wanted).await })
        };
        let all = [run(true), run(true), run(false), run(true)];
        // One whose client goes before its turn.
        let gone = {
            let farm = Arc::clone(&farm);
            tokio::spawn(async move { farm.run(vec![2], || panic!("its turn came")).await })
        };
        // All of them come to where they wait.
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
}
