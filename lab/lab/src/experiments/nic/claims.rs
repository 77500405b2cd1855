//! Numbers that claims of the thesis about offloads need and no row of a result of `nic` has: they
//! are valid under conditions only.
//!
//! "Everything on" means all that the kernel can do today, including GRO, which the thesis did not
//! have; the findings also have the numbers without it.

use super::cases::{FULLNESS, LARGE, SHARE, Setting};
use super::link::gigabit;
use crate::claim::{Estimate, Evidence};
use crate::network::step::OffloadStep;
use crate::network::{BUSIEST, CPU, THROUGHPUT};
use crate::outcome::{At, ResultFile};
use crate::record::Metric;

/// Percentage of its capacity from which on a link counts as full.
const FULL: f64 = 95.0;
/// Percentage of its share from which on a host is the limit: its processes are throttled for a
/// part of each period.
const LIMITED: f64 = 80.0;

/// Ratio of everything on to everything off.
fn offloads(result: &ResultFile, setting: Setting, metric: Metric, size: u64) -> Evidence {
    let case = setting.case(size);
    Estimate::ratio(
        result,
        At { case: &case, variant: OffloadStep::Joining.name(), metric: metric.name },
    )
}

fn median(
    result: &ResultFile,
    setting: Setting,
    metric: Metric,
    step: OffloadStep,
) -> Result<f64, String> {
    let case = setting.case(LARGE as u64);
    let at = At { case: &case, variant: step.name(), metric: metric.name };
    Ok(Estimate::median(result, at)?.value)
}

/// CPU load of a stream over the link. Processors that are busy all the time, for whatever reason,
/// prove nothing.
fn load(result: &ResultFile) -> Evidence {
    gigabit(result)?;
    for step in [OffloadStep::Off, OffloadStep::Joining] {
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
fn weak_load(result: &ResultFile) -> Evidence {
    let share = median(result, Setting::Slow, SHARE, OffloadStep::Off)?;
    if share < LIMITED {
        return Err(format!(
            "with everything off the receiver used only {share:.0} % of its share"
        ));
    }
    let fullness = median(result, Setting::Slow, FULLNESS, OffloadStep::Joining)?;
    if fullness < FULL {
        return Err(format!("with everything on only {fullness:.0} % of the link were used"));
    }
    offloads(result, Setting::Slow, SHARE, LARGE as u64)
}

/// The throughput over the link.
fn throughput(result: &ResultFile) -> Evidence {
    gigabit(result)?;
    offloads(result, Setting::Link, THROUGHPUT, LARGE as u64)
}

/// The number of a claim by its words.
pub(super) fn computed(words: &[&str], result: &ResultFile) -> Option<Evidence> {
    match words {
        ["load of a weak receiver"] => Some(weak_load(result)),
        ["load of fast hosts"] => Some(load(result)),
        ["throughput of fast hosts"] => Some(throughput(result)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::super::Nic;
    use super::super::link::Link;
    use super::*;
    use crate::claim::{Judgement, Verdict};
    use crate::experiment::Experiment;
    use crate::machine::Machine;
    use crate::network::hosts::RemoteHost;
    use crate::record::{Sample, Samples};

    /// Five rounds of the given readings for everything off and everything on.
    fn result(link: &Link, readings: &[(Setting, Metric, [f64; 2])]) -> ResultFile {
        let mut samples = Samples::default();
        for &(setting, metric, values) in readings {
            for (step, value) in [OffloadStep::Off, OffloadStep::Joining].into_iter().zip(values) {
                samples.0.extend((1..=5).map(|round| {
                    Sample::new(setting.case(LARGE as u64), step.name(), metric, round, value)
                }));
            }
        }
        let mut parameters = BTreeMap::from([("rounds".to_owned(), Value::from(5))]);
        link.note(&mut parameters);
        let rows = samples.rows(OffloadStep::Off.name());
        ResultFile::new("nic", Machine::describe(), parameters, rows)
    }

    fn judge(title: &str, result: &ResultFile) -> Judgement {
        let nic: &dyn Experiment = &Nic;
        nic.judge(nic.claims().iter().find(|claim| claim.title == title).unwrap(), result)
    }

    fn peer(speed_mbps: Option<u32>) -> Link {
        let (name, address) = ("192.0.2.1".to_owned(), "192.0.2.1:7117".parse().unwrap());
        Link::to(&RemoteHost {
            name,
            address,
            weak: None,
            interface: "eth1".to_owned(),
            speed_mbps,
        })
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
