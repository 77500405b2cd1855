//! Single readings.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use csv::StringRecord;
use serde::{Deserialize, Serialize};

use crate::launch::Traffic;

/// A measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name, e.g. `bandwidth`.
    pub name: &'static str,
    /// Its unit, e.g. `GB/s` (decimal giga).
    pub unit: &'static str,
    /// The direction of improvement.
    pub better: Better,
}

impl Metric {
    /// A quantity of which more is better.
    pub const fn higher(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, better: Better::Higher }
    }

    /// A quantity of which less is better.
    pub const fn lower(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, better: Better::Lower }
    }
}

/// The direction in which a metric improves.
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
    /// The case that was measured, e.g. `64 KiB`.
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
    /// The reading, in the metric's unit, or the error.
    pub outcome: Result<f64, String>,
    /// Bytes the run moved by carrier, as counted by the accelerated client; `None` for plain
    /// runs.
    pub traffic: Option<Traffic>,
}

impl Sample {
    /// A reading without a place on an axis, and without traffic.
    pub fn new(
        case: impl Into<String>,
        variant: &str,
        metric: Metric,
        round: usize,
        value: f64,
    ) -> Self {
        let (case, variant, metric) = (case.into(), variant.to_owned(), Some(metric));
        Self {
            case,
            x: None,
            variant,
            metric,
            round,
            position: 0,
            outcome: Ok(value),
            traffic: None,
        }
    }

    /// Parses a record that [`Samples::to_csv`](crate::record::Samples::to_csv) wrote; the error is the name of a wrong field.
    pub(crate) fn of_record(
        record: &StringRecord,
        better: &BTreeMap<String, Better>,
    ) -> Result<Self, &'static str> {
        fn number<T: FromStr>(text: &str, name: &'static str) -> Result<Option<T>, &'static str> {
            if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|_| name) }
        }
        let fields: Vec<&str> = record.iter().collect();
        let [round, position, case, x, variant, metric, unit, value, ring, tcp, error] = fields[..]
        else {
            return Err("number of fields");
        };
        let better = better.get(metric).copied().unwrap_or(Better::Higher);
        let bytes = number(ring, "ring_bytes")?.zip(number(tcp, "tcp_bytes")?);
        Ok(Sample {
            case: case.to_owned(),
            x: number(x, "x")?,
            variant: variant.to_owned(),
            metric: (!metric.is_empty()).then(|| Metric {
                name: kept(metric),
                unit: kept(unit),
                better,
            }),
            round: number(round, "round")?.ok_or("round")?,
            position: number(position, "position")?.ok_or("position")?,
            outcome: number(value, "value")?.ok_or_else(|| error.to_owned()),
            traffic: bytes.map(|(ring, tcp)| Traffic { ring, tcp, ..Traffic::default() }),
        })
    }
}

/// Keeps the word for as long as the process lives. There are few: names and units of metrics.
fn kept(word: &str) -> &'static str {
    static WORDS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kept) = words.get(word) {
        return kept;
    }
    let word: &'static str = Box::leak(word.into());
    words.insert(word);
    word
}

/// Readings of the same rounds, side by side; only those that exist.
pub(crate) fn pairs(
    numerators: impl Iterator<Item = (usize, Option<f64>)>,
    denominators: impl Iterator<Item = (usize, Option<f64>)>,
) -> Vec<(f64, f64)> {
    let by_round: BTreeMap<usize, f64> =
        denominators.filter_map(|(round, value)| Some((round, value?))).collect();
    numerators.filter_map(|(round, value)| Some((value?, *by_round.get(&round)?))).collect()
}
