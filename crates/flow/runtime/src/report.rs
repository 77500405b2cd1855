//! How units of work and copies of filters fared.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::deal::CopyState;
use crate::origin::Origin;
use crate::remote::message::{MOST_COPIES, maybe_text, text};
use crate::remote::told::few;
use crate::sizing::SizeReport;
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
        /// Counts its copies from 0.
        copy: usize,
        /// The host of the copy, where several processes run the pipeline.
        #[serde(with = "maybe_text")]
        host: Option<Arc<str>>,
        /// The sequence number of the block that it was given; `None` in `init`, `generate` and
        /// `finalize`.
        block: Option<u64>,
        /// The [origin](crate::Block::origin) of that block.
        origin: Option<Origin>,
        /// What it returned, or its panic.
        #[serde(with = "text")]
        error: Arc<str>,
    },
    /// A process that runs a part of the pipeline is gone, and no other can do its work.
    #[error("rank {rank} on {host} was lost: {why}")]
    Lost {
        /// Which.
        rank: u32,
        /// Its host.
        #[serde(with = "text")]
        host: Arc<str>,
        /// How it was noticed.
        #[serde(with = "text")]
        why: Arc<str>,
    },
    /// Its argument is longer than the processes of a pipeline tell each other.
    #[error("the argument of unit {unit} has {bytes} bytes, more than {most}")]
    LongArgument {
        /// The unit.
        unit: UnitId,
        /// The length of its argument.
        bytes: usize,
        /// The greatest length.
        most: usize,
    },
    /// Its deadline has passed, and then nobody wanted it any more.
    #[error("unit {unit} was not done by its deadline")]
    Late {
        /// The unit.
        unit: UnitId,
    },
    /// Somebody cancelled it.
    #[error("cancelled")]
    Cancelled,
    /// The pipeline was stopped.
    #[error("the pipeline was stopped")]
    Stopped,
}

impl Failure {
    /// The same, if it is that of a filter, of another unit.
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

/// Where the time of one copy of a filter went. The three add up to the time since it was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyReport {
    /// The name of the filter.
    #[serde(with = "text")]
    pub filter: Arc<str>,
    /// Counts its copies from 0.
    pub copy: usize,
    /// The process that it runs in.
    pub process: u32,
    /// The host of that, where several processes run the pipeline.
    #[serde(with = "maybe_text")]
    pub host: Option<Arc<str>>,
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
    /// How often it has [rejected](crate::Outputs::reject) some of its input.
    pub rejected: u64,
}

/// What one stream has carried.
///
/// Where several processes run the pipeline, each bounds what it holds: `held`, `peak` and `limit`
/// are those of the process that holds most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReport {
    /// `FILTER.PORT -> FILTER.PORT`.
    #[serde(with = "text")]
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
    /// Of its blocks, where it finds that itself; each process that sends has its own, and this is
    /// that of the one with the lowest rank.
    pub block: Option<SizeReport>,
    /// What its dealing knows of the copies that receive, by number. Where several processes deal its
    /// blocks, as the one with the lowest rank knows it.
    #[serde(deserialize_with = "few::<_, _, MOST_COPIES>")]
    pub copies: Vec<CopyState>,
    /// Blocks that were given to a second copy, too, since the first one was late with them.
    pub hedged: u64,
    /// Of these, those that the second copy was done with first.
    pub hedges_won: u64,
}
