//! The table for a terminal: baseline and one other variant side by side.

use crate::record::{self, Better, Row};
use crate::text;

/// Columns of the table.
const COLUMNS: usize = 7;

/// One line for each case and metric, comparing `baseline` with `variant`; of the metrics only
/// those that `wanted` selects. Lines with failures refer to the reasons below the table.
pub fn plain_text(
    rows: &[Row],
    baseline: &str,
    variant: &str,
    wanted: impl Fn(&Row) -> bool,
) -> String {
    let failures = record::failures(rows);
    let notes = |case: &str| -> String {
        let concerned = failures
            .iter()
            .enumerate()
            .filter(|(_, failure)| failure.rows.iter().any(|row| row.case == case));
        concerned.map(|(index, _)| format!("[{}]", index + 1)).collect()
    };
    let titles = ["", "unit", baseline, variant, "ratio (95 %)", "ring", ""];
    let mut lines = vec![titles.map(str::to_owned)];
    for (case, metric) in lines_of(rows, &wanted) {
        let of = |variant: &str| {
            rows.iter()
                .find(|row| row.case == case && row.metric == metric && row.variant == variant)
        };
        let (theirs, ours) = (of(baseline), of(variant));
        let unit = theirs.or(ours).map_or_else(String::new, |row| match row.better {
            Better::Lower => format!("{} (less is better)", row.unit),
            Better::Higher => row.unit.clone(),
        });
        let ratio = ours.and_then(Row::widened_ratio);
        lines.push([
            case.to_owned(),
            unit,
            spread(theirs),
            spread(ours),
            ratio.map_or_else(none, |ratio| {
                format!("{:.2} ({:.2} – {:.2})", ratio.value, ratio.low, ratio.high)
            }),
            ours.and_then(|row| row.ring_bytes).map_or_else(none, text::about_bytes),
            notes(case),
        ]);
    }
    let mut table = align(&lines);
    for (index, failure) in failures.iter().enumerate() {
        table.push_str(&format!(
            "[{}] {}: {}\n",
            index + 1,
            failure.variants().join(", "),
            failure.error
        ));
    }
    table
}

/// The (case, metric) of each line: measured ones, and cases in which nothing could be measured.
fn lines_of<'a>(rows: &'a [Row], wanted: &impl Fn(&Row) -> bool) -> Vec<(&'a str, &'a str)> {
    let mut lines: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let line = (row.case.as_str(), row.metric.as_str());
        let has_readings =
            || rows.iter().any(|other| other.case == row.case && other.spread.is_some());
        let shown = if row.spread.is_some() { wanted(row) } else { !has_readings() };
        if shown && !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

fn none() -> String {
    "-".to_owned()
}

fn spread(row: Option<&Row>) -> String {
    row.and_then(|row| row.spread).map_or_else(none, |spread| {
        let [median, min, max] = [spread.median, spread.min, spread.max].map(text::significant);
        format!("{median} ({min} – {max})")
    })
}

/// Columns as wide as their widest cell; the first two to the left, the others to the right.
fn align(lines: &[[String; COLUMNS]]) -> String {
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if column < 2 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;
    use crate::stats::Ratio;

    fn failed(case: &str, variant: &str, error: &str) -> Row {
        let (case, error) = (case.to_owned(), Some(error.to_owned()));
        Row {
            case,
            error,
            metric: String::new(),
            unit: String::new(),
            spread: None,
            ..row(variant, None)
        }
    }

    #[test]
    fn variants_stand_side_by_side_and_reasons_below() {
        let rows = [
            row("plain", None),
            row("accelerated", Some(Ratio { value: 1.5, low: 1.2, high: 1.9, pairs: Some(3) })),
            failed("http", "plain", "curl is not installed"),
            failed("http", "accelerated", "curl is not installed"),
            failed("GET <64 B>", "accelerated", "hung"),
        ];
        let table = plain_text(&rows, "plain", "accelerated", |_| true);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 5, "{table}");
        assert!(
            lines[1].contains("1100 (1000 – 1200)") && lines[1].contains("1.50 (0.82 – 2.83)"),
            "{table}"
        );
        assert!(lines[1].contains("3.0 MiB") && lines[1].ends_with("[2]"), "{table}");
        assert!(lines[2].starts_with("http ") && lines[2].ends_with("[1]"), "{table}");
        assert_eq!(lines[3], "[1] accelerated, plain: curl is not installed");
        assert_eq!(lines[4], "[2] accelerated: hung");
    }
}
