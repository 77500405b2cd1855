//! What the thesis says of offloads, judged by a result of `nic`. "Everything on" has GRO, which the thesis had not.

use super::findings::{OWN, against_others};
use super::{LARGE, Setting};
use crate::claim::{At, Claim, Criterion, Estimate, Source};
use crate::network::others::Tool;
use crate::network::step::Step;
use crate::network::{CPU, LATENCY, THROUGHPUT};
use crate::outcome::ResultFile;
use crate::record::Metric;

const LATENCIES: &str = "“Network hardware for business messaging”, table 4.1.1 and graph 4.1.1";
const FAST: &str = "“Network hardware for business messaging”, tables 4.2.1 to 4.2.3, graphs 4.2.1 and 4.2.2";
const WEAK: &str = "“Network hardware for business messaging”, tables 4.2.4 to 4.2.6 and graph 4.2.3";

/// Everything on over everything off.
fn offloads(result: &ResultFile, setting: Setting, metric: Metric, size: u64) -> Result<Estimate, String> {
    let case = setting.case(size);
    Estimate::ratio(result, At { case: &case, variant: Step::Joining.name(), metric: metric.name })
}

/// CPU load of a stream over the link. Processors that are busy all the time, with whatever, say nothing.
fn load(result: &ResultFile) -> Result<Estimate, String> {
    let case = Setting::Link.case(LARGE as u64);
    let all = 100.0 * result.machine.cores as f64;
    for step in [Step::Off, Step::Joining] {
        let load = Estimate::median(result, At { case: &case, variant: step.name(), metric: CPU.name })?;
        if load.value > 0.97 * all {
            return Err(format!("all processors were busy ({}), maybe with something else", step.name()));
        }
    }
    offloads(result, Setting::Link, CPU, LARGE as u64)
}

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        title: "throughput to a weak receiver",
        statement: "Where the receiver's processor limits it, offloads raise the throughput of large messages by two thirds.",
        source: Source::Paper(WEAK),
        published: "567 to 939 Mb/s, i.e. 1.66",
        measure: "throughput of messages of 64 KiB to a receiver with a share of a processor, everything on over everything \
                  off; nearly the published factor is enough",
        unit: "",
        evidence: |result| offloads(result, Setting::Weak, THROUGHPUT, LARGE as u64),
        criterion: Criterion::AtLeast(1.6),
        otherwise: "offloads save this receiver less of its time than the thesis' one",
    },
    Claim {
        title: "CPU load of fast hosts",
        statement: "Fast hosts move large messages over 1 Gb/s at a lower CPU load with offloads.",
        source: Source::Paper(FAST),
        published: "",
        measure: "CPU load of both ends, stream of 64 KiB messages over 1 Gb/s, everything on over everything off",
        unit: "",
        evidence: load,
        criterion: Criterion::Below(1.0),
        otherwise: "what offloads save is lost elsewhere",
    },
    Claim {
        title: "throughput of fast hosts",
        statement: "The throughput of fast hosts is that of the link, with offloads or without.",
        source: Source::Paper(FAST),
        published: "949 Mb/s, i.e. 1.00",
        measure: "throughput of 64 KiB messages over 1 Gb/s, everything on over everything off",
        unit: "",
        evidence: |result| offloads(result, Setting::Link, THROUGHPUT, LARGE as u64),
        criterion: Criterion::Between(0.95, 1.05),
        otherwise: "offloads change what goes through the link",
    },
    Claim {
        title: "latency of large messages",
        statement: "The latency of large messages is lower with offloads.",
        source: Source::Paper(LATENCIES),
        published: "859 to 728 µs, i.e. 0.85",
        measure: "one-way latency of 64 KiB, everything on over everything off",
        unit: "",
        evidence: |result| offloads(result, Setting::Latency, LATENCY, LARGE as u64),
        criterion: Criterion::Below(1.0),
        otherwise: "offloads do not shorten the way of large messages here",
    },
    Claim {
        title: "latency of small messages",
        statement: "That of small messages hardly changes.",
        source: Source::Paper(LATENCIES),
        published: "30.0 to 32.2 µs, i.e. 1.08",
        measure: "one-way latency of 1 B, everything on over everything off",
        unit: "",
        evidence: |result| offloads(result, Setting::Latency, LATENCY, 1),
        criterion: Criterion::Between(0.9, 1.1),
        otherwise: "offloads change the latency of small messages",
    },
    Claim {
        title: "agreement with iperf3",
        statement: "What is measured here agrees with iperf3 within 10 %.",
        source: Source::Goal,
        published: "",
        measure: "throughput of a stream of 64 KiB messages, this laboratory over iperf3",
        unit: "",
        evidence: |result| {
            let case = against_others(LARGE as u64, THROUGHPUT);
            let of = |variant| At { case: &case, variant, metric: THROUGHPUT.name };
            Estimate::ratio_of_medians(result, of(OWN), of(Tool::Iperf3.name()))
        },
        criterion: Criterion::Between(0.9, 1.1),
        otherwise: "one of the two measures something else",
    },
];
