//! A stream: from all copies of one filter to all copies of another, inside a process.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::block::Queued;
use crate::dealing::{Backlog, Dealer, Policy};
use crate::hand::Hand;
use crate::ledger::Ledger;
use crate::merge::Merge;
use crate::report::StreamReport;
use crate::unit::{Open, Rank, UnitId};
use crate::wakeup::Wakeup;

/// What a consumer gets.
pub(crate) enum Taken {
    /// Blocks, which are in its hand.
    Blocks,
    /// No more blocks of this unit come to this copy.
    End(UnitId),
}

pub(crate) struct Stream {
    pub(crate) name: Arc<str>,
    pub(crate) ledger: &'static Ledger,
    is_ordered: bool,
    producers: usize,
    consumers: usize,
    /// Its consumers wait for other streams, too.
    is_one_of_several: bool,
    state: Mutex<State>,
}

struct State {
    dealer: Dealer,
    lanes: BTreeMap<Rank, Lane>,
    consumers: Vec<Consumer>,
    /// How many of them are to be rung.
    idle: usize,
    /// What was sent.
    blocks: u64,
    bytes: u64,
    /// Counts what was dealt at once.
    tickets: u64,
    /// Consumers take what they were dealt in that order, whatever is urgent: each has its part of
    /// an order that others keep, and if they took theirs in another one, each could wait for the
    /// others.
    is_first_come: bool,
}

#[derive(Default)]
struct Consumer {
    /// To be rung, when it has found nothing to do here.
    idle: Option<Arc<Wakeup>>,
}

/// The blocks of one unit of work.
struct Lane {
    ledger: &'static Ledger,
    /// Where the order matters, what has come too soon.
    merge: Option<Merge<Queued>>,
    undealt: VecDeque<Queued>,
    /// Of each copy, what it was dealt, and when.
    dealt: Vec<VecDeque<(u64, Queued)>>,
    next: u64,
    /// Blocks that copies took and had not begun then.
    in_hands: usize,
    /// Producers that have sent all but what comes at the end, and all.
    ending: usize,
    ended: usize,
    /// Consumers that know that nothing more comes.
    told: Vec<bool>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        let dealt = self.dealt.iter().flatten().map(|(_, block)| block);
        let merge = self.merge.iter().flat_map(Merge::waiting);
        let held = dealt.chain(&self.undealt).chain(merge).map(|block| block.held).sum();
        if held > 0 {
            self.ledger.give(held);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.ledger.retire();
    }
}

impl Stream {
    pub(crate) fn new(
        name: Arc<str>,
        limit: usize,
        policy: Policy,
        is_ordered: bool,
        [producers, consumers]: [usize; 2],
        is_one_of_several: bool,
    ) -> Self {
        Self {
            name,
            ledger: Ledger::new(limit),
            // What one copy sends is in order as it comes.
            is_ordered: is_ordered && producers > 1,
            producers,
            consumers,
            is_one_of_several,
            state: Mutex::new(State {
                dealer: Dealer::new(policy, consumers),
                lanes: BTreeMap::new(),
                consumers: (0..consumers).map(|_| Consumer::default()).collect(),
                idle: 0,
                blocks: 0,
                bytes: 0,
                tickets: 0,
                is_first_come: is_ordered,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether blocks have to be told apart by the group that they belong to.
    pub(crate) fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// The largest charge of one block. In an ordered stream, the group that everybody waits for must
    /// find room in what is kept for it.
    pub(crate) fn largest(&self) -> usize {
        let limit = self.ledger.limit();
        if self.is_ordered { limit / 4 } else { limit }
    }

    /// What one producer may take for a block that it is filling.
    pub(crate) fn share(&self) -> usize {
        self.largest().min(self.ledger.limit() / (self.producers + 2))
    }

    /// How much of the limit may be held when a block of that group is charged: some is kept for the
    /// group that everybody waits for.
    pub(crate) fn most(&self, unit: &Open, group: u64) -> usize {
        let limit = self.ledger.limit();
        if !self.is_ordered {
            return limit;
        }
        let state = self.state();
        let next = state.lanes.get(&unit.rank).and_then(|lane| lane.merge.as_ref());
        let is_next = next.map_or(0, Merge::next) == group;
        if is_next { limit } else { limit - limit / 4 }
    }

    /// `held` was taken of the limit for the block.
    pub(crate) fn send(&self, unit: &Open, group: u64, bytes: Bytes, held: usize) {
        let mut state = self.state();
        state.blocks += 1;
        state.bytes += bytes.len() as u64;
        let block = Queued { bytes, sequence: 0, held };
        let State { dealer, lanes, tickets, .. } = &mut *state;
        let Some(lane) = self.lane(lanes, unit) else {
            drop(state);
            self.ledger.give(held);
            return;
        };
        let ready = match &mut lane.merge {
            Some(merge) => merge.add(group, block),
            None => Some(block),
        };
        if let Some(block) = ready {
            let copy = lane.deal(dealer, tickets, block);
            self.wake_for(&mut state, copy);
        }
    }

    /// All blocks of that group were sent.
    pub(crate) fn end_group(&self, unit: &Open, group: u64) {
        if !self.is_ordered {
            return;
        }
        let mut state = self.state();
        let Some(lane) = self.lane(&mut state.lanes, unit) else { return };
        let Some(merge) = &mut lane.merge else { return };
        let ready = merge.end(group);
        self.deal(&mut state, unit.rank, ready);
        drop(state);
        // Another group is the one that everybody waits for.
        self.ledger.wake_all();
    }

    /// A producer has sent all blocks of the unit but those of its last group.
    pub(crate) fn begin_last(&self, unit: &Open) {
        if !self.is_ordered {
            return;
        }
        let mut state = self.state();
        let Some(lane) = self.lane(&mut state.lanes, unit) else { return };
        lane.ending += 1;
        if lane.ending < self.producers {
            return;
        }
        let ready = lane.merge.as_mut().map(Merge::begin_last).unwrap_or_default();
        self.deal(&mut state, unit.rank, ready);
        drop(state);
        self.ledger.wake_all();
    }

    /// A producer has sent all blocks of the unit, at last those of that group.
    pub(crate) fn end(&self, unit: &Open, group: u64) {
        self.end_group(unit, group);
        let mut state = self.state();
        let Some(lane) = self.lane(&mut state.lanes, unit) else { return };
        lane.ended += 1;
        if lane.ended == self.producers {
            state.wake_all();
        }
    }

    /// The lane of a unit, if that is under way.
    fn lane<'s>(&self, lanes: &'s mut BTreeMap<Rank, Lane>, unit: &Open) -> Option<&'s mut Lane> {
        if unit.is_closed() {
            return None;
        }
        Some(match lanes.entry(unit.rank) {
            Entry::Occupied(lane) => lane.into_mut(),
            Entry::Vacant(place) => place.insert(Lane {
                ledger: self.ledger,
                merge: self.is_ordered.then(Merge::new),
                undealt: VecDeque::new(),
                dealt: (0..self.consumers).map(|_| VecDeque::new()).collect(),
                next: 0,
                in_hands: 0,
                ending: 0,
                ended: 0,
                told: vec![false; self.consumers],
            }),
        })
    }

    fn deal(&self, state: &mut State, rank: Rank, blocks: Vec<Queued>) {
        for block in blocks {
            let State { dealer, lanes, tickets, .. } = state;
            let Some(lane) = lanes.get_mut(&rank) else { return };
            let copy = lane.deal(dealer, tickets, block);
            self.wake_for(state, copy);
        }
    }

    /// A block has come for that copy, or for any.
    fn wake_for(&self, state: &mut State, copy: Option<usize>) {
        match copy {
            Some(copy) => state.wake(copy),
            None => self.wake_for_undealt(state),
        }
    }

    fn wake_for_undealt(&self, state: &mut State) {
        if state.idle == 0 {
            return;
        }
        if self.is_one_of_several {
            // Whoever is woken may find a block elsewhere, and leave this one.
            state.wake_all();
            return;
        }
        let idle = |copy: &usize| state.consumers[*copy].idle.is_some();
        let mut idle: Vec<usize> = (0..state.consumers.len()).filter(idle).collect();
        state.dealer.by_speed(&mut idle);
        if let Some(copy) = idle.first() {
            state.wake(*copy);
        }
    }

    /// What that copy is to do next, the most urgent unit first. If there is nothing, it is
    /// woken when there is.
    pub(crate) fn take(&self, copy: usize, own: &Arc<Wakeup>, hand: &mut Hand) -> Option<Taken> {
        let mut state = self.state();
        let taken = state.take(copy, self.producers, hand);
        if state.consumers[copy].idle.take().is_some() {
            state.idle -= 1;
        }
        if taken.is_none() {
            state.consumers[copy].idle = Some(Arc::clone(own));
            state.idle += 1;
            drop(state);
            if self.ledger.is_waited_for() {
                // Nothing is left of what it waits for.
                self.ledger.wake_all();
            }
        } else if state.idle > 0 && state.lanes.values().any(|lane| !lane.undealt.is_empty()) {
            self.wake_for_undealt(&mut state);
        }
        taken
    }

    /// The copy is through with blocks that it took: with `processed` of them in that time. What it
    /// has left is anybody's again.
    pub(crate) fn done(&self, copy: usize, hand: &mut Hand, processed: usize, took: Duration) {
        let taken = hand.taken();
        let mut state = self.state();
        state.dealer.done(copy, taken, processed, took);
        let lane = match hand.rank() {
            Some(rank) if taken > 1 => state.lanes.get_mut(&rank),
            _ => None,
        };
        let mut is_end = false;
        if let Some(lane) = lane {
            lane.in_hands -= taken - 1;
            lane.put_back(&mut hand.blocks);
            is_end = lane.ended == self.producers;
        }
        let producers = self.producers;
        let waits = |lane: &Lane| lane.ended == producers && !lane.undealt.is_empty();
        if is_end || state.idle > 0 && state.lanes.values().any(waits) {
            // Who left a block to this one may think otherwise now, or hears of the end.
            state.wake_all();
        } else if taken > processed {
            self.wake_for_undealt(&mut state);
        }
        drop(state);
        hand.clear();
    }

    /// The unit has ended early: what is here of it is dropped, and everybody looks again.
    pub(crate) fn forget(&self, unit: &Open) {
        let mut state = self.state();
        state.purge(unit.rank);
        state.wake_all();
        drop(state);
        self.ledger.wake_all();
    }

    pub(crate) fn report(&self) -> StreamReport {
        let (held, peak) = self.ledger.held();
        let (blocks, bytes) = {
            let state = self.state();
            (state.blocks, state.bytes)
        };
        StreamReport {
            name: Arc::clone(&self.name),
            blocks,
            bytes,
            held,
            peak,
            limit: self.ledger.limit(),
        }
    }
}

impl Lane {
    /// Which copy gets the block, if it is dealt at once.
    fn deal(&mut self, dealer: &mut Dealer, tickets: &mut u64, block: Queued) -> Option<usize> {
        let block = Queued { sequence: self.next, ..block };
        self.next += 1;
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

    /// Nothing more comes, and nothing is left that copies could take.
    fn is_over(&self, producers: usize) -> bool {
        self.ended == producers && self.undealt.is_empty() && self.in_hands == 0
    }

    /// Each where it was: others may have put back later ones.
    fn put_back(&mut self, blocks: &mut VecDeque<Queued>) {
        while let Some(block) = blocks.pop_back() {
            let at = self.undealt.partition_point(|other| other.sequence < block.sequence);
            self.undealt.insert(at, block);
        }
    }
}

impl State {
    fn take(&mut self, copy: usize, producers: usize, hand: &mut Hand) -> Option<Taken> {
        let is_one_of_several = self.consumers.len() > 1;
        let Self { dealer, lanes, is_first_come, .. } = self;
        if *is_first_come {
            let fronts = lanes.iter_mut().filter(|(_, lane)| !lane.dealt[copy].is_empty());
            let first = fronts.min_by_key(|(_, lane)| lane.dealt[copy].front().map(|(at, _)| *at));
            if let Some((rank, lane)) = first {
                let block = lane.dealt[copy].pop_front().map(|(_, block)| block);
                hand.take(*rank, block.into_iter());
                dealer.began(copy, 1);
                return Some(Taken::Blocks);
            }
        }
        for (rank, lane) in lanes.iter_mut() {
            let rank = *rank;
            let is_over = lane.ended == producers;
            if let Some((_, block)) = lane.dealt[copy].pop_front() {
                hand.take(rank, std::iter::once(block));
                dealer.began(copy, 1);
                return Some(Taken::Blocks);
            }
            let backlog = Backlog { blocks: lane.undealt.len(), is_last: is_over };
            if dealer.may_take(copy, backlog) {
                let blocks = match *is_first_come && is_one_of_several {
                    // All wait for the first of them, so that the others cannot be left to anybody.
                    true => 1,
                    false => dealer.batch(copy, backlog),
                };
                hand.take(rank, lane.undealt.drain(..blocks));
                dealer.taken(copy, blocks);
                dealer.began(copy, blocks);
                lane.in_hands += blocks - 1;
                if lane.is_over(producers) {
                    // Who waited in vain for this one hears of the end.
                    self.wake_all();
                }
                return Some(Taken::Blocks);
            }
            if lane.is_over(producers) && !lane.told[copy] {
                lane.told[copy] = true;
                if lane.told.iter().all(|told| *told) {
                    lanes.remove(&rank);
                }
                return Some(Taken::End(rank.unit));
            }
        }
        None
    }

    fn wake(&mut self, copy: usize) {
        if let Some(wakeup) = self.consumers[copy].idle.take() {
            self.idle -= 1;
            wakeup.ring();
        }
    }

    fn wake_all(&mut self) {
        (0..self.consumers.len()).for_each(|copy| self.wake(copy));
    }

    fn purge(&mut self, rank: Rank) {
        let Some(lane) = self.lanes.remove(&rank) else { return };
        for (copy, dealt) in lane.dealt.iter().enumerate() {
            dealt.iter().for_each(|_| self.dealer.dropped(copy));
        }
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
