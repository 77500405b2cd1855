//! Filters and the streams between them: a pipeline before it runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::policy::cut::Cut;
use crate::policy::guarantee::Guarantee;
use crate::run::filter::{Factory, Filter, OnError};
use crate::run::graph_error::GraphError;
use crate::run::stream_options::{self, StreamOptions};
use crate::stream::observer::Observer;
use crate::stream::report::Failure;

/// The ports of a filter, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Where blocks come in.
    pub inputs: Vec<String>,
    /// Where they go out.
    pub outputs: Vec<String>,
}

impl Ports {
    /// Ports with these names.
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
    pub(crate) is_blockwise: bool,
    pub(crate) on_error: OnError,
}

/// Called for each rejection in this process, with the failure that it would otherwise have been.
pub type OnReject = Arc<dyn Fn(&Failure) + Send + Sync>;

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
    pub(crate) on_reject: Option<OnReject>,
}

impl Graph {
    /// A graph without filters.
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

    /// The same, for a filter whose type is known only at run time.
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
        self.filters.push(FilterSpec {
            name: name.into(),
            copies,
            ports,
            factory,
            ranks: Vec::new(),
            is_idempotent: false,
            is_blockwise: false,
            on_error: OnError::Fail,
        });
        Ok(())
    }

    /// Places the copies of a filter on processes of a [job](crate::ClusterConfig): one copy for
    /// each of `ranks`, in this order, however many it had before. By default all copies are on
    /// rank 0.
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

    /// Declares that a filter sends the same output for the same block, whichever copy processes it
    /// and however often, and nothing in `init` and `finalize`. Then a process that runs copies of
    /// it can be lost: other copies repeat its unfinished blocks, and the output is the same.
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

    /// Declares that the filter makes its output for each block from that block alone, and that an
    /// error with one block does not affect the next. Its output then has the
    /// [origin](crate::Block::origin) of the block.
    ///
    /// # Errors
    ///
    /// [`GraphError::NoFilter`].
    pub fn blockwise(&mut self, filter: &str) -> Result<(), GraphError> {
        self.find(filter)?.is_blockwise = true;
        Ok(())
    }

    /// Sets what happens with a block for which a [`blockwise`](Self::blockwise) filter returns an
    /// error. Unless an error ends the unit, the output for a block is held until the filter is
    /// done with the block, and has to fit into the limit of each stream that it goes to.
    ///
    /// A block given to two copies counts twice if both reject it.
    ///
    /// # Errors
    ///
    /// [`GraphError::NoFilter`]; [`GraphError::NoReject`]: a source, a filter that is not
    /// blockwise, or an output port that it does not have.
    pub fn on_error(&mut self, filter: &str, on_error: OnError) -> Result<(), GraphError> {
        let spec = self.find(filter)?;
        let is_port = !matches!(on_error, OnError::To(port) if port >= spec.ports.outputs.len());
        if spec.ports.inputs.is_empty() || !spec.is_blockwise || !is_port {
            return Err(GraphError::NoReject(filter.to_owned()));
        }
        spec.on_error = on_error;
        Ok(())
    }

    /// Sets a function that is called for each rejection in this process. The copy waits until it
    /// has returned.
    pub fn tell_of_rejects(&mut self, tell: OnReject) {
        self.on_reject = Some(tell);
    }

    fn find(&mut self, filter: &str) -> Result<&mut FilterSpec, GraphError> {
        let filter_spec = self.filters.iter_mut().find(|other| &*other.name == filter);
        filter_spec.ok_or_else(|| GraphError::NoFilter(filter.to_owned()))
    }

    /// Replaces the factory of that filter. The new filter must have the same ports.
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
    /// An unknown port, an input that already has a stream, a limit that is too small.
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
        let least = stream_options::least(&options.cut, self.filters[from.0].copies);
        if options.limit < least {
            return Err(GraphError::LimitTooSmall { stream: name, least, limit: options.limit });
        }
        self.streams.push(StreamSpec { name, from, to, options });
        Ok(())
    }

    /// Sets an observer of the running pipeline. Without one, observation costs nothing.
    pub fn observe(&mut self, observer: Arc<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Sets a guarantee for each unit of work. The running pipeline reports whether it is kept.
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

    /// The name of each filter, its number of copies and its ports, in the order in which the
    /// running pipeline lists the copies.
    pub fn filters(&self) -> impl Iterator<Item = (&str, usize, &Ports)> {
        self.filters.iter().map(|filter| (&*filter.name, filter.copies, &filter.ports))
    }

    /// The name of each stream, in the order in which the running pipeline lists them.
    pub fn streams(&self) -> impl Iterator<Item = &str> {
        self.streams.iter().map(|stream| stream.name.as_str())
    }

    fn input_name(&self, input: PortNumber) -> String {
        let (filter, port) = input;
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
        let at = self.filters.iter().position(|other| &*other.name == filter);
        let at = at.ok_or_else(|| GraphError::NoFilter(filter.to_owned()))?;
        let ports = of(&self.filters[at].ports);
        let number = match (port, ports.len()) {
            ("", 1) => Some(0),
            _ => ports.iter().position(|other| other == port),
        };
        let number = number.ok_or_else(|| GraphError::NoPort {
            filter: filter.to_owned(),
            kind,
            port: port.to_owned(),
            ports: ports.clone(),
        })?;
        Ok((at, number))
    }

    /// Whether the order of that filter's output matters to an ordered stream, once the graph is
    /// [checked](Graph::check).
    #[must_use]
    pub fn is_order_kept_by(&self, filter: &str) -> bool {
        self.streams
            .iter()
            .any(|stream| stream.options.is_ordered && &*self.filters[stream.from.0].name == filter)
    }

    /// Checks whether the graph can run. All streams that lead to an ordered stream become ordered.
    ///
    /// # Errors
    ///
    /// The first mistake found.
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
            // The output of a single copy is in order as it comes; but the order of its input also
            // counts.
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
