//! Medians by message size, a column and a curve for each variant, and those of "Network hardware
//! for business messaging" beside them.

use serde_json::Value;

use super::message_size;
use crate::outcome::Table;
use crate::plot::{Axis, Chart, Figure, Point, Scale, Series};
use crate::record::{Metric, Row};
use crate::stats::Spread;
use crate::text;

/// Message sizes of all tables of the thesis: 1 B to 64 KiB in powers of two.
pub(super) const SIZES: [u64; 17] = [
    1,
    2,
    4,
    8,
    16,
    32,
    64,
    128,
    256,
    512,
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
];

/// Mark of a cell that a note explains.
const DOUBT: &str = "*";

/// Contents of a table, and of a figure in a file of this name.
pub(super) struct View<'a> {
    pub(super) figure: Option<&'static str>,
    pub(super) title: &'a str,
    pub(super) note: &'a str,
    /// The case of messages of a size.
    pub(super) case: fn(u64) -> String,
    pub(super) metric: Metric,
    pub(super) variants: &'static [&'static str],
    pub(super) scale: Scale,
    pub(super) thesis: &'a [Column],
}

/// A table of the parts of one number.
pub(super) struct Parts<'a> {
    pub(super) title: &'a str,
    pub(super) note: &'a str,
    /// As in [`View`].
    pub(super) case: fn(u64) -> String,
    pub(super) variants: &'static [&'static str],
    /// The parts, each with its name in the note.
    pub(super) metrics: &'static [(&'static str, Metric)],
}

/// A column of the thesis' tables.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) name: &'static str,
    /// For each of [`SIZES`].
    pub(super) values: [f64; SIZES.len()],
    /// A value that is shown as it was printed, but marked, with the reason.
    pub(super) doubt: Option<(usize, &'static str)>,
}

impl Column {
    pub(super) const fn new(name: &'static str, values: [f64; SIZES.len()]) -> Self {
        Self { name, values, doubt: None }
    }

    fn title(&self) -> String {
        format!("thesis: {}", self.name)
    }

    fn cell(&self, index: usize) -> Value {
        match self.doubt {
            Some((doubted, _)) if doubted == index => {
                format!("{}{DOUBT}", text::significant(self.values[index])).into()
            }
            _ => self.values[index].into(),
        }
    }
}

/// Medians at `sizes`, a table for each view with readings.
pub(super) fn tables(views: &[View<'_>], rows: &[Row], sizes: &[u64]) -> Vec<Table> {
    views.iter().filter(|view| view.is_measured(rows)).map(|view| view.table(rows, sizes)).collect()
}

/// The same as curves, where a view has a figure: one for each variant and one for each of the
/// thesis' columns.
pub(super) fn figures(views: &[View<'_>], rows: &[Row]) -> Vec<Figure> {
    views
        .iter()
        .filter(|view| view.is_measured(rows))
        .filter_map(|view| view.figure(rows))
        .collect()
}

/// The parts of each cell as a sum; a table for each of `all` with readings.
pub(super) fn parts(all: &[Parts<'_>], rows: &[Row], sizes: &[u64]) -> Vec<Table> {
    let table = |parts: &Parts<'_>| {
        let cell = |variant: &str, size: u64| -> Option<String> {
            let case = (parts.case)(size);
            let median =
                |(_, metric): &(&str, Metric)| Some(spread(rows, &case, variant, *metric)?.median);
            let medians: Option<Vec<f64>> = parts.metrics.iter().map(median).collect();
            Some(
                medians?
                    .iter()
                    .map(|median| format!("{median:.0}"))
                    .collect::<Vec<_>>()
                    .join(" + "),
            )
        };
        let line = |&size: &u64| -> Vec<Value> {
            let cells = parts.variants.iter().map(|variant| cell(variant, size).into());
            std::iter::once(text::size(size).into()).chain(cells).collect()
        };
        let names: Vec<&str> = parts.metrics.iter().map(|(name, _)| *name).collect();
        Table {
            title: parts.title.to_owned(),
            note: format!(
                "{}: {}. Medians of the rounds, each by itself.",
                parts.note,
                names.join(" + ")
            ),
            columns: heads(parts.variants).collect(),
            rows: sizes.iter().map(line).collect(),
        }
    };
    let tables = all.iter().map(table);
    tables
        .filter(|table| table.rows.iter().any(|row| row[1..].iter().any(Value::is_string)))
        .collect()
}

/// The head of the column of sizes, and those of variants.
fn heads(variants: &[&str]) -> impl Iterator<Item = String> {
    std::iter::once(&"message").chain(variants).map(|name| (*name).to_owned())
}

/// Location and spread of the readings of a kind.
pub(super) fn spread(rows: &[Row], case: &str, variant: &str, metric: Metric) -> Option<Spread> {
    rows.iter()
        .find(|row| row.case == case && row.variant == variant && row.metric == metric.name)?
        .spread
}

impl View<'_> {
    fn found(&self, rows: &[Row], variant: &str, size: u64) -> Option<Spread> {
        spread(rows, &(self.case)(size), variant, self.metric)
    }

    pub(super) fn is_measured(&self, rows: &[Row]) -> bool {
        SIZES.iter().any(|&size| {
            self.variants.iter().any(|variant| self.found(rows, variant, size).is_some())
        })
    }

    pub(super) fn table(&self, rows: &[Row], sizes: &[u64]) -> Table {
        let line = |&size: &u64| -> Vec<Value> {
            let ours = self
                .variants
                .iter()
                .map(|variant| self.found(rows, variant, size).map(|spread| spread.median).into());
            let index = SIZES.iter().position(|other| *other == size);
            let theirs =
                self.thesis.iter().map(|column| index.map(|index| column.cell(index)).into());
            std::iter::once(text::size(size).into()).chain(ours).chain(theirs).collect()
        };
        let doubts = self.thesis.iter().filter_map(|column| column.doubt);
        let shown = doubts.filter(|(index, _)| sizes.contains(&SIZES[*index]));
        let doubts = shown.map(|(_, why)| format!(" {DOUBT} {why}")).collect::<String>();
        Table {
            title: self.title.to_owned(),
            note: format!("{} Medians of the rounds; their spread is below.{doubts}", self.note)
                .trim_start()
                .to_owned(),
            columns: heads(self.variants).chain(self.thesis.iter().map(Column::title)).collect(),
            rows: sizes.iter().map(line).collect(),
        }
    }

    pub(super) fn figure(&self, rows: &[Row]) -> Option<Figure> {
        let file = self.figure?.to_owned();
        let ours = self.variants.iter().enumerate().map(|(colour, variant)| {
            let point = |&size: &u64| {
                let spread = self.found(rows, variant, size)?;
                Some(Point { x: size as f64, y: spread.median, low: spread.min, high: spread.max })
            };
            Series {
                name: (*variant).to_owned(),
                colour,
                points: SIZES.iter().filter_map(point).collect(),
            }
        });
        let theirs = self.thesis.iter().enumerate().map(|(index, column)| {
            let point = |(&size, &y): (&u64, &f64)| Point { x: size as f64, y, low: y, high: y };
            let points = SIZES.iter().zip(&column.values).map(point).collect();
            Series { name: column.title(), colour: self.variants.len() + index, points }
        });
        let y = Axis {
            label: format!("{} ({})", self.metric.name, self.metric.unit),
            scale: self.scale,
        };
        let chart = Chart::Curves { x: message_size(), y, series: ours.chain(theirs).collect() };
        Some(Figure { file, title: self.title.to_owned(), chart })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        assert!(SIZES.iter().enumerate().all(|(power, size)| *size == 1 << power));
    }
}
