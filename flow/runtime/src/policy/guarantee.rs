//! The guarantee of a pipeline for each unit of work, and whether it is kept.
//!
//! V. Melnyk et al. (2024) ask for one of two: a number of updates per second while partial updates
//! are as fast as possible, or a latency of partial updates while there are as many updates as
//! possible. The size of blocks decides between the two (size_tuner).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A promise for the units of work of a pipeline. Streams that choose the size of their blocks
/// ([`Cut::Auto`](crate::Cut::Auto)) do so in a way that can keep it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Guarantee {
    /// Each unit is done within that time after it was submitted. That is its deadline, if it has
    /// none of its own. Blocks are so small that an urgent one never waits long for another.
    Latency(Duration),
    /// This many units are done per second, while any are under way. Blocks are as small as that
    /// allows, to keep latency low.
    Rate(f64),
}

/// How well a guarantee was kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuaranteeReport {
    /// The guarantee.
    pub guarantee: Guarantee,
    /// Units that were done, or ended because they were late.
    pub units: u64,
    /// Units of these that kept the guarantee.
    pub kept: u64,
    /// For a latency: the longest time that a unit took. For a rate: the longest time until the
    /// next unit was done.
    pub worst: Duration,
    /// The mean of that time over the last units.
    pub recent: Duration,
}

impl GuaranteeReport {
    /// The longest time that keeps it.
    #[must_use]
    pub fn allowed(&self) -> Duration {
        allowed(self.guarantee)
    }

    /// Whether it holds now, judged by the last units.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.recent <= self.allowed()
    }
}

fn allowed(guarantee: Guarantee) -> Duration {
    match guarantee {
        Guarantee::Latency(time) => time,
        Guarantee::Rate(rate) => Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::MAX),
    }
}

impl Guarantee {
    /// Whether the value makes sense.
    pub(crate) fn is_sound(self) -> bool {
        match self {
            Self::Latency(time) => !time.is_zero(),
            Self::Rate(rate) => rate.is_finite() && rate > 0.0,
        }
    }
}

/// Number of recent units that the current state is judged by.
const RECENT: usize = 8;

/// Counts the units that keep the guarantee. Callers pass the times.
#[derive(Debug)]
pub(crate) struct Keeper {
    guarantee: Guarantee,
    under_way: usize,
    /// When the last unit was done, or the first one under way began.
    since: Option<Instant>,
    units: u64,
    kept: u64,
    worst: Duration,
    recent: VecDeque<Duration>,
}

impl Keeper {
    pub(crate) fn new(guarantee: Guarantee) -> Self {
        Self {
            guarantee,
            under_way: 0,
            since: None,
            units: 0,
            kept: 0,
            worst: Duration::ZERO,
            recent: VecDeque::new(),
        }
    }

    /// The deadline for a unit without one of its own.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        match self.guarantee {
            Guarantee::Latency(time) => now.checked_add(time),
            Guarantee::Rate(_) => None,
        }
    }

    pub(crate) fn begins(&mut self, now: Instant) {
        if self.under_way == 0 {
            self.since = Some(now);
        }
        self.under_way += 1;
    }

    /// Notes that a unit has ended after this time; `counts` if it was done, or ended because it
    /// was late.
    pub(crate) fn ends(&mut self, took: Duration, now: Instant, counts: bool) {
        self.under_way = self.under_way.saturating_sub(1);
        if !counts {
            return;
        }
        let since = self.since.replace(now).unwrap_or(now);
        let time = match self.guarantee {
            Guarantee::Latency(_) => took,
            Guarantee::Rate(_) => now.saturating_duration_since(since),
        };
        self.units += 1;
        self.kept += u64::from(time <= allowed(self.guarantee));
        self.worst = self.worst.max(time);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(time);
    }

    /// `None` if no unit has ended yet.
    pub(crate) fn report(&self) -> Option<GuaranteeReport> {
        let count = u32::try_from(self.recent.len()).ok().filter(|count| *count > 0)?;
        Some(GuaranteeReport {
            guarantee: self.guarantee,
            units: self.units,
            kept: self.kept,
            worst: self.worst,
            recent: self.recent.iter().sum::<Duration>() / count,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, milliseconds: u64) -> Instant {
        start + Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_latency_is_that_of_each_unit() {
        let mut keeper = Keeper::new(Guarantee::Latency(Duration::from_millis(100)));
        let start = Instant::now();
        assert_eq!(keeper.deadline(start), Some(after(start, 100)));
        assert_eq!(keeper.report(), None);
        for (took, counts) in [(50, true), (500, false), (100, true), (101, true)] {
            keeper.begins(start);
            keeper.ends(Duration::from_millis(took), after(start, took), counts);
        }
        let report = keeper.report().unwrap();
        assert_eq!((report.units, report.kept), (3, 2));
        assert_eq!(report.worst, Duration::from_millis(101));
        assert!(report.holds() && report.recent > Duration::from_millis(83));
    }

    #[test]
    fn a_rate_counts_only_the_time_with_work() {
        let mut keeper = Keeper::new(Guarantee::Rate(10.0));
        let start = Instant::now();
        assert_eq!(keeper.deadline(start), None);
        // Two at once, then nothing for ten seconds, then a slow one.
        keeper.begins(start);
        keeper.begins(start);
        keeper.ends(Duration::from_millis(80), after(start, 80), true);
        keeper.ends(Duration::from_millis(160), after(start, 160), true);
        keeper.begins(after(start, 10_000));
        keeper.ends(Duration::from_millis(240), after(start, 10_240), true);
        let report = keeper.report().unwrap();
        assert_eq!((report.units, report.kept), (3, 2));
        assert_eq!(report.allowed(), Duration::from_millis(100));
        assert_eq!(report.worst, Duration::from_millis(240));
        assert!(!report.holds());
    }

    #[test]
    fn what_cannot_be_meant_is_not_sound() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(!Guarantee::Rate(rate).is_sound());
        }
        assert!(!Guarantee::Latency(Duration::ZERO).is_sound());
        assert!(Guarantee::Rate(3.25).is_sound());
    }
}
