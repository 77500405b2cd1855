//! The measurements of experiments: all readings, and the rows made of them.

use std::collections::BTreeMap;

use crate::launch::Traffic;
pub use crate::row::{FailureGroup, Row, failures};
use crate::sample::pairs;
pub use crate::sample::{Better, Metric, Sample};
use crate::stats::{self, Ratio};

/// All readings of an experiment, in the order in which they were taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples(pub Vec<Sample>);

impl Samples {
    /// One row for each (case, variant, metric), in order of first appearance, compared with
    /// variant `baseline`.
    ///
    /// A run that failed before it named a metric makes a row of its own without one.
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
                let other =
                    (key.1 != baseline).then(|| groups.get(&(key.0, baseline, key.2))).flatten();
                Row::of(&groups[&key], other.map(Vec::as_slice), baseline)
            })
            .collect()
    }

    /// Ratio of the medians of two kinds of samples, paired by round.
    pub fn ratio(&self, numerator: Selector<'_>, denominator: Selector<'_>) -> Option<Ratio> {
        stats::ratio_of_medians(&self.pairs(numerator, denominator))
    }

    /// Readings of two kinds of samples in the same rounds, side by side.
    pub fn pairs(&self, these: Selector<'_>, others: Selector<'_>) -> Vec<(f64, f64)> {
        pairs(self.outcomes(these), self.outcomes(others))
    }

    /// Round and reading of each.
    fn outcomes<'a>(
        &'a self,
        selector: Selector<'a>,
    ) -> impl Iterator<Item = (usize, Option<f64>)> {
        let outcome = |sample: &Sample| (sample.round, sample.outcome.as_ref().ok().copied());
        self.0.iter().filter(move |sample| selector.matches(sample)).map(outcome)
    }

    /// Median of one kind of samples.
    pub fn median(&self, selector: Selector<'_>) -> Option<f64> {
        stats::median(&self.values(selector))
    }

    /// Readings of one kind of samples.
    pub fn values(&self, selector: Selector<'_>) -> Vec<f64> {
        self.0
            .iter()
            .filter(|s| selector.matches(s))
            .filter_map(|s| s.outcome.clone().ok())
            .collect()
    }

    /// Readings of `metric` by two variants in the same rounds, side by side, by case.
    pub fn pairs_by_case(
        &self,
        metric: &str,
        this: &str,
        other: &str,
    ) -> BTreeMap<String, Vec<(f64, f64)>> {
        type Rounds = Vec<(usize, Option<f64>)>;
        let mut by_case: BTreeMap<&str, [Rounds; 2]> = BTreeMap::new();
        for sample in &self.0 {
            let position = [this, other].iter().position(|variant| *variant == sample.variant);
            let is_wanted = sample.metric.is_some_and(|of| of.name == metric);
            if let Some(position) = position.filter(|_| is_wanted) {
                let outcome = (sample.round, sample.outcome.as_ref().ok().copied());
                by_case.entry(&sample.case).or_default()[position].push(outcome);
            }
        }
        let paired = by_case.into_iter().map(|(case, [these, others])| {
            (case.to_owned(), pairs(these.into_iter(), others.into_iter()))
        });
        paired.collect()
    }

    /// Parses the output of [`Samples::to_csv`]. `better`: by metric, because `text` does not
    /// contain it.
    ///
    /// # Errors
    ///
    /// If it is anything else, with the record.
    pub fn of_csv(text: &str, better: &BTreeMap<String, Better>) -> Result<Self, String> {
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
        let records = reader.records().zip(1..).map(|(record, index)| {
            let record = record.map_err(|error| error.to_string())?;
            let sample = Sample::of_record(&record, better);
            sample.map_err(|field| format!("record {index}: wrong {field}"))
        });
        records.collect::<Result<_, _>>().map(Self)
    }

    /// The raw data as CSV (RFC 4180) with a header line.
    pub fn to_csv(&self) -> String {
        let mut records = csv::Writer::from_writer(Vec::new());
        // Writing to memory cannot fail.
        let mut write = |record: &[String]| drop(records.write_record(record));
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
        write(&header.map(str::to_owned));
        for sample in &self.0 {
            let number =
                |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
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
            write(&fields);
        }
        let bytes = records.into_inner().unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_default()
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
        sample.case == self.case
            && sample.variant == self.variant
            && sample.metric == Some(self.metric)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BANDWIDTH: Metric = Metric::higher("bandwidth", "GB/s");

    fn sample(variant: &str, round: usize, outcome: Result<f64, String>) -> Sample {
        Sample {
            x: Some(65536.0),
            outcome,
            traffic: (variant == "accelerated").then_some(Traffic {
                ring: 100,
                tcp: 7,
                ..Traffic::default()
            }),
            ..Sample::new("64 KiB, \"bulk\"", variant, BANDWIDTH, round, 0.0)
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
        assert_eq!(
            accelerated.ratio.unwrap().value,
            2.0,
            "round 3 has no partner and must not count"
        );
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
        let text = samples().to_csv();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 7);
        let second = "1,0,\"64 KiB, \"\"bulk\"\"\",65536,accelerated,bandwidth,GB/s,4,100,7,";
        assert_eq!(lines[2], second);
        assert!(lines[5].ends_with(",GB/s,,100,7,hung"), "{}", lines[5]);
    }

    #[test]
    fn raw_data_come_back_from_csv() {
        let better = BTreeMap::from([("bandwidth".to_owned(), Better::Higher)]);
        let text = samples().to_csv();
        assert_eq!(Samples::of_csv(&text, &better).unwrap(), samples());
        let damaged = text.replacen("65536", "65536 B", 1);
        assert_eq!(Samples::of_csv(&damaged, &better).unwrap_err(), "record 1: wrong x");
        assert!(Samples::of_csv(&(text + "1,2\n"), &better).is_err());
    }

    #[test]
    fn rows_survive_json() {
        let rows = samples().rows("plain");
        let json = serde_json::to_string(&rows).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Row>>(&json).unwrap(), rows);
    }
}
