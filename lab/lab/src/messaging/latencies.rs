//! Latencies, and how to measure them repeatedly.

use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use hdrhistogram::Histogram;

/// A histogram of times in nanoseconds, at three significant digits.
#[derive(Debug)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// An empty one.
    ///
    /// # Errors
    ///
    /// If there is no memory.
    pub fn new() -> Result<Self> {
        Ok(Self(Histogram::new(3)?))
    }

    /// Adds one.
    pub fn add(&mut self, time: Duration) {
        // The histogram grows, so it could refuse only a time that does not fit in 64 bits.
        let _ = self.0.record(time.as_nanos() as u64);
    }

    /// Adds all of another.
    ///
    /// # Errors
    ///
    /// If there is no memory.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        Ok(self.0.add(&other.0)?)
    }

    /// Quantile `which` (0 to 1), in nanoseconds; `None` if it is empty.
    #[must_use]
    pub fn quantile(&self, which: f64) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(which))
    }

    /// Number of times added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }
}

/// One of the turns of [`repeat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iteration {
    /// Counts from 0, the first one of the warm-up.
    pub number: u64,
    /// Whether it does not count.
    pub warm_up: bool,
}

impl Iteration {
    /// One of this many parts of it, each with a number of its own.
    #[must_use]
    pub fn part(self, part: usize, parts: usize) -> Self {
        Self { number: self.number * parts as u64 + part as u64, ..self }
    }
}

/// Minimum number of turns of the warm-up, and of the measurement. On a busy machine a short time
/// has passed after a few, and the ends of a connection have hardly found each other.
const FEWEST_TURNS: u64 = 100;

/// Runs `turn` again and again for `time`, after a warm-up of half of it, in which the ends of
/// connections find each other; both take longer if they would have fewer than a hundred turns.
/// Each turn returns how long it took. Returns these times, and the number of turns per second,
/// including their work outside of these times.
///
/// # Errors
///
/// Those of `turn`.
pub fn repeat(
    time: Duration,
    mut turn: impl FnMut(Iteration) -> Result<Duration>,
) -> Result<(Latencies, f64)> {
    let (began, mut warm_up) = (Instant::now(), 0);
    while warm_up < FEWEST_TURNS || began.elapsed() < time / 2 {
        turn(Iteration { number: warm_up, warm_up: true })?;
        warm_up += 1;
    }
    let (began, mut latencies) = (Instant::now(), Latencies::new()?);
    loop {
        latencies.add(turn(Iteration { number: warm_up + latencies.count(), warm_up: false })?);
        let elapsed = began.elapsed();
        if latencies.count() >= FEWEST_TURNS && elapsed >= time {
            let rate = latencies.count() as f64 / elapsed.as_secs_f64();
            return Ok((latencies, rate));
        }
    }
}

/// Joins simultaneous measurements of several clients: all latencies, and the sum of the rates.
///
/// # Errors
///
/// The error of the first client that failed.
pub fn join(
    clients: Vec<ScopedJoinHandle<'_, Result<(Latencies, f64)>>>,
) -> Result<(Latencies, f64)> {
    let (mut all, mut sum) = (Latencies::new()?, 0.0);
    for client in clients {
        let (latencies, rate) = client.join().map_err(|_| anyhow!("a client panicked"))??;
        all.merge(&latencies)?;
        sum += rate;
    }
    Ok((all, sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_all_that_was_added() {
        let (mut some, mut others) = (Latencies::new().unwrap(), Latencies::new().unwrap());
        assert_eq!(some.quantile(0.5), None);
        some.0.record_n(1000, 3).unwrap();
        others.0.record(9_000_000).unwrap();
        some.merge(&others).unwrap();
        assert_eq!((some.count(), some.quantile(0.5)), (4, Some(1000)));
        assert!(some.quantile(1.0).unwrap() >= 9_000_000);
    }

    #[test]
    fn clients_add_up() {
        let client = |time, rate| {
            let mut latencies = Latencies::new()?;
            latencies.add(Duration::from_nanos(time));
            Ok((latencies, rate))
        };
        let (latencies, rate) = std::thread::scope(|scope| {
            join(vec![scope.spawn(move || client(100, 2.0)), scope.spawn(move || client(300, 0.5))])
        })
        .unwrap();
        assert_eq!((latencies.count(), latencies.quantile(1.0), rate), (2, Some(300), 2.5));
        let failed = std::thread::scope(|scope| join(vec![scope.spawn(|| Err(anyhow!("hung")))]));
        assert_eq!(failed.unwrap_err().to_string(), "hung");
    }

    #[test]
    fn turns_are_numbered_through_and_the_warm_up_does_not_count() {
        let mut numbers = Vec::new();
        let mut warm_up = 0;
        let turn = |turn: Iteration| {
            warm_up += u64::from(turn.warm_up);
            numbers.push(turn.number);
            Ok(Duration::from_nanos(700))
        };
        let (latencies, rate) = repeat(Duration::from_nanos(1), turn).unwrap();
        assert!(numbers.iter().copied().eq(0..numbers.len() as u64));
        assert_eq!(
            (warm_up, latencies.count()),
            (FEWEST_TURNS, FEWEST_TURNS),
            "however short the time is"
        );
        assert_eq!(numbers.len() as u64, 2 * FEWEST_TURNS);
        assert!(rate > 0.0);
        assert_eq!(latencies.quantile(1.0), Some(700));
    }
}
