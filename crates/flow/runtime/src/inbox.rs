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

    /// The same of several; false: they are left.
    pub(crate) fn put_all(&self, unit: &Open, blocks: &mut Vec<Queued>) -> bool {
        let mut inside = self.lock();
        let is_same = inside.rank == Some(unit.rank) && !unit.is_closed();
        if is_same {
            inside.blocks.extend(blocks.drain(..));
        }
        is_same
    }

    /// From now on for that unit, if it is empty: another producer may have put in something of the
    /// unit before.
    pub(crate) fn turn_to(&self, unit: Rank) {
        let mut inside = self.lock();
        if inside.blocks.is_empty() {
            inside.rank = Some(unit);
        }
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::unit::{Unit, Units};

    #[test]
    fn what_is_in_it_stays_what_it_is_of() {
        let units = Units::default();
        let [one, other] = [(); 2].map(|()| units.begin(Unit::new(""), vec![1]));
        let inbox = Inbox::default();
        let block = || Queued::new(Bytes::from_static(b"x"), 1);
        assert!(inbox.put(&one, block()).is_err(), "there is a lane for it only later");
        inbox.turn_to(one.rank);
        inbox.put(&one, block()).unwrap();
        assert!(inbox.put(&other, block()).is_err());
        // Another producer has put in its block since somebody has looked.
        inbox.turn_to(other.rank);
        let mut blocks = VecDeque::new();
        assert_eq!((inbox.empty(&mut blocks), blocks.len()), (Some(one.rank), 1));
        inbox.turn_to(other.rank);
        inbox.put(&other, block()).unwrap();
        units.is_done(other.rank.unit);
        assert!(inbox.put(&other, block()).is_err(), "it has ended");
    }
}
