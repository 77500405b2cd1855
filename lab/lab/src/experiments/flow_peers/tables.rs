//! Tables, plots and the summary of `flow-peers`.

use serde_json::Value;

use super::auto;
use super::cases::{
    CROSSBEAM, FLOW, FLOW_RING, FLOW_TCP, GOAL_SIZE, GROWTH, HELD, MEDIAN, OTHERS, PAUSE, PEAK,
    RATE, RECOVERY, RING, SIZES, SLOW, VARIANTS, ZEROMQ_IPC, ZEROMQ_TCP, case,
};
use crate::experiment_file::ExperimentFile;
use crate::experiments::by_size::{BySize, spread};
use crate::outcome::{Findings, Recorded, Table};
use crate::plot::{Bar, Chart, Figure};
use crate::record::{Row, Samples, Selector};

pub(super) fn findings(file: &'static ExperimentFile, recorded: Recorded<'_>) -> Findings {
    let rows = recorded.samples.rows(CROSSBEAM);
    let by_size = BySize { file, words: &[], rows: &rows };
    let mut tables = by_size.tables(&recorded.numbers("sizes"));
    tables.push(links(&rows));
    tables.push(behaviour(&rows));
    tables.push(auto::table(&rows));
    tables.retain(|table| !table.rows.is_empty());
    let mut figures = by_size.figures();
    figures.push(memory(&rows));
    figures.push(auto::figure(&rows));
    let computed = summary(recorded.samples, &rows);
    Findings { summary: file.summary(recorded.samples, &computed), tables, figures }
}

/// Latency as alpha + bytes / beta, by the least squares of the medians.
fn links(rows: &[Row]) -> Table {
    let line = |variant: &super::RuntimeVariant| -> Option<Vec<Value>> {
        let point = |&size: &u64| {
            let median = spread(rows, &case(size), variant.name, MEDIAN)?.median;
            Some((size as f64, median))
        };
        let points: Vec<(f64, f64)> = SIZES.iter().filter_map(point).collect();
        let (alpha, slope) = fit(&points)?;
        // A microsecond for a thousand bytes is a gigabyte per second.
        let beta = (slope > 0.0).then(|| 1e-3 / slope);
        Some(vec![variant.name.into(), alpha.into(), beta.into()])
    };
    Table {
        title: "Cost of a block: alpha and beta".to_owned(),
        note: "Latency of a block of b bytes through all four stages as alpha + b / beta, fitted to the medians at all \
               sizes by least squares. It contains the source's writing and three readings. Without a beta, larger \
               blocks did not take longer."
            .to_owned(),
        columns: ["runtime", "alpha, µs", "beta, GB/s"].map(str::to_owned).into(),
        rows: VARIANTS.iter().filter_map(line).collect(),
    }
}

/// Intercept and slope of the line through `points` with the least squares.
fn fit(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    if points.len() < 2 {
        return None;
    }
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let along = points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>();
    let both = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>();
    let slope = both / along;
    slope.is_finite().then_some((y - slope * x, slope))
}

fn behaviour(rows: &[Row]) -> Table {
    let line = |variant: &super::RuntimeVariant| -> Option<Vec<Value>> {
        let median = |case, metric| Some(spread(rows, case, variant.name, metric)?.median);
        let cells = [
            median(SLOW, GROWTH),
            median(SLOW, HELD),
            median(SLOW, RING),
            median(PAUSE, RECOVERY),
            median(PAUSE, OTHERS),
        ];
        let is_measured = cells.iter().any(Option::is_some);
        let row = std::iter::once(variant.name.into()).chain(cells.into_iter().map(Value::from));
        is_measured.then(|| row.collect())
    };
    Table {
        title: "A slow consumer, and a copy that stands still".to_owned(),
        note: "Growth of the process that grows most, without the ring, over what its three streams may hold together; \
               the most that a stream held over what it may hold, where the runtime counts that; the ring's memory. \
               From the end of the pause of 200 ms until the copy takes block after block again, in service times of 2 \
               ms, and the work of the other two copies during the pause, in percent of their capacity."
            .to_owned(),
        columns: [
            "runtime",
            "memory over declared",
            "held over declared",
            "ring, MiB",
            "time to full share, service times",
            "work of the others meanwhile, %",
        ]
        .map(str::to_owned)
        .into(),
        rows: VARIANTS.iter().filter_map(line).collect(),
    }
}

fn memory(rows: &[Row]) -> Figure {
    let bar = |variant: &super::RuntimeVariant| {
        let spread = spread(rows, SLOW, variant.name, GROWTH)?;
        let name = variant.name.to_owned();
        Some(Bar { name, value: spread.median, low: spread.min, high: spread.max })
    };
    let label = "growth of a process / what its streams may hold (1: as declared)".to_owned();
    let chart = Chart::Ratios { label, bars: VARIANTS.iter().filter_map(bar).collect() };
    let (file, title) = ("memory.svg".to_owned(), "Memory with a slow consumer".to_owned());
    Figure { file, title, chart }
}

/// Numbers of the summary that take the better or the worse one of several.
fn summary(samples: &Samples, rows: &[Row]) -> [(&'static str, Option<f64>); 3] {
    let case = case(GOAL_SIZE);
    let rate = |variant| Selector { case: &case, variant, metric: RATE };
    let ratio = |this, that| samples.ratio(rate(this), rate(that)).map(|ratio| ratio.value);
    let remote = [ZEROMQ_TCP, ZEROMQ_IPC].map(|other| ratio(FLOW_RING, other));
    let peaks = [FLOW, FLOW_RING, FLOW_TCP]
        .map(|variant| samples.median(Selector { case: SLOW, variant, metric: PEAK }));
    [
        ("remote_2k_vs_zeromq", remote.into_iter().flatten().reduce(f64::min)),
        ("slow_consumer_peak_over_declared", peaks.into_iter().flatten().reduce(f64::max)),
        ("auto_block_vs_best_worst_ratio", auto::worst_ratio(samples, rows)),
    ]
}

#[cfg(test)]
mod tests {
    use super::fit;

    #[test]
    fn a_line_is_found_again() {
        let points = [(64.0, 5.064), (2048.0, 7.048), (65536.0, 70.536)];
        let (alpha, slope) = fit(&points).unwrap();
        assert!((alpha - 5.0).abs() < 1e-9 && (slope - 1e-3).abs() < 1e-12, "{alpha} {slope}");
        assert_eq!(fit(&points[..1]), None);
        assert_eq!(fit(&[(1.0, 2.0), (1.0, 3.0)]), None);
    }
}
