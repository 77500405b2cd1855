//! The blocks that a copy has taken from a stream and not begun.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::memory::block::{Block, Queued};
use crate::memory::ledger::Ledger;
use crate::policy::priority::Priority;

/// Blocks of one unit, in order. If it is dropped, the room of those left is returned to the limit.
pub(crate) struct Batch {
    ledger: &'static Ledger,
    rank: Option<Priority>,
    pub(crate) blocks: VecDeque<Queued>,
    /// Number of blocks taken, including those that have left it.
    size: usize,
    /// Bytes of those that have left it.
    removed_bytes: usize,
    /// How long the copy has waited for room with these.
    pub(crate) blocked: Duration,
    /// True if they were dealt before, to a copy that is lost.
    is_again: bool,
    /// When the copy, having found nothing to do, should look again.
    pub(crate) look_again: Option<Instant>,
}

impl Batch {
    pub(crate) fn new(ledger: &'static Ledger) -> Self {
        Self {
            ledger,
            rank: None,
            blocks: VecDeque::new(),
            size: 0,
            removed_bytes: 0,
            blocked: Duration::ZERO,
            is_again: false,
            look_again: None,
        }
    }

    /// Takes blocks of that unit into the empty batch.
    pub(crate) fn take(&mut self, rank: Priority, blocks: impl Iterator<Item = Queued>) {
        self.rank = Some(rank);
        self.blocks.extend(blocks);
        self.size = self.blocks.len();
        self.removed_bytes = 0;
        self.is_again = false;
    }

    /// The same, for a block that was dealt before, to a copy that is lost.
    pub(crate) fn take_again(&mut self, rank: Priority, block: Option<Queued>) {
        self.take(rank, block.into_iter());
        self.is_again = true;
    }

    /// Makes the copy look again at that time, or earlier.
    pub(crate) fn look_again_at(&mut self, at: Instant) {
        self.look_again = Some(self.look_again.map_or(at, |earlier| earlier.min(at)));
    }

    pub(crate) fn is_again(&self) -> bool {
        self.is_again
    }

    pub(crate) fn rank(&self) -> Option<Priority> {
        self.rank
    }

    /// Number of blocks taken.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The next block.
    pub(crate) fn next(&mut self) -> Option<Block> {
        let unit = self.rank?.unit;
        let mut block = self.blocks.pop_front()?;
        block.begin();
        self.removed_bytes += block.bytes.len();
        Some(Block::new(block, unit, self.ledger))
    }

    /// Bytes of the blocks that have left it.
    pub(crate) fn removed_bytes(&self) -> usize {
        self.removed_bytes
    }

    /// Drops the blocks that are left.
    pub(crate) fn clear(&mut self) {
        let held = self.blocks.iter().map(|block| block.held).sum();
        if held > 0 {
            self.ledger.give(held);
        }
        // Senders that learn of the free memory may send more.
        self.blocks.clear();
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.clear();
    }
}
