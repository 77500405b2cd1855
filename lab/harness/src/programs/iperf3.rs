//! `iperf3`: one stream of 64 KiB writes, in both directions, and one of writes of 100 bytes: its
//! receiver calls select(2) before each read, and a sender that is faster fills the ring.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use serde_json::Value;

use super::pairs::{
    BANDWIDTH, Listening, PerMode, Shared, WorkAmount, compare, is_plain, listen, with_package,
};
use crate::context::Context;
use crate::launch::{Error, Mode, Program, Running};
use crate::schedule::{Group, Trial};

/// From the client to the server.
pub const FORWARD: &str = "iperf3, one stream";
/// From the server to the client.
pub const REVERSE: &str = "iperf3, reverse";
pub(super) const SMALL: &str = "iperf3, writes of 100 B";

const PACKAGE: &str = "iperf3";

/// One of its runs.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    is_reverse: bool,
    /// Bytes of each write, as iperf3 reads them.
    length: &'static str,
    /// Bytes of the first run.
    first: u64,
}

const CASES: [Case; 3] = [
    Case { name: FORWARD, is_reverse: false, length: "64K", first: 512 << 20 },
    Case { name: REVERSE, is_reverse: true, length: "64K", first: 512 << 20 },
    Case { name: SMALL, is_reverse: false, length: "100", first: 16 << 20 },
];

pub(super) fn groups<'a>(context: &Context<'_>, time: Duration) -> Vec<Group<'a>> {
    let servers = PerMode::new();
    CASES
        .into_iter()
        .map(|case| {
            let work = WorkAmount::default();
            compare(context, case.name, |mode| {
                let (server, work) = (servers.of(&mode), work.clone());
                move |trial: &mut Trial| run(trial, &server, &mode, case, &work, time)
            })
        })
        .collect()
}

fn run(
    trial: &mut Trial,
    server: &Shared<Listening>,
    mode: &Mode,
    case: Case,
    work: &WorkAmount,
    time: Duration,
) -> Result<()> {
    let server = server.get(|| start(mode))?;
    let bytes = work.amount(trial, time, case.first);
    let client = Program::new("iperf3", mode)
        .args(["--client", "127.0.0.1", "--port", &server.port.to_string()])
        .args(["--length", case.length, "--bytes", &bytes.to_string(), "--json"])
        .args(case.is_reverse.then_some("--reverse"));
    let finished = server.serve(client, explain)?;
    trial.count(finished.traffic);
    let bits_per_second = received(&finished.stdout)?;
    work.learn(is_plain(mode), bits_per_second / 8.0);
    trial.record(case.name, None, BANDWIDTH, bits_per_second / 8e9);
    Ok(())
}

fn start(mode: &Mode) -> Result<Listening> {
    let program = |port: u16| {
        Program::new("iperf3", mode).args([
            "--server",
            "--bind",
            "127.0.0.1",
            "--port",
            &port.to_string(),
            "--forceflush",
        ])
    };
    let ready = |process: &Running, _| {
        process.wait_for_line(|line| line.starts_with("Server listening")).map(|_| ())
    };
    listen(program, ready).map_err(|error| with_package(error, PACKAGE))
}

/// The rate that the receiver saw.
pub fn received(json: &str) -> Result<f64> {
    let report: Value = serde_json::from_str(json).context("iperf3 did not print JSON")?;
    report["end"]["sum_received"]["bits_per_second"].as_f64().context("iperf3 reported no rate")
}

/// With --json, iperf3 reports errors inside its report.
fn explain(error: Error) -> anyhow::Error {
    let report: Value = serde_json::from_str(error.stdout()).unwrap_or_default();
    match report["error"].as_str() {
        Some(reason) => anyhow!("iperf3 failed: {reason}"),
        None => with_package(error, PACKAGE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_of_the_receiver_is_read() {
        let report = r#"{"end":{"sum_sent":{"bits_per_second":9e9},"sum_received":{"bits_per_second":8e9}}}"#;
        assert_eq!(received(report).unwrap(), 8e9);
        assert!(received("{}").is_err());
    }
}
