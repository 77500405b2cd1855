//! One worker, as seen by the server.
//!
//! A caller sends work, and waits for the answer. If the worker is gone, has stopped or returns an
//! implausible answer, the caller gets none and does the work itself, so only time is lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use seekwire_flow::{Filter, FilterError, Outputs, Running, Step, UnitHandle};

use crate::workers::protocol::{MOST, MOST_THREADS, SUFFIX, Task, Word};
use crate::workers::worker_limits::WorkerMemory;

/// A worker that sends nothing for this long, not even a part of an answer, is given no work until
/// it does.
const SILENT: Duration = Duration::from_secs(1);

/// How long a worker may take to introduce itself.
const NAMELESS: Duration = Duration::from_secs(10);

/// The worker's rank in its job with the server, which is the other process.
const RANK: u32 = 1;

/// How often a caller checks whether waiting is still useful.
const LOOK: Duration = Duration::from_millis(100);

/// How long a worker may take for a job and those before it. One that answers nothing in this time
/// is given no work until it does.
const LONGEST: Duration = Duration::from_secs(10);

/// Value of `late` for a worker that was never late.
const NEVER: u64 = u64::MAX;

/// The state of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerState {
    /// It has not introduced itself yet.
    New = 0,
    /// It works.
    Works = 1,
    /// It is silent, or answers nothing.
    Silent = 2,
    /// It will not come back.
    Gone = 3,
}

impl WorkerState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Works => "works",
            Self::Silent => "silent",
            Self::Gone => "gone",
        }
    }
}

/// A worker's introduction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) host: String,
    pub(crate) threads: usize,
}

impl Hello {
    fn new(threads: u32, host: &[u8]) -> Option<Self> {
        let host = std::str::from_utf8(host).ok()?;
        let is_name = host.bytes().all(|byte| byte.is_ascii_graphic()) && host.len() <= 64;
        let threads = (1..=MOST_THREADS).contains(&threads).then_some(threads as usize)?;
        is_name.then(|| Self { host: host.to_owned(), threads })
    }
}

/// A connected worker.
pub(crate) struct Remote {
    pub(crate) number: u64,
    came: Instant,
    hello: OnceLock<Hello>,
    state: AtomicU8,
    /// When its last message came, in milliseconds after it connected.
    heard: AtomicU64,
    /// How many of its threads are given work.
    pub(crate) assigned: AtomicUsize,
    memory: WorkerMemory,
    /// Sends the numbers of jobs.
    jobs: Mutex<Option<Sender<u64>>>,
    todo: Mutex<Receiver<u64>>,
    waiting: Mutex<HashMap<u64, Client>>,
    next: AtomicU64,
    /// Answers that it has given, and their number when a job was sent that it did not answer in
    /// time.
    answers: AtomicU64,
    late: AtomicU64,
    /// The pipeline to it, and the unit of work that runs as long as the worker is present.
    link: Mutex<Option<(Arc<Running>, Arc<UnitHandle>)>>,
    /// Blocks that it processed, and those that had to be processed elsewhere.
    pub(crate) done: AtomicU64,
    pub(crate) undone: AtomicU64,
}

/// A worker, and how many of its threads are given work.
#[derive(Clone)]
pub(crate) struct WorkerThreads {
    pub(crate) remote: Arc<Remote>,
    pub(crate) threads: usize,
}

/// A caller that waits for a job.
struct Client {
    answer: SyncSender<Option<Bytes>>,
    /// The job to send; `None` once sent.
    job: Option<Bytes>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Remote {
    pub(crate) fn new(number: u64, memory: WorkerMemory) -> Self {
        let (jobs, todo) = mpsc::channel();
        Self {
            number,
            came: Instant::now(),
            hello: OnceLock::new(),
            state: AtomicU8::new(WorkerState::New as u8),
            heard: AtomicU64::new(0),
            assigned: AtomicUsize::new(0),
            memory,
            jobs: Mutex::new(Some(jobs)),
            todo: Mutex::new(todo),
            waiting: Mutex::default(),
            next: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            late: AtomicU64::new(NEVER),
            link: Mutex::new(None),
            done: AtomicU64::new(0),
            undone: AtomicU64::new(0),
        }
    }

    pub(crate) fn state(&self) -> WorkerState {
        match self.state.load(Ordering::SeqCst) {
            0 => WorkerState::New,
            1 => WorkerState::Works,
            2 => WorkerState::Silent,
            _ => WorkerState::Gone,
        }
    }

    /// Changes the state, unless the worker is gone. Returns true if the state was different.
    fn becomes(&self, state: WorkerState) -> bool {
        let change = |old: u8| {
            let keeps = old == WorkerState::Gone as u8 || old == state as u8;
            (!keeps).then_some(state as u8)
        };
        self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change).is_ok()
    }

    pub(crate) fn hello(&self) -> Option<&Hello> {
        self.hello.get()
    }

    /// A name for logs and pages.
    pub(crate) fn name(&self) -> String {
        let host = self.hello().map_or("nameless", |hello| &hello.host);
        format!("worker {} on {host}", self.number)
    }

    /// Updates the state, which is only as current as the last call.
    pub(crate) fn look(&self) {
        let since = Duration::from_millis(self.heard.load(Ordering::SeqCst));
        let silence = self.came.elapsed().saturating_sub(since);
        let link = locked(&self.link).as_ref().and_then(|(running, _)| running.silence(RANK));
        self.judge(silence, link.unwrap_or(silence));
    }

    /// Judges by the time since the last message and the last byte: on a slow link, a heartbeat may
    /// be queued behind an answer.
    fn judge(&self, silence: Duration, of_link: Duration) {
        let is_late = self.late.load(Ordering::SeqCst) == self.answers.load(Ordering::SeqCst);
        let is_silent = silence.min(of_link) > SILENT || is_late;
        match self.state() {
            WorkerState::New if self.hello().is_some() && self.becomes(WorkerState::Works) => {
                let threads = self.hello().map_or(0, |hello| hello.threads);
                tracing::info!(threads, "{} has come", self.name());
            }
            WorkerState::New if silence > NAMELESS => {
                tracing::warn!("worker {} has not introduced itself", self.number);
                self.end();
            }
            WorkerState::Works if is_silent && self.becomes(WorkerState::Silent) => {
                let does = if is_late { "answers" } else { "says" };
                tracing::warn!("{} {does} nothing, and is given no more work", self.name());
            }
            WorkerState::Silent if !is_silent && self.becomes(WorkerState::Works) => {
                tracing::info!("{} is back", self.name());
            }
            _ => {}
        }
    }

    /// The pipeline to it has started.
    pub(crate) fn begins(&self, running: &Arc<Running>, unit: &Arc<UnitHandle>) {
        *locked(&self.link) = Some((Arc::clone(running), Arc::clone(unit)));
        // It may have been ended before.
        if self.state() == WorkerState::Gone {
            self.end();
        }
    }

    /// Informs the worker that there are already `workers` others, and sends nothing else.
    pub(crate) fn turn_away(&self, workers: usize) {
        let word = Word::Full(u32::try_from(workers).unwrap_or(u32::MAX)).behind(Vec::new());
        let (answer, _) = mpsc::sync_channel(1);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        locked(&self.waiting).insert(number, Client { answer, job: Some(word.into()) });
        let jobs = locked(&self.jobs).take();
        if let Some(jobs) = jobs {
            // It may have ended already.
            let _ = jobs.send(number);
        }
    }

    /// Ends the session: the worker is sent nothing more, and its callers get no answer.
    pub(crate) fn end(&self) {
        self.becomes(WorkerState::Gone);
        *locked(&self.jobs) = None;
        locked(&self.waiting).clear();
        let link = locked(&self.link).take();
        if let Some((running, unit)) = link {
            running.cancel(&unit);
        }
    }

    /// Has the worker process a block; `None` if it did not, for whatever reason.
    pub(crate) fn call(
        &self,
        task: Task,
        block: &Bytes,
        fits: impl FnOnce(&Bytes) -> bool,
    ) -> Option<Bytes> {
        let answer = self.ask(task, block);
        let counter = if answer.is_some() { &self.done } else { &self.undone };
        counter.fetch_add(1, Ordering::Relaxed);
        let answer = answer?;
        if !fits(&answer) {
            tracing::error!("{}: an implausible answer; the worker is dropped", self.name());
            self.end();
            return None;
        }
        Some(answer)
    }

    fn ask(&self, task: Task, block: &Bytes) -> Option<Bytes> {
        if self.state() != WorkerState::Works || block.len() > MOST - SUFFIX {
            return None;
        }
        // If there is no memory for the transfer, the caller does the work here.
        let permit = self.memory.take(block.len() + SUFFIX)?;
        let (began, answers) = (Instant::now(), self.answers.load(Ordering::SeqCst));
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = mpsc::sync_channel(1);
        let mut bytes = Vec::with_capacity(block.len() + SUFFIX);
        bytes.extend_from_slice(block);
        let job = Some(permit.for_block(Word::Job(task, number).behind(bytes)));
        locked(&self.waiting).insert(number, Client { answer, job });
        let is_sent = locked(&self.jobs).as_ref().is_some_and(|jobs| jobs.send(number).is_ok());
        let outcome = if is_sent { self.answer(&answered) } else { None };
        let client = locked(&self.waiting).remove(&number);
        // A working worker answers every job sent, even if no caller waits any more.
        let is_sent = client.is_some_and(|client| client.job.is_none());
        if is_sent && began.elapsed() >= LONGEST {
            self.lets_wait(answers);
        }
        outcome
    }

    /// Marks the worker as late, if it has answered nothing since it had given `answers` answers.
    fn lets_wait(&self, answers: u64) {
        if self.answers.load(Ordering::SeqCst) == answers {
            self.late.store(answers, Ordering::SeqCst);
        }
    }

    /// Waits for the next job that a caller still waits for; `None` if there are no more.
    fn next(&self) -> Option<Bytes> {
        loop {
            // There is only one copy and one unit, so this lock is never contended.
            let number = locked(&self.todo).recv().ok()?;
            let mut waiting = locked(&self.waiting);
            let job = waiting.get_mut(&number).and_then(|client| client.job.take());
            if job.is_some() {
                return job;
            }
        }
    }

    /// Waits for the answer while the worker works. If heartbeats come but no answer does, this
    /// gives up, and the caller does the work here.
    fn answer(&self, answered: &Receiver<Option<Bytes>>) -> Option<Bytes> {
        let since = Instant::now();
        loop {
            match answered.recv_timeout(LOOK) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout)
                    if self.state() == WorkerState::Works && since.elapsed() < LONGEST => {}
                Err(_) => return None,
            }
        }
    }

    /// Processes a message of the worker.
    pub(super) fn says(&self, word: Word, bytes: Bytes) -> Result<(), FilterError> {
        let heard = u64::try_from(self.came.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard.store(heard, Ordering::SeqCst);
        match word {
            Word::Hello(threads) => {
                let hello = Hello::new(threads, &bytes).ok_or("its introduction is invalid")?;
                self.hello.set(hello).map_err(|_| "it introduced itself twice")?;
            }
            Word::Answer(is_done, number) if self.hello().is_some() => {
                self.answers.fetch_add(1, Ordering::SeqCst);
                // No caller may be waiting any more. A failed job is repeated here, which reports
                // the error.
                if let Some(client) = locked(&self.waiting).remove(&number) {
                    let _ = client.answer.try_send(is_done.then_some(bytes));
                }
            }
            Word::Beat if self.hello().is_some() => {}
            _ => return Err("it sent an unexpected message".into()),
        }
        Ok(())
    }
}

/// At the server: sends the worker the jobs of callers.
pub(crate) struct JobSource(pub(crate) Arc<Remote>);

impl Filter for JobSource {
    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        let Some(job) = self.0.next() else { return Ok(Step::Done) };
        out.send(0, job)?;
        Ok(Step::More)
    }
}

/// The filters at the other end.
pub(crate) struct Elsewhere;

impl Filter for Elsewhere {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workers::worker_limits::memory;

    fn new() -> Remote {
        Remote::new(3, WorkerMemory::of(&memory()))
    }

    fn working() -> Arc<Remote> {
        let remote = Arc::new(new());
        remote.says(Word::Hello(2), Bytes::from_static(b"far")).unwrap();
        remote.look();
        assert_eq!(remote.state(), WorkerState::Works);
        remote
    }

    fn call(remote: &Arc<Remote>) -> std::thread::JoinHandle<Option<Bytes>> {
        let remote = Arc::clone(remote);
        let block = Bytes::from_static(b"tile");
        std::thread::spawn(move || remote.call(Task::Finish, &block, |answer| answer != "wrong"))
    }

    #[test]
    fn an_answer_comes_to_who_asked_and_a_wrong_one_ends_the_worker() {
        let remote = working();
        let first = call(&remote);
        let job = remote.next().unwrap();
        let (word, bytes) = Word::of(job).unwrap();
        assert_eq!((word, &bytes[..]), (Word::Job(Task::Finish, 0), &b"tile"[..]));
        // An answer to no question.
        remote.says(Word::Answer(true, 9), Bytes::from_static(b"none")).unwrap();
        remote.says(Word::Answer(true, 0), Bytes::from_static(b"right")).unwrap();
        assert_eq!(first.join().unwrap(), Some(Bytes::from_static(b"right")));

        let failed = call(&remote);
        remote.next().unwrap();
        remote.says(Word::Answer(false, 1), Bytes::from_static(b"why")).unwrap();
        assert_eq!(failed.join().unwrap(), None);
        assert_eq!(remote.state(), WorkerState::Works);

        let wrong = call(&remote);
        remote.next().unwrap();
        remote.says(Word::Answer(true, 2), Bytes::from_static(b"wrong")).unwrap();
        assert_eq!(wrong.join().unwrap(), None);
        assert_eq!(remote.state(), WorkerState::Gone);
        assert_eq!(call(&remote).join().unwrap(), None);
    }

    #[test]
    fn nobody_waits_for_one_that_is_gone_or_silent() {
        let remote = working();
        let waits = call(&remote);
        remote.next().unwrap();
        remote.end();
        assert_eq!(waits.join().unwrap(), None);

        let remote = working();
        let waits = call(&remote);
        remote.next().unwrap();
        assert!(remote.becomes(WorkerState::Silent));
        assert_eq!(waits.join().unwrap(), None);
        // An unsent job is not kept.
        assert!(locked(&remote.waiting).is_empty());
        // Its answer comes late, and it works again.
        remote.says(Word::Answer(true, 0), Bytes::from_static(b"late")).unwrap();
        remote.look();
        assert_eq!(remote.state(), WorkerState::Works);
    }

    #[test]
    fn who_sends_an_answer_slowly_is_not_silent() {
        let remote = working();
        let (long, short) = (10 * SILENT, SILENT / 2);
        remote.judge(long, short);
        assert_eq!(remote.state(), WorkerState::Works);
        remote.judge(long, 2 * SILENT);
        assert_eq!(remote.state(), WorkerState::Silent);
        remote.judge(long, short);
        assert_eq!(remote.state(), WorkerState::Works);
        // A worker that has not introduced itself may send anything else for any length of time.
        let nameless = new();
        nameless.judge(NAMELESS + SILENT, short);
        assert_eq!(nameless.state(), WorkerState::Gone);
    }

    #[test]
    fn who_answers_nothing_gets_nothing_more_until_it_does() {
        let remote = working();
        let judged = || {
            remote.judge(Duration::ZERO, Duration::ZERO);
            remote.state()
        };
        let answers = |number| {
            remote.says(Word::Answer(true, number), Bytes::from_static(b"late")).unwrap();
        };
        assert_eq!(judged(), WorkerState::Works);
        let waits = call(&remote);
        remote.next().unwrap();
        remote.lets_wait(0);
        remote.says(Word::Beat, Bytes::new()).unwrap();
        assert_eq!(judged(), WorkerState::Silent);
        // Later jobs are not waited for any longer.
        assert_eq!(waits.join().unwrap(), None);
        assert_eq!(call(&remote).join().unwrap(), None);
        answers(0);
        assert_eq!(judged(), WorkerState::Works);
        // Another job was answered in time, so the worker keeps working.
        answers(1);
        remote.lets_wait(1);
        assert_eq!(judged(), WorkerState::Works);
    }

    #[test]
    fn what_there_is_no_memory_for_is_not_sent() {
        let memory = memory();
        let memories: Vec<WorkerMemory> = (0..4).map(|_| WorkerMemory::of(&memory)).collect();
        let permits: Vec<_> =
            memories.iter().map(|memory| memory.take(64 << 20).unwrap()).collect();
        let remote = Arc::new(Remote::new(3, WorkerMemory::of(&memory)));
        remote.says(Word::Hello(2), Bytes::from_static(b"far")).unwrap();
        remote.look();
        assert_eq!(call(&remote).join().unwrap(), None);
        assert_eq!((remote.state(), remote.undone.load(Ordering::SeqCst)), (WorkerState::Works, 1));
        drop(permits);
        let waits = call(&remote);
        let job = remote.next().unwrap();
        remote.says(Word::Answer(true, 0), Bytes::from_static(b"right")).unwrap();
        assert_eq!(waits.join().unwrap(), Some(Bytes::from_static(b"right")));
        // The block is on its way until it is dropped.
        let whole = memory.available_permits();
        drop(job);
        assert!(memory.available_permits() > whole);
    }

    #[test]
    fn what_nobody_waits_for_any_more_is_not_sent() {
        let remote = working();
        let (one, two) = (call(&remote), call(&remote));
        while locked(&remote.waiting).len() < 2 {
            std::thread::yield_now();
        }
        // The first caller gives up before the job is sent, as after waiting too long.
        drop(locked(&remote.waiting).remove(&0));
        let (word, _) = Word::of(remote.next().unwrap()).unwrap();
        assert_eq!(word, Word::Job(Task::Finish, 1));
        remote.says(Word::Answer(true, 1), Bytes::from_static(b"right")).unwrap();
        let answers = [one, two].map(|call| call.join().unwrap());
        assert_eq!(answers.iter().flatten().count(), 1);
    }

    #[test]
    fn who_says_nonsense_is_refused() {
        let nobody = new();
        assert!(nobody.says(Word::Beat, Bytes::new()).is_err());
        assert!(nobody.says(Word::Hello(0), Bytes::from_static(b"far")).is_err());
        assert!(nobody.says(Word::Hello(2), Bytes::from_static(b"a\nb")).is_err());
        assert!(nobody.says(Word::Hello(MOST_THREADS + 1), Bytes::new()).is_err());
        let remote = working();
        assert!(remote.says(Word::Hello(2), Bytes::from_static(b"far")).is_err());
        assert!(remote.says(Word::Job(Task::Finish, 0), Bytes::new()).is_err());
    }
}
