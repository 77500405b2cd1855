//! Tables and figures, with the thesis' numbers beside ours.

use std::time::Duration;

use serde_json::Value;

use super::link::Link;
use super::thesis::{self, Columns};
use super::{FULLNESS, LARGE, SHARE, Setting, Times};
use crate::experiments::by_size::{self, Column, Parts, View};
use crate::network::step::Step;
use crate::network::{
    CPU, CPU_PARTS, CPU_REST, EFFORT, LATENCY, OF_CLIENT, OF_HOST, OF_SERVER, ONE_WAY, ROUND_TRIP,
    THROUGHPUT,
};
use crate::outcome::Table;
use crate::plot::Scale;
use crate::record::{Metric, Row};
use crate::text;

pub(super) const STEPS: &[&str] =
    &[Step::Off.name(), Step::Checksums.name(), Step::Segmentation.name(), Step::Joining.name()];

pub(super) const LATENCY_OF_THESIS: [Column; 3] = beside(thesis::LATENCY);
pub(super) const FAST_THROUGHPUT_OF_THESIS: [Column; 3] = beside(thesis::FAST_THROUGHPUT);
pub(super) const FAST_CPU_OF_THESIS: [Column; 3] = beside(thesis::FAST_CPU);
pub(super) const WEAK_THROUGHPUT_OF_THESIS: [Column; 3] = beside(thesis::WEAK_THROUGHPUT);
pub(super) const WEAK_CPU_OF_THESIS: [Column; 3] = beside(thesis::WEAK_CPU);
/// In percent of the link's capacity.
pub(super) const WEAK_FULLNESS_OF_THESIS: [Column; 3] =
    beside(scaled(thesis::WEAK_THROUGHPUT, 100.0 / thesis::FULL_LINK));

const fn beside([off, checksums, segmentation]: Columns) -> [Column; 3] {
    [
        Column::new(Step::Off.name(), off),
        Column::new(Step::Checksums.name(), checksums),
        Column::new(Step::Segmentation.name(), segmentation),
    ]
}

const fn scaled(mut columns: Columns, by: f64) -> Columns {
    let (mut column, mut row) = (0, 0);
    while column < columns.len() {
        columns[column][row] *= by;
        row += 1;
        if row == columns[column].len() {
            (column, row) = (column + 1, 0);
        }
    }
    columns
}

/// Titles and notes that depend on the link and on the time of the tests.
pub(super) struct Words {
    latency: String,
    throughput: String,
    cpu: String,
    cpu_note: String,
    weak_throughput: String,
    weak_share: String,
    weak_share_is_that_of_the_thesis: bool,
    weak_effort: String,
    effort: String,
    effort_note: String,
    parts: String,
    parts_note: String,
    cpu_time: String,
}

impl Words {
    pub(super) fn new(link: &Link, times: Times) -> Self {
        let (over, elsewhere) = (link.name(), link.elsewhere());
        let step =
            |time: Duration| format!("{:.1} %", 100.0 * TICK.as_secs_f64() / time.as_secs_f64());
        let ticks = format!(
            "The CPU time of a host is counted in ticks of {} ms: in steps of {} of a processor with messages of less \
             than 4 KiB, of {} with larger ones.",
            TICK.as_millis(),
            step(times.link),
            step(times.light)
        );
        let weak_ticks = format!(
            "The CPU time of a host is counted in ticks of {} ms: in steps of {} of a processor.",
            TICK.as_millis(),
            step(times.weak)
        );
        Self {
            latency: format!(
                "µs, 1 / (2 × rate of requests). Here: {elsewhere}; the thesis: 1 Gb/s Ethernet."
            ),
            throughput: format!("Throughput over {over} (tables 4.2.1 to 4.2.3, graph 4.2.1)"),
            cpu: format!("CPU load over {over} (tables 4.2.1 to 4.2.3, graph 4.2.2)"),
            cpu_note: format!(
                "Percent of one processor. Here: both ends together, all that was neither idle nor stolen by the \
                 hypervisor; the thesis: netperf's report on the sender. {ticks}"
            ),
            weak_throughput: format!(
                "Mb/s. Here: {elsewhere}; the thesis: hosts that are both weak, and 1 Gb/s Ethernet, which ends the \
                 gain at 939 Mb/s."
            ),
            weak_share: format!(
                "Percent of its share, user and system time of the receiving process; {elsewhere}. Where nothing else \
                 ends its work, it uses all of it."
            ),
            weak_share_is_that_of_the_thesis: !link.is_made(),
            weak_effort: format!("Seconds per 10⁹ bytes, both ends together. {weak_ticks}"),
            effort: format!("CPU time of a gigabyte over {over}"),
            effort_note: format!("Seconds per 10⁹ bytes, both ends together. {ticks}"),
            parts: format!("CPU load over {over} by part"),
            parts_note: format!(
                "{ticks} Percent of one processor, both ends together, as far as ticks count it"
            ),
            cpu_time: format!(
                "Where the CPU time goes: messages of {}, {over}",
                text::size(LARGE as u64)
            ),
        }
    }
}

/// USER_HZ, in which the kernel reports CPU time, is 100 on all common platforms.
const TICK: Duration = Duration::from_millis(10);

/// The thesis' tables and graphs, and their counterparts here.
pub(super) fn views(words: &Words) -> Vec<View<'_>> {
    let view = |file, title, note, case, metric, scale, thesis| View {
        figure: Some(file),
        title,
        note,
        case,
        metric,
        variants: STEPS,
        scale,
        thesis,
    };
    let latency: fn(u64) -> String = |size| Setting::Latency.case(size);
    let link: fn(u64) -> String = |size| Setting::Link.case(size);
    let weak: fn(u64) -> String = |size| Setting::Weak.case(size);
    let slow: fn(u64) -> String = |size| Setting::Slow.case(size);
    let round_trip = "µs, from the histogram of all round trips. The thesis has only means.";
    let share: &[Column] =
        if words.weak_share_is_that_of_the_thesis { &WEAK_CPU_OF_THESIS } else { &[] };
    vec![
        view(
            "latency.svg",
            "One-way latency (table and graph 4.1.1)",
            &words.latency,
            latency,
            LATENCY,
            Scale::Log10,
            &LATENCY_OF_THESIS,
        ),
        view(
            "round-trip-p50.svg",
            "Round trip, p50",
            round_trip,
            latency,
            ROUND_TRIP[0],
            Scale::Log10,
            &[],
        ),
        view(
            "round-trip-p99.svg",
            "Round trip, p99",
            round_trip,
            latency,
            ROUND_TRIP[1],
            Scale::Log10,
            &[],
        ),
        view(
            "round-trip-p999.svg",
            "Round trip, p99.9",
            round_trip,
            latency,
            ROUND_TRIP[2],
            Scale::Log10,
            &[],
        ),
        view(
            "throughput.svg",
            &words.throughput,
            "Mb/s.",
            link,
            THROUGHPUT,
            Scale::Linear,
            &FAST_THROUGHPUT_OF_THESIS,
        ),
        view("cpu.svg", &words.cpu, &words.cpu_note, link, CPU, Scale::Linear, &FAST_CPU_OF_THESIS),
        view(
            "weak-throughput.svg",
            "Throughput to a weak receiver (tables 4.2.4 to 4.2.6, graph 4.2.3)",
            &words.weak_throughput,
            weak,
            THROUGHPUT,
            Scale::Log10,
            &WEAK_THROUGHPUT_OF_THESIS,
        ),
        view(
            "slow-throughput.svg",
            "Throughput to a weak receiver over a link that it cannot quite fill (tables 4.2.4 to 4.2.6, graph 4.2.3)",
            "Percent of what the link carries of messages. Here as in the thesis it is 1.66 times what the receiver \
             takes of 64 KiB messages with everything off; here that was measured before, without a limit.",
            slow,
            FULLNESS,
            Scale::Linear,
            &WEAK_FULLNESS_OF_THESIS,
        ),
        view(
            "weak-cpu.svg",
            "CPU load of a weak receiver over a link that it cannot quite fill (tables 4.2.4 to 4.2.6, graph 4.2.3)",
            "Percent of what it has. Here: user and system time of the receiving process, of its share of a processor; \
             the thesis: of the host.",
            slow,
            SHARE,
            Scale::Linear,
            &WEAK_CPU_OF_THESIS,
        ),
        view(
            "weak-share.svg",
            "CPU load of a weak receiver",
            &words.weak_share,
            weak,
            SHARE,
            Scale::Linear,
            share,
        ),
        view(
            "weak-cpu-time.svg",
            "CPU time of a gigabyte, weak receiver",
            &words.weak_effort,
            weak,
            EFFORT,
            Scale::Log10,
            &[],
        ),
        view("cpu-time.svg", &words.effort, &words.effort_note, link, EFFORT, Scale::Log10, &[]),
    ]
}

/// The parts of [`CPU`].
pub(super) fn parts(words: &Words) -> [Parts<'_>; 1] {
    [Parts {
        title: &words.parts,
        note: &words.parts_note,
        case: |size| Setting::Link.case(size),
        variants: STEPS,
        metrics: &CPU_PARTS,
    }]
}

fn median(rows: &[Row], case: &str, step: &str, metric: Metric) -> Option<f64> {
    by_size::spread(rows, case, step, metric).map(|spread| spread.median)
}

/// The formula's latency, and half of the median round trip beside it.
pub(super) fn one_way(rows: &[Row], sizes: &[u64]) -> Option<Table> {
    let cells = |&size: &u64| -> Vec<Value> {
        let case = Setting::Latency.case(size);
        let both =
            |step: &&str| [LATENCY, ONE_WAY].map(|metric| median(rows, &case, step, metric).into());
        std::iter::once(text::size(size).into()).chain(STEPS.iter().flat_map(both)).collect()
    };
    let heads = |step: &&str| [format!("{step}: 1 / (2 × rate)"), format!("{step}: p50 / 2")];
    let table = Table {
        title: "One-way latency by formula and by histogram".to_owned(),
        note: "µs. The formula is that of the mean round trip, which long ones raise; beside it half of the median \
               one. Medians of the rounds."
            .to_owned(),
        columns: std::iter::once("message".to_owned()).chain(STEPS.iter().flat_map(heads)).collect(),
        rows: sizes.iter().map(cells).collect(),
    };
    has_numbers(&table).then_some(table)
}

/// The parts of the load of hosts and processes, by step, for large messages over the link.
pub(super) fn cpu_time(rows: &[Row], words: &Words) -> Option<Table> {
    let case = Setting::Link.case(LARGE as u64);
    let [[_, user, system, softirq, rest], other] = OF_HOST;
    let [user_of_both, system_of_both, softirq_of_both] = CPU_PARTS.map(|(_, metric)| metric);
    let two_hosts = STEPS.iter().any(|step| median(rows, &case, step, user).is_some());
    let hosts: &[(&str, [Metric; 5])] = if two_hosts {
        &[("this one", [OF_HOST[0][0], user, system, softirq, rest]), ("the other", other)]
    } else {
        &[("both ends on one", [CPU, user_of_both, system_of_both, softirq_of_both, CPU_REST])]
    };
    let processes = [OF_CLIENT, OF_SERVER].concat();
    let line = |step: &str, (name, [all, parts @ ..]): &(&str, [Metric; 5])| -> Vec<Value> {
        let metrics = parts.iter().chain([all]).chain(&processes);
        let numbers = metrics.map(|metric| median(rows, &case, step, *metric).into());
        [Value::from(step), Value::from(*name)].into_iter().chain(numbers).collect()
    };
    let columns = [
        "step",
        "host",
        "user",
        "system",
        "softirq",
        "in no tick",
        "all",
        "client, user",
        "client, system",
        "server, user",
        "server, system",
    ];
    let table = Table {
        title: words.cpu_time.clone(),
        note: "Percent of one processor, medians of the rounds. All: the time in which the host was neither idle nor \
               stolen from. User, system and softirq: the part that ticks count. In no tick: the rest, which is work \
               between two ticks, above all of the timer of a token bucket and of softirqs, and time that the \
               hypervisor takes without reporting it; the two cannot be distinguished here. Client and server: their \
               processes, by getrusage, which charges a process with the softirqs that run while it does. The sender \
               is the client."
            .to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: STEPS.iter().flat_map(|step| hosts.iter().map(move |host| line(step, host))).collect(),
    };
    has_numbers(&table).then_some(table)
}

fn has_numbers(table: &Table) -> bool {
    table.rows.iter().flatten().any(Value::is_number)
}
