//! Pairs of a server and its clients: how they are started, compared and measured.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::context::Context;
use crate::launch::{self, ACCELERATED, Error, Finished, Mode, PLAIN, Program, Running};
use crate::record::Metric;
use crate::schedule::{Group, Trial, Variant};

pub(super) const BANDWIDTH: Metric = Metric::higher("bandwidth", "GB/s");
/// Requests by time.
pub const REQUESTS: Metric = Metric::higher("requests", "1/s");
/// Median time of a round trip.
pub const LATENCY: Metric = Metric::lower("round trip p50", "µs");
/// Time within which 99 of 100 round trips complete.
pub const LATENCY_TAIL: Metric = Metric::lower("round trip p99", "µs");

/// The two variants of a case; `run` returns the function that runs it in a mode.
pub(super) fn compare<'a, F>(
    context: &Context<'_>,
    case: impl Into<String>,
    mut run: impl FnMut(Mode) -> F,
) -> Group<'a>
where
    F: FnMut(&mut Trial) -> Result<()> + 'a,
{
    let accelerated = match context.accelerated() {
        Ok(mode) => {
            let mut run = run(mode);
            Variant::new(ACCELERATED, move |trial: &mut Trial| {
                run(trial)?;
                trial.require_ring()
            })
        }
        Err(error) => Variant::unavailable(ACCELERATED, format!("{error:#}")),
    };
    Group::new(case, vec![Variant::new(PLAIN, run(Mode::Plain)), accelerated])
}

/// A server that starts when it is first needed and is shared by all cases of one mode.
pub(super) struct Shared<S>(Rc<OnceCell<Result<S, String>>>);

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S> Shared<S> {
    pub(super) fn new() -> Self {
        Self(Rc::new(OnceCell::new()))
    }

    pub(super) fn get(&self, start: impl FnOnce() -> Result<S>) -> Result<&S> {
        let started = self.0.get_or_init(|| start().map_err(|error| format!("{error:#}")));
        started.as_ref().map_err(|why| anyhow!("{why}"))
    }
}

/// One shared server for each mode.
pub(super) struct PerMode<S> {
    plain: Shared<S>,
    accelerated: Shared<S>,
}

impl<S> PerMode<S> {
    pub(super) fn new() -> Self {
        Self { plain: Shared::new(), accelerated: Shared::new() }
    }

    pub(super) fn of(&self, mode: &Mode) -> Shared<S> {
        if is_plain(mode) { self.plain.clone() } else { self.accelerated.clone() }
    }
}

pub(super) fn is_plain(mode: &Mode) -> bool {
    matches!(mode, Mode::Plain)
}

/// A server process and the port it listens on.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) port: u16,
    pub(super) process: Running,
}

impl Listening {
    /// Runs a client of this server to its end; if that fails because the server has died, the
    /// error reports so.
    pub(super) fn serve(
        &self,
        client: Program,
        explain: impl FnOnce(Error) -> anyhow::Error,
    ) -> Result<Finished> {
        client.run().map_err(|error| match self.process.obituary() {
            Some(obituary) => anyhow!("the server {obituary} ({error})"),
            None => explain(error),
        })
    }
}

/// Starts a server on a free port. Another process may take a port meanwhile, so a failure gets
/// another try.
pub(super) fn listen(
    program: impl Fn(u16) -> Program,
    ready: impl Fn(&Running, u16) -> Result<(), Error>,
) -> Result<Listening, Error> {
    const ATTEMPTS: usize = 3;
    let mut attempt = 1;
    loop {
        let port = launch::free_port()?;
        let process = program(port).timeout(Duration::from_secs(20)).start()?;
        match ready(&process, port) {
            Ok(()) => return Ok(Listening { port, process }),
            Err(Error::EndedEarly { .. }) if attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Amount of work for one run, found in the warm-up and then the same for both modes.
#[derive(Clone, Debug, Default)]
pub struct WorkAmount(Rc<Cell<Option<f64>>>);

impl WorkAmount {
    /// Notes the rate (units of work per second) that a warm-up run reached; the plain run's takes
    /// precedence.
    pub fn learn(&self, is_plain: bool, rate: f64) {
        if is_plain || self.0.get().is_none() {
            self.0.set(Some(rate));
        }
    }

    /// Units of work that take about `time`; `first` in the warm-up, when nothing is known yet.
    pub fn amount(&self, trial: &Trial, time: Duration, first: u64) -> u64 {
        match self.0.get() {
            Some(rate) if !trial.is_warm_up() => ((rate * time.as_secs_f64()) as u64).max(1),
            _ => first,
        }
    }
}

/// Adds to an error how to get a program that is missing.
pub(super) fn with_package(error: Error, package: &str) -> anyhow::Error {
    match error {
        Error::NotInstalled { program } => {
            anyhow!("{program} is not installed (Debian package: {package})")
        }
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_server_starts_once_and_remembers_its_failure() {
        let shared = Shared::new();
        let other = shared.clone();
        let mut starts = 0;
        assert_eq!(
            *shared
                .get(|| {
                    starts += 1;
                    Ok(7)
                })
                .unwrap(),
            7
        );
        assert_eq!(
            *other
                .get(|| {
                    starts += 1;
                    Ok(8)
                })
                .unwrap(),
            7
        );
        assert_eq!(starts, 1);
        let failed: Shared<u8> = Shared::new();
        assert!(failed.get(|| Err(anyhow!("no port"))).is_err());
        assert!(failed.get(|| Ok(1)).is_err());
    }
}
