//! Compares sizes of blocks by the throughput that they achieve.
//!
//! The cost of a block is fitted while a pipeline runs (size_tuner), and the size that follows from
//! alpha, beta and c is the first guess. But times far below 100 us have errors as large as the
//! differences, and the paper's model does not include caches or threads that wake one another. So
//! sizes around the guess race against each other: in each round every remaining size gets a
//! stretch of bytes, and those that are clearly slower than the best drop out (successive
//! elimination: E. Even-Dar, S. Mannor, Y. Mansour, "Action elimination and stopping conditions for
//! the multi-armed bandit", JMLR 7, 2006). Of those that are as good as the best, the one nearest
//! to the guess wins: if sizes make no difference, the model is right about latency and equal
//! shares. From time to time the neighbours get another chance, and if the time for bytes changes
//! suddenly, all sizes do.
//!
//! This module has no clock and no lock: callers pass the time, so that tests can simulate it.

use std::ops::Range;
use std::time::Duration;

use crate::policy::size_bounds::SizeBounds;

/// A stretch has as many bytes as the stream may hold, within these bounds.
const STRETCH: Range<usize> = 1 << 20..16 << 20;

/// A stretch takes at least this long: shorter ones measure the scheduler rather than the size.
const LEAST_TIME: Duration = Duration::from_millis(4);

/// A unit of at least this many stretches is measured in its middle; shorter ones are measured as a
/// whole, including how they begin and end.
const LONG: usize = 4;

/// How many times smaller or larger than the guess sizes may be, as powers of two.
const REACH: Range<i32> = -4..8;

/// After each round, a size that takes this many times as long as the best is out.
const OUT: [f64; 6] = [1.5, 1.3, 1.2, 1.12, 1.08, 1.06];

/// Sizes within this factor of the best count as equally good.
const EQUAL: f64 = 1.02;

/// A size is kept until another one is better by this factor.
const HYSTERESIS: f64 = 1.04;

/// Neighbours get another chance after this many stretches; whenever nothing changes, after twice
/// as many, up to the end of this range.
const AGAIN: Range<u32> = 128..1024;

/// The time of a stretch has changed if it differs by more than this factor.
const OTHER: f64 = 1.6;

/// After this many such stretches in a row, all sizes get another chance.
const STRIKES: u32 = 6;

/// A size, and the seconds per byte measured with it.
#[derive(Clone, Debug)]
struct Runner {
    size: usize,
    times: Vec<f64>,
}

impl Runner {
    /// The median; of two, the smaller one: disturbances only add time.
    fn time(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or(f64::INFINITY)
    }
}

/// The outcome of a race.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RaceResult {
    pub(crate) size: usize,
    /// The bytes per second measured with each size that was tried.
    pub(crate) rates: Vec<(usize, u64)>,
}

/// The current phase.
#[derive(Debug)]
enum Phase {
    /// The model decides, until this many more stretches have passed.
    Guess { left: u32 },
    /// The runners that are left, and the one that runs now.
    Race { round: usize, at: usize, left: Vec<usize>, is_full: bool },
    /// The size is chosen; `time` is the mean of the last stretches.
    Kept { time: Option<f64>, left: u32, strikes: u32 },
}

/// The stretch being measured.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// When it began, and how many bytes have passed since.
    began: Duration,
    bytes: usize,
    /// Bytes to skip, in blocks that were cut earlier; then the stretch begins.
    skip: usize,
    /// True if it began with a unit of work.
    is_whole: bool,
}

/// Compares sizes of the blocks of one end of a stream while it runs.
#[derive(Debug)]
pub(crate) struct Race {
    bounds: SizeBounds,
    least: usize,
    phase: Phase,
    runners: Vec<Runner>,
    /// The size that is kept.
    size: usize,
    again: u32,
    stretch: Option<Stretch>,
}

impl Race {
    /// `held` is the limit of the stream: so many bytes may be on their way.
    pub(crate) fn new(bounds: SizeBounds, held: usize) -> Self {
        Self {
            bounds,
            least: held.clamp(STRETCH.start, STRETCH.end),
            phase: Phase::Guess { left: 2 },
            runners: Vec::new(),
            size: 0,
            again: AGAIN.start,
            stretch: None,
        }
    }

    /// Whether the model's size does not apply any more.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.phase, Phase::Guess { .. })
    }

    /// The size that is tried now, if it differs from the chosen or guessed one.
    pub(crate) fn trial(&self) -> Option<usize> {
        match &self.phase {
            Phase::Race { at, left, .. } => Some(self.runners[left[*at]].size),
            _ => None,
        }
    }

    /// Notes that `bytes` were cut into blocks until `now`, before the first block of a unit
    /// (`is_unit`) or in its middle. The model's size is `guess`; `size` is the current one.
    /// Returns the result of a race that has just ended with another size.
    pub(crate) fn passed(
        &mut self,
        bytes: usize,
        is_unit: bool,
        now: Duration,
        [size, guess]: [usize; 2],
    ) -> Option<RaceResult> {
        let time = self.measure(bytes, is_unit, now)?;
        match &mut self.phase {
            Phase::Guess { left } => {
                *left -= 1;
                if *left == 0 {
                    self.begin(size, guess, true);
                }
                None
            }
            Phase::Race { .. } => self.lap(time, guess),
            Phase::Kept { time: kept, left, strikes } => {
                let before = *kept.get_or_insert(time);
                let is_other = !(before / OTHER..=before * OTHER).contains(&time);
                *strikes = if is_other { *strikes + 1 } else { 0 };
                if !is_other {
                    *kept = Some(before + (time - before) / 8.0);
                }
                *left = left.saturating_sub(1);
                // If it changes all the time, that is no reason to race again and again.
                if *left == 0 {
                    self.begin(size, guess, false);
                } else if *strikes >= STRIKES && *left + AGAIN.start / 2 <= self.again {
                    self.again = AGAIN.start;
                    self.begin(size, guess, true);
                }
                None
            }
        }
    }

    /// The time per byte, at the end of a stretch.
    fn measure(&mut self, bytes: usize, is_unit: bool, now: Duration) -> Option<f64> {
        let whole = Stretch { began: now, bytes: 0, skip: 0, is_whole: true };
        let Some(stretch) = &mut self.stretch else {
            self.stretch = is_unit.then_some(whole);
            return None;
        };
        if stretch.skip > 0 {
            stretch.skip = stretch.skip.saturating_sub(bytes);
            stretch.began = now;
        } else {
            stretch.bytes += bytes;
        }
        let all = stretch.bytes;
        let took = now.saturating_sub(stretch.began);
        let is_enough = all >= self.least && took >= LEAST_TIME;
        let within = Stretch { skip: self.least, is_whole: false, ..whole };
        match (stretch.is_whole, is_unit) {
            (true, true) if is_enough => self.stretch = Some(whole),
            // The stretch continues with another unit.
            (true, true) => return None,
            // The unit is long: its beginning is not representative.
            (true, false) => {
                if all >= LONG * self.least && took >= LEAST_TIME {
                    self.stretch = Some(within);
                }
                return None;
            }
            (false, true) => {
                self.stretch = Some(whole);
                return None;
            }
            (false, false) if is_enough => self.stretch = Some(within),
            (false, false) => return None,
        }
        Some(took.as_secs_f64() / all as f64)
    }

    /// Starts a race of all sizes around the guess, or of the chosen size and its neighbours.
    fn begin(&mut self, size: usize, guess: usize, is_full: bool) {
        let around = if is_full { guess } else { size }.max(1);
        let reach = if is_full { REACH } else { -1..2 };
        let floor = around.ilog2() as i32;
        // Round to the nearer power of two.
        let power = if around - (1 << floor) < (1 << floor) / 2 { floor } else { floor + 1 };
        let sizes = reach.map(|step| 1_usize.checked_shl((power + step).max(0) as u32));
        let sizes = sizes.map(|size| self.bounds.nearest(size.unwrap_or(usize::MAX)));
        let mut sizes: Vec<usize> = sizes.collect();
        if !is_full && !sizes.contains(&size) {
            sizes[1] = self.bounds.nearest(size);
        }
        sizes.sort_unstable();
        sizes.dedup();
        self.size = size;
        self.runners = sizes.iter().map(|&size| Runner { size, times: Vec::new() }).collect();
        let left = (0..sizes.len()).collect();
        self.phase = Phase::Race { round: 0, at: 0, left, is_full };
    }

    /// Ends a stretch of the size that runs.
    fn lap(&mut self, time: f64, guess: usize) -> Option<RaceResult> {
        let Phase::Race { round, at, left, is_full } = &mut self.phase else { return None };
        self.runners[left[*at]].times.push(time);
        *at += 1;
        if *at < left.len() {
            return None;
        }
        *at = 0;
        let time = |runner: &usize| self.runners[*runner].time();
        let best = left.iter().map(time).fold(f64::INFINITY, f64::min);
        left.retain(|runner| time(runner) <= OUT[*round] * best);
        // Reverse the order, so that a drift of the speed favours no size.
        left.reverse();
        *round += 1;
        if left.len() > 1 && *round < OUT.len() {
            return None;
        }
        let distance = |size: usize| (size as f64 / guess.max(1) as f64).ln().abs();
        let near = |a: &&usize, b: &&usize| {
            distance(self.runners[**a].size).total_cmp(&distance(self.runners[**b].size))
        };
        let winner = left.iter().filter(|one| time(one) <= EQUAL * best).min_by(near)?;
        let mut size = self.runners[*winner].size;
        let own = self.runners.iter().find(|runner| runner.size == self.size);
        if own.is_some_and(|own| own.time() <= HYSTERESIS * time(winner)) && !*is_full {
            size = self.size;
        }
        self.again = match size == self.size {
            true => (2 * self.again).min(AGAIN.end),
            false => AGAIN.start,
        };
        let rate = |runner: &Runner| (runner.size, (1.0 / runner.time().max(1e-15)) as u64);
        let rates = self.runners.iter().map(rate).collect();
        let was = std::mem::replace(&mut self.size, size);
        self.phase = Phase::Kept { time: None, left: self.again, strikes: 0 };
        (size != was).then_some(RaceResult { size, rates })
    }
}

#[cfg(test)]
#[path = "size_race_tests.rs"]
mod tests;
