//! Runs a program in both modes, and decides whether a difference counts.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::compare::{Tally, compare};
use crate::program::TestProgram;
use crate::run::{RunMode, run};
use crate::shrink::shrink;
use crate::sys;
use crate::trace::{Divergence, Trace};

/// How long a thread is asleep before it counts as blocked: while searching, and to be sure.
pub(crate) const BLOCKED_AFTER: [Duration; 2] =
    [Duration::from_millis(4), Duration::from_millis(60)];

/// How often a failing program is run again, each way.
const AGAIN: usize = 4;

/// Number of these runs that must fail.
const ENOUGH: usize = 3;

/// Time limit for making a program smaller: while other programs wait, and when none do.
pub(crate) const SHRINKING: [Duration; 2] = [Duration::from_secs(25), Duration::from_secs(300)];

/// Outcome of all runs.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// By kind of call.
    pub(crate) calls: BTreeMap<String, Tally>,
    /// Calls that were made in accelerated runs.
    pub(crate) made: u64,
    /// Bytes that went through shared memory.
    pub(crate) ring: u64,
    /// Programs whose calls could not be compared one by one to the end.
    pub(crate) loose: u64,
}

impl Totals {
    /// Calls that were compared one by one.
    pub(crate) fn compared(&self) -> u64 {
        self.calls.values().map(|tally| tally.compared).sum()
    }
}

/// Result of running a failing program again.
pub(crate) enum Confirmed {
    /// This many of the [`AGAIN`] accelerated runs match none of the plain ones.
    Real(usize, Divergence),
    /// Some do, but too few to rule out chance.
    Sometimes(usize, Divergence),
    /// TCP itself answers in several ways, or the failure did not recur.
    Chance,
}

pub(crate) struct Bench {
    library: PathBuf,
    directory: tempfile::TempDir,
    runs: AtomicU64,
    pub(crate) totals: Mutex<Totals>,
}

impl Bench {
    pub(crate) fn new(library: Option<PathBuf>) -> Result<Self> {
        let beside =
            || Ok::<_, std::io::Error>(std::env::current_exe()?.with_file_name("libseekwire.so"));
        let library = library.map_or_else(beside, Ok)?;
        if !library.exists() {
            bail!(
                "{} is missing: build it with cargo build -p seekwire-preload",
                library.display()
            );
        }
        sys::process::adopt_orphans();
        let directory =
            tempfile::Builder::new().prefix("seekwire-differential-").tempdir_in("/dev/shm")?;
        Ok(Self {
            library: fs::canonicalize(library)?,
            directory,
            runs: AtomicU64::new(0),
            totals: Mutex::default(),
        })
    }

    fn run(
        &self,
        program: &TestProgram,
        accelerated: bool,
        patience: Duration,
        verbose: bool,
    ) -> Result<Trace> {
        let place =
            self.directory.path().join(self.runs.fetch_add(1, Ordering::Relaxed).to_string());
        let library = accelerated.then(|| self.library.clone());
        let trace = run(program, &RunMode { library, patience, verbose }, &place);
        let _ = fs::remove_dir_all(place);
        trace
    }

    /// Runs a program both ways.
    pub(crate) fn try_once(
        &self,
        program: &TestProgram,
        patience: Duration,
        verbose: bool,
    ) -> Result<Option<Divergence>> {
        let plain = self.run(program, false, patience, verbose)?;
        let accelerated = self.run(program, true, patience, verbose)?;
        let comparison = compare(program, &plain, &accelerated);
        let mut totals = self.totals.lock().expect("nobody panics");
        totals.made += accelerated.calls;
        totals.ring += accelerated.ring;
        totals.loose += u64::from(comparison.loose);
        for (name, tally) in comparison.calls {
            totals.calls.entry(name).or_default().add(tally);
        }
        Ok(comparison.failure)
    }

    /// Runs a failing program again, patiently. Behaviour that a plain run also shows is no
    /// difference: TCP does so at times.
    pub(crate) fn confirm(&self, program: &TestProgram) -> Result<Confirmed> {
        let runs = |accelerated| {
            (0..AGAIN)
                .map(move |_| self.run(program, accelerated, BLOCKED_AFTER[1], false))
                .collect::<Result<Vec<_>>>()
        };
        let plain = runs(false)?;
        let unlike = |trace: &Trace| {
            let failures = plain.iter().map(|control| compare(program, control, trace).failure);
            failures.collect::<Option<Vec<_>>>()?.pop()
        };
        let mut failures: Vec<Divergence> = runs(true)?.iter().filter_map(unlike).collect();
        let count = failures.len();
        Ok(match failures.pop() {
            Some(failure) if count >= ENOUGH => Confirmed::Real(count, failure),
            Some(failure) => Confirmed::Sometimes(count, failure),
            None => Confirmed::Chance,
        })
    }

    /// The smallest program found that fails in the same way.
    pub(crate) fn smaller(
        &self,
        program: &TestProgram,
        failure: &Divergence,
        limit: Duration,
    ) -> TestProgram {
        let deadline = Instant::now() + limit;
        let fails = |candidate: &TestProgram| {
            Instant::now() < deadline
                && (0..2).all(|_| {
                    let found =
                        self.try_once(candidate, BLOCKED_AFTER[0] * 2, false).ok().flatten();
                    found.is_some_and(|found| found.kind == failure.kind)
                })
        };
        let mut start = program.clone();
        start.steps.truncate(failure.step.saturating_add(1));
        let start = if fails(&start) { start } else { program.clone() };
        shrink(&start, fails)
    }
}

impl Confirmed {
    /// A count of runs, for people.
    pub(crate) fn share(count: usize) -> String {
        format!("{count} of {AGAIN}")
    }
}
