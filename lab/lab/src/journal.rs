//! The record that a run of every experiment keeps of those without a new result.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::output::read_file;

/// Fate of the experiments that have no result from the last run of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Journal {
    /// Those that cannot run on this machine, and why.
    pub(crate) skipped: BTreeMap<String, String>,
    /// Those that ran and failed, and why.
    pub(crate) failed: BTreeMap<String, String>,
}

impl Journal {
    pub(crate) const FILE: &'static str = "run.json";

    /// The journal of a directory; empty if it has none, or something else of that name.
    pub(crate) fn read(directory: &Path) -> Self {
        let text = read_file(&directory.join(Self::FILE)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Why each of them has no result, by name.
    pub(crate) fn reasons(self) -> BTreeMap<String, String> {
        let failed = self.failed.into_iter().map(|(name, why)| (name, format!("failed: {why}")));
        self.skipped.into_iter().chain(failed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_of_other_users_are_empty() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Journal::read(directory.path()).reasons().is_empty());
        std::fs::write(directory.path().join(Journal::FILE), "[1, 2").unwrap();
        assert!(Journal::read(directory.path()).reasons().is_empty());
        let text = r#"{"skipped": {"nic": "no permission"}, "failed": {"seek": "hung"}}"#;
        std::fs::write(directory.path().join(Journal::FILE), text).unwrap();
        let reasons = Journal::read(directory.path()).reasons();
        assert_eq!(
            (reasons["nic"].as_str(), reasons["seek"].as_str()),
            ("no permission", "failed: hung")
        );
    }
}
