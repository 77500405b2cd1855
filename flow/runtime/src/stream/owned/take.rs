//! Copies here take blocks, and are done with them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Stream;
use super::state::{Event, StreamState};
use crate::memory::batch::Batch;
use crate::memory::block::Queued;
use crate::memory::wakeup::Wakeup;
use crate::policy::copy_state::Deal;
use crate::policy::dealing::BATCH_BLOCKS;
use crate::stream::remote_copy::RemoteCopy;
use crate::stream::unit::Open;
use crate::stream::unit_queue::UnitQueue;
use crate::stream::work::NextWork;

impl Stream {
    /// Takes the next item for that copy, the most urgent unit first. If there is none, the copy is
    /// woken when there is.
    pub(crate) fn take(
        &self,
        copy: usize,
        own: &Arc<Wakeup>,
        batch: &mut Batch,
    ) -> Option<NextWork> {
        let mut state = self.state();
        let undealt = || state.queues.values().map(|queue| queue.undealt.len()).sum::<usize>();
        // A more urgent unit than those here may have arrived.
        if state.queues.len() > 1 || undealt() < BATCH_BLOCKS * self.consumers {
            self.collect(&mut state);
        }
        batch.look_again = None;
        let mut work = self.take_next(&mut state, copy, batch);
        if work.is_none() {
            self.set_idle(&mut state, copy, true);
            state.publish(&self.has_idle);
            self.collect(&mut state);
            work = self.take_next(&mut state, copy, batch);
        }
        self.set_idle(&mut state, copy, work.is_none());
        if work.is_none() {
            state.consumers[copy].wakeup.get_or_insert_with(|| Arc::clone(own));
            drop(state);
            if self.ledger.is_waited_for() {
                // Nothing is left here, so callers that wait for room must check again.
                self.ledger.wake_all();
            }
            return None;
        }
        if matches!(work, Some(NextWork::Blocks)) {
            state.dealer.began(copy, batch.size());
        }
        if state.idle > 0 && state.queues.values().any(|queue| !queue.undealt.is_empty()) {
            self.wake_for_undealt(&mut state);
        }
        if self.remote.is_redealt {
            state.consumers[copy].wakeup.get_or_insert_with(|| Arc::clone(own));
        }
        work
    }

    fn set_idle(&self, state: &mut StreamState, copy: usize, is_idle: bool) {
        let was_idle = std::mem::replace(&mut state.consumers[copy].is_idle, is_idle);
        match (was_idle, is_idle) {
            (true, false) => state.idle -= 1,
            (false, true) => state.idle += 1,
            _ => {}
        }
    }

    /// The copy has finished with the blocks it took: it processed `processed` of them in that
    /// time. Any copy can take the rest.
    pub(crate) fn done(&self, copy: usize, batch: &mut Batch, processed: usize, took: Duration) {
        let size = batch.size();
        let mut state = self.state();
        state.dealer.done(copy, size, processed, took);
        self.served(
            &mut state,
            copy,
            processed,
            batch.removed_bytes(),
            took.saturating_sub(batch.blocked),
        );
        let counts_undone = self.counts_undone();
        let queue = match batch.rank() {
            Some(rank) if size > 1 || counts_undone => state.queues.get_mut(&rank),
            _ => None,
        };
        let mut is_end = false;
        if let Some(queue) = queue {
            queue.in_batches -= size.saturating_sub(1);
            if counts_undone {
                queue.undone -= size;
            }
            while let Some(block) = batch.blocks.pop_back() {
                queue.put_back(block);
            }
            is_end = queue.ended.is_all();
        }
        self.after_done(&mut state, is_end);
        if size > processed {
            self.wake_for_undealt(&mut state);
        }
        drop(state);
        batch.clear();
    }

    /// Called after a copy has finished blocks, perhaps the last ones of a unit.
    pub(super) fn after_done(&self, state: &mut StreamState, is_end: bool) {
        let waits = |queue: &UnitQueue| queue.ended.is_all() && !queue.undealt.is_empty();
        if is_end || state.idle > 0 && state.queues.values().any(waits) {
            // A copy that left a block to this one may decide otherwise now, or learns of the end.
            state.wake_all();
        }
        self.feed(state);
    }

    /// Takes the next item for a copy, and reports the deal to the observer.
    pub(super) fn take_next(
        &self,
        state: &mut StreamState,
        copy: usize,
        batch: &mut Batch,
    ) -> Option<NextWork> {
        let is_redealt = self.counts_undone();
        if self.observer.is_none() {
            return state.take(copy, is_redealt, batch);
        }
        let copies = state.copies();
        let backlog = state.queues.values().map(|queue| queue.undealt.len()).sum();
        let work = state.take(copy, is_redealt, batch);
        if let (Some(NextWork::Blocks), Some(rank)) = (&work, batch.rank()) {
            let sequence = batch.blocks.front().map_or(0, |block| block.sequence);
            let deal =
                Deal { unit: rank.unit, sequence, blocks: batch.size(), copy, backlog, copies };
            state.to_tell.push((Event::Dealt(deal), Instant::now()));
        }
        work
    }

    /// Whether a block that precedes that one waits to be processed. That is so if it is dealt for
    /// a second time: then no copy may wait for its turn with later output. Each such block of
    /// another unit also counts, since all units share the room.
    pub(crate) fn has_earlier(&self, copy: usize, unit: &Open, sequence: u64) -> bool {
        if !self.remote.is_redealt {
            return false;
        }
        let state = self.state();
        if state.queues.iter().any(|(rank, queue)| queue.again > 0 && *rank != unit.rank) {
            return true;
        }
        let Some(queue) = state.queues.get(&unit.rank) else { return false };
        let is_earlier = |block: &Queued| block.sequence < sequence;
        queue.undealt.front().is_some_and(is_earlier)
            || queue.dealt[copy].front().is_some_and(|(_, block)| is_earlier(block))
    }

    /// Notes that a copy has processed this many blocks and bytes in that time.
    pub(super) fn served(
        &self,
        state: &mut StreamState,
        copy: usize,
        blocks: usize,
        bytes: usize,
        took: Duration,
    ) {
        let Some(sizing) = &self.sizing else { return };
        let mut tuner = sizing.tuner();
        tuner.served(copy, blocks, bytes, took);
        if !tuner.is_time() {
            return;
        }
        tuner.units(state.over.0, state.over.1);
        let together = tuner.together();
        drop(tuner);
        let links = state.remote_copies.iter().flatten().map(RemoteCopy::link_cost);
        // Also if no copy here sends: this sets the time of the next decision.
        let decision = sizing.think(links);
        let decision = decision.filter(|_| self.sizing_here().is_some() && self.observer.is_some());
        state.to_tell.extend(decision.map(|decision| (Event::Sized(decision), Instant::now())));
        if let Some(cost) = together {
            self.remote.producers.iter().for_each(|producers| producers.link.costs(cost));
        }
    }

    /// Notes how long it took to send a timed block, without the wait for room.
    pub(crate) fn sending_took(&self, took: Duration) {
        if let Some(sizing) = &self.sizing {
            sizing.tuner().sent(took);
        }
    }
}
