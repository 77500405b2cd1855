//! All experiments one after the other, whatever becomes of each, and the site of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::experiment::{self, Completed, Experiment, Options};
use crate::experiments;
use crate::launch::interrupt;
use crate::output::{read_file, write_file};
use crate::report::site::{self, Site};
use crate::text;

/// What became of the experiments that have no result of the last run of everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Journal {
    /// Those that cannot run on this machine, and why.
    skipped: BTreeMap<String, String>,
    /// Those that ran and failed, and why.
    failed: BTreeMap<String, String>,
}

impl Journal {
    pub(crate) const FILE: &'static str = "run.json";

    /// The journal of a directory; empty where there is none, or something else of that name.
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

/// What became of a run of all experiments.
#[derive(Debug)]
pub struct All {
    /// Those that were measured.
    pub completed: Vec<Completed>,
    /// Name and reason of those that cannot run on this machine.
    pub skipped: Vec<(String, String)>,
    /// Name and reason of those that ran and failed.
    pub failed: Vec<(String, String)>,
    /// How long it took.
    pub took: Duration,
    /// Their site, or why there is none.
    pub site: Result<Site>,
}

/// Runs every experiment that can run here, one after the other, and writes the site of the results
/// into `options.out/report`.
///
/// # Errors
///
/// If the user interrupts, or `options.out` cannot be written to. An experiment that fails does not
/// end the run.
pub fn run(options: &Options) -> Result<All> {
    run_these(experiments(), options)
}

/// The same with experiments of whatever origin.
///
/// # Errors
///
/// As [`run`].
pub fn run_these(experiments: &[&dyn Experiment], options: &Options) -> Result<All> {
    interrupt::install();
    if let Some(caution) = options.caution() {
        eprintln!("{caution}");
    }
    let begun = Instant::now();
    let mut journal = Journal::default();
    let mut wanted = Vec::new();
    for experiment in experiments {
        match experiment.unavailable(options) {
            Some(why) => {
                eprintln!("{}: skipped: {why}", experiment.name());
                journal.skipped.insert(experiment.name().to_owned(), why);
            }
            None => wanted.push(*experiment),
        }
    }
    let total: Duration = wanted.iter().map(|experiment| experiment.duration(options.quick)).sum();
    let (mut done, mut completed) = (Duration::ZERO, Vec::new());
    for (index, experiment) in wanted.iter().enumerate() {
        let left = remaining(begun.elapsed(), done, total);
        eprintln!(
            "== {} ({} of {}, {} left after it); about {} for all that is left",
            experiment.name(),
            index + 1,
            wanted.len(),
            wanted.len() - index - 1,
            text::minutes(left)
        );
        match experiment::run_one(*experiment, options) {
            Ok(one) => completed.push(one),
            Err(error) => {
                interrupt::check()?;
                eprintln!("{}: failed: {error:#}", experiment.name());
                journal.failed.insert(experiment.name().to_owned(), format!("{error:#}"));
            }
        }
        done += experiment.duration(options.quick);
    }
    std::fs::create_dir_all(&options.out)?;
    write_file(&options.out, Journal::FILE, &(serde_json::to_string_pretty(&journal)? + "\n"))?;
    let site = site::write(&options.out, None);
    let Journal { skipped, failed } = journal;
    Ok(All {
        completed,
        skipped: skipped.into_iter().collect(),
        failed: failed.into_iter().collect(),
        took: begun.elapsed(),
        site,
    })
}

/// What is left of `total`, of which `done` was to have taken as long as it was estimated to, but
/// took `elapsed`.
fn remaining(elapsed: Duration, done: Duration, total: Duration) -> Duration {
    let pace = if done.is_zero() { 1.0 } else { elapsed.as_secs_f64() / done.as_secs_f64() };
    total.saturating_sub(done).mul_f64(pace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_the_pace_so_far() {
        let seconds = Duration::from_secs;
        assert_eq!(remaining(seconds(0), seconds(0), seconds(100)), seconds(100));
        assert_eq!(remaining(seconds(40), seconds(20), seconds(100)), seconds(160));
        assert_eq!(remaining(seconds(40), seconds(100), seconds(100)), seconds(0));
    }

    #[test]
    fn journals_of_strangers_are_empty() {
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
