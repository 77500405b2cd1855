//! Copies send: their blocks are put in order and dealt.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering;

use super::Stream;
use super::state::{ConsumerState, Locked, StreamState};
use crate::memory::block::Queued;
use crate::policy::priority::{Priority, UnitId};
use crate::stream::merge::Merge;
use crate::stream::replays::Replays;
use crate::stream::unit::Open;
use crate::stream::unit_queue::{CompletionSet, GROUP_ENTRIES, UnitQueue};

impl Stream {
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
    pub(super) fn collect(&self, state: &mut StreamState) -> bool {
        let mut is_any = false;
        let mut blocks = std::mem::take(&mut state.emptied);
        for inbox in &self.inboxes {
            let Some(rank) = inbox.empty(&mut blocks) else { continue };
            is_any = true;
            state.blocks += blocks.len() as u64;
            let Some(queue) = state.queues.get_mut(&rank) else {
                // The unit has ended.
                state.bytes += blocks.iter().map(|block| block.bytes.len() as u64).sum::<u64>();
                let held = blocks.drain(..).map(|block| block.held).sum();
                self.ledger.give(held);
                continue;
            };
            state.bytes += queue.keep(&mut blocks);
            self.wake_for_undealt(state);
        }
        state.emptied = blocks;
        is_any
    }

    pub(super) fn add(&self, unit: &Open, at: (u64, u32), block: Queued) {
        self.add_to(&mut self.state(), unit, at, block);
    }

    /// False if the unit has ended.
    pub(super) fn add_to(
        &self,
        state: &mut StreamState,
        unit: &Open,
        at: (u64, u32),
        block: Queued,
    ) -> bool {
        let (group, index) = at;
        state.blocks += 1;
        state.bytes += block.bytes.len() as u64;
        let StreamState { dealer, queues, tickets, consumers, lost_producers, sent_all, .. } =
            &mut *state;
        let queue = self.queue(queues, unit, consumers, lost_producers, sent_all);
        let is_open = queue.is_some();
        let takes = |queue: &mut UnitQueue| {
            queue.replays.as_mut().is_none_or(|replays| replays.takes(group, index))
        };
        let queue = queue.and_then(|queue| takes(queue).then_some(queue));
        let Some(queue) = queue else {
            if block.held > 0 {
                self.ledger.give(block.held);
            }
            return is_open;
        };
        let ready = match &mut queue.merge {
            Some(merge) => merge.add(group, block),
            None => Some(block),
        };
        if let Some(block) = ready {
            let copy = queue.deal(dealer, tickets, block);
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
        let Some(queue) = self.queue_of(&mut state, unit) else { return true };
        if queue.replays.as_mut().is_some_and(|replays| !replays.end(group)) {
            return true;
        }
        let is_bounded = queue.is_bounded();
        let Some(merge) = &mut queue.merge else { return is_bounded };
        let ready = merge.end(group);
        let turn = merge.next();
        self.turn(state, unit, ready, turn);
        is_bounded
    }

    /// The turn has passed to another group.
    fn turn(&self, mut state: Locked<'_>, unit: &Open, ready: Vec<Queued>, group: u64) {
        self.deal(&mut state, unit.rank, ready);
        self.feed(&mut state);
        for producers in &self.remote.producers {
            producers.link.turn(unit.rank.unit, group);
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
        let Some(queue) = self.queue_of(&mut state, unit) else { return };
        let was_all = queue.ending.is_all();
        queue.ending.add(copy);
        if was_all || !queue.ending.is_all() {
            return;
        }
        let Some(merge) = &mut queue.merge else { return };
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
        let Some(queue) = self.queue_of(&mut state, unit) else { return is_bounded };
        queue.ended.add(copy);
        if queue.ended.is_all() {
            state.has_sent_all(unit.rank.unit, self.is_replayed());
            state.wake_all();
            self.feed(&mut state);
        }
        is_bounded
    }

    fn queue_of<'s>(&self, state: &'s mut StreamState, unit: &Open) -> Option<&'s mut UnitQueue> {
        let StreamState { queues, consumers, lost_producers, sent_all, .. } = state;
        self.queue(queues, unit, consumers, lost_producers, sent_all)
    }

    /// The queue of a unit, if that is under way.
    fn queue<'s>(
        &self,
        queues: &'s mut BTreeMap<Priority, UnitQueue>,
        unit: &Open,
        consumers: &[ConsumerState],
        lost_producers: &[usize],
        sent_all: &BTreeSet<UnitId>,
    ) -> Option<&'s mut UnitQueue> {
        if unit.is_closed() {
            return None;
        }
        let new = || {
            let mut queue = UnitQueue {
                ledger: self.ledger,
                merge: self.is_ordered.then(Merge::new),
                undealt: VecDeque::new(),
                again: 0,
                dealt: (0..self.consumers).map(|_| VecDeque::new()).collect(),
                next: self.remote.own_number,
                step: 1 + self.remote.other_owners,
                bytes: 0,
                replays: self.remote.is_replayed.then(Replays::default),
                most_entries: GROUP_ENTRIES.max(self.remote.input_blocks),
                left_until: Vec::new(),
                in_batches: 0,
                undone: 0,
                ending: CompletionSet::new(self.producers),
                ended: CompletionSet::new(self.producers),
                notified: CompletionSet::new(self.consumers),
            };
            for (copy, _) in consumers.iter().enumerate().filter(|(_, one)| one.is_lost) {
                queue.notified.add(copy);
            }
            for copy in lost_producers {
                queue.ending.add(*copy);
                queue.ended.add(*copy);
            }
            queue
        };
        Some(match queues.entry(unit.rank) {
            Entry::Occupied(queue) => queue.into_mut(),
            // Repeated output that arrives after the whole unit has ended.
            Entry::Vacant(_) if sent_all.contains(&unit.rank.unit) => return None,
            Entry::Vacant(entry) => entry.insert(new()),
        })
    }

    pub(super) fn deal(&self, state: &mut StreamState, rank: Priority, blocks: Vec<Queued>) {
        for block in blocks {
            let StreamState { dealer, queues, tickets, .. } = state;
            let Some(queue) = queues.get_mut(&rank) else { return };
            let copy = queue.deal(dealer, tickets, block);
            self.wake_for(state, copy);
        }
    }

    /// Wakes a copy for a new block: that copy, or any.
    fn wake_for(&self, state: &mut StreamState, copy: Option<usize>) {
        match copy {
            Some(copy) => state.wake(copy),
            None => self.wake_for_undealt(state),
        }
    }

    pub(super) fn wake_for_undealt(&self, state: &mut StreamState) {
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
}
