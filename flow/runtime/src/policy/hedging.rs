//! Hedging: a block that a copy has had for unusually long also goes to a second copy.
//!
//! After J. Dean and L. Barroso, "The Tail at Scale", Communications of the ACM 56(2), 2013: the
//! second request is sent when the first has taken longer than the 95th percentile, so that few are
//! sent, and the first answer wins. Here it is sent only if a copy is idle and nothing else waits,
//! and within a budget, which does not apply to a block that is very late. Both copies send the
//! same output, since the filter is idempotent, and it is accepted only once (replays).
//!
//! If an order is kept, everything that comes after a late block waits for it, and would soon
//! occupy all the room: then no copy can begin anything more, this block included. So there the
//! block goes to a copy that can begin one before those that no copy has yet, if it has waited for
//! twice the usual time, or its copy is still working on a beaten block.
//!
//! This module has no clock and no lock: callers pass the time, so that tests can simulate it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::policy::priority::{Priority, UnitId};

/// Number of service times remembered for each copy.
const SAMPLES: usize = 32;

/// How many of them must be known before any can be unusual.
const LEAST_SAMPLES: usize = 8;

/// Never hedge earlier than this: waking a second copy and redoing the work costs time as well.
pub(crate) const LEAST: Duration = Duration::from_millis(1);

/// Price of a hedge. Each block dealt adds the percentage of the budget to the savings.
const COST: u32 = 100;

/// Most hedges that can be saved up: long work without any must not allow a storm of them.
const MOST_SAVED: u32 = 64;

/// A block that is late by this much goes to a second copy even if the budget is spent: the first
/// copy may be stuck forever.
const UNBUDGETED_HEDGE_DELAY: Duration = Duration::from_secs(1);

/// A block that was given to a second copy, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hedge {
    /// Its unit.
    pub unit: UnitId,
    /// Its number.
    pub sequence: u64,
    /// The copy that has it.
    pub from: usize,
    /// The copy that also gets it.
    pub to: usize,
    /// How long the first copy has had it.
    pub waited: Duration,
    /// The usual time there: 95 % of its blocks took no longer. At least a millisecond.
    pub usual: Duration,
    /// Blocks that this process has dealt to copies, here and elsewhere, each counted once.
    pub blocks: u64,
    /// Blocks of these that went to a second copy, including this one.
    pub hedges: u64,
}

/// A block that only one copy has, and since when that is unusual.
pub(crate) struct Alone {
    pub(crate) copy: usize,
    /// The process of the copy, if that is another one.
    pub(crate) process: Option<u32>,
    pub(crate) rank: Priority,
    pub(crate) sequence: u64,
    pub(crate) since: Instant,
    pub(crate) usual: Duration,
    pub(crate) due: Instant,
    /// True if the process does not even answer.
    pub(crate) is_silent: bool,
    /// True if the copy is still working on a block that is no longer awaited.
    pub(crate) is_stuck: bool,
}

impl Alone {
    /// When it is to be looked for: when it is late, and when it is so late that no budget counts.
    pub(crate) fn looks(&self) -> [Instant; 2] {
        [self.due, self.due + UNBUDGETED_HEDGE_DELAY]
    }
}

/// The late blocks to look for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// All: there is nothing else to do.
    Any,
    /// Those that hold up an order, if their unit is at least as urgent as this one, which has
    /// blocks that no copy has.
    Before(Option<Priority>),
}

/// How often blocks were hedged, and how often it helped.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) blocks: u64,
    pub(crate) hedges: u64,
    /// Times that the second copy was first.
    pub(crate) won: u64,
}

/// The budget of a stream, and how long its copies usually take.
#[derive(Debug)]
pub(crate) struct Hedging {
    percent: u32,
    saved: u32,
    samples: Vec<VecDeque<Duration>>,
    /// The usual time of each copy that has enough samples.
    usual: Vec<Option<Duration>>,
    pub(crate) counts: Counts,
}

impl Hedging {
    pub(crate) fn new(percent: u32, copies: usize) -> Self {
        Self {
            percent,
            saved: 0,
            samples: vec![VecDeque::new(); copies],
            usual: vec![None; copies],
            counts: Counts::default(),
        }
    }

    /// Notes that a copy was dealt a block that no other copy has.
    pub(crate) fn dealt(&mut self) {
        self.counts.blocks += 1;
        self.saved = (self.saved + self.percent).min(MOST_SAVED * COST);
    }

    /// Notes that the block has come back, and will be dealt again.
    pub(crate) fn undealt(&mut self) {
        self.counts.blocks = self.counts.blocks.saturating_sub(1);
        self.saved = self.saved.saturating_sub(self.percent);
    }

    /// Notes that the block was also given to another copy.
    pub(crate) fn hedged(&mut self, late: &Alone, to: usize, now: Instant) -> Hedge {
        // Blocks at a process that seems to be stopped are dealt again as after a loss. If it
        // continues, it returns those that it has not begun.
        if !late.is_silent {
            self.saved = self.saved.saturating_sub(COST);
        }
        self.counts.hedges += 1;
        let Counts { blocks, hedges, .. } = self.counts;
        Hedge {
            unit: late.rank.unit,
            sequence: late.sequence,
            from: late.copy,
            to,
            waited: now.duration_since(late.since),
            usual: late.usual,
            blocks,
            hedges,
        }
    }

    /// Notes how long a copy had a block.
    pub(crate) fn sample(&mut self, copy: usize, took: Duration) {
        keep(&mut self.samples[copy], took);
        self.usual[copy] = usual_of(self.samples[copy].iter());
    }

    /// How long a copy usually has a block; the value for all copies while little is known of this
    /// one.
    pub(crate) fn usual(&self, copy: usize) -> Option<Duration> {
        self.usual[copy].or_else(|| usual_of(self.samples.iter().flatten()))
    }

    /// The late block for this copy, in that process, that has been out for longest. Not one that a
    /// copy in the same other process has: the whole process may be late.
    pub(crate) fn late_for(
        &self,
        (to, process): (usize, Option<u32>),
        alone: impl Iterator<Item = Alone>,
        now: Instant,
        which: Which,
    ) -> Option<Alone> {
        let has_budget = self.saved >= COST;
        let may_cost =
            |one: &Alone| has_budget || one.is_silent || now >= one.due + UNBUDGETED_HEDGE_DELAY;
        let is_other =
            |one: &Alone| one.copy != to && (one.process.is_none() || one.process != process);
        let late = alone.filter(|one| is_other(one) && now >= one.due);
        let late = late.filter(may_cost);
        let late = late.filter(|one| match which {
            Which::Any => true,
            Which::Before(undealt) => {
                let is_later = undealt.is_none_or(|undealt| one.rank <= undealt);
                is_later && (now >= one.due + one.usual || one.is_stuck)
            }
        });
        late.min_by_key(|one| one.since)
    }
}

/// Adds a sample to the last ones.
pub(crate) fn keep(samples: &mut VecDeque<Duration>, one: Duration) {
    if samples.len() == SAMPLES {
        samples.pop_front();
    }
    samples.push_back(one);
}

/// The time within which 95 % of them finished; `None` if there are too few.
pub(crate) fn usual_of<'s>(samples: impl Iterator<Item = &'s Duration>) -> Option<Duration> {
    let mut sorted: Vec<Duration> = samples.copied().collect();
    if sorted.len() < LEAST_SAMPLES {
        return None;
    }
    sorted.sort_unstable();
    Some(sorted[(sorted.len() * 95).div_ceil(100) - 1].max(LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A block that a copy has had since then, where ten milliseconds are usual.
    fn alone(copy: usize, process: Option<u32>, since: Instant) -> Alone {
        let rank = Priority::new(None, UnitId(0));
        let (usual, due) = (10 * MS, since + 10 * MS);
        let (is_silent, is_stuck) = (false, false);
        Alone { copy, process, rank, sequence: 7, since, usual, due, is_silent, is_stuck }
    }

    #[test]
    fn a_late_block_is_hedged_within_the_budget_or_if_it_is_very_late() {
        let start = Instant::now();
        let mut hedging = Hedging::new(50, 3);
        let late = |hedging: &Hedging, after: u32| {
            let all = [alone(1, None, start + MS), alone(0, None, start)];
            let late = hedging.late_for((2, None), all.into_iter(), start + after * MS, Which::Any);
            late.map(|one| one.copy)
        };
        assert_eq!((late(&hedging, 1009), late(&hedging, 1010)), (None, Some(0)));
        hedging.dealt();
        assert_eq!(late(&hedging, 20), None);
        hedging.dealt();
        assert_eq!((late(&hedging, 9), late(&hedging, 10)), (None, Some(0)));
        let hedge = hedging.hedged(&alone(0, None, start), 2, start + 12 * MS);
        assert_eq!((hedge.blocks, hedge.hedges, hedge.waited), (2, 1, 12 * MS));
        assert_eq!(late(&hedging, 20), None);
    }

    #[test]
    fn a_copy_gets_no_block_of_its_own_process_and_those_of_an_order_later() {
        let start = Instant::now();
        let mut hedging = Hedging::new(100, 3);
        hedging.dealt();
        let late = |which, to, process, after: u32| {
            let all = [alone(0, None, start), alone(1, Some(4), start + MS)];
            let late = hedging.late_for((to, process), all.into_iter(), start + after * MS, which);
            late.map(|one| one.copy)
        };
        assert_eq!(late(Which::Any, 0, None, 15), Some(1));
        assert_eq!(late(Which::Any, 1, Some(4), 15), Some(0));
        assert_eq!(late(Which::Any, 2, Some(4), 15), Some(0));
        assert_eq!(late(Which::Any, 0, Some(4), 15), None);
        let urgent = Priority::new(Some(start), UnitId(1));
        let before = |undealt| [19, 20].map(|after| late(Which::Before(undealt), 2, None, after));
        assert_eq!(before(None), [None, Some(0)]);
        assert_eq!(before(Some(urgent)), [None, None]);
    }

    #[test]
    fn a_time_is_usual_if_nearly_all_take_no_longer() {
        let mut hedging = Hedging::new(100, 2);
        (1..=7).for_each(|_| hedging.sample(0, 2 * MS));
        assert_eq!(hedging.usual(0), None);
        hedging.sample(1, 9 * MS);
        assert_eq!([0, 1].map(|copy| hedging.usual(copy)), [Some(9 * MS); 2], "of all copies");
        hedging.sample(0, MS / 2);
        assert_eq!([0, 1].map(|copy| hedging.usual(copy)), [Some(2 * MS), Some(9 * MS)]);
        (0..100).for_each(|_| hedging.sample(0, MS / 2));
        assert_eq!(hedging.usual(0), Some(LEAST));
    }
}
