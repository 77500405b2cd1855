//! The sizes of blocks where streams find them: who cuts and who receives them tells what it costs,
//! and what follows is thought out elsewhere (tune).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::cut::{Cut, OVERHEAD};
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
    /// Where a stream is cut so; `room` is the most that it has for a block, with what that costs
    /// besides its bytes. Otherwise as [`Tuner::new`].
    pub(crate) fn of(cut: Cut, room: usize, places: Vec<Option<u32>>, aim: Aim) -> Option<Self> {
        let Cut::Auto(bounds) = cut else { return None };
        let room = room.saturating_sub(OVERHEAD);
        Some(Self {
            sizes: Sizes::new(bounds, room),
            tuner: Mutex::new(Tuner::new(bounds, room, places, aim)),
            decisions: Mutex::default(),
        })
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
