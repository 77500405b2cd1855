//! Other programs between the two namespaces, to check our own measurements.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use seekwire_testbed::{Side, Testbed};
use serde_json::Value;

use crate::launch::{self, Error, Finished, Mode, Program, Running};

/// sockperf spends some seconds of its own on calibration.
const TEST_LIMIT: Duration = Duration::from_secs(40);

/// Programs, by the quantities measured with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// Stream.
    Iperf3,
    /// Stream, and one-way latency.
    Qperf,
    /// One-way latency.
    Sockperf,
}

impl Tool {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Iperf3 => "iperf3",
            Self::Qperf => "qperf",
            Self::Sockperf => "sockperf",
        }
    }

    /// Megabits per second of one stream of messages of `size` bytes.
    pub(crate) fn stream(self, testbed: &Testbed, size: usize, seconds: u64) -> Result<f64> {
        let (size, seconds) = (size.to_string(), seconds.to_string());
        match self {
            Self::Iperf3 => {
                let port = port(testbed)?;
                let server = ["--server", "--one-off", "--forceflush", "--port", &port];
                let client =
                    ["--json", "--congestion", "cubic", "--length", &size, "--time", &seconds];
                let address = testbed.end(Side::Far).address().to_string();
                let ready = |line: &str| line.starts_with("Server listening");
                let to = ["--client", &address, "--port", &port];
                let printed =
                    self.run(testbed, &server, Some(&ready), &[&to[..], &client[..]].concat())?;
                received(&printed)
            }
            Self::Qperf => {
                let bytes =
                    self.qperf(testbed, &["--msg_size", &size, "--time", &seconds], "tcp_bw")?;
                Ok(bytes * 8.0 / 1e6)
            }
            Self::Sockperf => Err(anyhow!("it has no stream")),
        }
    }

    /// Microseconds one way, with messages of `size` bytes.
    pub(crate) fn latency(self, testbed: &Testbed, size: usize, seconds: u64) -> Result<f64> {
        let (size, seconds) = (size.to_string(), seconds.to_string());
        match self {
            Self::Sockperf => {
                let address = testbed.end(Side::Far).address().to_string();
                let port = port(testbed)?;
                let to = ["--tcp", "--ip", &address, "--port", &port];
                let server = [&["server"][..], &to[..]].concat();
                let client = ["--msg-size", &size, "--time", &seconds, "--mps", "6000000"];
                let client = [&["ping-pong"][..], &to[..], &client[..]].concat();
                // The line about the thread is the last one before it waits for clients.
                let ready = |line: &str| line.contains("[tid ");
                latency(&self.run(testbed, &server, Some(&ready), &client)?)
            }
            Self::Qperf => {
                let nanoseconds =
                    self.qperf(testbed, &["--msg_size", &size, "--time", &seconds], "tcp_lat")?;
                Ok(nanoseconds / 1e3)
            }
            Self::Iperf3 => Err(anyhow!("it has no requests")),
        }
    }

    /// The value of a test, in the unit that -uu selects.
    fn qperf(self, testbed: &Testbed, options: &[&str], test: &str) -> Result<f64> {
        let address = testbed.end(Side::Far).address().to_string();
        // Its client waits by itself until the server listens.
        let client = [&["-uu", "--wait_server", "10"][..], options, &[&address, test][..]].concat();
        value(&self.run(testbed, &[], None, &client)?)
    }

    /// Runs a server and a client of it, and returns what the client printed.
    fn run(
        self,
        testbed: &Testbed,
        server: &[&str],
        ready: Option<&dyn Fn(&str) -> bool>,
        client: &[&str],
    ) -> Result<String> {
        let start = |side: Side, arguments: &[&str]| -> Result<Running> {
            let program =
                Program::new(self.name(), &Mode::Plain).args(arguments).timeout(TEST_LIMIT);
            super::test_processes::start(testbed, side, program)?
                .map_err(|error| self.explain(error))
        };
        let server = start(Side::Far, server)?;
        if let Some(ready) = ready {
            server.wait_for_line(ready).map_err(|error| self.explain(error))?;
        }
        let done: Result<Finished, Error> = start(Side::Near, client)?.wait();
        let obituary = server.obituary().filter(|_| done.is_err());
        server.stop()?;
        match (done, obituary) {
            (Ok(finished), _) => Ok(finished.stdout),
            (Err(error), Some(obituary)) => Err(anyhow!("the server {obituary} ({error})")),
            (Err(error), None) => Err(self.explain(error)),
        }
    }

    /// The Debian packages have the names of the programs.
    fn explain(self, error: Error) -> anyhow::Error {
        if let Error::NotInstalled { program } = &error {
            return anyhow!("{program} is not installed (Debian package: {program})");
        }
        // With --json, iperf3 reports errors inside its report.
        let report: Value = serde_json::from_str(error.stdout()).unwrap_or_default();
        match report["error"].as_str() {
            Some(reason) => anyhow!("iperf3 failed: {reason}"),
            None => error.into(),
        }
    }
}

/// A port of the far end that is not in use and was not a moment ago: sockperf cannot take it over.
fn port(testbed: &Testbed) -> Result<String> {
    Ok(testbed.end(Side::Far).run(launch::free_port)??.to_string())
}

/// The rate that iperf3's receiver saw, in Mb/s.
fn received(json: &str) -> Result<f64> {
    let report: Value = serde_json::from_str(json).context("iperf3 did not print JSON")?;
    let rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(rate.context("iperf3 reported no rate")? / 1e6)
}

/// The mean one-way latency in sockperf's report.
fn latency(report: &str) -> Result<f64> {
    let mean = report.lines().find_map(|line| {
        let (_, rest) = line.split_once("avg-latency=")?;
        rest.split_whitespace().next()?.parse().ok()
    });
    mean.context("sockperf reported no latency")
}

/// The only number of qperf's report: `    latency  =  34755 ns`.
fn value(report: &str) -> Result<f64> {
    let number = report.lines().find_map(|line| {
        let (_, rest) = line.split_once('=')?;
        rest.split_whitespace().next()?.parse().ok()
    });
    number.context("qperf reported no value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_understood() {
        let json = r#"{"end":{"sum_sent":{"bits_per_second":9e9},"sum_received":{"bits_per_second":8e9}}}"#;
        assert_eq!(received(json).unwrap(), 8000.0);
        assert_eq!(value("tcp_lat:\n    latency  =  34755 ns\n").unwrap(), 34755.0);
        let text = "sockperf: ====> avg-latency=12.345 (std-dev=1.5, mean-ad=0.3)\n";
        assert_eq!(latency(text).unwrap(), 12.345);
        for nothing in ["", "{}", "no number ="] {
            assert!(
                received(nothing).is_err() && value(nothing).is_err() && latency(nothing).is_err()
            );
        }
    }

    #[test]
    fn they_measure_between_namespaces_again_and_again() {
        let testbed = match Testbed::new() {
            Ok(testbed) => testbed,
            Err(why @ seekwire_testbed::Error::NotPermitted { .. }) => {
                return seekwire_program::tell(format_args!("not run: {why}"));
            }
            Err(why) => panic!("{why}"),
        };
        for tool in [Tool::Iperf3, Tool::Qperf, Tool::Sockperf] {
            for _ in 0..2 {
                let measured = match tool {
                    Tool::Iperf3 => tool.stream(&testbed, 64 << 10, 1),
                    Tool::Qperf | Tool::Sockperf => tool.latency(&testbed, 64, 1),
                };
                match measured {
                    Ok(value) => assert!(value > 0.0, "{tool:?}"),
                    Err(error) => {
                        assert!(error.to_string().contains("is not installed"), "{error:#}")
                    }
                }
            }
        }
    }
}
