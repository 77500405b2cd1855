//! A running pipeline: its threads, and its public interface.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use thiserror::Error;

use crate::build::Built;
use crate::copy::Copy;
use crate::expiry::Expiry;
use crate::graph::Graph;
use crate::graph_error::GraphError;
use crate::guarantee::GuaranteeReport;
use crate::late::Looker;
use crate::meter::{Meter, Phase};
use crate::observer::Watch;
use crate::remote::meet::{self, Job, MeetError, Refusals};
use crate::remote::node::Node;
use crate::report::{CopyReport, Failure, StreamReport};
use crate::shared::{Feed, Shared};
use crate::stream::Stream;
use crate::unit::{Unit, UnitHandle, Units};
use crate::wakeup::Wakeup;

/// Why a pipeline does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The pipeline has a mistake.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The other processes were not reached.
    #[error(transparent)]
    Meet(#[from] MeetError),
    /// The system has no thread for a copy.
    #[error("no thread for a copy of filter {filter}: {error}")]
    Thread {
        /// The filter.
        filter: Arc<str>,
        /// The error of the system.
        error: io::Error,
    },
    /// No thread to look after late copies either.
    #[error("no thread to look after stream {stream}: {error}")]
    LookerThread {
        /// The stream to these copies.
        stream: Arc<str>,
        /// The error of the system.
        error: io::Error,
    },
    /// No thread for a link to another process either.
    #[error("no thread for a link to another process: {0}")]
    LinkThread(io::Error),
}

/// A running pipeline, with a thread for each copy of each filter. It stops when this is dropped,
/// which waits for filter calls in progress.
pub struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    copies: Arc<Vec<Known>>,
    /// The threads that look after late copies.
    lookers: Vec<Arc<Wakeup>>,
    node: Option<Arc<Node>>,
    expiry: Expiry,
    senders: Mutex<Vec<JoinHandle<()>>>,
    listeners: Mutex<Vec<JoinHandle<()>>>,
    /// Names of all filters and streams, in the order of the pipeline.
    filters: Vec<Arc<str>>,
    streams: Vec<Arc<str>>,
}

/// A copy in this process.
struct Known {
    /// Number among all copies of all filters.
    number: usize,
    filter: Arc<str>,
    copy: usize,
    meter: Arc<Meter>,
    wakeup: Arc<Wakeup>,
}

impl Graph {
    /// Starts all copies in this process, which wait for units of work.
    ///
    /// # Errors
    ///
    /// If the pipeline has a mistake, or there are no threads for it.
    pub fn start(mut self) -> Result<Running, StartError> {
        self.check()?;
        self.check_places(1)?;
        let built = Built::new(&self, 0, &[]);
        self.run(built, None)
    }

    /// Starts the copies that are [placed](Graph::place) on this process, and connects them with
    /// those in the others. Each process does the same, with the same pipeline; `seed` is anything
    /// else that has to be the same everywhere, such as the text that the pipeline was made from.
    ///
    /// # Errors
    ///
    /// As [`Graph::start`]; or if another process was not reached within the limit, or does not know
    /// the secret.
    pub fn start_in(self, job: &Job, seed: &[u8]) -> Result<Running, StartError> {
        self.start_and_tell(job, seed, None)
    }

    /// The same, and reports each failed attempt to meet another process.
    ///
    /// # Errors
    ///
    /// As [`start_in`](Self::start_in).
    pub fn start_and_tell(
        mut self,
        job: &Job,
        seed: &[u8],
        refusals: Option<Arc<Refusals>>,
    ) -> Result<Running, StartError> {
        self.check()?;
        self.check_places(job.peers.len())?;
        let links = meet::meet(job, self.digest(seed), refusals)?;
        let built = Built::new(&self, job.rank, &links);
        let hosts = job.peers.iter().map(|peer| peer.host.as_str().into()).collect();
        let node = Arc::new(Node::new(built.parts(&self, job.rank, hosts, links)));
        self.run(built, Some(node))
    }

    fn run(self, built: Built, node: Option<Arc<Node>>) -> Result<Running, StartError> {
        let rank = node.as_ref().map_or(0, |node| node.rank);
        let is_source = |at: &usize| self.filters[*at].ports.inputs.is_empty();
        let sources = (0..self.filters.len()).filter(is_source);
        let fed: Vec<(usize, usize)> = sources
            .flat_map(|at| self.filters[at].copies_in(rank).map(move |copy| (at, copy)))
            .collect();
        let feeds: Vec<Arc<Feed>> = fed.iter().map(|_| Arc::default()).collect();
        let shared = Arc::new(Shared {
            units: Units::new(self.guarantee),
            streams: built.homes.iter().flatten().cloned().collect(),
            feeds: feeds.clone(),
            is_stopped: AtomicBool::new(false),
            node: node.clone().map(Into::into).unwrap_or_default(),
            broken: OnceLock::new(),
        });
        let places: Vec<(usize, usize)> = (0..self.filters.len())
            .flat_map(|at| self.filters[at].copies_in(rank).map(move |copy| (at, copy)))
            .collect();
        let first =
            |at: usize| self.filters[..at].iter().map(|filter| filter.copies).sum::<usize>();
        let known = |(at, copy): &(usize, usize)| Known {
            number: first(*at) + copy,
            filter: Arc::clone(&self.filters[*at].name),
            copy: *copy,
            meter: Arc::new(Meter::new()),
            wakeup: Arc::default(),
        };
        let copies: Arc<Vec<Known>> = Arc::new(places.iter().map(known).collect());
        let mut running = Running {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
            copies: Arc::clone(&copies),
            lookers: Vec::new(),
            node: node.clone(),
            expiry: Expiry::default(),
            senders: Mutex::default(),
            listeners: Mutex::default(),
            filters: self.filters.iter().map(|filter| Arc::clone(&filter.name)).collect(),
            streams: self.streams.iter().map(|stream| stream.name.as_str().into()).collect(),
        };
        for ((at, index), known) in places.into_iter().zip(copies.iter()) {
            let filter = &self.filters[at];
            let feed = fed.iter().position(|fed| *fed == (at, index));
            let copy = Copy {
                filter: Arc::clone(&filter.name),
                index,
                factory: Arc::clone(&filter.factory),
                inputs: built.inputs(&self, at),
                outlets: built.outlets(&self, at),
                feed: feed.map(|at| Arc::clone(&feeds[at])),
                meter: Arc::clone(&known.meter),
                watch: Watch { observer: self.observer.clone(), copy: known.number },
                wakeup: Arc::clone(&known.wakeup),
                shared: Arc::clone(&shared),
                is_blockwise: filter.is_blockwise,
                on_error: filter.on_error,
                on_reject: self.on_reject.clone(),
            };
            let thread = Builder::new().name(format!("{}.{index}", filter.name));
            let thread = thread
                .spawn(move || copy.run())
                .map_err(|error| StartError::Thread { filter: Arc::clone(&filter.name), error })?;
            known.wakeup.belongs_to(thread.thread().clone());
            running.threads.push(thread);
        }
        for (stream, next) in built.looked_after {
            let Some(own) = stream.looker.clone() else { continue };
            let name = Arc::clone(&stream.name);
            let filter = Arc::clone(&self.filters[self.streams[stream.number()].to.0].name);
            let looker = Looker { stream, filter, next, shared: Arc::clone(&shared) };
            let rung = Arc::clone(&own);
            let thread = Builder::new().name("late".to_owned()).spawn(move || looker.run(&rung));
            let thread =
                thread.map_err(|error| StartError::LookerThread { stream: name, error })?;
            own.belongs_to(thread.thread().clone());
            running.threads.push(thread);
            running.lookers.push(own);
        }
        if let Some(node) = &node {
            let (shared, about) = (Arc::downgrade(&shared), Arc::downgrade(node));
            let report = move || match (shared.upgrade(), about.upgrade()) {
                (Some(shared), Some(node)) => {
                    (copies_of(&copies, Some(&node)), streams_of(&shared))
                }
                _ => Default::default(),
            };
            let threads = node.start(&running.shared, report).map_err(StartError::LinkThread)?;
            [running.senders, running.listeners] = threads.map(Mutex::new);
        }
        Ok(running)
    }
}

fn copies_of(copies: &[Known], node: Option<&Arc<Node>>) -> Vec<CopyReport> {
    let report = |known: &Known| {
        let times = known.meter.read();
        CopyReport {
            filter: Arc::clone(&known.filter),
            copy: known.copy,
            process: node.map_or(0, |node| node.rank),
            host: node.map(|node| node.host()),
            busy: times.of(Phase::Busy),
            starved: times.of(Phase::Starved),
            blocked: times.of(Phase::Blocked),
            blocks: times.blocks,
            bytes: times.bytes,
            rejected: times.rejected,
        }
    };
    copies.iter().map(report).collect()
}

fn streams_of(shared: &Shared) -> Vec<StreamReport> {
    let homes = shared.streams.iter().map(|stream: &Arc<Stream>| stream.report());
    let node = shared.node.get().into_iter();
    let outlets =
        node.flat_map(|node| node.outlets.iter().flatten().filter_map(|one| one.report()));
    homes.chain(outlets).collect()
}

impl Running {
    /// Submits a unit of work. Several may be under way at once. If several processes run the
    /// pipeline, units are submitted at [the front](Running::is_front).
    ///
    /// # Panics
    ///
    /// In a process that is not the front.
    #[must_use = "only waiting tells whether the unit was done"]
    pub fn submit(&self, unit: Unit) -> UnitHandle {
        assert!(self.is_front(), "units are submitted in the process of rank 0");
        let expires = unit.expires;
        let handle = match &self.node {
            Some(node) => node.submit(&self.shared, unit),
            None => {
                let open = self.shared.units.begin(unit, vec![self.copies.len()]);
                self.shared.feeds.iter().for_each(|feed| feed.add(Arc::clone(&open)));
                UnitHandle { open }
            }
        };
        self.shared.has_begun(handle.id());
        if let Some(deadline) = handle.open.deadline().filter(|_| expires) {
            self.expiry.add(&self.shared, handle.id(), deadline);
        }
        handle
    }

    /// Ends a unit, if it is not done: everything under way for it is dropped.
    pub fn cancel(&self, unit: &UnitHandle) {
        self.shared.end_early(unit.id(), Failure::Cancelled);
    }

    /// How well the [guarantee](Graph::guarantee) was kept until now; `None` if there is none, no
    /// unit has ended yet, or this is not the front.
    #[must_use]
    pub fn guarantee(&self) -> Option<GuaranteeReport> {
        self.shared.units.keeper.as_ref()?.report()
    }

    /// Whether units are submitted here.
    #[must_use]
    pub fn is_front(&self) -> bool {
        self.node.as_ref().is_none_or(|node| node.is_front())
    }

    /// In a process that is not the front: takes part until the front has stopped the pipeline. At
    /// the front it returns at once.
    ///
    /// # Errors
    ///
    /// [`Failure::Lost`]: the front, or another process that the pipeline cannot do without, is
    /// gone; or this one was given up.
    pub fn serve(&self) -> Result<(), Failure> {
        match &self.node {
            Some(node) if !node.is_front() => node.wait(),
            _ => Ok(()),
        }
    }

    /// Waits for the loss of another process that the pipeline does without, after the first
    /// `known` ones; `None` if there will be none.
    #[must_use]
    pub fn next_loss(&self, known: usize) -> Option<Failure> {
        self.node.as_ref().and_then(|node| node.next_loss(known))
    }

    /// How long ago the last byte of another process arrived, even if only of a block that a slow
    /// link has not delivered completely; `None` if that is this process, or there is none of that
    /// rank.
    #[must_use]
    pub fn silence(&self, rank: u32) -> Option<Duration> {
        self.node.as_ref()?.silence(rank)
    }

    /// Ends all units, and at the front also the other processes. It does not wait for filter calls
    /// in progress, as dropping does, nor for the other processes to end. One that goes on sending
    /// is cut off after the [patience](Job::patience).
    pub fn finish(&self) {
        for unit in self.shared.units.all() {
            self.shared.end_early(unit, Failure::Stopped);
        }
        if let Some(node) = &self.node {
            node.finish();
        }
        let senders = taken(&self.senders);
        if let Some(node) = self.node.as_ref().filter(|_| !senders.is_empty()) {
            node.see_off();
        }
        for sender in senders {
            let _ = sender.join();
        }
    }

    /// Waits, after [`finish`](Running::finish), until the links have closed: until the other
    /// processes have also ended theirs, or were cut off.
    pub fn wait_for_links(&self) {
        for listener in taken(&self.listeners) {
            let _ = listener.join();
        }
    }

    /// How each copy has spent its time until now. The front asks the other processes, and waits
    /// for their answers for two seconds at most; elsewhere only the copies here are reported.
    #[must_use]
    pub fn copies(&self) -> Vec<CopyReport> {
        self.report().0
    }

    /// The traffic of each stream until now; as [`Running::copies`].
    #[must_use]
    pub fn streams(&self) -> Vec<StreamReport> {
        self.report().1
    }

    /// Both, at the same moment.
    #[must_use]
    pub fn report(&self) -> (Vec<CopyReport>, Vec<StreamReport>) {
        let mut copies = copies_of(&self.copies, self.node.as_ref());
        let mut streams = streams_of(&self.shared);
        if let Some(node) = self.node.as_ref().filter(|node| node.is_front()) {
            for (more, others) in node.ask() {
                copies.extend(more);
                streams.extend(others);
            }
        }
        let place = |of: &[Arc<str>], name: &Arc<str>| of.iter().position(|known| known == name);
        copies.sort_by_key(|copy| (place(&self.filters, &copy.filter), copy.copy));
        let mut streams = joined(streams);
        streams.sort_by_key(|stream| place(&self.streams, &stream.name));
        (copies, streams)
    }
}

/// Threads that were not joined yet.
fn taken(threads: &Mutex<Vec<JoinHandle<()>>>) -> Vec<JoinHandle<()>> {
    std::mem::take(&mut *threads.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Joins the reports of each stream whose blocks several processes deal.
fn joined(streams: Vec<StreamReport>) -> Vec<StreamReport> {
    let mut places: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    let mut all: Vec<StreamReport> = Vec::new();
    for stream in streams {
        match places.get(&stream.name) {
            Some(at) => {
                let known = &mut all[*at];
                // The numbers come from other processes, so they may overflow.
                known.blocks = known.blocks.saturating_add(stream.blocks);
                known.bytes = known.bytes.saturating_add(stream.bytes);
                known.held = known.held.saturating_add(stream.held);
                known.peak = known.peak.saturating_add(stream.peak);
                known.limit = known.limit.saturating_add(stream.limit);
                known.hedged = known.hedged.saturating_add(stream.hedged);
                known.hedges_won = known.hedges_won.saturating_add(stream.hedges_won);
                known.block = known.block.take().or(stream.block);
                if known.copies.is_empty() {
                    known.copies = stream.copies;
                }
            }
            None => {
                places.insert(Arc::clone(&stream.name), all.len());
                all.push(stream);
            }
        }
    }
    all
}

impl Drop for Running {
    fn drop(&mut self) {
        for unit in self.shared.units.all() {
            self.shared.end_early(unit, Failure::Stopped);
        }
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        self.copies.iter().for_each(|known| known.wakeup.ring());
        self.lookers.iter().for_each(|looker| looker.ring());
        for thread in self.threads.drain(..) {
            // Panics are caught before they get here.
            let _ = thread.join();
        }
        self.finish();
    }
}
