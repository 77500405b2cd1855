//! Filters and the streams that join them: what a pipeline is, before it runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

use crate::cut::Cut;
use crate::dealing::Policy;
use crate::filter::{Factory, Filter};
use crate::guarantee::Guarantee;
use crate::observer::Observer;
use crate::remote::place;
use crate::tune::Bounds;

/// How much a stream may hold if nothing else is said: 64 MiB.
pub const DEFAULT_LIMIT: usize = 64 << 20;

/// The least that a stream can be limited to, in bytes.
pub const LEAST_LIMIT: usize = 1024;

/// How a stream works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// How blocks are dealt to the copies of the filter that receives.
    pub policy: Policy,
    /// Bytes that the stream may hold: blocks that wait or are in process, and buffers that are
    /// being filled.
    pub limit: usize,
    /// Whether blocks come in the order of what the copies of the filter that sends were given.
    pub is_ordered: bool,
    /// How what is sent is cut into blocks.
    pub cut: Cut,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { policy: Policy::default(), limit: DEFAULT_LIMIT, is_ordered: false, cut: Cut::Whole }
    }
}

/// What is wrong with a pipeline.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphError {
    /// Two filters have one name.
    #[error("there are two filters called {0}")]
    TwoOfOneName(String),
    /// A filter without copies.
    #[error("filter {0} has no copies: it needs at least one")]
    NoCopies(String),
    /// No filter of that name.
    #[error("there is no filter called {0}")]
    NoFilter(String),
    /// The filter has no such port.
    #[error("filter {filter} has no {kind} port {port}; it has {}", listed(.ports))]
    NoPort {
        /// The filter.
        filter: String,
        /// `input` or `output`.
        kind: &'static str,
        /// As it was named; empty where none was named and there is not just one.
        port: String,
        /// Those that it has.
        ports: Vec<String>,
    },
    /// A port that no stream leads to or from.
    #[error("{kind} port {filter}.{port} is not connected")]
    Unconnected {
        /// The filter.
        filter: String,
        /// `input` or `output`.
        kind: &'static str,
        /// The port.
        port: String,
    },
    /// Two streams into one input port.
    #[error("two streams lead to input port {0}: give the filter a port for each")]
    TwoInto(String),
    /// Blocks could go round.
    #[error("the streams lead in a circle through {}", .0.join(", "))]
    Circle(Vec<String>),
    /// No filter at all, or none without inputs.
    #[error("there is no source: a filter without input ports")]
    NoSource,
    /// There is no order to keep.
    #[error(
        "stream {stream} cannot be ordered: {filter} has several copies and several input ports, so \
         nothing tells which of its blocks come first"
    )]
    NoOrder {
        /// The stream that is to be ordered.
        stream: String,
        /// The filter that sends to it.
        filter: String,
    },
    /// The limit is too small for a single block.
    #[error(
        "stream {stream} needs a limit of at least {least} bytes for its blocks, and has one of {limit}"
    )]
    LimitTooSmall {
        /// The stream.
        stream: String,
        /// The least limit: a block for each copy that sends, and two more.
        least: usize,
        /// The limit.
        limit: usize,
    },
    /// An idempotent filter whose blocks do not have one number each.
    #[error("filter {0} cannot be idempotent: it needs one input port, and an output port")]
    NotIdempotent(String),
    /// A filter in a process that there is not.
    #[error("filter {filter} cannot be placed on rank {rank}: the ranks are 0 to {last}")]
    NoRank {
        /// The filter.
        filter: String,
        /// The rank.
        rank: u32,
        /// The highest rank.
        last: u32,
    },
    /// Numbers are sent in 16 bits.
    #[error("a pipeline of several processes has at most 65536 streams and copies of a filter")]
    TooMany,
    /// Blocks of no bytes.
    #[error("stream {0} cannot be cut into blocks of 0 bytes")]
    EmptyBlocks(String),
    /// No time, or a rate that is none.
    #[error("a guarantee is a time or a number of units per second above zero")]
    NoGuarantee,
    /// There is no size to choose.
    #[error(
        "stream {stream} can have no blocks of {} to {} bytes in whole records of {}",
        .bounds.least,
        .bounds.most,
        .bounds.record
    )]
    NoSizes {
        /// The stream.
        stream: String,
        /// What was asked for.
        bounds: Bounds,
    },
    /// What is sent again would be cut in another way.
    #[error(
        "stream {stream} cannot find the size of its blocks itself: {filter} is idempotent and in \
         several processes, and what it sends again has to be cut as before; give it a size"
    )]
    CutAgain {
        /// The stream.
        stream: String,
        /// The filter that sends to it.
        filter: String,
    },
}

fn listed(ports: &[String]) -> String {
    if ports.is_empty() { "none".to_owned() } else { ports.join(", ") }
}

/// The ports of a filter, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Where blocks come in.
    pub inputs: Vec<String>,
    /// Where they go out.
    pub outputs: Vec<String>,
}

impl Ports {
    /// With these names.
    #[must_use]
    pub fn new(inputs: &[&str], outputs: &[&str]) -> Self {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self { inputs: owned(inputs), outputs: owned(outputs) }
    }

    /// No input, and an output `out`.
    #[must_use]
    pub fn source() -> Self {
        Self::new(&[], &["out"])
    }

    /// An input `in`, and an output `out`.
    #[must_use]
    pub fn step() -> Self {
        Self::new(&["in"], &["out"])
    }

    /// An input `in`, and no output.
    #[must_use]
    pub fn sink() -> Self {
        Self::new(&["in"], &[])
    }
}

pub(crate) struct FilterSpec {
    pub(crate) name: Arc<str>,
    pub(crate) copies: usize,
    pub(crate) ports: Ports,
    pub(crate) factory: Factory,
    /// The process of each copy; empty: rank 0 for all.
    pub(crate) ranks: Vec<u32>,
    pub(crate) is_idempotent: bool,
}

impl FilterSpec {
    pub(crate) fn rank_of(&self, copy: usize) -> u32 {
        self.ranks.get(copy).copied().unwrap_or(0)
    }

    /// The processes that copies run in, each once, in order.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mut all: Vec<u32> = (0..self.copies).map(|copy| self.rank_of(copy)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The copies in that process, by number.
    pub(crate) fn copies_in(&self, rank: u32) -> impl Iterator<Item = usize> + '_ {
        (0..self.copies).filter(move |copy| self.rank_of(*copy) == rank)
    }
}

/// A filter and one of its ports, by their numbers.
pub(crate) type PortNumber = (usize, usize);

pub(crate) struct StreamSpec {
    pub(crate) name: String,
    pub(crate) from: PortNumber,
    pub(crate) to: PortNumber,
    pub(crate) options: StreamOptions,
}

/// A pipeline.
#[derive(Default)]
pub struct Graph {
    pub(crate) filters: Vec<FilterSpec>,
    pub(crate) streams: Vec<StreamSpec>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) guarantee: Option<Guarantee>,
}

impl Graph {
    /// One without filters.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a filter. `make` is called once for each copy and unit of work, in the thread of the
    /// copy.
    ///
    /// # Errors
    ///
    /// [`GraphError::TwoOfOneName`], [`GraphError::NoCopies`].
    pub fn filter<F: Filter + 'static>(
        &mut self,
        name: &str,
        copies: usize,
        ports: Ports,
        make: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<(), GraphError> {
        self.filter_by(name, copies, ports, Arc::new(move || Box::new(make())))
    }

    /// The same, where only the running program knows of which type the filter is.
    ///
    /// # Errors
    ///
    /// As [`Graph::filter`].
    pub fn filter_by(
        &mut self,
        name: &str,
        copies: usize,
        ports: Ports,
        factory: Factory,
    ) -> Result<(), GraphError> {
        if self.filters.iter().any(|filter| &*filter.name == name) {
            return Err(GraphError::TwoOfOneName(name.to_owned()));
        }
        if copies == 0 {
            return Err(GraphError::NoCopies(name.to_owned()));
        }
        let (ranks, is_idempotent) = (Vec::new(), false);
        let name = name.into();
        self.filters.push(FilterSpec { name, copies, ports, factory, ranks, is_idempotent });
        Ok(())
    }

    /// Places the copies of a filter on processes of a [job](crate::Job): one copy for each of
    /// `ranks`, in this order, however many it had before. Otherwise all copies are on rank 0.
    ///
    /// # Errors
    ///
    /// [`GraphError::NoFilter`], [`GraphError::NoCopies`].
    pub fn place(&mut self, filter: &str, ranks: &[u32]) -> Result<(), GraphError> {
        if ranks.is_empty() {
            return Err(GraphError::NoCopies(filter.to_owned()));
        }
        let spec = self.find(filter)?;
        spec.copies = ranks.len();
        spec.ranks = ranks.to_vec();
        Ok(())
    }

    /// Declares that a filter sends the same for the same block, whichever copy processes it and
    /// however often, and nothing in `init` and `finalize`. Then a process that runs copies of it can
    /// be lost: others process again what it was not done with, and what comes out is the same.
    ///
    /// # Errors
    ///
    /// [`GraphError::NoFilter`], [`GraphError::NotIdempotent`].
    pub fn idempotent(&mut self, filter: &str) -> Result<(), GraphError> {
        let spec = self.find(filter)?;
        if spec.ports.inputs.len() != 1 || spec.ports.outputs.is_empty() {
            return Err(GraphError::NotIdempotent(filter.to_owned()));
        }
        spec.is_idempotent = true;
        Ok(())
    }

    fn find(&mut self, filter: &str) -> Result<&mut FilterSpec, GraphError> {
        let found = self.filters.iter_mut().find(|known| &*known.name == filter);
        found.ok_or_else(|| GraphError::NoFilter(filter.to_owned()))
    }

    /// Makes the values of that filter in another way, which has to have the same ports.
    ///
    /// # Errors
    ///
    /// [`GraphError::NoFilter`].
    pub fn replace(&mut self, name: &str, factory: Factory) -> Result<(), GraphError> {
        self.find(name)?.factory = factory;
        Ok(())
    }

    /// Adds a stream from an output port to an input port, each named `FILTER.PORT`, or `FILTER` if
    /// it has one such port.
    ///
    /// # Errors
    ///
    /// A port that there is not, an input that has a stream, a limit that is too small.
    pub fn connect(
        &mut self,
        from: &str,
        to: &str,
        options: StreamOptions,
    ) -> Result<(), GraphError> {
        let from = self.port(from, "output", |ports| &ports.outputs)?;
        let to = self.port(to, "input", |ports| &ports.inputs)?;
        let target = self.input_name(to);
        if self.streams.iter().any(|stream| stream.to == to) {
            return Err(GraphError::TwoInto(target));
        }
        let filter = &self.filters[from.0];
        let name = format!("{}.{} -> {target}", filter.name, filter.ports.outputs[from.1]);
        if let Cut::Auto(bounds) = options.cut {
            if !bounds.is_sound() {
                return Err(GraphError::NoSizes { stream: name, bounds });
            }
        }
        if matches!(options.cut, Cut::Bytes(0) | Cut::Lines(0)) {
            return Err(GraphError::EmptyBlocks(name));
        }
        let least = place::least(&options.cut, self.filters[from.0].copies);
        if options.limit < least {
            return Err(GraphError::LimitTooSmall { stream: name, least, limit: options.limit });
        }
        self.streams.push(StreamSpec { name, from, to, options });
        Ok(())
    }

    /// Has the running pipeline watched. Without this, nothing of it costs anything.
    pub fn observe(&mut self, observer: Arc<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Promises that for each unit of work. Whether it is kept, the running pipeline says.
    ///
    /// # Errors
    ///
    /// [`GraphError::NoGuarantee`].
    pub fn guarantee(&mut self, guarantee: Guarantee) -> Result<(), GraphError> {
        if !guarantee.is_sound() {
            return Err(GraphError::NoGuarantee);
        }
        self.guarantee = Some(guarantee);
        Ok(())
    }

    /// The name of each filter, its copies and its ports, in the order in which the running pipeline
    /// lists the copies.
    pub fn filters(&self) -> impl Iterator<Item = (&str, usize, &Ports)> {
        self.filters.iter().map(|filter| (&*filter.name, filter.copies, &filter.ports))
    }

    /// The name of each stream, in the order in which the running pipeline lists them.
    pub fn streams(&self) -> impl Iterator<Item = &str> {
        self.streams.iter().map(|stream| stream.name.as_str())
    }

    fn input_name(&self, (filter, port): PortNumber) -> String {
        let filter = &self.filters[filter];
        format!("{}.{}", filter.name, filter.ports.inputs[port])
    }

    fn port(
        &self,
        text: &str,
        kind: &'static str,
        of: impl Fn(&Ports) -> &Vec<String>,
    ) -> Result<PortNumber, GraphError> {
        let (filter, port) = text.split_once('.').unwrap_or((text, ""));
        let at = self.filters.iter().position(|known| &*known.name == filter);
        let at = at.ok_or_else(|| GraphError::NoFilter(filter.to_owned()))?;
        let ports = of(&self.filters[at].ports);
        let number = match (port, ports.len()) {
            ("", 1) => Some(0),
            _ => ports.iter().position(|known| known == port),
        };
        let number = number.ok_or_else(|| GraphError::NoPort {
            filter: filter.to_owned(),
            kind,
            port: port.to_owned(),
            ports: ports.clone(),
        })?;
        Ok((at, number))
    }

    /// Whether the order of what that filter sends matters to an ordered stream, once the graph is
    /// [checked](Graph::check).
    #[must_use]
    pub fn is_order_kept_by(&self, filter: &str) -> bool {
        self.streams
            .iter()
            .any(|stream| stream.options.is_ordered && &*self.filters[stream.from.0].name == filter)
    }

    /// Whether it can run. Whatever leads to an ordered stream is ordered from then on, too.
    ///
    /// # Errors
    ///
    /// What is wrong first.
    pub fn check(&mut self) -> Result<(), GraphError> {
        for (at, filter) in self.filters.iter().enumerate() {
            let unconnected = |kind, port: &String| GraphError::Unconnected {
                filter: filter.name.to_string(),
                kind,
                port: port.clone(),
            };
            for (number, port) in filter.ports.inputs.iter().enumerate() {
                if !self.streams.iter().any(|stream| stream.to == (at, number)) {
                    return Err(unconnected("input", port));
                }
            }
            for (number, port) in filter.ports.outputs.iter().enumerate() {
                if !self.streams.iter().any(|stream| stream.from == (at, number)) {
                    return Err(unconnected("output", port));
                }
            }
        }
        if !self.filters.iter().any(|filter| filter.ports.inputs.is_empty()) {
            return Err(GraphError::NoSource);
        }
        self.check_for_circles()?;
        self.order()
    }

    fn check_for_circles(&self) -> Result<(), GraphError> {
        let mut before: BTreeMap<usize, usize> =
            self.filters.iter().map(|filter| filter.ports.inputs.len()).enumerate().collect();
        while let Some(at) = before.iter().find(|(_, left)| **left == 0).map(|(at, _)| *at) {
            before.remove(&at);
            for stream in self.streams.iter().filter(|stream| stream.from.0 == at) {
                if let Some(left) = before.get_mut(&stream.to.0) {
                    *left -= 1;
                }
            }
        }
        if before.is_empty() {
            return Ok(());
        }
        Err(GraphError::Circle(
            before.into_keys().map(|at| self.filters[at].name.to_string()).collect(),
        ))
    }

    fn order(&mut self) -> Result<(), GraphError> {
        let mut todo: Vec<usize> =
            (0..self.streams.len()).filter(|at| self.streams[*at].options.is_ordered).collect();
        while let Some(at) = todo.pop() {
            let stream = &self.streams[at];
            let sender = &self.filters[stream.from.0];
            // What one copy sends is in order as it comes; but the order of what it was given
            // counts, too.
            if sender.copies > 1 && sender.ports.inputs.len() != 1 {
                return Err(GraphError::NoOrder {
                    stream: stream.name.clone(),
                    filter: sender.name.to_string(),
                });
            }
            let sender = stream.from.0;
            for (before, stream) in self.streams.iter_mut().enumerate() {
                if stream.to.0 == sender && !stream.options.is_ordered {
                    stream.options.is_ordered = true;
                    todo.push(before);
                }
            }
        }
        Ok(())
    }
}
