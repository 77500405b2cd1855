//! Real, unmodified programs as pairs of server and client, plain and accelerated.
//!
//! In accelerated runs both ends are accelerated. A server is started once per mode, when it is
//! first needed, and serves all rounds; each round has a client process of its own, whose counters
//! show which carrier its bytes took.

pub mod grpc;
mod http;
pub mod iperf3;
mod pairs;
pub mod redis;
pub mod slides;
pub mod sockperf;

pub use pairs::{LATENCY, LATENCY_TAIL, REQUESTS, WorkAmount};

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;

use crate::context::Context;
use crate::launch::{ACCELERATED, PLAIN};
use crate::outcome::{Findings, Outcome, Recorded, SummaryValue};
use crate::plot::{Bar, Chart, Figure};
use crate::record::{Better, Metric, Row};
use crate::schedule::{Group, alternate};
use crate::search;
use crate::stats::Ratio;

/// The name of the results of [`crate::demo`], whose findings are those of `programs`.
pub const DEMO: &str = "demo";

/// Durations and sizes of the runs.
#[derive(Clone, Copy, Debug)]
pub struct ProgramDurations {
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
    scale: ProgramDurations,
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
        .filter_map(|row| Some((row, row.widened_ratio()?)))
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

fn summary(rows: &[Row]) -> Vec<SummaryValue> {
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
        .filter_map(|(name, meaning, value)| SummaryValue::measured(name, meaning, value))
        .collect()
}

fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let sum: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (sum / ratios.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometric_mean_of_known_values() {
        assert_eq!(geometric_mean(&[]), None);
        assert!((geometric_mean(&[0.5, 2.0]).unwrap() - 1.0).abs() < 1e-12);
    }
}
