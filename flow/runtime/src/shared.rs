//! State that the copies of a pipeline share in one process, and their inputs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::hand::Hand;
use crate::hedging::Finished;
use crate::lanes::Taken;
use crate::ledger::Ledger;
use crate::remote;
use crate::remote::node::Node;
use crate::report::Failure;
use crate::stream::Stream;
use crate::unit::{Open, Rank, UnitId, Units};
use crate::wakeup::Wakeup;

/// State that all copies of a running pipeline in this process share.
pub(crate) struct Shared {
    pub(crate) units: Units,
    /// Streams whose home is here.
    pub(crate) streams: Vec<Arc<Stream>>,
    /// The units that each copy of each source has not begun.
    pub(crate) feeds: Vec<Arc<Feed>>,
    pub(crate) is_stopped: AtomicBool,
    /// The other processes.
    pub(crate) node: OnceLock<Arc<Node>>,
    /// Set if a copy here cannot continue: the failure of all later units.
    pub(crate) broken: OnceLock<Failure>,
}

impl Shared {
    /// Ends the unit, if it is under way, in all processes.
    pub(crate) fn end_early(&self, unit: UnitId, failure: Failure) {
        if self.end_here(unit, failure.clone()) {
            if let Some(node) = self.node.get() {
                node.tell_of_end(unit, failure);
            }
        }
    }

    /// The same in this process. True if it was under way.
    pub(crate) fn end_here(&self, unit: UnitId, failure: Failure) -> bool {
        let Some(open) = self.units.find(unit) else { return false };
        let is_first = self.units.end_early(unit, failure);
        if is_first {
            self.streams.iter().for_each(|stream| stream.forget(&open));
            if let Some(node) = self.node.get() {
                node.forget(&open);
            }
            self.feeds.iter().for_each(|feed| feed.wake());
        }
        is_first
    }

    /// No unit can be done here any more: ends those that are under way, and those that
    /// [begin](Shared::has_begun).
    pub(crate) fn break_for(&self, failure: impl Fn(UnitId) -> Failure) {
        let _ = self.broken.set(failure(UnitId(0)));
        for unit in self.units.all() {
            self.end_early(unit, failure(unit));
        }
    }

    /// A unit has begun; ends it at once if none can be done.
    pub(crate) fn has_begun(&self, unit: UnitId) {
        if let Some(failure) = self.broken.get() {
            self.end_early(unit, failure.of(unit));
        }
    }

    /// A copy here is done with the unit.
    pub(crate) fn copy_is_done(&self, unit: UnitId) {
        match self.node.get() {
            Some(node) => node.copy_is_done(unit),
            None => {
                if self.units.copy_is_done(unit, 0) == Some(true) {
                    self.streams.iter().for_each(|stream| stream.clear(unit));
                }
            }
        }
    }

    /// The name of this host, if other processes run parts of the pipeline.
    pub(crate) fn host(&self) -> Option<Arc<str>> {
        self.node.get().map(|node| node.host())
    }
}

/// An input of a copy: a stream whose home is here, or in another process.
pub(crate) enum Input {
    Here(Arc<Stream>),
    Elsewhere(Arc<remote::Inlet>),
}

impl Input {
    /// Fills the hand of the copy, or announces the end of a unit.
    pub(crate) fn take(&self, copy: usize, own: &Arc<Wakeup>, hand: &mut Hand) -> Option<Taken> {
        match self {
            Self::Here(stream) => stream.take(copy, own, hand),
            Self::Elsewhere(inlet) => inlet.take(copy, own, hand),
        }
    }

    /// The number of the stream, and the ledger for its bytes here.
    pub(crate) fn account(&self) -> (usize, &'static Ledger) {
        match self {
            Self::Here(stream) => (stream.number(), stream.ledger),
            Self::Elsewhere(inlet) => (inlet.stream.into(), inlet.ledger),
        }
    }

    /// The copy has finished with the blocks it took: it processed `processed` of them in that
    /// time.
    pub(crate) fn done(
        &self,
        copy: usize,
        hand: &mut Hand,
        processed: usize,
        took: Duration,
    ) -> Finished {
        match self {
            Self::Here(stream) => stream.done(copy, hand, processed, took),
            Self::Elsewhere(inlet) => {
                inlet.done(copy, hand, processed, took);
                inlet.fared(copy)
            }
        }
    }

    /// Whether others have ended that unit in place of the copy, which does not know of it.
    pub(crate) fn is_ended_for(&self, copy: usize, unit: UnitId) -> bool {
        match self {
            Self::Here(stream) => stream.is_ended_for(copy, unit),
            Self::Elsewhere(inlet) => inlet.is_ended_for(copy, unit),
        }
    }

    /// The inlet whose home ends units for the copy, if the copy does not do that itself.
    pub(crate) fn ender(&self) -> Option<&remote::Inlet> {
        match self {
            Self::Elsewhere(inlet) if inlet.is_hedged => Some(inlet),
            _ => None,
        }
    }

    /// Whether a block that precedes that one waits for the copy.
    pub(crate) fn has_earlier(&self, copy: usize, unit: &Open, sequence: u64) -> bool {
        match self {
            Self::Here(stream) => stream.has_earlier(copy, unit, sequence),
            Self::Elsewhere(inlet) => inlet.has_earlier(copy, unit, sequence),
        }
    }
}

/// Units for one copy of a source.
#[derive(Default)]
pub(crate) struct Feed {
    fed: Mutex<Fed>,
    /// True if it has new units; lets a copy check without the lock.
    pub(crate) is_fed: AtomicBool,
}

#[derive(Default)]
struct Fed {
    units: BTreeMap<Rank, Arc<Open>>,
    /// The copy's wake-up, if it has found none.
    idle: Option<Arc<Wakeup>>,
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, Fed> {
        self.fed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, unit: Arc<Open>) {
        self.lock().units.insert(unit.rank, unit);
        self.is_fed.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if let Some(wakeup) = self.lock().idle.take() {
            wakeup.ring();
        }
    }

    /// Takes the new units; if there are none, the caller is woken when there are.
    pub(crate) fn take(&self, own: &Arc<Wakeup>) -> Vec<Arc<Open>> {
        self.is_fed.store(false, Ordering::Relaxed);
        let mut fed = self.lock();
        if fed.units.is_empty() {
            fed.idle = Some(Arc::clone(own));
        }
        std::mem::take(&mut fed.units).into_values().collect()
    }
}
