//! The judgements of an experiment in a line.

use std::fmt::Write;

use crate::claim::{Claim, Judgement, Source, Verdict};
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

/// Judges `claims` by `result`. The line is about claims that papers measured, else about those
/// that they expect, else about goals.
pub(crate) fn judge(claims: &'static [Claim], result: &ResultFile) -> Overall {
    let judgements: Vec<(&Claim, Judgement)> =
        claims.iter().map(|claim| (claim, claim.judge(result))).collect();
    let rank = |claim: &Claim| match claim.source {
        Source::Paper(_) => 0,
        Source::Expectation(_) => 1,
        Source::Goal => 2,
    };
    let first = claims.iter().min_by_key(|claim| rank(claim));
    let counted = || judgements.iter().filter(|(claim, _)| Some(rank(claim)) == first.map(rank));
    let source = first.map_or(Source::Goal, |claim| claim.source);
    let name = |verdict: Verdict| verdict.name(source);

    let of = |verdict| counted().filter(move |(_, judgement)| judgement.verdict == verdict);
    let names = |verdict| of(verdict).map(|(claim, _)| claim.title).collect::<Vec<_>>().join(", ");
    let count = |verdict| of(verdict).count();
    let [yes, improved, no, unknown, missing] = [
        Verdict::Reproduced,
        Verdict::ImprovedUpon,
        Verdict::NotReproduced,
        Verdict::CannotBeTold,
        Verdict::NotMeasured,
    ]
    .map(count);
    let done = match (yes, improved) {
        (_, 0) => name(Verdict::Reproduced).to_owned(),
        (0, _) => name(Verdict::ImprovedUpon).to_owned(),
        (_, _) => format!("{} or {}", name(Verdict::Reproduced), name(Verdict::ImprovedUpon)),
    };
    let (class, verdict) = match (yes + improved, no, unknown) {
        (0, 0, 0) if missing == 0 => ("unknown", "nothing is claimed".to_owned()),
        (0, 0, 0) => ("unknown", name(Verdict::NotMeasured).to_owned()),
        (0, 0, _) => ("unknown", name(Verdict::CannotBeTold).to_owned()),
        (_, 0, 0) => ("yes", done),
        (_, 0, _) => ("yes", format!("{done}, as far as can be told")),
        (0, _, _) => ("no", name(Verdict::NotReproduced).to_owned()),
        (_, _, _) => ("part", format!("{done} in part")),
    };
    let mut why = format!("{yes} of {} claims", counted().count());
    for verdict in
        [Verdict::ImprovedUpon, Verdict::NotReproduced, Verdict::CannotBeTold, Verdict::NotMeasured]
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
    if claims.is_empty() {
        why = "neither a paper nor a goal is compared with these numbers".to_owned();
    }
    Overall { class, verdict, why, judgements }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::claim::{Criterion, Estimate};
    use crate::machine::Machine;
    use crate::record::Better;

    fn estimate(low: f64, high: f64) -> Result<Estimate, String> {
        Ok(Estimate { value: (low + high) / 2.0, low, high, rounds: 5 })
    }

    const fn claim(
        title: &'static str,
        evidence: fn(&ResultFile) -> Result<Estimate, String>,
    ) -> Claim {
        Claim {
            title,
            statement: "There is a loss.",
            source: Source::Paper("a paper"),
            published: "",
            measure: "what is saved",
            unit: "%",
            evidence,
            criterion: Criterion::Below(0.0),
            better: Some(Better::Higher),
            otherwise: "there is none",
        }
    }

    const LOSS: Claim = claim("loss", |_| estimate(-2.0, -1.0));
    const GAIN: Claim = claim("gain", |_| estimate(1.0, 2.0));
    const NEITHER: Claim = claim("neither", |_| estimate(-1.0, 1.0));

    fn line(claims: &'static [Claim]) -> (&'static str, String, String) {
        let result = ResultFile {
            experiment: "seek".to_owned(),
            machine: Machine::describe(),
            commit: "abc".to_owned(),
            parameters: BTreeMap::new(),
            rows: Vec::new(),
            tables: Vec::new(),
            summary: BTreeMap::new(),
            meanings: BTreeMap::new(),
            figures: Vec::new(),
        };
        let Overall { class, verdict, why, .. } = judge(claims, &result);
        (class, verdict, why)
    }

    #[test]
    fn what_improves_upon_a_paper_is_no_failure() {
        let of = |class, verdict: &str, why: &str| (class, verdict.to_owned(), why.to_owned());
        assert_eq!(line(&[GAIN]), of("yes", "improved upon", "there is none"));
        let both = "1 of 2 claims; improved upon: gain";
        assert_eq!(line(&[LOSS, GAIN]), of("yes", "reproduced or improved upon", both));
        assert_eq!(
            line(&[GAIN, NEITHER]),
            of(
                "yes",
                "improved upon, as far as can be told",
                "0 of 2 claims; improved upon: gain; cannot be told: neither"
            )
        );
        assert_eq!(line(&[]).1, "nothing is claimed");
    }
}
