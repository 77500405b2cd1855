//! Calls back blocks that wait at a copy which has become slow, for others that are idle (window).
//!
//! A block comes back only if the copy has not begun it: no work is done twice.

use std::time::Duration;

use super::Stream;
use super::state::StreamState;
use crate::memory::block::Block;
use crate::policy::dealing::DealingPolicy;
use crate::policy::priority::Priority;
use crate::policy::window::is_worth_a_recall;
use crate::stream::remote_copy::RemoteCopy;

impl Stream {
    /// Whether blocks of a stream like that can be called back. In an ordered one, others may wait
    /// for their turn with later blocks, and could not begin this one unless they took room beyond
    /// the limit, as they do after a loss. A hedged stream allows it anyway.
    pub(super) fn can_recall(policy: DealingPolicy, is_ordered: bool) -> bool {
        policy.can_recall() && !is_ordered
    }

    /// Calls a block back, if nothing else is left to deal and another copy would finish it sooner.
    pub(super) fn recall(&self, state: &mut StreamState) {
        if !self.is_recallable || state.queues.values().any(|queue| !queue.undealt.is_empty()) {
            return;
        }
        let Some((soonest, _)) = state.soonest_free() else { return };
        let StreamState { dealer, remote_copies, .. } = &*state;
        // When each would finish its last block. Its current block has already taken this long.
        let busy = (0..remote_copies.len()).filter_map(|copy| {
            let one = remote_copies[copy].as_ref().filter(|one| one.can_recall())?;
            let service = dealer.typical(copy).unwrap_or_default().max(one.since_done());
            let blocks = u32::try_from(one.unfinished()).unwrap_or(u32::MAX);
            Some((service.saturating_mul(blocks), copy))
        });
        let Some((until, slow)) = busy.max() else { return };
        if !is_worth_a_recall(until, soonest, state.round_trip(slow)) {
            return;
        }
        let Some(one) = &mut state.remote_copies[slow] else { return };
        one.recall();
        one.flush();
    }

    /// Called as time passes: a copy elsewhere may get a block that it has left to faster ones, or
    /// a block may be called back.
    pub(crate) fn look_again(&self) {
        self.feed(&mut self.state());
    }

    /// A copy has returned a block: it goes to the copy that is free first.
    pub(super) fn has_come_back(&self, state: &mut StreamState, rank: Priority, block: Block) {
        // A copy that waits for several streams may be busy with another one.
        let free = state.soonest_free().filter(|_| !self.is_one_of_several);
        let StreamState { dealer, queues, remote_copies, tickets, hedges, .. } = &mut *state;
        // If its unit has ended, it is dropped.
        let Some(queue) = queues.get_mut(&rank) else { return };
        let is_redealt = self.remote.is_redealt;
        let is_sent_on = free.is_some_and(|(_, copy)| remote_copies[copy].is_some());
        if let Some(hedges) = hedges.as_mut().filter(|_| !is_sent_on) {
            hedges.policy.undealt();
        }
        let Some((_, copy)) = free else {
            queue.undone = queue.undone.saturating_sub(1);
            let block = block.into_queued();
            return if is_redealt { queue.deal_again(block) } else { queue.put_back(block) };
        };
        dealer.assigned(copy, 1);
        if let Some(one) = &mut remote_copies[copy] {
            one.send(rank, block, is_redealt, true);
            return one.flush();
        }
        queue.undone = queue.undone.saturating_sub(1);
        queue.dealt[copy].push_back((*tickets, block.into_queued()));
        *tickets += 1;
        state.wake(copy);
    }
}

impl StreamState {
    pub(super) fn round_trip(&self, copy: usize) -> Duration {
        let round_trip = self.remote_copies[copy].as_ref().and_then(RemoteCopy::round_trip);
        round_trip.unwrap_or_default()
    }

    /// The idle copies.
    pub(super) fn all_free(&self) -> impl Iterator<Item = usize> {
        let is_free = move |copy: &usize| match &self.remote_copies[*copy] {
            _ if self.consumers[*copy].is_lost => false,
            Some(one) => one.has_nothing() && one.has_memory(),
            None => self.consumers[*copy].is_idle,
        };
        (0..self.consumers.len()).filter(is_free)
    }

    /// The one of these that would finish a block first, and how long that takes.
    fn soonest_free(&self) -> Option<(Duration, usize)> {
        let free = self.all_free();
        free.map(|copy| (self.dealer.until_done(copy, self.round_trip(copy)), copy)).min()
    }
}
