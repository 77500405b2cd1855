//! Tables and figures, with the thesis' numbers beside ours.

use super::{APART, HERE, RATE, RECEIVER, case, thesis};
use crate::experiments::by_size::View;
use crate::messaging::Kind;
use crate::messaging::programs::Way;
use crate::network::{LATENCY, ROUND_TRIP, THROUGHPUT};
use crate::plot::Scale;

const HERE_NAMES: &[&str] = &names(HERE);
const APART_NAMES: &[&str] = &names(APART);

const fn names<const N: usize>(ways: [Way; N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut index = 0;
    while index < N {
        names[index] = ways[index].name;
        index += 1;
    }
    names
}

pub(super) const VIEWS: [View; 7] = [
    View {
        file: "latency.svg",
        title: "One host: one-way latency",
        note: "µs, half of the mean round trip, as remote_lat of libzmq has it.",
        case: |size| case(Kind::RequestReply, size),
        metric: LATENCY,
        variants: HERE_NAMES,
        scale: Scale::Log10,
        thesis: &[],
    },
    View {
        file: "round-trip-p99.svg",
        title: "One host: round trip, p99",
        note: "µs.",
        case: |size| case(Kind::RequestReply, size),
        metric: ROUND_TRIP[1],
        variants: HERE_NAMES,
        scale: Scale::Log10,
        thesis: &[],
    },
    View {
        file: "rate.svg",
        title: "One host: messages per second",
        note: "",
        case: |size| case(Kind::PushPull, size),
        metric: RATE,
        variants: HERE_NAMES,
        scale: Scale::Log10,
        thesis: &[],
    },
    View {
        file: "veth-latency.svg",
        title: "Two hosts: one-way latency (table and graph 4.1.2)",
        note: "µs. Here: two network namespaces, whose link has no limit; the thesis: 1 Gb/s Ethernet.",
        case: |size| case(Kind::RequestReply, size),
        metric: LATENCY,
        variants: APART_NAMES,
        scale: Scale::Log10,
        thesis: &thesis::LATENCY,
    },
    View {
        file: "veth-throughput.svg",
        title: "Two hosts: throughput (tables 4.2.7 and 4.2.8, graph 4.2.4)",
        note: "Mb/s.",
        case: |size| case(Kind::PushPull, size),
        metric: THROUGHPUT,
        variants: APART_NAMES,
        scale: Scale::Log10,
        thesis: &thesis::THROUGHPUT,
    },
    View {
        file: "veth-rate.svg",
        title: "Two hosts: messages per second (tables 4.2.7 and 4.2.8)",
        note: "",
        case: |size| case(Kind::PushPull, size),
        metric: RATE,
        variants: APART_NAMES,
        scale: Scale::Log10,
        thesis: &thesis::RATE,
    },
    View {
        file: "veth-cpu.svg",
        title: "Two hosts: CPU load of the receiver (tables 4.2.7 and 4.2.8, graph 4.2.4)",
        note: "Percent of one processor. Here: user and system time of the receiving process; the thesis: what mpstat \
               says of the receiving host.",
        case: |size| case(Kind::PushPull, size),
        metric: RECEIVER,
        variants: APART_NAMES,
        scale: Scale::Linear,
        thesis: &thesis::CPU,
    },
];

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::experiments::by_size::{figures, tables};
    use crate::plot::Chart;
    use crate::record::{Row, Sample, Samples};

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
        let tables = tables(&VIEWS, &rows(), &[64, 128]);
        assert_eq!(tables.len(), 1, "what was not measured has no table");
        assert_eq!(tables[0].columns.len(), 1 + APART.len() + 2);
        assert_eq!(tables[0].columns[5..], ["thesis: everything off", "thesis: + TSO, SG"]);
        assert_eq!(
            tables[0].rows[0][1..],
            [100.0.into(), Value::Null, Value::Null, Value::Null, 324.0.into(), 485.66.into()]
        );
        assert_eq!(tables[0].rows[1][5..], [Value::Null, 590.33.into()], "garbled cells stay empty");
    }

    #[test]
    fn figures_have_a_curve_for_each() {
        let figures = figures(&VIEWS, &rows());
        let Chart::Curves { series, .. } = &figures[0].chart else { panic!("these are curves") };
        let points: Vec<usize> = series.iter().map(|series| series.points.len()).collect();
        assert_eq!(points, [1, 0, 1, 0, 16, 17]);
    }
}
