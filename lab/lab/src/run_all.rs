//! All experiments one after the other, whatever becomes of each, and their site.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::experiment::{Experiment, Options, Unavailable};
use crate::experiments;
use crate::journal::Journal;
use crate::launch::interrupt;
use crate::measure::Completed;
use crate::output::write_file;
use crate::site::{self, Site};

use crate::text;

/// Outcome of a run of all experiments.
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

/// The same with any experiments.
///
/// # Errors
///
/// As [`run()`].
pub fn run_these(experiments: &[&dyn Experiment], options: &Options) -> Result<All> {
    interrupt::install();
    if let Some(caution) = options.caution() {
        seekwire_program::tell(caution);
    }
    let begun = Instant::now();
    let mut journal = Journal::default();
    let mut wanted = Vec::new();
    for experiment in experiments {
        match experiment.unavailable(options) {
            Some(why) => {
                seekwire_program::tell(format_args!("{}: skipped: {why}", experiment.name()));
                journal.skipped.insert(experiment.name().to_owned(), why);
            }
            None => wanted.push(*experiment),
        }
    }
    let total: Duration =
        wanted.iter().map(|experiment| experiment.file().seconds.of(options.quick)).sum();
    let (mut done, mut completed) = (Duration::ZERO, Vec::new());
    for (index, experiment) in wanted.iter().enumerate() {
        let left = remaining(begun.elapsed(), done, total);
        seekwire_program::tell(format_args!(
            "== {} ({} of {}, {} left after it); about {} for the rest",
            experiment.name(),
            index + 1,
            wanted.len(),
            wanted.len() - index - 1,
            text::minutes(left)
        ));
        match crate::run::run_one(*experiment, options) {
            Ok(one) => completed.push(one),
            Err(error) => {
                interrupt::check()?;
                let name = experiment.name();
                if let Some(Unavailable(why)) = error.downcast_ref() {
                    seekwire_program::tell(format_args!("{name}: skipped: {why}"));
                    journal.skipped.insert(name.to_owned(), why.clone());
                } else {
                    seekwire_program::tell(format_args!("{name}: failed: {error:#}"));
                    journal.failed.insert(name.to_owned(), format!("{error:#}"));
                }
            }
        }
        done += experiment.file().seconds.of(options.quick);
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

/// Remaining time of `total`. `done` is the estimate for the part that has finished, which took
/// `elapsed`.
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
}
