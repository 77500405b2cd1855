//! The report: one HTML file that needs nothing else, readable on paper, by day and by night.

pub(crate) mod markdown;
pub(crate) mod site;
mod table;

use std::fmt::Write;

use serde_json::Value;

use crate::experiment::Description;
use crate::outcome::{Key, ResultFile, Table};
use crate::record::{self, Better, Row};
use crate::stats::{Ratio, Spread};
use crate::text;

pub(crate) use table::plain_text;

const STYLE: &str = include_str!("style.css");

/// The report as an HTML document. `figures` are (title, SVG) pairs.
pub(crate) fn html(
    description: &Description,
    result: &ResultFile,
    summary: &[Key],
    figures: &[(String, String)],
) -> String {
    let mut page = String::new();
    let title = escape(&format!("Seekwire: {}", result.experiment));
    // Writing to a string cannot fail.
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p>{}</p>\n",
        escape(description.about)
    );
    if let Some(paper) = description.paper_reference {
        let _ = writeln!(page, "<p class=\"soft\">After {}.</p>", escape(paper));
    }
    let keys: Vec<_> = summary.iter().map(|key| (key.name, key.value, &*key.meaning)).collect();
    push_summary(&mut page, &keys);
    push_failures(&mut page, &result.rows);
    for (title, svg) in figures {
        let _ = writeln!(page, "<h2>{}</h2>\n<figure>{}</figure>", escape(title), inline(svg));
    }
    for table in &result.tables {
        push_table(&mut page, table);
    }
    push_rows(&mut page, &result.rows);
    push_setting(&mut page, result);
    page.push_str("</body>\n</html>\n");
    page
}

fn push_summary(page: &mut String, keys: &[(&str, f64, &str)]) {
    if keys.is_empty() {
        return;
    }
    page.push_str("<h2>Summary</h2>\n");
    // Results of earlier versions do not say what their keys mean.
    let has_meanings = keys.iter().any(|(_, _, meaning)| !meaning.is_empty());
    open_table(page, if has_meanings { &["Key", "Value", "Meaning"] } else { &["Key", "Value"] });
    for (name, value, meaning) in keys {
        let _ = write!(
            page,
            "<tr><th scope=\"row\"><code>{}</code></th><td class=\"number\">{}</td>",
            escape(name),
            text::significant(*value),
        );
        if has_meanings {
            let _ = write!(page, "<td>{}</td>", escape(meaning));
        }
        page.push_str("</tr>\n");
    }
    close_table(page);
}

/// A table that scrolls by itself where the page is narrow, with its head.
fn open_table<T: AsRef<str>>(page: &mut String, columns: &[T]) {
    page.push_str("<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>");
    for column in columns {
        let _ = write!(page, "<th scope=\"col\">{}</th>", escape(column.as_ref()));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
}

fn close_table(page: &mut String) {
    page.push_str("</tbody></table></div>\n");
}

fn push_failures(page: &mut String, rows: &[Row]) {
    let failures = record::failures(rows);
    if failures.is_empty() {
        return;
    }
    page.push_str("<h2>What could not be measured</h2>\n<ul>\n");
    for failure in failures {
        let runs = failure.rows.iter().map(|row| format!("{}, {}", row.case, row.variant));
        let _ = writeln!(
            page,
            "<li><span class=\"error\">{}</span><br><span class=\"soft\">{}</span></li>",
            escape(failure.error),
            escape(&runs.collect::<Vec<_>>().join("; "))
        );
    }
    page.push_str("</ul>\n");
}

fn push_table(page: &mut String, table: &Table) {
    let _ = write!(
        page,
        "<h2>{}</h2>\n<p class=\"soft\">{}</p>\n",
        escape(&table.title),
        escape(&table.note)
    );
    open_table(page, &table.columns);
    let is_of_numbers =
        |column: usize| table.rows.iter().any(|row| row.get(column).is_some_and(Value::is_number));
    for row in &table.rows {
        page.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let _ = match cell {
                Value::Null => write!(page, "<td></td>"),
                Value::String(text) if is_of_numbers(column) => {
                    write!(page, "<td class=\"number\">{}</td>", escape(text))
                }
                Value::String(text) => write!(page, "<td>{}</td>", escape(text)),
                Value::Number(number) if !number.is_f64() => {
                    write!(page, "<td class=\"number\">{number}</td>")
                }
                other => {
                    let number = other.as_f64().unwrap_or(f64::NAN);
                    write!(page, "<td class=\"number\">{}</td>", text::significant(number))
                }
            };
        }
        page.push_str("</tr>\n");
    }
    close_table(page);
}

fn push_rows(page: &mut String, rows: &[Row]) {
    page.push_str(
        "<h2>Measurements</h2>\n<p class=\"soft\">Medians over the rounds; the spread is smallest to largest, with the \
         interquartile range and the median absolute deviation. Ratios divide by the named baseline and carry a 95 % \
         bootstrap interval over rounds. Bytes are the median per run, both ways, as the client counted them.</p>\n",
    );
    open_table(
        page,
        &[
            "Case",
            "Variant",
            "Metric",
            "Median",
            "Unit",
            "Min – max",
            "IQR",
            "MAD",
            "n",
            "Ratio",
            "95 %",
            "Ring",
            "TCP",
        ],
    );
    for row in rows.iter().filter(|row| row.spread.is_some()) {
        let number = |of: fn(&Spread) -> f64| {
            row.spread.as_ref().map(|s| text::significant(of(s))).unwrap_or_default()
        };
        let bytes = |bytes: Option<u64>| bytes.map(text::about_bytes).unwrap_or_default();
        let (ratio, interval) = row.ratio.map_or_else(Default::default, |ratio| {
            (format!("{:.3}", ratio.value), format!("{:.3} – {:.3}", ratio.low, ratio.high))
        });
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"number\">{}</td><td>{}</td>\
             <td class=\"number\">{} – {}</td>\
             <td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number {}\" title=\"{}\">{ratio}</td><td class=\"number\">{interval}</td>\
             <td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
            escape(&row.case),
            escape(&row.variant),
            escape(&row.metric),
            number(|s| s.median),
            escape(&row.unit),
            number(|s| s.min),
            number(|s| s.max),
            number(|s| s.q3 - s.q1),
            number(|s| s.mad),
            row.spread.as_ref().map_or(0, |s| s.n),
            verdict(row),
            escape(&divided_by(row)),
            bytes(row.ring_bytes),
            bytes(row.tcp_bytes),
        );
    }
    close_table(page);
}

/// What a ratio is over, and how many rounds had both.
fn divided_by(row: &Row) -> String {
    let Some(baseline) = &row.baseline else { return String::new() };
    match row.ratio.and_then(|ratio| ratio.pairs) {
        Some(1) => format!("over {baseline}, 1 round"),
        Some(pairs) => format!("over {baseline}, {pairs} rounds"),
        None => format!("over {baseline}"),
    }
}

/// The class of a ratio: only an interval that leaves 1 out is a verdict.
fn verdict(row: &Row) -> &'static str {
    match (row.ratio.filter(Ratio::has_interval), row.better) {
        (Some(ratio), Better::Higher) if ratio.low > 1.0 => "better",
        (Some(ratio), Better::Higher) if ratio.high < 1.0 => "worse",
        (Some(ratio), Better::Lower) if ratio.high < 1.0 => "better",
        (Some(ratio), Better::Lower) if ratio.low > 1.0 => "worse",
        _ => "",
    }
}

fn push_setting(page: &mut String, result: &ResultFile) {
    let machine = &result.machine;
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let mut entries = vec![
        ("Commit".to_owned(), result.commit.clone()),
        ("Processor".to_owned(), known(&machine.cpu)),
        ("Logical processors".to_owned(), machine.cores.to_string()),
        ("Caches".to_owned(), machine.caches.join(", ")),
        ("Frequency governor".to_owned(), known(&machine.governor)),
        ("Virtualised".to_owned(), if machine.virtualised { "yes" } else { "no" }.to_owned()),
        (
            "Memory".to_owned(),
            machine.memory.map_or_else(|| "unknown".to_owned(), text::about_bytes),
        ),
        ("Kernel".to_owned(), known(&machine.kernel)),
        ("System".to_owned(), known(&machine.system)),
        ("TCP congestion control".to_owned(), known(&machine.congestion_control)),
        ("Load average before".to_owned(), known(&machine.load_before)),
        ("Load average after".to_owned(), known(&machine.load_after)),
    ];
    entries.extend(result.parameters.iter().map(|(name, value)| (name.clone(), value.to_string())));
    page.push_str(
        "<h2>Machine and parameters</h2>\n<div class=\"scroll\" tabindex=\"0\"><table><tbody>\n",
    );
    for (name, value) in entries {
        let _ = writeln!(
            page,
            "<tr><th scope=\"row\">{}</th><td class=\"any\">{}</td></tr>",
            escape(&name),
            escape(&value)
        );
    }
    close_table(page);
}

/// An SVG document as part of a page: scaled by its view box, without an XML declaration.
fn inline(svg: &str) -> &str {
    svg.find("<svg").map_or(svg, |start| &svg[start..])
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::machine::Machine;

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
        let key = Key {
            name: "short_connections_ratio",
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
        assert_eq!(verdict(&row), "");
        row.ratio = Some(Ratio { value: 0.5, low: 0.4, high: 0.6, pairs: Some(3) });
        assert_eq!(verdict(&row), "worse");
        row.better = Better::Lower;
        assert_eq!((verdict(&row), divided_by(&row).as_str()), ("better", "over plain, 3 rounds"));
        row.ratio = Some(Ratio { value: 0.5, low: 0.5, high: 0.5, pairs: Some(1) });
        assert_eq!((verdict(&row), divided_by(&row).as_str()), ("", "over plain, 1 round"));
    }
}
