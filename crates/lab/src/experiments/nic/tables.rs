//! Tables and figures, with the thesis' numbers beside ours.

use super::Setting;
use super::thesis::{self, Columns};
use crate::experiments::by_size::{Column, Parts, View};
use crate::network::step::Step;
use crate::network::{CPU, CPU_PARTS, EFFORT, LATENCY, ROUND_TRIP, SERVER, THROUGHPUT};
use crate::plot::Scale;

const STEPS: &[&str] =
    &[Step::Off.name(), Step::Checksums.name(), Step::Segmentation.name(), Step::Joining.name()];

const fn beside([off, checksums, segmentation]: Columns) -> [Column; 3] {
    [
        Column::new(Step::Off.name(), off),
        Column::new(Step::Checksums.name(), checksums),
        Column::new(Step::Segmentation.name(), segmentation),
    ]
}

/// The thesis' tables and graphs, and what stands for them here.
pub(super) const VIEWS: [View; 8] = [
    View {
        file: "latency.svg",
        title: "One-way latency (table and graph 4.1.1)",
        note: "µs, 1 / (2 × rate of requests). Here: no link limits it; the thesis: 1 Gb/s Ethernet.",
        case: |size| Setting::Latency.case(size),
        metric: LATENCY,
        variants: STEPS,
        scale: Scale::Log10,
        thesis: &beside(thesis::LATENCY),
    },
    View {
        file: "round-trip-p99.svg",
        title: "Round trip, p99",
        note: "µs, from the histogram of all round trips. The thesis has only means.",
        case: |size| Setting::Latency.case(size),
        metric: ROUND_TRIP[1],
        variants: STEPS,
        scale: Scale::Log10,
        thesis: &[],
    },
    View {
        file: "throughput.svg",
        title: "Throughput over a link of 1 Gb/s (tables 4.2.1 to 4.2.3, graph 4.2.1)",
        note: "Mb/s.",
        case: |size| Setting::Link.case(size),
        metric: THROUGHPUT,
        variants: STEPS,
        scale: Scale::Linear,
        thesis: &beside(thesis::FAST_THROUGHPUT),
    },
    View {
        file: "cpu.svg",
        title: "CPU load over a link of 1 Gb/s (tables 4.2.1 to 4.2.3, graph 4.2.2)",
        note: "Percent of one processor. Here: both ends together, all that was neither idle nor stolen by the \
               hypervisor; the thesis: what netperf says of the sender.",
        case: |size| Setting::Link.case(size),
        metric: CPU,
        variants: STEPS,
        scale: Scale::Linear,
        thesis: &beside(thesis::FAST_CPU),
    },
    View {
        file: "weak-throughput.svg",
        title: "Throughput to a weak receiver (tables 4.2.4 to 4.2.6, graph 4.2.3)",
        note: "Mb/s. Here: no link limits it; the thesis: hosts that are both weak, and 1 Gb/s Ethernet, which \
               ends the gain at 939 Mb/s.",
        case: |size| Setting::Weak.case(size),
        metric: THROUGHPUT,
        variants: STEPS,
        scale: Scale::Log10,
        thesis: &beside(thesis::WEAK_THROUGHPUT),
    },
    View {
        file: "weak-cpu.svg",
        title: "CPU load with a weak receiver (tables 4.2.4 to 4.2.6, graph 4.2.3)",
        note: "Percent. Here: of one processor, the receiving process, which cannot have more than its share and \
               uses all of it wherever the sender keeps up, as no link ends its work; the thesis: of what there is.",
        case: |size| Setting::Weak.case(size),
        metric: SERVER,
        variants: STEPS,
        scale: Scale::Linear,
        thesis: &beside(thesis::WEAK_CPU),
    },
    View {
        file: "weak-cpu-time.svg",
        title: "CPU time of a gigabyte, weak receiver",
        note: "Seconds per 10⁹ bytes, both ends together.",
        case: |size| Setting::Weak.case(size),
        metric: EFFORT,
        variants: STEPS,
        scale: Scale::Log10,
        thesis: &[],
    },
    View {
        file: "cpu-time.svg",
        title: "CPU time of a gigabyte over a link of 1 Gb/s",
        note: "Seconds per 10⁹ bytes, both ends together.",
        case: |size| Setting::Link.case(size),
        metric: EFFORT,
        variants: STEPS,
        scale: Scale::Log10,
        thesis: &[],
    },
];

/// What [`CPU`] consists of.
pub(super) const PARTS: [Parts; 1] = [Parts {
    title: "CPU load over a link of 1 Gb/s by part",
    note: "Percent of one processor, both ends together, as far as ticks see it",
    case: |size| Setting::Link.case(size),
    variants: STEPS,
    metrics: &CPU_PARTS,
}];
