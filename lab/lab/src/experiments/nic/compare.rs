//! Numbers of the thesis beside a result, like for like: everything off, and all offloads but GRO,
//! which it did not have.

use super::tables::{
    FAST_CPU_OF_THESIS, FAST_THROUGHPUT_OF_THESIS, LATENCY_OF_THESIS, WEAK_CPU_OF_THESIS,
    WEAK_FULLNESS_OF_THESIS, WEAK_THROUGHPUT_OF_THESIS,
};
use super::{FULLNESS, SHARE, Setting};
use crate::claim::Comparison;
use crate::experiments::by_size::{SIZES, View};
use crate::network::step::Step;
use crate::network::{CPU, LATENCY, THROUGHPUT};
use crate::outcome::ResultFile;
use crate::plot::Scale;
use crate::text;

const VARIANTS: &[&str] = &[Step::Off.name(), Step::Segmentation.name()];

/// A graph of the thesis, and its counterpart in a result.
struct Graph {
    source: &'static str,
    view: View<'static>,
}

const GRAPHS: [Graph; 6] = [
    Graph {
        source: "“Network hardware for business messaging”, table 4.1.1 and graph 4.1.1",
        view: View {
            figure: Some("thesis-latency.svg"),
            title: "One-way latency beside the thesis",
            note: "µs, 1 / (2 × rate of requests).",
            case: |size| Setting::Latency.case(size),
            metric: LATENCY,
            variants: VARIANTS,
            scale: Scale::Log10,
            thesis: &ends(LATENCY_OF_THESIS),
        },
    },
    Graph {
        source: "“Network hardware for business messaging”, tables 4.2.1 to 4.2.3 and graph 4.2.1",
        view: View {
            figure: Some("thesis-throughput.svg"),
            title: "Throughput of fast hosts beside the thesis",
            note: "Mb/s, over the link that the setting below names.",
            case: |size| Setting::Link.case(size),
            metric: THROUGHPUT,
            variants: VARIANTS,
            scale: Scale::Linear,
            thesis: &ends(FAST_THROUGHPUT_OF_THESIS),
        },
    },
    Graph {
        source: "“Network hardware for business messaging”, tables 4.2.1 to 4.2.3 and graph 4.2.2",
        view: View {
            figure: Some("thesis-cpu.svg"),
            title: "CPU load of fast hosts beside the thesis",
            note: "Percent of one processor. Here: both ends; the thesis: netperf's report on the sender.",
            case: |size| Setting::Link.case(size),
            metric: CPU,
            variants: VARIANTS,
            scale: Scale::Linear,
            thesis: &ends(FAST_CPU_OF_THESIS),
        },
    },
    Graph {
        source: "“Network hardware for business messaging”, tables 4.2.4 to 4.2.6 and graph 4.2.3",
        view: View {
            figure: Some("thesis-weak-throughput.svg"),
            title: "Throughput to a weak receiver beside the thesis",
            note: "Mb/s. Here: a receiver with a share of a processor; the thesis: weak hosts, and 1 Gb/s Ethernet.",
            case: |size| Setting::Weak.case(size),
            metric: THROUGHPUT,
            variants: VARIANTS,
            scale: Scale::Log10,
            thesis: &ends(WEAK_THROUGHPUT_OF_THESIS),
        },
    },
    Graph {
        source: "“Network hardware for business messaging”, tables 4.2.4 to 4.2.6 and graph 4.2.3",
        view: View {
            figure: Some("thesis-slow-throughput.svg"),
            title: "Throughput to a weak receiver over a link that it cannot quite fill beside the thesis",
            note: "Percent of what the link carries.",
            case: |size| Setting::Slow.case(size),
            metric: FULLNESS,
            variants: VARIANTS,
            scale: Scale::Linear,
            thesis: &ends(WEAK_FULLNESS_OF_THESIS),
        },
    },
    Graph {
        source: "“Network hardware for business messaging”, tables 4.2.4 to 4.2.6 and graph 4.2.3",
        view: View {
            figure: Some("thesis-weak-cpu.svg"),
            title: "CPU load of a weak receiver over a link that it cannot quite fill beside the thesis",
            note: "Percent of what the receiver has.",
            case: |size| Setting::Slow.case(size),
            metric: SHARE,
            variants: VARIANTS,
            scale: Scale::Linear,
            thesis: &ends(WEAK_CPU_OF_THESIS),
        },
    },
];

/// The first and the last of the thesis' steps.
const fn ends<T: Copy>([off, _, segmentation]: [T; 3]) -> [T; 2] {
    [off, segmentation]
}

/// Each graph with readings.
pub(super) fn with_the_thesis(result: &ResultFile) -> Vec<Comparison> {
    let measured = |size: &u64| {
        result.rows.iter().any(|row| row.case.ends_with(&format!(", {}", text::size(*size))))
    };
    let sizes: Vec<u64> = SIZES.into_iter().filter(measured).collect();
    let compare = |Graph { source, view }: &Graph| Comparison {
        source,
        figure: view.figure(&result.rows),
        table: view.table(&result.rows, &sizes),
    };
    GRAPHS.iter().filter(|graph| graph.view.is_measured(&result.rows)).map(compare).collect()
}
