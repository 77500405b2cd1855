//! Measurements of YASMIN between domains of Xen, and the goals of this project, judged between
//! virtual machines of both kinds.

use super::{BULK, SMALL, VCHAN, case, named, reverse, ring};
use crate::bench::{BANDWIDTH, LATENCY};
use crate::claim::{Claim, Comparison, Criterion, Estimate, Source};
use crate::experiments::links::goal;
use crate::experiments::names::pairs_case;
use crate::experiments::yasmin::{
    BANDWIDTH_GAIN, DIP, Evidence, FIGURE_5, FIGURE_6, FIGURE_7, LATENCY_LEFT, MICROBENCHMARKS,
    beside,
};
use crate::guests::Kind;
use crate::launch::ACCELERATED;
use crate::outcome::{At, ResultFile};
use crate::programs::iperf3;
use crate::record::{Better, Metric};
use crate::text;

/// Accelerated over the plain network of the same guests.
fn gain(result: &ResultFile, kind: Kind, what: &str, metric: Metric) -> Evidence {
    let case = case(kind, what);
    let at = At { case: &case, variant: ACCELERATED, metric: metric.name };
    Estimate::ratio(result, at).map_err(|why| reason(result, kind, ACCELERATED).unwrap_or(why))
}

fn bulk(result: &ResultFile, kind: Kind) -> Evidence {
    gain(result, kind, &text::size(BULK), BANDWIDTH)
}

fn latency(result: &ResultFile, kind: Kind) -> Evidence {
    gain(result, kind, &text::size(SMALL), LATENCY)
}

fn iperf(result: &ResultFile, kind: Kind) -> Evidence {
    gain(result, kind, iperf3::FORWARD, BANDWIDTH)
}

/// Accelerated over Xen's own carrier.
fn over_vchan(result: &ResultFile, what: &str) -> Evidence {
    let case = case(Kind::Xen, what);
    let at = |variant| At { case: &case, variant, metric: BANDWIDTH.name };
    let reason = |variant| reason(result, Kind::Xen, variant);
    Estimate::ratio_of_medians(result, at(ACCELERATED), at(VCHAN))
        .map_err(|why| reason(ACCELERATED).or_else(|| reason(VCHAN)).unwrap_or(why))
}

/// Why a way was not measured in guests of a kind. Runs that fail before they measure anything
/// choose their case's name.
fn reason(result: &ResultFile, kind: Kind, variant: &str) -> Option<String> {
    let is_one =
        |case: &str| case == named(kind) || case.starts_with(&format!("{}, ", named(kind)));
    let mut failed = result
        .rows
        .iter()
        .filter(|row| is_one(&row.case) && row.variant == variant && row.spread.is_none());
    failed.find_map(|row| row.error.clone())
}

/// Of those of one pair, whose machines had a processor each.
fn four_pairs(result: &ResultFile) -> Evidence {
    match result.machine.cores {
        cores @ ..8 => Err(format!(
            "four pairs need eight processors to themselves, as in the paper; this host has {cores}"
        )),
        _ => linked(result, &pairs_case(4), &pairs_case(1)),
    }
}

/// Bandwidth over ivshmem in one case over that in another.
fn linked(result: &ResultFile, this: &str, other: &str) -> Evidence {
    let [this, other] = [this, other].map(|what| case(Kind::Machines, what));
    let at = |case| At { case, variant: ACCELERATED, metric: BANDWIDTH.name };
    Estimate::ratio_of_medians(result, at(&this), at(&other))
}

const fn paper(
    title: &'static str,
    statement: &'static str,
    published: &'static str,
    measure: &'static str,
    criterion: Criterion,
    evidence: fn(&ResultFile) -> Evidence,
) -> Claim {
    Claim {
        title,
        statement,
        source: Source::Paper(MICROBENCHMARKS),
        published,
        measure,
        unit: "",
        evidence,
        criterion,
        better: None,
        otherwise: "less is gained here than in the paper",
    }
}

const FASTER: &str = "Sockets over shared memory reach 4.4 times the bandwidth of the network path between machines.";
const SOONER: &str = "The latency of a message of one byte falls by about two thirds.";
const LEFT: &str = "−65 %, i.e. 0.35";

pub(super) const CLAIMS: &[Claim] = &[
    paper(
        "bandwidth between domains of Xen",
        FASTER,
        "4.4",
        "bandwidth of 64 KiB messages between domains of Xen, granted memory over netfront",
        Criterion::AtLeast(BANDWIDTH_GAIN),
        |result| bulk(result, Kind::Xen),
    ),
    paper(
        "latency of 1 B between domains of Xen",
        SOONER,
        LEFT,
        "round trip of 1 B between domains of Xen, granted memory over netfront",
        Criterion::AtMost(LATENCY_LEFT),
        |result| latency(result, Kind::Xen),
    ),
    paper(
        "iperf between domains of Xen",
        "An unmodified iperf reaches 4.4 times the average bandwidth of the network path.",
        "4.4",
        "bandwidth of iperf3 between domains of Xen, granted memory over netfront",
        Criterion::AtLeast(BANDWIDTH_GAIN),
        |result| iperf(result, Kind::Xen),
    ),
    paper(
        "bandwidth between virtual machines",
        FASTER,
        "4.4",
        "bandwidth of 64 KiB messages between virtual machines, ivshmem over virtio-net",
        Criterion::AtLeast(BANDWIDTH_GAIN),
        |result| bulk(result, Kind::Machines),
    ),
    paper(
        "latency of 1 B between virtual machines",
        SOONER,
        LEFT,
        "round trip of 1 B between virtual machines, ivshmem over virtio-net",
        Criterion::AtMost(LATENCY_LEFT),
        |result| latency(result, Kind::Machines),
    ),
    paper(
        "iperf between virtual machines",
        "An unmodified iperf reaches 4.4 times the average bandwidth of the network path.",
        "4.4",
        "bandwidth of iperf3 between virtual machines, ivshmem over virtio-net",
        Criterion::AtLeast(BANDWIDTH_GAIN),
        |result| iperf(result, Kind::Machines),
    ),
    Claim {
        title: "bandwidth by ring size",
        statement: "Bandwidth grows with the size of the ring, up to 2 MiB.",
        source: Source::Paper(FIGURE_6),
        published: "0.83",
        measure: "bandwidth of 64 KiB messages with a ring of 512 KiB over that with 2 MiB, ivshmem",
        unit: "",
        evidence: |result| linked(result, &ring(512 << 10), &ring(2 << 20)),
        criterion: Criterion::Below(1.0),
        better: Some(Better::Higher),
        otherwise: "smaller rings are as fast here",
    },
    Claim {
        title: "dip of the largest messages",
        statement: DIP,
        source: Source::Paper(FIGURE_5),
        published: "",
        measure: "bandwidth of 4 MiB messages over that of 2 MiB messages, ivshmem",
        unit: "",
        evidence: |result| linked(result, &text::size(4 << 20), &text::size(2 << 20)),
        criterion: Criterion::Below(1.0),
        better: Some(Better::Higher),
        otherwise: "there is no dip here",
    },
    Claim {
        title: "four pairs",
        statement: "The bandwidth of four pairs of machines is four times that of one: 53 and 13.2 Gb/s.",
        source: Source::Paper(FIGURE_7),
        published: "4.0",
        measure: "bandwidth of 4 pairs of programs in two virtual machines over that of one, ivshmem; at least nine \
                  tenths of the published factor",
        unit: "",
        evidence: four_pairs,
        criterion: Criterion::AtLeast(3.6),
        better: None,
        otherwise: "the pairs get into each other’s way, in the caches or at the memory",
    },
    goal(
        "ivshmem against virtio-net",
        "Large messages between virtual machines have at least three times the bandwidth of virtio-net.",
        "bandwidth of 64 KiB messages between virtual machines, ivshmem over virtio-net",
        Criterion::AtLeast(3.0),
        |result| bulk(result, Kind::Machines),
    ),
    goal(
        "latency of ivshmem",
        "A byte between virtual machines takes a third of the time that it takes over virtio-net.",
        "round trip of 1 B between virtual machines, ivshmem over virtio-net",
        Criterion::AtMost(LATENCY_LEFT),
        |result| latency(result, Kind::Machines),
    ),
    goal(
        "granted memory against netfront",
        "Large messages between domains of Xen gain as much as in the paper.",
        "bandwidth of 64 KiB messages between domains of Xen, granted memory over netfront",
        Criterion::AtLeast(BANDWIDTH_GAIN),
        |result| bulk(result, Kind::Xen),
    ),
    goal(
        "latency of granted memory",
        "A byte between domains of Xen gains as much as in the paper.",
        "round trip of 1 B between domains of Xen, granted memory over netfront",
        Criterion::AtMost(LATENCY_LEFT),
        |result| latency(result, Kind::Xen),
    ),
    goal(
        "granted memory against libxenvchan",
        "Sockets carry as much as Xen’s own carrier.",
        "bandwidth of 64 KiB messages between domains of Xen, granted memory over libxenvchan",
        Criterion::AtLeast(1.0),
        |result| over_vchan(result, &text::size(BULK)),
    ),
    goal(
        "the same in the other direction",
        "Sockets carry as much as Xen’s own carrier, whichever domain has granted the memory.",
        "bandwidth of 64 KiB messages in the other direction, granted memory over libxenvchan",
        Criterion::AtLeast(1.0),
        |result| over_vchan(result, &reverse(BULK)),
    ),
];

pub(super) fn comparisons(result: &ResultFile) -> Vec<Comparison> {
    vec![beside(
        "Shared memory against the network of the same machines",
        MICROBENCHMARKS,
        "here it is the same for domains of Xen, and virtio-net for virtual machines with ivshmem",
        &[
            ("bandwidth, Xen", BANDWIDTH_GAIN, bulk(result, Kind::Xen)),
            ("round trip of 1 B, Xen", LATENCY_LEFT, latency(result, Kind::Xen)),
            ("bandwidth, ivshmem", BANDWIDTH_GAIN, bulk(result, Kind::Machines)),
            ("round trip of 1 B, ivshmem", LATENCY_LEFT, latency(result, Kind::Machines)),
        ],
    )]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::claim::Verdict;
    use crate::launch::PLAIN;
    use crate::machine::Machine;
    use crate::record::{Sample, Samples};

    fn sample(case: String, variant: &str, round: usize, outcome: Result<f64, &str>) -> Sample {
        let metric = outcome.is_ok().then_some(BANDWIDTH);
        let outcome = outcome.map_err(str::to_owned);
        let variant = variant.to_owned();
        Sample { case, x: None, variant, metric, round, position: 0, outcome, traffic: None }
    }

    fn result(samples: Vec<Sample>) -> ResultFile {
        ResultFile {
            experiment: "vm".to_owned(),
            machine: Machine::describe(),
            commit: "abc".to_owned(),
            parameters: BTreeMap::new(),
            rows: Samples(samples).rows(PLAIN),
            tables: Vec::new(),
            summary: BTreeMap::new(),
            meanings: BTreeMap::new(),
            figures: Vec::new(),
        }
    }

    fn judged(result: &ResultFile, title: &str) -> (Verdict, String) {
        let claim = CLAIMS.iter().find(|claim| claim.title == title).unwrap();
        let judgement = claim.judge(result);
        (judgement.verdict, judgement.why)
    }

    #[test]
    fn machines_are_judged_while_xen_says_why_it_was_not_measured() {
        let mut samples = Vec::new();
        for round in 1..=7 {
            let name = || case(Kind::Machines, "64 KiB");
            let noise = 1.0 + round as f64 / 1000.0;
            samples.push(sample(name(), PLAIN, round, Ok(2.0 * noise)));
            samples.push(sample(name(), ACCELERATED, round, Ok(7.0 * noise)));
        }
        for way in [PLAIN, ACCELERATED, VCHAN] {
            samples.push(sample("Xen".to_owned(), way, 0, Err("no Xen here")));
        }
        let result = result(samples);
        let not_measured = |title| {
            assert_eq!(judged(&result, title), (Verdict::NotMeasured, "no Xen here".to_owned()));
        };
        not_measured("bandwidth between domains of Xen");
        not_measured("latency of granted memory");
        not_measured("granted memory against libxenvchan");
        not_measured("the same in the other direction");
        assert_eq!(judged(&result, "ivshmem against virtio-net").0, Verdict::Reproduced);
        // 3.5 times is enough for the goal, and not for the paper.
        let (verdict, _) = judged(&result, "bandwidth between virtual machines");
        assert_eq!(verdict, Verdict::NotReproduced);
        assert_eq!(judged(&result, "latency of ivshmem").0, Verdict::NotMeasured);
    }

    #[test]
    fn what_stayed_on_tcp_is_told_and_not_judged() {
        let why = "bandwidth of 64 KiB: 0 bytes went through shared memory";
        let name = || case(Kind::Machines, "messages to guest 1");
        let failed = sample(name(), ACCELERATED, 0, Err(why));
        let result = result(vec![failed]);
        let (verdict, said) = judged(&result, "ivshmem against virtio-net");
        assert_eq!((verdict, said.as_str()), (Verdict::NotMeasured, why));
    }
}
