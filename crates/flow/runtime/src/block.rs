//! What travels on a stream.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

use crate::ledger::Charge;
use crate::remote::link::Link;
use crate::remote::message::{End, Message};
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
    /// Of one that came from another process, or from one.
    _receipt: Option<Box<Receipt>>,
}

/// Whom the end of a block is told.
pub(crate) enum Receipt {
    /// Those that have sent it have so much room again.
    Room { link: Arc<Link>, stream: u16, bytes: u64 },
    /// The home that has dealt it knows that its memory is free.
    Memory { link: Arc<Link>, to: End, unit: UnitId, sequence: u64 },
}

impl Drop for Receipt {
    fn drop(&mut self) {
        match self {
            Self::Room { link, stream, bytes } => {
                link.send(Message::Freed { stream: *stream, bytes: *bytes });
            }
            Self::Memory { link, to, unit, sequence } => {
                link.send(Message::Dropped { to: *to, unit: *unit, sequence: *sequence });
            }
        }
    }
}

impl Block {
    pub(crate) fn new(bytes: Bytes, unit: UnitId, sequence: u64, charge: Charge) -> Self {
        Self { bytes, unit, sequence, _charge: charge, _receipt: None }
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

    pub(crate) fn set_receipt(&mut self, receipt: Receipt) {
        self._receipt = Some(Box::new(receipt));
    }

    pub(crate) fn set_sequence(&mut self, sequence: u64) {
        self.sequence = sequence;
    }
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
