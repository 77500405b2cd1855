//! Calls back blocks that wait at a copy which has become slow, for others that are idle (window).
//!
//! A block comes back only if the copy has not begun it: no work is done twice. If blocks are dealt
//! at once, they stay where they were dealt. In an ordered stream, others may wait for their turn
//! with later blocks, and could not begin this one unless they took room beyond the limit, as they
//! do after a loss.

use std::time::Duration;

use super::Stream;
use super::state::StreamState;
use crate::memory::block::Block;
use crate::policy::priority::Priority;
use crate::policy::window::is_worth_a_recall;
use crate::stream::remote_copy::RemoteCopy;

impl Stream {
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
        if let Some(one) = &mut state.remote_copies[slow] {
            one.recall();
        }
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
        let StreamState { dealer, queues, remote_copies, tickets, .. } = &mut *state;
        // If its unit has ended, it is dropped.
        let Some(queue) = queues.get_mut(&rank) else { return };
        let is_redealt = self.remote.is_redealt;
        let Some((_, copy)) = free else {
            queue.undone = queue.undone.saturating_sub(1);
            let block = block.into_queued();
            return if is_redealt { queue.deal_again(block) } else { queue.put_back(block) };
        };
        dealer.assigned(copy, 1);
        if let Some(one) = &mut remote_copies[copy] {
            return one.send(rank, block, is_redealt, true);
        }
        queue.undone = queue.undone.saturating_sub(1);
        queue.dealt[copy].push_back((*tickets, block.into_queued()));
        *tickets += 1;
        state.wake(copy);
    }
}

impl StreamState {
    fn round_trip(&self, copy: usize) -> Duration {
        let round_trip = self.remote_copies[copy].as_ref().and_then(RemoteCopy::round_trip);
        round_trip.unwrap_or_default()
    }

    /// The idle copy that would finish a block first, and how long that takes.
    fn soonest_free(&self) -> Option<(Duration, usize)> {
        let is_free = |copy: &usize| match &self.remote_copies[*copy] {
            _ if self.consumers[*copy].is_lost => false,
            Some(one) => one.has_nothing() && one.has_memory(),
            None => self.consumers[*copy].is_idle,
        };
        let free = (0..self.consumers.len()).filter(is_free);
        free.map(|copy| (self.dealer.until_done(copy, self.round_trip(copy)), copy)).min()
    }
}
