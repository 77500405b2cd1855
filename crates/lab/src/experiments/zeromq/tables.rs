//! Tables and figures, with the thesis' numbers beside ours.

use serde_json::Value;

use super::thesis::{self, Columns};
use super::{APART, HERE, RATE, RECEIVER, case, sizes};
use crate::experiments::message_size;
use crate::messaging::Kind;
use crate::messaging::programs::Way;
use crate::network::{LATENCY, ROUND_TRIP, THROUGHPUT};
use crate::outcome::Table;
use crate::plot::{Axis, Chart, Figure, Point, Scale, Series};
use crate::record::{Metric, Row};
use crate::stats::Spread;
use crate::text;

/// What a table and a figure show.
struct View {
    file: &'static str,
    title: &'static str,
    note: &'static str,
    kind: Kind,
    metric: Metric,
    ways: &'static [Way],
    scale: Scale,
    thesis: Option<Columns>,
}

/// The thesis' columns.
const THESIS: [&str; 2] = ["thesis: everything off", "thesis: + TSO, SG"];

const VIEWS: [View; 7] = [
    View {
        file: "latency.svg",
        title: "One host: one-way latency",
        note: "µs, half of the mean round trip, as remote_lat of libzmq has it.",
        kind: Kind::RequestReply,
        metric: LATENCY,
        ways: &HERE,
        scale: Scale::Log10,
        thesis: None,
    },
    View {
        file: "round-trip-p99.svg",
        title: "One host: round trip, p99",
        note: "µs.",
        kind: Kind::RequestReply,
        metric: ROUND_TRIP[1],
        ways: &HERE,
        scale: Scale::Log10,
        thesis: None,
    },
    View {
        file: "rate.svg",
        title: "One host: messages per second",
        note: "",
        kind: Kind::PushPull,
        metric: RATE,
        ways: &HERE,
        scale: Scale::Log10,
        thesis: None,
    },
    View {
        file: "veth-latency.svg",
        title: "Two hosts: one-way latency (table and graph 4.1.2)",
        note: "µs. Here: two network namespaces, whose link has no limit; the thesis: 1 Gb/s Ethernet.",
        kind: Kind::RequestReply,
        metric: LATENCY,
        ways: &APART,
        scale: Scale::Log10,
        thesis: Some(thesis::LATENCY),
    },
    View {
        file: "veth-throughput.svg",
        title: "Two hosts: throughput (tables 4.2.7 and 4.2.8, graph 4.2.4)",
        note: "Mb/s.",
        kind: Kind::PushPull,
        metric: THROUGHPUT,
        ways: &APART,
        scale: Scale::Log10,
        thesis: Some(thesis::THROUGHPUT),
    },
    View {
        file: "veth-rate.svg",
        title: "Two hosts: messages per second (tables 4.2.7 and 4.2.8)",
        note: "",
        kind: Kind::PushPull,
        metric: RATE,
        ways: &APART,
        scale: Scale::Log10,
        thesis: Some(thesis::RATE),
    },
    View {
        file: "veth-cpu.svg",
        title: "Two hosts: CPU load of the receiver (tables 4.2.7 and 4.2.8, graph 4.2.4)",
        note: "Percent of one processor. Here: user and system time of the receiving process; the thesis: what mpstat \
               says of the receiving host.",
        kind: Kind::PushPull,
        metric: RECEIVER,
        ways: &APART,
        scale: Scale::Linear,
        thesis: Some(thesis::CPU),
    },
];

fn found(rows: &[Row], view: &View, way: &Way, size: u64) -> Option<Spread> {
    let case = case(view.kind, size);
    let is_it = |row: &&Row| row.case == case && row.variant == way.name && row.metric == view.metric.name;
    rows.iter().find(is_it)?.spread
}

fn shown<'a>(rows: &'a [Row], sizes: &'a [u64]) -> impl Iterator<Item = &'static View> + 'a {
    let any = |view: &View| {
        view.ways.iter().any(|way| sizes.iter().any(|&size| found(rows, view, way, size).is_some()))
    };
    VIEWS.iter().filter(move |view| any(view))
}

/// Medians by size and way, and the thesis' columns.
pub(super) fn tables(rows: &[Row], of_sizes: &[u64]) -> Vec<Table> {
    let table = |view: &View| {
        let theirs = |size: u64| {
            let index = sizes().iter().position(|&other| other == size);
            view.thesis.iter().flatten().map(move |column| index.and_then(|index| column[index]).into())
        };
        let line = |&size: &u64| -> Vec<Value> {
            let ours =
                view.ways.iter().map(|way| found(rows, view, way, size).map(|spread| spread.median).into());
            std::iter::once(text::size(size).into()).chain(ours).chain(theirs(size)).collect()
        };
        let ways = view.ways.iter().map(|way| way.name);
        let names = std::iter::once("message")
            .chain(ways)
            .chain(THESIS.into_iter().filter(|_| view.thesis.is_some()));
        Table {
            title: view.title.to_owned(),
            note: format!("{} Medians of the rounds; their spread is below.", view.note)
                .trim_start()
                .to_owned(),
            columns: names.map(str::to_owned).collect(),
            rows: of_sizes.iter().map(line).collect(),
        }
    };
    shown(rows, of_sizes).map(table).collect()
}

/// One curve for each way, and one for each of the thesis' columns.
pub(super) fn figures(rows: &[Row]) -> Vec<Figure> {
    let all = sizes();
    let figure = |view: &View| {
        let ours = view.ways.iter().enumerate().map(|(colour, way)| {
            let point = |&size: &u64| {
                let spread = found(rows, view, way, size)?;
                Some(Point { x: size as f64, y: spread.median, low: spread.min, high: spread.max })
            };
            Series { name: way.name.to_owned(), colour, points: all.iter().filter_map(point).collect() }
        });
        let theirs = view.thesis.iter().flatten().zip(THESIS).enumerate().map(|(index, (column, name))| {
            let point =
                |(&size, &y): (&u64, &Option<f64>)| Some(Point { x: size as f64, y: y?, low: y?, high: y? });
            let points = all.iter().zip(column).filter_map(point).collect();
            Series { name: name.to_owned(), colour: view.ways.len() + index, points }
        });
        let y = Axis { label: format!("{} ({})", view.metric.name, view.metric.unit), scale: view.scale };
        let series = ours.chain(theirs).collect();
        Figure {
            file: view.file.to_owned(),
            title: view.title.to_owned(),
            chart: Chart::Curves { x: message_size(), y, series },
        }
    };
    shown(rows, &all).map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Sample, Samples};

    fn rows() -> Vec<Row> {
        let sample = |way: &Way, size: u64, value| Sample {
            case: case(Kind::PushPull, size),
            x: Some(size as f64),
            variant: way.name.to_owned(),
            metric: Some(THROUGHPUT),
            round: 1,
            position: 0,
            outcome: Ok(value),
            traffic: None,
        };
        Samples(vec![sample(&APART[0], 64, 100.0), sample(&APART[2], 128, 300.0)]).rows(HERE[0].name)
    }

    #[test]
    fn the_thesis_stands_beside_what_was_measured() {
        let tables = tables(&rows(), &[64, 128]);
        assert_eq!(tables.len(), 1, "what was not measured has no table");
        assert_eq!(tables[0].columns.len(), 1 + APART.len() + THESIS.len());
        assert_eq!(
            tables[0].rows[0][1..],
            [100.0.into(), Value::Null, Value::Null, Value::Null, 324.0.into(), 485.66.into()]
        );
        assert_eq!(tables[0].rows[1][5..], [Value::Null, 590.33.into()], "garbled cells stay empty");
    }

    #[test]
    fn figures_have_a_curve_for_each() {
        let figures = figures(&rows());
        let Chart::Curves { series, .. } = &figures[0].chart else { panic!("these are curves") };
        let points: Vec<usize> = series.iter().map(|series| series.points.len()).collect();
        assert_eq!(points, [1, 0, 1, 0, 16, 17]);
    }
}
