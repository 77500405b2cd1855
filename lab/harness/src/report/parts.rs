//! Parts of pages: tables, figures, and the setting of a measurement.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use crate::outcome::{ResultFile, Table};
use crate::record::{self, Better, Row};
use crate::stats::{Ratio, Spread};
use crate::text;

/// A whole page.
pub fn document(title: &str, head: &Markup, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                (head)
                title { (title) }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body { (body) }
        }
    };
    page.into_string() + "\n"
}

/// A table that scrolls by itself where the page is narrow.
pub fn table<T: AsRef<str>>(columns: &[T], rows: &Markup) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table {
                @if !columns.is_empty() {
                    thead { tr { @for column in columns { th scope="col" { (column.as_ref()) } } } }
                }
                tbody { (rows) }
            }
        }
    }
}

/// The numbers that sum the experiment up: (key, value, meaning).
pub fn summary(keys: &[(&str, f64, &str)]) -> Markup {
    // Results of earlier versions do not explain their keys.
    let has_meanings = keys.iter().any(|(_, _, meaning)| !meaning.is_empty());
    let columns: &[_] = if has_meanings { &["Key", "Value", "Meaning"] } else { &["Key", "Value"] };
    let rows = html! {
        @for (name, value, meaning) in keys {
            tr {
                th scope="row" { code { (name) } }
                td.number { (text::significant(*value)) }
                @if has_meanings { td { (meaning) } }
            }
        }
    };
    html! { @if !keys.is_empty() { h2 { "Summary" } (table(columns, &rows)) } }
}

/// A notice if something happened that must never happen.
pub fn violation(result: &ResultFile) -> Markup {
    html! {
        @if let Some(violation) = &result.violation {
            p.error { "This run ended with an error: " (violation) }
        }
    }
}

/// A list of rows without a value, by reason.
pub fn failures(rows: &[Row]) -> Markup {
    let failures = record::failures(rows);
    html! {
        @if !failures.is_empty() {
            h2 { "Not measured" }
            ul {
                @for failure in failures {
                    li {
                        span.error { (failure.error) }
                        br;
                        span.soft { (runs(&failure.rows)) }
                    }
                }
            }
        }
    }
}

fn runs(rows: &[&Row]) -> String {
    let runs = rows.iter().map(|row| format!("{}, {}", row.case, row.variant));
    runs.collect::<Vec<_>>().join("; ")
}

/// A table of an experiment, under its title.
pub fn titled_table(of: &Table) -> Markup {
    let is_of_numbers =
        |column: usize| of.rows.iter().any(|row| row.get(column).is_some_and(Value::is_number));
    let rows = html! {
        @for row in &of.rows {
            tr { @for (column, cell) in row.iter().enumerate() { (value(cell, is_of_numbers(column))) } }
        }
    };
    html! {
        h2 { (of.title) }
        p.soft { (of.note) }
        (table(&of.columns, &rows))
    }
}

fn value(cell: &Value, is_among_numbers: bool) -> Markup {
    match cell {
        Value::Null => html! { td {} },
        Value::String(text) if is_among_numbers => html! { td.number { (text::signed(text)) } },
        Value::String(text) => html! { td { (text::signed(text)) } },
        Value::Number(number) if !number.is_f64() => {
            html! { td.number { (text::signed(&number.to_string())) } }
        }
        other => html! { td.number { (text::significant(other.as_f64().unwrap_or(f64::NAN))) } },
    }
}

/// Every row that was measured.
pub fn measurements(rows: &[Row]) -> Markup {
    const COLUMNS: [&str; 13] = [
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
    ];
    let measured = html! {
        @for row in rows {
            @if let Some(spread) = &row.spread { (measurement(row, spread)) }
        }
    };
    html! {
        h2 { "Measurements" }
        p.soft {
            "Medians over the rounds; the spread is smallest to largest, with the interquartile range and the median \
             absolute deviation. Ratios divide by the named baseline and carry a 95 % bootstrap interval over rounds, wider \
             where these are few. Bytes are the median per run, both ways, as the client counted them."
        }
        (table(&COLUMNS, &measured))
    }
}

fn measurement(row: &Row, spread: &Spread) -> Markup {
    let bytes = |bytes: Option<u64>| bytes.map(text::about_bytes).unwrap_or_default();
    let (ratio, interval) = row.widened_ratio().map_or_else(Default::default, |ratio| {
        (format!("{:.3}", ratio.value), format!("{:.3} – {:.3}", ratio.low, ratio.high))
    });
    html! {
        tr {
            td { (row.case) }
            td { (row.variant) }
            td { (row.metric) }
            td.number { (text::significant(spread.median)) }
            td { (row.unit) }
            td.number { (text::significant(spread.min)) " – " (text::significant(spread.max)) }
            td.number { (text::significant(spread.q3 - spread.q1)) }
            td.number { (text::significant(spread.mad)) }
            td.number { (spread.n) }
            td.number.(verdict(row)) title=(divided_by(row)) { (ratio) }
            td.number { (interval) }
            td.number { (bytes(row.ring_bytes)) }
            td.number { (bytes(row.tcp_bytes)) }
        }
    }
}

/// The divisor of a ratio, and the number of rounds that had both.
pub fn divided_by(row: &Row) -> String {
    let Some(baseline) = &row.baseline else { return String::new() };
    match row.ratio.and_then(|ratio| ratio.pairs) {
        Some(1) => format!("over {baseline}, 1 round"),
        Some(pairs) => format!("over {baseline}, {pairs} rounds"),
        None => format!("over {baseline}"),
    }
}

/// The class of a ratio: only an interval that leaves 1 out is a verdict.
pub fn verdict(row: &Row) -> &'static str {
    match (row.widened_ratio().filter(Ratio::has_interval), row.better) {
        (Some(ratio), Better::Higher) if ratio.low > 1.0 => "better",
        (Some(ratio), Better::Higher) if ratio.high < 1.0 => "worse",
        (Some(ratio), Better::Lower) if ratio.high < 1.0 => "better",
        (Some(ratio), Better::Lower) if ratio.low > 1.0 => "worse",
        _ => "undecided",
    }
}

/// The machine, and the parameters of the experiment.
pub fn setting(result: &ResultFile) -> Markup {
    let machine = &result.machine;
    let or_unknown = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let mut entries = vec![
        ("Commit".to_owned(), result.commit.clone()),
        ("Processor".to_owned(), or_unknown(&machine.cpu)),
        ("Logical processors".to_owned(), machine.cores.to_string()),
        ("Caches".to_owned(), machine.caches.join(", ")),
        ("Frequency governor".to_owned(), or_unknown(&machine.governor)),
        ("Virtualised".to_owned(), if machine.virtualised { "yes" } else { "no" }.to_owned()),
        (
            "Memory".to_owned(),
            machine.memory.map_or_else(|| "unknown".to_owned(), text::about_bytes),
        ),
        ("Kernel".to_owned(), or_unknown(&machine.kernel)),
        ("System".to_owned(), or_unknown(&machine.system)),
        ("TCP congestion control".to_owned(), or_unknown(&machine.congestion_control)),
        ("Load average before".to_owned(), or_unknown(&machine.load_before)),
        ("Load average after".to_owned(), or_unknown(&machine.load_after)),
    ];
    entries.extend(result.parameters.iter().map(|(name, value)| (name.clone(), value.to_string())));
    let rows = html! {
        @for (name, value) in entries { tr { th scope="row" { (name) } td.any { (value) } } }
    };
    html! {
        h2 { "Machine and parameters" }
        (table::<&str>(&[], &rows))
    }
}

/// An SVG document as part of a page: scaled by its view box, without an XML declaration.
pub fn inline(svg: &str) -> &str {
    svg.find("<svg").map_or(svg, |start| &svg[start..])
}
