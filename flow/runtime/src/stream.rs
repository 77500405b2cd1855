//! A stream, from all copies of one filter to all copies of another, at its home.
//!
//! The home is the process that deals the blocks. Copies in other processes send to it and receive
//! from it over links (home, remote).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::block::Queued;
use crate::cut::Cut;
use crate::dealing::{BATCH_BLOCKS, Dealer, Policy};
use crate::hand::Hand;
use crate::hedging::{Finished, Hedges};
use crate::inbox::Inbox;
use crate::lanes::{Consumer, Count, Lane, Locked, State, Taken};
use crate::ledger::Ledger;
use crate::merge::Merge;
use crate::observer::Observer;
use crate::panics::caught;
use crate::remote::distant::Distant;
use crate::remote::link::Link;
use crate::remote::message::{LARGEST_ELSEWHERE, Message};
use crate::remote::replays::Replays;
use crate::report::StreamReport;
use crate::sizing::Sizing;
use crate::tune::Aim;
use crate::unit::{Open, Rank, UnitId};
use crate::wakeup::Wakeup;

pub(crate) struct Stream {
    pub(crate) name: Arc<str>,
    /// For blocks that copies here send.
    pub(crate) ledger: &'static Ledger,
    /// For blocks of other processes, which have taken the room themselves.
    pub(crate) foreign: &'static Ledger,
    is_ordered: bool,
    /// True if copies in other processes receive.
    goes_elsewhere: bool,
    pub(crate) producers: usize,
    consumers: usize,
    pub(crate) remote: Remote,
    /// True if blocks that were sent ahead to a copy may be called back.
    pub(crate) is_recallable: bool,
    /// True if its consumers also wait for other streams.
    pub(crate) is_one_of_several: bool,
    /// True if a copy may get a block that another one is late with.
    pub(crate) is_hedged: bool,
    /// Wake-up of the thread that looks for late blocks, if some of the copies are elsewhere.
    pub(crate) looker: Option<Arc<Wakeup>>,
    /// For a stream that chooses the size of its blocks.
    pub(crate) sizing: Option<Sizing>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    state: Mutex<State>,
    /// True if a consumer is idle, or can be sent more.
    pub(crate) has_idle: AtomicBool,
    /// One for each producer here. Empty if every block has to be dealt at once.
    inboxes: Vec<Inbox>,
}

/// The part of a stream that concerns other processes.
#[derive(Default)]
pub(crate) struct Remote {
    pub(crate) number: u16,
    /// Receiving copies elsewhere, by number.
    pub(crate) consumers: Vec<Option<Distant>>,
    /// Sending processes, and their copies.
    pub(crate) producers: Vec<(Arc<Link>, Vec<usize>)>,
    /// True if the sending filter may repeat output.
    pub(crate) is_replayed: bool,
    /// True if others take over the blocks of a lost copy, so the unit has not ended before all are
    /// done.
    pub(crate) is_redealt: bool,
    /// Number of sending copies here.
    pub(crate) local_producers: usize,
    /// Bytes that those elsewhere may hold together.
    pub(crate) foreign_limit: usize,
    /// The process that reports when copies of a hedged filter have sent everything.
    pub(crate) ender: Option<u32>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.ledger.retire();
        self.foreign.retire();
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
        let is_ordered_here = is_ordered && producers > 1;
        let is_dealt_late = !is_ordered_here && !remote.is_replayed && !remote.is_redealt;
        let has_choice = consumers > 1 && distant.iter().any(Option::is_some);
        let is_recallable = has_choice && Self::can_recall(policy, is_ordered);
        let inboxes = match policy {
            Policy::Adaptive if is_dealt_late => remote.local_producers,
            _ => 0,
        };
        Self {
            name,
            ledger: Ledger::new(limit),
            foreign: Ledger::new(remote.foreign_limit),
            // The output of a single copy is in order as it comes.
            is_ordered: is_ordered_here,
            goes_elsewhere: distant.iter().any(Option::is_some),
            producers,
            consumers,
            remote,
            is_recallable,
            is_one_of_several,
            is_hedged: false,
            looker: None,
            sizing: None,
            observer: None,
            state: Mutex::new(State {
                dealer: Dealer::new(policy, consumers),
                lanes: BTreeMap::new(),
                consumers: (0..consumers).map(|_| Consumer::default()).collect(),
                distant,
                lost_producers: Vec::new(),
                idle: 0,
                is_hungry: false,
                to_ring: Vec::new(),
                emptied: VecDeque::new(),
                blocks: 0,
                bytes: 0,
                over: (0, 0),
                to_tell: Vec::new(),
                tickets: 0,
                is_first_come: is_ordered,
                hedges: None,
                sent_all: BTreeSet::new(),
            }),
            has_idle: AtomicBool::new(false),
            inboxes: (0..inboxes).map(|_| Inbox::default()).collect(),
        }
    }

    /// Also gives late blocks to a second copy, for at most this percentage of the blocks.
    /// `keeps_order`: an order is kept, so later blocks wait.
    pub(crate) fn hedged(mut self, percent: Option<u32>, keeps_order: bool) -> Self {
        self.is_hedged = percent.is_some();
        let is_elsewhere = self.state().distant.iter().any(Option::is_some);
        if self.is_hedged && is_elsewhere {
            self.looker = Some(Arc::default());
            // Blocks that wait after a late one are called back, and need not be hedged.
            self.is_recallable = true;
            self.state().distant.iter_mut().flatten().for_each(Distant::look_after);
        }
        let hedges = |percent| Hedges::new(percent, keeps_order, self.consumers);
        self.state().hedges = percent.map(hedges);
        self
    }

    /// Sets up the choice of block sizes, if the cut asks for it, and the observer.
    pub(crate) fn watched(
        mut self,
        cut: Cut,
        observer: Option<&Arc<dyn Observer>>,
        aim: Aim,
    ) -> Self {
        self.observer = observer.cloned();
        let place = |one: &Option<Distant>| one.as_ref().map(Distant::process);
        let places = self.state().distant.iter().map(place).collect();
        self.sizing = Sizing::of(cut, [self.share(), self.ledger.limit()], places, aim);
        self
    }

    pub(crate) fn state(&self) -> Locked<'_> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Locked::new(state, &self.has_idle, (self.observer.as_ref(), self.number()))
    }

    /// Whether a block that a copy has taken may be dealt again, so that a unit has not ended
    /// before all are done.
    pub(crate) fn counts_undone(&self) -> bool {
        self.remote.is_redealt || self.is_recallable || self.is_hedged
    }

    /// Whether blocks have to be distinguished by their group.
    pub(crate) fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// The largest charge of one block. In an ordered stream, the group that all others wait for
    /// must fit into the room that is kept for it.
    pub(crate) fn largest(&self) -> usize {
        let limit = self.ledger.limit();
        let largest = if self.is_ordered { limit / 4 } else { limit };
        if self.goes_elsewhere { largest.min(LARGEST_ELSEWHERE) } else { largest }
    }

    /// Room that one producer may take for a block that it is filling.
    pub(crate) fn share(&self) -> usize {
        self.largest().min(self.ledger.limit() / (self.remote.local_producers + 2))
    }

    /// Number of the stream in the pipeline, from 0.
    pub(crate) fn number(&self) -> usize {
        self.remote.number.into()
    }

    /// Whether blocks may be sent again.
    pub(crate) fn is_replayed(&self) -> bool {
        self.remote.is_replayed
    }

    /// True if the outputs of different input blocks must not be mixed.
    pub(crate) fn keeps_groups(&self) -> bool {
        self.is_ordered || self.remote.is_replayed
    }

    /// How much of the limit may be held when a block of that group is charged: some is kept for
    /// the group that all others wait for.
    pub(crate) fn most(&self, unit: &Open, group: u64) -> usize {
        let limit = self.ledger.limit();
        if !self.is_ordered {
            return limit;
        }
        let state = self.state();
        let next = state.lanes.get(&unit.rank).and_then(|lane| lane.merge.as_ref());
        // A past group is being repeated, and its blocks will not be kept.
        let has_turn = next.map_or(0, Merge::next) >= group;
        if has_turn { self.ledger.most() } else { limit - kept(limit, self.is_replayed()) }
    }

    /// Sends a block; `at` is its group, and its index in that.
    pub(crate) fn send(&self, unit: &Open, copy: usize, at: (u64, u32), block: Queued) {
        if self.inboxes.is_empty() {
            return self.add(unit, at, block);
        }
        let inbox = &self.inboxes[copy % self.inboxes.len()];
        match inbox.put(unit, block) {
            Ok(()) if self.has_idle.load(Ordering::Relaxed) => {
                let mut state = self.state();
                self.collect(&mut state);
                self.feed(&mut state);
            }
            Ok(()) => {}
            Err(block) => {
                let mut state = self.state();
                self.collect(&mut state);
                if self.add_to(&mut state, unit, at, block) {
                    inbox.turn_to(unit.rank);
                }
            }
        }
    }

    /// Whether blocks may be sent together.
    pub(crate) fn has_inboxes(&self) -> bool {
        !self.inboxes.is_empty() && self.sizing.is_none()
    }

    /// Sends several blocks of an unordered stream; leaves `blocks` empty.
    pub(crate) fn send_all(&self, unit: &Open, copy: usize, blocks: &mut Vec<Queued>) {
        let inbox = &self.inboxes[copy % self.inboxes.len()];
        if inbox.put_all(unit, blocks) {
            if self.has_idle.load(Ordering::Relaxed) {
                let mut state = self.state();
                self.collect(&mut state);
                self.feed(&mut state);
            }
            return;
        }
        let mut state = self.state();
        self.collect(&mut state);
        let mut is_open = true;
        for block in blocks.drain(..) {
            is_open &= self.add_to(&mut state, unit, (0, 0), block);
        }
        if is_open {
            inbox.turn_to(unit.rank);
        }
    }

    /// Deals the blocks in the inboxes. False if they are empty.
    pub(crate) fn collect(&self, state: &mut State) -> bool {
        let mut is_any = false;
        let mut blocks = std::mem::take(&mut state.emptied);
        for inbox in &self.inboxes {
            let Some(rank) = inbox.empty(&mut blocks) else { continue };
            is_any = true;
            state.blocks += blocks.len() as u64;
            let Some(lane) = state.lanes.get_mut(&rank) else {
                // The unit has ended.
                state.bytes += blocks.iter().map(|block| block.bytes.len() as u64).sum::<u64>();
                let held = blocks.drain(..).map(|block| block.held).sum();
                self.ledger.give(held);
                continue;
            };
            state.bytes += lane.keep(&mut blocks);
            self.wake_for_undealt(state);
        }
        state.emptied = blocks;
        is_any
    }

    pub(crate) fn add(&self, unit: &Open, at: (u64, u32), block: Queued) {
        self.add_to(&mut self.state(), unit, at, block);
    }

    /// False if the unit has ended.
    pub(crate) fn add_to(
        &self,
        state: &mut State,
        unit: &Open,
        (group, index): (u64, u32),
        block: Queued,
    ) -> bool {
        state.blocks += 1;
        state.bytes += block.bytes.len() as u64;
        let State { dealer, lanes, tickets, consumers, lost_producers, sent_all, .. } = &mut *state;
        let lane = self.lane(lanes, unit, consumers, (lost_producers, sent_all));
        let is_open = lane.is_some();
        let takes = |lane: &mut Lane| {
            lane.replays.as_mut().is_none_or(|replays| replays.takes(group, index))
        };
        let lane = lane.and_then(|lane| takes(lane).then_some(lane));
        let Some(lane) = lane else {
            if block.held > 0 {
                self.ledger.give(block.held);
            }
            return is_open;
        };
        let ready = match &mut lane.merge {
            Some(merge) => merge.add(group, block),
            None => Some(block),
        };
        if let Some(block) = ready {
            let copy = lane.deal(dealer, tickets, block);
            self.wake_for(state, copy);
            self.feed(state);
        }
        is_open
    }

    /// All blocks of that group were sent. False if more groups are under way than there can be.
    pub(crate) fn end_group(&self, unit: &Open, group: u64) -> bool {
        if !self.keeps_groups() {
            return true;
        }
        let mut state = self.state();
        let Some(lane) = self.lane_of(&mut state, unit) else { return true };
        if lane.replays.as_mut().is_some_and(|replays| !replays.end(group)) {
            return true;
        }
        let is_bounded = lane.is_bounded();
        let Some(merge) = &mut lane.merge else { return is_bounded };
        let ready = merge.end(group);
        let turn = merge.next();
        self.turn(state, unit, ready, turn);
        is_bounded
    }

    /// The turn has passed to another group.
    fn turn(&self, mut state: Locked<'_>, unit: &Open, ready: Vec<Queued>, group: u64) {
        self.deal(&mut state, unit.rank, ready);
        self.feed(&mut state);
        let stream = self.remote.number;
        for (link, _) in &self.remote.producers {
            link.send(Message::Turn { stream, unit: unit.rank.unit, group });
        }
        drop(state);
        self.ledger.turn(unit.rank.unit, group);
        self.ledger.wake_all();
    }

    /// Whether that producer is lost: a unit may have ended without it, and must not begin anew.
    fn is_lost(&self, copy: usize) -> bool {
        self.state().lost_producers.contains(&copy)
    }

    /// A producer has sent all blocks of the unit but those of its last group.
    pub(crate) fn begin_last(&self, unit: &Open, copy: usize) {
        if !self.is_ordered || self.is_lost(copy) {
            return;
        }
        let mut state = self.state();
        let Some(lane) = self.lane_of(&mut state, unit) else { return };
        let was_all = lane.ending.is_all();
        lane.ending.add(copy);
        if was_all || !lane.ending.is_all() {
            return;
        }
        let Some(merge) = &mut lane.merge else { return };
        let ready = merge.begin_last();
        let turn = merge.next();
        self.turn(state, unit, ready, turn);
    }

    /// A producer has sent all blocks of the unit; the last ones are those of that group. Returns
    /// the same as [`Stream::end_group`].
    pub(crate) fn end(&self, unit: &Open, copy: usize, group: u64) -> bool {
        if self.is_lost(copy) {
            return true;
        }
        let is_bounded = self.end_group(unit, group);
        let mut state = self.state();
        self.collect(&mut state);
        let Some(lane) = self.lane_of(&mut state, unit) else { return is_bounded };
        lane.ended.add(copy);
        if lane.ended.is_all() {
            state.has_sent_all(unit.rank.unit, self.is_replayed());
            state.wake_all();
            self.feed(&mut state);
        }
        is_bounded
    }

    fn lane_of<'s>(&self, state: &'s mut State, unit: &Open) -> Option<&'s mut Lane> {
        let State { lanes, consumers, lost_producers, sent_all, .. } = state;
        self.lane(lanes, unit, consumers, (lost_producers, sent_all))
    }

    /// The lane of a unit, if that is under way.
    fn lane<'s>(
        &self,
        lanes: &'s mut BTreeMap<Rank, Lane>,
        unit: &Open,
        consumers: &[Consumer],
        (lost_producers, sent_all): (&[usize], &BTreeSet<UnitId>),
    ) -> Option<&'s mut Lane> {
        if unit.is_closed() {
            return None;
        }
        let new = || {
            let mut lane = Lane {
                ledger: self.ledger,
                merge: self.is_ordered.then(Merge::new),
                undealt: VecDeque::new(),
                again: 0,
                dealt: (0..self.consumers).map(|_| VecDeque::new()).collect(),
                next: 0,
                bytes: 0,
                replays: self.remote.is_replayed.then(Replays::default),
                left_until: Vec::new(),
                in_hands: 0,
                undone: 0,
                ending: Count::new(self.producers),
                ended: Count::new(self.producers),
                told: Count::new(self.consumers),
            };
            for (copy, _) in consumers.iter().enumerate().filter(|(_, one)| one.is_lost) {
                lane.told.add(copy);
            }
            for copy in lost_producers {
                lane.ending.add(*copy);
                lane.ended.add(*copy);
            }
            lane
        };
        Some(match lanes.entry(unit.rank) {
            Entry::Occupied(lane) => lane.into_mut(),
            // Repeated output that arrives after the whole unit has ended.
            Entry::Vacant(_) if sent_all.contains(&unit.rank.unit) => return None,
            Entry::Vacant(place) => place.insert(new()),
        })
    }

    pub(crate) fn deal(&self, state: &mut State, rank: Rank, blocks: Vec<Queued>) {
        for block in blocks {
            let State { dealer, lanes, tickets, .. } = state;
            let Some(lane) = lanes.get_mut(&rank) else { return };
            let copy = lane.deal(dealer, tickets, block);
            self.wake_for(state, copy);
        }
    }

    /// Wakes a copy for a new block: that copy, or any.
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
            // The copy that is woken may find a block elsewhere, and leave this one.
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

    /// Takes the next item for that copy, the most urgent unit first. If there is none, the copy is
    /// woken when there is.
    pub(crate) fn take(&self, copy: usize, own: &Arc<Wakeup>, hand: &mut Hand) -> Option<Taken> {
        let mut state = self.state();
        let undealt = || state.lanes.values().map(|lane| lane.undealt.len()).sum::<usize>();
        // A more urgent unit than those here may have arrived.
        if state.lanes.len() > 1 || undealt() < BATCH_BLOCKS * self.consumers {
            self.collect(&mut state);
        }
        hand.look_again = None;
        let mut taken = self.before_take(&mut state, copy);
        let is_late = taken.is_none() && self.is_hedged;
        let late = if is_late { self.hedge_first(&mut state, copy, hand) } else { None };
        let is_late = late.is_some();
        taken = taken.or(late);
        taken = taken.or_else(|| self.take_next(&mut state, copy, hand));
        if taken.is_none() {
            self.set_idle(&mut state, copy, true);
            state.publish(&self.has_idle);
            self.collect(&mut state);
            taken = self.take_next(&mut state, copy, hand);
        }
        if matches!(taken, Some(Taken::Blocks)) && !is_late {
            self.is_at(&mut state, copy, hand);
        }
        taken = taken.or_else(|| self.hedge(&mut state, copy, hand));
        self.set_idle(&mut state, copy, taken.is_none());
        if taken.is_none() {
            state.consumers[copy].wakeup.get_or_insert_with(|| Arc::clone(own));
            drop(state);
            if self.ledger.is_waited_for() {
                // Nothing is left here, so callers that wait for room must check again.
                self.ledger.wake_all();
            }
            return None;
        }
        if matches!(taken, Some(Taken::Blocks)) {
            state.dealer.began(copy, hand.taken());
        }
        if state.idle > 0 && state.lanes.values().any(|lane| !lane.undealt.is_empty()) {
            self.wake_for_undealt(&mut state);
        }
        if self.remote.is_redealt {
            state.consumers[copy].wakeup.get_or_insert_with(|| Arc::clone(own));
        }
        taken
    }

    fn set_idle(&self, state: &mut State, copy: usize, is_idle: bool) {
        let was_idle = std::mem::replace(&mut state.consumers[copy].is_idle, is_idle);
        match (was_idle, is_idle) {
            (true, false) => state.idle -= 1,
            (false, true) => state.idle += 1,
            _ => {}
        }
    }

    /// The copy has finished with the blocks it took: it processed `processed` of them in that
    /// time. Any copy can take the rest. Returns the outcome.
    pub(crate) fn done(
        &self,
        copy: usize,
        hand: &mut Hand,
        processed: usize,
        took: Duration,
    ) -> Finished {
        let taken = hand.taken();
        let mut state = self.state();
        state.dealer.done(copy, taken, processed, took);
        self.served(&mut state, copy, (processed, hand.given()), took.saturating_sub(hand.blocked));
        let finished = self.is_through(&mut state, copy, took);
        let counts_undone = self.counts_undone();
        let lane = match hand.rank() {
            _ if finished.is_beaten => None,
            Some(rank) if taken > 1 || counts_undone => state.lanes.get_mut(&rank),
            _ => None,
        };
        let mut is_end = false;
        if let Some(lane) = lane {
            lane.in_hands -= taken.saturating_sub(1);
            if counts_undone {
                lane.undone -= taken;
            }
            while let Some(block) = hand.blocks.pop_back() {
                lane.put_back(block);
            }
            is_end = lane.ended.is_all();
        }
        self.after_done(&mut state, is_end);
        if taken > processed {
            self.wake_for_undealt(&mut state);
        }
        drop(state);
        hand.clear();
        finished
    }

    /// Called after a copy has finished blocks, perhaps the last ones of a unit.
    pub(crate) fn after_done(&self, state: &mut State, is_end: bool) {
        let waits = |lane: &Lane| lane.ended.is_all() && !lane.undealt.is_empty();
        if is_end || state.idle > 0 && state.lanes.values().any(waits) {
            // A copy that left a block to this one may decide otherwise now, or learns of the end.
            state.wake_all();
        }
        self.feed(state);
    }

    /// The unit has ended early: drops its blocks here, and wakes all copies.
    pub(crate) fn forget(&self, unit: &Open) {
        let mut state = self.state();
        self.collect(&mut state);
        let lane = state.purge(unit.rank);
        state.clear(unit.rank.unit);
        state.wake_all();
        drop(state);
        // The thread that ends the unit did not allocate this memory, which may panic when it is
        // freed.
        let _ = caught(|| drop(lane));
        self.ledger.repay(unit.rank.unit, u64::MAX);
        self.ledger.wake_all();
    }

    /// `Some` if copies here send.
    pub(crate) fn sizing_here(&self) -> Option<&Sizing> {
        self.sizing.as_ref().filter(|_| self.remote.local_producers > 0)
    }

    pub(crate) fn report(&self) -> StreamReport {
        let [(own, own_peak), (others, others_peak)] =
            [self.ledger, self.foreign].map(|ledger| ledger.held());
        let (held, peak) = (own + others, own_peak + others_peak);
        let (blocks, bytes, copies, hedges) = {
            let mut state = self.state();
            self.collect(&mut state);
            let hedges = state.hedges.as_ref().map(|hedges| hedges.counts);
            (state.blocks, state.bytes, state.copies(), hedges.unwrap_or_default())
        };
        StreamReport {
            name: Arc::clone(&self.name),
            blocks,
            bytes,
            held,
            peak,
            limit: self.ledger.limit() + self.foreign.limit(),
            block: self.sizing_here().map(Sizing::report),
            copies,
            hedged: hedges.hedges,
            hedges_won: hedges.won,
        }
    }
}

/// Room that is kept of the limit of an ordered stream for the group that all others wait for: for
/// two senders of it, if it may be sent twice.
pub(crate) fn kept(limit: usize, is_replayed: bool) -> usize {
    if is_replayed { limit / 2 } else { limit / 4 }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
