//! Calls back blocks that wait at a copy which has become slow, for others that are idle.
//!
//! Blocks are sent ahead to copies in other processes, so that these have one to begin whenever
//! they finish one (`Distant::has_room`). Their number depends on how fast a copy was. If it is
//! slower now, others may finish its blocks before it would begin them. A block comes back only if
//! the copy has not begun it: no work is done twice.

use std::time::Duration;

use crate::block::Block;
use crate::dealing::{BATCH, Policy};
use crate::lanes::State;
use crate::remote::distant::Distant;
use crate::stream::Stream;
use crate::unit::Rank;

/// A block is called back if that is sooner by this factor, and by a few batches: what is known of
/// copies is only a guess.
const MARGIN: u32 = 2;

impl Stream {
    /// Whether blocks of a stream like that can be called back. In an ordered one, others may wait
    /// for their turn with later blocks, and could not begin this one unless they took room beyond
    /// the limit, as they do after a loss. A hedged stream allows it anyway.
    pub(crate) fn can_recall(policy: Policy, is_ordered: bool) -> bool {
        policy == Policy::Adaptive && !is_ordered
    }

    /// Calls a block back, if nothing else is left to deal and another copy would finish it sooner.
    pub(crate) fn recall(&self, state: &mut State) {
        if !self.is_recallable || state.lanes.values().any(|lane| !lane.undealt.is_empty()) {
            return;
        }
        let Some((soonest, _)) = state.soonest_free() else { return };
        let State { dealer, distant, .. } = &*state;
        // When each would finish its last block. Its current block has already taken this long.
        let busy = (0..distant.len()).filter_map(|copy| {
            let one = distant[copy].as_ref().filter(|one| one.can_recall())?;
            let service = dealer.typical(copy).unwrap_or_default().max(one.since_done());
            let blocks = u32::try_from(one.unfinished()).unwrap_or(u32::MAX);
            Some((service.saturating_mul(blocks), copy))
        });
        let Some((until, slow)) = busy.max() else { return };
        let sooner = (soonest + state.way(slow)).saturating_mul(MARGIN) + 4 * BATCH;
        if until <= sooner {
            return;
        }
        let Some(one) = &mut state.distant[slow] else { return };
        one.recall();
        one.flush();
    }

    /// Called as time passes: a copy elsewhere may get a block that it has left to faster ones, or
    /// a block may be called back.
    pub(crate) fn look_again(&self) {
        self.feed(&mut self.state());
    }

    /// A copy has returned a block: it goes to the copy that is free first.
    pub(crate) fn has_come_back(&self, state: &mut State, rank: Rank, block: Block) {
        // A copy that waits for several streams may be busy with another one.
        let free = state.soonest_free().filter(|_| !self.is_one_of_several);
        let State { dealer, lanes, distant, tickets, hedges, .. } = &mut *state;
        // If its unit has ended, it is dropped.
        let Some(lane) = lanes.get_mut(&rank) else { return };
        let is_redealt = self.remote.is_redealt;
        let is_sent_on = free.is_some_and(|(_, copy)| distant[copy].is_some());
        if let Some(hedges) = hedges.as_mut().filter(|_| !is_sent_on) {
            hedges.undealt();
        }
        let Some((_, copy)) = free else {
            lane.undone = lane.undone.saturating_sub(1);
            let block = block.into_queued();
            return if is_redealt { lane.deal_again(block) } else { lane.put_back(block) };
        };
        dealer.taken(copy, 1);
        if let Some(one) = &mut distant[copy] {
            one.send(rank, block, is_redealt, true);
            return one.flush();
        }
        lane.undone = lane.undone.saturating_sub(1);
        lane.dealt[copy].push_back((*tickets, block.into_queued()));
        *tickets += 1;
        state.wake(copy);
    }
}

impl State {
    pub(crate) fn way(&self, copy: usize) -> Duration {
        let way = self.distant[copy].as_ref().and_then(Distant::round_trip);
        way.unwrap_or_default()
    }

    /// The idle copies.
    pub(crate) fn all_free(&self) -> impl Iterator<Item = usize> {
        let is_free = move |copy: &usize| match &self.distant[*copy] {
            _ if self.consumers[*copy].is_lost => false,
            Some(one) => one.has_nothing() && one.has_memory(),
            None => self.consumers[*copy].is_idle,
        };
        (0..self.consumers.len()).filter(is_free)
    }

    /// The one of these that would finish a block first, and how long that takes.
    fn soonest_free(&self) -> Option<(Duration, usize)> {
        let free = self.all_free();
        free.map(|copy| (self.dealer.until_done(copy, self.way(copy)), copy)).min()
    }
}
