//! Programs in two guests: a server in one of them, and clients in the other, both plain or both
//! accelerated. The bytes of an accelerated client must go through the memory that the guests
//! share.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::bench::{self, BANDWIDTH, Operation, Report, Test};
use crate::experiments::links;
use crate::guests::{BOTH, Guest, Guests};
use crate::launch::{Traffic, traffic_of_each};
use crate::programs::redis::{Figures, RedisCase};
use crate::programs::{LATENCY, LATENCY_TAIL, REQUESTS, WorkAmount, iperf3};
use crate::record::Metric;
use crate::schedule::Trial;

/// Name of the C program of `sockets` in the guests.
pub(super) const STREAMBENCH: &str = "streambench";

/// Executed by both guests, in user space and in the kernel, while they were not idle.
pub(super) const INSTRUCTIONS: Metric = Metric::lower("instructions", "1/message");

/// More than a program takes to start in an emulated machine.
const START: Duration = Duration::from_secs(30);
/// Where the library leaves its counters.
const COUNTERS: &str = "/dev/shm/stats";

/// How programs are started.
#[derive(Clone, Debug)]
pub(super) enum StartMode {
    Plain,
    /// Under `seekwire run`, with these variables.
    Accelerated(Vec<(&'static str, u64)>),
}

impl StartMode {
    /// Prefix of a program's name.
    fn prefix(&self) -> String {
        let Self::Accelerated(variables) = self else { return String::new() };
        let set: String =
            variables.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        format!("env SEEKWIRE_STATS={COUNTERS} {set}seekwire run -- ")
    }
}

/// The two ends of a measurement.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    pub(super) guests: Rc<Guests>,
    pub(super) mode: StartMode,
    /// Where servers are.
    pub(super) server: Guest,
}

impl Ends {
    /// Runs `work`, then ends everything that it started.
    pub(super) fn with<T>(&self, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        for guest in BOTH {
            self.guests.on(guest, "mkdir", &format!("mkdir -p {COUNTERS}"), START)?;
        }
        let done = work(self);
        let tidied = self.guests.tidy();
        done.and_then(|done| tidied.map(|()| done))
    }

    /// Starts a server, and waits until it has written a line like `ready`, a pattern of the shell.
    fn serve(&self, name: &str, ready: &str, command: &str) -> Result<()> {
        let script = format!("start {name} '{ready}' {}{command}", self.mode.prefix());
        self.guests.on(self.server, &first_word(command), &script, START)?;
        Ok(())
    }

    /// Starts the C program as a server: its address.
    fn serve_streambench(&self, name: &str) -> Result<String> {
        let host = self.server.address();
        self.serve(name, "ready *", &format!("{STREAMBENCH} serve --tcp {host}:0"))?;
        let script = format!("sed -n 's/^ready //p' /tmp/{name}");
        let port = self.guests.on(self.server, "the port", &script, START)?;
        Ok(format!("{host}:{}", port.trim()))
    }

    /// Runs clients with a shell script, in which `$run` precedes the names of programs. Returns
    /// their output, and their traffic if they are accelerated.
    fn drive(
        &self,
        what: &str,
        script: &str,
        limit: Duration,
    ) -> Result<(String, Option<Traffic>)> {
        let (printed, each) = self.drive_several(what, script, limit)?;
        let sum = |each: Vec<Traffic>| {
            each.into_iter().fold(Traffic::default(), |mut sum, one| {
                sum += one;
                sum
            })
        };
        Ok((printed, each.map(sum)))
    }

    /// The same, with the traffic of each process by itself.
    fn drive_several(
        &self,
        what: &str,
        script: &str,
        limit: Duration,
    ) -> Result<(String, Option<Vec<Traffic>>)> {
        let client = self.server.other();
        let script = format!("rm -f {COUNTERS}/*; run='{}'\n{script}", self.mode.prefix());
        let printed = self.guests.on(client, what, &script, limit)?;
        if matches!(self.mode, StartMode::Plain) {
            return Ok((printed, None));
        }
        let script = format!("cat {COUNTERS}/*");
        let counters = self.guests.on(client, "the library’s counters", &script, START)?;
        let each = traffic_of_each(&counters);
        ensure!(!each.is_empty(), "{what}: the library has left no counters");
        Ok((printed, Some(each)))
    }

    /// Runs tests, each in a client of its own: only then do the counters reveal a single one that
    /// stayed on TCP.
    pub(super) fn exchange(
        &self,
        tests: &[Test],
        trial: &mut Trial,
        mut report: impl FnMut(&mut Trial, Report),
    ) -> Result<()> {
        let address = self.serve_streambench("server")?;
        for test in tests {
            let script =
                format!("$run {STREAMBENCH} drive --tcp {address} --test {}", test.argument());
            let (printed, traffic) = self.drive(STREAMBENCH, &script, limit(test))?;
            if let Some(traffic) = traffic {
                links::check(test, traffic)?;
            }
            trial.count(traffic);
            bench::parse(&printed)?.into_iter().for_each(|one| report(trial, one));
        }
        Ok(())
    }

    /// Runs a test of bandwidth with `count` pairs of processes at the same time; returns their
    /// total in GB/s.
    pub(super) fn together(&self, count: usize, test: &Test, trial: &mut Trial) -> Result<f64> {
        let mut script = String::new();
        for index in 0..count {
            let address = self.serve_streambench(&format!("server{index}"))?;
            // All have connected and warmed up before the first one continues.
            script += &format!(
                "mkfifo /tmp/go{index}
                start client{index} connected sh -c \"exec $run {STREAMBENCH} drive --tcp {address} --barrier \\
                    --test {} <>/tmp/go{index}\"\n",
                test.argument()
            );
        }
        for index in 0..count {
            script += &format!("echo >/tmp/go{index}\n");
        }
        for index in 0..count {
            script += &format!("await client{index}\n");
        }
        let limit = limit(test) * count as u32;
        let (printed, each) = self.drive_several(STREAMBENCH, &script, limit)?;
        if let Some(each) = each {
            ensure!(each.len() == count, "{} of {count} clients left counters", each.len());
            for traffic in each {
                links::check(test, traffic)?;
                trial.count(Some(traffic));
            }
        }
        let reports = bench::parse(&printed)?;
        ensure!(reports.len() == count, "{} of {count} clients reported: {printed}", reports.len());
        let bandwidths = reports.iter().flat_map(Report::readings);
        Ok(bandwidths.filter(|(metric, _)| *metric == BANDWIDTH).map(|(_, value)| value).sum())
    }

    /// Runs iperf3, with one stream of 64 KiB writes: GB/s.
    pub(super) fn iperf3(&self, reverse: bool, seconds: u64, trial: &mut Trial) -> Result<f64> {
        let host = self.server.address();
        let server = format!("iperf3 --server --bind {host} --forceflush");
        self.serve("server", "Server listening*", &server)?;
        let more = if reverse { "--reverse" } else { "" };
        let script =
            format!("$run iperf3 --client {host} --length 64K --time {seconds} --json {more}");
        let limit = Duration::from_secs(seconds * 2 + 30);
        let (printed, traffic) = self.drive("iperf3", &script, limit)?;
        is_shared("iperf3", traffic)?;
        trial.count(traffic);
        Ok(iperf3::received(&printed)? / 8e9)
    }

    /// Runs redis-benchmark against redis-server, for about `time`.
    pub(super) fn redis(
        &self,
        case: RedisCase,
        work: &WorkAmount,
        time: Duration,
        trial: &mut Trial,
    ) -> Result<Vec<(Metric, f64)>> {
        let host = self.server.address();
        // Nothing is written to disk, so that only the network is measured.
        let server = format!(
            "redis-server --bind {host} --protected-mode no --save '' --appendonly no --daemonize no"
        );
        self.serve("server", "*Ready to accept connections*", &server)?;
        let requests = case.whole(work.amount(trial, time, case.first_requests()));
        // Requested values must exist, in their size.
        let prepare =
            RedisCase { get: false, clients: 1, pipeline: 1, ..case }.arguments(1).join(" ");
        let script = format!(
            "redis-benchmark -h {host} {prepare} >/dev/null && $run redis-benchmark -h {host} {}",
            case.arguments(requests).join(" ")
        );
        let limit = time * 4 + Duration::from_secs(60);
        let (printed, traffic) = self.drive("redis-benchmark", &script, limit)?;
        is_shared("redis-benchmark", traffic)?;
        trial.count(traffic);
        let Figures { rate, p50_us, p99_us } = Figures::parse(&printed)?;
        work.learn(matches!(self.mode, StartMode::Plain), rate);
        Ok(vec![(REQUESTS, rate), (LATENCY, p50_us), (LATENCY_TAIL, p99_us)])
    }

    /// Runs a test in guests whose clock counts instructions; returns how many both execute for a
    /// message.
    pub(super) fn count(&self, test: &Test, trial: &mut Trial) -> Result<f64> {
        let before = self.executed()?;
        let mut messages = 0;
        self.exchange(std::slice::from_ref(test), trial, |_, report| messages = report.messages)?;
        let after = self.executed()?;
        ensure!(messages > 0, "no message was exchanged");
        ensure!(after > before, "no instruction was executed: {before} before, {after} after");
        Ok((after - before) / messages as f64)
    }

    /// Nanoseconds in which both were not idle, which are instructions where each takes one.
    fn executed(&self) -> Result<f64> {
        let mut sum = 0.0;
        for guest in BOTH {
            let said = self.guests.on(guest, "its clock", "cat /proc/timer_list", START)?;
            sum += busy(&said).context("no idle time in /proc/timer_list")?;
        }
        Ok(sum)
    }

    /// Runs Xen's own carrier instead of TCP; returns the report of its client.
    pub(super) fn vchan(&self, test: &Test) -> Result<Report> {
        let [server, client] =
            [self.server, self.server.other()].map(|guest| self.guests.domain(guest));
        let (server, client) = (server?, client?);
        let Test { operation, size, time } = test;
        let (serve, drive) = match operation {
            Operation::Pingpong => (format!("echo {client} bench {size}"), "pingpong"),
            Operation::Bandwidth => (format!("sink {client} bench {size}"), "send"),
            _ => bail!("vchan has no test {}", operation.name()),
        };
        self.serve("server", "listening", &format!("vchan {serve}"))?;
        let script = format!("vchan {drive} {server} bench {size} {}", time.as_millis());
        let (printed, _) = self.drive("vchan", &script, limit(test))?;
        bench::parse(&printed)?.into_iter().next().context("vchan reported nothing")
    }
}

/// Generous, so that a slow machine does not look like a hang.
fn limit(test: &Test) -> Duration {
    test.time * 4 + Duration::from_secs(60)
}

fn first_word(command: &str) -> String {
    command.split(' ').next().unwrap_or_default().to_owned()
}

/// Fails if an accelerated program has moved most of its bytes over TCP.
fn is_shared(program: &str, traffic: Option<Traffic>) -> Result<()> {
    let Some(Traffic { ring, tcp, .. }) = traffic else { return Ok(()) };
    ensure!(
        ring > tcp,
        "{program}: {ring} bytes went through the memory that the guests share, and {tcp} by TCP"
    );
    Ok(())
}

/// Nanoseconds since its start in which a machine with one processor has not been idle, from
/// /proc/timer_list.
fn busy(timers: &str) -> Option<f64> {
    let number = |text: &str| text.split_whitespace().next()?.parse::<f64>().ok();
    let now = timers.lines().find_map(|line| number(line.strip_prefix("now at ")?))?;
    let idle = timers.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == ".idle_sleeptime").then(|| number(value))?
    })?;
    Some(now - idle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_accelerated_programs_run_under_seekwire() {
        assert_eq!(StartMode::Plain.prefix(), "");
        let mode = StartMode::Accelerated(vec![("SEEKWIRE_SEGMENTS", 16)]);
        let prefix = mode.prefix();
        assert!(prefix.ends_with("SEEKWIRE_SEGMENTS=16 seekwire run -- "), "{prefix}");
        assert!(prefix.starts_with("env SEEKWIRE_STATS="), "{prefix}");
    }

    #[test]
    fn a_program_that_stayed_on_tcp_has_no_result() {
        let traffic = |ring, tcp| Some(Traffic { ring, tcp, ..Traffic::default() });
        is_shared("iperf3", None).unwrap();
        is_shared("iperf3", traffic(1001, 1000)).unwrap();
        let error = is_shared("iperf3", traffic(0, 1000)).unwrap_err().to_string();
        assert!(error.starts_with("iperf3: 0 bytes") && error.ends_with("1000 by TCP"), "{error}");
        is_shared("iperf3", traffic(1000, 1000)).unwrap_err();
        is_shared("iperf3", traffic(0, 0)).unwrap_err();
    }

    #[test]
    fn idle_time_does_not_count() {
        let timers = "Timer List Version: v0.9\nHRTIMER_MAX_CLOCK_BASES: 8\nnow at 5000000000 nsecs\n\n\
                      cpu: 0\n  .idle_waketime  : 4 nsecs\n  .idle_sleeptime : 1500250000 nsecs\n";
        assert_eq!(busy(timers), Some(3_499_750_000.0));
        assert_eq!(busy("now at 5 nsecs\n"), None);
    }
}
