//! The first page: the experiments, their machines and their results.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::page::outdated;
use super::read::{ResultContents, ResultEntry, ResultTree};
use super::verdict::{badge, class};
use super::{document, navigation};
use crate::claim::Verdict;
use crate::experiments;
use crate::programs::DEMO;
use crate::report::parts::{table, violation};
use crate::verdict::Overall;
use crate::{demo, text};

pub(super) fn html(tree: &ResultTree) -> String {
    let readable: Vec<(&ResultEntry, &ResultContents)> = tree
        .entries
        .iter()
        .filter_map(|entry| Some((entry, entry.contents.as_ref().ok()?)))
        .collect();
    let links: Vec<_> =
        readable.iter().map(|(entry, _)| Some((entry.page(), entry.name.clone()))).collect();
    let body = html! {
        (navigation(&links))
        main #content {
            h1 { "Seekwire: experiments" }
            (machines(&readable))
            p.soft {
                "Verdicts follow from the numbers. A claim is reproduced, or a goal met, if the whole 95 % interval fulfils \
                 the criterion; it is not if no part of the interval does; otherwise it is inconclusive. A claim is improved \
                 upon if the whole interval is better than what a paper found, for example no loss where the paper found \
                 one. The intervals are widened for few rounds (Student’s t)."
            }
            @if readable.iter().any(|(_, contents)| contents.result.is_quick()) {
                p.notice { "Some of these are quick runs: to see that it works, not to quote." }
            }
            @for (entry, contents) in &readable { (card(entry, contents)) }
            (unreadable(tree))
            (missing(tree))
        }
    };
    document("Seekwire: experiments", &body)
}

/// The machines and commits, each with the experiments measured there.
fn machines(entries: &[(&ResultEntry, &ResultContents)]) -> Markup {
    let or_unknown = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let mut machines: BTreeMap<Vec<String>, Vec<&str>> = BTreeMap::new();
    for (entry, contents) in entries {
        let machine = &contents.result.machine;
        let virtualised = if machine.virtualised { ", virtual" } else { "" };
        let memory = machine.memory.map_or_else(|| "unknown".to_owned(), text::about_bytes);
        let key = vec![
            format!("{} × {}{virtualised}", machine.cores, or_unknown(&machine.cpu)),
            memory,
            format!("{}, {}", or_unknown(&machine.kernel), or_unknown(&machine.system)),
            contents.result.commit.clone(),
        ];
        machines.entry(key).or_default().push(&entry.name);
    }
    let rows = html! {
        @for (cells, names) in machines {
            tr {
                @for cell in &cells { td { (cell) } }
                td.wide { (names.join(", ")) }
            }
        }
    };
    table(&["Processors", "Memory", "Kernel and system", "Commit", "Measured there"], &rows)
}

fn card(entry: &ResultEntry, contents: &ResultContents) -> Markup {
    let experiment = contents.experiment();
    let is_demo = contents.result.experiment == DEMO;
    let question = match experiment {
        _ if is_demo => demo::QUESTION,
        Some(experiment) => &experiment.file().question,
        None => "Of an experiment that this program does not know.",
    };
    let overall = crate::verdict::judge(experiment, &contents.result);
    html! {
        section.card {
            h2 { a href=(entry.page()) { (entry.name) } }
            p { (question) }
            p {
                (badge(overall.class, &overall.verdict))
                @if contents.result.is_quick() { " " (badge("unknown", "quick run")) }
                " "
                span.soft { (overall.why) }
            }
            (outdated(contents))
            (violation(&contents.result))
            (judgements(&overall))
        }
    }
}

/// The claims that were measured; if none was, the reason.
fn judgements(overall: &Overall) -> Markup {
    let rows = html! {
        @for (claim, judgement) in &overall.judgements {
            @if let Some(estimate) = &judgement.estimate {
                tr {
                    th scope="row" { (claim.title) }
                    td { (badge(class(judgement.verdict), judgement.verdict.name(&claim.source))) }
                    td.number { (estimate.to_string()) (claim.unit_after()) }
                    td { (claim.criterion.to_string()) }
                }
            }
        }
    };
    let all = || overall.judgements.iter().map(|(_, judgement)| judgement);
    html! {
        @if all().any(|judgement| judgement.estimate.is_some()) {
            (table(&["Claim", "Verdict", "Here (95 %)", "Wanted"], &rows))
        } @else if all().any(|judgement| judgement.verdict == Verdict::NotMeasured) {
            ul {
                @for (claim, judgement) in &overall.judgements {
                    li { (claim.title) ": " (judgement.why) }
                }
            }
        }
    }
}

fn unreadable(tree: &ResultTree) -> Markup {
    html! {
        @for entry in &tree.entries {
            @if let Err(why) = &entry.contents {
                section.card {
                    h2 { (entry.name) }
                    p { (badge("unknown", "cannot be read")) }
                    p.error { (why) }
                    p.soft {
                        "Run it again to replace it: " code { "seekwire lab run " (entry.name) }
                    }
                }
            }
        }
    }
}

/// Experiments that have no result here.
fn missing(tree: &ResultTree) -> Markup {
    let is_there = |name: &str| {
        tree.entries.iter().any(|entry| match &entry.contents {
            Ok(contents) => contents.result.experiment == name,
            Err(_) => entry.name == name,
        })
    };
    let missing: Vec<_> =
        experiments().iter().filter(|experiment| !is_there(experiment.name())).collect();
    let rows = html! {
        @for experiment in &missing {
            tr {
                th scope="row" { (experiment.name()) }
                td.wide { (experiment.file().question) }
                td.wide {
                    (tree.reasons.get(experiment.name()).map_or("not run", String::as_str))
                }
                td { code { "seekwire lab run " (experiment.name()) } }
            }
        }
    };
    html! {
        @if !missing.is_empty() {
            h2 { "Not measured" }
            (table(&["Experiment", "What is asked", "Why", "Command"], &rows))
        }
    }
}
