//! How a stream of a pipeline works.

use crate::policy::cut::{Cut, OVERHEAD};
use crate::policy::dealing::DealingPolicy;

/// Default limit of a stream: 64 MiB.
pub const DEFAULT_LIMIT: usize = 64 << 20;

/// The smallest limit of a stream, in bytes.
pub const LEAST_LIMIT: usize = 1024;

/// How a stream works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// How blocks are dealt to the copies of the receiving filter.
    pub policy: DealingPolicy,
    /// Bytes that the stream may hold: blocks that wait or are being processed, and buffers that
    /// are being filled. An ordered stream may hold more while several units are under way: for each
    /// of them a line that others wait for, up to a quarter of the limit.
    pub limit: usize,
    /// True if blocks keep the order of the blocks that the copies of the sending filter received.
    pub is_ordered: bool,
    /// How output is cut into blocks.
    pub cut: Cut,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            policy: DealingPolicy::default(),
            limit: DEFAULT_LIMIT,
            is_ordered: false,
            cut: Cut::Whole,
        }
    }
}

/// The least limit of a stream to which this many copies in one process send.
pub(crate) fn least(cut: &Cut, copies: usize) -> usize {
    let block = match cut {
        Cut::Whole => return LEAST_LIMIT,
        Cut::Bytes(size) | Cut::Lines(size) => *size,
        Cut::Auto(bounds) => bounds.needed(),
    };
    // One that each copy fills, and two on their way; or a quarter for the one that all others wait
    // for.
    let parts = (copies + 2).max(4);
    block.saturating_add(OVERHEAD).saturating_mul(parts).max(LEAST_LIMIT)
}
