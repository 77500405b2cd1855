//! The work that a copy gets from a stream, and its outcome.

use crate::policy::priority::UnitId;

/// The next item for a consumer.
pub(crate) enum NextWork {
    /// Blocks, which are in its batch.
    Blocks,
    /// No more blocks of this unit come to this copy.
    End(UnitId),
    /// The same for that copy, which is late with a block that is no longer awaited.
    EndFor(usize, UnitId),
    /// The owner has ended these units without this copy.
    Beaten(Vec<UnitId>),
}

/// The outcome of a block at a copy.
#[derive(Default)]
pub(crate) struct Finished {
    /// Another copy had finished it before, or the unit had ended.
    pub(crate) is_beaten: bool,
    /// Units that were ended in its place.
    pub(crate) ended: Vec<UnitId>,
}
