//! The sizes of blocks for streams that choose them: senders and receivers report the costs, and
//! another module draws the conclusions (size_tuner).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::encoding::few;
use crate::policy::cut::{Cut, OVERHEAD};
use crate::policy::fit::Cost;
use crate::policy::priority::UnitId;
use crate::policy::size_race::Race;
use crate::policy::size_tuner::{Aim, SizeDecision, Tuner};
use crate::policy::sizes::Sizes;

/// The clock is read after this many bytes.
const LOOK: usize = 128 << 10;

/// Number of decisions kept.
const KEPT: usize = 16;

/// One end of a stream that chooses the size of its blocks: the owner, or a process that sends to
/// it.
#[derive(Debug)]
pub(crate) struct Sizing {
    pub(crate) sizes: Sizes,
    tuner: Mutex<Tuner>,
    decisions: Mutex<VecDeque<SizeDecision>>,
    /// Set if only throughput counts.
    race: Option<Mutex<Watched>>,
    /// One more than the highest unit begun.
    unit: AtomicU64,
}

/// A race, and the origin of its times.
#[derive(Debug)]
struct Watched {
    race: Race,
    begun: Instant,
}

impl Sizing {
    /// `None` unless the stream is cut automatically; `room` is the most that it has for a block
    /// including its fixed overhead, and `limit` the most that it may hold. Otherwise as
    /// [`Tuner::new`].
    pub(crate) fn of(
        cut: Cut,
        [room, limit]: [usize; 2],
        processes: Vec<Option<u32>>,
        aim: Aim,
    ) -> Option<Self> {
        let Cut::Auto(bounds) = cut else { return None };
        let room = room.saturating_sub(OVERHEAD);
        let race =
            || Watched { race: Race::new(bounds.within(room), limit), begun: Instant::now() };
        Some(Self {
            sizes: Sizes::new(bounds, room),
            tuner: Mutex::new(Tuner::new(bounds.within(room).cached(), room, processes, aim)),
            decisions: Mutex::default(),
            race: (aim == Aim::Throughput).then(|| Mutex::new(race())),
            unit: AtomicU64::new(0),
        })
    }

    /// The size of the next block, which is for that unit, and the decision, if a new one was made.
    pub(crate) fn next(&self, unit: UnitId) -> (usize, Option<SizeDecision>) {
        let is_unit = self.unit.fetch_max(unit.0 + 1, Ordering::Relaxed) <= unit.0;
        let is_time = is_unit || self.sizes.bytes() >= LOOK;
        let decision = if is_time { self.look(is_unit) } else { None };
        (self.sizes.next(), decision)
    }

    /// Lets the race see how many bytes have passed.
    fn look(&self, is_unit: bool) -> Option<SizeDecision> {
        let mut watched = self.race.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        let Watched { race, begun } = &mut *watched;
        let bytes = self.sizes.take_bytes();
        let from = self.sizes.get();
        let guess = self.tuner().size();
        let result = race.passed(bytes, is_unit, begun.elapsed(), [from, guess]);
        let decision = result.map(|result| self.tuner().after_race(from, result));
        if let Some(decision) = &decision {
            self.sizes.set(decision.to);
            self.keep(decision);
        }
        if race.has_begun() {
            let size = race.trial().unwrap_or_else(|| self.sizes.get());
            self.sizes.fix(size);
        }
        decision
    }

    fn keep(&self, decision: &SizeDecision) {
        let mut kept = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(decision.clone());
    }

    pub(crate) fn tuner(&self) -> MutexGuard<'_, Tuner> {
        self.tuner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reconsiders the size. Returns a decision if it changes.
    pub(crate) fn think(
        &self,
        links: impl Iterator<Item = (u32, Option<Cost>)>,
    ) -> Option<SizeDecision> {
        let decision = self.tuner().think(links)?;
        // From the first race on, this only sets where the next one begins.
        if self.sizes.is_fixed() {
            return None;
        }
        self.sizes.set(decision.to);
        self.keep(&decision);
        Some(decision)
    }

    /// The size now, and the last decisions.
    pub(crate) fn report(&self) -> SizeReport {
        let kept = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        SizeReport { size: self.sizes.get(), decisions: kept.iter().cloned().collect() }
    }
}

/// The size of blocks that a stream has chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeReport {
    /// In bytes.
    pub size: usize,
    /// The last decisions that led to it, the oldest first.
    #[serde(deserialize_with = "few::<_, _, KEPT>")]
    pub decisions: Vec<SizeDecision>,
}
