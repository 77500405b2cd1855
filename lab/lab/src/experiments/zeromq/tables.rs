//! Tables and figures, with the thesis' numbers beside ours.

use super::{APART, EFFORT, HERE, QUANTILES, RATE, RECEIVER, SENDER, THROUGHPUT, case, thesis};
use crate::experiments::by_size::{Parts, View};
use crate::messaging::Kind;
use crate::messaging::programs::Way;
use crate::network::{CPU, CPU_PARTS, LATENCY};
use crate::plot::Scale;

const HERE_NAMES: &[&str] = &names(HERE);
const APART_NAMES: &[&str] = &names(APART);

const REQUEST_REPLY: fn(u64) -> String = |size| case(Kind::RequestReply, size);
const PUSH_PULL: fn(u64) -> String = |size| case(Kind::PushPull, size);

const fn names<const N: usize>(ways: [Way; N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut index = 0;
    while index < N {
        names[index] = ways[index].name;
        index += 1;
    }
    names
}

pub(super) const VIEWS: [View<'static>; 12] = [
    View {
        figure: Some("latency.svg"),
        title: "One host: one-way latency, mean",
        note: "µs, REQ/REP, half of the mean round trip of a message that neither end copies, as libzmq's remote_lat has \
               it.",
        case: REQUEST_REPLY,
        metric: LATENCY,
        variants: HERE_NAMES,
        scale: Scale::Log10,
        thesis: &[],
    },
    View {
        figure: None,
        title: "One host: one-way latency, p50",
        note: "µs, REQ/REP, half of the median round trip.",
        case: REQUEST_REPLY,
        metric: QUANTILES[0],
        variants: HERE_NAMES,
        scale: Scale::Log10,
        thesis: &[],
    },
    View {
        figure: Some("latency-p99.svg"),
        title: "One host: one-way latency, p99",
        note: "µs, REQ/REP, half of the 99th percentile of round trips.",
        case: REQUEST_REPLY,
        metric: QUANTILES[1],
        variants: HERE_NAMES,
        scale: Scale::Log10,
        thesis: &[],
    },
    View {
        figure: Some("rate.svg"),
        title: "One host: messages per second",
        note: "PUSH/PULL.",
        case: PUSH_PULL,
        metric: RATE,
        variants: HERE_NAMES,
        scale: Scale::Log10,
        thesis: &[],
    },
    View {
        figure: Some("throughput.svg"),
        title: "One host: throughput",
        note: "MB/s, PUSH/PULL.",
        case: PUSH_PULL,
        metric: THROUGHPUT,
        variants: HERE_NAMES,
        scale: Scale::Log10,
        thesis: &[],
    },
    View {
        figure: Some("cpu.svg"),
        title: "One host: CPU load of both ends",
        note: "Percent of one processor, PUSH/PULL. The time in which the machine, on which both ends are, was neither \
               idle nor stolen by the hypervisor; by part below.",
        case: PUSH_PULL,
        metric: CPU,
        variants: HERE_NAMES,
        scale: Scale::Linear,
        thesis: &[],
    },
    View {
        figure: Some("cpu-time.svg"),
        title: "One host: CPU time of a message",
        note: "µs, PUSH/PULL: that load of both ends for each message.",
        case: PUSH_PULL,
        metric: EFFORT,
        variants: HERE_NAMES,
        scale: Scale::Log10,
        thesis: &[],
    },
    View {
        figure: Some("veth-latency.svg"),
        title: "Two hosts: one-way latency (table and graph 4.1.2)",
        note: "µs, REQ/REP. Here: two network namespaces, whose link has no limit; the thesis: 1 Gb/s Ethernet.",
        case: REQUEST_REPLY,
        metric: LATENCY,
        variants: APART_NAMES,
        scale: Scale::Log10,
        thesis: &thesis::LATENCY,
    },
    View {
        figure: Some("veth-rate.svg"),
        title: "Two hosts: messages per second (tables 4.2.7 and 4.2.8)",
        note: "PUSH/PULL.",
        case: PUSH_PULL,
        metric: RATE,
        variants: APART_NAMES,
        scale: Scale::Log10,
        thesis: &thesis::RATE,
    },
    View {
        figure: Some("veth-throughput.svg"),
        title: "Two hosts: throughput (tables 4.2.7 and 4.2.8, graph 4.2.4)",
        note: "MB/s, PUSH/PULL. The thesis has Mb/s, which are divided by 8 here.",
        case: PUSH_PULL,
        metric: THROUGHPUT,
        variants: APART_NAMES,
        scale: Scale::Log10,
        thesis: &thesis::THROUGHPUT,
    },
    View {
        figure: Some("veth-cpu.svg"),
        title: "Two hosts: CPU load of the receiver (tables 4.2.7 and 4.2.8, graph 4.2.4)",
        note: "Percent of one processor, PUSH/PULL. Here: user and system time of the receiving process; the thesis: \
               mpstat's report on the receiving host, with its softirqs.",
        case: PUSH_PULL,
        metric: RECEIVER[0],
        variants: APART_NAMES,
        scale: Scale::Linear,
        thesis: &thesis::CPU,
    },
    View {
        figure: Some("veth-cpu-both.svg"),
        title: "Two hosts: CPU load of both ends (tables 4.2.7 and 4.2.8, graph 4.2.4)",
        note: "Percent of one processor, PUSH/PULL. Here: both ends, which are two namespaces of one machine, the time \
               in which it was neither idle nor stolen by the hypervisor, by part below; the thesis: the receiving \
               host.",
        case: PUSH_PULL,
        metric: CPU,
        variants: APART_NAMES,
        scale: Scale::Linear,
        thesis: &thesis::CPU,
    },
];

/// User, system and softirq time of the machine, which belongs to both ends, and user and system
/// time of each end, which its processes alone account for.
pub(super) const PARTS: [Parts<'static>; 6] = [
    machine("One host: CPU load of both ends by part, REQ/REP", REQUEST_REPLY, HERE_NAMES),
    machine("One host: CPU load of both ends by part, PUSH/PULL", PUSH_PULL, HERE_NAMES),
    machine("Two hosts: CPU load of both ends by part, REQ/REP", REQUEST_REPLY, APART_NAMES),
    machine("Two hosts: CPU load of both ends by part, PUSH/PULL", PUSH_PULL, APART_NAMES),
    processes(
        "One host: CPU time of the sender and the receiver, PUSH/PULL",
        PUSH_PULL,
        HERE_NAMES,
    ),
    processes(
        "Two hosts: CPU time of the sender and the receiver, PUSH/PULL",
        PUSH_PULL,
        APART_NAMES,
    ),
];

const fn machine(
    title: &'static str,
    case: fn(u64) -> String,
    variants: &'static [&'static str],
) -> Parts<'static> {
    Parts {
        title,
        note: "Percent of one processor, of the machine on which both ends are, as far as ticks count it",
        case,
        variants,
        metrics: &CPU_PARTS,
    }
}

const fn processes(
    title: &'static str,
    case: fn(u64) -> String,
    variants: &'static [&'static str],
) -> Parts<'static> {
    Parts {
        title,
        note: "Percent of one processor, of their processes; over inproc:// both ends are one process",
        case,
        variants,
        metrics: &[
            ("user of the sender", SENDER[1]),
            ("system of the sender", SENDER[2]),
            ("user of the receiver", RECEIVER[1]),
            ("system of the receiver", RECEIVER[2]),
        ],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::experiments::by_size::{self, figures, parts, tables};
    use crate::network::{CPU_SOFTIRQ, CPU_SYSTEM, CPU_USER};
    use crate::plot::Chart;
    use crate::record::{Row, Sample, Samples};

    fn rows() -> Vec<Row> {
        let sample = |way: &Way, size: u64, metric, value| Sample {
            case: case(Kind::PushPull, size),
            x: Some(size as f64),
            variant: way.name.to_owned(),
            metric: Some(metric),
            round: 1,
            position: 0,
            outcome: Ok(value),
            traffic: None,
        };
        Samples(vec![
            sample(&APART[0], 64, THROUGHPUT, 100.0),
            sample(&APART[2], 128, THROUGHPUT, 300.0),
            sample(&APART[1], 64, CPU_USER, 50.4),
            sample(&APART[1], 64, CPU_SYSTEM, 30.0),
            sample(&APART[1], 64, CPU_SOFTIRQ, 0.0),
            sample(&APART[2], 64, CPU_USER, 50.0),
        ])
        .rows(HERE[0].name)
    }

    #[test]
    fn parts_are_shown_where_all_of_them_are_known() {
        let tables = parts(&PARTS, &rows(), &[64, 128]);
        assert_eq!(tables.len(), 1, "an unmeasured quantity has no table");
        assert!(
            tables[0]
                .note
                .ends_with("user + system + softirq. Medians of the rounds, each by itself.")
        );
        let row = ["64 B".into(), Value::Null, "50 + 30 + 0".into(), Value::Null, Value::Null];
        assert_eq!(
            tables[0].rows,
            [row, ["128 B".into(), Value::Null, Value::Null, Value::Null, Value::Null]]
        );
    }

    #[test]
    fn the_thesis_stands_beside_what_was_measured() {
        let tables = tables(&VIEWS, &rows(), &[64, 128]);
        assert_eq!(tables.len(), 1, "an unmeasured quantity has no table");
        assert_eq!(tables[0].columns.len(), 1 + APART.len() + 2);
        assert_eq!(tables[0].columns[5..], ["thesis: everything off", "thesis: + TSO, SG"]);
        assert_eq!(
            tables[0].rows[0][1..],
            [
                100.0.into(),
                Value::Null,
                Value::Null,
                Value::Null,
                40.5.into(),
                (485.66 / 8.0).into()
            ]
        );
        assert_eq!(tables[0].rows[1][5..], [Value::from("49.12*"), (590.33 / 8.0).into()]);
        assert!(tables[0].note.contains("* As printed, but") && tables[0].note.contains("not 393"));
        let tables = by_size::tables(&VIEWS, &rows(), &[64]);
        assert!(!tables[0].note.contains('*'), "that row is not shown");
    }

    #[test]
    fn figures_have_a_curve_for_each() {
        let figures = figures(&VIEWS, &rows());
        let Chart::Curves { series, .. } = &figures[0].chart else { panic!("these are curves") };
        let points: Vec<usize> = series.iter().map(|series| series.points.len()).collect();
        assert_eq!(points, [1, 0, 1, 0, 17, 17]);
    }
}
