//! A pipeline that runs: its threads, and what can be asked of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use thiserror::Error;

use crate::copy::{Copy, Feed, Shared};
use crate::graph::{Graph, GraphError};
use crate::meter::{Meter, Phase};
use crate::observer::Watch;
use crate::output::Outlet;
use crate::report::{CopyReport, Failure, StreamReport};
use crate::stream::Stream;
use crate::unit::{Unit, UnitHandle, Units};
use crate::wakeup::Wakeup;

/// Why a pipeline does not run.
#[derive(Debug, Error)]
pub enum StartError {
    /// Something is wrong with it.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The system has no thread for a copy.
    #[error("no thread for a copy of filter {filter}: {error}")]
    Thread {
        /// The filter.
        filter: Arc<str>,
        /// What the system says.
        #[source]
        error: io::Error,
    },
}

/// A pipeline that runs, with a thread for each copy of each filter. It stops when this is dropped,
/// which waits for the filters that are being called.
pub struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    meters: Vec<(Arc<str>, usize, Arc<Meter>)>,
    wakeups: Vec<Arc<Wakeup>>,
}

impl Graph {
    /// Starts all copies, which wait for units of work.
    ///
    /// # Errors
    ///
    /// If something is wrong with the pipeline, or there are no threads for it.
    pub fn start(mut self) -> Result<Running, StartError> {
        self.check()?;
        let streams: Vec<Arc<Stream>> = self
            .streams
            .iter()
            .enumerate()
            .map(|(number, spec)| {
                let [from, to] = [spec.from, spec.to].map(|(filter, _)| &self.filters[filter]);
                Arc::new(Stream::new(
                    (spec.name.as_str().into(), number),
                    spec.options.limit,
                    spec.options.policy,
                    spec.options.is_ordered,
                    [from.copies, to.copies],
                    to.ports.inputs.len() > 1,
                ))
            })
            .collect();
        let is_source = |at: &usize| self.filters[*at].ports.inputs.is_empty();
        let sources = (0..self.filters.len()).filter(is_source);
        let fed: Vec<(usize, usize)> = sources
            .flat_map(|at| (0..self.filters[at].copies).map(move |copy| (at, copy)))
            .collect();
        let feeds: Vec<Arc<Feed>> = fed.iter().map(|_| Arc::default()).collect();
        let shared = Arc::new(Shared {
            units: Units::default(),
            streams: streams.clone(),
            feeds: feeds.clone(),
            is_stopped: AtomicBool::new(false),
        });
        let mut running = Running {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
            meters: Vec::new(),
            wakeups: Vec::new(),
        };
        for (at, filter) in self.filters.iter().enumerate() {
            for index in 0..filter.copies {
                let outlets = (0..filter.ports.outputs.len())
                    .map(|port| self.outlets(&streams, (at, port)))
                    .collect();
                let inputs = self.streams.iter().zip(&streams);
                let inputs = inputs.filter(|(spec, _)| spec.to.0 == at);
                let inputs = inputs.map(|(spec, stream)| (spec.to.1, Arc::clone(stream)));
                let feed = fed.iter().position(|fed| *fed == (at, index));
                let meter = Arc::new(Meter::new());
                let observer = self.observer.clone();
                let watch = Watch { observer, copy: running.meters.len() };
                running.meters.push((Arc::clone(&filter.name), index, Arc::clone(&meter)));
                let wakeup = Arc::<Wakeup>::default();
                running.wakeups.push(Arc::clone(&wakeup));
                let copy = Copy {
                    filter: Arc::clone(&filter.name),
                    index,
                    factory: Arc::clone(&filter.factory),
                    inputs: inputs.collect(),
                    outlets,
                    feed: feed.map(|at| Arc::clone(&feeds[at])),
                    meter,
                    watch,
                    wakeup: Arc::clone(&wakeup),
                    shared: Arc::clone(&shared),
                };
                let thread = Builder::new().name(format!("{}.{index}", filter.name));
                let thread = thread.spawn(move || copy.run()).map_err(|error| {
                    StartError::Thread { filter: Arc::clone(&filter.name), error }
                })?;
                wakeup.belongs_to(thread.thread().clone());
                running.threads.push(thread);
            }
        }
        Ok(running)
    }

    fn outlets(&self, streams: &[Arc<Stream>], from: (usize, usize)) -> Vec<Outlet> {
        let all = self.streams.iter().zip(streams).filter(|(spec, _)| spec.from == from);
        all.map(|(spec, stream)| Outlet { stream: Arc::clone(stream), cut: spec.options.cut })
            .collect()
    }
}

impl Running {
    /// Asks for a unit of work. Several may be under way at once.
    #[must_use = "only waiting tells whether the unit was done"]
    pub fn submit(&self, unit: Unit) -> UnitHandle {
        let open = self.shared.units.begin(unit, self.meters.len());
        self.shared.feeds.iter().for_each(|feed| feed.add(Arc::clone(&open)));
        UnitHandle { open }
    }

    /// Ends a unit, if it is not done: all that is under way of it is dropped.
    pub fn cancel(&self, unit: &UnitHandle) {
        self.shared.end_early(unit.id(), Failure::Cancelled);
    }

    /// Where the time of each copy went, until now.
    #[must_use]
    pub fn copies(&self) -> Vec<CopyReport> {
        let report = |(filter, copy, meter): &(Arc<str>, usize, Arc<Meter>)| {
            let times = meter.read();
            CopyReport {
                filter: Arc::clone(filter),
                copy: *copy,
                busy: times.of(Phase::Busy),
                starved: times.of(Phase::Starved),
                blocked: times.of(Phase::Blocked),
                blocks: times.blocks,
                bytes: times.bytes,
            }
        };
        self.meters.iter().map(report).collect()
    }

    /// What each stream has carried, until now.
    #[must_use]
    pub fn streams(&self) -> Vec<StreamReport> {
        self.shared.streams.iter().map(|stream| stream.report()).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for unit in self.shared.units.all() {
            self.shared.end_early(unit, Failure::Stopped);
        }
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        self.wakeups.iter().for_each(|wakeup| wakeup.ring());
        for thread in self.threads.drain(..) {
            // A filter's panic does not get here.
            let _ = thread.join();
        }
    }
}
