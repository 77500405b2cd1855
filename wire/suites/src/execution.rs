//! One run of a suite's script.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::counters::Counters;
use crate::mode::SuiteMode;
use crate::outcome::{Outcomes, TestOutcome};
use crate::record::RunEnd;
use crate::suite::Suite;

/// Exit status of a script whose requirements cannot be met here.
const CANNOT_BE_HAD: i32 = 4;

/// How long fetching and building may take.
const FETCHING: Duration = Duration::from_secs(1800);

/// Interval between reports of progress.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

/// Parameters that all runs share.
pub(crate) struct Stage<'a> {
    pub(crate) library: &'a Path,
    /// Directory where the suites keep fetched files.
    pub(crate) cache: &'a Path,
    /// The script that runs a command in a network namespace of its own.
    pub(crate) isolated: &'a Path,
    pub(crate) fast: bool,
}

/// Result of one run.
pub(crate) struct Seen {
    pub(crate) end: RunEnd,
    pub(crate) seconds: u64,
    pub(crate) outcomes: Outcomes,
    pub(crate) counters: Counters,
}

impl Stage<'_> {
    /// Directory where `suite` keeps fetched files.
    pub(crate) fn cache_of(&self, suite: &Suite) -> PathBuf {
        self.cache.join(&suite.name)
    }

    /// Makes `suite` fetch and build its requirements. `Some`: why it cannot be run.
    pub(crate) fn fetch(&self, suite: &Suite, log: &Path) -> Result<Option<String>> {
        let cache = self.cache_of(suite);
        fs::create_dir_all(&cache).with_context(|| cache.display().to_string())?;
        let mut command = Command::new(&suite.script);
        command.arg("fetch").current_dir(&cache);
        self.describe(&mut command, suite);
        let mut child = start(&mut command, log)?;
        let status = wait(&mut child, FETCHING, |_| ())?;
        Ok(match status {
            Some(status) if status.success() => None,
            Some(status) if status.code() == Some(CANNOT_BE_HAD) => Some(last_line(log)),
            Some(status) => Some(format!("fetching ended with {status}: {}", last_line(log))),
            None => Some(format!("fetching took more than {} s", FETCHING.as_secs())),
        })
    }

    /// Runs the tests of `suite`; `only` these, if it can select them.
    pub(crate) fn tests(
        &self,
        suite: &Suite,
        mode: SuiteMode,
        only: &[&str],
        log: &Path,
    ) -> Result<Seen> {
        let directory = tempfile::Builder::new().prefix("seekwire-").tempdir()?;
        let place = |name: &str| directory.path().join(name);
        for name in ["work", "counters"] {
            fs::create_dir(place(name))?;
        }
        let results = place("results");
        File::create(&results)?;
        fs::write(place("only"), only.iter().map(|test| format!("{test}\n")).collect::<String>())?;

        // Processes that the script leaves behind end with its process namespace. The script is not
        // the first process in it, which receives signals and orphans in another way.
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.arg(self.isolated).arg("env");
        if mode.is_accelerated() {
            let mut variable = |name: &str, value: &Path| {
                let mut assignment = OsString::from(name);
                assignment.push("=");
                assignment.push(value);
                command.arg(assignment);
            };
            variable("LD_PRELOAD", self.library);
            variable("SEEKWIRE_DIR", &place("registry"));
            variable("SEEKWIRE_STATS", &place("counters"));
            command.args(mode.variables().iter().map(|(name, value)| format!("{name}={value}")));
        }
        command.args(["bash", "-c", "\"$@\"; exit $?", "bash"]).arg(&suite.script).arg("tests");
        command.current_dir(place("work"));
        self.describe(&mut command, suite);
        command.env("RESULTS", &results);
        if !only.is_empty() {
            command.env("ONLY", place("only"));
        }

        let began = Instant::now();
        let mut child = start(&mut command, log)?;
        let status = wait(&mut child, suite.limit, |elapsed| {
            let tests = read(&results).map_or(0, |outcomes| outcomes.len());
            eprintln!("    {} {mode}: {tests} tests in {} s", suite.name, elapsed.as_secs());
        })?;
        let end = match status {
            Some(status) if status.success() => RunEnd::Finished,
            Some(status) if status.code() == Some(CANNOT_BE_HAD) => RunEnd::NotRun(last_line(log)),
            Some(status) => RunEnd::Died(status.to_string()),
            None => RunEnd::TimedOut,
        };
        Ok(Seen {
            end,
            seconds: began.elapsed().as_secs(),
            outcomes: read(&results)?,
            counters: Counters::sum(&place("counters"))?,
        })
    }

    fn describe(&self, command: &mut Command, suite: &Suite) {
        // Settings of the person who runs the suites must not affect them.
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("SEEKWIRE")) {
                command.env_remove(name);
            }
        }
        command.env_remove("LD_PRELOAD").env_remove("ONLY").env("LC_ALL", "C.UTF-8");
        command.env("CACHE", self.cache_of(suite)).env("FAST", if self.fast { "1" } else { "" });
    }
}

fn start(command: &mut Command, log: &Path) -> Result<Child> {
    let output = File::create(log).with_context(|| log.display().to_string())?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    command.spawn().with_context(|| format!("cannot start {command:?}"))
}

/// Waits for it to exit; `None`: it took longer than `limit` and was killed.
fn wait(
    child: &mut Child,
    limit: Duration,
    report_progress: impl Fn(Duration),
) -> Result<Option<ExitStatus>> {
    let began = Instant::now();
    let end = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    loop {
        let left = limit.saturating_sub(began.elapsed());
        let slice = Timespec::try_from(left.min(SIGN_OF_LIFE))?;
        match poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&slice)) {
            Ok(0) if left.is_zero() => {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            Ok(0) => report_progress(began.elapsed()),
            Ok(_) => return Ok(Some(child.wait()?)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Outcomes of the tests, as a suite has written them. A test that is named twice has passed only
/// if it did so each time.
fn read(results: &Path) -> Result<Outcomes> {
    let mut outcomes = Outcomes::new();
    for line in BufReader::new(File::open(results)?).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        let Some((word, test)) = line.split_once('\t') else { continue };
        let outcome = match word {
            "passed" => TestOutcome::Passed,
            "failed" => TestOutcome::Failed,
            "skipped" => TestOutcome::Skipped,
            _ => continue,
        };
        let merged = outcomes.entry(test.to_owned()).or_insert(outcome);
        if outcome == TestOutcome::Failed || *merged == TestOutcome::Skipped {
            *merged = outcome;
        }
    }
    Ok(outcomes)
}

fn last_line(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_killed() {
        let started = |seconds| Command::new("sleep").arg(seconds).spawn().unwrap();
        assert_eq!(wait(&mut started("1000"), Duration::from_millis(1), |_| ()).unwrap(), None);
        let status = wait(&mut started("0"), Duration::from_secs(1000), |_| ()).unwrap();
        assert!(status.unwrap().success());
    }

    #[test]
    fn a_test_that_is_named_twice_passed_if_it_always_did() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results");
        fs::write(
            &path,
            "passed\ta\nfailed\ta\npassed\ta\npassed\tb\nnoise\nskipped\tc\npassed\tc\n",
        )
        .unwrap();
        let outcomes = read(&path).unwrap();
        assert_eq!(outcomes["a"], TestOutcome::Failed);
        assert_eq!(outcomes["b"], TestOutcome::Passed);
        assert_eq!(outcomes["c"], TestOutcome::Passed);
        assert_eq!(outcomes.len(), 3);
    }
}
