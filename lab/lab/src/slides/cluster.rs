//! This project's server with workers: the server at one end of a link of 1 Gb/s, and the workers
//! at the other, each a host with a share of a processor.
//!
//! A host has exactly that share, whatever the others do: so a few processors can play many hosts,
//! and one of these can be slow.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use seekwire_flow::DealingPolicy;
use seekwire_testbed::{CpuQuota, Side, TestHost, Testbed};
use tempfile::TempDir;

use super::load::{self, ClientLoad, LoadMeasurement, Pace};
use super::servers::{self, slides_program};
use crate::launch::{Mode, Program, Running};

/// Share of a host, in percent of a processor: five of them leave some time to the load, on two.
pub(crate) const SHARE: f64 = 30.0;
/// How many times as long a slow one takes.
pub(crate) const SLOWNESS: f64 = 10.0;
/// Bits a second, each way, for the traffic of all workers with the server.
pub(crate) const RATE: u64 = 1_000_000_000;

/// Ports of a namespace in which nothing else listens.
const PORT: u16 = 8080;
const WORKERS: u16 = 7000;
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

/// The workers, and how work is dealt to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerSetup {
    pub(crate) workers: usize,
    pub(crate) is_one_slow: bool,
    pub(crate) dealing: DealingPolicy,
}

/// The two ends, or why there are none.
pub(crate) struct TestLink(Result<Testbed, String>);

/// A server and its workers, all of which have started. They end when this is dropped.
pub(crate) struct WorkerCluster<'l> {
    near: &'l TestHost,
    server: Running,
    workers: Vec<Running>,
    /// Each lives as long as its host.
    _shares: Vec<CpuQuota>,
    /// Holds the secret.
    _files: TempDir,
}

impl TestLink {
    pub(crate) fn new() -> Self {
        let testbed = Testbed::new().and_then(|testbed| {
            [Side::Near, Side::Far]
                .into_iter()
                .try_for_each(|side| testbed.end(side).limit_rate(RATE))?;
            Ok(testbed)
        });
        Self(testbed.map_err(|error| error.to_string()))
    }

    /// Starts a server of the slides in `directory`, and its workers.
    ///
    /// # Errors
    ///
    /// If there are no namespaces or no quotas here, or a process does not start.
    pub(crate) fn start(
        &self,
        command: &Path,
        directory: &Path,
        setup: WorkerSetup,
    ) -> Result<WorkerCluster<'_>> {
        let none = |why| anyhow!("there are no network namespaces here: {why}");
        let testbed = self.0.as_ref().map_err(none)?;
        let (near, far) = (testbed.end(Side::Near), testbed.end(Side::Far));
        let files = tempfile::tempdir().context("cannot make a directory for a secret")?;
        let secret = files.path().join("secret");
        let digits: String = (0..64).map(|_| fastrand::digit(16)).collect();
        std::fs::write(&secret, digits).context("cannot write a secret")?;
        let host = Host { program: slides_program(command)?, secret };
        let address = format!("{}:{WORKERS}", near.address());
        let dealing = setup.dealing.name();
        let (server, share) = host.start(near, SHARE, |program| {
            let program = servers::options(program.arg(directory), &format!("127.0.0.1:{PORT}"));
            program.args(["--workers", &address, "--policy", dealing])
        })?;
        let mut shares = vec![share];
        near.run(|| server.wait_for_port(([127, 0, 0, 1], PORT).into()))??;
        let mut workers = Vec::new();
        for number in 0..setup.workers {
            let is_slow = setup.is_one_slow && number == 0;
            let share = if is_slow { SHARE / SLOWNESS } else { SHARE };
            let worker = host
                .start(far, share, |program| program.args(["worker", &address, "--log", "warn"]));
            let (worker, share) = worker?;
            workers.push(worker);
            shares.push(share);
        }
        let cluster = WorkerCluster { near, server, workers, _shares: shares, _files: files };
        cluster.wait_for_workers().map_err(|error| cluster.explain(error))?;
        Ok(cluster)
    }
}

/// Files that all hosts share.
struct Host {
    program: PathBuf,
    secret: PathBuf,
}

impl Host {
    /// With a thread for each kind of work, since it has less than a processor.
    fn start(
        &self,
        end: &TestHost,
        share: f64,
        with: impl FnOnce(Program) -> Program,
    ) -> Result<(Running, CpuQuota)> {
        let program = Program::new(&self.program, &Mode::Plain).arg("slides");
        let program = with(program).args(["--threads", "1", "--worker-secret"]).arg(&self.secret);
        // No program is really on another host, and none may notice that.
        let program =
            program.env("SEEKWIRE", "off").env("SEEKWIRE_SPIN_US", "0").timeout(STARTUP_TIMEOUT);
        let quota = CpuQuota::new(share)?;
        let running = end.run(|| program.start())??;
        quota.add(running.id())?;
        Ok((running, quota))
    }
}

impl WorkerCluster<'_> {
    /// Requests paths, at the server's end of the link.
    ///
    /// # Errors
    ///
    /// As [`load::run`].
    pub(crate) fn load(
        &self,
        paths: &[String],
        clients: &[ClientLoad],
        pace: Pace,
    ) -> Result<LoadMeasurement> {
        let address = ([127, 0, 0, 1], PORT).into();
        let measured = self.near.run(|| load::run(address, paths, clients, pace))?;
        measured.map_err(|error| self.explain(error))
    }

    /// Pieces of work that workers have done.
    ///
    /// # Errors
    ///
    /// If the server does not report it.
    pub(crate) fn done(&self) -> Result<f64> {
        self.count("worker_done_total")
    }

    fn count(&self, name: &str) -> Result<f64> {
        self.near.run(|| servers::count(([127, 0, 0, 1], PORT).into(), name))?
    }

    /// Polls until all workers have come, because nothing announces the last one.
    fn wait_for_workers(&self) -> Result<()> {
        let until = Instant::now() + STARTUP_TIMEOUT;
        while self.count("worker_works")? < self.workers.len() as f64 {
            ensure!(
                Instant::now() < until,
                "workers have not connected within {} s",
                STARTUP_TIMEOUT.as_secs()
            );
            if let Some(obituary) = self.workers.iter().find_map(Running::obituary) {
                bail!(obituary);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let mut all = std::iter::once(&self.server).chain(&self.workers);
        match all.find_map(Running::obituary) {
            Some(obituary) => error.context(obituary),
            None => error,
        }
    }
}
