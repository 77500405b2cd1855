//! How a stream gives late blocks to a second copy (hedging, hedges).
//!
//! If copies are in other processes, a thread looks for late blocks (stragglers); otherwise, an
//! idle copy does.

use std::time::{Duration, Instant};

use super::Stream;
use super::state::{Event, StreamState};
use crate::memory::batch::Batch;
use crate::memory::block::Block;
use crate::memory::ledger::Charge;
use crate::policy::hedging::Which;
use crate::policy::priority::UnitId;
use crate::stream::hedges::Hedges;
use crate::stream::unit_queue::count_over;
use crate::stream::work::{Finished, NextWork};

impl StreamState {
    /// The late blocks that precede those that no copy has; `None` if they need not be looked for.
    pub(super) fn pressing(&self) -> Option<Which> {
        self.hedges.as_ref().filter(|hedges| hedges.keeps_order)?;
        if self.queues.values().any(|queue| queue.again > 0) {
            return None;
        }
        let undealt = self.queues.iter().find(|(_, queue)| !queue.undealt.is_empty());
        Some(Which::Before(undealt.map(|(rank, _)| *rank)))
    }

    /// Notes that a copy has finished a block that another one also has.
    pub(super) fn has_won(&mut self, unit: UnitId, sequence: u64, is_second: bool) {
        let Some(hedges) = &mut self.hedges else { return };
        let mut elsewhere = self.remote_copies.iter_mut().flatten();
        if hedges.beat(unit, sequence) || elsewhere.any(|one| one.beat(unit, sequence)) {
            hedges.policy.counts.won += u64::from(is_second);
        }
    }

    /// Notes that one of two copies no longer has that block; true if the other one has it.
    pub(super) fn is_alone_again(&mut self, unit: UnitId, sequence: u64) -> bool {
        let mut elsewhere = self.remote_copies.iter_mut().flatten();
        let here = self.hedges.as_mut();
        here.is_some_and(|hedges| hedges.is_alone_again(unit, sequence))
            || elsewhere.any(|one| one.is_alone_again(unit, sequence))
    }

    /// Takes a unit that has ended, for a copy here that is late with a block that is no longer
    /// awaited: the unit is ended in its place.
    pub(super) fn end_for_beaten(&mut self) -> Option<(usize, UnitId)> {
        let Self { hedges, queues, over, .. } = self;
        for (other, at) in hedges.as_mut()?.beaten() {
            let mut queues_over = queues.iter_mut().filter(|(_, queue)| queue.is_over(true));
            if let Some((rank, queue)) = queues_over.find(|(_, queue)| !queue.notified.has(other)) {
                let rank = *rank;
                at.ended.push(rank.unit);
                queue.notified.add(other);
                if queue.notified.is_all() {
                    count_over(over, queue);
                    queues.remove(&rank);
                }
                return Some((other, rank.unit));
            }
        }
        None
    }
}

impl Stream {
    /// Called before a copy here looks for something to do.
    pub(super) fn before_take(&self, state: &mut StreamState, copy: usize) -> Option<NextWork> {
        let StreamState { hedges, dealer, .. } = state;
        let hedges = hedges.as_mut()?;
        if hedges.watch.is_some_and(|(watching, _)| watching == copy) {
            hedges.watch = None;
        }
        hedges.tell_dealer(dealer, Instant::now());
        state.end_for_beaten().map(|(other, unit)| NextWork::EndFor(other, unit))
    }

    /// For an idle copy here: takes a block that another copy is late with, or sets when to look
    /// again.
    pub(super) fn hedge(
        &self,
        state: &mut StreamState,
        copy: usize,
        batch: &mut Batch,
    ) -> Option<NextWork> {
        let is_left = state.queues.values().any(|queue| !queue.undealt.is_empty());
        let now = Instant::now();
        if !is_left && self.hedge_any(state, copy, batch, Which::Any, now) {
            return Some(NextWork::Blocks);
        }
        {
            let StreamState { hedges, remote_copies, .. } = &mut *state;
            let hedges = hedges.as_mut()?;
            if self.monitor.is_some() {
                self.watch(state);
                return None;
            }
            if let Some(at) = hedges.next_look(remote_copies, now) {
                batch.look_again_at(at);
                hedges.watch = Some((copy, at));
            }
        }
        None
    }

    /// Lets a copy here take a late block that precedes all blocks that no copy has.
    pub(super) fn hedge_first(
        &self,
        state: &mut StreamState,
        copy: usize,
        batch: &mut Batch,
    ) -> Option<NextWork> {
        let which = state.pressing()?;
        self.hedge_any(state, copy, batch, which, Instant::now()).then_some(NextWork::Blocks)
    }

    /// False if there is no such block.
    fn hedge_any(
        &self,
        state: &mut StreamState,
        copy: usize,
        batch: &mut Batch,
        which: Which,
        now: Instant,
    ) -> bool {
        let StreamState { hedges, dealer, remote_copies, to_tell, .. } = &mut *state;
        let hedge =
            hedges.as_mut().and_then(|hedges| hedges.hedge(copy, remote_copies, now, which));
        let Some((hedge, rank, block)) = hedge else { return false };
        if self.observer.is_some() {
            to_tell.push((Event::Hedged(hedge), now));
        }
        batch.take(rank, std::iter::once(block));
        dealer.assigned(copy, 1);
        self.watch(state);
        true
    }

    /// The same for a copy elsewhere.
    pub(super) fn send_late(&self, state: &mut StreamState, to: usize, which: Which) -> bool {
        let now = Instant::now();
        let StreamState { hedges, remote_copies, dealer, to_tell, .. } = &mut *state;
        let second =
            hedges.as_mut().and_then(|hedges| hedges.second(to, remote_copies, now, which));
        let (Some(second), Some(one)) = (second, &mut remote_copies[to]) else { return false };
        let block = Block::new(second.block(), second.rank.unit, self.ledger);
        dealer.assigned(to, 1);
        one.send_second(second.rank, block);
        if self.observer.is_some() {
            to_tell.push((Event::Hedged(second.hedge), now));
        }
        true
    }

    /// Notes that a copy here has taken a block.
    pub(super) fn is_at(&self, state: &mut StreamState, copy: usize, batch: &mut Batch) {
        let Some(hedges) = &mut state.hedges else { return };
        let (Some(rank), Some(block)) = (batch.rank(), batch.blocks.pop_front()) else { return };
        let charge = Charge::new(self.ledger, block.held);
        let block = hedges.took(copy, rank, block, charge);
        batch.blocks.push_front(block);
        self.watch(state);
    }

    /// Makes sure that an idle copy or the thread notices when a block becomes late.
    fn watch(&self, state: &mut StreamState) {
        if self.monitor.is_some() {
            return self.watch_all(state);
        }
        let Some(hedges) = &state.hedges else { return };
        let is_watched = hedges.watch.is_some_and(|(_, at)| at > Instant::now());
        if state.idle == 0 || is_watched || hedges.waited_for().next().is_none() {
            return;
        }
        if let Some(idle) = state.consumers.iter().position(|consumer| consumer.is_idle) {
            state.wake(idle);
        }
    }

    /// Notes that a copy here has finished its block.
    pub(super) fn is_through(
        &self,
        state: &mut StreamState,
        copy: usize,
        took: Duration,
    ) -> Finished {
        let StreamState { hedges, dealer, .. } = state;
        let Some(hedges) = hedges else { return Finished::default() };
        dealer.set_full(copy, false);
        let Some(at) = hedges.done(copy, took) else { return Finished::default() };
        if at.is_hedged && !at.is_beaten {
            state.has_won(at.rank.unit, at.sequence, at.is_second);
        }
        Finished { is_beaten: at.is_beaten, ended: at.ended }
    }

    /// Whether nothing waits for the copy: another one has finished its block, or others have ended
    /// that unit in place of it.
    pub(crate) fn is_beaten(&self, copy: usize, unit: UnitId) -> bool {
        let is_beaten =
            |hedges: &Hedges| hedges.has_beaten(copy) || hedges.is_ended_for(copy, unit);
        self.is_hedged && self.state().hedges.as_ref().is_some_and(is_beaten)
    }
}
