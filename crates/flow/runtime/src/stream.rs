//! A stream: from all copies of one filter to all copies of another, at its home.
//!
//! The home is the process that deals the blocks. Copies in other processes send to it and receive
//! from it by links (remote).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::block::{Block, Receipt};
use crate::dealing::{Backlog, Dealer, Policy};
use crate::ledger::{Charge, Ledger};
use crate::merge::Merge;
use crate::output::OVERHEAD;
use crate::remote::distant::{Distant, Progress};
use crate::remote::link::Link;
use crate::remote::message::{Garbled, Message};
use crate::remote::replays::Replays;
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
    /// Of what copies here send.
    pub(crate) ledger: Arc<Ledger>,
    /// Of what other processes have sent, who have taken room for it themselves.
    foreign: Arc<Ledger>,
    is_ordered: bool,
    producers: usize,
    remote: Remote,
    /// Its consumers wait for other streams, too.
    is_one_of_several: bool,
    state: Mutex<State>,
    blocks: AtomicU64,
    bytes: AtomicU64,
}

/// What a stream has to do with other processes.
#[derive(Default)]
pub(crate) struct Remote {
    pub(crate) number: u16,
    /// Copies that receive elsewhere, by number.
    pub(crate) consumers: Vec<Option<Distant>>,
    /// Processes that send, and the copies there.
    pub(crate) producers: Vec<(Arc<Link>, Vec<usize>)>,
    /// The filter that sends may send something again.
    pub(crate) is_replayed: bool,
    /// Blocks of a copy that is lost go to others, so the unit is not over before all are done.
    pub(crate) is_redealt: bool,
    /// Copies here that send.
    pub(crate) local_producers: usize,
    /// What those elsewhere may hold together.
    pub(crate) foreign_limit: usize,
}

struct State {
    dealer: Dealer,
    distant: Vec<Option<Distant>>,
    lanes: BTreeMap<Rank, Lane>,
    consumers: Vec<Consumer>,
    /// Copies that sent, and whose process is lost.
    lost_producers: Vec<usize>,
    /// The units of what copies here have begun.
    begun: Vec<Option<Rank>>,
    /// Counts what was dealt at once.
    tickets: u64,
    /// Consumers take what they were dealt in that order, whatever is urgent: each has its part of
    /// an order that others keep, and if they took theirs in another one, each could wait for the
    /// others.
    is_first_come: bool,
}

#[derive(Default)]
struct Consumer {
    wakeup: Option<Arc<Wakeup>>,
    /// It is to be rung: it has found nothing to do here.
    is_idle: bool,
    /// Its process is.
    is_lost: bool,
}

/// The blocks of one unit of work.
struct Lane {
    /// Where the order matters, what has come too soon.
    merge: Option<Merge<Block>>,
    undealt: VecDeque<Block>,
    /// So many of these are the first ones to be done: they were dealt before, to a copy that is
    /// lost.
    again: usize,
    /// Of each copy, what it was dealt, and when.
    dealt: Vec<VecDeque<(u64, Block)>>,
    next: u64,
    /// Where blocks may be sent again, those that were taken.
    replays: Option<Replays>,
    /// Producers that have sent all but what comes at the end, and all.
    ending: Count,
    ended: Count,
    /// Blocks that somebody has and is not done with.
    undone: usize,
    /// Consumers that know that nothing more comes.
    told: Count,
}

/// Who of several has done something.
struct Count {
    who: Vec<bool>,
    left: usize,
}

impl Count {
    /// So many of them are to do it.
    fn new(left: usize) -> Self {
        Self { who: Vec::new(), left }
    }

    fn add(&mut self, one: usize) {
        if self.has(one) {
            return;
        }
        if one >= self.who.len() {
            self.who.resize(one + 1, false);
        }
        self.who[one] = true;
        self.left = self.left.saturating_sub(1);
    }

    fn has(&self, one: usize) -> bool {
        self.who.get(one) == Some(&true)
    }

    fn is_all(&self) -> bool {
        self.left == 0
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
        mut remote: Remote,
    ) -> Self {
        let mut distant = std::mem::take(&mut remote.consumers);
        distant.resize_with(consumers, || None);
        Self {
            name,
            ledger: Ledger::new(limit),
            foreign: Ledger::new(remote.foreign_limit),
            // What one copy sends is in order as it comes.
            is_ordered: is_ordered && producers > 1,
            producers,
            remote,
            is_one_of_several,
            state: Mutex::new(State {
                distant,
                dealer: Dealer::new(policy, consumers),
                lanes: BTreeMap::new(),
                consumers: (0..consumers).map(|_| Consumer::default()).collect(),
                lost_producers: Vec::new(),
                begun: vec![None; consumers],
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
        self.largest().min(self.ledger.limit() / (self.remote.local_producers + 2))
    }

    /// Counts the streams of the pipeline from 0.
    pub(crate) fn number(&self) -> usize {
        self.remote.number.into()
    }

    /// Whether blocks may be sent again.
    pub(crate) fn is_replayed(&self) -> bool {
        self.remote.is_replayed
    }

    /// Whether what comes of one block has to stay apart from what comes of others.
    pub(crate) fn keeps_groups(&self) -> bool {
        self.is_ordered || self.remote.is_replayed
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

    /// Block `index` of that group, from a copy here.
    pub(crate) fn send(
        &self,
        unit: &Open,
        (group, index): (u64, u32),
        bytes: Bytes,
        charge: Charge,
    ) {
        self.add(unit, (group, index), Block::new(bytes, unit.rank.unit, 0, charge));
    }

    /// The same from another process. Nobody is open for a unit that has ended.
    pub(crate) fn sent(
        &self,
        link: &Arc<Link>,
        unit: (UnitId, Option<&Open>),
        at: (u64, u32),
        bytes: Bytes,
    ) {
        let room = bytes.len() + OVERHEAD;
        let charge = self.foreign.add(room);
        let mut block = Block::new(bytes, unit.0, 0, charge);
        let stream = self.remote.number;
        let link = Arc::clone(link);
        block.set_receipt(Receipt::Room { link, stream, bytes: room as u64 });
        if let Some(open) = unit.1 {
            self.add(open, at, block);
        }
    }

    fn add(&self, unit: &Open, (group, index): (u64, u32), block: Block) {
        self.blocks.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(block.len() as u64, Ordering::Relaxed);
        let mut state = self.state();
        let Some(lane) = self.lane(&mut state, unit) else { return };
        if lane.replays.as_mut().is_some_and(|replays| !replays.takes(group, index)) {
            return;
        }
        let ready = match &mut lane.merge {
            Some(merge) => merge.add(group, block),
            None => Some(block),
        };
        if let Some(block) = ready {
            self.deal(&mut state, unit.rank, block);
            self.feed(&mut state);
        }
    }

    /// All blocks of that group were sent.
    pub(crate) fn end_group(&self, unit: &Open, group: u64) {
        if !self.keeps_groups() {
            return;
        }
        let mut state = self.state();
        let Some(lane) = self.lane(&mut state, unit) else { return };
        if lane.replays.as_mut().is_some_and(|replays| !replays.end(group)) {
            return;
        }
        let Some(merge) = &mut lane.merge else { return };
        let ready = merge.end(group);
        let turn = merge.next();
        self.turn(state, unit, ready, turn);
    }

    /// Another group is the one that everybody waits for.
    fn turn(&self, mut state: MutexGuard<'_, State>, unit: &Open, ready: Vec<Block>, group: u64) {
        for block in ready {
            self.deal(&mut state, unit.rank, block);
        }
        self.feed(&mut state);
        let stream = self.remote.number;
        for (link, _) in &self.remote.producers {
            link.send(Message::Turn { stream, unit: unit.rank.unit, group });
        }
        drop(state);
        self.ledger.wake_all();
    }

    /// A producer has sent all blocks of the unit but those of its last group.
    pub(crate) fn begin_last(&self, unit: &Open, copy: usize) {
        if !self.is_ordered {
            return;
        }
        let mut state = self.state();
        let Some(lane) = self.lane(&mut state, unit) else { return };
        if lane.ending.is_all() {
            return;
        }
        lane.ending.add(copy);
        if !lane.ending.is_all() {
            return;
        }
        let Some(merge) = &mut lane.merge else { return };
        let ready = merge.begin_last();
        let turn = merge.next();
        self.turn(state, unit, ready, turn);
    }

    /// A producer has sent all blocks of the unit, at last those of that group.
    pub(crate) fn end(&self, unit: &Open, copy: usize, group: u64) {
        self.end_group(unit, group);
        let mut state = self.state();
        let Some(lane) = self.lane(&mut state, unit) else { return };
        lane.ended.add(copy);
        if lane.ended.is_all() {
            state.wake_all();
            self.feed(&mut state);
        }
    }

    /// The lane of a unit that is under way.
    fn lane<'s>(&self, state: &'s mut State, unit: &Open) -> Option<&'s mut Lane> {
        if unit.is_closed() {
            state.purge(unit.rank);
            return None;
        }
        let State { lanes, consumers, lost_producers, .. } = state;
        let new = || {
            let mut lane = Lane {
                merge: self.is_ordered.then(Merge::new),
                undealt: VecDeque::new(),
                again: 0,
                dealt: consumers.iter().map(|_| VecDeque::new()).collect(),
                next: 0,
                replays: self.remote.is_replayed.then(Replays::default),
                ending: Count::new(self.producers),
                ended: Count::new(self.producers),
                undone: 0,
                told: Count::new(consumers.len()),
            };
            for (copy, _) in consumers.iter().enumerate().filter(|(_, one)| one.is_lost) {
                lane.told.add(copy);
            }
            for copy in lost_producers.iter() {
                lane.ending.add(*copy);
                lane.ended.add(*copy);
            }
            lane
        };
        Some(match lanes.entry(unit.rank) {
            Entry::Occupied(lane) => lane.into_mut(),
            Entry::Vacant(place) => place.insert(new()),
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
        let idle = |copy: &usize| state.consumers[*copy].is_idle;
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
        let taken = state.take(copy, self.remote.is_redealt);
        if let Some(Next::Block(rank, _)) = &taken {
            let rank = *rank;
            state.dealer.began(copy);
            state.begun[copy] = Some(rank);
        }
        let consumer = &mut state.consumers[copy];
        consumer.wakeup.get_or_insert_with(|| Arc::clone(own));
        consumer.is_idle = taken.is_none();
        if taken.is_some() && state.has_undealt() {
            if state.consumers.iter().any(|consumer| consumer.is_idle) {
                self.wake_for_undealt(&mut state);
            }
            self.feed(&mut state);
        }
        match taken? {
            Next::Block(_, block) => Some(Taken::Block(block)),
            Next::End(unit) => Some(Taken::End(unit)),
        }
    }

    /// The copy is through with a block that it took.
    pub(crate) fn done(&self, copy: usize, took: Duration) {
        let mut state = self.state();
        let rank = state.begun[copy].take();
        self.finished(&mut state, copy, rank, took);
    }

    fn finished(&self, state: &mut State, copy: usize, rank: Option<Rank>, took: Duration) {
        state.dealer.done(copy, took);
        let lane = rank.and_then(|rank| state.lanes.get_mut(&rank));
        let is_redealt = self.remote.is_redealt;
        let was_last = lane.is_some_and(|lane| {
            lane.undone -= 1;
            is_redealt && lane.is_over(is_redealt)
        });
        let waits = |lane: &Lane| lane.ended.is_all() && !lane.undealt.is_empty();
        if was_last || state.lanes.values().any(waits) {
            // Who left a block to this one may think otherwise now.
            state.wake_all();
        }
        self.feed(state);
    }

    /// Whether a block that comes before that one waits to be processed. It does where it is dealt
    /// for a second time: then nobody may wait for its turn with what comes later.
    pub(crate) fn has_earlier(&self, copy: usize, unit: &Open, sequence: u64) -> bool {
        if !self.remote.is_redealt {
            return false;
        }
        let state = self.state();
        let Some(lane) = state.lanes.get(&unit.rank) else { return false };
        let is_earlier = |block: &Block| block.sequence() < sequence;
        lane.undealt.front().is_some_and(is_earlier)
            || lane.dealt[copy].front().is_some_and(|(_, block)| is_earlier(block))
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
        let [(own, own_peak), (others, others_peak)] =
            [&self.ledger, &self.foreign].map(|ledger| ledger.held());
        let (held, peak) = (own + others, own_peak + others_peak);
        let limit = self.ledger.limit() + self.foreign.limit();
        StreamReport {
            name: Arc::clone(&self.name),
            blocks: self.blocks.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            held,
            peak,
            limit,
        }
    }
}

/// What a consumer gets, and of which unit.
enum Next {
    Block(Rank, Block),
    End(UnitId),
}

impl Lane {
    /// Nothing more comes, neither for the first nor for the second time.
    fn is_over(&self, is_redealt: bool) -> bool {
        self.ended.is_all() && self.undealt.is_empty() && !(is_redealt && self.has_undone())
    }

    fn has_undone(&self) -> bool {
        self.undone > 0 || self.dealt.iter().any(|dealt| !dealt.is_empty())
    }
}

impl State {
    fn has_undealt(&self) -> bool {
        self.lanes.values().any(|lane| !lane.undealt.is_empty())
    }

    fn take(&mut self, copy: usize, is_redealt: bool) -> Option<Next> {
        let Self { dealer, lanes, is_first_come, .. } = self;
        let fronts = lanes.iter_mut().filter(|(_, lane)| !lane.dealt[copy].is_empty());
        let first = match is_first_come {
            true => {
                fronts.min_by_key(|(_, lane)| lane.dealt[copy].front().map(|(ticket, _)| *ticket))
            }
            false => None,
        };
        if let Some((rank, lane)) = first {
            if let Some((_, block)) = lane.dealt[copy].pop_front() {
                lane.undone += 1;
                return Some(Next::Block(*rank, block));
            }
        }
        for (rank, lane) in lanes.iter_mut() {
            let rank = *rank;
            if let Some((_, block)) = lane.dealt[copy].pop_front() {
                lane.undone += 1;
                return Some(Next::Block(rank, block));
            }
            let is_last = lane.ended.is_all();
            let backlog = Backlog { blocks: lane.undealt.len(), is_last };
            if dealer.may_take(copy, backlog) || lane.again > 0 {
                let block = lane.undealt.pop_front()?;
                lane.again = lane.again.saturating_sub(1);
                lane.undone += 1;
                dealer.taken(copy);
                if is_last && lane.undealt.is_empty() {
                    // Who waited in vain for this one hears of the end.
                    self.wake_all();
                }
                return Some(Next::Block(rank, block));
            }
            if lane.is_over(is_redealt) && !lane.told.has(copy) {
                lane.told.add(copy);
                if lane.told.is_all() {
                    lanes.remove(&rank);
                }
                return Some(Next::End(rank.unit));
            }
        }
        None
    }

    fn wake(&mut self, copy: usize) {
        let consumer = &mut self.consumers[copy];
        if std::mem::take(&mut consumer.is_idle) {
            consumer.wakeup.iter().for_each(|wakeup| wakeup.ring());
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

/// Copies in other processes.
impl Stream {
    /// Deals to copies elsewhere what they have room for.
    fn feed(&self, state: &mut State) {
        let mut candidates: Vec<usize> = (0..state.distant.len())
            .filter(|copy| state.distant[*copy].is_some() && !state.consumers[*copy].is_lost)
            .collect();
        while !candidates.is_empty() {
            let State { dealer, distant, consumers, .. } = &mut *state;
            let way = |copy: usize| distant[copy].as_ref().and_then(Distant::round_trip);
            let until = |copy: &usize| dealer.until_done(*copy, way(*copy).unwrap_or_default());
            let Some(at) = (0..candidates.len()).min_by_key(|at| until(&candidates[*at])) else {
                return;
            };
            let copy = candidates[at];
            // Those here that are idle and sooner done have been woken, or will be.
            let sooner = (0..consumers.len())
                .filter(|other| consumers[*other].is_idle && until(other) < until(&copy))
                .count();
            let service = dealer.typical(copy);
            let has_room = distant[copy].as_ref().is_some_and(|one| one.has_room(service));
            let undealt: usize = state.lanes.values().map(|lane| lane.undealt.len()).sum();
            let is_left_to_others = undealt > 0 && undealt <= sooner;
            // Somebody may be waiting, and keep others waiting, for what comes of such a block.
            let is_urgent = state.lanes.values().any(|lane| lane.again > 0);
            let next = match is_urgent || (has_room && !is_left_to_others) {
                true => state.take(copy, self.remote.is_redealt),
                false => state.end_for(copy, self.remote.is_redealt).map(Next::End),
            };
            match (next, &mut state.distant[copy]) {
                (Some(Next::Block(rank, block)), Some(one)) => one.send(rank, block),
                (Some(Next::End(unit)), Some(one)) => one.end(unit),
                _ => {
                    candidates.swap_remove(at);
                }
            }
        }
    }

    pub(crate) fn started(&self, copy: usize, unit: UnitId, sequence: u64) -> Result<(), Garbled> {
        let mut state = self.state();
        state.distant(copy)?.started(unit, sequence)?;
        state.dealer.began(copy);
        self.feed(&mut state);
        Ok(())
    }

    pub(crate) fn distant_done(
        &self,
        copy: usize,
        (unit, sequence): (UnitId, u64),
        took: Duration,
        waited: Duration,
    ) -> Result<(), Garbled> {
        let mut state = self.state();
        let rank = state.distant(copy)?.done(unit, sequence, took, waited)?;
        self.finished(&mut state, copy, Some(rank), took);
        Ok(())
    }

    pub(crate) fn dropped(&self, copy: usize, unit: UnitId, sequence: u64) -> Result<(), Garbled> {
        let mut state = self.state();
        if state.distant(copy)?.dropped(unit, sequence)? == Progress::Sent {
            state.dealer.dropped(copy);
        }
        self.feed(&mut state);
        Ok(())
    }

    /// A process is lost: what its copies were not done with goes to others, and nobody waits for
    /// what they would have sent.
    pub(crate) fn lose(&self, process: u32) {
        let mut state = self.state();
        let copies: Vec<usize> = (0..state.distant.len())
            .filter(|copy| {
                state.distant[*copy].as_ref().is_some_and(|one| one.process() == process)
            })
            .collect();
        for copy in copies {
            state.lose(copy);
        }
        let gone = self.remote.producers.iter().filter(|(link, _)| link.rank == process);
        let gone: Vec<usize> = gone.flat_map(|(_, copies)| copies.iter().copied()).collect();
        let units: Vec<Rank> = state.lanes.keys().copied().collect();
        let mut turns = Vec::new();
        for rank in units {
            let Some(lane) = state.lanes.get_mut(&rank) else { continue };
            let was_ending = lane.ending.is_all();
            for copy in &gone {
                lane.ending.add(*copy);
                lane.ended.add(*copy);
            }
            let ready = match &mut lane.merge {
                Some(merge) if !was_ending && lane.ending.is_all() => {
                    let ready = merge.begin_last();
                    turns.push((rank.unit, merge.next()));
                    ready
                }
                _ => Vec::new(),
            };
            for block in ready {
                self.deal(&mut state, rank, block);
            }
        }
        state.lost_producers.extend(gone);
        // Also those that wait for room: they look for what comes before.
        let wakeups = state.consumers.iter().filter_map(|consumer| consumer.wakeup.as_ref());
        wakeups.for_each(|wakeup| wakeup.ring());
        state.wake_all();
        self.feed(&mut state);
        let stream = self.remote.number;
        for (link, _) in &self.remote.producers {
            for (unit, group) in turns.iter().copied() {
                link.send(Message::Turn { stream, unit, group });
            }
        }
        drop(state);
        self.ledger.wake_all();
    }
}

impl State {
    fn distant(&mut self, copy: usize) -> Result<&mut Distant, Garbled> {
        let distant = self.distant.get_mut(copy).and_then(Option::as_mut);
        distant.ok_or(Garbled::Unexpected("a copy that is not there"))
    }

    /// A unit of which that copy is to hear that it is over.
    fn end_for(&mut self, copy: usize, is_redealt: bool) -> Option<UnitId> {
        let mut lanes = self.lanes.iter_mut();
        let (rank, lane) = lanes.find(|(_, lane)| {
            lane.is_over(is_redealt) && lane.dealt[copy].is_empty() && !lane.told.has(copy)
        })?;
        let rank = *rank;
        lane.told.add(copy);
        if lane.told.is_all() {
            self.lanes.remove(&rank);
        }
        Some(rank.unit)
    }

    fn lose(&mut self, copy: usize) {
        if std::mem::replace(&mut self.consumers[copy].is_lost, true) {
            return;
        }
        let Self { dealer, lanes, distant, .. } = self;
        dealer.lose(copy);
        for (rank, block) in distant[copy].as_mut().map(Distant::lose).unwrap_or_default() {
            if let Some(lane) = lanes.get_mut(&rank) {
                lane.undone -= 1;
                lane.deal_again(block);
            }
        }
        for lane in lanes.values_mut() {
            for (_, block) in std::mem::take(&mut lane.dealt[copy]) {
                lane.deal_again(block);
            }
            lane.told.add(copy);
        }
        lanes.retain(|_, lane| !lane.told.is_all());
    }
}

impl Lane {
    /// Where it was before.
    fn deal_again(&mut self, block: Block) {
        let at = self.undealt.partition_point(|other| other.sequence() < block.sequence());
        self.undealt.insert(at, block);
        self.again += 1;
    }
}
