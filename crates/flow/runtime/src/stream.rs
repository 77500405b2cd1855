//! A stream: from all copies of one filter to all copies of another, inside a process.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::block::Block;
use crate::dealing::{Backlog, Dealer, Policy};
use crate::ledger::{Charge, Ledger};
use crate::merge::Merge;
use crate::report::StreamReport;
use crate::unit::{Open, Rank, UnitId};
use crate::wakeup::Wakeup;

/// What a consumer gets.
pub(crate) enum Taken {
    Block(Block),
    /// No more blocks of this unit come to this copy.
    End(UnitId),
}

pub(crate) struct Stream {
    pub(crate) name: Arc<str>,
    /// Counts the streams of the pipeline from 0.
    pub(crate) number: usize,
    pub(crate) ledger: Arc<Ledger>,
    is_ordered: bool,
    producers: usize,
    /// Its consumers wait for other streams, too.
    is_one_of_several: bool,
    state: Mutex<State>,
    blocks: AtomicU64,
    bytes: AtomicU64,
}

struct State {
    dealer: Dealer,
    lanes: BTreeMap<Rank, Lane>,
    consumers: Vec<Consumer>,
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
    /// Where the order matters, what has come too soon.
    merge: Option<Merge<Block>>,
    undealt: VecDeque<Block>,
    /// Of each copy, what it was dealt, and when.
    dealt: Vec<VecDeque<(u64, Block)>>,
    next: u64,
    /// Producers that have sent all but what comes at the end, and all.
    ending: usize,
    ended: usize,
    /// Consumers that know that nothing more comes.
    told: Vec<bool>,
}

impl Stream {
    pub(crate) fn new(
        (name, number): (Arc<str>, usize),
        limit: usize,
        policy: Policy,
        is_ordered: bool,
        [producers, consumers]: [usize; 2],
        is_one_of_several: bool,
    ) -> Self {
        Self {
            name,
            number,
            ledger: Ledger::new(limit),
            // What one copy sends is in order as it comes.
            is_ordered: is_ordered && producers > 1,
            producers,
            is_one_of_several,
            state: Mutex::new(State {
                dealer: Dealer::new(policy, consumers),
                lanes: BTreeMap::new(),
                consumers: (0..consumers).map(|_| Consumer::default()).collect(),
                tickets: 0,
                is_first_come: is_ordered,
            }),
            blocks: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
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

    pub(crate) fn send(&self, unit: &Open, group: u64, bytes: Bytes, charge: Charge) {
        self.blocks.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let block = Block::new(bytes, unit.rank.unit, 0, charge);
        let mut state = self.state();
        let Some(lane) = self.lane(&mut state, unit) else { return };
        let ready = match &mut lane.merge {
            Some(merge) => merge.add(group, block),
            None => Some(block),
        };
        if let Some(block) = ready {
            self.deal(&mut state, unit.rank, block);
        }
    }

    /// All blocks of that group were sent.
    pub(crate) fn end_group(&self, unit: &Open, group: u64) {
        if !self.is_ordered {
            return;
        }
        let mut state = self.state();
        let Some(lane) = self.lane(&mut state, unit) else { return };
        let Some(merge) = &mut lane.merge else { return };
        let ready = merge.end(group);
        for block in ready {
            self.deal(&mut state, unit.rank, block);
        }
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
        let Some(lane) = self.lane(&mut state, unit) else { return };
        lane.ending += 1;
        if lane.ending < self.producers {
            return;
        }
        let ready = lane.merge.as_mut().map(Merge::begin_last).unwrap_or_default();
        for block in ready {
            self.deal(&mut state, unit.rank, block);
        }
        drop(state);
        self.ledger.wake_all();
    }

    /// A producer has sent all blocks of the unit, at last those of that group.
    pub(crate) fn end(&self, unit: &Open, group: u64) {
        self.end_group(unit, group);
        let mut state = self.state();
        let Some(lane) = self.lane(&mut state, unit) else { return };
        lane.ended += 1;
        if lane.ended == self.producers {
            state.wake_all();
        }
    }

    /// The lane of a unit that is under way.
    fn lane<'s>(&self, state: &'s mut State, unit: &Open) -> Option<&'s mut Lane> {
        if unit.is_closed() {
            state.purge(unit.rank);
            return None;
        }
        let consumers = state.consumers.len();
        Some(match state.lanes.entry(unit.rank) {
            Entry::Occupied(lane) => lane.into_mut(),
            Entry::Vacant(place) => place.insert(Lane {
                merge: self.is_ordered.then(Merge::new),
                undealt: VecDeque::new(),
                dealt: (0..consumers).map(|_| VecDeque::new()).collect(),
                next: 0,
                ending: 0,
                ended: 0,
                told: vec![false; consumers],
            }),
        })
    }

    fn deal(&self, state: &mut State, rank: Rank, mut block: Block) {
        let Some(lane) = state.lanes.get_mut(&rank) else { return };
        block.set_sequence(lane.next);
        lane.next += 1;
        match state.dealer.deal() {
            Some(copy) => {
                lane.dealt[copy].push_back((state.tickets, block));
                state.tickets += 1;
                state.wake(copy);
            }
            None => {
                lane.undealt.push_back(block);
                self.wake_for_undealt(state);
            }
        }
    }

    fn wake_for_undealt(&self, state: &mut State) {
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
    pub(crate) fn take(&self, copy: usize, own: &Arc<Wakeup>) -> Option<Taken> {
        let mut state = self.state();
        let taken = state.take(copy, self.producers);
        state.consumers[copy].idle = None;
        if taken.is_none() {
            state.consumers[copy].idle = Some(Arc::clone(own));
        } else if state.consumers.iter().any(|consumer| consumer.idle.is_some())
            && state.lanes.values().any(|lane| !lane.undealt.is_empty())
        {
            self.wake_for_undealt(&mut state);
        }
        taken
    }

    /// The copy is through with a block that it took.
    pub(crate) fn done(&self, copy: usize, took: Duration) {
        let mut state = self.state();
        state.dealer.done(copy, took);
        let producers = self.producers;
        let waits = |lane: &Lane| lane.ended == producers && !lane.undealt.is_empty();
        if state.lanes.values().any(waits) {
            // Who left a block to this one may think otherwise now.
            state.wake_all();
        }
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
        StreamReport {
            name: Arc::clone(&self.name),
            blocks: self.blocks.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            held,
            peak,
            limit: self.ledger.limit(),
        }
    }
}

impl State {
    fn take(&mut self, copy: usize, producers: usize) -> Option<Taken> {
        let Self { dealer, lanes, is_first_come, .. } = self;
        let fronts = lanes.values_mut().filter(|lane| !lane.dealt[copy].is_empty());
        let lane = match is_first_come {
            true => fronts.min_by_key(|lane| lane.dealt[copy].front().map(|(ticket, _)| *ticket)),
            false => None,
        };
        if let Some((_, block)) = lane.and_then(|lane| lane.dealt[copy].pop_front()) {
            dealer.began(copy);
            return Some(Taken::Block(block));
        }
        for (rank, lane) in lanes.iter_mut() {
            let rank = *rank;
            let is_over = lane.ended == producers;
            if let Some((_, block)) = lane.dealt[copy].pop_front() {
                dealer.began(copy);
                return Some(Taken::Block(block));
            }
            let backlog = Backlog { blocks: lane.undealt.len(), is_last: is_over };
            if dealer.may_take(copy, backlog) {
                let block = lane.undealt.pop_front()?;
                dealer.taken(copy);
                dealer.began(copy);
                if is_over && lane.undealt.is_empty() {
                    // Who waited in vain for this one hears of the end.
                    self.wake_all();
                }
                return Some(Taken::Block(block));
            }
            if is_over && lane.undealt.is_empty() && !lane.told[copy] {
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
