//! Workers: other processes, here or on other hosts, that share in decompressing, scaling and
//! encoding.
//!
//! ```text
//! command        the worker: `seekwire slides worker`
//! protocol       the messages between a worker and the server
//! remote         one worker, as the server sees it
//! worker_limits  limits on the resources that workers cost the server
//! launcher       how server and workers find each other in an mpiexec or srun job
//! ```
//!
//! The processes of a `seekwire-flow` job are the same from its beginning to its end, but workers
//! come and go. So each worker has a job of its own, with two processes, and a handshake that
//! admits only workers that know the secret. The set of workers determines the copies in the
//! [farms](crate::render::farm), which distribute the work: when it changes, farms start new
//! pipelines, or do without when the last worker has gone, and the old ones complete their jobs.

pub(crate) mod command;
#[cfg(test)]
mod hostile_tests;
pub(crate) mod launcher;
pub(crate) mod protocol;
pub(crate) mod remote;
pub(crate) mod worker_limits;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lru::LruCache;
use seekwire_flow::{
    Block, ClusterConfig, ConnectError, Failure, Filter, FilterError, OnRefusal, Outputs, Peer,
    Refusal, Running, StartError, Unit,
};
use seekwire_launch::Secret;
use tokio::sync::Semaphore;

use crate::render::Images;
use crate::warn_once::WarnOnce;
use protocol::{SEED, SILENCE_LIMIT, Word};
use remote::{Elsewhere, JobSource, Remote, WorkerState, WorkerThreads};
use worker_limits::{Allowed, WorkerMemory, shared_out};

/// How often the workers are checked. Farms start new pipelines at most this often.
const LOOK: Duration = Duration::from_millis(200);

/// How long to listen for a worker before listening again.
const WAIT: Duration = Duration::from_secs(3600);

/// How long a worker may take to receive the message that turns it away.
const TELL: Duration = Duration::from_secs(2);

/// How long ending the workers' sessions may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// Maximum hosts remembered in order to log each refusal once.
const HOSTS: usize = 256;

/// Why the handshake may fail.
pub(crate) const OTHER: &str = "it has another secret, is of another version, or the address by \
    which the worker reaches the server is not one of the server's own";

/// Pause after a failure to listen for workers.
const PAUSE: Duration = Duration::from_secs(1);

/// The workers of a server.
pub(crate) struct Workers {
    address: SocketAddr,
    most: Allowed,
    /// Memory for blocks on their way to them.
    memory: Arc<Semaphore>,
    state: Mutex<WorkerRegistry>,
    change: Condvar,
}

#[derive(Default)]
struct WorkerRegistry {
    remotes: Vec<Arc<Remote>>,
    is_over: bool,
    /// True if there is a change to process.
    is_new: bool,
    come: u64,
    gone: u64,
}

impl Workers {
    /// Admits workers that know the secret until [`end`](Self::end), up to the allowed number, and
    /// gives work to the allowed number of their threads.
    ///
    /// # Errors
    ///
    /// There are no threads for it.
    pub(crate) fn start(
        listener: TcpListener,
        secret: Secret,
        most: Allowed,
        images: Arc<Images>,
    ) -> Result<Arc<Self>> {
        let address = listener.local_addr().context("the address for workers")?;
        let (memory, state, change) = (worker_limits::memory(), Mutex::default(), Condvar::new());
        let workers = Arc::new(Self { address, most, memory, state, change });
        let (accepts, watches) = (Arc::clone(&workers), Arc::clone(&workers));
        spawn("workers", move || accepts.accept(&listener, &secret))?;
        spawn("workers.watch", move || watches.watch(&images))?;
        Ok(workers)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Maximum threads of workers that are given work.
    pub(crate) fn threads(&self) -> usize {
        self.most.threads
    }

    fn state(&self) -> MutexGuard<'_, WorkerRegistry> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current workers, and how many have come and gone since the start.
    pub(crate) fn all(&self) -> (Vec<Arc<Remote>>, u64, u64) {
        let state = self.state();
        (state.remotes.clone(), state.come, state.gone)
    }

    /// Admits no more workers, and ends the sessions of the current ones. Waits briefly until they
    /// have been notified.
    pub(crate) fn end(&self) {
        let until = Instant::now() + FAREWELL;
        let mut state = self.state();
        state.is_over = true;
        let remotes = state.remotes.clone();
        drop(state);
        self.change.notify_all();
        remotes.iter().for_each(|remote| remote.end());
        let mut state = self.state();
        while !state.remotes.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.change.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Signals a change.
    pub(crate) fn look(&self) {
        self.state().is_new = true;
        self.change.notify_all();
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener, secret: &Secret) {
        let refusals = refusals();
        let mut is_told = false;
        for number in 1.. {
            if self.state().is_over {
                return;
            }
            let remote = Arc::new(Remote::new(number, WorkerMemory::of(&self.memory)));
            let come = self.connect(listener, secret, &remote, &refusals);
            match come {
                Ok(running) => {
                    // The worker counts before another one is admitted.
                    let mut state = self.state();
                    if state.remotes.len() >= self.most.workers {
                        drop(state);
                        if !std::mem::replace(&mut is_told, true) {
                            tracing::warn!("{}", too_many(self.most.workers));
                        }
                        self.turn_away(&remote, &running);
                        continue;
                    }
                    is_told = false;
                    state.remotes.push(Arc::clone(&remote));
                    state.come += 1;
                    drop(state);
                    let running = Arc::new(running);
                    let (workers, its) = (Arc::clone(self), Arc::clone(&remote));
                    let goes_on = Arc::clone(&running);
                    let run = spawn("worker", move || workers.run(&its, goes_on));
                    if let Err(error) = run {
                        tracing::error!("a worker was turned away: {error:#}");
                        running.finish();
                        running.wait_for_links();
                        self.goes(&remote);
                    }
                }
                Err(StartError::Connect(
                    ConnectError::Missing { .. } | ConnectError::CalledOff(_),
                )) => {}
                Err(error) => {
                    tracing::error!("no worker can come: {error}");
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Waits for the next worker.
    fn connect(
        self: &Arc<Self>,
        listener: &TcpListener,
        secret: &Secret,
        remote: &Arc<Remote>,
        refusals: &Arc<OnRefusal>,
    ) -> Result<Running, StartError> {
        let (asks, hears) = (Arc::clone(remote), Arc::clone(remote));
        let workers = Arc::downgrade(self);
        let graph = protocol::graph([
            Arc::new(move || Box::new(JobSource(Arc::clone(&asks))) as Box<dyn Filter>),
            Arc::new(|| Box::new(Elsewhere)),
            Arc::new(|| Box::new(Elsewhere)),
            Arc::new(move || {
                let (remote, workers) = (Arc::clone(&hears), workers.clone());
                Box::new(AnswerSink { remote, workers })
            }),
        ])?;
        let own = Peer { host: "the server".to_owned(), addresses: vec![self.address] };
        let other = Peer { host: "a worker".to_owned(), addresses: Vec::new() };
        let asked = Arc::downgrade(self);
        let is_over = move || {
            let is_over = asked.upgrade().is_none_or(|workers| workers.state().is_over);
            is_over.then(|| "the server is shutting down".to_owned())
        };
        let job = ClusterConfig {
            rank: 0,
            peers: vec![own, other],
            listener: listener.try_clone().map_err(|error| StartError::Connect(listen(error)))?,
            secret: *secret.as_bytes(),
            limit: WAIT,
            patience: SILENCE_LIMIT,
            called_off: Some(Arc::new(is_over)),
        };
        graph.start_and_tell(&job, SEED, Some(Arc::clone(refusals)))
    }

    /// Informs a worker for which there is no capacity, and ends its session. Others wait
    /// meanwhile, so turning away any number of workers costs no more than one.
    fn turn_away(&self, remote: &Remote, running: &Running) {
        remote.turn_away(self.most.workers);
        let unit = Unit::new("").deadline(Instant::now() + TELL).expires();
        // A worker that does not read misses the message.
        let _ = running.submit(unit).wait();
        running.finish();
        running.wait_for_links();
    }

    /// Runs the session of a worker.
    fn run(&self, remote: &Arc<Remote>, running: Arc<Running>) {
        let unit = Arc::new(running.submit(Unit::new("")));
        remote.begins(&running, &unit);
        if self.state().is_over {
            remote.end();
        }
        let outcome = unit.wait();
        let was = remote.state();
        remote.end();
        self.look();
        let is_over = self.state().is_over;
        match outcome {
            Ok(_) | Err(Failure::Stopped | Failure::Cancelled) => {}
            Err(_) if is_over || was == WorkerState::Gone => {}
            Err(Failure::Lost { why, .. }) => {
                tracing::warn!("{} is gone: {why}; others do its work", remote.name());
            }
            Err(failure) => tracing::error!("{} is given up: {failure}", remote.name()),
        }
        running.finish();
        // While the connection exists, the worker takes threads and memory here, and counts.
        running.wait_for_links();
        drop((unit, running));
        self.goes(remote);
    }

    fn goes(&self, remote: &Arc<Remote>) {
        let mut state = self.state();
        state.remotes.retain(|other| !Arc::ptr_eq(other, remote));
        state.gone += 1;
        drop(state);
        self.look();
    }

    /// Keeps the copies of the farms in line with the workers.
    fn watch(&self, images: &Images) {
        let mut in_use: Vec<(u64, usize)> = Vec::new();
        // The last set of workers for which there were not enough threads.
        let mut refused = in_use.clone();
        let (mut changed, warnings) = (None::<Instant>, WarnOnce::default());
        loop {
            let mut state = self.state();
            if !state.is_new && !state.is_over {
                let waited = self.change.wait_timeout(state, LOOK);
                (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            }
            if state.is_over {
                return;
            }
            state.is_new = false;
            let mut remotes = state.remotes.clone();
            drop(state);
            remotes.iter().for_each(|remote| remote.look());
            let all = remotes.clone();
            remotes.retain(|remote| remote.state() == WorkerState::Works);
            let assigned = self.share_out(&remotes, &warnings);
            let now: Vec<(u64, usize)> =
                assigned.iter().map(|one| (one.remote.number, one.threads)).collect();
            // A worker that comes and goes repeatedly must not keep the server busy.
            let is_early = changed.is_some_and(|changed| changed.elapsed() < LOOK);
            if now == in_use || is_early || images.is_changing() {
                continue;
            }
            match images.work_with(&assigned) {
                Ok(()) => {
                    for remote in all {
                        let its = assigned.iter().find(|one| Arc::ptr_eq(&one.remote, &remote));
                        let threads = its.map_or(0, |one| one.threads);
                        remote.assigned.store(threads, Ordering::SeqCst);
                    }
                    (in_use, refused, changed) = (now, Vec::new(), Some(Instant::now()));
                }
                // There may be enough threads the next time.
                Err(error) => {
                    if now != refused {
                        tracing::error!("the workers stay as they were: {error:#}");
                        refused = now;
                    }
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    /// The workers that are given work, and with how many threads. If some threads get none, this
    /// is logged once.
    fn share_out(&self, remotes: &[Arc<Remote>], warnings: &WarnOnce) -> Vec<WorkerThreads> {
        let threads = |remote: &Arc<Remote>| remote.hello().map_or(0, |hello| hello.threads);
        let offered: Vec<usize> = remotes.iter().map(threads).collect();
        let most = self.most.threads;
        if offered.iter().sum::<usize>() > most {
            warnings.warn(format!(
                "workers have more than {most} threads: the others get no work (--worker-threads)"
            ));
        }
        warnings.sweep();
        let assigned = shared_out(most, &offered);
        // A worker that gets no work does not affect the farms.
        let assigned = remotes.iter().zip(assigned).filter(|(_, threads)| *threads > 0);
        assigned
            .map(|(remote, threads)| WorkerThreads { remote: Arc::clone(remote), threads })
            .collect()
    }
}

/// At the server: receives the messages of the worker.
struct AnswerSink {
    remote: Arc<Remote>,
    workers: Weak<Workers>,
}

impl Filter for AnswerSink {
    fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        let (word, bytes) = Word::of(block.into()).ok_or("an invalid message")?;
        let is_hello = matches!(word, Word::Hello(_));
        self.remote.says(word, bytes)?;
        if let Some(workers) = self.workers.upgrade().filter(|_| is_hello) {
            workers.look();
        }
        Ok(())
    }
}

/// The message that the maximum number of workers has been reached, with advice.
pub(crate) fn too_many(most: usize) -> String {
    format!(
        "there are {most} workers, as many as the server lets come: another one is sent away, and \
         tries again; start fewer processes, each with more --threads"
    )
}

/// Logs refused workers, once per host.
fn refusals() -> Arc<OnRefusal> {
    let hosts = Mutex::new(LruCache::new(NonZeroUsize::MIN.saturating_add(HOSTS)));
    Arc::new(move |from: SocketAddr, why: &Refusal| {
        // A port scanner is not a worker.
        if *why != Refusal::NoProof {
            return tracing::debug!("{from} is no worker: {why:?}");
        }
        let mut hosts = hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.put(from.ip(), ()).is_none() {
            tracing::warn!("a worker at {} is not let in: {OTHER}", from.ip());
        }
    })
}

fn listen(error: io::Error) -> ConnectError {
    ConnectError::Listen(error)
}

/// Starts a detached thread.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map(drop).context("no thread for workers")
}
