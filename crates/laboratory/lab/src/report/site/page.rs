//! The page of an experiment.

use std::fmt::Write;

use super::read::{Contents, Entry};
use super::verdict::{self, badge};
use super::{INDEX, head, push_figure, push_navigation};
use crate::claim::Comparison;
use crate::demo;
use crate::plot::Figure;
use crate::report::{escape, push_failures, push_rows, push_setting, push_summary, push_table};

/// Plots of one result. Ours have about twenty.
const MOST_PLOTS: usize = 200;

/// A page and what leads to it.
type Link = (String, String);

pub(super) fn html(
    entry: &Entry,
    contents: &Contents,
    raw: &[(String, &'static str)],
    previous: Option<Link>,
    next: Option<Link>,
) -> String {
    let result = &contents.result;
    let experiment = contents.experiment();
    let mut page = head(&format!("Seekwire: {}", entry.name));
    let arrow = |link: Option<Link>, before: &str, after: &str| {
        link.map(|(address, text)| (address, format!("{before}{text}{after}")))
    };
    push_navigation(
        &mut page,
        &[
            Some((INDEX.to_owned(), "All experiments".to_owned())),
            arrow(previous, "← ", ""),
            arrow(next, "", " →"),
        ],
    );
    let _ = writeln!(page, "<main id=\"content\">\n<h1>{}</h1>", escape(&entry.name));
    let about = match experiment {
        _ if result.experiment == demo::NAME => demo::ABOUT,
        Some(experiment) => experiment.about(),
        None => "This program does not know the experiment; its numbers are shown as they are.",
    };
    let _ = writeln!(page, "<p>{}</p>", escape(about));
    if let Some(paper) = experiment.and_then(|experiment| experiment.paper_reference()) {
        let _ = writeln!(page, "<p class=\"soft\">After {}.</p>", escape(paper));
    }
    if let Some(why) = &contents.outdated {
        let _ = writeln!(
            page,
            "<p class=\"error\">No new result of the last run ({}): these numbers may be of an earlier one.</p>",
            escape(why)
        );
    }
    if result.is_quick() {
        page.push_str("<p class=\"notice\">A quick run: to see that it works, not to quote.</p>\n");
    }

    let overall =
        crate::verdict::judge(experiment.map_or(&[], |experiment| experiment.claims()), result);
    let _ = writeln!(
        page,
        "<h2>Verdict</h2>\n<p>{} <span class=\"soft\">{}</span></p>",
        badge(overall.class, &overall.verdict),
        escape(&overall.why)
    );
    if !overall.judgements.is_empty() {
        verdict::push_claims(&mut page, &overall);
    }
    for comparison in
        experiment.map(|experiment| experiment.comparisons(result)).unwrap_or_default()
    {
        push_comparison(&mut page, &comparison);
    }
    let meaning = |key: &str| result.meanings.get(key).map_or("", String::as_str);
    let keys: Vec<_> =
        result.summary.iter().map(|(key, value)| (key.as_str(), *value, meaning(key))).collect();
    push_summary(&mut page, &keys);
    push_failures(&mut page, &result.rows);
    push_plots(&mut page, &result.figures);
    for table in &result.tables {
        push_table(&mut page, table);
    }
    let _ = writeln!(
        page,
        "<details>\n<summary>All measurements ({} rows)</summary>",
        result.rows.iter().filter(|row| row.spread.is_some()).count()
    );
    push_rows(&mut page, &result.rows);
    page.push_str("</details>\n");
    push_setting(&mut page, result);
    page.push_str("<h2>Data</h2>\n<ul>\n");
    for (address, what) in raw {
        let _ = writeln!(
            page,
            "<li><a href=\"{}\">{}</a>: {what}</li>",
            escape(address),
            escape(address)
        );
    }
    page.push_str("</ul>\n</main>\n</body>\n</html>\n");
    page
}

fn push_comparison(page: &mut String, comparison: &Comparison) {
    let source = format!(
        "Published numbers: {}. Intervals that are far longer than the numbers are cut off in the plot.",
        comparison.source
    );
    let figure = comparison.figure.as_ref().filter(|figure| !figure.is_empty());
    // The table below has the heading and the numbers, so a plot that cannot be drawn is no loss.
    let svg = figure.and_then(|figure| Some((figure, figure.to_svg().ok()?)));
    push_table(page, &comparison.table);
    match svg {
        Some((figure, svg)) => push_figure(page, &figure.title, &svg, &escape(&source)),
        None => {
            let _ = writeln!(page, "<p class=\"soft\">{}</p>", escape(&source));
        }
    }
}

fn push_plots(page: &mut String, figures: &[Figure]) {
    if figures.is_empty() {
        page.push_str("<p class=\"soft\">No plots were kept with this result.</p>\n");
        return;
    }
    page.push_str("<h2>Plots</h2>\n");
    if figures.len() > MOST_PLOTS {
        let left_out = figures.len() - MOST_PLOTS;
        let _ = writeln!(page, "<p class=\"error\">{left_out} plots are too many to show.</p>");
    }
    for figure in figures.iter().take(MOST_PLOTS) {
        match figure.to_svg() {
            Ok(svg) => push_figure(page, &figure.title, &svg, ""),
            Err(why) => {
                let _ = writeln!(
                    page,
                    "<p class=\"error\">No plot: {}</p>",
                    escape(&format!("{why:#}"))
                );
            }
        }
    }
}
