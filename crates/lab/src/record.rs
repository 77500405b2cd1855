//! What experiments measure: single readings, and the rows made of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::csv;
use crate::launch::Traffic;
use crate::stats::{self, Ratio, Spread};

/// A measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name, e.g. `bandwidth`.
    pub name: &'static str,
    /// Its unit, e.g. `GB/s` (decimal giga).
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
}

/// Which way a metric improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Larger is better: bandwidths and rates.
    Higher,
    /// Smaller is better: times.
    Lower,
}

/// One reading of one run, or why the run gave none.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What was measured, e.g. `64 KiB`.
    pub case: String,
    /// The case as a number where it has one (a message size, a number of pairs): the x axis.
    pub x: Option<f64>,
    /// The way it was done, e.g. `plain`.
    pub variant: String,
    /// The quantity; `None` if the run failed before it could measure any.
    pub metric: Option<Metric>,
    /// Round, from 1.
    pub round: usize,
    /// Position of the run among the variants of its round, from 0.
    pub position: usize,
    /// The reading, in the metric's unit, or what went wrong.
    pub outcome: Result<f64, String>,
    /// Bytes the run moved by carrier, as counted by the accelerated client; `None` for plain runs.
    pub traffic: Option<Traffic>,
}

/// Rows that failed with the same complaint.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure<'a> {
    pub(crate) error: &'a str,
    pub(crate) rows: Vec<&'a Row>,
}

impl Failure<'_> {
    /// The variants that it concerns.
    pub(crate) fn variants(&self) -> Vec<&str> {
        let mut variants: Vec<&str> = self.rows.iter().map(|row| row.variant.as_str()).collect();
        variants.sort_unstable();
        variants.dedup();
        variants
    }
}

/// The failures among `rows`, each complaint once.
pub(crate) fn failures(rows: &[Row]) -> Vec<Failure<'_>> {
    let mut failures: Vec<Failure<'_>> = Vec::new();
    for row in rows {
        let Some(error) = row.error.as_deref() else { continue };
        match failures.iter_mut().find(|failure| failure.error == error) {
            Some(failure) => failure.rows.push(row),
            None => failures.push(Failure { error, rows: vec![row] }),
        }
    }
    failures
}

/// All readings of an experiment, in the order in which they were taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples(pub Vec<Sample>);

/// Everything known about one (case, variant, metric) over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was measured.
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
    /// Which way it improves.
    pub better: Better,
    /// Median and spread over the rounds; `None` if every run failed.
    pub spread: Option<Spread>,
    /// This variant over the baseline variant, with its 95 % interval; `None` for the baseline itself.
    pub ratio: Option<Ratio>,
    /// The variant that `ratio` divides by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// Median per run of bytes that went through shared memory, both ways, as counted by the client.
    pub ring_bytes: Option<u64>,
    /// Median per run of bytes that went through the kernel's TCP, both ways, as counted by the client.
    pub tcp_bytes: Option<u64>,
    /// Number of runs that failed.
    pub failures: usize,
    /// What went wrong in the first of them.
    pub error: Option<String>,
}

impl Samples {
    /// One row for each (case, variant, metric), in order of first appearance, compared with variant `baseline`.
    ///
    /// A failed run that could not say what it would have measured makes a row of its own without a metric.
    pub fn rows(&self, baseline: &str) -> Vec<Row> {
        type Key<'a> = (&'a str, &'a str, &'a str);
        let mut order: Vec<Key<'_>> = Vec::new();
        let mut groups: BTreeMap<Key<'_>, Vec<&Sample>> = BTreeMap::new();
        for sample in &self.0 {
            let metric = sample.metric.map_or("", |metric| metric.name);
            let key = (sample.case.as_str(), sample.variant.as_str(), metric);
            let group = groups.entry(key).or_default();
            if group.is_empty() {
                order.push(key);
            }
            group.push(sample);
        }
        order
            .into_iter()
            .map(|key| {
                let other = (key.1 != baseline).then(|| groups.get(&(key.0, baseline, key.2))).flatten();
                row(&groups[&key], other.map(Vec::as_slice), baseline)
            })
            .collect()
    }

    /// Ratio of the medians of two kinds of samples, paired by round.
    pub fn ratio(&self, numerator: Selector<'_>, denominator: Selector<'_>) -> Option<Ratio> {
        stats::ratio_of_medians(&self.pairs(numerator, denominator))
    }

    /// Readings of two kinds of samples in the same rounds, side by side.
    pub fn pairs(&self, these: Selector<'_>, others: Selector<'_>) -> Vec<(f64, f64)> {
        let pick = |selector: Selector<'_>| -> Vec<&Sample> {
            self.0.iter().filter(|sample| selector.matches(sample)).collect()
        };
        pairs(&pick(these), &pick(others))
    }

    /// Median of one kind of samples.
    pub fn median(&self, selector: Selector<'_>) -> Option<f64> {
        stats::median(&self.values(selector))
    }

    /// Readings of one kind of samples.
    pub fn values(&self, selector: Selector<'_>) -> Vec<f64> {
        self.0.iter().filter(|s| selector.matches(s)).filter_map(|s| s.outcome.clone().ok()).collect()
    }

    /// The raw data as CSV with a header line.
    pub fn to_csv(&self) -> String {
        let mut text = String::new();
        let header = [
            "round",
            "position",
            "case",
            "x",
            "variant",
            "metric",
            "unit",
            "value",
            "ring_bytes",
            "tcp_bytes",
            "error",
        ];
        csv::push_record(&mut text, header);
        for sample in &self.0 {
            let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
            let bytes = |of: fn(&Traffic) -> u64| {
                sample.traffic.as_ref().map(|t| of(t).to_string()).unwrap_or_default()
            };
            let fields = [
                sample.round.to_string(),
                sample.position.to_string(),
                sample.case.clone(),
                number(sample.x),
                sample.variant.clone(),
                sample.metric.map(|metric| metric.name.to_owned()).unwrap_or_default(),
                sample.metric.map(|metric| metric.unit.to_owned()).unwrap_or_default(),
                number(sample.outcome.as_ref().ok().copied()),
                bytes(|traffic| traffic.ring),
                bytes(|traffic| traffic.tcp),
                sample.outcome.as_ref().err().cloned().unwrap_or_default(),
            ];
            csv::push_record(&mut text, fields.iter().map(String::as_str));
        }
        text
    }
}

/// Picks samples by case, variant and metric.
#[derive(Clone, Copy, Debug)]
pub struct Selector<'a> {
    /// The case.
    pub case: &'a str,
    /// The variant.
    pub variant: &'a str,
    /// The metric.
    pub metric: Metric,
}

impl Selector<'_> {
    fn matches(&self, sample: &Sample) -> bool {
        sample.case == self.case && sample.variant == self.variant && sample.metric == Some(self.metric)
    }
}

fn row(samples: &[&Sample], baseline_samples: Option<&[&Sample]>, baseline: &str) -> Row {
    let first = samples[0];
    let values: Vec<f64> = samples.iter().filter_map(|sample| sample.outcome.clone().ok()).collect();
    let mut errors = samples.iter().filter_map(|sample| sample.outcome.as_ref().err());
    let median_bytes = |of: fn(&Traffic) -> u64| {
        let bytes: Vec<f64> =
            samples.iter().filter_map(|s| s.traffic.as_ref()).map(|t| of(t) as f64).collect();
        stats::median(&bytes).map(|bytes| bytes as u64)
    };
    Row {
        case: first.case.clone(),
        x: first.x,
        variant: first.variant.clone(),
        metric: first.metric.map(|metric| metric.name.to_owned()).unwrap_or_default(),
        unit: first.metric.map(|metric| metric.unit.to_owned()).unwrap_or_default(),
        better: first.metric.map_or(Better::Higher, |metric| metric.better),
        spread: Spread::of(&values),
        ratio: baseline_samples.and_then(|others| stats::ratio_of_medians(&pairs(samples, others))),
        baseline: baseline_samples.map(|_| baseline.to_owned()),
        ring_bytes: median_bytes(|traffic| traffic.ring),
        tcp_bytes: median_bytes(|traffic| traffic.tcp),
        failures: samples.len() - values.len(),
        error: errors.next().cloned(),
    }
}

/// Readings of the same rounds, side by side.
fn pairs(numerators: &[&Sample], denominators: &[&Sample]) -> Vec<(f64, f64)> {
    let by_round: BTreeMap<usize, f64> =
        denominators.iter().filter_map(|s| Some((s.round, s.outcome.clone().ok()?))).collect();
    numerators
        .iter()
        .filter_map(|sample| Some((sample.outcome.clone().ok()?, *by_round.get(&sample.round)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BANDWIDTH: Metric = Metric { name: "bandwidth", unit: "GB/s", better: Better::Higher };

    fn sample(variant: &str, round: usize, outcome: Result<f64, String>) -> Sample {
        Sample {
            case: "64 KiB, \"bulk\"".to_owned(),
            x: Some(65536.0),
            variant: variant.to_owned(),
            metric: Some(BANDWIDTH),
            round,
            position: 0,
            outcome,
            traffic: (variant == "accelerated").then_some(Traffic { ring: 100, tcp: 7 }),
        }
    }

    fn samples() -> Samples {
        Samples(vec![
            sample("plain", 1, Ok(2.0)),
            sample("accelerated", 1, Ok(4.0)),
            sample("accelerated", 2, Ok(6.0)),
            sample("plain", 2, Ok(3.0)),
            sample("accelerated", 3, Err("hung".to_owned())),
            sample("plain", 3, Ok(50.0)),
        ])
    }

    #[test]
    fn rows_pair_readings_of_the_same_round() {
        let rows = samples().rows("plain");
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].variant.as_str(), rows[0].ratio), ("plain", None));
        assert_eq!(rows[0].spread.unwrap().median, 3.0);
        let accelerated = &rows[1];
        assert_eq!(accelerated.ratio.unwrap().value, 2.0, "round 3 has no partner and must not count");
        assert_eq!((accelerated.failures, accelerated.error.as_deref()), (1, Some("hung")));
        assert_eq!((accelerated.ring_bytes, accelerated.tcp_bytes), (Some(100), Some(7)));
    }

    #[test]
    fn a_run_without_readings_is_a_row_with_an_error() {
        let mut failed = sample("accelerated", 1, Err("iperf3 is not installed".to_owned()));
        failed.metric = None;
        let rows = Samples(vec![failed]).rows("plain");
        assert_eq!(rows[0].spread, None);
        assert_eq!(rows[0].error.as_deref(), Some("iperf3 is not installed"));
    }

    #[test]
    fn raw_data_survives_csv() {
        let records = csv::parse(&samples().to_csv());
        assert_eq!(records.len(), 7);
        assert_eq!(
            records[2][2..9],
            ["64 KiB, \"bulk\"", "65536", "accelerated", "bandwidth", "GB/s", "4", "100"]
        );
        assert_eq!(records[5][10], "hung");
        assert_eq!(records[5][7], "");
    }

    #[test]
    fn rows_survive_json() {
        let rows = samples().rows("plain");
        let json = serde_json::to_string(&rows).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Row>>(&json).unwrap(), rows);
    }
}
