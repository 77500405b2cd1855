//! The sizes of blocks where streams find them: who cuts and who receives them tells what it costs,
//! and what follows is thought out elsewhere (tune).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::lanes::State;
use crate::remote::Outlet;
use crate::remote::distant::Distant;
use crate::remote::link::Link;
use crate::remote::message::Message;
use crate::report::StreamReport;
use crate::stream::Stream;
use crate::tune::{self, Aim, Bounds, Cost, SizeDecision, Tuner};

/// Of so many blocks, one is watched while it is sent. It is no multiple of others.
const TIMED: usize = 13;

/// So many decisions are kept.
const KEPT: usize = 16;

/// The sizes of blocks that one end of a stream cuts.
#[derive(Debug)]
pub(crate) struct Sizes {
    bounds: Bounds,
    size: AtomicUsize,
    number: AtomicUsize,
}

impl Sizes {
    /// `room` is the most that the stream has for one.
    pub(crate) fn new(bounds: Bounds, room: usize) -> Self {
        let bounds = bounds.within(room);
        Self { bounds, size: AtomicUsize::new(tune::first(bounds)), number: AtomicUsize::new(0) }
    }

    /// Of the next block.
    pub(crate) fn next(&self) -> usize {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        tune::size_of(number, self.size.load(Ordering::Relaxed), self.bounds)
    }

    /// Whether the time is taken for which the block is sent that was cut last.
    pub(crate) fn is_timed(&self) -> bool {
        self.count() % TIMED == 0
    }

    /// How many there were.
    pub(crate) fn count(&self) -> usize {
        self.number.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, size: usize) {
        self.size.store(size, Ordering::Relaxed);
    }
}

/// One end of a stream that finds the size of its blocks: the home, or a process that sends to it.
#[derive(Debug)]
pub(crate) struct Sizing {
    pub(crate) sizes: Sizes,
    tuner: Mutex<Tuner>,
    decisions: Mutex<VecDeque<SizeDecision>>,
}

impl Sizing {
    /// As [`Tuner::new`].
    pub(crate) fn new(bounds: Bounds, room: usize, places: Vec<Option<u32>>, aim: Aim) -> Self {
        Self {
            sizes: Sizes::new(bounds, room),
            tuner: Mutex::new(Tuner::new(bounds, room, places, aim)),
            decisions: Mutex::default(),
        }
    }

    pub(crate) fn tuner(&self) -> MutexGuard<'_, Tuner> {
        self.tuner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Thinks the size over, if it is time: what was decided, if it is another one.
    pub(crate) fn think(
        &self,
        links: impl Iterator<Item = (u32, Option<Cost>)>,
    ) -> Option<SizeDecision> {
        let decision = self.tuner().think(links)?;
        self.sizes.set(decision.to);
        let mut kept = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(decision.clone());
        Some(decision)
    }

    /// The size now, and what was decided last.
    pub(crate) fn report(&self) -> SizeReport {
        let kept = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        SizeReport { size: self.sizes.get(), decisions: kept.iter().cloned().collect() }
    }
}

/// The size of blocks that a stream has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeReport {
    /// In bytes.
    pub size: usize,
    /// How it came to that: the last decisions, the oldest first.
    pub decisions: Vec<SizeDecision>,
}

impl Stream {
    /// A copy has processed so many blocks with so many bytes in that time.
    pub(crate) fn served(
        &self,
        state: &State,
        copy: usize,
        (blocks, bytes): (usize, usize),
        took: Duration,
    ) {
        let Some(sizing) = &self.sizing else { return };
        let mut tuner = sizing.tuner();
        tuner.served(copy, blocks, bytes, took);
        if !tuner.is_time() {
            return;
        }
        tuner.units(state.before.0, state.before.1);
        let together = tuner.together();
        drop(tuner);
        let links = state.distant.iter().flatten().map(Distant::link_cost);
        // Even where nobody sends: the next time to think comes later.
        let decision = sizing.think(links);
        if let Some(decision) = decision.filter(|_| self.sizing_here().is_some()) {
            if let Some(observer) = &self.observer {
                observer.sized(self.number(), &decision, Instant::now());
            }
        }
        if let Some(cost) = together {
            for (link, _) in &self.remote.producers {
                link.send(Message::Costs { stream: self.remote.number, cost });
            }
        }
    }

    /// A block was sent that was watched: it took so long, without the wait for room.
    pub(crate) fn sending_took(&self, took: Duration) {
        if let Some(sizing) = &self.sizing {
            sizing.tuner().sent(took);
        }
    }
}

impl Outlet {
    /// As [`Stream::sending_took`].
    pub(crate) fn sending_took(&self, took: Duration) {
        let Some(sizing) = &self.sizing else { return };
        let mut tuner = sizing.tuner();
        tuner.sent(took);
        tuner.counts(sizing.sizes.count() as u64);
        if !tuner.is_time() {
            return;
        }
        drop(tuner);
        let home: &Link = &self.home;
        if let Some(decision) = sizing.think(std::iter::once((home.rank, home.cost()))) {
            if let Some(observer) = &self.observer {
                observer.sized(self.stream.into(), &decision, Instant::now());
            }
        }
    }

    /// The size of its blocks, where it finds that; the home reports the rest.
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

    /// What the copies that receive take together, as the home says.
    pub(crate) fn costs(&self, cost: Cost) {
        if let Some(sizing) = &self.sizing {
            sizing.tuner().told(cost);
        }
    }
}
