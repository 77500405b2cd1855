//! The record of each run: a JSON file for each suite and mode.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::counters::Counters;
use crate::mode::SuiteMode;
use crate::outcome::{Outcomes, TestOutcome};
use crate::verdict::Difference;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunEnd {
    /// By itself.
    Finished,
    /// It exceeded its limit and was killed.
    TimedOut,
    /// With a status that no suite exits with.
    Died(String),
    /// It did not start.
    NotRun(String),
}

/// Observations of a suite in one mode.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) suite: String,
    pub(crate) mode: SuiteMode,
    pub(crate) circumstances: Circumstances,
    /// Versions of the tested programs.
    pub(crate) version: String,
    /// Only the fast part.
    pub(crate) fast: bool,
    pub(crate) end: RunEnd,
    pub(crate) seconds: u64,
    pub(crate) counters: Counters,
    pub(crate) outcomes: Outcomes,
    /// Differences from plain TCP.
    pub(crate) differences: Vec<Difference>,
}

/// Conditions of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Circumstances {
    pub(crate) commit: String,
    pub(crate) date: String,
    pub(crate) machine: String,
    /// How the library was built.
    pub(crate) build: String,
}

impl Record {
    pub(crate) fn count(&self, outcome: TestOutcome) -> usize {
        self.outcomes.values().filter(|one| **one == outcome).count()
    }

    pub(crate) fn store(&self, out: &Path) -> Result<()> {
        let path = directory(out, &self.suite).join(format!("{}.json", self.mode));
        let text = serde_json::to_string_pretty(self)?;
        fs::write(&path, text).with_context(|| path.display().to_string())
    }
}

/// Directory of the results and logs of a suite.
pub(crate) fn directory(out: &Path, suite: &str) -> PathBuf {
    out.join(suite)
}

/// The records of all runs.
pub(crate) fn load(out: &Path) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    let entries = fs::read_dir(out).with_context(|| format!("results in {}", out.display()))?;
    for entry in entries {
        let directory = entry?.path();
        if !directory.is_dir() {
            continue;
        }
        for mode in SuiteMode::ALL {
            let path = directory.join(format!("{mode}.json"));
            let Ok(text) = fs::read_to_string(&path) else { continue };
            records.push(serde_json::from_str(&text).with_context(|| path.display().to_string())?);
        }
    }
    records.sort_by(|one: &Record, other: &Record| {
        (&one.suite, one.mode).cmp(&(&other.suite, other.mode))
    });
    Ok(records)
}
