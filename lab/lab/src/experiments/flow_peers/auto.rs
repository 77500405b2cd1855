//! Blocks whose size a stream finds, against a sweep of all powers of two: the time for a unit of
//! work, over three links.

use anyhow::Result;

use super::programs::{Link, Pipelines, Sized};
use crate::claim::Estimate;
use crate::experiment::Context;
use crate::experiments::by_size::spread;
use crate::outcome::{At, ResultFile, Table};
use crate::plot::{Axis, Chart, Figure, Point, Scale, Series};
use crate::record::{Metric, Row, Samples, Selector};
use crate::schedule::{Group, Trial, Variant};
use crate::text;

const AUTO: &str = "auto block";
const TIME: Metric = Metric::lower("time of a unit", "ms");
const CHOSEN: Metric = Metric::lower("block size found", "KiB");

const LINKS: [(&str, Link); 3] =
    [("unit, one process", Link::Here), ("unit, ring", Link::Ring), ("unit, TCP", Link::Tcp)];

const SIZES: [u64; 11] = [
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
];
/// Enough to see whether it works.
const FEW: [u64; 4] = [2 << 10, 16 << 10, 64 << 10, 256 << 10];

fn variant(size: u64) -> String {
    format!("blocks of {}", text::size(size))
}

/// A group for each link.
pub(super) fn groups<'p>(context: &Context<'_>, pipelines: &'p Pipelines<'_>) -> Vec<Group<'p>> {
    let sizes: &[u64] = context.pick(&FEW, &SIZES);
    let unit = context.pick(4 << 20, 16 << 20);
    let milliseconds = context.pick(100, 400);
    // The rate of blocks is compared once a size has been found.
    let [fixed, searched] = context.pick([50, 600], [200, 2000]);
    let group = |(name, link): (&'static str, Link)| {
        let of = |size: u64| {
            let name_of_variant = if size == 0 { AUTO.to_owned() } else { variant(size) };
            Variant::new(name_of_variant, move |trial: &mut Trial| {
                let milliseconds = if trial.is_warm_up() { milliseconds / 4 } else { milliseconds };
                let warm_up = if size == 0 && !trial.is_warm_up() { searched } else { fixed };
                run(pipelines, name, link, Sized { size, unit, warm_up, milliseconds }, trial)
            })
        };
        Group::new(name, std::iter::once(0).chain(sizes.iter().copied()).map(of).collect())
    };
    LINKS.into_iter().map(group).collect()
}

fn run(
    pipelines: &Pipelines<'_>,
    case: &str,
    link: Link,
    order: Sized,
    trial: &mut Trial,
) -> Result<()> {
    let report = pipelines.sized(link, order)?;
    let x = (order.size > 0).then_some(order.size as f64);
    trial.record(case, x, TIME, report.seconds * 1e3);
    if let Some(chosen) = report.chosen {
        trial.record(case, None, CHOSEN, chosen as f64 / 1024.0);
    }
    Ok(())
}

/// Of the links, the one on which the found size is worst against the best of the sweep.
pub(super) fn worst(result: &ResultFile) -> Result<Estimate, String> {
    let ratio = |(case, _): (&str, Link)| -> Result<Estimate, String> {
        let at = |variant| At { case, variant, metric: TIME.name };
        let best = best(&result.rows, case).ok_or_else(|| format!("{case} was not measured"))?;
        Estimate::ratio_of_medians(result, at(AUTO), at(&variant(best)))
    };
    let all = LINKS.into_iter().map(ratio).collect::<Result<Vec<_>, _>>()?;
    Estimate::largest(all).ok_or_else(|| "there are no links".to_owned())
}

/// The size with the least median.
fn best(rows: &[Row], case: &str) -> Option<u64> {
    let medians = SIZES
        .iter()
        .filter_map(|&size| Some((size, spread(rows, case, &variant(size), TIME)?.median)));
    medians.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(size, _)| size)
}

/// For the summary; `None` unless all links were measured.
pub(super) fn worst_ratio(samples: &Samples, rows: &[Row]) -> Option<f64> {
    let ratio = |(case, _): (&str, Link)| {
        let best = variant(best(rows, case)?);
        let of = |variant| samples.median(Selector { case, variant, metric: TIME });
        Some(of(AUTO)? / of(&best)?)
    };
    let ratios: Option<Vec<f64>> = LINKS.into_iter().map(ratio).collect();
    ratios?.into_iter().reduce(f64::max)
}

/// Times by size, and that of the found size.
pub(super) fn table(rows: &[Row]) -> Table {
    let median = |case: &str, variant: &str, metric| -> Option<f64> {
        Some(spread(rows, case, variant, metric)?.median)
    };
    let mut lines: Vec<Vec<serde_json::Value>> = Vec::new();
    let mut line = |name: String, of: &dyn Fn(&str) -> Option<f64>| {
        let cells = LINKS.map(|(case, _)| of(case));
        if cells.iter().any(Option::is_some) {
            lines.push(std::iter::once(name.into()).chain(cells.map(Into::into)).collect());
        }
    };
    for size in SIZES {
        line(text::size(size), &|case| median(case, &variant(size), TIME));
    }
    line("the size that it found".to_owned(), &|case| median(case, AUTO, TIME));
    line("which is, KiB".to_owned(), &|case| median(case, AUTO, CHOSEN));
    let heads = LINKS.map(|(case, _)| format!("{case}, ms"));
    Table {
        title: "Time of a unit of work by the size of its blocks".to_owned(),
        note: "Medians of the rounds, each the median of the units of a run after its warm-up."
            .to_owned(),
        columns: std::iter::once("blocks of".to_owned()).chain(heads).collect(),
        rows: lines,
    }
}

/// Curves by size, and for each link a line at the time of the found size.
pub(super) fn figure(rows: &[Row]) -> Figure {
    let mut series = Vec::new();
    for (colour, (case, _)) in LINKS.into_iter().enumerate() {
        let point = |&size: &u64| {
            let spread = spread(rows, case, &variant(size), TIME)?;
            Some(Point { x: size as f64, y: spread.median, low: spread.min, high: spread.max })
        };
        let points: Vec<Point> = SIZES.iter().filter_map(point).collect();
        let searched = spread(rows, case, AUTO, TIME).map_or_else(Vec::new, |spread| {
            let at = |point: &Point| Point {
                y: spread.median,
                low: spread.median,
                high: spread.median,
                ..*point
            };
            points.iter().map(at).collect()
        });
        series.push(Series { name: case.to_owned(), colour, points });
        series.push(Series {
            name: format!("{case}, auto"),
            colour: colour + LINKS.len(),
            points: searched,
        });
    }
    series.retain(|series| !series.points.is_empty());
    let x = Axis { label: "block size (bytes)".to_owned(), scale: Scale::Sizes };
    let y = Axis { label: format!("{} ({})", TIME.name, TIME.unit), scale: Scale::Log10 };
    let title = "Time of a unit of work by the size of its blocks".to_owned();
    Figure { file: "block-size.svg".to_owned(), title, chart: Chart::Curves { x, y, series } }
}
