//! What travels on a stream.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

use crate::ledger::Charge;
use crate::unit::UnitId;

/// Bytes on their way from one filter to the next, shared and not copied.
///
/// Until it is dropped, a block takes its share of the stream's limit. A filter that keeps one takes
/// room from those that send to it; a filter that sends it on takes room of the next stream instead.
pub struct Block {
    bytes: Bytes,
    unit: UnitId,
    sequence: u64,
    /// Given back when the block is dropped.
    _charge: Charge,
}

impl Block {
    pub(crate) fn new(bytes: Bytes, unit: UnitId, sequence: u64, charge: Charge) -> Self {
        Self { bytes, unit, sequence, _charge: charge }
    }

    /// The unit of work that it is part of.
    #[must_use]
    pub fn unit(&self) -> UnitId {
        self.unit
    }

    /// Counts the blocks of the unit on this stream from 0. In an ordered stream it says where the
    /// block stands; in another one only that it is not a different block.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The bytes. A clone of them shares the memory, but takes no share of any limit.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// A block that nobody has been given. What it takes of the limit is given back by who has it.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) bytes: Bytes,
    pub(crate) sequence: u64,
    pub(crate) held: usize,
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Its bytes; what it takes of the limit is given back.
impl From<Block> for Bytes {
    fn from(block: Block) -> Bytes {
        block.bytes.clone()
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("unit", &self.unit)
            .field("sequence", &self.sequence)
            .field("len", &self.bytes.len())
            .finish()
    }
}
