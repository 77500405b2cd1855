//! Blocks: the data that travels on a stream.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

use crate::memory::deferred_release;
use crate::memory::ledger::Ledger;
use crate::memory::origin::Origin;
use crate::memory::receipt::Receipt;
use crate::policy::priority::UnitId;

/// Bytes on their way from one filter to the next, shared and not copied.
///
/// Until it is dropped, a block occupies its share of the stream's limit. A filter that keeps
/// blocks takes room from those that send to it; a filter that sends one on takes room of the next
/// stream instead.
pub struct Block {
    bytes: Bytes,
    origin: Option<Origin>,
    unit: UnitId,
    sequence: u64,
    ledger: &'static Ledger,
    /// Bytes returned to the ledger when the block is dropped.
    held: usize,
    /// Set for a block from another process.
    receipt: Option<Box<Receipt>>,
}

impl Block {
    /// Makes a block from a queued one, which has taken its room from that ledger.
    pub(crate) fn new(queued: Queued, unit: UnitId, ledger: &'static Ledger) -> Self {
        let Queued { bytes, origin, sequence, held, receipt } = queued;
        Self { bytes, origin, unit, sequence, ledger, held, receipt }
    }

    /// Takes the bytes out of the block, which still occupies its share of the limit.
    pub(crate) fn take_bytes(&mut self) -> Bytes {
        std::mem::take(&mut self.bytes)
    }

    /// Turns it back into a queued block, which no copy has.
    pub(crate) fn into_queued(mut self) -> Queued {
        let held = std::mem::take(&mut self.held);
        let bytes = std::mem::take(&mut self.bytes);
        let (origin, receipt) = (self.origin.take(), self.receipt.take());
        Queued { bytes, origin, sequence: self.sequence, held, receipt }
    }

    /// The unit of work that the block belongs to.
    #[must_use]
    pub fn unit(&self) -> UnitId {
        self.unit
    }

    /// Number of the block in its unit on this stream, from 0. In an ordered stream it is the
    /// block's position; otherwise it only distinguishes blocks, and there may be gaps.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Where its first byte comes from, or the block that it was made from, if known.
    #[must_use]
    pub fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// The bytes. A clone of them shares the memory, but occupies no share of any limit.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.held > 0 {
            deferred_release::drop_block(self.ledger, self.held, self.take_bytes());
        }
    }
}

/// A block that no copy has. Its owner must return its room to the limit.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) bytes: Bytes,
    pub(crate) origin: Option<Origin>,
    pub(crate) sequence: u64,
    pub(crate) held: usize,
    pub(crate) receipt: Option<Box<Receipt>>,
}

impl Queued {
    /// Notes that a copy takes it and will finish it.
    pub(crate) fn begin(&mut self) {
        if let Some(Receipt::Memory { is_begun, .. }) = self.receipt.as_deref_mut() {
            *is_begun = true;
        }
    }

    /// A block of this process.
    pub(crate) fn new(bytes: Bytes, held: usize) -> Self {
        Self { bytes, origin: None, sequence: 0, held, receipt: None }
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Takes the bytes, and returns the block's room to the limit.
impl From<Block> for Bytes {
    fn from(mut block: Block) -> Bytes {
        block.take_bytes()
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
