//! The producers of a stream whose home is in another process.
//!
//! They share a part of the stream's limit: buffers that they fill, blocks on their way, and their
//! blocks at the home. The home returns the room when a block has been dropped.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::inlet::Inlet;
use super::link::Link;
use super::message::{Frame, Garbled, LARGEST_ELSEWHERE, Message};
use crate::block::Queued;
use crate::cut::Cut;
use crate::ledger::Ledger;
use crate::observer::Observer;
use crate::sizing::Sizing;
use crate::stream::kept;
use crate::tune::Aim;
use crate::unit::{Open, UnitId};

pub(crate) struct Outlet {
    pub(crate) name: Arc<str>,
    pub(crate) stream: u16,
    pub(crate) home: Arc<Link>,
    pub(crate) ledger: &'static Ledger,
    pub(crate) is_ordered: bool,
    /// True if groups must not be joined, because they may have to be sent again.
    pub(crate) keeps_groups: bool,
    /// Number of sending copies here.
    pub(crate) producers: usize,
    /// The inlet whose blocks make up the groups, if the home confirms them.
    pub(crate) source: Option<Arc<Inlet>>,
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

impl Drop for Outlet {
    fn drop(&mut self) {
        let held = *self.held.get_mut();
        if held > 0 {
            self.ledger.give(held);
        }
        self.ledger.retire();
    }
}

impl Outlet {
    pub(crate) fn new(
        (name, stream): (Arc<str>, u16),
        home: Arc<Link>,
        limit: usize,
        [is_ordered, keeps_groups]: [bool; 2],
        producers: usize,
        source: Option<Arc<Inlet>>,
    ) -> Self {
        Self {
            name,
            stream,
            home,
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

    /// As [`Stream::watched`](crate::stream::Stream::watched).
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

    /// As at the home, for this process's part of the limit.
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
        let turn = self.state().turns.get(&unit.rank.unit).copied().unwrap_or(0);
        if turn >= group { self.ledger.most() } else { limit - kept(limit, self.keeps_groups) }
    }

    pub(crate) fn send(&self, unit: &Open, copy: usize, (group, index): (u64, u32), block: Queued) {
        let Queued { bytes, origin, held, .. } = block;
        self.held.fetch_add(held, Ordering::Relaxed);
        let from = (self.stream, copy as u16);
        let message = Message::Sent { from, unit: unit.rank.unit, group, index, origin };
        self.home.send_of(unit.rank, Frame { message, payload: bytes });
    }

    pub(crate) fn end_group(&self, unit: &Open, copy: usize, group: u64) {
        if self.is_ordered || self.keeps_groups {
            let from = (self.stream, copy as u16);
            let message = Message::GroupEnd { from, unit: unit.rank.unit, group };
            self.home.send_of(unit.rank, message);
        }
    }

    pub(crate) fn begin_last(&self, unit: &Open, copy: usize) {
        if self.is_ordered {
            let from = (self.stream, copy as u16);
            self.home.send_of(unit.rank, Message::Last { from, unit: unit.rank.unit });
        }
    }

    pub(crate) fn end(&self, unit: &Open, copy: usize, group: u64) {
        let from = (self.stream, copy as u16);
        self.home.send_of(unit.rank, Message::SentAll { from, unit: unit.rank.unit, group });
    }

    /// The home has returned room.
    pub(crate) fn freed(&self, bytes: u64) -> Result<(), Garbled> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let less = |held: usize| held.checked_sub(bytes);
        let was = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        was.map_err(|_| Garbled::Unexpected("more room than was taken"))?;
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

    /// The unit was done. A late copy may wait for room for output that is not needed.
    pub(crate) fn clear(&self, unit: UnitId) {
        self.state().turns.remove(&unit);
        self.ledger.repay(unit, u64::MAX);
        if self.keeps_groups {
            self.ledger.wake_all();
        }
    }

    /// The unit has ended: callers that wait for its room check again.
    pub(crate) fn forget(&self, unit: &Open) {
        self.clear(unit.rank.unit);
        self.ledger.wake_all();
    }
}
