//! `sockperf ping-pong` over TCP: round trips of 64 B.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::pairs::{
    LATENCY, LATENCY_TAIL, Listening, PerMode, Shared, compare, listen, with_package,
};
use crate::context::Context;
use crate::launch::{Mode, Program, Running};
use crate::schedule::{Group, Trial};

/// Messages of 64 bytes, back and forth.
pub const CASE: &str = "sockperf ping-pong, 64 B";

const PACKAGE: &str = "sockperf";

pub(super) fn group<'a>(context: &Context<'_>, seconds: u32) -> Group<'a> {
    let servers = PerMode::new();
    compare(context, CASE, |mode| {
        let server = servers.of(&mode);
        move |trial: &mut Trial| run(trial, &server, &mode, seconds)
    })
}

fn run(trial: &mut Trial, server: &Shared<Listening>, mode: &Mode, seconds: u32) -> Result<()> {
    let server = server.get(|| start(mode))?;
    if trial.is_warm_up() {
        // It warms up by itself, and takes its time.
        return Ok(());
    }
    let client = Program::new("sockperf", mode)
        .args(["ping-pong", "--tcp", "--ip", "127.0.0.1", "--port", &server.port.to_string()])
        .args(["--msg-size", "64", "--time", &seconds.to_string(), "--full-rtt"])
        // By default it makes room for 600,000 messages a second and fails beyond.
        .args(["--mps", "6000000"])
        // sockperf spends some seconds of its own on calibration.
        .timeout(Duration::from_secs(u64::from(seconds) + 20));
    let finished = server.serve(client, |error| with_package(error, PACKAGE))?;
    trial.count(finished.traffic);
    trial.record(CASE, None, LATENCY, percentile(&finished.stdout, "50.000")?);
    trial.record(CASE, None, LATENCY_TAIL, percentile(&finished.stdout, "99.000")?);
    Ok(())
}

fn start(mode: &Mode) -> Result<Listening> {
    let program = |port: u16| {
        Program::new("sockperf", mode).args([
            "server",
            "--tcp",
            "--ip",
            "127.0.0.1",
            "--port",
            &port.to_string(),
        ])
    };
    // The line about the thread is the last one before it waits for clients.
    let ready =
        |process: &Running, _| process.wait_for_line(|line| line.contains("[tid ")).map(|_| ());
    listen(program, ready).map_err(|error| with_package(error, PACKAGE))
}

/// A percentile of the report, in microseconds.
fn percentile(report: &str, percent: &str) -> Result<f64> {
    let value = report.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        name.trim_end().ends_with(&format!("percentile {percent}")).then(|| value.trim())
    });
    let value = value.with_context(|| format!("sockperf reported no percentile {percent}"))?;
    value.parse().with_context(|| format!("sockperf reported '{value}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_found() {
        let report = "sockperf: ---> percentile 99.000 =   74.129\nsockperf: ---> percentile 50.000 =   53.999\n";
        assert_eq!(percentile(report, "50.000").unwrap(), 53.999);
        assert_eq!(percentile(report, "99.000").unwrap(), 74.129);
        assert!(percentile(report, "9.000").is_err());
    }
}
