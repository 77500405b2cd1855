//! The judgements of an experiment in a line.

use std::fmt::Write;

use crate::claim::{Claim, ClaimSource, Judgement, Verdict};
use crate::experiment::Experiment;
use crate::outcome::ResultFile;

/// Summary of the claims of an experiment.
pub(crate) struct Overall {
    /// Class of its badge.
    pub(crate) class: &'static str,
    /// In a few words.
    pub(crate) verdict: String,
    /// Why.
    pub(crate) why: String,
    pub(crate) judgements: Vec<(&'static Claim, Judgement)>,
}

/// Judges the claims of `experiment` by `result`. The line is about claims that papers measured,
/// else about those that they expect, else about goals.
pub(crate) fn judge(experiment: Option<&'static dyn Experiment>, result: &ResultFile) -> Overall {
    let judged = |experiment: &'static dyn Experiment| {
        experiment.claims().iter().map(|claim| (claim, experiment.judge(claim, result))).collect()
    };
    overall(experiment.map_or_else(Vec::new, judged))
}

fn overall(judgements: Vec<(&'static Claim, Judgement)>) -> Overall {
    let rank = |claim: &Claim| match claim.source {
        ClaimSource::Paper(_) => 0,
        ClaimSource::Expectation(_) => 1,
        ClaimSource::Goal => 2,
    };
    let first = judgements.iter().map(|(claim, _)| *claim).min_by_key(|claim| rank(claim));
    let counted = || judgements.iter().filter(|(claim, _)| Some(rank(claim)) == first.map(rank));
    let source = first.map_or(&ClaimSource::Goal, |claim| &claim.source);
    let name = |verdict: Verdict| verdict.name(source);

    let of = |verdict| counted().filter(move |(_, judgement)| judgement.verdict == verdict);
    let names =
        |verdict| of(verdict).map(|(claim, _)| &*claim.title).collect::<Vec<_>>().join(", ");
    let count = |verdict| of(verdict).count();
    let [yes, improved, no, unknown, missing] = [
        Verdict::Reproduced,
        Verdict::ImprovedUpon,
        Verdict::NotReproduced,
        Verdict::Undecided,
        Verdict::NotMeasured,
    ]
    .map(count);
    let done = match (yes, improved) {
        (_, 0) => name(Verdict::Reproduced).to_owned(),
        (0, _) => name(Verdict::ImprovedUpon).to_owned(),
        (_, _) => format!("{} or {}", name(Verdict::Reproduced), name(Verdict::ImprovedUpon)),
    };
    let (class, verdict) = match (yes + improved, no, unknown + missing) {
        (0, 0, 0) => ("unknown", "nothing is claimed".to_owned()),
        (0, 0, _) if unknown == 0 => ("unknown", name(Verdict::NotMeasured).to_owned()),
        (0, 0, _) => ("unknown", name(Verdict::Undecided).to_owned()),
        (_, 0, 0) => ("yes", done),
        (_, 0, _) => ("yes", format!("{done}, as far as can be told")),
        (0, _, _) => ("no", name(Verdict::NotReproduced).to_owned()),
        (_, _, _) => ("part", format!("{done} in part")),
    };
    let mut why = format!("{yes} of {} claims", counted().count());
    for verdict in
        [Verdict::ImprovedUpon, Verdict::NotReproduced, Verdict::Undecided, Verdict::NotMeasured]
    {
        if count(verdict) > 0 {
            let _ = write!(why, "; {}: {}", name(verdict), names(verdict));
        }
    }
    let mut reasons = counted().filter(|(_, judgement)| judgement.verdict != Verdict::Reproduced);
    // A single claim needs no list of names.
    if let (1, Some((_, judgement))) = (counted().count(), reasons.next()) {
        why = judgement.why.clone();
    }
    if judgements.is_empty() {
        why = "neither a paper nor a goal is compared with these numbers".to_owned();
    }
    Overall { class, verdict, why, judgements }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Estimate;
    use crate::claim::tests::claim;

    fn line(intervals: &[(&str, f64, f64)]) -> (&'static str, String, String) {
        let judged = |&(title, low, high): &(&str, f64, f64)| {
            let keys = "source.paper = 'a paper'\ncriterion.below = 0\nbetter = 'higher'";
            let claim: &Claim = Box::leak(Box::new(claim(title, keys)));
            let estimate = Estimate { value: (low + high) / 2.0, low, high, rounds: 5 };
            let measured = low.is_finite().then_some(estimate);
            (claim, claim.judge(measured.ok_or_else(|| "no such program".to_owned())))
        };
        let Overall { class, verdict, why, .. } = overall(intervals.iter().map(judged).collect());
        (class, verdict, why)
    }

    #[test]
    fn what_improves_upon_a_paper_is_no_failure() {
        let [loss, gain, neither] =
            [("loss", -2.0, -1.0), ("gain", 1.0, 2.0), ("neither", -1.0, 1.0)];
        let of = |class, verdict: &str, why: &str| (class, verdict.to_owned(), why.to_owned());
        assert_eq!(line(&[gain]), of("yes", "improved upon", "it is not"));
        let both = "1 of 2 claims; improved upon: gain";
        assert_eq!(line(&[loss, gain]), of("yes", "reproduced or improved upon", both));
        assert_eq!(
            line(&[gain, neither]),
            of(
                "yes",
                "improved upon, as far as can be told",
                "0 of 2 claims; improved upon: gain; inconclusive: neither"
            )
        );
        let missing = ("missing", f64::NAN, f64::NAN);
        assert_eq!(
            line(&[gain, missing]),
            of(
                "yes",
                "improved upon, as far as can be told",
                "0 of 2 claims; improved upon: gain; not measured: missing"
            )
        );
        assert_eq!(line(&[missing]).1, "not measured");
        assert_eq!(line(&[]).1, "nothing is claimed");
    }
}
