//! Real, unmodified programs as pairs of server and client, plain and accelerated.
//!
//! In accelerated runs both ends are accelerated. A server is started once per mode, when it is
//! first needed, and serves all rounds; each round has a client process of its own, whose counters
//! show which carrier its bytes took.

pub mod grpc;
mod http;
pub mod iperf3;
pub mod redis;
pub mod slides;
pub mod sockperf;

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::context::Context;
use crate::launch::{self, ACCELERATED, Error, Finished, Mode, PLAIN, Program, Running};
use crate::outcome::{Findings, Key, Outcome, Recorded};
use crate::plot::{Bar, Chart, Figure};
use crate::record::{Better, Metric, Row};
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::search;
use crate::stats::Ratio;

const BANDWIDTH: Metric = Metric { name: "bandwidth", unit: "GB/s", better: Better::Higher };
/// Requests by time.
pub const REQUESTS: Metric = Metric { name: "requests", unit: "1/s", better: Better::Higher };
/// Median time of a round trip.
pub const LATENCY: Metric = Metric { name: "round trip p50", unit: "µs", better: Better::Lower };
/// Time within which 99 of 100 round trips complete.
pub const LATENCY_TAIL: Metric =
    Metric { name: "round trip p99", unit: "µs", better: Better::Lower };

/// The name of the results of [`crate::demo`], whose findings are those of `programs`.
pub const DEMO: &str = "demo";

/// Durations and sizes of the runs.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Time of one plain iperf3 run.
    pub iperf3: Duration,
    /// Time of one plain redis-benchmark run.
    pub redis: Duration,
    /// Time of one sockperf run, in the whole seconds that it understands.
    pub sockperf_seconds: u32,
    /// Size of the file that is served over HTTP.
    pub file: u64,
}

/// Measures all programs, and `others` with them, alternating.
///
/// # Errors
///
/// Only an interruption; a program that cannot be measured is a row with an error.
pub fn measure(
    context: &Context<'_>,
    rounds: usize,
    scale: Scale,
    others: Vec<Group<'_>>,
) -> Result<Outcome> {
    let corrupted = Rc::new(Cell::new(0));
    let mut groups = Vec::new();
    groups.extend(iperf3::groups(context, scale.iperf3));
    groups.extend(redis::groups(context, scale.redis));
    groups.push(http::group(context, scale.file, &corrupted));
    groups.push(sockperf::group(context, scale.sockperf_seconds));
    groups.extend(others);
    let samples = alternate(&mut groups, rounds, context.progress())?;
    // Stops the servers.
    drop(groups);

    let mut parameters = context.parameters(rounds);
    parameters.insert("iperf3 milliseconds".to_owned(), (scale.iperf3.as_millis() as u64).into());
    parameters.insert("redis milliseconds".to_owned(), (scale.redis.as_millis() as u64).into());
    parameters.insert("sockperf seconds".to_owned(), scale.sockperf_seconds.into());
    parameters.insert("file bytes".to_owned(), scale.file.into());
    let corrupted = corrupted.get();
    let violation =
        (corrupted > 0).then(|| format!("{corrupted} files arrived with a wrong checksum"));
    Ok(Outcome { parameters, samples, baseline: PLAIN, violation })
}

/// The findings of the readings.
pub fn findings(recorded: Recorded<'_>) -> Findings {
    let rows = recorded.samples.rows(PLAIN);
    Findings { summary: summary(&rows), figures: figures(&rows), tables: Vec::new() }
}

/// Whether a row belongs into the short table: one metric for each case.
pub fn is_headline(row: &Row) -> bool {
    match row.metric.as_str() {
        name if name == LATENCY_TAIL.name => false,
        name if name == LATENCY.name => row.case == sockperf::CASE,
        _ => true,
    }
}

fn headlines(rows: &[Row], better: Better) -> impl Iterator<Item = (&Row, Ratio)> {
    rows.iter()
        .filter(move |row| row.variant == ACCELERATED && row.better == better && is_headline(row))
        .filter_map(|row| Some((row, row.ratio?)))
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let figure = |file: &str, title: &str, better, metric: Option<Metric>, label: &str| {
        let belongs =
            |(row, _): &(&Row, Ratio)| metric.is_none_or(|metric| row.metric == metric.name);
        let bar = |(row, ratio): (&Row, Ratio)| Bar {
            name: row.case.clone(),
            value: ratio.value,
            low: ratio.low,
            high: ratio.high,
        };
        let bars = headlines(rows, better).filter(belongs).map(bar).collect();
        let chart = Chart::Ratios { label: label.to_owned(), bars };
        Figure { file: file.to_owned(), title: title.to_owned(), chart }
    };
    vec![
        figure(
            "throughput.svg",
            "Throughput",
            Better::Higher,
            None,
            "accelerated / plain (higher is better)",
        ),
        figure(
            "latency.svg",
            "Round-trip time",
            Better::Lower,
            Some(LATENCY),
            "accelerated / plain (lower is better)",
        ),
        figure(
            "message-search.svg",
            "Message search: processor time of the receiver",
            Better::Lower,
            Some(search::CPU),
            "taken out of the stream / copied aside and out again (lower is better)",
        ),
    ]
}

fn summary(rows: &[Row]) -> Vec<Key> {
    let ratios = |wanted: &dyn Fn(&str) -> bool| -> Vec<f64> {
        let all = headlines(rows, Better::Higher).chain(headlines(rows, Better::Lower));
        all.filter(|(row, _)| wanted(&row.case)).map(|(_, ratio)| ratio.value).collect()
    };
    let one = |case: &str| ratios(&|name| name == case).first().copied();
    let clients50 =
        ratios(&|case| case.starts_with("redis") && case.contains("50 clients, pipeline 1,"));
    let pipeline16 = ratios(&|case| case.starts_with("redis") && case.contains("pipeline 16,"));
    let lowest = |ratios: &[f64]| ratios.iter().copied().min_by(f64::total_cmp);
    let keys = [
        (
            "iperf3_ratio",
            "iperf3, one stream: bandwidth, accelerated over plain; higher is better",
            one(iperf3::FORWARD),
        ),
        (
            "iperf3_reverse_ratio",
            "iperf3, reverse direction: bandwidth, accelerated over plain; higher is better",
            one(iperf3::REVERSE),
        ),
        (
            "iperf3_small_ratio",
            "iperf3, one stream of writes of 100 bytes: bandwidth, accelerated over plain; higher is better",
            one(iperf3::SMALL),
        ),
        (
            "redis_clients50_ratio",
            "redis-benchmark with 50 clients, no pipeline: geometric mean over GET, SET and sizes of requests per \
             second, accelerated over plain; higher is better",
            geometric_mean(&clients50),
        ),
        (
            "redis_clients50_lowest",
            "the lowest of these ratios; higher is better",
            lowest(&clients50),
        ),
        (
            "redis_pipeline16_ratio",
            "redis-benchmark with pipelines of 16: geometric mean over GET, SET, sizes and numbers of clients; higher is \
             better",
            geometric_mean(&pipeline16),
        ),
        (
            "redis_pipeline16_lowest",
            "the lowest of these ratios; higher is better",
            lowest(&pipeline16),
        ),
        (
            "http_ratio",
            "a file served by Python and fetched by curl: bandwidth, accelerated over plain; higher is better",
            one(http::CASE),
        ),
        (
            "grpc_unary_ratio",
            "gRPC, calls of 64 B one after another: calls per second, accelerated over plain; higher is better",
            one(grpc::UNARY),
        ),
        (
            "grpc_small_stream_ratio",
            "gRPC, a stream of messages of 1 KiB: bandwidth, accelerated over plain; higher is better",
            one(grpc::SMALL_STREAM),
        ),
        (
            "grpc_stream_ratio",
            "gRPC, a stream of messages of 64 KiB: bandwidth, accelerated over plain; higher is better",
            one(grpc::STREAM),
        ),
        (
            "sockperf_rtt_ratio",
            "sockperf ping-pong of 64 B: median round trip, accelerated over plain; lower is better",
            one(sockperf::CASE),
        ),
        (
            "slide_tiles_ratio",
            "tiles of a slide, served by seekwire slides and fetched by curl: tiles per second, accelerated over plain; higher \
             is better",
            one(slides::CASE),
        ),
        (
            "message_search_ratio",
            "messages of 64 KiB, each behind 16 others, over TCP: processor time of the receiver, taken out of the middle of \
             the stream over copied aside and out again; lower is better",
            one(search::demo::CASE),
        ),
    ];
    keys.into_iter()
        .filter_map(|(name, meaning, value)| Key::measured(name, meaning, value))
        .collect()
}

fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let sum: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (sum / ratios.len() as f64).exp())
}

/// The two variants of a case; `run` returns the function that runs it in a mode.
fn compare<'a, F>(
    context: &Context<'_>,
    case: impl Into<String>,
    mut run: impl FnMut(Mode) -> F,
) -> Group<'a>
where
    F: FnMut(&mut Trial) -> Result<()> + 'a,
{
    let accelerated = match context.accelerated() {
        Ok(mode) => Variant::new(ACCELERATED, run(mode)),
        Err(error) => Variant::unavailable(ACCELERATED, format!("{error:#}")),
    };
    Group::new(case, vec![Variant::new(PLAIN, run(Mode::Plain)), accelerated])
}

/// A server that starts when it is first needed and is shared by all cases of one mode.
struct Shared<S>(Rc<OnceCell<Result<S, String>>>);

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S> Shared<S> {
    fn new() -> Self {
        Self(Rc::new(OnceCell::new()))
    }

    fn get(&self, start: impl FnOnce() -> Result<S>) -> Result<&S> {
        let started = self.0.get_or_init(|| start().map_err(|error| format!("{error:#}")));
        started.as_ref().map_err(|why| anyhow!("{why}"))
    }
}

/// One shared server for each mode.
struct PerMode<S> {
    plain: Shared<S>,
    accelerated: Shared<S>,
}

impl<S> PerMode<S> {
    fn new() -> Self {
        Self { plain: Shared::new(), accelerated: Shared::new() }
    }

    fn of(&self, mode: &Mode) -> Shared<S> {
        if is_plain(mode) { self.plain.clone() } else { self.accelerated.clone() }
    }
}

fn is_plain(mode: &Mode) -> bool {
    matches!(mode, Mode::Plain)
}

/// A server process and the port it listens on.
#[derive(Debug)]
struct Listening {
    port: u16,
    process: Running,
}

impl Listening {
    /// Runs a client of this server to its end; if that fails because the server has died, the
    /// error reports so.
    fn serve(
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
fn listen(
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
pub struct Work(Rc<Cell<Option<f64>>>);

impl Work {
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
fn with_package(error: Error, package: &str) -> anyhow::Error {
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
    fn geometric_mean_of_known_values() {
        assert_eq!(geometric_mean(&[]), None);
        assert!((geometric_mean(&[0.5, 2.0]).unwrap() - 1.0).abs() < 1e-12);
    }

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
