//! Claims and their verdicts as HTML.

use std::fmt::Write;

use crate::claim::{Source, Verdict};
use crate::report::{close_table, escape, open_table};
use crate::verdict::Overall;

/// The claims, one by one.
pub(super) fn push_claims(page: &mut String, overall: &Overall) {
    open_table(page, &["Claim", "Verdict", "Here (95 %)", "Wanted", "Published", "Why"]);
    for (claim, judgement) in &overall.judgements {
        let source = match claim.source {
            Source::Paper(paper) | Source::Expectation(paper) => paper,
            Source::Goal => "A goal of this project",
        };
        let unit = claim.unit_after();
        let here = judgement.estimate.as_ref().map_or_else(String::new, |estimate| {
            format!(
                "{estimate}{}<br><span class=\"soft\">{} rounds</span>",
                escape(&unit),
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
            escape(&unit),
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
        Verdict::Reproduced | Verdict::ImprovedUpon => "yes",
        Verdict::NotReproduced => "no",
        Verdict::CannotBeTold | Verdict::NotMeasured => "unknown",
    }
}
