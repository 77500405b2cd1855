//! Parts of the experiments that sweep over message sizes: tests, variants and figures.

use std::time::Duration;

use anyhow::Result;

use crate::bench::{Operation, Peer, PeerPair, Report, Socket, Test};
use crate::experiment::Context;
use crate::launch::Mode;
use crate::plot::{Axis, Chart, Figure, Point, Scale, Series};
use crate::record::{Metric, Row};
use crate::schedule::{Trial, Variant};
use crate::{streambench, text};

pub(super) const TCP: &str = "TCP";
pub(super) const UNIX: &str = "UNIX socket";
pub(super) const ACCELERATED: &str = "accelerated";

/// The tests of a sweep: each operation with each size, all for the same time.
pub(super) fn sweep(operations: &[Operation], sizes: &[u64], time: Duration) -> Vec<Test> {
    let tests = |&operation| sizes.iter().map(move |&size| Test { operation, size, time });
    operations.iter().flat_map(tests).collect()
}

/// A variant in which two processes of the C program exchange messages; `adjust` sets its
/// particular options.
pub(super) fn program_variant<'a>(
    context: &Context<'_>,
    name: impl Into<String>,
    socket: Socket,
    accelerated: bool,
    tests: Vec<Test>,
    adjust: impl FnOnce(PeerPair) -> PeerPair,
) -> Variant<'a> {
    match program_pair(context, socket, accelerated) {
        Ok(pair) => pair_variant(name, adjust(pair), tests),
        Err(error) => Variant::unavailable(name, format!("{error:#}")),
    }
}

/// Two processes of the C program.
pub(super) fn program_pair(
    context: &Context<'_>,
    socket: Socket,
    accelerated: bool,
) -> Result<PeerPair> {
    let mode = if accelerated { context.accelerated()? } else { Mode::Plain };
    Ok(PeerPair::new(Peer::Program(streambench::path()?.to_owned()), socket, mode))
}

/// A variant in which the peers of `pair` run `tests`. Each message size is a case.
pub(super) fn pair_variant<'a>(
    name: impl Into<String>,
    pair: PeerPair,
    tests: Vec<Test>,
) -> Variant<'a> {
    Variant::new(name, move |trial: &mut Trial| pair.run(&tests, trial, record))
}

/// Records what a peer reports. Its message size is the case.
pub(super) fn record(trial: &mut Trial, report: Report) {
    for (metric, value) in report.readings() {
        trial.record(text::size(report.size), Some(report.size as f64), metric, value);
    }
}

/// A figure with one curve for each of `variants`, from the rows of `metric`.
pub(super) fn curves(
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

pub(super) fn message_size() -> Axis {
    Axis { label: "message size (bytes)".to_owned(), scale: Scale::Sizes }
}
