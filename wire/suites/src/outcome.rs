//! Outcomes of the tests of a suite.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Outcome of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TestOutcome {
    Passed,
    Failed,
    Skipped,
}

/// Tests by name.
pub(crate) type Outcomes = BTreeMap<String, TestOutcome>;
