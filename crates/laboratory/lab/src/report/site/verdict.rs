//! The judgements of an experiment in a line.

use std::fmt::Write;

use crate::claim::{Claim, Judgement, Source, Verdict};
use crate::outcome::ResultFile;
use crate::report::{close_table, escape, open_table};

/// What an experiment says about its claims.
pub(super) struct Overall {
    /// Class of its badge.
    pub(super) class: &'static str,
    /// In a few words.
    pub(super) verdict: String,
    /// Why.
    pub(super) why: String,
    pub(super) judgements: Vec<(&'static Claim, Judgement)>,
}

/// Judges `claims` by `result`. The line is about what papers measured, else about what they
/// expect, else about goals.
pub(super) fn judge(claims: &'static [Claim], result: &ResultFile) -> Overall {
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
    let [done, not_done] =
        [Verdict::Reproduced, Verdict::NotReproduced].map(|verdict| verdict.name(source));

    let of = |verdict| counted().filter(move |(_, judgement)| judgement.verdict == verdict);
    let names = |verdict| of(verdict).map(|(claim, _)| claim.title).collect::<Vec<_>>().join(", ");
    let count = |verdict| of(verdict).count();
    let [yes, no, unknown, missing] =
        [Verdict::Reproduced, Verdict::NotReproduced, Verdict::CannotBeTold, Verdict::NotMeasured]
            .map(count);
    let (class, verdict) = match (yes, no, unknown) {
        (0, 0, 0) if missing == 0 => ("unknown", "nothing is claimed".to_owned()),
        (0, 0, 0) => ("unknown", "not measured".to_owned()),
        (0, 0, _) => ("unknown", "cannot be told".to_owned()),
        (_, 0, 0) => ("yes", done.to_owned()),
        (_, 0, _) => ("yes", format!("{done}, as far as can be told")),
        (0, _, _) => ("no", not_done.to_owned()),
        (_, _, _) => ("part", format!("{done} in part")),
    };
    let mut why = format!("{yes} of {} claims", counted().count());
    for (what, verdict) in [
        (not_done, Verdict::NotReproduced),
        ("cannot be told", Verdict::CannotBeTold),
        ("not measured", Verdict::NotMeasured),
    ] {
        if count(verdict) > 0 {
            let _ = write!(why, "; {what}: {}", names(verdict));
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

/// The claims, one by one.
pub(super) fn push_claims(page: &mut String, overall: &Overall) {
    open_table(page, &["Claim", "Verdict", "Here (95 %)", "Wanted", "Published", "Why"]);
    for (claim, judgement) in &overall.judgements {
        let source = match claim.source {
            Source::Paper(paper) | Source::Expectation(paper) => paper,
            Source::Goal => "A goal of this project",
        };
        let unit = |of: &str| if of.is_empty() { String::new() } else { format!(" {of}") };
        let here = judgement.estimate.as_ref().map_or_else(String::new, |estimate| {
            format!(
                "{estimate}{}<br><span class=\"soft\">{} rounds</span>",
                escape(&unit(claim.unit)),
                estimate.rounds
            )
        });
        let _ = writeln!(
            page,
            "<tr><th scope=\"row\" class=\"wide\">{}<br><span class=\"soft\">{}</span></th><td>{}</td>\
             <td>{here}</td><td>{}{}</td><td>{}</td>\
             <td class=\"wide\">{}<br><span class=\"soft\">Measured: {}</span></td></tr>",
            escape(claim.statement),
            escape(source),
            badge(class(judgement.verdict), judgement.verdict.name(claim.source)),
            escape(&claim.criterion.to_string()),
            escape(&unit(claim.unit)),
            escape(if claim.published.is_empty() { "–" } else { claim.published }),
            escape(&judgement.why),
            escape(claim.measure),
        );
    }
    close_table(page);
}

/// A few words in a box; the words say it, the colour helps.
pub(super) fn badge(class: &str, words: &str) -> String {
    format!("<strong class=\"badge {class}\">{}</strong>", escape(words))
}

pub(super) fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Reproduced => "yes",
        Verdict::NotReproduced => "no",
        Verdict::CannotBeTold | Verdict::NotMeasured => "unknown",
    }
}
