//! The producers of a stream whose owner is in another process.
//!
//! They share a part of the stream's limit: buffers that they fill, blocks on their way, and their
//! blocks at the owner. The owner returns the room when a block has been dropped.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::consumer::RemoteConsumer;
use super::link::Link;
use super::message::{Frame, Message};
use super::protocol_error::ProtocolError;
use crate::memory::block::Queued;
use crate::memory::ledger::Ledger;
use crate::policy::cut::{Cut, LARGEST_ELSEWHERE};
use crate::policy::fit::Cost;
use crate::policy::priority::UnitId;
use crate::policy::size_tuner::Aim;
use crate::stream::observer::Observer;
use crate::stream::owned::kept;
use crate::stream::report::StreamReport;
use crate::stream::sizing::Sizing;
use crate::stream::unit::Open;

pub(crate) struct RemoteProducer {
    pub(crate) name: Arc<str>,
    pub(crate) stream: u16,
    pub(crate) owner: Arc<Link>,
    pub(crate) ledger: &'static Ledger,
    pub(crate) is_ordered: bool,
    /// True if groups must not be joined, because they may have to be sent again.
    pub(crate) keeps_groups: bool,
    /// Number of sending copies here.
    pub(crate) producers: usize,
    /// The remote consumer whose blocks make up the groups, if the owner confirms them.
    pub(crate) source: Option<Arc<RemoteConsumer>>,
    /// For a stream that chooses the size of its blocks.
    pub(crate) sizing: Option<Sizing>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// Bytes that were sent and not freed.
    held: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The groups that all others wait for.
    turns: HashMap<UnitId, u64>,
}

impl Drop for RemoteProducer {
    fn drop(&mut self) {
        let held = *self.held.get_mut();
        if held > 0 {
            self.ledger.give(held);
        }
        self.ledger.retire();
    }
}

/// The name and the number of a stream.
pub(crate) struct StreamId {
    pub(crate) name: Arc<str>,
    pub(crate) number: u16,
}

impl RemoteProducer {
    pub(crate) fn new(
        id: StreamId,
        owner: Arc<Link>,
        limit: usize,
        [is_ordered, keeps_groups]: [bool; 2],
        producers: usize,
        source: Option<Arc<RemoteConsumer>>,
    ) -> Self {
        Self {
            name: id.name,
            stream: id.number,
            owner,
            ledger: Ledger::new(limit),
            is_ordered,
            keeps_groups,
            producers,
            source,
            sizing: None,
            observer: None,
            held: AtomicUsize::new(0),
            state: Mutex::default(),
        }
    }

    /// As [`Stream::watched`](crate::stream::owned::Stream::watched).
    pub(crate) fn watched(
        mut self,
        cut: Cut,
        observer: Option<&Arc<dyn Observer>>,
        aim: Aim,
    ) -> Self {
        self.observer = observer.cloned();
        self.sizing = Sizing::of(cut, [self.share(), self.ledger.limit()], Vec::new(), aim);
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As at the owner, for this process's part of the limit.
    pub(crate) fn largest(&self) -> usize {
        let limit = self.ledger.limit();
        let largest = if self.is_ordered { limit / 4 } else { limit };
        largest.min(LARGEST_ELSEWHERE)
    }

    pub(crate) fn share(&self) -> usize {
        self.largest().min(self.ledger.limit() / (self.producers + 2))
    }

    pub(crate) fn most(&self, unit: &Open, group: u64) -> usize {
        let limit = self.ledger.limit();
        if !self.is_ordered {
            return limit;
        }
        // The turn known here is never ahead of the real one.
        let mut state = self.state();
        let turn = match unit.is_closed() {
            true => 0,
            false => *state.turns.entry(unit.rank.unit).or_insert(0),
        };
        drop(state);
        if turn >= group { self.ledger.most() } else { limit - kept(limit, self.keeps_groups) }
    }

    /// As at the owner; the other units are those that have asked for room here.
    pub(crate) fn is_one_of_turns(&self, unit: &Open, group: u64) -> bool {
        let turns = &self.state().turns;
        let turn = turns.get(&unit.rank.unit).copied().unwrap_or(0);
        self.is_ordered && turn >= group && turns.keys().any(|other| *other != unit.rank.unit)
    }

    pub(crate) fn send(&self, unit: &Open, copy: usize, group: u64, index: u32, block: Queued) {
        let Queued { bytes, origin, held, .. } = block;
        self.held.fetch_add(held, Ordering::Relaxed);
        let from = (self.stream, copy as u16);
        let message = Message::Sent { from, unit: unit.rank.unit, group, index, origin };
        self.owner.send_of(unit.rank, Frame { message, payload: bytes });
    }

    /// True if so much waits for the link that the copy should [wait](Self::wait_for_link).
    pub(crate) fn end_group(&self, unit: &Open, copy: usize, group: u64) -> bool {
        if !self.is_ordered && !self.keeps_groups {
            // Only blocks are sent, which the limit bounds.
            return false;
        }
        let from = (self.stream, copy as u16);
        let message = Message::GroupEnd { from, unit: unit.rank.unit, group };
        self.owner.send_of(unit.rank, message)
    }

    /// Waits until the link has caught up.
    pub(crate) fn wait_for_link(&self, unit: &Open) {
        self.owner.wait_for_backlog(unit.rank, || unit.is_closed());
    }

    pub(crate) fn begin_last(&self, unit: &Open, copy: usize) {
        if self.is_ordered {
            let from = (self.stream, copy as u16);
            self.owner.send_of(unit.rank, Message::Last { from, unit: unit.rank.unit });
        }
    }

    pub(crate) fn end(&self, unit: &Open, copy: usize, group: u64) {
        let from = (self.stream, copy as u16);
        self.owner.send_of(unit.rank, Message::SentAll { from, unit: unit.rank.unit, group });
    }

    /// The owner has returned room.
    pub(crate) fn freed(&self, bytes: u64) -> Result<(), ProtocolError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let less = |held: usize| held.checked_sub(bytes);
        let was = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        was.map_err(|_| ProtocolError::Unexpected("more room than was taken"))?;
        self.ledger.give(bytes);
        Ok(())
    }

    pub(crate) fn set_turn(&self, unit: &Open, group: u64) {
        let mut state = self.state();
        // The turn of a unit is cleared after it is closed.
        if !unit.is_closed() {
            state.turns.insert(unit.rank.unit, group);
            drop(state);
            self.ledger.turn(unit.rank.unit, group);
            self.ledger.wake_all();
        }
    }

    /// The unit was done.
    pub(crate) fn clear(&self, unit: UnitId) {
        self.state().turns.remove(&unit);
        self.ledger.repay(unit, u64::MAX);
    }

    /// The unit has ended: callers that wait for its room check again.
    pub(crate) fn forget(&self, unit: &Open) {
        self.clear(unit.rank.unit);
        self.owner.wake_copies();
        self.ledger.wake_all();
    }

    /// As [`Stream::sending_took`](crate::stream::owned::Stream::sending_took).
    pub(crate) fn sending_took(&self, took: Duration) {
        let Some(sizing) = &self.sizing else { return };
        let mut tuner = sizing.tuner();
        tuner.sent(took);
        tuner.counts(sizing.sizes.count() as u64);
        if !tuner.is_time() {
            return;
        }
        drop(tuner);
        let link = (self.owner.rank, self.owner.cost());
        if let Some(decision) = sizing.think(std::iter::once(link)) {
            if let Some(observer) = &self.observer {
                observer.sized(self.stream.into(), &decision, Instant::now());
            }
        }
    }

    /// The size of its blocks, if it chooses that; the owner reports the rest.
    pub(crate) fn report(&self) -> Option<StreamReport> {
        let block = Some(self.sizing.as_ref()?.report());
        let name = Arc::clone(&self.name);
        Some(StreamReport {
            name,
            blocks: 0,
            bytes: 0,
            held: 0,
            peak: 0,
            limit: 0,
            block,
            copies: Vec::new(),
        })
    }

    /// Notes the common cost of the receiving copies, as reported by the owner.
    pub(crate) fn costs(&self, cost: Cost) {
        if let Some(sizing) = &self.sizing {
            sizing.tuner().set_reported(cost);
        }
    }
}
