//! Two processes that exchange bytes and measure it: the peers of the socket experiments.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use seekwire_testbed::{Side, Testbed};
use serde::{Deserialize, Serialize};

use crate::launch::{Mode, Program, Running, Traffic};
use crate::record::Metric;
use crate::schedule::Trial;

pub(crate) const LATENCY: Metric = Metric::lower("round trip p50", "µs");
pub(crate) const LATENCY_TAIL: Metric = Metric::lower("round trip p99", "µs");
pub(crate) const BANDWIDTH: Metric = Metric::higher("bandwidth", "GB/s");
pub(crate) const EFFORT: Metric = Metric::lower("processor time", "s/GB");
pub(crate) const RATE: Metric = Metric::higher("message rate", "M/s");
pub(crate) const CONNECTIONS: Metric = Metric::higher("connections", "1/s");

/// Operation on messages; described at the head of `peer/streambench.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    Pingpong,
    Bandwidth,
    Rate,
    Short,
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pingpong => "pingpong",
            Self::Bandwidth => "bandwidth",
            Self::Rate => "rate",
            Self::Short => "short",
        }
    }
}

/// One test: an operation with messages of a size (bytes), for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) operation: Operation,
    pub(crate) size: u64,
    pub(crate) time: Duration,
}

impl Test {
    /// The test as the peers' option `--test` wants it.
    pub(crate) fn argument(&self) -> String {
        let Self { operation, size, time } = self;
        format!("{}:{size}:{}", operation.name(), time.as_millis())
    }
}

/// A peer's report about a test, one JSON object per line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) operation: Operation,
    /// Bytes per message.
    pub(crate) size: u64,
    /// Messages (round trips, connections) within `seconds`.
    pub(crate) messages: u64,
    pub(crate) seconds: f64,
    /// User and system time of this end, and of the other one.
    pub(crate) cpu_seconds: f64,
    pub(crate) peer_cpu_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p50_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99_ns: Option<u64>,
    /// Known to peers that use Seekwire themselves; for others the library counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) traffic: Option<Traffic>,
}

impl Report {
    /// The readings that the report holds.
    pub(crate) fn readings(&self) -> Vec<(Metric, f64)> {
        let per_second = self.messages as f64 / self.seconds;
        let microseconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e3);
        match self.operation {
            Operation::Pingpong => [(LATENCY, self.p50_ns), (LATENCY_TAIL, self.p99_ns)]
                .into_iter()
                .filter_map(|(metric, ns)| Some((metric, microseconds(ns)?)))
                .collect(),
            Operation::Bandwidth => {
                let gigabytes = self.messages as f64 * self.size as f64 / 1e9;
                let effort = (self.cpu_seconds + self.peer_cpu_seconds) / gigabytes;
                vec![(BANDWIDTH, gigabytes / self.seconds), (EFFORT, effort)]
            }
            Operation::Rate => vec![(RATE, per_second / 1e6)],
            Operation::Short => vec![(CONNECTIONS, per_second)],
        }
    }
}

/// The programs that exchange the bytes.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// The unmodified C program.
    Program(PathBuf),
    /// The `lab-peer` role of this executable, with one of its APIs.
    Role(PathBuf, &'static str),
}

/// The sockets through which they exchange them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Socket {
    Tcp,
    Unix,
}

/// Two places, each with one of the peers.
#[derive(Clone, Debug)]
pub(crate) struct LinkedHosts {
    /// The client is at the near end, and the server at the far one.
    pub(crate) testbed: Arc<Testbed>,
    /// Variables for the client.
    pub(crate) near: Vec<(&'static str, OsString)>,
    /// Variables for the server.
    pub(crate) far: Vec<(&'static str, OsString)>,
}

/// A pair of peers, server and client.
#[derive(Clone, Debug)]
pub(crate) struct PeerPair {
    pub(crate) peer: Peer,
    pub(crate) socket: Socket,
    pub(crate) mode: Mode,
    /// `block`, `spin` or `epoll`.
    pub(crate) wait: &'static str,
    /// Variables for both processes.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Where the two are, unless both are here.
    pub(crate) hosts: Option<LinkedHosts>,
}

impl PeerPair {
    pub(crate) fn new(peer: Peer, socket: Socket, mode: Mode) -> Self {
        Self { peer, socket, mode, wait: "block", environment: Vec::new(), hosts: None }
    }

    pub(crate) fn wait(mut self, wait: &'static str) -> Self {
        self.wait = wait;
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl ToString) -> Self {
        self.environment.push((name, value.to_string()));
        self
    }

    pub(crate) fn at(mut self, hosts: LinkedHosts) -> Self {
        self.hosts = Some(hosts);
        self
    }

    /// Runs a server and a client that runs `tests` in order; every report goes to `report`, even
    /// if a later test fails.
    pub(crate) fn run(
        &self,
        tests: &[Test],
        trial: &mut Trial,
        mut report: impl FnMut(&mut Trial, Report),
    ) -> Result<()> {
        let server = self.serve()?;
        let outcome = self.start(Side::Near, self.client(&server, tests))?.wait();
        let (stdout, error) = match outcome {
            Ok(finished) => {
                trial.count(finished.traffic);
                (finished.stdout, None)
            }
            Err(error) => (error.stdout().to_owned(), Some(error)),
        };
        for reported in parse(&stdout)? {
            trial.count(reported.traffic);
            report(trial, reported);
        }
        let obituary = server.running.obituary();
        server.running.stop()?;
        // Short connections end before they share memory.
        let is_short = |test: &Test| test.operation == Operation::Short;
        let is_plain = matches!(self.mode, Mode::Plain) || tests.iter().all(is_short);
        match (error, obituary) {
            (None, _) if is_plain => Ok(()),
            (None, _) => trial.require_ring(),
            (Some(error), None) => Err(error.into()),
            (Some(error), Some(obituary)) => Err(anyhow!("the server {obituary} ({error})")),
        }
    }

    /// Starts a server and waits until it listens.
    pub(crate) fn serve(&self) -> Result<PeerServer> {
        let directory = tempfile::Builder::new().prefix("seekwire-").tempdir();
        let directory = directory.context("cannot make a directory for a socket")?;
        let path = directory.path().join("socket");
        let host = match &self.hosts {
            Some(hosts) => hosts.testbed.end(Side::Far).address(),
            None => Ipv4Addr::LOCALHOST,
        };
        let program = self.program("serve", Side::Far);
        let program = match self.socket {
            Socket::Tcp => program.arg("--tcp").arg(format!("{host}:0")),
            Socket::Unix => program.arg("--unix").arg(&path),
        };
        let running = self.start(Side::Far, program)?;
        let ready = running.wait_for_line(|line| line.starts_with("ready "))?;
        let address = match self.socket {
            Socket::Tcp => {
                ["--tcp".to_owned(), format!("{host}:{}", ready.trim_start_matches("ready "))]
            }
            Socket::Unix => ["--unix".to_owned(), path.to_string_lossy().into_owned()],
        };
        Ok(PeerServer { running, address, _directory: directory })
    }

    /// A client of `server` that runs `tests`, not started yet.
    pub(crate) fn client(&self, server: &PeerServer, tests: &[Test]) -> Program {
        let time: Duration = tests.iter().map(|test| test.time).sum();
        let tests = tests.iter().flat_map(|test| ["--test".to_owned(), test.argument()]);
        // Generous, so that a slow machine does not look like a hang.
        self.program("drive", Side::Near)
            .args(&server.address)
            .args(tests)
            .timeout(time * 4 + Duration::from_secs(20))
    }

    /// Starts the program of one side, where that is.
    fn start(&self, side: Side, program: Program) -> Result<Running> {
        Ok(match &self.hosts {
            Some(hosts) => hosts.testbed.end(side).run(|| program.start())??,
            None => program.start()?,
        })
    }

    fn program(&self, action: &str, side: Side) -> Program {
        let program = match &self.peer {
            Peer::Program(path) => Program::new(path, &self.mode).arg(action),
            Peer::Role(path, api) => Program::role(path, &self.mode).args([action, "--api", api]),
        };
        let program = program.args(["--wait", self.wait]);
        let program = self
            .environment
            .iter()
            .fold(program, |program, (name, value)| program.env(name, value));
        let own = self.hosts.iter().flat_map(|hosts| match side {
            Side::Near => &hosts.near,
            Side::Far => &hosts.far,
        });
        own.fold(program, |program, (name, value)| program.env(name, value))
    }
}

/// A server that listens.
#[derive(Debug)]
pub(crate) struct PeerServer {
    pub(crate) running: Running,
    address: [String; 2],
    /// Holds the UNIX socket.
    _directory: tempfile::TempDir,
}

/// The reports among the lines that a client printed.
pub(crate) fn parse(stdout: &str) -> Result<Vec<Report>> {
    let lines = stdout.lines().filter(|line| line.starts_with('{'));
    lines
        .map(|line| {
            serde_json::from_str(line).with_context(|| format!("not a report of a peer: {line}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_become_readings_in_their_units() {
        let line = r#"{"operation":"pingpong","size":64,"messages":10,"seconds":0.5,"cpu_seconds":0.1,"peer_cpu_seconds":0.1,"min_ns":1,"p50_ns":1500,"p99_ns":2500,"max_ns":9}"#;
        let reports = parse(&format!("connected\n{line}\n")).unwrap();
        assert_eq!(reports[0].readings(), [(LATENCY, 1.5), (LATENCY_TAIL, 2.5)]);
        let bulk = Report {
            operation: Operation::Bandwidth,
            size: 1 << 20,
            messages: 1000,
            p50_ns: None,
            ..reports[0]
        };
        assert_eq!(bulk.readings(), [(BANDWIDTH, 1.048_576 / 0.5), (EFFORT, 0.2 / 1.048_576)]);
    }

    #[test]
    fn cut_off_report_is_an_error() {
        assert!(parse("{\"operation\":\"pingpong\",\"si").is_err());
    }
}
