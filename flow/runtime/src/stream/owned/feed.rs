//! Deals blocks to copies in other processes.

use super::Stream;
use super::state::StreamState;
use crate::memory::batch::Batch;
use crate::stream::remote_copy::RemoteCopy;
use crate::stream::work::NextWork;

impl Stream {
    /// Deals blocks to copies elsewhere, as far as these have room.
    pub(super) fn feed(&self, state: &mut StreamState) {
        if state.remote_copies.iter().all(Option::is_none) {
            return;
        }
        loop {
            self.feed_once(state);
            // Tell senders that a copy still has room before looking for everything they have sent
            // (inbox).
            state.publish(&self.has_idle);
            if !state.is_hungry || !self.collect(state) {
                break;
            }
        }
        self.recall(state);
        state.remote_copies.iter_mut().flatten().for_each(RemoteCopy::flush);
    }

    fn feed_once(&self, state: &mut StreamState) {
        state.is_hungry = false;
        let StreamState { dealer, remote_copies, .. } = &mut *state;
        let all = remote_copies.iter().enumerate();
        let full = all.filter_map(|(copy, one)| Some((copy, !one.as_ref()?.has_memory())));
        if full.filter(|(copy, is_full)| dealer.set_full(*copy, *is_full)).count() > 0 {
            // A copy that has left a block to that one takes it now.
            state.wake_all();
        }
        let is_candidate =
            |copy: &usize| state.remote_copies[*copy].is_some() && !state.consumers[*copy].is_lost;
        let mut candidates: Vec<usize> =
            (0..state.remote_copies.len()).filter(is_candidate).collect();
        let mut batch = Batch::new(self.ledger);
        loop {
            let StreamState { dealer, remote_copies, consumers, idle, .. } = &mut *state;
            let round_trip =
                |copy: usize| remote_copies[copy].as_ref().and_then(RemoteCopy::round_trip);
            let until =
                |copy: &usize| dealer.until_done(*copy, round_trip(*copy).unwrap_or_default());
            let Some(at) = (0..candidates.len()).min_by_key(|at| until(&candidates[*at])) else {
                return;
            };
            let copy = candidates[at];
            // Idle copies here that would finish sooner have been woken, or will be.
            let is_sooner =
                |other: &usize| consumers[*other].is_idle && until(other) < until(&copy);
            let sooner = match *idle {
                0 => 0,
                _ => (0..consumers.len()).filter(is_sooner).count(),
            };
            let service = dealer.typical(copy);
            let one = remote_copies[copy].as_ref();
            let has_room = one.is_some_and(|one| one.has_room(service));
            let undealt = || state.queues.values().map(|queue| queue.undealt.len()).sum::<usize>();
            let is_left_to_others = sooner > 0 && (1..=sooner).contains(&undealt());
            // The output of such a block may be awaited by a copy that holds up others.
            let is_urgent = state.queues.values().any(|queue| queue.again > 0);
            let next = match is_urgent || (has_room && !is_left_to_others) {
                true => self.take_next(state, copy, &mut batch),
                false => state.take_end(copy, self.counts_undone()),
            };
            let Some(one) = &mut state.remote_copies[copy] else { return };
            match (next, batch.rank()) {
                (Some(NextWork::Blocks), Some(rank)) => {
                    while let Some(block) = batch.next() {
                        one.send(rank, block, batch.is_again(), self.counts_undone());
                    }
                }
                (Some(NextWork::End(unit)), _) => one.end(unit),
                _ => {
                    candidates.swap_remove(at);
                    state.is_hungry |= has_room;
                }
            }
        }
    }
}

impl StreamState {
    /// Takes a unit whose end is to be announced to that copy.
    fn take_end(&mut self, copy: usize, is_redealt: bool) -> Option<NextWork> {
        let mut queues = self.queues.iter();
        let (rank, _) = queues.find(|(_, queue)| {
            queue.is_over(is_redealt) && queue.dealt[copy].is_empty() && !queue.notified.has(copy)
        })?;
        Some(self.end_for(copy, *rank))
    }
}
