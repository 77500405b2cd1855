//! Claims of the thesis about offloads, judged by a result of `nic`.
//!
//! "Everything on" means all that the kernel can do today, including GRO, which the thesis did not
//! have; the findings also have the numbers without it.

use super::link::gigabit;
use super::others::{self, RATIO};
use super::{FULLNESS, LARGE, SHARE, Setting};
use crate::claim::{Claim, Criterion, Estimate, Source};
use crate::network::others::Tool;
use crate::network::step::Step;
use crate::network::{BUSIEST, CPU, LATENCY, THROUGHPUT};
use crate::outcome::{At, ResultFile};
use crate::record::{Better, Metric};

const LATENCIES: &str = "“Network hardware for business messaging”, table 4.1.1 and graph 4.1.1";
const FAST: &str =
    "“Network hardware for business messaging”, tables 4.2.1 to 4.2.3, graphs 4.2.1 and 4.2.2";
const WEAK: &str =
    "“Network hardware for business messaging”, tables 4.2.4 to 4.2.6 and graph 4.2.3";

/// Percentage of its capacity from which on a link counts as full.
const FULL: f64 = 95.0;
/// Percentage of its share from which on a host is the limit: its processes are throttled for a
/// part of each period.
const LIMITED: f64 = 80.0;

/// Ratio of everything on to everything off.
fn offloads(
    result: &ResultFile,
    setting: Setting,
    metric: Metric,
    size: u64,
) -> Result<Estimate, String> {
    let case = setting.case(size);
    Estimate::ratio(result, At { case: &case, variant: Step::Joining.name(), metric: metric.name })
}

fn median(
    result: &ResultFile,
    setting: Setting,
    metric: Metric,
    step: Step,
) -> Result<f64, String> {
    let case = setting.case(LARGE as u64);
    let at = At { case: &case, variant: step.name(), metric: metric.name };
    Ok(Estimate::median(result, at)?.value)
}

/// CPU load of a stream over the link. Processors that are busy all the time, for whatever reason,
/// prove nothing.
fn load(result: &ResultFile) -> Result<Estimate, String> {
    gigabit(result)?;
    for step in [Step::Off, Step::Joining] {
        if median(result, Setting::Link, BUSIEST, step)? > 97.0 {
            return Err(format!(
                "all processors of a host were busy ({}), maybe with something else",
                step.name()
            ));
        }
    }
    offloads(result, Setting::Link, CPU, LARGE as u64)
}

/// CPU load of the receiver that is slower than its link with everything off, and faster with
/// everything on.
fn weak_load(result: &ResultFile) -> Result<Estimate, String> {
    let share = median(result, Setting::Slow, SHARE, Step::Off)?;
    if share < LIMITED {
        return Err(format!(
            "with everything off the receiver used only {share:.0} % of its share"
        ));
    }
    let fullness = median(result, Setting::Slow, FULLNESS, Step::Joining)?;
    if fullness < FULL {
        return Err(format!("with everything on only {fullness:.0} % of the link were used"));
    }
    offloads(result, Setting::Slow, SHARE, LARGE as u64)
}

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        title: "throughput to a weak receiver",
        statement: "Where the receiver's processor limits it, offloads raise the throughput of large messages at \
                    least 1.6 times.",
        source: Source::Paper(WEAK),
        published: "567 to 939 Mb/s, i.e. 1.66",
        measure: "throughput of messages of 64 KiB to a receiver with a share of a processor, everything on, with GRO, \
                  which the thesis did not have, over everything off; nearly the published factor is enough",
        unit: "",
        evidence: |result| offloads(result, Setting::Weak, THROUGHPUT, LARGE as u64),
        criterion: Criterion::AtLeast(1.6),
        better: None,
        otherwise: "offloads save this receiver less of its time than the thesis' one",
    },
    Claim {
        title: "CPU load of a weak receiver",
        statement: "Where offloads let a weak receiver fill its link, it needs less than half of its CPU time, all of \
                    which it used before.",
        source: Source::Paper(WEAK),
        published: "99.9 to 37.7 %, i.e. 0.38",
        measure: "CPU load of a receiver with a share of a processor, stream of 64 KiB messages over a link that \
                  carries 1.66 times what it takes with everything off, everything on, with GRO, over everything off; \
                  it must use 80 % of its share with everything off, and 95 % of the link with everything on",
        unit: "",
        evidence: weak_load,
        criterion: Criterion::AtMost(0.5),
        better: None,
        otherwise: "offloads leave this receiver less of its time than the thesis' one",
    },
    Claim {
        title: "CPU load of fast hosts",
        statement: "Fast hosts move large messages over 1 Gb/s at a lower CPU load with offloads.",
        source: Source::Paper(FAST),
        published: "23.6 to 11.4 %, i.e. 0.48",
        measure: "CPU load of both ends, stream of 64 KiB messages over 1 Gb/s, everything on over everything off",
        unit: "",
        evidence: load,
        criterion: Criterion::Below(1.0),
        better: None,
        otherwise: "the savings of offloads are lost elsewhere",
    },
    Claim {
        title: "throughput of fast hosts",
        statement: "The throughput of fast hosts is that of the link, with offloads or without.",
        source: Source::Paper(FAST),
        published: "949 Mb/s, i.e. 1.00",
        measure: "throughput of 64 KiB messages over 1 Gb/s, everything on over everything off",
        unit: "",
        evidence: |result| {
            gigabit(result)?;
            offloads(result, Setting::Link, THROUGHPUT, LARGE as u64)
        },
        criterion: Criterion::Between(0.95, 1.05),
        better: None,
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
        better: None,
        otherwise: "offloads do not shorten the way of large messages here",
    },
    Claim {
        title: "latency of small messages",
        statement: "The latency of small messages hardly changes.",
        source: Source::Paper(LATENCIES),
        published: "30.0 to 32.2 µs, i.e. 1.08",
        measure: "one-way latency of 1 B, everything on over everything off",
        unit: "",
        evidence: |result| offloads(result, Setting::Latency, LATENCY, 1),
        criterion: Criterion::Between(0.9, 1.1),
        better: Some(Better::Lower),
        otherwise: "offloads change the latency of small messages",
    },
    Claim {
        title: "agreement with iperf3",
        statement: "The throughput measured here agrees with iperf3 within 10 %.",
        source: Source::Goal,
        published: "",
        measure: "throughput of a stream of 64 KiB messages, this laboratory over iperf3, median of pairs",
        unit: "",
        evidence: |result| {
            let case = others::case(Tool::Iperf3, THROUGHPUT, LARGE as u64);
            Estimate::median(
                result,
                At { case: &case, variant: Tool::Iperf3.name(), metric: RATIO.name },
            )
        },
        criterion: Criterion::Between(0.9, 1.1),
        better: None,
        otherwise: "one of the two measures something else",
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::super::link::Link;
    use super::*;
    use crate::claim::{Judgement, Verdict};
    use crate::machine::Machine;
    use crate::network::hosts::Peer;
    use crate::record::{Sample, Samples};

    /// Five rounds of the given readings for everything off and everything on.
    fn result(link: &Link, readings: &[(Setting, Metric, [f64; 2])]) -> ResultFile {
        let mut samples = Samples::default();
        for &(setting, metric, values) in readings {
            for (step, value) in [Step::Off, Step::Joining].into_iter().zip(values) {
                samples.0.extend((1..=5).map(|round| Sample {
                    case: setting.case(LARGE as u64),
                    x: None,
                    variant: step.name().to_owned(),
                    metric: Some(metric),
                    round,
                    position: 0,
                    outcome: Ok(value),
                    traffic: None,
                }));
            }
        }
        let mut parameters = BTreeMap::from([("rounds".to_owned(), Value::from(5))]);
        link.note(&mut parameters);
        ResultFile {
            experiment: "nic".to_owned(),
            machine: Machine::describe(),
            commit: "abc".to_owned(),
            parameters,
            rows: samples.rows(Step::Off.name()),
            tables: Vec::new(),
            summary: BTreeMap::new(),
            meanings: BTreeMap::new(),
            figures: Vec::new(),
        }
    }

    fn judge(title: &str, result: &ResultFile) -> Judgement {
        CLAIMS.iter().find(|claim| claim.title == title).unwrap().judge(result)
    }

    fn peer(speed_mbps: Option<u32>) -> Link {
        let (name, address) = ("192.0.2.1".to_owned(), "192.0.2.1:7117".parse().unwrap());
        Link::to(&Peer { name, address, weak: None, interface: "eth1".to_owned(), speed_mbps })
    }

    #[test]
    fn claims_about_a_gigabit_are_judged_by_a_gigabit_only() {
        let readings = [
            (Setting::Link, CPU, [300.0, 150.0]),
            (Setting::Link, BUSIEST, [60.0, 30.0]),
            (Setting::Link, THROUGHPUT, [940.0, 940.0]),
        ];
        for title in ["CPU load of fast hosts", "throughput of fast hosts"] {
            for link in [Link::made(), peer(Some(1000))] {
                assert_eq!(
                    judge(title, &result(&link, &readings)).verdict,
                    Verdict::Reproduced,
                    "{title}"
                );
            }
            for (link, why) in
                [(peer(Some(25_000)), "the link had 25 Gb/s"), (peer(None), "not known")]
            {
                let judgement = judge(title, &result(&link, &readings));
                assert_eq!(judgement.verdict, Verdict::NotMeasured, "{title}");
                assert!(judgement.why.contains(why), "{}", judgement.why);
            }
        }
    }

    #[test]
    fn the_load_of_two_hosts_is_not_held_against_the_processors_of_one() {
        let cores = Machine::describe().cores as f64;
        // Both together more than all of this one, but neither is full.
        let load = |busiest| {
            [
                (Setting::Link, CPU, [150.0 * cores, 100.0 * cores]),
                (Setting::Link, BUSIEST, busiest),
            ]
        };
        let link = peer(Some(1000));
        let judgement = judge("CPU load of fast hosts", &result(&link, &load([75.0, 50.0])));
        assert_eq!(judgement.verdict, Verdict::Reproduced, "{judgement:?}");
        let judgement = judge("CPU load of fast hosts", &result(&link, &load([99.0, 50.0])));
        assert_eq!(judgement.verdict, Verdict::NotMeasured, "{judgement:?}");
    }

    #[test]
    fn a_weak_receiver_must_be_weak_and_its_link_full() {
        let title = "CPU load of a weak receiver";
        let of = |share, fullness| {
            let readings = [(Setting::Slow, SHARE, share), (Setting::Slow, FULLNESS, fullness)];
            judge(title, &result(&Link::made(), &readings))
        };
        assert_eq!(of([99.0, 38.0], [60.0, 100.0]).verdict, Verdict::Reproduced);
        assert_eq!(of([99.0, 90.0], [60.0, 100.0]).verdict, Verdict::NotReproduced);
        for (judgement, why) in [
            (of([60.0, 20.0], [100.0, 100.0]), "only 60 % of its share"),
            (of([99.0, 38.0], [60.0, 80.0]), "only 80 % of the link"),
        ] {
            assert_eq!(judgement.verdict, Verdict::NotMeasured);
            assert!(judgement.why.contains(why), "{}", judgement.why);
        }
    }
}
