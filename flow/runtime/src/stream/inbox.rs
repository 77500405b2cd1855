//! Blocks that a producer has sent and no consumer has looked for yet.
//!
//! While consumers are busy, a block need not be dealt at once. Each producer puts its blocks into
//! an inbox of its own, and a consumer that runs low empties all of them. So senders and receivers
//! do not contend for a lock at every block.
//!
//! No block is forgotten: a consumer that finds nothing announces it (`Stream::has_idle`) and only
//! then checks the inboxes for the last time; a producer checks for such an announcement after it
//! has put in its block. Both lock the inbox in between. So if the consumer came first, the
//! producer sees the announcement, and if the producer did, the consumer finds the block.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::block::Queued;
use crate::policy::priority::Priority;
use crate::stream::unit::Open;

/// The inbox of one producer, or of several. It does not share a cache line with others.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Inbox {
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    /// The unit of all its blocks. The stream has a queue for it, or it has ended.
    rank: Option<Priority>,
    blocks: VecDeque<Queued>,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the block in, unless the inbox is for another unit, or the block's unit has ended.
    pub(crate) fn put(&self, unit: &Open, block: Queued) -> Result<(), Queued> {
        let mut inside = self.lock();
        if inside.rank != Some(unit.rank) || unit.is_closed() {
            return Err(block);
        }
        inside.blocks.push_back(block);
        Ok(())
    }

    /// The same for several blocks; false if they are left.
    pub(crate) fn put_all(&self, unit: &Open, blocks: &mut Vec<Queued>) -> bool {
        let mut inside = self.lock();
        let is_same = inside.rank == Some(unit.rank) && !unit.is_closed();
        if is_same {
            inside.blocks.extend(blocks.drain(..));
        }
        is_same
    }

    /// Switches an empty inbox to that unit: another producer may have put in a block of the
    /// previous one.
    pub(crate) fn turn_to(&self, unit: Priority) {
        let mut inside = self.lock();
        if inside.blocks.is_empty() {
            inside.rank = Some(unit);
        }
    }

    /// Swaps its blocks with the empty `into`, and returns their unit.
    pub(crate) fn empty(&self, into: &mut VecDeque<Queued>) -> Option<Priority> {
        let mut inside = self.lock();
        if inside.blocks.is_empty() {
            return None;
        }
        std::mem::swap(&mut inside.blocks, into);
        inside.rank
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::stream::unit::{Unit, Units};

    #[test]
    fn what_is_in_it_stays_what_it_is_of() {
        let units = Units::default();
        let [one, other] = [(); 2].map(|()| units.begin(Unit::new(""), vec![1]));
        let inbox = Inbox::default();
        let block = || Queued::new(Bytes::from_static(b"x"), 1);
        assert!(inbox.put(&one, block()).is_err(), "there is a queue for it only later");
        inbox.turn_to(one.rank);
        inbox.put(&one, block()).unwrap();
        assert!(inbox.put(&other, block()).is_err());
        // Another producer has put in its block since the last look.
        inbox.turn_to(other.rank);
        let mut blocks = VecDeque::new();
        assert_eq!((inbox.empty(&mut blocks), blocks.len()), (Some(one.rank), 1));
        inbox.turn_to(other.rank);
        inbox.put(&other, block()).unwrap();
        units.is_done(other.rank.unit);
        assert!(inbox.put(&other, block()).is_err(), "it has ended");
    }
}
