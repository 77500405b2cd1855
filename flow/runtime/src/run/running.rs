//! A running pipeline: its threads, and its public interface.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use thiserror::Error;

use crate::memory::wakeup::Wakeup;
use crate::policy::guarantee::GuaranteeReport;
use crate::remote::connect::{self, ClusterConfig, ConnectError, OnRefusal};
use crate::remote::node::Node;
use crate::run::copy::FilterCopy;
use crate::run::expiry::Expiry;
use crate::run::graph::Graph;
use crate::run::graph_error::GraphError;
use crate::run::local_streams::Built;
use crate::run::meter::{Meter, Phase};
use crate::stream::feed::Feed;
use crate::stream::local_pipeline::{LocalPipeline, Others};
use crate::stream::observer::CopyObserver;
use crate::stream::owned::Stream;
use crate::stream::report::{CopyReport, Failure, StreamReport};
use crate::stream::unit::{Unit, UnitHandle, Units};

/// Why a pipeline does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The pipeline has a mistake.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The other processes were not reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The system has no thread for a copy.
    #[error("no thread for a copy of filter {filter}: {error}")]
    Thread {
        /// The filter.
        filter: Arc<str>,
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
    shared: Arc<LocalPipeline>,
    threads: Vec<JoinHandle<()>>,
    copies: Arc<Vec<LocalCopy>>,
    node: Option<Arc<Node>>,
    expiry: Expiry,
    senders: Mutex<Vec<JoinHandle<()>>>,
    listeners: Mutex<Vec<JoinHandle<()>>>,
    /// Names of all filters and streams, in the order of the pipeline.
    filters: Vec<Arc<str>>,
    streams: Vec<Arc<str>>,
}

/// A copy in this process.
struct LocalCopy {
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
        self.check_placements(1)?;
        let built = Built::new(&self, 0, &[]);
        self.run(built, None)
    }

    /// Starts the copies that are [placed](Graph::place) on this process, and connects them with
    /// those in the others. Each process does the same, with the same pipeline; `seed` is anything
    /// else that has to be the same everywhere, such as the text that the pipeline was made from.
    ///
    /// # Errors
    ///
    /// As [`Graph::start`]; or if another process was not reached within the limit, or does not
    /// know the secret.
    pub fn start_in(self, job: &ClusterConfig, seed: &[u8]) -> Result<Running, StartError> {
        self.start_and_tell(job, seed, None)
    }

    /// The same, and reports each failed attempt to connect to another process.
    ///
    /// # Errors
    ///
    /// As [`start_in`](Self::start_in).
    pub fn start_and_tell(
        mut self,
        job: &ClusterConfig,
        seed: &[u8],
        refusals: Option<Arc<OnRefusal>>,
    ) -> Result<Running, StartError> {
        self.check()?;
        self.check_placements(job.peers.len())?;
        let links = connect::connect_all(job, self.digest(seed), refusals)?;
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
        let shared = Arc::new(LocalPipeline {
            units: Units::new(self.guarantee),
            streams: built.owned.iter().flatten().cloned().collect(),
            feeds: feeds.clone(),
            is_stopped: AtomicBool::new(false),
            others: node.clone().map(|node| node as Arc<dyn Others>),
            broken: OnceLock::new(),
            rejected: self.filters.iter().map(|_| AtomicU64::new(0)).collect(),
        });
        let local: Vec<(usize, usize)> = (0..self.filters.len())
            .flat_map(|at| self.filters[at].copies_in(rank).map(move |copy| (at, copy)))
            .collect();
        let first =
            |at: usize| self.filters[..at].iter().map(|filter| filter.copies).sum::<usize>();
        let local_copy = |(at, copy): &(usize, usize)| LocalCopy {
            number: first(*at) + copy,
            filter: Arc::clone(&self.filters[*at].name),
            copy: *copy,
            meter: Arc::new(Meter::new()),
            wakeup: Arc::default(),
        };
        let copies: Arc<Vec<LocalCopy>> = Arc::new(local.iter().map(local_copy).collect());
        let mut running = Running {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
            copies: Arc::clone(&copies),
            node: node.clone(),
            expiry: Expiry::default(),
            senders: Mutex::default(),
            listeners: Mutex::default(),
            filters: self.filters.iter().map(|filter| Arc::clone(&filter.name)).collect(),
            streams: self.streams.iter().map(|stream| stream.name.as_str().into()).collect(),
        };
        for ((at, index), local_copy) in local.into_iter().zip(copies.iter()) {
            let filter = &self.filters[at];
            let feed = fed.iter().position(|fed| *fed == (at, index));
            let copy = FilterCopy {
                filter: Arc::clone(&filter.name),
                filter_number: at,
                index,
                factory: Arc::clone(&filter.factory),
                inputs: built.inputs(&self, at),
                senders: built.senders(&self, at),
                feed: feed.map(|at| Arc::clone(&feeds[at])),
                meter: Arc::clone(&local_copy.meter),
                watch: CopyObserver { observer: self.observer.clone(), copy: local_copy.number },
                wakeup: Arc::clone(&local_copy.wakeup),
                shared: Arc::clone(&shared),
                is_blockwise: filter.is_blockwise,
                on_error: filter.on_error,
                on_reject: self.on_reject.clone(),
            };
            let thread = Builder::new().name(format!("{}.{index}", filter.name));
            let thread = thread
                .spawn(move || copy.run())
                .map_err(|error| StartError::Thread { filter: Arc::clone(&filter.name), error })?;
            local_copy.wakeup.belongs_to(thread.thread().clone());
            running.threads.push(thread);
        }
        if let Some(node) = &node {
            let (shared, about) = (Arc::downgrade(&shared), Arc::downgrade(node));
            let report = move || match (shared.upgrade(), about.upgrade()) {
                (Some(shared), Some(node)) => {
                    (copies_of(&copies, Some(&node)), streams_of(&shared, Some(&node)))
                }
                _ => Default::default(),
            };
            let threads = node.start(&running.shared, report).map_err(StartError::LinkThread)?;
            [running.senders, running.listeners] = threads.map(Mutex::new);
        }
        Ok(running)
    }
}

fn copies_of(copies: &[LocalCopy], node: Option<&Arc<Node>>) -> Vec<CopyReport> {
    let report = |copy: &LocalCopy| {
        let times = copy.meter.read();
        CopyReport {
            filter: Arc::clone(&copy.filter),
            copy: copy.copy,
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

fn streams_of(shared: &LocalPipeline, node: Option<&Arc<Node>>) -> Vec<StreamReport> {
    let owned = shared.streams.iter().map(|stream: &Arc<Stream>| stream.report());
    let elsewhere = node
        .into_iter()
        .flat_map(|node| node.producers.iter().flatten().filter_map(|one| one.report()));
    owned.chain(elsewhere).collect()
}

impl Running {
    /// Submits a unit of work. Several may be under way at once. If several processes run the
    /// pipeline, units are submitted at [the coordinator](Running::is_coordinator).
    ///
    /// # Panics
    ///
    /// In a process that is not the coordinator.
    #[must_use = "only waiting tells whether the unit was done"]
    pub fn submit(&self, unit: Unit) -> UnitHandle {
        assert!(self.is_coordinator(), "units are submitted in the process of rank 0");
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
    /// unit has ended yet, or this is not the coordinator.
    #[must_use]
    pub fn guarantee(&self) -> Option<GuaranteeReport> {
        self.shared.units.keeper()?.report()
    }

    /// Whether units are submitted here.
    #[must_use]
    pub fn is_coordinator(&self) -> bool {
        self.node.as_ref().is_none_or(|node| node.is_coordinator())
    }

    /// Waits until all other processes have connected to each other, or are lost. Units that are
    /// submitted before wait for that themselves, and if two processes cannot reach each other, they
    /// fail only later.
    pub fn wait_for_others(&self) {
        if let Some(node) = &self.node {
            node.wait_for_others();
        }
    }

    /// In a process that is not the coordinator: takes part until the coordinator has stopped the
    /// pipeline. At the coordinator it returns at once.
    ///
    /// # Errors
    ///
    /// [`Failure::Lost`]: the coordinator, or another process that the pipeline cannot do without,
    /// is gone; or this one was given up.
    pub fn serve(&self) -> Result<(), Failure> {
        match &self.node {
            Some(node) if !node.is_coordinator() => node.wait(),
            _ => Ok(()),
        }
    }

    /// Waits for the loss of another process that the pipeline does without, after the first
    /// `known` ones; `None` if there will be none.
    #[must_use]
    pub fn next_loss(&self, seen: usize) -> Option<Failure> {
        self.node.as_ref().and_then(|node| node.next_loss(seen))
    }

    /// How long ago the last byte of another process arrived, even if only of a block that a slow
    /// link has not delivered completely; `None` if that is this process, or there is none of that
    /// rank.
    #[must_use]
    pub fn silence(&self, rank: u32) -> Option<Duration> {
        self.node.as_ref()?.silence(rank)
    }

    /// Ends all units, and at the coordinator also the other processes. It does not wait for filter
    /// calls in progress, as dropping does, nor for the other processes to end. One that goes on
    /// sending is cut off after the [patience](ClusterConfig::patience).
    pub fn finish(&self) {
        for unit in self.shared.units.all() {
            self.shared.end_early(unit, Failure::Stopped);
        }
        if let Some(node) = &self.node {
            node.finish();
        }
        let senders = take_all(&self.senders);
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
        for listener in take_all(&self.listeners) {
            let _ = listener.join();
        }
    }

    /// How each copy has spent its time until now. The coordinator asks the other processes, and
    /// waits for their answers for two seconds at most; elsewhere only the copies here are
    /// reported.
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
        let mut streams = streams_of(&self.shared, self.node.as_ref());
        if let Some(node) = self.node.as_ref().filter(|node| node.is_coordinator()) {
            for (more, others) in node.ask() {
                copies.extend(more);
                streams.extend(others);
            }
        }
        let position = |of: &[Arc<str>], name: &Arc<str>| of.iter().position(|other| other == name);
        copies.sort_by_key(|copy| (position(&self.filters, &copy.filter), copy.copy));
        let mut streams = joined(streams);
        streams.sort_by_key(|stream| position(&self.streams, &stream.name));
        (copies, streams)
    }

    /// How often each filter has [rejected](crate::Outputs::reject) some of its input until now,
    /// without those that have not. At the coordinator this includes rejections in processes that
    /// were lost afterwards, or do not answer; elsewhere only the copies here count.
    #[must_use]
    pub fn rejected(&self) -> Vec<(Arc<str>, u64)> {
        let counts = self.shared.rejected.iter().map(|count| count.load(Ordering::Relaxed));
        let all = self.filters.iter().cloned().zip(counts);
        all.filter(|(_, count)| *count > 0).collect()
    }
}

/// Threads that were not joined yet.
fn take_all(threads: &Mutex<Vec<JoinHandle<()>>>) -> Vec<JoinHandle<()>> {
    std::mem::take(&mut *threads.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Joins the reports of each stream whose blocks several processes deal.
fn joined(streams: Vec<StreamReport>) -> Vec<StreamReport> {
    let mut positions: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    let mut all: Vec<StreamReport> = Vec::new();
    for stream in streams {
        match positions.get(&stream.name) {
            Some(at) => {
                let merged = &mut all[*at];
                // The numbers come from other processes, so they may overflow.
                merged.blocks = merged.blocks.saturating_add(stream.blocks);
                merged.bytes = merged.bytes.saturating_add(stream.bytes);
                merged.held = merged.held.saturating_add(stream.held);
                merged.peak = merged.peak.saturating_add(stream.peak);
                merged.limit = merged.limit.saturating_add(stream.limit);
                merged.block = merged.block.take().or(stream.block);
                if merged.copies.is_empty() {
                    merged.copies = stream.copies;
                }
            }
            None => {
                positions.insert(Arc::clone(&stream.name), all.len());
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
        self.copies.iter().for_each(|copy| copy.wakeup.ring());
        for thread in self.threads.drain(..) {
            // Panics are caught before they get here.
            let _ = thread.join();
        }
        self.finish();
    }
}
