//! One worker, as the server sees it.
//!
//! Whoever has work for it calls, and waits for the answer. If the worker is gone, has stopped or
//! gives no answer that can be right, there is none: then the caller does the work itself, so that
//! nothing is lost but time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use seekwire_flow::{Block, Filter, FilterError, Outputs, Running, Step, UnitHandle};

use crate::workers::Workers;
use crate::workers::allowance::Way;
use crate::workers::wire::{MOST, MOST_THREADS, SUFFIX, Task, Word};

/// A worker of which nothing comes for so long, not even a part of an answer, gets nothing more
/// until it does.
const SILENT: Duration = Duration::from_secs(1);

/// One that has not said who it is after that is given up.
const NAMELESS: Duration = Duration::from_secs(10);

/// What a worker is in its job with the server, which is the other process of it.
const RANK: u32 = 1;

/// So often a caller looks whether it waits in vain.
const LOOK: Duration = Duration::from_millis(100);

/// So long a worker has for a job, with those before it. One that has answered nothing meanwhile gets
/// nothing more until it does.
const LONGEST: Duration = Duration::from_secs(10);

/// It was never late.
const NEVER: u64 = u64::MAX;

/// What becomes of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It has not said who it is.
    New = 0,
    /// It works.
    Works = 1,
    /// It says nothing, or answers nothing.
    Silent = 2,
    /// It does not come back.
    Gone = 3,
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Works => "works",
            Self::Silent => "silent",
            Self::Gone => "gone",
        }
    }
}

/// Who a worker says that it is.
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

/// A worker that has come.
pub(crate) struct Remote {
    pub(crate) number: u64,
    came: Instant,
    hello: OnceLock<Hello>,
    state: AtomicU8,
    /// When it last said something, in milliseconds after it came.
    heard: AtomicU64,
    /// Of its threads, those that are given work.
    pub(crate) given: AtomicUsize,
    way: Way,
    /// Numbers of jobs.
    jobs: Mutex<Option<Sender<u64>>>,
    todo: Mutex<Receiver<u64>>,
    waiting: Mutex<HashMap<u64, Client>>,
    next: AtomicU64,
    /// Answers that it has given, and how many it had when something was asked that it did not answer
    /// in time.
    answers: AtomicU64,
    late: AtomicU64,
    /// The pipeline to it, and the unit of work that runs as long as the worker is there.
    link: Mutex<Option<(Arc<Running>, Arc<UnitHandle>)>>,
    /// Blocks that it was done with, and those that had to be done elsewhere.
    pub(crate) done: AtomicU64,
    pub(crate) undone: AtomicU64,
}

/// A worker, and how many of its threads are given work.
#[derive(Clone)]
pub(crate) struct Given {
    pub(crate) remote: Arc<Remote>,
    pub(crate) threads: usize,
}

/// Who waits for a job.
struct Client {
    answer: SyncSender<Option<Bytes>>,
    /// What the worker is to be sent; `None`: it was.
    job: Option<Bytes>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Remote {
    pub(crate) fn new(number: u64, way: Way) -> Self {
        let (jobs, todo) = mpsc::channel();
        Self {
            number,
            came: Instant::now(),
            hello: OnceLock::new(),
            state: AtomicU8::new(State::New as u8),
            heard: AtomicU64::new(0),
            given: AtomicUsize::new(0),
            way,
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

    pub(crate) fn state(&self) -> State {
        match self.state.load(Ordering::SeqCst) {
            0 => State::New,
            1 => State::Works,
            2 => State::Silent,
            _ => State::Gone,
        }
    }

    /// Changes the state, which nobody does once it is gone; true if it was another one.
    fn becomes(&self, state: State) -> bool {
        let change = |old: u8| {
            let keeps = old == State::Gone as u8 || old == state as u8;
            (!keeps).then_some(state as u8)
        };
        self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change).is_ok()
    }

    pub(crate) fn hello(&self) -> Option<&Hello> {
        self.hello.get()
    }

    /// For people.
    pub(crate) fn name(&self) -> String {
        let host = self.hello().map_or("nameless", |hello| &hello.host);
        format!("worker {} on {host}", self.number)
    }

    /// Looks whether it is still heard of, as often as its state shall be true.
    pub(crate) fn look(&self) {
        let since = Duration::from_millis(self.heard.load(Ordering::SeqCst));
        let silence = self.came.elapsed().saturating_sub(since);
        let link = locked(&self.link).as_ref().and_then(|(running, _)| running.silence(RANK));
        self.judge(silence, link.unwrap_or(silence));
    }

    /// By how long ago the last word came, and the last byte: on a slow link, the word that it is
    /// there waits behind an answer.
    fn judge(&self, silence: Duration, of_link: Duration) {
        let is_late = self.late.load(Ordering::SeqCst) == self.answers.load(Ordering::SeqCst);
        let is_silent = silence.min(of_link) > SILENT || is_late;
        match self.state() {
            State::New if self.hello().is_some() && self.becomes(State::Works) => {
                let threads = self.hello().map_or(0, |hello| hello.threads);
                tracing::info!(threads, "{} has come", self.name());
            }
            State::New if silence > NAMELESS => {
                tracing::warn!("worker {} does not say who it is", self.number);
                self.end();
            }
            State::Works if is_silent && self.becomes(State::Silent) => {
                let does = if is_late { "answers" } else { "says" };
                tracing::warn!("{} {does} nothing, and gets nothing more", self.name());
            }
            State::Silent if !is_silent && self.becomes(State::Works) => {
                tracing::info!("{} is back", self.name());
            }
            _ => {}
        }
    }

    /// The pipeline to it runs.
    pub(crate) fn begins(&self, running: &Arc<Running>, unit: &Arc<UnitHandle>) {
        *locked(&self.link) = Some((Arc::clone(running), Arc::clone(unit)));
        // Somebody may have ended it before.
        if self.state() == State::Gone {
            self.end();
        }
    }

    /// All that it is told is that there are so many workers already.
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

    /// It gets nothing more, and whoever waits for it is told so.
    pub(crate) fn end(&self) {
        self.becomes(State::Gone);
        *locked(&self.jobs) = None;
        locked(&self.waiting).clear();
        let link = locked(&self.link).take();
        if let Some((running, unit)) = link {
            running.cancel(&unit);
        }
    }

    /// Has work done; `None`: it was not, for whatever reason.
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
            tracing::error!("{}: an answer that cannot be right; it is given up", self.name());
            self.end();
            return None;
        }
        Some(answer)
    }

    fn ask(&self, task: Task, block: &Bytes) -> Option<Bytes> {
        if self.state() != State::Works || block.len() > MOST - SUFFIX {
            return None;
        }
        // What there is no memory for on the way is done here.
        let taken = self.way.take(block.len() + SUFFIX)?;
        let (began, answers) = (Instant::now(), self.answers.load(Ordering::SeqCst));
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = mpsc::sync_channel(1);
        let mut bytes = Vec::with_capacity(block.len() + SUFFIX);
        bytes.extend_from_slice(block);
        let job = Some(taken.for_block(Word::Job(task, number).behind(bytes)));
        locked(&self.waiting).insert(number, Client { answer, job });
        let is_sent = locked(&self.jobs).as_ref().is_some_and(|jobs| jobs.send(number).is_ok());
        let outcome = if is_sent { self.answer(&answered) } else { None };
        let client = locked(&self.waiting).remove(&number);
        // What was sent is answered by any that works, even if nobody waits for it any more.
        let is_sent = client.is_some_and(|client| client.job.is_none());
        if is_sent && began.elapsed() >= LONGEST {
            self.lets_wait(answers);
        }
        outcome
    }

    /// It has not answered in time what was asked when it had given so many answers.
    fn lets_wait(&self, answers: u64) {
        if self.answers.load(Ordering::SeqCst) == answers {
            self.late.store(answers, Ordering::SeqCst);
        }
    }

    /// Waits for the next job for which somebody waits; `None`: there are none any more.
    fn next(&self) -> Option<Bytes> {
        loop {
            // There is one copy and one unit, so nobody waits for this lock.
            let number = locked(&self.todo).recv().ok()?;
            let mut waiting = locked(&self.waiting);
            let job = waiting.get_mut(&number).and_then(|client| client.job.take());
            if job.is_some() {
                return job;
            }
        }
    }

    /// Waits for it while the worker works. One that says that it does, and does not answer, is
    /// not waited for: the work is done here, too.
    fn answer(&self, answered: &Receiver<Option<Bytes>>) -> Option<Bytes> {
        let since = Instant::now();
        loop {
            match answered.recv_timeout(LOOK) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout)
                    if self.state() == State::Works && since.elapsed() < LONGEST => {}
                Err(_) => return None,
            }
        }
    }

    /// What it says.
    fn says(&self, word: Word, bytes: Bytes) -> Result<(), FilterError> {
        let heard = u64::try_from(self.came.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard.store(heard, Ordering::SeqCst);
        match word {
            Word::Hello(threads) => {
                let hello = Hello::new(threads, &bytes).ok_or("it says nonsense of itself")?;
                self.hello.set(hello).map_err(|_| "it says twice who it is")?;
            }
            Word::Answer(is_done, number) if self.hello().is_some() => {
                self.answers.fetch_add(1, Ordering::SeqCst);
                // Nobody may wait any more. What it could not do is done here, which says why.
                if let Some(client) = locked(&self.waiting).remove(&number) {
                    let _ = client.answer.try_send(is_done.then_some(bytes));
                }
            }
            Word::Beat if self.hello().is_some() => {}
            _ => return Err("it says what a worker does not say".into()),
        }
        Ok(())
    }
}

/// At the server: gives the worker what callers have for it.
pub(crate) struct Jobs(pub(crate) Arc<Remote>);

impl Filter for Jobs {
    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        let Some(job) = self.0.next() else { return Ok(Step::Done) };
        out.send(0, job)?;
        Ok(Step::More)
    }
}

/// At the server: takes what the worker says.
pub(crate) struct Answers {
    pub(crate) remote: Arc<Remote>,
    pub(crate) workers: Weak<Workers>,
}

impl Filter for Answers {
    fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        let (word, bytes) = Word::of(block.into()).ok_or("a block that says nothing")?;
        let is_hello = matches!(word, Word::Hello(_));
        self.remote.says(word, bytes)?;
        if let Some(workers) = self.workers.upgrade().filter(|_| is_hello) {
            workers.look();
        }
        Ok(())
    }
}

/// What runs at the other end.
pub(crate) struct Elsewhere;

impl Filter for Elsewhere {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workers::allowance::memory;

    fn new() -> Remote {
        Remote::new(3, Way::of(&memory()))
    }

    fn working() -> Arc<Remote> {
        let remote = Arc::new(new());
        remote.says(Word::Hello(2), Bytes::from_static(b"far")).unwrap();
        remote.look();
        assert_eq!(remote.state(), State::Works);
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
        // To nobody's question.
        remote.says(Word::Answer(true, 9), Bytes::from_static(b"none")).unwrap();
        remote.says(Word::Answer(true, 0), Bytes::from_static(b"right")).unwrap();
        assert_eq!(first.join().unwrap(), Some(Bytes::from_static(b"right")));

        let failed = call(&remote);
        remote.next().unwrap();
        remote.says(Word::Answer(false, 1), Bytes::from_static(b"why")).unwrap();
        assert_eq!(failed.join().unwrap(), None);
        assert_eq!(remote.state(), State::Works);

        let wrong = call(&remote);
        remote.next().unwrap();
        remote.says(Word::Answer(true, 2), Bytes::from_static(b"wrong")).unwrap();
        assert_eq!(wrong.join().unwrap(), None);
        assert_eq!(remote.state(), State::Gone);
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
        assert!(remote.becomes(State::Silent));
        assert_eq!(waits.join().unwrap(), None);
        // What was not sent is not kept for it.
        assert!(locked(&remote.waiting).is_empty());
        // Its answer comes late, and it is back.
        remote.says(Word::Answer(true, 0), Bytes::from_static(b"late")).unwrap();
        remote.look();
        assert_eq!(remote.state(), State::Works);
    }

    #[test]
    fn who_sends_an_answer_slowly_is_not_silent() {
        let remote = working();
        let (long, short) = (10 * SILENT, SILENT / 2);
        remote.judge(long, short);
        assert_eq!(remote.state(), State::Works);
        remote.judge(long, 2 * SILENT);
        assert_eq!(remote.state(), State::Silent);
        remote.judge(long, short);
        assert_eq!(remote.state(), State::Works);
        // Who has not said who it is may say anything else for as long as it likes.
        let nameless = new();
        nameless.judge(NAMELESS + SILENT, short);
        assert_eq!(nameless.state(), State::Gone);
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
        assert_eq!(judged(), State::Works);
        let waits = call(&remote);
        remote.next().unwrap();
        remote.lets_wait(0);
        remote.says(Word::Beat, Bytes::new()).unwrap();
        assert_eq!(judged(), State::Silent);
        // Nobody waits longer for what was asked after that.
        assert_eq!(waits.join().unwrap(), None);
        assert_eq!(call(&remote).join().unwrap(), None);
        answers(0);
        assert_eq!(judged(), State::Works);
        // Something else was answered in time, so it goes on.
        answers(1);
        remote.lets_wait(1);
        assert_eq!(judged(), State::Works);
    }

    #[test]
    fn what_there_is_no_memory_for_is_not_sent() {
        let memory = memory();
        let ways: Vec<Way> = (0..4).map(|_| Way::of(&memory)).collect();
        let taken: Vec<_> = ways.iter().map(|way| way.take(64 << 20).unwrap()).collect();
        let remote = Arc::new(Remote::new(3, Way::of(&memory)));
        remote.says(Word::Hello(2), Bytes::from_static(b"far")).unwrap();
        remote.look();
        assert_eq!(call(&remote).join().unwrap(), None);
        assert_eq!((remote.state(), remote.undone.load(Ordering::SeqCst)), (State::Works, 1));
        drop(taken);
        let waits = call(&remote);
        let job = remote.next().unwrap();
        remote.says(Word::Answer(true, 0), Bytes::from_static(b"right")).unwrap();
        assert_eq!(waits.join().unwrap(), Some(Bytes::from_static(b"right")));
        // It is on its way until nobody has it.
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
        // The first one gives it up before it is sent, as one that has waited for too long.
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
