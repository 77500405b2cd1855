//! Claims and their verdicts as HTML.

use maud::{Markup, html};

use crate::claim::{Claim, ClaimSource, Judgement, Verdict};
use crate::report::parts::table;
use crate::verdict::Overall;

/// The claims, one by one.
pub(super) fn claims(overall: &Overall) -> Markup {
    let rows = html! {
        @for (claim, judgement) in &overall.judgements { (row(claim, judgement)) }
    };
    table(&["Claim", "Verdict", "Here (95 %)", "Wanted", "Published", "Why"], &rows)
}

fn row(claim: &Claim, judgement: &Judgement) -> Markup {
    let source = match &claim.source {
        ClaimSource::Paper(paper) | ClaimSource::Expectation(paper) => paper,
        ClaimSource::Goal => "A goal of this project",
    };
    let unit = claim.unit_after();
    html! {
        tr {
            th.wide scope="row" { (claim.statement) br; span.soft { (source) } }
            td { (badge(class(judgement.verdict), judgement.verdict.name(&claim.source))) }
            td {
                @if let Some(estimate) = &judgement.estimate {
                    (estimate.to_string()) (unit) br; span.soft { (estimate.rounds) " rounds" }
                }
            }
            td { (claim.criterion.to_string()) (unit) }
            td { (if claim.published.is_empty() { "–" } else { &claim.published }) }
            td.wide { (judgement.why) br; span.soft { "Measured: " (claim.measure) } }
        }
    }
}

/// A few words in a box; the words carry the meaning, the colour helps.
pub(super) fn badge(class: &str, words: &str) -> Markup {
    html! { strong.badge.(class) { (words) } }
}

pub(super) fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Reproduced | Verdict::ImprovedUpon => "yes",
        Verdict::NotReproduced => "no",
        Verdict::Undecided | Verdict::NotMeasured => "unknown",
    }
}
