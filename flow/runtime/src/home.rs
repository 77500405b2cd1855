//! The home of a stream, as seen by the processes in which copies send to it or receive from it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::block::{Queued, Receipt};
use crate::cut::OVERHEAD;
use crate::hand::Hand;
use crate::lanes::{Lane, State, Taken, count_over};
use crate::origin::Origin;
use crate::remote::distant::{Back, Distant, Done};
use crate::remote::link::Link;
use crate::remote::message::{Garbled, Message, Sequences};
use crate::stream::Stream;
use crate::unit::{Open, Rank, UnitId};

/// Only a faulty peer sends this.
pub(crate) const TOO_MANY_GROUPS: Garbled = Garbled::Unexpected("more groups than there can be");

impl Stream {
    /// Whether that copy sends from that process.
    pub(crate) fn has_producer(&self, process: u32, copy: u16) -> bool {
        let copy = usize::from(copy);
        let producers = self.remote.producers.iter();
        producers.filter(|(link, _)| link.rank == process).any(|(_, own)| own.contains(&copy))
    }

    /// Whether that process, the home of the stream to the sending filter, announces when that copy
    /// has sent everything.
    pub(crate) fn is_ended_by(&self, process: u32, copy: u16) -> bool {
        self.remote.ender == Some(process) && usize::from(copy) < self.producers
    }

    /// Takes a block from another process. `unit` is `None` if the unit has ended. After a loss,
    /// which the sender may have learned of first, there may be more than there is room for:
    /// `has_lost` waits for that loss. Blocks of a hedged filter may be sent again without a loss.
    pub(crate) fn sent(
        &self,
        link: &Arc<Link>,
        unit: Option<&Open>,
        at: (u64, u32),
        (payload, origin): (Bytes, Option<Origin>),
        has_lost: impl FnOnce() -> bool,
    ) -> Result<(), Garbled> {
        let bytes = payload.len() + OVERHEAD;
        let held = self.foreign.add(bytes);
        let is_hedged = self.remote.ender.is_some();
        let is_within =
            held <= self.foreign.limit() || self.is_replayed() && (is_hedged || has_lost());
        let (link, stream) = (Arc::clone(link), self.remote.number);
        let receipt = Receipt::Room { link, stream, bytes, ledger: self.foreign };
        let block = Queued { origin, receipt: Some(Box::new(receipt)), ..Queued::new(payload, 0) };
        if !is_within {
            return Err(Garbled::Unexpected("more than there was room for"));
        }
        let Some(unit) = unit else { return Ok(()) };
        let mut state = self.state();
        self.add_to(&mut state, unit, at, block);
        match state.lanes.get(&unit.rank).is_none_or(Lane::is_bounded) {
            true => Ok(()),
            false => Err(TOO_MANY_GROUPS),
        }
    }

    /// Deals blocks to copies elsewhere, as far as these have room.
    pub(crate) fn feed(&self, state: &mut State) {
        if state.distant.iter().all(Option::is_none) {
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
        state.distant.iter_mut().flatten().for_each(Distant::flush);
        self.watch_all(state);
    }

    fn feed_once(&self, state: &mut State) {
        state.is_hungry = false;
        let late = state.late_elsewhere();
        let is_late = |copy: usize| late.contains(&copy);
        let State { dealer, distant, hedges, .. } = &mut *state;
        let is_news =
            hedges.as_ref().is_some_and(|hedges| hedges.tell_dealer(dealer, Instant::now()));
        let all = distant.iter().enumerate();
        let full = all
            .filter_map(|(copy, one)| Some((copy, !one.as_ref()?.has_memory() || is_late(copy))));
        if full.filter(|(copy, is_full)| dealer.set_full(*copy, *is_full)).count() > 0 || is_news {
            // A copy that has left a block to that one takes it now.
            state.wake_all();
        }
        let is_candidate =
            |copy: &usize| state.distant[*copy].is_some() && !state.consumers[*copy].is_lost;
        let mut candidates: Vec<usize> = (0..state.distant.len()).filter(is_candidate).collect();
        let mut hand = Hand::new(self.ledger);
        loop {
            let State { dealer, distant, consumers, idle, .. } = &mut *state;
            let way = |copy: usize| distant[copy].as_ref().and_then(Distant::round_trip);
            let until = |copy: &usize| dealer.until_done(*copy, way(*copy).unwrap_or_default());
            let order = |at: &usize| (is_late(candidates[*at]), until(&candidates[*at]));
            let Some(at) = (0..candidates.len()).min_by_key(order) else {
                return;
            };
            let copy = candidates[at];
            let is_late = is_late(copy);
            // Idle copies here that would finish sooner have been woken, or will be.
            let is_sooner =
                |other: &usize| consumers[*other].is_idle && until(other) < until(&copy);
            let sooner = match *idle {
                0 => 0,
                _ => (0..consumers.len()).filter(is_sooner).count(),
            };
            let service = dealer.typical(copy);
            let one = distant[copy].as_ref();
            let has_room = one.is_some_and(|one| one.has_room(service) && !is_late);
            // The copies that are not late have had their choice.
            let is_last_resort = is_late && distant.iter().all(Option::is_some);
            let undealt = || state.lanes.values().map(|lane| lane.undealt.len()).sum::<usize>();
            let is_left_to_others = sooner > 0 && (1..=sooner).contains(&undealt());
            // The output of such a block may be awaited by a copy that holds up others.
            let is_urgent = state.lanes.values().any(|lane| lane.again > 0);
            let is_urgent = is_urgent && (!is_late || is_last_resort);
            // If another copy of the process is late, the whole process may be.
            let is_well = || {
                let process = |copy: usize| state.distant[copy].as_ref().map(Distant::process);
                late.iter().all(|other| process(*other) != process(copy))
            };
            let pressing = state.pressing().filter(|_| has_room && !is_urgent && is_well());
            if pressing.is_some_and(|which| self.send_late(state, copy, which)) {
                continue;
            }
            let next = match is_urgent || (has_room && !is_left_to_others) {
                true => self.take_next(state, copy, &mut hand),
                false => state.end_for(copy, self.counts_undone()).map(Taken::End),
            };
            let State { distant, hedges, .. } = &mut *state;
            let Some(one) = &mut distant[copy] else { return };
            match (next, hand.rank()) {
                (Some(Taken::Blocks), Some(rank)) => {
                    if let Some(hedges) = hedges {
                        hedges.dealt();
                    }
                    while let Some(block) = hand.next() {
                        one.send(rank, block, hand.is_again(), self.counts_undone());
                    }
                }
                (Some(Taken::End(unit)), _) => Self::end_elsewhere(state, copy, unit),
                _ => {
                    candidates.swap_remove(at);
                    state.is_hungry |= has_room;
                }
            }
        }
    }

    /// A process reports that a copy, which must exist, has begun a block.
    pub(crate) fn started(
        &self,
        (process, copy): (u32, u16),
        unit: UnitId,
        sequence: u64,
    ) -> Result<(), Garbled> {
        let mut state = self.state();
        let copy = usize::from(copy);
        state.distant(process, copy)?.started(unit, sequence)?;
        state.dealer.began(copy, 1);
        self.feed(&mut state);
        Ok(())
    }

    pub(crate) fn distant_done(
        &self,
        (process, copy): (u32, u16),
        (unit, sequences): (UnitId, &Sequences),
        [took, blocked, waited]: [Duration; 3],
    ) -> Result<(), Garbled> {
        let mut state = self.state();
        let copy = usize::from(copy);
        let distant = state.distant(process, copy)?;
        let done = distant.done(unit, sequences, took, waited)?;
        let Done { rank, count, bytes, unbegun, awaited, hedged, took, was_at, stray } = done;
        if let Some(hedges) = &mut state.hedges {
            hedges.sample(copy, was_at);
        }
        for (sequence, is_second) in hedged {
            state.has_won((unit, sequence), is_second);
        }
        state.dealer.began(copy, unbegun);
        state.dealer.done(copy, count, 1, took);
        let busy = took.saturating_sub(blocked);
        let all = busy.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        self.served(&mut state, copy, (count, bytes), all);
        let counts_undone = self.counts_undone();
        let lane = state.lanes.get_mut(&rank).filter(|_| counts_undone);
        let is_end = lane.is_some_and(|lane| {
            lane.undone -= awaited;
            lane.ended.is_all()
        });
        self.after_done(&mut state, is_end);
        stray
    }

    pub(crate) fn dropped(
        &self,
        (process, copy): (u32, u16),
        (unit, sequences): (UnitId, &Sequences),
        is_begun: bool,
    ) -> Result<(), Garbled> {
        let mut state = self.state();
        let copy = usize::from(copy);
        for sequence in &sequences.0 {
            let (is_unbegun, back) =
                state.distant(process, copy)?.dropped(unit, *sequence, is_begun)?;
            if is_unbegun {
                state.dealer.dropped(copy);
            }
            let Some(Back { rank, block, is_hedged }) = back else { continue };
            if !(is_hedged && state.is_alone_again(unit, *sequence)) {
                self.has_come_back(&mut state, rank, block);
            }
        }
        // It has room again, and copies here that left it a block are not asked again.
        self.after_done(&mut state, false);
        Ok(())
    }

    /// Whether a block that precedes that one waits to be processed. That is so if it is dealt for
    /// a second time: then no copy may wait for its turn with later output. Each such block of
    /// another unit also counts, since all units share the room.
    pub(crate) fn has_earlier(&self, copy: usize, unit: &Open, sequence: u64) -> bool {
        if !self.remote.is_redealt {
            return false;
        }
        let state = self.state();
        if state.lanes.iter().any(|(rank, lane)| lane.again > 0 && *rank != unit.rank) {
            return true;
        }
        let Some(lane) = state.lanes.get(&unit.rank) else { return false };
        let is_earlier = |block: &Queued| block.sequence < sequence;
        lane.undealt.front().is_some_and(is_earlier)
            || lane.dealt[copy].front().is_some_and(|(_, block)| is_earlier(block))
    }

    /// A process is lost: the blocks that its copies had not finished go to others, and nothing
    /// more is awaited from them.
    pub(crate) fn lose(&self, process: u32) {
        let mut state = self.state();
        let is_there =
            |one: &Option<Distant>| one.as_ref().is_some_and(|one| one.process() == process);
        let copies: Vec<usize> =
            (0..state.distant.len()).filter(|copy| is_there(&state.distant[*copy])).collect();
        for copy in copies {
            if let Some(sizing) = &self.sizing {
                sizing.tuner().lose(copy);
            }
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
            let has_ended = lane.ended.is_all();
            let ready = match &mut lane.merge {
                Some(merge) if !was_ending && lane.ending.is_all() => {
                    let ready = merge.begin_last();
                    turns.push((rank.unit, merge.next()));
                    ready
                }
                _ => Vec::new(),
            };
            self.deal(&mut state, rank, ready);
            if has_ended {
                state.has_sent_all(rank.unit, self.is_replayed());
            }
        }
        state.lost_producers.extend(gone);
        state.wake_all();
        // Also those that wait for room: they check for earlier blocks.
        let wakeups = state.consumers.iter().filter_map(|consumer| consumer.wakeup.as_ref());
        wakeups.for_each(|wakeup| wakeup.ring());
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
    pub(crate) fn distant(&mut self, process: u32, copy: usize) -> Result<&mut Distant, Garbled> {
        let distant = self.distant.get_mut(copy).and_then(Option::as_mut);
        let distant = distant.filter(|distant| distant.process() == process);
        distant.ok_or(Garbled::Unexpected("a copy that is not there"))
    }

    /// Takes a unit whose end is to be announced to that copy.
    fn end_for(&mut self, copy: usize, is_redealt: bool) -> Option<UnitId> {
        let mut lanes = self.lanes.iter_mut();
        let (rank, lane) = lanes.find(|(_, lane)| {
            lane.is_over(is_redealt) && lane.dealt[copy].is_empty() && !lane.told.has(copy)
        })?;
        let rank = *rank;
        lane.told.add(copy);
        if lane.told.is_all() {
            count_over(&mut self.over, lane);
            self.lanes.remove(&rank);
        }
        Some(rank.unit)
    }

    /// The copies in other processes that get no more for now because they are late.
    fn late_elsewhere(&self) -> Vec<usize> {
        let Some(hedges) = &self.hedges else { return Vec::new() };
        let now = Instant::now();
        let all = self.distant.iter().enumerate();
        let is_late = |(copy, one): (usize, &Option<Distant>)| {
            one.as_ref().filter(|one| hedges.is_late(copy, one, now)).map(|_| copy)
        };
        all.filter_map(is_late).collect()
    }

    fn lose(&mut self, copy: usize) {
        if std::mem::replace(&mut self.consumers[copy].is_lost, true) {
            return;
        }
        self.dealer.lose(copy);
        self.lose_ends(copy);
        let left = self.distant[copy].as_mut().map(Distant::lose).unwrap_or_default();
        for Back { rank, block, is_hedged } in left {
            if is_hedged && self.is_alone_again(rank.unit, block.sequence()) {
                continue;
            }
            // If its unit has ended, it is dropped.
            if let Some(lane) = self.lanes.get_mut(&rank) {
                lane.undone = lane.undone.saturating_sub(1);
                lane.deal_again(block.into_queued());
                if let Some(hedges) = &mut self.hedges {
                    hedges.undealt();
                }
            }
        }
        let Self { lanes, .. } = self;
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
    /// Puts the block back in its former place.
    pub(crate) fn deal_again(&mut self, block: Queued) {
        self.put_back(block);
        self.again += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dealing::Policy;
    use crate::stream::Remote;
    use crate::unit::{Unit, Units};

    #[test]
    fn nothing_begins_anew_by_what_a_lost_copy_says() {
        let units = Units::default();
        let unit = units.begin(Unit::new(""), vec![1]);
        let remote = Remote { is_replayed: true, ..Remote::default() };
        let stream =
            Stream::new("s".into(), 1 << 20, Policy::Adaptive, true, [2, 1], false, remote);
        stream.state().lost_producers = vec![1];
        stream.begin_last(&unit, 1);
        stream.end(&unit, 1, 1 << 63);
        assert!(stream.state().lanes.is_empty());
        stream.end(&unit, 0, 1 << 63);
        assert!(!stream.state().lanes.is_empty());
    }

    #[test]
    fn what_is_dealt_again_comes_before_all_else() {
        let units = Units::default();
        let begin = || units.begin(Unit::new(""), vec![1]);
        let [urgent, other] = [begin(), begin()];
        let remote = Remote { is_redealt: true, local_producers: 1, ..Remote::default() };
        let stream =
            Stream::new("s".into(), 1 << 20, Policy::RoundRobin, true, [1, 2], false, remote);
        let mut hand = Hand::new(stream.ledger);
        for unit in [&urgent, &other] {
            for index in 0..4 {
                assert!(stream.ledger.reserve(200, usize::MAX));
                stream.send(unit, 0, (index, 0), Queued::new(Bytes::from_static(b"x"), 200));
            }
        }
        stream.state().take(0, true, &mut hand);
        assert_eq!(hand.next().map(|block| (block.unit(), block.sequence())), Some((UnitId(0), 0)));
        assert!(!stream.has_earlier(0, &urgent, 0));
        stream.state().lose(1);
        // It must not wait for room with output of one unit while others wait for another unit.
        assert!(stream.has_earlier(0, &urgent, 0));
        let next = |hand: &mut Hand| {
            stream.state().take(0, true, hand);
            hand.next().map(|block| (hand.is_again(), block.sequence()))
        };
        let order = [(); 7].map(|()| next(&mut hand).unwrap());
        let again = [(true, 1), (true, 3), (true, 1), (true, 3)];
        assert_eq!(
            (&order[..4], &order[4..]),
            (&again[..], &[(false, 2), (false, 0), (false, 2)][..])
        );
        assert!(!stream.has_earlier(0, &urgent, 0));
    }
}
