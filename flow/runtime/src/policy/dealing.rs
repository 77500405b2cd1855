//! Decides which copy of a filter gets the next block.
//!
//! `round-robin` and `demand` are those of DataCutter (M. Beynon et al., "Distributed processing of
//! very large datasets with DataCutter", Parallel Computing 27(11), 2001), which V. Melnyk et al.
//! (2024) measure: in turn, or to the copy with the fewest blocks that it has not begun. Both deal
//! a block at once. They do not see what a copy is processing, so a slow copy with an empty queue
//! looks idle.
//!
//! `adaptive` keeps blocks until a copy can begin one (late binding), and knows how long copies
//! take. While more blocks are to come, every idle copy gets one: no copy is excluded, however slow
//! it was. When the end of the work is known, a copy gets a block only if the others would not
//! finish everything that is left sooner; if they should have finished and have not, it also gets
//! one.
//!
//! This module has no clock and no lock: callers pass the time, so that tests can simulate it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::policy::copy_state::CopyState;

/// How blocks are dealt to the copies of a filter. Pipelines take their names from [`Self::ALL`];
/// streams ask what depends on the policy by the methods here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DealingPolicy {
    /// In turn.
    RoundRobin,
    /// To the copy with the fewest blocks that it has not begun.
    Demand,
    /// To a copy that can begin it now, unless the others would finish sooner without that copy.
    #[default]
    Adaptive,
}

impl DealingPolicy {
    /// All of them, the default first.
    pub const ALL: [Self; 3] = [Self::Adaptive, Self::Demand, Self::RoundRobin];

    /// The name in pipeline files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Demand => "demand",
            Self::Adaptive => "adaptive",
        }
    }

    /// Whether blocks stay with the stream until a copy can begin one. Otherwise each is dealt at
    /// once, and waits for its copy.
    pub(crate) const fn binds_late(self) -> bool {
        match self {
            Self::Adaptive => true,
            Self::RoundRobin | Self::Demand => false,
        }
    }

    /// Whether dealing depends on which blocks a copy has begun, so that copies elsewhere have to
    /// report it.
    pub(crate) const fn counts_begun(self) -> bool {
        match self {
            Self::Demand => true,
            Self::RoundRobin | Self::Adaptive => false,
        }
    }
}

/// Number of service times remembered for each copy. Their median counts: a single pause, however
/// long, is no evidence about a copy.
const SAMPLES: usize = 5;

/// How long the blocks that a copy takes at once may last. A block that takes this long goes alone.
pub(crate) const BATCH: Duration = Duration::from_micros(30);

/// The most blocks that a copy takes at once.
pub(crate) const BATCH_BLOCKS: usize = 64;

/// Deals the blocks of one stream to its copies.
#[derive(Debug)]
pub(crate) struct Dealer {
    policy: DealingPolicy,
    next: usize,
    copies: Vec<CopyLoad>,
}

#[derive(Clone, Debug, Default)]
struct CopyLoad {
    /// Blocks that it was dealt and has not begun.
    unacknowledged: usize,
    /// Blocks that it has begun and not finished.
    in_process: usize,
    service: Service,
    /// True if it gets no more blocks.
    is_lost: bool,
    /// True if it has no room for a block, and may have none until the others have finished the
    /// rest.
    is_full: bool,
}

impl CopyLoad {
    /// Blocks that it has not finished.
    fn outstanding(&self) -> u32 {
        u32::try_from(self.unacknowledged + self.in_process).unwrap_or(u32::MAX - 1)
    }
}

/// How long a copy takes for one block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Service {
    samples: [Duration; SAMPLES],
    count: usize,
    /// `None` if it has not finished any.
    typical: Option<Duration>,
}

impl Service {
    pub(crate) fn add(&mut self, took: Duration) {
        self.samples[self.count % SAMPLES] = took;
        self.count += 1;
        let mut sorted = self.samples;
        let sorted = &mut sorted[..self.count.min(SAMPLES)];
        sorted.sort_unstable();
        // Of two, the smaller one: the first often includes start-up costs.
        self.typical = Some(sorted[(sorted.len() - 1) / 2]);
    }

    /// How many blocks the copy can finish in [`BATCH`]; one if its speed is not known.
    pub(crate) fn batch(&self) -> usize {
        let Some(typical) = self.typical else { return 1 };
        let short = BATCH.as_nanos() / typical.as_nanos().max(1);
        usize::try_from(short).unwrap_or(BATCH_BLOCKS).clamp(1, BATCH_BLOCKS)
    }
}

/// The blocks left to deal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backlog {
    pub(crate) blocks: usize,
    /// True if no more will come.
    pub(crate) is_last: bool,
}

impl Dealer {
    pub(crate) fn new(policy: DealingPolicy, copies: usize) -> Self {
        Self { policy, next: 0, copies: vec![CopyLoad::default(); copies] }
    }

    /// The copy that gets a block at once; `None` if copies ask for blocks ([`Dealer::may_take`]).
    pub(crate) fn deal(&mut self) -> Option<usize> {
        let order = (0..self.copies.len()).map(|at| (self.next + at) % self.copies.len());
        let mut order = order.filter(|copy| !self.copies[*copy].is_lost);
        let copy = match self.policy {
            DealingPolicy::RoundRobin => order.next()?,
            // Among equals, the next in turn.
            DealingPolicy::Demand => order.min_by_key(|copy| self.copies[*copy].unacknowledged)?,
            DealingPolicy::Adaptive => return None,
        };
        self.next = (copy + 1) % self.copies.len();
        self.copies[copy].unacknowledged += 1;
        Some(copy)
    }

    /// Whether an idle copy should take one of the blocks that no copy was dealt.
    pub(crate) fn may_take(&self, copy: usize, backlog: Backlog) -> bool {
        if backlog.blocks == 0 || self.copies[copy].is_lost {
            return false;
        }
        let Some(own) = self.copies[copy].service.typical.filter(|_| backlog.is_last) else {
            return true;
        };
        let own = own * (1 + self.copies[copy].outstanding());
        let (mut speed, mut left) = (0.0, backlog.blocks as f64);
        let mut soonest = f64::INFINITY;
        for (at, other) in self.copies.iter().enumerate() {
            // A copy of unknown speed may be as slow as any.
            let is_other = at != copy && !other.is_lost && !other.is_full;
            if let Some(typical) = other.service.typical.filter(|_| is_other) {
                let typical = typical.as_secs_f64().max(1e-9);
                speed += 1.0 / typical;
                left += f64::from(other.outstanding());
                soonest = soonest.min(f64::from(other.outstanding() + 1) * typical);
            }
        }
        // The fastest copy always takes one: no other finishes a whole block sooner.
        speed == 0.0 || own.as_secs_f64() <= soonest.max(left / speed)
    }

    /// How many of these blocks the copy should take at once, if it may take one: the number that
    /// it can finish in [`BATCH`], while leaving as many for each of the others. At the end, a
    /// small part of the rest.
    pub(crate) fn batch(&self, copy: usize, backlog: Backlog) -> usize {
        let short = self.copies[copy].service.batch();
        let parts = match (self.copies.len(), backlog.is_last) {
            (1, _) => 1,
            (copies, false) => copies,
            (copies, true) => 4 * copies,
        };
        short.min(backlog.blocks / parts).max(1)
    }

    /// The state that dealing uses, for a copy in the same process.
    pub(crate) fn copy_state(&self, copy: usize) -> CopyState {
        let copy = &self.copies[copy];
        CopyState {
            outstanding: copy.unacknowledged + copy.in_process,
            service: copy.service.typical,
            round_trip: None,
            is_lost: copy.is_lost,
        }
    }

    /// How long a copy leaves a block to others: twice its own time for the block. If the block is
    /// still there after that, the others have become slower than expected. `None` if it leaves
    /// them none.
    pub(crate) fn leaves_for(&self, copy: usize) -> Option<Duration> {
        let copy = &self.copies[copy];
        let typical = copy.service.typical.filter(|_| !copy.is_lost)?;
        Some(typical.saturating_mul(copy.outstanding().saturating_add(1)).saturating_mul(2))
    }

    /// How long a copy takes for one block, if known.
    pub(crate) fn typical(&self, copy: usize) -> Option<Duration> {
        self.copies[copy].service.typical
    }

    /// When a copy would finish another block that takes this long to reach it. A copy of unknown
    /// speed is tried first.
    pub(crate) fn until_done(&self, copy: usize, round_trip: Duration) -> Duration {
        let copy = &self.copies[copy];
        let service = copy.service.typical.unwrap_or_default();
        service * (1 + copy.outstanding()) + round_trip
    }

    /// Removes a copy, with all that it had.
    pub(crate) fn lose(&mut self, copy: usize) {
        self.copies[copy] = CopyLoad { is_lost: true, ..CopyLoad::default() };
    }

    /// Sets whether a copy has no room for a block. Returns true if it had some before.
    pub(crate) fn set_full(&mut self, copy: usize, is_full: bool) -> bool {
        let was = std::mem::replace(&mut self.copies[copy].is_full, is_full);
        is_full && !was
    }

    /// Notes that a copy got the blocks it asked for.
    pub(crate) fn assigned(&mut self, copy: usize, blocks: usize) {
        self.copies[copy].unacknowledged += blocks;
    }

    /// Notes that a copy begins blocks.
    pub(crate) fn began(&mut self, copy: usize, blocks: usize) {
        let copy = &mut self.copies[copy];
        copy.unacknowledged -= blocks;
        copy.in_process += blocks;
    }

    /// Notes that a copy has finished with blocks it began: it processed `processed` of them in
    /// that time, and left the others.
    pub(crate) fn done(&mut self, copy: usize, blocks: usize, processed: usize, took: Duration) {
        let copy = &mut self.copies[copy];
        copy.in_process -= blocks;
        if let Some(each) =
            u32::try_from(processed).ok().and_then(|blocks| took.checked_div(blocks))
        {
            copy.service.add(each);
        }
    }

    /// Notes that a block dealt to a copy was dropped.
    pub(crate) fn dropped(&mut self, copy: usize) {
        self.copies[copy].unacknowledged -= 1;
    }

    /// Sorts idle copies in the order in which to wake them for a block: first those of unknown
    /// speed, then the fastest.
    pub(crate) fn by_speed(&self, copies: &mut [usize]) {
        copies.sort_by_key(|copy| self.copies[*copy].service.typical);
    }
}

#[cfg(test)]
#[path = "dealing_tests.rs"]
mod tests;
