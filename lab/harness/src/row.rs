//! A (case, variant, metric) of a result: median, spread and ratio over all rounds.

use serde::{Deserialize, Serialize};

use crate::launch::Traffic;
use crate::sample::{Better, Sample, pairs};
use crate::stats::{self, Ratio, Spread};

/// Everything known about one (case, variant, metric) over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The case that was measured.
    pub case: String,
    /// The case as a number, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x: Option<f64>,
    /// The way it was done.
    pub variant: String,
    /// The quantity; empty if no run of this variant got far enough to measure any.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// The direction in which it improves.
    pub better: Better,
    /// Median and spread over the rounds; `None` if every run failed.
    pub spread: Option<Spread>,
    /// This variant over the baseline variant, with its 95 % interval; `None` for the baseline
    /// itself.
    pub ratio: Option<Ratio>,
    /// The variant that `ratio` divides by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// Median per run of bytes that went through shared memory, both ways, as counted by the
    /// client.
    pub ring_bytes: Option<u64>,
    /// Median per run of bytes that went through the kernel's TCP, both ways, as counted by the
    /// client.
    pub tcp_bytes: Option<u64>,
    /// Number of runs that failed.
    pub failures: usize,
    /// The error of the first of them.
    pub error: Option<String>,
}

impl Row {
    /// From the readings of this kind, and those of the baseline.
    pub(crate) fn of(samples: &[&Sample], of_baseline: Option<&[&Sample]>, baseline: &str) -> Self {
        let first = samples[0];
        let outcome = |sample: &&Sample| (sample.round, sample.outcome.as_ref().ok().copied());
        let values: Vec<f64> = samples.iter().filter_map(|sample| outcome(sample).1).collect();
        let median_bytes = |of: fn(&Traffic) -> u64| {
            let traffic = samples.iter().filter_map(|sample| sample.traffic.as_ref());
            let bytes: Vec<f64> = traffic.map(|traffic| of(traffic) as f64).collect();
            stats::median(&bytes).map(|bytes| bytes as u64)
        };
        Self {
            case: first.case.clone(),
            x: first.x,
            variant: first.variant.clone(),
            metric: first.metric.map_or("", |metric| metric.name).to_owned(),
            unit: first.metric.map_or("", |metric| metric.unit).to_owned(),
            better: first.metric.map_or(Better::Higher, |metric| metric.better),
            spread: Spread::of(&values),
            ratio: of_baseline.and_then(|others| {
                let (these, others) = (samples.iter().map(outcome), others.iter().map(outcome));
                stats::ratio_of_medians(&pairs(these, others))
            }),
            baseline: of_baseline.map(|_| baseline.to_owned()),
            ring_bytes: median_bytes(|traffic| traffic.ring),
            tcp_bytes: median_bytes(|traffic| traffic.tcp),
            failures: samples.len() - values.len(),
            error: samples.iter().find_map(|sample| sample.outcome.as_ref().err()).cloned(),
        }
    }

    /// The ratio, with the interval that its rounds [justify](Ratio::widened).
    #[must_use]
    pub fn widened_ratio(&self) -> Option<Ratio> {
        Some(self.ratio?.widened(self.rounds_of_ratio()))
    }

    /// Rounds behind the ratio. A file of an earlier version does not contain them, and a damaged
    /// one may contain more than there are.
    #[must_use]
    pub fn rounds_of_ratio(&self) -> usize {
        let readings = self.spread.map_or(0, |spread| spread.n);
        match self.ratio {
            Some(Ratio { pairs: Some(pairs), .. }) => pairs.min(readings),
            Some(ratio) if ratio.has_interval() => readings,
            _ => readings.min(1),
        }
    }
}

/// Rows that failed with the same error.
#[derive(Clone, Debug, PartialEq)]
pub struct FailureGroup<'a> {
    /// The reason that they share.
    pub error: &'a str,
    /// The rows without a value.
    pub rows: Vec<&'a Row>,
}

impl FailureGroup<'_> {
    /// The variants that failed with it.
    pub fn variants(&self) -> Vec<&str> {
        let mut variants: Vec<&str> = self.rows.iter().map(|row| row.variant.as_str()).collect();
        variants.sort_unstable();
        variants.dedup();
        variants
    }
}

/// The failures among `rows`, each error once.
pub fn failures(rows: &[Row]) -> Vec<FailureGroup<'_>> {
    let mut failures: Vec<FailureGroup<'_>> = Vec::new();
    for row in rows {
        let Some(error) = row.error.as_deref() else { continue };
        match failures.iter_mut().find(|failure| failure.error == error) {
            Some(failure) => failure.rows.push(row),
            None => failures.push(FailureGroup { error, rows: vec![row] }),
        }
    }
    failures
}
