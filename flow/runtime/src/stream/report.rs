//! How units of work and copies of filters fared.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::encoding::{MOST_COPIES, few, maybe_text, text};
use crate::memory::origin::Origin;
use crate::policy::copy_state::CopyState;
use crate::policy::priority::UnitId;
use crate::stream::sizing::SizeReport;

/// A unit that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitReport {
    /// Its number.
    pub unit: UnitId,
    /// From its submission until the last copy was done with it.
    pub took: Duration,
}

/// Why a unit ended before it was done.
#[derive(Clone, Debug, Error, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Failure {
    /// A filter returned an error, or panicked.
    #[error(
        "unit {unit}: filter {filter}, copy {copy}{}{}: {error}",
        on(.host.as_deref()),
        at(*.block, .origin.as_ref())
    )]
    Filter {
        /// The unit that ended.
        unit: UnitId,
        /// The name of the filter.
        #[serde(with = "text")]
        filter: Arc<str>,
        /// The number of the copy, from 0.
        copy: usize,
        /// The host of the copy, if several processes run the pipeline.
        #[serde(with = "maybe_text")]
        host: Option<Arc<str>>,
        /// The sequence number of the block that was being processed; `None` in `init`, `generate`
        /// and `finalize`.
        block: Option<u64>,
        /// The [origin](crate::Block::origin) of that block.
        origin: Option<Origin>,
        /// Its error, or its panic.
        #[serde(with = "text")]
        error: Arc<str>,
    },
    /// A process that runs a part of the pipeline is gone, and no other can do its work.
    #[error("rank {rank} on {host} was lost: {why}")]
    Lost {
        /// Its rank.
        rank: u32,
        /// Its host.
        #[serde(with = "text")]
        host: Arc<str>,
        /// How it was noticed.
        #[serde(with = "text")]
        why: Arc<str>,
    },
    /// Its argument is longer than messages between processes can be.
    #[error("the argument of unit {unit} has {bytes} bytes, more than {most}")]
    LongArgument {
        /// The unit.
        unit: UnitId,
        /// The length of its argument.
        bytes: usize,
        /// The greatest length.
        most: usize,
    },
    /// Its deadline has passed, and the unit was to expire then.
    #[error("unit {unit} was not done by its deadline")]
    Late {
        /// The unit.
        unit: UnitId,
    },
    /// It was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The pipeline was stopped.
    #[error("the pipeline was stopped")]
    Stopped,
}

impl Failure {
    /// The same failure for another unit, if it is that of a filter.
    pub(crate) fn of(&self, unit: UnitId) -> Self {
        let mut other = self.clone();
        if let Self::Filter { unit: of, .. } = &mut other {
            *of = unit;
        }
        other
    }
}

fn on(host: Option<&str>) -> String {
    host.map(|host| format!(" on {host}")).unwrap_or_default()
}

fn at(block: Option<u64>, origin: Option<&Origin>) -> String {
    let origin = origin.map(|origin| format!(" ({origin})")).unwrap_or_default();
    block.map(|block| format!(", block {block}{origin}")).unwrap_or_default()
}

/// How one copy of a filter spent its time. The three times add up to the time since it was
/// started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyReport {
    /// The name of the filter.
    #[serde(with = "text")]
    pub filter: Arc<str>,
    /// The number of the copy, from 0.
    pub copy: usize,
    /// The process that it runs in.
    pub process: u32,
    /// The host of that process, if several run the pipeline.
    #[serde(with = "maybe_text")]
    pub host: Option<Arc<str>>,
    /// Time in the filter.
    pub busy: Duration,
    /// Time without anything to do.
    pub starved: Duration,
    /// Time waiting for room in a stream that it sends to.
    pub blocked: Duration,
    /// Blocks that it has processed.
    pub blocks: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// How often it has [rejected](crate::Outputs::reject) some of its input.
    pub rejected: u64,
}

/// The traffic of one stream.
///
/// If several processes run the pipeline, each has its own part of the limit: `held`, `peak` and
/// `limit` are the sums over all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReport {
    /// `FILTER.PORT -> FILTER.PORT`.
    #[serde(with = "text")]
    pub name: Arc<str>,
    /// Blocks that were sent.
    pub blocks: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Bytes in it now: dealt, in process or being filled.
    pub held: usize,
    /// The maximum so far.
    pub peak: usize,
    /// The limit.
    pub limit: usize,
    /// The size of its blocks, if it chooses that; each process that sends has its own, and this is
    /// that of the one with the lowest rank.
    pub block: Option<SizeReport>,
    /// The state of the receiving copies that dealing uses, by number. If several processes deal
    /// its blocks, as seen by the one with the lowest rank.
    #[serde(deserialize_with = "few::<_, _, MOST_COPIES>")]
    pub copies: Vec<CopyState>,
}
