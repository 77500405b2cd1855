//! The goals, judged by a result of `flow-peers`.

use super::{
    FLOW, FLOW_RING, FLOW_TCP, GOAL_SIZE, PEAK, RATE, SLOW, ZEROMQ_IPC, ZEROMQ_TCP, auto, case,
};
use crate::claim::{Claim, Criterion, Estimate, Source};
use crate::outcome::{At, ResultFile};

fn rate(result: &ResultFile, variant: &str) -> Result<Estimate, String> {
    Estimate::median(result, At { case: &case(GOAL_SIZE), variant, metric: RATE.name })
}

/// Over the faster one of the two.
fn remote(result: &ResultFile) -> Result<Estimate, String> {
    let (tcp, ipc) = (rate(result, ZEROMQ_TCP)?, rate(result, ZEROMQ_IPC)?);
    let faster = if tcp.value > ipc.value { ZEROMQ_TCP } else { ZEROMQ_IPC };
    let case = case(GOAL_SIZE);
    let of = |variant| At { case: &case, variant, metric: RATE.name };
    Estimate::ratio_of_medians(result, of(FLOW_RING), of(faster))
}

/// Of the three, the one that holds most.
fn peak(result: &ResultFile) -> Result<Estimate, String> {
    let of = |variant| Estimate::median(result, At { case: SLOW, variant, metric: PEAK.name });
    let mut most = of(FLOW)?;
    for variant in [FLOW_RING, FLOW_TCP] {
        let other = of(variant)?;
        if other.value > most.value {
            most = other;
        }
    }
    Ok(most)
}

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        title: "local streams",
        statement: "In one process, streams pass at least 0.8 times as many blocks of 2 KiB as bare channels.",
        source: Source::Goal,
        published: "",
        measure: "blocks of 2 KiB per second in one process, seekwire-flow over crossbeam-channel",
        unit: "",
        evidence: |result| {
            let case = case(GOAL_SIZE);
            Estimate::ratio(result, At { case: &case, variant: FLOW, metric: RATE.name })
        },
        criterion: Criterion::AtLeast(0.8),
        better: None,
        otherwise: "what a stream does beyond a queue costs more than that",
    },
    Claim {
        title: "streams between processes",
        statement: "Between two processes of a host, streams pass at least twice as many blocks of 2 KiB as ZeroMQ.",
        source: Source::Goal,
        published: "",
        measure: "blocks of 2 KiB per second between two processes, seekwire-flow on the ring over PUSH/PULL by the faster \
                  one of tcp:// and ipc://",
        unit: "",
        evidence: remote,
        criterion: Criterion::AtLeast(2.0),
        better: None,
        otherwise: "ZeroMQ is not that much slower",
    },
    Claim {
        title: "memory with a slow consumer",
        statement: "With a slow consumer, streams hold no more than was declared.",
        source: Source::Goal,
        published: "",
        measure: "seekwire-flow with a slow consumer, in one process, on the ring or by TCP, whichever holds most: growth of \
                  a process, or what a stream holds, over what was declared",
        unit: "",
        evidence: peak,
        criterion: Criterion::AtMost(1.05),
        better: None,
        otherwise: "a process grows by more than its streams may hold",
    },
    Claim {
        title: "size of blocks",
        statement: "A stream finds a size of blocks that is within a tenth of the best.",
        source: Source::Goal,
        published: "",
        measure: "time of a unit of work in blocks whose size the stream finds, over that of the best of all powers of \
                  two, on the worst of three links",
        unit: "",
        evidence: auto::worst,
        criterion: Criterion::AtMost(1.1),
        better: None,
        otherwise: "another size is better by more than that",
    },
];
