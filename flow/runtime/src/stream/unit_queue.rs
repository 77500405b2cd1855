//! The blocks of one unit of work in a stream.

use std::collections::VecDeque;
use std::time::Instant;

use crate::memory::batch::Batch;
use crate::memory::block::Queued;
use crate::memory::ledger::Ledger;
use crate::policy::dealing::Dealer;
use crate::stream::merge::Merge;
use crate::stream::replays::Replays;

/// The blocks of one unit of work.
pub(crate) struct UnitQueue {
    pub(crate) ledger: &'static Ledger,
    /// If the order matters, the blocks that arrived too early.
    pub(crate) merge: Option<Merge<Queued>>,
    pub(crate) undealt: VecDeque<Queued>,
    /// Number of blocks at the front that go first: they were dealt before, to a copy that is lost.
    pub(crate) again: usize,
    /// For each copy, the blocks that it was dealt, each with its ticket.
    pub(crate) dealt: Vec<VecDeque<(u64, Queued)>>,
    /// Number of the next block, and the difference to the one after it: other owners use the
    /// numbers between them.
    pub(crate) next: u64,
    pub(crate) step: u64,
    /// Bytes of the blocks that were dealt.
    pub(crate) bytes: u64,
    /// If blocks may be sent again, those that were accepted.
    pub(crate) replays: Option<Replays>,
    /// Most entries for groups. The finished groups have no more gaps between them than the copies
    /// that send have blocks.
    pub(crate) most_entries: usize,
    /// Copies that have left blocks to faster ones, and until when these should have finished them.
    pub(crate) left_until: Vec<(usize, Instant)>,
    /// Blocks that copies have taken and not begun.
    pub(crate) in_batches: usize,
    /// Blocks that copies have taken and not finished.
    pub(crate) undone: usize,
    /// Producers that have sent everything but their final output, and producers that have sent
    /// all.
    pub(crate) ending: CompletionSet,
    pub(crate) ended: CompletionSet,
    /// Consumers that know that nothing more comes.
    pub(crate) notified: CompletionSet,
}

/// The set of participants that have done something.
pub(crate) struct CompletionSet {
    who: Vec<bool>,
    left: usize,
}

impl CompletionSet {
    /// Expects this many of them to do it.
    pub(crate) fn new(left: usize) -> Self {
        Self { who: Vec::new(), left }
    }

    pub(crate) fn add(&mut self, one: usize) {
        if self.has(one) {
            return;
        }
        if one >= self.who.len() {
            self.who.resize(one + 1, false);
        }
        self.who[one] = true;
        self.left = self.left.saturating_sub(1);
    }

    pub(crate) fn has(&self, one: usize) -> bool {
        self.who.get(one) == Some(&true)
    }

    pub(crate) fn is_all(&self) -> bool {
        self.left == 0
    }
}

impl Drop for UnitQueue {
    fn drop(&mut self) {
        let dealt = self.dealt.iter().flatten().map(|(_, block)| block);
        let merge = self.merge.iter().flat_map(Merge::waiting);
        let held = dealt.chain(&self.undealt).chain(merge).map(|block| block.held).sum();
        if held > 0 {
            self.ledger.give(held);
        }
    }
}

impl UnitQueue {
    /// Numbers the block and deals it. Returns the copy that gets it, if it is dealt at once.
    pub(crate) fn deal(
        &mut self,
        dealer: &mut Dealer,
        tickets: &mut u64,
        block: Queued,
    ) -> Option<usize> {
        let block = Queued { sequence: self.next, ..block };
        self.next += self.step;
        self.bytes += block.bytes.len() as u64;
        let copy = dealer.deal();
        match copy {
            Some(copy) => {
                self.dealt[copy].push_back((*tickets, block));
                *tickets += 1;
            }
            None => self.undealt.push_back(block),
        }
        copy
    }

    /// Adds blocks that copies have to ask for. Returns their bytes.
    pub(crate) fn keep(&mut self, blocks: &mut VecDeque<Queued>) -> u64 {
        let mut bytes = 0;
        for block in blocks.iter_mut() {
            block.sequence = self.next;
            self.next += self.step;
            bytes += block.bytes.len() as u64;
        }
        self.bytes += bytes;
        match self.undealt.is_empty() {
            true => std::mem::swap(&mut self.undealt, blocks),
            false => self.undealt.extend(blocks.drain(..)),
        }
        bytes
    }

    /// Whether blocks are left that the copy has left to faster ones, and these were not as fast as
    /// expected. Before that time, sets when to look again.
    pub(crate) fn is_overdue(&mut self, copy: usize, dealer: &Dealer, batch: &mut Batch) -> bool {
        let Some(time) = dealer.leaves_for(copy).filter(|_| !self.undealt.is_empty()) else {
            return false;
        };
        let now = Instant::now();
        let kept = self.left_until.iter().find(|(other, _)| *other == copy);
        let until = kept.map_or_else(|| now.checked_add(time), |(_, until)| Some(*until));
        let Some(until) = until else { return false };
        if kept.is_none() {
            self.left_until.push((copy, until));
        }
        if now < until {
            batch.look_again_at(until);
        }
        now >= until
    }

    /// True if nothing more comes, and no block is left that copies could take, now or after a
    /// loss.
    pub(crate) fn is_over(&self, is_redealt: bool) -> bool {
        let is_undone = || self.undone > 0 || self.dealt.iter().any(|dealt| !dealt.is_empty());
        let is_taken = self.ended.is_all() && self.undealt.is_empty() && self.in_batches == 0;
        is_taken && !(is_redealt && is_undone())
    }

    /// Puts a block back in its former place: others may have put back later ones.
    pub(crate) fn put_back(&mut self, block: Queued) {
        let at = self.undealt.partition_point(|other| other.sequence < block.sequence);
        self.undealt.insert(at, block);
    }
}

/// Number of entries for groups of a unit that is always allowed, however small the limits are.
pub(crate) const GROUP_ENTRIES: usize = 1 << 18;

impl UnitQueue {
    /// Puts the block back in its former place.
    pub(crate) fn deal_again(&mut self, block: Queued) {
        self.put_back(block);
        self.again += 1;
    }

    /// Whether there are no more entries for groups without waiting blocks than an honest sender
    /// needs. The ledger bounds the blocks: each has taken at least `OVERHEAD` bytes of room.
    pub(crate) fn is_bounded(&self) -> bool {
        let merge = self.merge.as_ref().map_or(0, Merge::entries);
        let replays = self.replays.as_ref().map_or(0, Replays::entries);
        merge + replays <= self.most_entries
    }
}

/// Counts that unit as ended.
pub(crate) fn count_over(over: &mut (u64, u64), queue: &UnitQueue) {
    let (units, bytes) = over;
    if queue.bytes > 0 {
        *units += 1;
        *bytes += queue.bytes;
    }
}
