//! Claims of the thesis about ZeroMQ, and expectations of the ring, judged by a result of `zeromq`.

use super::{APART, IPC, RATE, RING, TCP, THROUGHPUT, case};
use crate::claim::{Claim, Criterion, Estimate, Source};
use crate::messaging::Kind;
use crate::network::LATENCY;
use crate::outcome::{At, ResultFile};
use crate::record::Metric;

const LATENCIES: &str = "“Network hardware for business messaging”, table 4.1.2 and graph 4.1.2";
const THROUGHPUTS: &str =
    "“Network hardware for business messaging”, tables 4.2.7 and 4.2.8, graph 4.2.4";

type Evidence = Result<Estimate, String>;

fn compare(
    result: &ResultFile,
    kind: Kind,
    size: u64,
    metric: Metric,
    this: &str,
    that: &str,
) -> Evidence {
    let case = case(kind, size);
    let of = |variant| At { case: &case, variant, metric: metric.name };
    // Paired by round, where that is the baseline.
    if that == TCP {
        Estimate::ratio(result, of(this))
    } else {
        Estimate::ratio_of_medians(result, of(this), of(that))
    }
}

/// The offloads that the thesis had, over everything off.
fn offloads(result: &ResultFile, kind: Kind, metric: Metric) -> Evidence {
    let [off, .., offloads, _] = APART.map(|way| way.name);
    compare(result, kind, 64 << 10, metric, offloads, off)
}

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        title: "latency of large messages",
        statement: "The latency of ZeroMQ's large messages is lower with offloads.",
        source: Source::Paper(LATENCIES),
        published: "1013 to 715 µs, i.e. 0.71",
        measure: "REQ/REP of 64 KiB between two hosts: one-way latency with checksums, TSO, GSO and scatter-gather over \
                  everything off",
        unit: "",
        evidence: |result| offloads(result, Kind::RequestReply, LATENCY),
        criterion: Criterion::Below(1.0),
        better: None,
        otherwise: "offloads do not shorten the way of ZeroMQ's large messages here",
    },
    Claim {
        title: "throughput of large messages",
        statement: "The throughput of ZeroMQ's large messages is higher with offloads.",
        source: Source::Paper(THROUGHPUTS),
        published: "550 to 763 Mb/s, i.e. 1.39",
        measure: "PUSH/PULL of 64 KiB between two hosts: throughput with checksums, TSO, GSO and scatter-gather over \
                  everything off",
        unit: "",
        evidence: |result| offloads(result, Kind::PushPull, THROUGHPUT),
        criterion: Criterion::Above(1.0),
        better: None,
        otherwise: "offloads do not help ZeroMQ's large messages here",
    },
    Claim {
        title: "rate on the ring over tcp://",
        statement: "Unmodified libzmq moves at least 1.3 times as many messages of 1 KiB on the ring as over tcp://.",
        source: Source::Goal,
        published: "",
        measure: "PUSH/PULL of 1 KiB on one host: messages per second, ring over tcp://",
        unit: "",
        evidence: |result| compare(result, Kind::PushPull, 1 << 10, RATE, RING, TCP),
        criterion: Criterion::AtLeast(1.3),
        better: None,
        otherwise: "libzmq's own work for each message hides what the ring saves",
    },
    Claim {
        title: "rate on the ring over ipc://",
        statement: "Unmodified libzmq moves no fewer messages of 1 KiB on the ring than over ipc://.",
        source: Source::Goal,
        published: "",
        measure: "the same, ring over ipc://",
        unit: "",
        evidence: |result| compare(result, Kind::PushPull, 1 << 10, RATE, RING, IPC),
        criterion: Criterion::AtLeast(1.0),
        better: None,
        otherwise: "ipc:// is faster for these messages",
    },
];
