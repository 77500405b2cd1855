//! `zeromq`: messages of the real libzmq over everything that it has, over the ring, and between two hosts with their
//! offloads in steps, after "Network hardware for business messaging", sections 4.1 and 4.2.

mod claims;
mod tables;
mod thesis;

use std::time::Duration;

use anyhow::Result;

use crate::claim::Claim;
use crate::experiment::{Context, Experiment};
use crate::experiments::by_size::{self, SIZES};
use crate::messaging::programs::{Library, Over, Programs, Way};
use crate::messaging::{Kind, Reading, Test};
use crate::network::hosts::Hosts;
use crate::network::step::Step;
use crate::network::{LATENCY, Options, ROUND_TRIP, THROUGHPUT};
use crate::outcome::{Key, Outcome};
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

const RATE: Metric = Metric { name: "message rate", unit: "1/s", better: Better::Higher };
/// User and system time of one process; 100 % is one processor.
const SENDER: Metric = Metric { name: "CPU of the sender", unit: "%", better: Better::Lower };
const RECEIVER: Metric = Metric { name: "CPU of the receiver", unit: "%", better: Better::Lower };
const CPU: Metric = Metric { name: "CPU of both ends", unit: "%", better: Better::Lower };

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
        "What ZeroMQ’s messages cost over everything that libzmq has, on the ring, and with offloads between two hosts."
    }

    fn about(&self) -> &'static str {
        "REQ/REP latency and PUSH/PULL throughput of the system's own libzmq, messages of 1 B to 64 KiB, as libzmq's \
         perf tools measure them: over loopback, the same unmodified program on the ring, over ipc:// and inproc://, \
         and between two network namespaces with the offloads of their veth pair in steps. Beside it the same \
         messages through seekwire::Mailbox, and the numbers of the thesis."
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

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let mut made = false;
        let with_hosts = Hosts::with(&Options::default(), |hosts| {
            made = true;
            measure(context, &Programs::new(context, Ok(hosts))?)
        });
        match with_hosts {
            // Everything else goes on.
            Err(error) if !made => measure(context, &Programs::new(context, Err(format!("{error:#}")))?),
            outcome => outcome,
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
                Variant::new(way.name, move |trial: &mut Trial| run(programs, way, size, milliseconds, trial))
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
    let rows = samples.rows(TCP);
    Ok(Outcome {
        parameters,
        summary: summary(&samples),
        tables: by_size::tables(&tables::VIEWS, &rows, sizes),
        figures: by_size::figures(&tables::VIEWS, &rows),
        samples,
        baseline: TCP,
        violation: programs.violation(),
    })
}

/// libzmq leaves it at that of the system, and so do mailboxes.
fn congestion_control() -> String {
    let read = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    read.map_or_else(|error| error.to_string(), |name| name.trim().to_owned())
}

/// Both tests of messages of one size.
fn run(programs: &Programs<'_, '_>, way: Way, size: u64, milliseconds: u64, trial: &mut Trial) -> Result<()> {
    let milliseconds = if trial.is_warm_up() { milliseconds / 4 } else { milliseconds };
    let tests =
        [Kind::RequestReply, Kind::PushPull].map(|kind| Test { kind, size: size as usize, milliseconds });
    for reading in programs.two_ends(way, tests.into(), trial)? {
        for (metric, value) in readings(&reading, way.over == Over::Inproc) {
            trial.record(case(reading.test.kind, size), Some(size as f64), metric, value);
        }
    }
    Ok(())
}

fn readings(reading: &Reading, one_process: bool) -> Vec<(Metric, f64)> {
    let Reading { test, measured, sender_load, receiver_load, .. } = reading;
    let rate = measured.messages as f64 / measured.seconds;
    let mut readings = match test.kind {
        // As remote_lat has it: half of the mean round trip.
        Kind::RequestReply => vec![(LATENCY, 1e6 / (2.0 * rate))],
        Kind::PushPull => vec![(RATE, rate), (THROUGHPUT, rate * test.size as f64 * 8.0 / 1e6)],
    };
    let quantiles = ROUND_TRIP.into_iter().zip([measured.p50_ns, measured.p99_ns]);
    readings.extend(quantiles.filter_map(|(metric, ns)| Some((metric, ns? as f64 / 1e3))));
    let (sender, receiver) = (100.0 * sender_load, 100.0 * receiver_load);
    if one_process {
        readings.push((CPU, receiver));
    } else {
        readings.extend([(CPU, sender + receiver), (SENDER, sender), (RECEIVER, receiver)]);
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
    keys.into_iter().filter_map(|(name, meaning, value)| Key::measured(name, meaning, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messaging::Measured;

    fn reading(kind: Kind) -> Reading {
        let measured =
            Measured { messages: 1000, seconds: 0.1, cpu_seconds: 0.1, p50_ns: Some(90_000), p99_ns: None };
        let test = Test { kind, size: 1000, milliseconds: 100 };
        Reading { test, measured, sender_load: 0.5, receiver_load: 0.25, traffic: None }
    }

    #[test]
    fn latency_is_half_a_round_trip() {
        let readings = readings(&reading(Kind::RequestReply), false);
        assert_eq!(readings[..2], [(LATENCY, 50.0), (ROUND_TRIP[0], 90.0)]);
    }

    #[test]
    fn loads_of_two_processes_are_added_and_that_of_one_is_not() {
        let two = readings(&reading(Kind::PushPull), false);
        assert_eq!(two[..2], [(RATE, 10_000.0), (THROUGHPUT, 80.0)]);
        assert_eq!(two[3..], [(CPU, 75.0), (SENDER, 50.0), (RECEIVER, 25.0)]);
        assert_eq!(readings(&reading(Kind::PushPull), true)[3..], [(CPU, 25.0)]);
    }
}
