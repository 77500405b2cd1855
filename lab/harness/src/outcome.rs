//! The outcome of an experiment, and the file that keeps it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::machine::{COMMIT, Machine};
use crate::plot::Figure;
use crate::record::{Row, Samples};

/// The outcome of an experiment.
#[derive(Debug)]
pub struct Outcome {
    /// How it was done: rounds, sizes, settings.
    pub parameters: BTreeMap<String, Value>,
    /// All readings.
    pub samples: Samples,
    /// The variant that all others are compared with.
    pub baseline: &'static str,
    /// An event that must never happen, such as damaged data. It is recorded like any other result,
    /// and then ends the run with this error. No claim is judged by such a result.
    pub violation: Option<String>,
}

/// The readings of an experiment, and how they were taken.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    /// See [`Outcome::parameters`].
    pub parameters: &'a BTreeMap<String, Value>,
    /// See [`Outcome::samples`].
    pub samples: &'a Samples,
}

impl Recorded<'_> {
    /// A parameter that is a list of numbers; one that is not there is empty.
    pub fn numbers(&self, name: &str) -> Vec<u64> {
        let list = self.parameters.get(name).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_u64).collect()
    }

    /// A parameter that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.parameters.get(name)?.as_u64()
    }
}

/// Conclusions that are computed from the readings, and can be computed again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// The few numbers that matter. Numbers that could not be measured are left out.
    pub summary: Vec<SummaryValue>,
    /// Values computed from the readings that are no ratio of two variants, in the order in which
    /// the report shows them.
    pub tables: Vec<Table>,
    /// Plots, in the order in which the report shows them.
    pub figures: Vec<Figure>,
}

impl Findings {
    /// Writes them into a result, in place of those that it has.
    pub fn put_into(self, result: &mut ResultFile) {
        let Self { summary, tables, figures } = self;
        result.tables = tables;
        result.figures = figures.into_iter().filter(|figure| !figure.is_empty()).collect();
        result.meanings =
            summary.iter().map(|key| (key.name.to_string(), key.meaning.to_string())).collect();
        result.summary =
            summary.into_iter().map(|key| (key.name.into_owned(), key.value)).collect();
    }
}

/// One number of the summary.
#[derive(Clone, Debug, PartialEq)]
pub struct SummaryValue {
    /// Its name in `result.json`.
    pub name: Cow<'static, str>,
    /// Its value.
    pub value: f64,
    /// Its meaning, and whether higher or lower is better.
    pub meaning: Cow<'static, str>,
}

impl SummaryValue {
    /// A number of the summary, if it could be measured.
    pub fn measured(
        name: impl Into<Cow<'static, str>>,
        meaning: impl Into<Cow<'static, str>>,
        value: Option<f64>,
    ) -> Option<Self> {
        value.map(|value| Self { name: name.into(), value, meaning: meaning.into() })
    }
}

/// A table of the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Heading.
    pub title: String,
    /// Meaning of the columns, as far as their names do not give it.
    pub note: String,
    /// Names of the columns, with units.
    pub columns: Vec<String>,
    /// Cells, by row: text, numbers, or null where there is nothing.
    pub rows: Vec<Vec<Value>>,
}

/// The contents of `result.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultFile {
    /// Name of the experiment.
    pub experiment: String,
    /// Where it ran.
    pub machine: Machine,
    /// Sources that it ran: the output of `git describe`.
    pub commit: String,
    /// How it was done.
    pub parameters: BTreeMap<String, Value>,
    /// See [`Outcome::violation`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub violation: Option<String>,
    /// Medians, spread and ratios.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<Row>,
    /// Tables computed from them, if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
    /// The few numbers that matter.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub summary: BTreeMap<String, f64>,
    /// The meaning of each of them, and whether higher or lower is better.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meanings: BTreeMap<String, String>,
    /// Plots, in the order in which reports show them. They can be drawn from here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
}

/// One (case, variant, metric) of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At<'a> {
    /// The case.
    pub case: &'a str,
    /// The variant.
    pub variant: &'a str,
    /// Name of the metric.
    pub metric: &'a str,
}

impl ResultFile {
    /// A result without findings, of the sources of this program.
    pub fn new(
        experiment: &str,
        machine: Machine,
        parameters: BTreeMap<String, Value>,
        rows: Vec<Row>,
    ) -> Self {
        Self {
            experiment: experiment.to_owned(),
            machine,
            commit: COMMIT.to_owned(),
            parameters,
            violation: None,
            rows,
            tables: Vec::new(),
            summary: BTreeMap::new(),
            meanings: BTreeMap::new(),
            figures: Vec::new(),
        }
    }

    /// The row of a (case, variant, metric).
    ///
    /// # Errors
    ///
    /// If none exists; with the error that prevented it from being measured, if that is known.
    pub fn row(&self, at: At<'_>) -> Result<&Row, String> {
        let row = self.rows.iter().find(|row| {
            row.case == at.case && row.variant == at.variant && row.metric == at.metric
        });
        row.ok_or_else(|| {
            // A run that fails before it measures anything chooses a name for its case.
            let failed =
                self.rows.iter().filter(|row| row.variant == at.variant && row.spread.is_none());
            match failed.filter_map(|row| row.error.as_deref()).next() {
                Some(error) => format!("{at} was not measured: {error}"),
                None => format!("{at} was not measured"),
            }
        })
    }

    /// Why readings of a row are missing: runs of its variant that failed, and left fewer than one
    /// for each round.
    pub fn lost(&self, at: At<'_>) -> Option<String> {
        let rounds = self.parameters.get("rounds").and_then(Value::as_u64)?;
        let readings = self.row(at).ok()?.spread?.n as u64;
        let failed = |row: &&Row| row.variant == at.variant && row.spread.is_none();
        let error = self.rows.iter().filter(failed).find_map(|row| row.error.as_deref())?;
        (readings < rounds)
            .then(|| format!("{} of {rounds} rounds failed: {error}", rounds - readings))
    }

    /// Whether it was a quick run, whose numbers must not be quoted.
    pub fn is_quick(&self) -> bool {
        self.parameters.get("quick").and_then(Value::as_bool).unwrap_or(false)
    }
}

impl std::fmt::Display for At<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}, {}", self.metric, self.case, self.variant)
    }
}
