//! The work that a copy gets from a stream.

use crate::policy::priority::UnitId;

/// The next item for a consumer.
pub(crate) enum NextWork {
    /// Blocks, which are in its batch.
    Blocks,
    /// No more blocks of this unit come to this copy.
    End(UnitId),
}
