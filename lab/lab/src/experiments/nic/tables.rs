//! Tables and figures, with the thesis' numbers beside ours.

use std::time::Duration;

use serde_json::Value;

use super::cases::{LARGE, Setting, Times};
use super::link::Link;
use crate::experiments::by_size::median;
use crate::network::step::OffloadStep;
use crate::network::{CPU, CPU_PARTS, CPU_REST, LATENCY, OF_CLIENT, OF_HOST, OF_SERVER, ONE_WAY};
use crate::outcome::Table;
use crate::record::{Metric, Row};
use crate::text;

pub(super) const STEPS: &[&str] = &[
    OffloadStep::Off.name(),
    OffloadStep::Checksums.name(),
    OffloadStep::Segmentation.name(),
    OffloadStep::Joining.name(),
];

/// The words in the titles and notes of the file that depend on the link and on the time of the
/// tests.
pub(super) fn words(link: &Link, times: Times) -> [(&'static str, String); 5] {
    let step = |time: Duration| format!("{:.1} %", 100.0 * TICK.as_secs_f64() / time.as_secs_f64());
    let ticks = format!(
        "The CPU time of a host is counted in ticks of {} ms: in steps of",
        TICK.as_millis()
    );
    let (link_step, light_step) = (step(times.link), step(times.light));
    let share = if link.is_made() { "" } else { "weak_cpu" };
    [
        ("link", link.name().to_owned()),
        ("hosts", link.elsewhere()),
        (
            "ticks",
            format!(
                "{ticks} {link_step} of a processor with messages of less than 4 KiB, of {light_step} with larger ones."
            ),
        ),
        ("weak ticks", format!("{ticks} {} of a processor.", step(times.weak))),
        // Without a limit the share is not what the thesis measured.
        ("weak share", share.to_owned()),
    ]
}

/// USER_HZ, in which the kernel reports CPU time, is 100 on all common platforms.
const TICK: Duration = Duration::from_millis(10);

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
pub(super) fn cpu_time(rows: &[Row], link: &Link) -> Option<Table> {
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
        title: format!(
            "Where the CPU time goes: messages of {}, {}",
            text::size(LARGE as u64),
            link.name()
        ),
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

#[cfg(test)]
mod tests {
    use super::super::Nic;
    use super::*;
    use crate::experiment::Experiment;

    #[test]
    fn the_tables_have_all_steps() {
        assert_eq!(Nic.file().variants["steps"], STEPS);
    }
}
