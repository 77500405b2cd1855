//! A stream, from all copies of one filter to all copies of another, at its owner.
//!
//! The owner is the process that deals the blocks. The methods of a stream are grouped by who calls
//! them and when: copies here send and take; copies in other processes are fed, and their processes
//! report; blocks that wait at a slow copy are recalled.

mod feed;
mod recall;
pub(crate) mod reports;
mod send;
mod state;
mod take;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use state::{ConsumerState, Locked, StreamState};

use crate::memory::ledger::Ledger;
use crate::panics::caught;
use crate::policy::cut::{Cut, LARGEST_ELSEWHERE};
use crate::policy::dealing::{Dealer, DealingPolicy};
use crate::policy::priority::UnitId;
use crate::policy::size_tuner::Aim;
use crate::stream::elsewhere::RemoteProducers;
use crate::stream::inbox::Inbox;
use crate::stream::merge::Merge;
use crate::stream::observer::Observer;
use crate::stream::remote_copy::RemoteCopy;
use crate::stream::report::StreamReport;
use crate::stream::sizing::Sizing;
use crate::stream::unit::Open;

pub(crate) struct Stream {
    pub(crate) name: Arc<str>,
    /// For blocks that copies here send.
    pub(crate) ledger: &'static Ledger,
    /// For blocks of other processes, which have taken the room themselves.
    foreign: &'static Ledger,
    is_ordered: bool,
    /// True if copies in other processes receive.
    goes_elsewhere: bool,
    producers: usize,
    consumers: usize,
    remote: Remote,
    /// True if blocks that were sent ahead to a copy may be called back.
    is_recallable: bool,
    /// True if its consumers also wait for other streams.
    is_one_of_several: bool,
    /// For a stream that chooses the size of its blocks.
    pub(crate) sizing: Option<Sizing>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    state: Mutex<StreamState>,
    /// True if a consumer is idle, or can be sent more.
    pub(crate) has_idle: AtomicBool,
    /// One for each producer here. Empty if every block has to be dealt at once.
    inboxes: Vec<Inbox>,
}

/// The part of a stream that concerns other processes.
#[derive(Default)]
pub(crate) struct Remote {
    pub(crate) number: u16,
    /// Number of this process among those that deal the stream's blocks.
    pub(crate) own_number: u64,
    /// How many others deal its blocks.
    pub(crate) other_owners: u64,
    /// Receiving copies elsewhere, by number.
    pub(crate) consumers: Vec<Option<RemoteCopy>>,
    /// Sending processes.
    pub(crate) producers: Vec<RemoteProducers>,
    /// True if the sending filter may repeat output.
    pub(crate) is_replayed: bool,
    /// True if others take over the blocks of a lost copy, so the unit has not ended before all are
    /// done.
    pub(crate) is_redealt: bool,
    /// Number of sending copies here.
    pub(crate) local_producers: usize,
    /// Bytes that those elsewhere may hold together.
    pub(crate) foreign_limit: usize,
    /// Most blocks of a unit that the copies of the sending filter can have.
    pub(crate) input_blocks: usize,
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
        policy: DealingPolicy,
        is_ordered: bool,
        [producers, consumers]: [usize; 2],
        is_one_of_several: bool,
        mut remote: Remote,
    ) -> Self {
        let mut remote_copies = std::mem::take(&mut remote.consumers);
        remote_copies.resize_with(consumers, || None);
        let is_ordered_here = is_ordered && producers > 1;
        let is_dealt_late =
            policy.binds_late() && !is_ordered_here && !remote.is_replayed && !remote.is_redealt;
        let has_choice = consumers > 1 && remote_copies.iter().any(Option::is_some);
        let is_recallable = has_choice && policy.binds_late() && !is_ordered;
        let inboxes = if is_dealt_late { remote.local_producers } else { 0 };
        Self {
            name,
            ledger: Ledger::new(limit),
            foreign: Ledger::new(remote.foreign_limit),
            // The output of a single copy is in order as it comes.
            is_ordered: is_ordered_here,
            goes_elsewhere: remote_copies.iter().any(Option::is_some),
            producers,
            consumers,
            remote,
            is_recallable,
            is_one_of_several,
            sizing: None,
            observer: None,
            state: Mutex::new(StreamState {
                dealer: Dealer::new(policy, consumers),
                queues: BTreeMap::new(),
                consumers: (0..consumers).map(|_| ConsumerState::default()).collect(),
                remote_copies,
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
                sent_all: BTreeSet::new(),
            }),
            has_idle: AtomicBool::new(false),
            inboxes: (0..inboxes).map(|_| Inbox::default()).collect(),
        }
    }

    /// Sets up the choice of block sizes, if the cut asks for it, and the observer.
    pub(crate) fn watched(
        mut self,
        cut: Cut,
        observer: Option<&Arc<dyn Observer>>,
        aim: Aim,
    ) -> Self {
        self.observer = observer.cloned();
        let process = |one: &Option<RemoteCopy>| one.as_ref().map(RemoteCopy::process);
        let processes = self.state().remote_copies.iter().map(process).collect();
        self.sizing = Sizing::of(cut, [self.share(), self.ledger.limit()], processes, aim);
        self
    }

    fn state(&self) -> Locked<'_> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Locked::new(state, &self.has_idle, (self.observer.as_ref(), self.number()))
    }

    /// Whether a block that a copy has taken may be dealt again, so that a unit has not ended
    /// before all are done.
    fn counts_undone(&self) -> bool {
        self.remote.is_redealt || self.is_recallable
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
        let next = state.queues.get(&unit.rank).and_then(|queue| queue.merge.as_ref());
        // A past group is being repeated, and its blocks will not be kept.
        let has_turn = next.map_or(0, Merge::next) >= group;
        if has_turn { self.ledger.most() } else { limit - kept(limit, self.is_replayed()) }
    }

    /// True if that group of an ordered stream has its turn, and blocks of other units were sent.
    pub(crate) fn is_one_of_turns(&self, unit: &Open, group: u64) -> bool {
        let state = self.state();
        let has_turn = |merge: Option<&Merge<_>>| merge.map_or(0, Merge::next) >= group;
        self.is_ordered
            && state.queues.keys().any(|other| *other != unit.rank)
            && has_turn(state.queues.get(&unit.rank).and_then(|queue| queue.merge.as_ref()))
    }

    /// Forgets a unit that was done, or has ended early.
    pub(crate) fn clear(&self, unit: UnitId) {
        self.ledger.repay(unit, u64::MAX);
        if self.is_replayed() {
            self.state().sent_all.remove(&unit);
        }
    }

    /// The unit has ended early: drops its blocks here, and wakes all copies.
    pub(crate) fn forget(&self, unit: &Open) {
        let mut state = self.state();
        self.collect(&mut state);
        let queue = state.purge(unit.rank);
        state.sent_all.remove(&unit.rank.unit);
        state.wake_all();
        drop(state);
        // The thread that ends the unit did not allocate this memory, which may panic when it is
        // freed.
        let _ = caught(|| drop(queue));
        self.ledger.repay(unit.rank.unit, u64::MAX);
        self.ledger.wake_all();
    }

    /// `Some` if copies here send.
    fn sizing_here(&self) -> Option<&Sizing> {
        self.sizing.as_ref().filter(|_| self.remote.local_producers > 0)
    }

    pub(crate) fn report(&self) -> StreamReport {
        let [(own, own_peak), (others, others_peak)] =
            [self.ledger, self.foreign].map(|ledger| ledger.held());
        let (held, peak) = (own + others, own_peak + others_peak);
        let (blocks, bytes, copies) = {
            let mut state = self.state();
            self.collect(&mut state);
            (state.blocks, state.bytes, state.copies())
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
