//! What travels on a stream.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

use crate::hedging::Share;
use crate::ledger::{Charge, Ledger};
use crate::origin::Origin;
use crate::remote::later;
use crate::remote::link::Link;
use crate::remote::message::End;
use crate::spent;
use crate::unit::UnitId;

/// Bytes on their way from one filter to the next, shared and not copied.
///
/// Until it is dropped, a block takes its share of the stream's limit. A filter that keeps one takes
/// room from those that send to it; a filter that sends it on takes room of the next stream instead.
pub struct Block {
    bytes: Bytes,
    origin: Option<Origin>,
    unit: UnitId,
    sequence: u64,
    ledger: &'static Ledger,
    /// Given back when the block is dropped.
    held: usize,
    /// Of one that came from another process.
    receipt: Option<Box<Receipt>>,
}

impl Block {
    /// Of one that was queued, and took room of that ledger.
    pub(crate) fn new(queued: Queued, unit: UnitId, ledger: &'static Ledger) -> Self {
        let Queued { bytes, origin, sequence, held, receipt } = queued;
        Self { bytes, origin, unit, sequence, ledger, held, receipt }
    }

    /// Its bytes, which it is without from then on. It still takes its share of the limit.
    pub(crate) fn take_bytes(&mut self) -> Bytes {
        std::mem::take(&mut self.bytes)
    }

    /// What it takes, for others who have it, too: it is given back when nobody has it any more.
    pub(crate) fn share(&mut self) -> Arc<Share> {
        if let Some(Receipt::Shared { share }) = self.receipt.as_deref() {
            return Arc::clone(share);
        }
        let charge = Charge::new(self.ledger, std::mem::take(&mut self.held));
        let share = Arc::new(Share::new(charge, self.receipt.take(), self.origin.clone()));
        self.receipt = Some(Box::new(Receipt::Shared { share: Arc::clone(&share) }));
        share
    }

    /// Nobody has it any more.
    pub(crate) fn into_queued(mut self) -> Queued {
        let held = std::mem::take(&mut self.held);
        let bytes = std::mem::take(&mut self.bytes);
        let (origin, receipt) = (self.origin.take(), self.receipt.take());
        Queued { bytes, origin, sequence: self.sequence, held, receipt }
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

    /// Where its first byte comes from, or the block that it was made from, if that is known.
    #[must_use]
    pub fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// The bytes. A clone of them shares the memory, but takes no share of any limit.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.held > 0 {
            spent::drop_block(self.ledger, self.held, self.take_bytes());
        }
    }
}

/// A block that nobody has been given. What it takes of the limit is given back by who has it.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) bytes: Bytes,
    pub(crate) origin: Option<Origin>,
    pub(crate) sequence: u64,
    pub(crate) held: usize,
    pub(crate) receipt: Option<Box<Receipt>>,
}

impl Queued {
    /// A copy takes it: it will be done with it.
    pub(crate) fn begin(&mut self) {
        if let Some(Receipt::Memory { is_begun, .. }) = self.receipt.as_deref_mut() {
            *is_begun = true;
        }
    }

    /// Of a process of its own.
    pub(crate) fn new(bytes: Bytes, held: usize) -> Self {
        Self { bytes, origin: None, sequence: 0, held, receipt: None }
    }

    /// Of a block that several copies have.
    pub(crate) fn shared(bytes: Bytes, sequence: u64, share: Arc<Share>) -> Self {
        let origin = share.origin.clone();
        let receipt = Some(Box::new(Receipt::Shared { share }));
        Self { bytes, origin, sequence, held: 0, receipt }
    }
}

/// Whom the end of a block is told.
pub(crate) enum Receipt {
    /// Those that have sent it have so much room again, as is known in the ledger for them.
    Room { link: Arc<Link>, stream: u16, bytes: usize, ledger: &'static Ledger },
    /// The home that has dealt it knows that its memory is free.
    Memory { link: Arc<Link>, to: End, unit: UnitId, sequence: u64, is_begun: bool },
    /// Several copies have the block, and what it takes, until they are through with it.
    Shared { share: Arc<Share> },
}

impl Drop for Receipt {
    fn drop(&mut self) {
        match self {
            Self::Room { link, stream, bytes, ledger } => {
                ledger.give(*bytes);
                later::freed(link, *stream, *bytes);
            }
            Self::Memory { link, to, unit, sequence, is_begun } => {
                later::dropped(link, *to, *unit, *sequence, *is_begun);
            }
            // With the last of them.
            Self::Shared { .. } => {}
        }
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receipt")
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
