//! What an experiment brings home, and the file that keeps it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::machine::Machine;
use crate::plot::Figure;
use crate::record::{Row, Samples};

/// What an experiment brings home.
#[derive(Debug)]
pub struct Outcome {
    /// How it was done: rounds, sizes, settings.
    pub parameters: BTreeMap<String, Value>,
    /// All readings.
    pub samples: Samples,
    /// The variant that all others are compared with.
    pub baseline: &'static str,
    /// The few numbers that matter. What could not be measured is left out.
    pub summary: Vec<Key>,
    /// What was computed from the readings and is not a ratio of two variants, in the order in which the report shows it.
    pub tables: Vec<Table>,
    /// Plots, in the order in which the report shows them.
    pub figures: Vec<Figure>,
    /// Something that must never happen, such as damaged data. It is written down like any other result, and then ends
    /// the run with this error.
    pub violation: Option<String>,
}

/// One number of the summary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Its name in `result.json`.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// What it means and which way is better.
    pub meaning: &'static str,
}

impl Key {
    /// A number of the summary, if it could be measured.
    pub fn measured(name: &'static str, meaning: &'static str, value: Option<f64>) -> Option<Self> {
        value.map(|value| Self { name, value, meaning })
    }
}

/// A table of the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Heading.
    pub title: String,
    /// What the columns mean, as far as their names do not say it.
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
    /// What it ran: `git describe` of the sources.
    pub commit: String,
    /// How it was done.
    pub parameters: BTreeMap<String, Value>,
    /// Medians, spread and ratios.
    pub rows: Vec<Row>,
    /// What was computed from them, if anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
    /// The few numbers that matter.
    pub summary: BTreeMap<String, f64>,
}
