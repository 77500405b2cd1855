//! Errors of filters, and of their output.

use std::sync::Arc;

use thiserror::Error;

use crate::policy::cut::LONGEST_PAYLOAD;

/// An error of a filter, which ends the unit of work.
pub type FilterError = Box<dyn std::error::Error + Send + Sync>;

/// The unit of work has ended, so its output is not needed. A filter returns it as its own error.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the unit of work has ended")]
pub struct UnitEnded;

/// A block does not fit into the stream, even if it were the only one.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "a block of {bytes} bytes is too large for stream {stream}, which takes at most {most} in one: {}",
    advice(*.most)
)]
pub struct TooLarge {
    pub(crate) stream: Arc<str>,
    pub(crate) bytes: usize,
    pub(crate) most: usize,
}

fn advice(most: usize) -> &'static str {
    match most {
        LONGEST_PAYLOAD => "blocks to other processes cannot be larger; have it cut into blocks",
        _ => "raise its limit, or have it cut into blocks",
    }
}

/// An idempotent filter sends output that does not belong to a block.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("stream {0} comes from an idempotent filter, which cannot send in init or finalize")]
pub struct NotOfABlock(pub(crate) Arc<str>);

/// Several copies send to an ordered stream, and this one has no block yet that gives its output a
/// place.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("stream {0} is ordered: where there are several copies, a filter cannot send in init")]
pub struct NoOrderYet(pub(crate) Arc<str>);
