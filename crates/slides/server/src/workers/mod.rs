//! Workers: other processes, here or on other hosts, that decompress, scale and encode, too.
//!
//! ```text
//! command    the worker: `seekwire slides worker`
//! wire       what goes between a worker and the server
//! remote     one worker, as the server sees it
//! allowance  what workers may make the server spend
//! launched   how both find each other in a job of mpiexec or srun
//! ```
//!
//! The processes of a job of `seekwire-flow` are the same from its beginning to its end, and here
//! they come and go. So each worker has a job of its own, of two processes, whose meeting lets in
//! whoever knows the secret and nobody else. Which workers there are decides of what copies the
//! [farms](crate::render::farm) consist, which deal the work: when one comes or goes, they begin
//! anew, and what was begun before is done to its end.

pub(crate) mod allowance;
pub(crate) mod command;
#[cfg(test)]
mod hostile_tests;
pub(crate) mod launched;
pub(crate) mod remote;
pub(crate) mod wire;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lru::LruCache;
use seekwire_flow::{
    Failure, Filter, Job, MeetError, Peer, Refusal, Refusals, Running, StartError, Unit,
};
use seekwire_launch::Secret;
use tokio::sync::Semaphore;

use crate::render::Images;
use crate::told::Told;
use allowance::{Allowed, Way, shared_out};
use remote::{Answers, Elsewhere, Given, Jobs, Remote, State};
use wire::{PATIENCE, SEED};

/// So often it is looked whether they are heard of. When they come and go, farms begin anew no more
/// often.
const LOOK: Duration = Duration::from_millis(200);

/// After so long without anybody who comes, waiting begins anew.
const WAIT: Duration = Duration::from_secs(3600);

/// So long a worker for which there is no place may take to hear that.
const TELL: Duration = Duration::from_secs(2);

/// So long it may take to send workers home.
const FAREWELL: Duration = Duration::from_secs(2);

/// Hosts of which it is known that this was told of them.
const HOSTS: usize = 256;

/// Why one end does not believe the other.
pub(crate) const OTHER: &str = "it has another secret, is of another version, or the address by \
    which the worker reaches the server is not one of the server's own";

/// Before somebody is waited for again, where that has failed.
const PAUSE: Duration = Duration::from_secs(1);

/// The workers of a server.
pub(crate) struct Workers {
    address: SocketAddr,
    most: Allowed,
    /// For what is on its way to them.
    memory: Arc<Semaphore>,
    state: Mutex<Known>,
    change: Condvar,
}

#[derive(Default)]
struct Known {
    remotes: Vec<Arc<Remote>>,
    is_over: bool,
    /// Somebody has something to see.
    is_new: bool,
    come: u64,
    gone: u64,
}

impl Workers {
    /// Lets in who comes and knows the secret, until [`end`](Self::end), but no more than so many, and
    /// gives work to so many threads of all of them.
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
        let (memory, state, change) = (allowance::memory(), Mutex::default(), Condvar::new());
        let workers = Arc::new(Self { address, most, memory, state, change });
        let (accepts, watches) = (Arc::clone(&workers), Arc::clone(&workers));
        spawn("workers", move || accepts.accept(&listener, &secret))?;
        spawn("workers.watch", move || watches.watch(&images))?;
        Ok(workers)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Threads of workers that are given work at most.
    pub(crate) fn threads(&self) -> usize {
        self.most.threads
    }

    fn state(&self) -> MutexGuard<'_, Known> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are there, and how many have come and gone since the start.
    pub(crate) fn all(&self) -> (Vec<Arc<Remote>>, u64, u64) {
        let state = self.state();
        (state.remotes.clone(), state.come, state.gone)
    }

    /// Nobody is let in any more, and all that are there are sent home. Waits until they have been
    /// told so, but not for long.
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

    /// Something has changed.
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
            let remote = Arc::new(Remote::new(number, Way::of(&self.memory)));
            let come = self.meet(listener, secret, &remote, &refusals);
            match come {
                Ok(running) => {
                    // Before another one is let in, it counts.
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
                        tracing::error!("a worker is sent home: {error:#}");
                        running.finish();
                        running.wait_for_links();
                        self.goes(&remote);
                    }
                }
                Err(StartError::Meet(MeetError::Missing { .. } | MeetError::CalledOff(_))) => {}
                Err(error) => {
                    tracing::error!("no worker can come: {error}");
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Waits for the next one.
    fn meet(
        self: &Arc<Self>,
        listener: &TcpListener,
        secret: &Secret,
        remote: &Arc<Remote>,
        refusals: &Arc<Refusals>,
    ) -> Result<Running, StartError> {
        let (asks, hears) = (Arc::clone(remote), Arc::clone(remote));
        let workers = Arc::downgrade(self);
        let graph = wire::graph([
            Arc::new(move || Box::new(Jobs(Arc::clone(&asks))) as Box<dyn Filter>),
            Arc::new(|| Box::new(Elsewhere)),
            Arc::new(|| Box::new(Elsewhere)),
            Arc::new(move || {
                let (remote, workers) = (Arc::clone(&hears), workers.clone());
                Box::new(Answers { remote, workers })
            }),
        ])?;
        let own = Peer { host: "the server".to_owned(), addresses: vec![self.address] };
        let other = Peer { host: "a worker".to_owned(), addresses: Vec::new() };
        let asked = Arc::downgrade(self);
        let is_over = move || {
            let is_over = asked.upgrade().is_none_or(|workers| workers.state().is_over);
            is_over.then(|| "the server ends".to_owned())
        };
        let job = Job {
            rank: 0,
            peers: vec![own, other],
            listener: listener.try_clone().map_err(|error| StartError::Meet(listen(error)))?,
            secret: *secret.as_bytes(),
            limit: WAIT,
            patience: PATIENCE,
            called_off: Some(Arc::new(is_over)),
        };
        graph.start_and_tell(&job, SEED, Some(Arc::clone(refusals)))
    }

    /// Tells a worker for which there is no place that it is so, and sends it home. Whoever comes
    /// next waits meanwhile, so this costs no more than one worker does, however many come.
    fn turn_away(&self, remote: &Remote, running: &Running) {
        remote.turn_away(self.most.workers);
        let unit = Unit::new("").deadline(Instant::now() + TELL).expires();
        // One that does not listen is not told.
        let _ = running.submit(unit).wait();
        running.finish();
        running.wait_for_links();
    }

    /// A worker is there, until it goes.
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
            Err(_) if is_over || was == State::Gone => {}
            Err(Failure::Lost { why, .. }) => {
                tracing::warn!("{} is gone: {why}; others do its work", remote.name());
            }
            Err(failure) => tracing::error!("{} is given up: {failure}", remote.name()),
        }
        running.finish();
        // As long as it speaks, whatever it was told, it takes threads and memory here, and counts.
        running.wait_for_links();
        drop((unit, running));
        self.goes(remote);
    }

    fn goes(&self, remote: &Arc<Remote>) {
        let mut state = self.state();
        state.remotes.retain(|known| !Arc::ptr_eq(known, remote));
        state.gone += 1;
        drop(state);
        self.look();
    }

    /// Keeps the farms as the workers are.
    fn watch(&self, images: &Images) {
        let mut known: Vec<(u64, usize)> = Vec::new();
        // Of whom it was told that there is not enough for them.
        let mut refused = known.clone();
        let (mut changed, told) = (None::<Instant>, Told::default());
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
            remotes.retain(|remote| remote.state() == State::Works);
            let given = self.share_out(&remotes, &told);
            let now: Vec<(u64, usize)> =
                given.iter().map(|one| (one.remote.number, one.threads)).collect();
            // One that comes and goes again and again shall not keep the server at that.
            let is_early = changed.is_some_and(|changed| changed.elapsed() < LOOK);
            if now == known || is_early || images.is_changing() {
                continue;
            }
            match images.work_with(&given) {
                Ok(()) => {
                    for remote in all {
                        let its = given.iter().find(|one| Arc::ptr_eq(&one.remote, &remote));
                        let threads = its.map_or(0, |one| one.threads);
                        remote.given.store(threads, Ordering::SeqCst);
                    }
                    (known, refused, changed) = (now, Vec::new(), Some(Instant::now()));
                }
                // There may be threads the next time.
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

    /// Those that are given work, and how many threads of each. That these are not all is told once.
    fn share_out(&self, remotes: &[Arc<Remote>], told: &Told) -> Vec<Given> {
        let threads = |remote: &Arc<Remote>| remote.hello().map_or(0, |hello| hello.threads);
        let offered: Vec<usize> = remotes.iter().map(threads).collect();
        let most = self.most.threads;
        if offered.iter().sum::<usize>() > most {
            told.warn(format!(
                "workers have more than {most} threads: the others get no work (--worker-threads)"
            ));
        }
        told.sweep();
        let given = shared_out(most, &offered);
        // For one that gets nothing, nothing changes.
        let given = remotes.iter().zip(given).filter(|(_, threads)| *threads > 0);
        given.map(|(remote, threads)| Given { remote: Arc::clone(remote), threads }).collect()
    }
}

/// That there are as many workers as there may be, and what to do.
pub(crate) fn too_many(most: usize) -> String {
    format!(
        "there are {most} workers, as many as the server lets come: another one is sent away, and \
         tries again; start fewer processes, each with more --threads"
    )
}

/// Tells of each host once that a worker there is not let in.
fn refusals() -> Arc<Refusals> {
    let known = Mutex::new(LruCache::new(NonZeroUsize::MIN.saturating_add(HOSTS)));
    Arc::new(move |from: SocketAddr, why: &Refusal| {
        // Who looks for open ports is no worker.
        if *why != Refusal::NoProof {
            return tracing::debug!("{from} is no worker: {why:?}");
        }
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.put(from.ip(), ()).is_none() {
            tracing::warn!("a worker at {} is not let in: {OTHER}", from.ip());
        }
    })
}

fn listen(error: io::Error) -> MeetError {
    MeetError::Listen(error)
}

/// A thread that nobody waits for.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map(drop).context("no thread for workers")
}
