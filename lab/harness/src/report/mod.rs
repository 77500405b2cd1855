//! The report: one self-contained HTML file, readable on paper and in light and dark modes.

pub mod parts;
mod table;

use maud::{PreEscaped, html};

use crate::context::Description;
use crate::outcome::{ResultFile, SummaryValue};

pub use table::plain_text;

/// The report as an HTML document. `figures` are (title, SVG) pairs.
pub fn html(
    description: &Description,
    result: &ResultFile,
    summary: &[SummaryValue],
    figures: &[(String, String)],
) -> String {
    let title = format!("Seekwire: {}", result.experiment);
    let keys: Vec<_> = summary.iter().map(|key| (&*key.name, key.value, &*key.meaning)).collect();
    let body = html! {
        h1 { (title) }
        p { (description.about) }
        @if let Some(paper) = description.paper_reference { p.soft { "After " (paper) "." } }
        (parts::violation(result))
        (parts::summary(&keys))
        (parts::failures(&result.rows))
        @for (title, svg) in figures {
            h2 { (title) }
            figure { (PreEscaped(parts::inline(svg))) }
        }
        @for table in &result.tables { (parts::titled_table(table)) }
        (parts::measurements(&result.rows))
        (parts::setting(result))
    };
    parts::document(&title, &html! {}, &body)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::parts::{divided_by, verdict};
    use super::*;
    use crate::machine::Machine;
    use crate::outcome::Table;
    use crate::record::{Better, Row};
    use crate::stats::{Ratio, Spread};

    pub(crate) fn row(variant: &str, ratio: Option<Ratio>) -> Row {
        Row {
            case: "GET <64 B>".to_owned(),
            x: None,
            variant: variant.to_owned(),
            metric: "rate".to_owned(),
            unit: "1/s".to_owned(),
            better: Better::Higher,
            spread: Spread::of(&[1000.0, 1200.0, 1100.0]),
            ratio,
            baseline: ratio.map(|_| "plain".to_owned()),
            ring_bytes: ratio.map(|_| 3 << 20),
            tcp_bytes: ratio.map(|_| 100),
            failures: 0,
            error: None,
        }
    }

    fn page() -> String {
        let description = Description {
            name: "programs",
            about: "Real programs & their friends",
            paper_reference: Some("a \"paper\""),
        };
        let mut failed = row("accelerated", None);
        failed.spread = None;
        failed.error = Some("<script>alert(1)</script>".to_owned());
        let result = ResultFile {
            experiment: "programs".to_owned(),
            machine: Machine::describe(),
            commit: "abc".to_owned(),
            parameters: BTreeMap::from([("rounds".to_owned(), 5.into())]),
            violation: Some("<b>damaged</b>".to_owned()),
            rows: vec![
                row("plain", None),
                row("accelerated", Some(Ratio { value: 1.5, low: 1.2, high: 1.9, pairs: Some(3) })),
                failed,
            ],
            tables: vec![Table {
                title: "Saved".to_owned(),
                note: "a < b".to_owned(),
                columns: vec!["way".to_owned(), "saved (%)".to_owned(), "n".to_owned()],
                rows: vec![
                    vec!["seek".into(), 12.3456.into(), 10.into()],
                    vec![Value::Null; 3],
                    vec!["peek".into(), "9.1*".into(), 5.into()],
                ],
            }],
            summary: BTreeMap::new(),
            meanings: BTreeMap::new(),
            figures: Vec::new(),
        };
        let key = SummaryValue {
            name: "short_connections_ratio".into(),
            value: 0.99,
            meaning: "accelerated / plain".into(),
        };
        let figures = [(
            "A figure".to_owned(),
            "<?xml version=\"1.0\"?><svg viewBox=\"0 0 1 1\"></svg>".to_owned(),
        )];
        html(&description, &result, &[key], &figures)
    }

    #[test]
    fn page_needs_nothing_else() {
        let page = page();
        for forbidden in
            ["<script", "<link", "src=", "href=", "url(", "@import", "http://", "https://"]
        {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert!(page.contains("<figure><svg"));
        assert!(page.contains("(prefers-color-scheme: dark)"));
    }

    #[test]
    fn text_is_escaped() {
        let page = page();
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
        assert!(page.contains("GET &lt;64 B&gt;"));
        assert!(page.contains("ended with an error: &lt;b&gt;damaged&lt;/b&gt;"));
        assert!(page.contains("Real programs &amp; their friends"));
    }

    #[test]
    fn tables_show_text_and_numbers() {
        let page = page();
        assert!(page.contains("<h2>Saved</h2>") && page.contains("a &lt; b"));
        let row = "<td>seek</td><td class=\"number\">12.35</td><td class=\"number\">10</td>";
        assert!(page.contains(row), "{page}");
        assert!(
            page.contains("<td>peek</td><td class=\"number\">9.1*</td>"),
            "a marked number is one, too"
        );
    }

    #[test]
    fn ratios_are_judged_by_their_interval() {
        let mut row =
            row("accelerated", Some(Ratio { value: 1.1, low: 0.9, high: 1.3, pairs: Some(3) }));
        assert_eq!(verdict(&row), "undecided");
        row.ratio = Some(Ratio { value: 0.5, low: 0.4, high: 0.6, pairs: Some(3) });
        assert_eq!(verdict(&row), "worse");
        row.better = Better::Lower;
        assert_eq!((verdict(&row), divided_by(&row).as_str()), ("better", "over plain, 3 rounds"));
        row.ratio = Some(Ratio { value: 0.5, low: 0.5, high: 0.5, pairs: Some(1) });
        assert_eq!(
            (verdict(&row), divided_by(&row).as_str()),
            ("undecided", "over plain, 1 round")
        );
    }
}
