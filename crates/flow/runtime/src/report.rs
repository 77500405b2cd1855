//! How units of work and copies of filters fared.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::unit::UnitId;

/// A unit that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitReport {
    /// Which.
    pub unit: UnitId,
    /// From when it was asked for until the last copy was through with it.
    pub took: Duration,
}

/// Why a unit ended before it was done.
#[derive(Clone, Debug, Error)]
pub enum Failure {
    /// A filter returned an error, or panicked.
    #[error("unit {unit}: filter {filter}, copy {copy}{}: {error}", at(*.block))]
    Filter {
        /// The unit that ended.
        unit: UnitId,
        /// The name of the filter.
        filter: Arc<str>,
        /// Counts its copies from 0.
        copy: usize,
        /// The sequence number of the block that it was given; `None` in `init`, `generate` and
        /// `finalize`.
        block: Option<u64>,
        /// What it returned, or its panic.
        error: Arc<str>,
    },
    /// Somebody cancelled it.
    #[error("cancelled")]
    Cancelled,
    /// The pipeline was stopped.
    #[error("the pipeline was stopped")]
    Stopped,
}

fn at(block: Option<u64>) -> String {
    block.map(|block| format!(", block {block}")).unwrap_or_default()
}

/// Where the time of one copy of a filter went. The three add up to the time since it was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyReport {
    /// The name of the filter.
    pub filter: Arc<str>,
    /// Counts its copies from 0.
    pub copy: usize,
    /// In the filter.
    pub busy: Duration,
    /// Nothing to do.
    pub starved: Duration,
    /// Waiting for room in a stream that it sends to.
    pub blocked: Duration,
    /// Blocks that it has processed.
    pub blocks: u64,
    /// Bytes of these.
    pub bytes: u64,
}

/// What one stream has carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamReport {
    /// `FILTER.PORT -> FILTER.PORT`.
    pub name: Arc<str>,
    /// Blocks that were sent.
    pub blocks: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// What is in it now, in bytes: dealt, in process or being filled.
    pub held: usize,
    /// The most that there was.
    pub peak: usize,
    /// The most that there may be.
    pub limit: usize,
}
