//! The experiments.

mod by_size;
mod connections;
mod flow;
mod flow_peers;
mod links;
mod mailbox;
mod models;
mod names;
mod nic;
mod pairs;
mod programs;
mod ring_size;
mod search_keys;
mod seek;
mod seek_fragments;
mod seek_module;
mod seekable;
mod slides;
mod sockets;
mod vm;
pub(crate) mod yasmin;
mod zeromq;

use std::time::Duration;

use anyhow::{Result, bail};

use crate::bench::{Operation, Pair, Peer, Report, Socket, Test};
use crate::experiment::{Context, Experiment};
use crate::launch::Mode;
use crate::plot::{Axis, Chart, Figure, Point, Scale, Series};
use crate::record::{Metric, Row};
use crate::schedule::{Trial, Variant};
use crate::{streambench, text};

/// Every experiment, in the order in which they are listed.
pub fn experiments() -> &'static [&'static dyn Experiment] {
    &[
        &sockets::Sockets,
        &ring_size::RingSize,
        &pairs::Pairs,
        &links::Links,
        &vm::Vm,
        &connections::Connections,
        &programs::Programs,
        &seek::Seek,
        &seek_fragments::SeekFragments,
        &seek_module::SeekModule,
        &mailbox::Mailbox,
        &nic::Nic,
        &zeromq::Zeromq,
        &models::Models,
        &flow::demand::Demand,
        &flow::reaction::Reaction,
        &flow::latency::Latency,
        &flow::updates::Updates,
        &flow_peers::FlowPeers,
        &slides::Slides,
    ]
}

/// The experiment of that name.
///
/// # Errors
///
/// If none exists, with the names of the existing ones.
pub(crate) fn by_name(name: &str) -> Result<&'static dyn Experiment> {
    let known = experiments();
    match known.iter().find(|experiment| experiment.name() == name) {
        Some(experiment) => Ok(*experiment),
        None => {
            let names: Vec<&str> = known.iter().map(|experiment| experiment.name()).collect();
            bail!("there is no experiment '{name}'; there are {}", names.join(", "))
        }
    }
}

const TCP: &str = "TCP";
const UNIX: &str = "UNIX socket";
const ACCELERATED: &str = "accelerated";

/// The tests of a sweep: each operation with each size, all for the same time.
fn sweep(operations: &[Operation], sizes: &[u64], time: Duration) -> Vec<Test> {
    let tests = |&operation| sizes.iter().map(move |&size| Test { operation, size, time });
    operations.iter().flat_map(tests).collect()
}

/// A variant in which two processes of the C program exchange messages; `adjust` sets its
/// particular options.
fn program_variant<'a>(
    context: &Context<'_>,
    name: impl Into<String>,
    socket: Socket,
    accelerated: bool,
    tests: Vec<Test>,
    adjust: impl FnOnce(Pair) -> Pair,
) -> Variant<'a> {
    match program_pair(context, socket, accelerated) {
        Ok(pair) => pair_variant(name, adjust(pair), tests),
        Err(error) => Variant::unavailable(name, format!("{error:#}")),
    }
}

/// Two processes of the C program.
fn program_pair(context: &Context<'_>, socket: Socket, accelerated: bool) -> Result<Pair> {
    let mode = if accelerated { context.accelerated()? } else { Mode::Plain };
    Ok(Pair::new(Peer::Program(streambench::path()?.to_owned()), socket, mode))
}

/// A variant in which the peers of `pair` run `tests`. Each message size is a case.
fn pair_variant<'a>(name: impl Into<String>, pair: Pair, tests: Vec<Test>) -> Variant<'a> {
    Variant::new(name, move |trial: &mut Trial| pair.run(&tests, trial, record))
}

/// Records what a peer reports. Its message size is the case.
fn record(trial: &mut Trial, report: Report) {
    for (metric, value) in report.readings() {
        trial.record(text::size(report.size), Some(report.size as f64), metric, value);
    }
}

/// A figure with one curve for each of `variants`, from the rows of `metric`.
fn curves(
    file: &str,
    title: &str,
    x: Axis,
    y: Scale,
    metric: Metric,
    rows: &[Row],
    variants: &[&str],
) -> Figure {
    let series = variants
        .iter()
        .enumerate()
        .map(|(colour, &variant)| {
            let mut points: Vec<Point> = rows
                .iter()
                .filter(|row| row.variant == variant && row.metric == metric.name)
                .filter_map(|row| {
                    let spread = row.spread?;
                    Some(Point { x: row.x?, y: spread.median, low: spread.min, high: spread.max })
                })
                .collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            Series { name: variant.to_owned(), colour, points }
        })
        .filter(|series| !series.points.is_empty())
        .collect();
    let y = Axis { label: format!("{} ({})", metric.name, metric.unit), scale: y };
    Figure { file: file.to_owned(), title: title.to_owned(), chart: Chart::Curves { x, y, series } }
}

fn message_size() -> Axis {
    Axis { label: "message size (bytes)".to_owned(), scale: Scale::Sizes }
}
