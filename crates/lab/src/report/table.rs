//! The table for a terminal: baseline and one other variant side by side.

use crate::record::{Better, Row};
use crate::text;

/// One line for each case and metric, comparing `baseline` with `variant`; only metrics that `wanted` selects.
pub(crate) fn plain_text(
    rows: &[Row],
    baseline: &str,
    variant: &str,
    wanted: impl Fn(&Row) -> bool,
) -> String {
    let mut lines = vec![
        [
            "",
            "unit",
            &format!("{baseline} (min – max)"),
            &format!("{variant} (min – max)"),
            "ratio (95 %)",
            "ring",
        ]
        .map(str::to_owned),
    ];
    let mut notes = Vec::new();
    let measured = |row: &&Row| row.spread.is_some() && wanted(row);
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for row in rows.iter().filter(measured) {
        let key = (row.case.as_str(), row.metric.as_str());
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        let of = |variant: &str| {
            rows.iter()
                .filter(measured)
                .find(|r| (r.case.as_str(), r.metric.as_str()) == key && r.variant == variant)
        };
        let other = of(variant);
        lines.push([
            row.case.clone(),
            format!("{}{}", row.unit, if row.better == Better::Lower { " (less is better)" } else { "" }),
            spread(of(baseline)),
            spread(other),
            other.and_then(|row| row.ratio).map_or("-".to_owned(), |ratio| {
                format!("{:.2} ({:.2} – {:.2})", ratio.value, ratio.low, ratio.high)
            }),
            other.and_then(|row| row.ring_bytes).map_or("-".to_owned(), text::about_bytes),
        ]);
    }
    for row in rows {
        if let Some(error) = &row.error {
            notes.push(format!("{}, {}: {error}", row.case, row.variant));
        }
    }
    let mut table = align(&lines);
    for note in notes {
        table.push_str(&format!("! {note}\n"));
    }
    table
}

fn spread(row: Option<&Row>) -> String {
    row.and_then(|row| row.spread).map_or("-".to_owned(), |spread| {
        let [median, min, max] = [spread.median, spread.min, spread.max].map(text::significant);
        format!("{median} ({min} – {max})")
    })
}

/// Columns as wide as their widest cell; the first two to the left, numbers to the right.
fn align<const N: usize>(lines: &[[String; N]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
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

    #[test]
    fn variants_stand_side_by_side_and_errors_below() {
        let mut failed = row("accelerated", None);
        (failed.case, failed.spread, failed.error) =
            ("curl".to_owned(), None, Some("curl is not installed".to_owned()));
        let rows =
            [row("plain", None), row("accelerated", Some(Ratio { value: 1.5, low: 1.2, high: 1.9 })), failed];
        let table = plain_text(&rows, "plain", "accelerated", |_| true);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 3, "{table}");
        assert!(
            lines[1].contains("1100 (1000 – 1200)") && lines[1].contains("1.50 (1.20 – 1.90)"),
            "{table}"
        );
        assert!(lines[1].ends_with("3.0 MiB"), "{table}");
        assert_eq!(lines[2], "! curl, accelerated: curl is not installed");
    }
}
