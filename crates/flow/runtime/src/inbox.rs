//! What a producer has sent and nobody has looked for yet.
//!
//! Where consumers are busy, a block need not be dealt at once. Each producer puts its blocks where
//! only it does, and a consumer that has little left takes what all of them have there. So those who
//! send and those who receive do not wait for each other at every block.
//!
//! No block is forgotten: a consumer that finds nothing says so (`Stream::has_idle`) and only then
//! looks into the inboxes for the last time; a producer looks whether one has said so after it has
//! put in its block. Both lock the inbox in between. So if the consumer came first, the producer
//! knows, and if the producer did, the consumer has found the block.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::block::Queued;
use crate::unit::{Open, Rank};

/// Of one producer, or of several. It does not share a cache line with others.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Inbox {
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    /// The unit that all of it is of. There is a lane for it in the stream, or it has ended.
    rank: Option<Rank>,
    blocks: VecDeque<Queued>,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts it in, unless this is for another unit, or the block's has ended.
    pub(crate) fn put(&self, unit: &Open, block: Queued) -> Result<(), Queued> {
        let mut inside = self.lock();
        if inside.rank != Some(unit.rank) || unit.is_closed() {
            return Err(block);
        }
        inside.blocks.push_back(block);
        Ok(())
    }

    /// From now on for that unit. It is empty.
    pub(crate) fn turn_to(&self, unit: Rank) {
        self.lock().rank = Some(unit);
    }

    /// Exchanges what is in it for nothing: of which unit it is.
    pub(crate) fn empty(&self, into: &mut VecDeque<Queued>) -> Option<Rank> {
        let mut inside = self.lock();
        if inside.blocks.is_empty() {
            return None;
        }
        std::mem::swap(&mut inside.blocks, into);
        inside.rank
    }
}
