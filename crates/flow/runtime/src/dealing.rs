//! Which copy of a filter gets the next block.
//!
//! `round-robin` and `demand` are those of DataCutter (M. Beynon et al., "Distributed processing of
//! very large datasets with DataCutter", Parallel Computing 27(11), 2001), which V. Melnyk et al.
//! (2024) measure: in turn, or to the copy with the fewest blocks that it has not begun. Both give a
//! block away at once. What a copy has in process they do not see, so that a slow copy whose queue
//! is empty looks idle.
//!
//! `adaptive` keeps blocks until a copy can begin one (late binding), and knows how long copies take.
//! While more is to come, every idle copy gets one: none is ever banished, however slow it was. When
//! the end of the work is known, a copy gets a block only if the others would not be done sooner
//! with all that is left; and when they should have been done with it and are not, it gets one, too.
//!
//! Here is no clock and no lock: times are given, so that tests can play them.

use std::time::Duration;

use crate::deal::CopyState;

/// How blocks are dealt to the copies of a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// In turn.
    RoundRobin,
    /// To the copy with the fewest blocks that it has not begun.
    Demand,
    /// To a copy that can begin it now, unless the others will be done sooner without that one.
    #[default]
    Adaptive,
}

/// So many services of a copy are remembered. The middle one counts: a single pause, however long,
/// says nothing about a copy.
const SAMPLES: usize = 5;

/// What a copy takes at once is to be done in that time. A block that takes as long goes alone.
pub(crate) const BATCH: Duration = Duration::from_micros(30);

/// The most that a copy takes at once.
pub(crate) const BATCH_BLOCKS: usize = 64;

/// What is dealt, and to whom, of one stream.
#[derive(Debug)]
pub(crate) struct Dealer {
    policy: Policy,
    next: usize,
    copies: Vec<Copy>,
}

#[derive(Clone, Debug, Default)]
struct Copy {
    /// Blocks that it was dealt and has not begun.
    unacknowledged: usize,
    /// Blocks that it has begun and is not done with.
    in_process: usize,
    service: Service,
    /// It gets no more.
    is_lost: bool,
    /// It has no room for a block, and may have none before others are done with what is left.
    is_full: bool,
}

impl Copy {
    /// Blocks that it has and is not done with.
    fn outstanding(&self) -> u32 {
        u32::try_from(self.unacknowledged + self.in_process).unwrap_or(u32::MAX - 1)
    }
}

/// How long a copy takes for one block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Service {
    samples: [Duration; SAMPLES],
    count: usize,
    /// `None`: it has not been done with any.
    typical: Option<Duration>,
}

impl Service {
    pub(crate) fn add(&mut self, took: Duration) {
        self.samples[self.count % SAMPLES] = took;
        self.count += 1;
        let mut known = self.samples;
        let known = &mut known[..self.count.min(SAMPLES)];
        known.sort_unstable();
        // Of two, the smaller one: the first often pays for what is not there yet.
        self.typical = Some(known[(known.len() - 1) / 2]);
    }

    /// How many blocks the copy will be done with in [`BATCH`]; one, if nobody knows.
    pub(crate) fn batch(&self) -> usize {
        let Some(typical) = self.typical else { return 1 };
        let short = BATCH.as_nanos() / typical.as_nanos().max(1);
        usize::try_from(short).unwrap_or(BATCH_BLOCKS).clamp(1, BATCH_BLOCKS)
    }
}

/// What is left to be dealt.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backlog {
    pub(crate) blocks: usize,
    /// Nothing more will come.
    pub(crate) is_last: bool,
}

impl Dealer {
    pub(crate) fn new(policy: Policy, copies: usize) -> Self {
        Self { policy, next: 0, copies: vec![Copy::default(); copies] }
    }

    /// The copy that gets a block at once; `None`: one that asks for it ([`Dealer::may_take`]).
    pub(crate) fn deal(&mut self) -> Option<usize> {
        let order = (0..self.copies.len()).map(|at| (self.next + at) % self.copies.len());
        let mut order = order.filter(|copy| !self.copies[*copy].is_lost);
        let copy = match self.policy {
            Policy::RoundRobin => order.next()?,
            // Of equals, the next in turn.
            Policy::Demand => order.min_by_key(|copy| self.copies[*copy].unacknowledged)?,
            Policy::Adaptive => return None,
        };
        self.next = (copy + 1) % self.copies.len();
        self.copies[copy].unacknowledged += 1;
        Some(copy)
    }

    /// Whether a copy that has nothing to do is to take one of the blocks that nobody was dealt.
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
            // One whose speed nobody knows may be as slow as any.
            let is_other = at != copy && !other.is_lost && !other.is_full;
            if let Some(typical) = other.service.typical.filter(|_| is_other) {
                let typical = typical.as_secs_f64().max(1e-9);
                speed += 1.0 / typical;
                left += f64::from(other.outstanding());
                soonest = soonest.min(f64::from(other.outstanding() + 1) * typical);
            }
        }
        // The fastest copy always takes one: no other is done sooner with a whole block.
        speed == 0.0 || own.as_secs_f64() <= soonest.max(left / speed)
    }

    /// How many of these blocks the copy is to take at once, if it may take one: as many as it will
    /// be done with in [`BATCH`], and no more than leaves as many for the others. At the end, a
    /// small part of what is left.
    pub(crate) fn batch(&self, copy: usize, backlog: Backlog) -> usize {
        let short = self.copies[copy].service.batch();
        let parts = match (self.copies.len(), backlog.is_last) {
            (1, _) => 1,
            (copies, false) => copies,
            (copies, true) => 4 * copies,
        };
        short.min(backlog.blocks / parts).max(1)
    }

    /// What dealing goes by, of a copy in the same process.
    pub(crate) fn copy_state(&self, copy: usize) -> CopyState {
        let copy = &self.copies[copy];
        CopyState {
            outstanding: copy.unacknowledged + copy.in_process,
            service: copy.service.typical,
            way: None,
            is_lost: copy.is_lost,
        }
    }

    /// After so long, which is twice what it would take itself, a copy is right to think that others
    /// are not as fast as they were, if a block is still there that it has left to them. `None`: it
    /// leaves them none.
    pub(crate) fn leaves_for(&self, copy: usize) -> Option<Duration> {
        let copy = &self.copies[copy];
        let typical = copy.service.typical.filter(|_| !copy.is_lost)?;
        Some(typical.saturating_mul(copy.outstanding().saturating_add(1)).saturating_mul(2))
    }

    /// How long a copy takes for one block, as far as anybody knows.
    pub(crate) fn typical(&self, copy: usize) -> Option<Duration> {
        self.copies[copy].service.typical
    }

    /// When a copy would be done with another block, which is so long on its way: that of one whose
    /// speed nobody knows is tried first.
    pub(crate) fn until_done(&self, copy: usize, way: Duration) -> Duration {
        let copy = &self.copies[copy];
        let service = copy.service.typical.unwrap_or_default();
        service * (1 + copy.outstanding()) + way
    }

    /// A copy is gone, with all that it had.
    pub(crate) fn lose(&mut self, copy: usize) {
        self.copies[copy] = Copy { is_lost: true, ..Copy::default() };
    }

    /// Whether a copy has room for a block. True: it has none any more.
    pub(crate) fn set_full(&mut self, copy: usize, is_full: bool) -> bool {
        let was = std::mem::replace(&mut self.copies[copy].is_full, is_full);
        is_full && !was
    }

    /// A copy that asked for blocks has got them.
    pub(crate) fn taken(&mut self, copy: usize, blocks: usize) {
        self.copies[copy].unacknowledged += blocks;
    }

    /// A copy begins with blocks.
    pub(crate) fn began(&mut self, copy: usize, blocks: usize) {
        let copy = &mut self.copies[copy];
        copy.unacknowledged -= blocks;
        copy.in_process += blocks;
    }

    /// A copy is through with blocks that it began with: with `processed` of them in that time, and
    /// the others it has left.
    pub(crate) fn done(&mut self, copy: usize, blocks: usize, processed: usize, took: Duration) {
        let copy = &mut self.copies[copy];
        copy.in_process -= blocks;
        if let Some(each) =
            u32::try_from(processed).ok().and_then(|blocks| took.checked_div(blocks))
        {
            copy.service.add(each);
        }
    }

    /// A block that was dealt to a copy is dropped.
    pub(crate) fn dropped(&mut self, copy: usize) {
        self.copies[copy].unacknowledged -= 1;
    }

    /// The order in which copies with nothing to do are woken for a block: who is known to be fast
    /// first, and before them who is not known.
    pub(crate) fn by_speed(&self, copies: &mut [usize]) {
        copies.sort_by_key(|copy| self.copies[*copy].service.typical);
    }
}

#[cfg(test)]
#[path = "dealing_tests.rs"]
mod tests;
