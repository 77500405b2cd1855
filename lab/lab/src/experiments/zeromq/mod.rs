//! `zeromq`: messages of the real libzmq over all its transports, over the ring, and between two
//! hosts with their offloads in steps, after "Network hardware for business messaging", sections
//! 4.1 and 4.2.

mod claims;
mod tables;
mod thesis;

use std::time::Duration;

use anyhow::Result;
use seekwire_gauge::Load;

use crate::claim::Claim;
use crate::experiment::{self, Context, Experiment};
use crate::experiments::by_size::{self, SIZES};
use crate::messaging::programs::{Library, Over, Programs, Way, over_zeromq};
use crate::messaging::{Kind, Reading, Test};
use crate::network::hosts::Hosts;
use crate::network::options::Options;
use crate::network::step::Step;
use crate::network::{self, LATENCY};
use crate::outcome::{Findings, Key, Outcome, Recorded};
use crate::record::{Better, Metric, Samples, Selector};
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::text;

pub(super) struct Zeromq;

const TCP: &str = "tcp://";
const RING: &str = "tcp:// on the ring";
const IPC: &str = "ipc://";

const fn zeromq(name: &'static str, over: Over) -> Way {
    Way { name, library: Library::Zeromq, over }
}

/// On one host.
const HERE: [Way; 6] = [
    zeromq(TCP, Over::Tcp),
    zeromq(RING, Over::Ring),
    zeromq(IPC, Over::Ipc),
    zeromq("inproc://", Over::Inproc),
    Way { name: "Mailbox, TCP", library: Library::Mailbox, over: Over::Tcp },
    Way { name: "Mailbox, ring", library: Library::Mailbox, over: Over::Ring },
];

/// Between two.
const APART: [Way; 4] = [
    zeromq("veth, everything off", Over::Cable(Step::Off)),
    zeromq("veth, checksums", Over::Cable(Step::Checksums)),
    zeromq("veth, + TSO, GSO, SG", Over::Cable(Step::Segmentation)),
    zeromq("veth, + GRO", Over::Cable(Step::Joining)),
];

/// Half of these quantiles of round trips.
const QUANTILES: [Metric; 2] = [
    Metric { name: "one-way latency p50", unit: "µs", better: Better::Lower },
    Metric { name: "one-way latency p99", unit: "µs", better: Better::Lower },
];
const RATE: Metric = Metric { name: "message rate", unit: "1/s", better: Better::Higher };
const THROUGHPUT: Metric = Metric { name: "throughput", unit: "MB/s", better: Better::Higher };
/// [`network::CPU`] for each message.
const EFFORT: Metric = Metric { name: "CPU time of a message", unit: "µs", better: Better::Lower };
/// CPU time of processes, user and system together and apart; 100 % is one processor. The load of
/// the whole machine, which runs both ends and their softirqs, is [`network::CPU`] and its parts.
const SENDER: [Metric; 3] =
    cpu(["CPU of the sender", "CPU of the sender, user", "CPU of the sender, system"]);
const RECEIVER: [Metric; 3] =
    cpu(["CPU of the receiver", "CPU of the receiver, user", "CPU of the receiver, system"]);
const BOTH: [Metric; 3] =
    cpu(["CPU of both ends", "CPU of both ends, user", "CPU of both ends, system"]);

const fn cpu([both, user, system]: [&'static str; 3]) -> [Metric; 3] {
    const fn metric(name: &'static str) -> Metric {
        Metric { name, unit: "%", better: Better::Lower }
    }
    [metric(both), metric(user), metric(system)]
}

fn case(kind: Kind, size: u64) -> String {
    let name = match kind {
        Kind::RequestReply => "request/reply",
        Kind::PushPull => "push/pull",
    };
    format!("{name}, {}", text::size(size))
}

impl Experiment for Zeromq {
    fn name(&self) -> &'static str {
        "zeromq"
    }

    fn question(&self) -> &'static str {
        "Cost of ZeroMQ’s messages over every transport of libzmq, on the ring, and with offloads between two hosts."
    }

    fn about(&self) -> &'static str {
        "The system's own libzmq exchanges messages of 1 B to 64 KiB. REQ/REP latency and PUSH/PULL throughput are \
         measured as libzmq's perf tools measure them, with the CPU load of both ends: over loopback, the same \
         unmodified program on the ring, over ipc:// and inproc://, and between two network namespaces with the \
         offloads of their veth pair in steps. The same messages through seekwire::Mailbox, and the numbers of the \
         thesis, stand beside them. The timed part is the work of the libraries, and the number that each message \
         gets, which is checked with its length. Contents are written before the time begins. They are compared in \
         full before and after it (REQ/REP), or before it and in one message of 256 (PUSH/PULL)."
    }

    fn paper_reference(&self) -> Option<&'static str> {
        Some(
            "\"Network hardware for business messaging\", tables 4.1.2, 4.2.7 and 4.2.8, graphs 4.1.2 and 4.2.4; the \
             columns of one host are ours",
        )
    }

    fn claims(&self) -> &'static [Claim] {
        claims::CLAIMS
    }

    fn duration(&self, quick: bool) -> Duration {
        Duration::from_secs(if quick { 15 } else { 900 })
    }

    fn unavailable(&self, options: &experiment::Options) -> Option<String> {
        // Mailboxes alone would be compared with nothing.
        let command = options.program().map_err(|error| error.to_string());
        command.and_then(|command| over_zeromq(&command)).err()
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let mut made = false;
        let with_hosts = Hosts::with(&Options::default(), |hosts| {
            made = true;
            measure(context, &Programs::new(context, Ok(hosts))?)
        });
        match with_hosts {
            // The other ways are still measured.
            Err(error) if !made => {
                measure(context, &Programs::new(context, Err(format!("{error:#}")))?)
            }
            outcome => outcome,
        }
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        let (rows, sizes) = (recorded.samples.rows(TCP), recorded.numbers("sizes"));
        let mut tables = by_size::tables(&tables::VIEWS, &rows, &sizes);
        tables.extend(by_size::parts(&tables::PARTS, &rows, &sizes));
        Findings {
            summary: summary(recorded.samples),
            tables,
            figures: by_size::figures(&tables::VIEWS, &rows),
        }
    }
}

fn measure(context: &Context<'_>, programs: &Programs<'_, '_>) -> Result<Outcome> {
    let rounds = context.rounds(3, 5);
    let milliseconds = context.pick(30, 120);
    let sizes: &[u64] = context.pick(&[1, 1 << 10, 64 << 10], &SIZES);
    let ways = || HERE.into_iter().chain(APART);
    let mut groups: Vec<Group<'_>> = sizes
        .iter()
        .map(|&size| {
            let variant = |way: Way| {
                Variant::new(way.name, move |trial: &mut Trial| {
                    run(programs, way, size, milliseconds, trial)
                })
            };
            Group::new(text::size(size), ways().map(variant).collect())
        })
        .collect();
    let samples = alternate(&mut groups, rounds, context.progress())?;
    drop(groups);

    let mut parameters = context.parameters(rounds);
    let mut note = |name: &str, value: serde_json::Value| parameters.insert(name.to_owned(), value);
    note("sizes", sizes.into());
    note("milliseconds of each test", milliseconds.into());
    note("TCP congestion control on loopback", congestion_control().into());
    note("TCP congestion control between namespaces", "cubic, or reno where there is none".into());
    Ok(Outcome { parameters, samples, baseline: TCP, violation: programs.violation() })
}

/// libzmq uses that of the system, and so do mailboxes.
fn congestion_control() -> String {
    let read = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    read.map_or_else(|error| error.to_string(), |name| name.trim().to_owned())
}

/// Both tests of messages of one size.
fn run(
    programs: &Programs<'_, '_>,
    way: Way,
    size: u64,
    milliseconds: u64,
    trial: &mut Trial,
) -> Result<()> {
    let milliseconds = if trial.is_warm_up() { milliseconds / 4 } else { milliseconds };
    let tests = [Kind::RequestReply, Kind::PushPull].map(|kind| Test {
        kind,
        size: size as usize,
        milliseconds,
    });
    for reading in programs.two_ends(way, tests.into(), trial)? {
        for (metric, value) in readings(&reading, way.over == Over::Inproc) {
            trial.record(case(reading.test.kind, size), Some(size as f64), metric, value);
        }
    }
    Ok(())
}

fn readings(reading: &Reading, one_process: bool) -> Vec<(Metric, f64)> {
    let Reading { test, sender, receiver, .. } = reading;
    let measured = reading.measured();
    let rate = measured.rate();
    let mut readings = match test.kind {
        // As remote_lat reports it: half of the mean round trip.
        Kind::RequestReply => vec![(LATENCY, 1e6 / (2.0 * rate))],
        Kind::PushPull => vec![(RATE, rate), (THROUGHPUT, rate * test.size as f64 / 1e6)],
    };
    let quantiles = QUANTILES.into_iter().zip([measured.p50_ns, measured.p99_ns]);
    readings.extend(quantiles.filter_map(|(metric, ns)| Some((metric, ns? as f64 / 2e3))));
    let of = |Load { seconds, user, system, .. }: Load| {
        [user + system, user, system].map(|of| 100.0 * of / seconds)
    };
    let (sender, receiver) = (of(sender.load), of(receiver.load));
    if one_process {
        readings.extend(BOTH.into_iter().zip(receiver));
    } else {
        readings.extend(BOTH.into_iter().zip([0, 1, 2].map(|part| sender[part] + receiver[part])));
        readings.extend(SENDER.into_iter().zip(sender));
        readings.extend(RECEIVER.into_iter().zip(receiver));
    }
    if let Some(machine) = measured.load.machine {
        let load = network::of_machines(&[machine]);
        let [(_, busy), ..] = load;
        readings.extend(load);
        if test.kind == Kind::PushPull {
            readings.push((EFFORT, busy / 100.0 / rate * 1e6));
        }
    }
    readings
}

fn summary(samples: &Samples) -> Vec<Key> {
    let ratio = |kind, size, metric, this: &str, that: &str| {
        let case = case(kind, size);
        let select = |variant| Selector { case: &case, variant, metric };
        samples.ratio(select(this), select(that)).map(|ratio| ratio.value)
    };
    const KIB: u64 = 1 << 10;
    let [off, .., offloads, _] = APART.map(|way| way.name);
    let keys = [
        (
            "ring_vs_tcp_latency",
            "libzmq, REQ/REP of 1 KiB: one-way latency on the ring over tcp://; lower is better",
            ratio(Kind::RequestReply, KIB, LATENCY, RING, TCP),
        ),
        (
            "ring_vs_tcp_rate_1k",
            "libzmq, PUSH/PULL of 1 KiB: messages per second on the ring over tcp://; higher is better",
            ratio(Kind::PushPull, KIB, RATE, RING, TCP),
        ),
        (
            "ring_vs_ipc_rate_1k",
            "the same over ipc://; higher is better",
            ratio(Kind::PushPull, KIB, RATE, RING, IPC),
        ),
        (
            "ring_vs_ipc_latency",
            "libzmq, REQ/REP of 1 KiB: one-way latency on the ring over ipc://; lower is better",
            ratio(Kind::RequestReply, KIB, LATENCY, RING, IPC),
        ),
        (
            "offload_latency_ratio_64k",
            "libzmq over veth, REQ/REP of 64 KiB: one-way latency with checksums, TSO, GSO and SG over everything off; \
             lower is better (thesis: 0.706)",
            ratio(Kind::RequestReply, 64 * KIB, LATENCY, offloads, off),
        ),
        (
            "offload_throughput_ratio_64k",
            "libzmq over veth, PUSH/PULL of 64 KiB: throughput with them over everything off; higher is better \
             (thesis: 1.388)",
            ratio(Kind::PushPull, 64 * KIB, THROUGHPUT, offloads, off),
        ),
    ];
    keys.into_iter()
        .filter_map(|(name, meaning, value)| Key::measured(name, meaning, value))
        .collect()
}

#[cfg(test)]
mod tests {
    use seekwire_gauge::Machine;

    use super::*;
    use crate::messaging::Measured;
    use crate::network::{CPU, CPU_SOFTIRQ, CPU_SYSTEM, CPU_USER};

    /// Of a host with two processors, whose sender works half of the time and whose receiver a
    /// quarter of the time.
    fn reading(kind: Kind) -> Reading {
        let machine =
            Machine { user: 0.3, system: 0.1, softirq: 0.05, idle: 0.5, stolen: 0.0, cpus: 2 };
        let load = |user, system| Load { seconds: 0.1, user, system, machine: Some(machine) };
        let measured = |load| Measured {
            messages: 1000,
            load,
            p50_ns: Some(90_000).filter(|_| kind == Kind::RequestReply),
            p99_ns: None,
        };
        let test = Test { kind, size: 1000, milliseconds: 100 };
        Reading::of(test, measured(load(0.04, 0.01)), measured(load(0.02, 0.005))).unwrap()
    }

    fn values(readings: &[(Metric, f64)], metrics: &[Metric]) -> Vec<Option<f64>> {
        let value = |wanted: &Metric| readings.iter().find(|(metric, _)| metric == wanted);
        metrics
            .iter()
            .map(|metric| value(metric).map(|(_, value)| (value * 1e6).round() / 1e6))
            .collect()
    }

    #[test]
    fn latency_is_half_a_round_trip() {
        let readings = readings(&reading(Kind::RequestReply), false);
        let [p50, p99] = QUANTILES;
        assert_eq!(
            values(&readings, &[LATENCY, p50, p99, RATE]),
            [Some(50.0), Some(45.0), None, None]
        );
    }

    #[test]
    fn loads_of_two_processes_are_added_and_that_of_one_is_not() {
        let two = readings(&reading(Kind::PushPull), false);
        assert_eq!(values(&two, &[RATE, THROUGHPUT]), [Some(10_000.0), Some(10.0)]);
        assert_eq!(values(&two, &BOTH), [75.0, 60.0, 15.0].map(Some));
        assert_eq!(values(&two, &SENDER), [50.0, 40.0, 10.0].map(Some));
        assert_eq!(values(&two, &RECEIVER), [25.0, 20.0, 5.0].map(Some));
        let one = readings(&reading(Kind::PushPull), true);
        assert_eq!(values(&one, &BOTH), [25.0, 20.0, 5.0].map(Some));
        assert_eq!(values(&one, &[SENDER[0], RECEIVER[0]]), [None; 2]);
    }

    #[test]
    fn the_load_of_the_machine_is_counted_once() {
        let metrics = [CPU, CPU_USER, CPU_SYSTEM, CPU_SOFTIRQ, EFFORT];
        for (kind, one_process) in [(Kind::RequestReply, false), (Kind::PushPull, true)] {
            let mut reading = reading(kind);
            let effort = (kind == Kind::PushPull).then_some(100.0);
            assert_eq!(
                values(&readings(&reading, one_process), &metrics),
                [Some(100.0), Some(60.0), Some(20.0), Some(10.0), effort]
            );
            reading.sender.load.machine = None;
            reading.receiver.load.machine = None;
            assert_eq!(values(&readings(&reading, one_process), &metrics), [None; 5]);
        }
    }
}
