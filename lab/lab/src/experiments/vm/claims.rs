//! Claims whose number no row of a result of `vm` has, and rows that are missing.

use super::cases::{KINDS, case, named};
use crate::bench::BANDWIDTH;
use crate::claim::{Estimate, Evidence};
use crate::experiments::result_names::pairs_case;
use crate::guests::GuestKind;
use crate::launch::ACCELERATED;
use crate::outcome::{At, ResultFile};

/// Why a row was not measured: the error of its variant in guests of the same kind. Runs that fail
/// before they measure anything choose their case's name.
pub(super) fn reason(result: &ResultFile, at: At<'_>) -> Option<String> {
    let is_of = |case: &str, kind: GuestKind| {
        case == named(kind) || case.starts_with(&format!("{}, ", named(kind)))
    };
    let kind = KINDS.into_iter().find(|kind| is_of(at.case, *kind))?;
    let mut failed = result
        .rows
        .iter()
        .filter(|row| is_of(&row.case, kind) && row.variant == at.variant && row.spread.is_none());
    failed.find_map(|row| row.error.clone())
}

/// Of those of one pair, whose machines had a processor each.
pub(super) fn four_pairs(result: &ResultFile) -> Evidence {
    match result.machine.cores {
        cores @ ..8 => Err(format!(
            "four pairs need eight processors to themselves, as in the paper; this host has {cores}"
        )),
        _ => {
            let [four, one] = [4, 1].map(|count| case(GuestKind::Machines, &pairs_case(count)));
            let at = |case| At { case, variant: ACCELERATED, metric: BANDWIDTH.name };
            Estimate::ratio_of_medians(result, at(&four), at(&one))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::Vm;
    use super::super::cases::VCHAN;
    use super::*;
    use crate::claim::Verdict;
    use crate::experiment::Experiment;
    use crate::launch::PLAIN;
    use crate::machine::Machine;
    use crate::record::{Sample, Samples};

    fn sample(case: String, variant: &str, round: usize, outcome: Result<f64, &str>) -> Sample {
        let metric = outcome.is_ok().then_some(BANDWIDTH);
        let outcome = outcome.map_err(str::to_owned);
        Sample { metric, outcome, ..Sample::new(case, variant, BANDWIDTH, round, 0.0) }
    }

    fn result(samples: Vec<Sample>) -> ResultFile {
        let rows = Samples(samples).rows(PLAIN);
        ResultFile::new("vm", Machine::describe(), BTreeMap::new(), rows)
    }

    fn judged(result: &ResultFile, title: &str) -> (Verdict, String) {
        let vm: &dyn Experiment = &Vm;
        let claim = vm.claims().iter().find(|claim| claim.title == title).unwrap();
        let judgement = vm.judge(claim, result);
        (judgement.verdict, judgement.why)
    }

    #[test]
    fn machines_are_judged_while_xen_says_why_it_was_not_measured() {
        let mut samples = Vec::new();
        for round in 1..=7 {
            let name = || case(GuestKind::Machines, "64 KiB");
            let noise = 1.0 + round as f64 / 1000.0;
            samples.push(sample(name(), PLAIN, round, Ok(2.0 * noise)));
            samples.push(sample(name(), ACCELERATED, round, Ok(7.0 * noise)));
        }
        for variant in [PLAIN, ACCELERATED, VCHAN] {
            samples.push(sample("Xen".to_owned(), variant, 0, Err("no Xen here")));
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
    fn runs_that_stayed_on_tcp_are_reported_and_not_judged() {
        let why = "bandwidth of 64 KiB: 0 bytes went through shared memory";
        let name = || case(GuestKind::Machines, "messages to guest 1");
        let failed = sample(name(), ACCELERATED, 0, Err(why));
        let result = result(vec![failed]);
        let (verdict, said) = judged(&result, "ivshmem against virtio-net");
        assert_eq!((verdict, said.as_str()), (Verdict::NotMeasured, why));
    }
}
