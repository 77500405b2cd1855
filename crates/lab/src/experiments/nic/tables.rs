//! Tables and figures, with the thesis' numbers beside ours.

use serde_json::Value;

use super::Setting;
use super::thesis::{self, Columns};
use crate::experiments::message_size;
use crate::network::step::Step;
use crate::network::{CPU, EFFORT, LATENCY, ROUND_TRIP, SERVER, THROUGHPUT};
use crate::outcome::Table;
use crate::plot::{Axis, Chart, Figure, Point, Scale, Series};
use crate::record::{Metric, Row};
use crate::text;

/// One of the thesis' tables or graphs, and what stands for it here.
struct View {
    file: &'static str,
    title: &'static str,
    note: &'static str,
    setting: Setting,
    metric: Metric,
    scale: Scale,
    thesis: Option<Columns>,
}

const VIEWS: [View; 8] = [
    View {
        file: "latency.svg",
        title: "One-way latency (table and graph 4.1.1)",
        note: "µs, 1 / (2 × rate of requests). Here: no link limits it; the thesis: 1 Gb/s Ethernet.",
        setting: Setting::Latency,
        metric: LATENCY,
        scale: Scale::Log10,
        thesis: Some(thesis::LATENCY),
    },
    View {
        file: "round-trip-p99.svg",
        title: "Round trip, p99",
        note: "µs, from the histogram of all round trips. The thesis has only means.",
        setting: Setting::Latency,
        metric: ROUND_TRIP[1],
        scale: Scale::Log10,
        thesis: None,
    },
    View {
        file: "throughput.svg",
        title: "Throughput over a link of 1 Gb/s (tables 4.2.1 to 4.2.3, graph 4.2.1)",
        note: "Mb/s.",
        setting: Setting::Link,
        metric: THROUGHPUT,
        scale: Scale::Linear,
        thesis: Some(thesis::FAST_THROUGHPUT),
    },
    View {
        file: "cpu.svg",
        title: "CPU load over a link of 1 Gb/s (tables 4.2.1 to 4.2.3, graph 4.2.2)",
        note: "Percent of one processor. Here: both ends together, user, system and softirq of the host or hosts; the thesis: \
               what netperf says of the sender.",
        setting: Setting::Link,
        metric: CPU,
        scale: Scale::Linear,
        thesis: Some(thesis::FAST_CPU),
    },
    View {
        file: "weak-throughput.svg",
        title: "Throughput to a weak receiver (tables 4.2.4 to 4.2.6, graph 4.2.3)",
        note: "Mb/s. Here: no link limits it; the thesis: hosts that are both weak, and 1 Gb/s Ethernet, which ends the gain at \
               939 Mb/s.",
        setting: Setting::Weak,
        metric: THROUGHPUT,
        scale: Scale::Log10,
        thesis: Some(thesis::WEAK_THROUGHPUT),
    },
    View {
        file: "weak-cpu.svg",
        title: "CPU load with a weak receiver (tables 4.2.4 to 4.2.6, graph 4.2.3)",
        note: "Percent. Here: of one processor, the receiving process, which cannot have more than its share and always uses all \
               of it, as no link ends its work; the thesis: of what there is.",
        setting: Setting::Weak,
        metric: SERVER,
        scale: Scale::Linear,
        thesis: Some(thesis::WEAK_CPU),
    },
    View {
        file: "weak-cpu-time.svg",
        title: "CPU time of a gigabyte, weak receiver",
        note: "Seconds per 10⁹ bytes, both ends together.",
        setting: Setting::Weak,
        metric: EFFORT,
        scale: Scale::Log10,
        thesis: None,
    },
    View {
        file: "cpu-time.svg",
        title: "CPU time of a gigabyte over a link of 1 Gb/s",
        note: "Seconds per 10⁹ bytes, both ends together.",
        setting: Setting::Link,
        metric: EFFORT,
        scale: Scale::Log10,
        thesis: None,
    },
];

fn found<'a>(rows: &'a [Row], view: &View, step: Step, size: u64) -> Option<&'a Row> {
    let case = view.setting.case(size);
    rows.iter().find(|row| {
        row.case == case
            && row.variant == step.name()
            && row.metric == view.metric.name
            && row.spread.is_some()
    })
}

/// Medians by size and step, and the thesis' columns.
pub(super) fn tables(rows: &[Row], sizes: &[u64]) -> Vec<Table> {
    let table = |view: &View| {
        let thesis = view.thesis.as_ref();
        let columns = Step::ALL.iter().map(|step| step.name().to_owned());
        let theirs =
            Step::ALL.iter().take(thesis.map_or(0, |columns| columns.len())).map(|step| thesis_name(*step));
        let line = |&size: &u64| -> Vec<Value> {
            let ours = Step::ALL.iter().map(|&step| {
                found(rows, view, step, size).and_then(|row| row.spread).map(|spread| spread.median).into()
            });
            let index = thesis::SIZES.iter().position(|other| *other == size);
            let theirs = thesis.into_iter().flatten().map(|column| index.map(|index| column[index]).into());
            std::iter::once(text::size(size).into()).chain(ours).chain(theirs).collect()
        };
        Table {
            title: view.title.to_owned(),
            note: format!("{} Medians of the rounds; their spread is below.", view.note),
            columns: std::iter::once("message".to_owned()).chain(columns).chain(theirs).collect(),
            rows: sizes.iter().map(line).collect(),
        }
    };
    VIEWS.iter().filter(|view| is_there(rows, view)).map(table).collect()
}

fn is_there(rows: &[Row], view: &View) -> bool {
    thesis::SIZES.iter().any(|&size| Step::ALL.iter().any(|&step| found(rows, view, step, size).is_some()))
}

fn thesis_name(step: Step) -> String {
    format!("thesis: {}", step.name())
}

/// One curve for each step, and one for each of the thesis'.
pub(super) fn figures(rows: &[Row]) -> Vec<Figure> {
    let figure = |view: &View| {
        let ours = Step::ALL.iter().enumerate().map(|(colour, &step)| {
            let points = thesis::SIZES.iter().filter_map(|&size| {
                let spread = found(rows, view, step, size)?.spread?;
                Some(Point { x: size as f64, y: spread.median, low: spread.min, high: spread.max })
            });
            Series { name: step.name().to_owned(), colour, points: points.collect() }
        });
        let theirs =
            view.thesis.iter().flatten().zip(Step::ALL).enumerate().map(|(index, (column, step))| {
                let point = |(&size, &y): (&u64, &f64)| Point { x: size as f64, y, low: y, high: y };
                let points = thesis::SIZES.iter().zip(column).map(point).collect();
                Series { name: thesis_name(step), colour: Step::ALL.len() + index, points }
            });
        let y = Axis { label: format!("{} ({})", view.metric.name, view.metric.unit), scale: view.scale };
        let series = ours.chain(theirs).collect();
        Figure {
            file: view.file.to_owned(),
            title: view.title.to_owned(),
            chart: Chart::Curves { x: message_size(), y, series },
        }
    };
    VIEWS.iter().filter(|view| is_there(rows, view)).map(figure).collect()
}
