//! The blocks that a copy has taken from a stream and not begun.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::block::{Block, Queued};
use crate::ledger::Ledger;
use crate::unit::Rank;

/// Blocks of one unit, in order. If it is dropped, the room of those left is returned to the limit.
pub(crate) struct Hand {
    ledger: &'static Ledger,
    rank: Option<Rank>,
    pub(crate) blocks: VecDeque<Queued>,
    /// Number of blocks taken, including those that have left it.
    taken: usize,
    /// Bytes of those that have left it.
    given: usize,
    /// How long the copy has waited for room with these.
    pub(crate) blocked: Duration,
    /// True if they were dealt before, to a copy that is lost.
    is_again: bool,
    /// When the copy, having found nothing to do, should look again.
    pub(crate) look_again: Option<Instant>,
}

impl Hand {
    pub(crate) fn new(ledger: &'static Ledger) -> Self {
        Self {
            ledger,
            rank: None,
            blocks: VecDeque::new(),
            taken: 0,
            given: 0,
            blocked: Duration::ZERO,
            is_again: false,
            look_again: None,
        }
    }

    /// Takes blocks of that unit into the empty hand.
    pub(crate) fn take(&mut self, rank: Rank, blocks: impl Iterator<Item = Queued>) {
        self.rank = Some(rank);
        self.blocks.extend(blocks);
        self.taken = self.blocks.len();
        self.given = 0;
        self.is_again = false;
    }

    /// The same, for a block that was dealt before, to a copy that is lost.
    pub(crate) fn take_again(&mut self, rank: Rank, block: Option<Queued>) {
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

    pub(crate) fn rank(&self) -> Option<Rank> {
        self.rank
    }

    /// Number of blocks taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// The next block.
    pub(crate) fn next(&mut self) -> Option<Block> {
        let unit = self.rank?.unit;
        let mut block = self.blocks.pop_front()?;
        block.begin();
        self.given += block.bytes.len();
        Some(Block::new(block, unit, self.ledger))
    }

    /// Bytes of the blocks that have left it.
    pub(crate) fn given(&self) -> usize {
        self.given
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

impl Drop for Hand {
    fn drop(&mut self) {
        self.clear();
    }
}
