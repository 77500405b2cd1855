//! Mistakes in a pipeline.

use thiserror::Error;

use crate::policy::size_bounds::SizeBounds;

/// A mistake in a pipeline.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphError {
    /// Two filters have the same name.
    #[error("there are two filters called {0}")]
    TwoOfOneName(String),
    /// A filter without copies.
    #[error("filter {0} has no copies: it needs at least one")]
    NoCopies(String),
    /// No filter of that name.
    #[error("there is no filter called {0}")]
    NoFilter(String),
    /// The filter cannot reject a block.
    #[error(
        "filter {0} cannot reject blocks: it takes none, is not blockwise, or has no output port for them"
    )]
    NoReject(String),
    /// The filter has no such port.
    #[error("filter {filter} has no {kind} port{}; it has {}", called(.port), listed(.ports))]
    NoPort {
        /// The filter.
        filter: String,
        /// `input` or `output`.
        kind: &'static str,
        /// The name given; empty if none was given and the filter does not have exactly one port.
        port: String,
        /// The ports that it has.
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
    /// There is no filter at all, or none without inputs.
    #[error("there is no source: a filter without input ports")]
    NoSource,
    /// The blocks have no order that could be kept.
    #[error(
        "stream {stream} cannot be ordered: {filter} has several copies and several input ports, so \
         its blocks have no order"
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
    /// A filter is placed on a process that does not exist.
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
    /// Blocks would be empty.
    #[error("stream {0} cannot be cut into blocks of 0 bytes")]
    EmptyBlocks(String),
    /// The time or rate is not above zero.
    #[error("a guarantee is a time or a number of units per second above zero")]
    NoGuarantee,
    /// No size is within the bounds.
    #[error(
        "stream {stream} can have no blocks of {} to {} bytes in whole records of {}",
        .bounds.least,
        .bounds.most,
        .bounds.record
    )]
    NoSizes {
        /// The stream.
        stream: String,
        /// The requested bounds.
        bounds: SizeBounds,
    },
    /// Repeated output would be cut differently.
    #[error(
        "stream {stream} cannot choose the size of its blocks: {filter} is idempotent and in \
         several processes, and repeated output must be cut as before; give it a size"
    )]
    CutAgain {
        /// The stream.
        stream: String,
        /// The filter that sends to it.
        filter: String,
    },
}

fn called(port: &str) -> String {
    if port.is_empty() { String::new() } else { format!(" {port}") }
}

fn listed(ports: &[String]) -> String {
    if ports.is_empty() { "none".to_owned() } else { ports.join(", ") }
}
