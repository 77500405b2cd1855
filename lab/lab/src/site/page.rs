//! The page of an experiment.

use maud::{Markup, html};

use super::read::{ResultContents, ResultEntry};
use super::verdict::{badge, claims};
use super::{INDEX, document, figure, navigation};
use crate::claim::PublishedComparison;
use crate::plot::Figure;
use crate::programs::DEMO;
use crate::report::parts;
use crate::{curves, demo};

/// Maximum number of plots of one result. Ours have about twenty.
const MOST_PLOTS: usize = 200;

/// The address of a page, and its text.
type Link = (String, String);

pub(super) fn html(
    entry: &ResultEntry,
    contents: &ResultContents,
    raw: &[(String, &'static str)],
    previous: Option<Link>,
    next: Option<Link>,
) -> String {
    let result = &contents.result;
    let experiment = contents.experiment();
    let arrow = |link: Option<Link>, before: &str, after: &str| {
        link.map(|(address, text)| (address, format!("{before}{text}{after}")))
    };
    let about = match experiment {
        _ if result.experiment == DEMO => demo::ABOUT,
        Some(experiment) => &experiment.file().about,
        None => "This program does not know the experiment; its numbers are shown as they are.",
    };
    let overall = crate::verdict::judge(experiment, result);
    let comparisons = experiment.map(|experiment| experiment.published(result));
    let meaning = |key: &str| result.meanings.get(key).map_or("", String::as_str);
    let keys: Vec<_> =
        result.summary.iter().map(|(key, value)| (key.as_str(), *value, meaning(key))).collect();
    let measured = result.rows.iter().filter(|row| row.spread.is_some()).count();
    let body = html! {
        (navigation(&[
            Some((INDEX.to_owned(), "All experiments".to_owned())),
            arrow(previous, "← ", ""),
            arrow(next, "", " →"),
        ]))
        main #content {
            h1 { (entry.name) }
            p { (about) }
            @if let Some(paper) = experiment.and_then(|experiment| experiment.file().follows.as_ref()) {
                p.soft { "After " (paper) "." }
            }
            (outdated(contents))
            (parts::violation(result))
            @if result.is_quick() {
                p.notice { "A quick run: to see that it works, not to quote." }
            }
            h2 { "Verdict" }
            p { (badge(overall.class, &overall.verdict)) " " span.soft { (overall.why) } }
            @if !overall.judgements.is_empty() { (claims(&overall)) }
            @for one in comparisons.iter().flatten() { (comparison(one)) }
            (parts::summary(&keys))
            (parts::failures(&result.rows))
            (plots(&result.figures))
            @for table in &result.tables { (parts::titled_table(table)) }
            details {
                summary { "All measurements (" (measured) " rows)" }
                (parts::measurements(&result.rows))
            }
            (parts::setting(result))
            h2 { "Data" }
            ul {
                @for (address, what) in raw { li { a href=(address) { (address) } ": " (what) } }
            }
        }
    };
    document(&format!("Seekwire: {}", entry.name), &body)
}

/// A notice if the last run left no result.
pub(super) fn outdated(contents: &ResultContents) -> Markup {
    html! {
        @if let Some(why) = &contents.outdated {
            p.error {
                "No new result of the last run (" (why) "): these numbers may be of an earlier one."
            }
        }
    }
}

fn comparison(comparison: &PublishedComparison) -> Markup {
    let source = format!(
        "Published numbers: {}. Intervals that are far longer than the numbers are cut off in the plot.",
        comparison.source
    );
    let plot = comparison.figure.as_ref().filter(|figure| !figure.is_empty());
    // The table has the heading and the numbers, so a plot that cannot be drawn is no loss.
    let svg = plot.and_then(|plot| Some((plot, curves::svg(plot).ok()?)));
    html! {
        (parts::titled_table(&comparison.table))
        @match svg {
            Some((plot, svg)) => (figure(&plot.title, &svg, &source)),
            None => p.soft { (source) },
        }
    }
}

fn plots(figures: &[Figure]) -> Markup {
    html! {
        @if figures.is_empty() {
            p.soft { "No plots were kept with this result." }
        } @else {
            h2 { "Plots" }
            @if figures.len() > MOST_PLOTS {
                p.error { (figures.len() - MOST_PLOTS) " plots are too many to show." }
            }
            @for one in figures.iter().take(MOST_PLOTS) {
                @match curves::svg(one) {
                    Ok(svg) => (figure(&one.title, &svg, "")),
                    Err(why) => p.error { "No plot: " (format!("{why:#}")) },
                }
            }
        }
    }
}
