//! Medians by message size, a column and a curve for each variant, and those of "Network hardware
//! for business messaging" beside them.

use serde_json::Value;

use super::sweep::message_size;
use crate::claim::PublishedComparison;
use crate::experiment_file::ExperimentFile;
use crate::outcome::Table;
use crate::plot::{Axis, Chart, Figure, Point, Series};
use crate::record::{Metric, Row};
use crate::stats::Spread;
use crate::text;
use crate::view::{Column, DOUBT, Parts, View};

pub(super) use crate::view::SIZES;

/// Location and spread of the readings of a kind.
pub(super) fn spread(rows: &[Row], case: &str, variant: &str, metric: Metric) -> Option<Spread> {
    rows.iter()
        .find(|row| row.case == case && row.variant == variant && row.metric == metric.name)?
        .spread
}

/// Median of the readings of a kind.
pub(super) fn median(rows: &[Row], case: &str, variant: &str, metric: Metric) -> Option<f64> {
    spread(rows, case, variant, metric).map(|spread| spread.median)
}

/// Rows by message size, as an experiment's file shows them.
pub(super) struct BySize<'a> {
    pub(super) file: &'static ExperimentFile,
    /// The words in braces, and their replacements.
    pub(super) words: &'a [(&'static str, String)],
    pub(super) rows: &'a [Row],
}

impl BySize<'_> {
    /// Medians at `sizes`, a table for each view with readings.
    pub(super) fn tables(&self, sizes: &[u64]) -> Vec<Table> {
        self.views(false).map(|view| self.table(view, sizes)).collect()
    }

    /// The same as curves, where a view has a figure: one for each variant and one for each
    /// published column.
    pub(super) fn figures(&self) -> Vec<Figure> {
        self.views(false).filter_map(|view| self.figure(view)).collect()
    }

    /// The views for a comparison with published numbers alone.
    pub(super) fn published(&self) -> Vec<PublishedComparison> {
        let is_measured = |size: &u64| {
            let end = format!(", {}", text::size(*size));
            self.rows.iter().any(|row| row.case.ends_with(&end))
        };
        let sizes: Vec<u64> = SIZES.into_iter().filter(is_measured).collect();
        let compare = |view: &'static View| {
            let source = view.source.as_deref()?;
            let (figure, table) = (self.figure(view), self.table(view, &sizes));
            Some(PublishedComparison { source, figure, table })
        };
        self.views(true).filter_map(compare).collect()
    }

    /// The parts of each cell as a sum; a table for each of the file's with readings.
    pub(super) fn parts(&self, sizes: &[u64]) -> Vec<Table> {
        let table = |parts: &Parts| {
            let cell = |variant: &str, size: u64| -> Option<String> {
                let median = |[_, metric]: &[String; 2]| {
                    Some(self.spread(&parts.case, size, variant, metric)?.median)
                };
                let medians: Option<Vec<f64>> = parts.metrics.iter().map(median).collect();
                let medians = medians?.into_iter().map(|median| format!("{median:.0}"));
                Some(medians.collect::<Vec<_>>().join(" + "))
            };
            let variants = self.variants(&parts.variants);
            let line = |&size: &u64| -> Vec<Value> {
                let cells = variants.iter().map(|variant| cell(variant, size).into());
                std::iter::once(text::size(size).into()).chain(cells).collect()
            };
            let names: Vec<&str> = parts.metrics.iter().map(|[name, _]| name.as_str()).collect();
            Table {
                title: self.filled(&parts.title),
                note: format!(
                    "{}: {}. Medians of the rounds, each by itself.",
                    self.filled(&parts.note),
                    names.join(" + ")
                ),
                columns: heads(variants).collect(),
                rows: sizes.iter().map(line).collect(),
            }
        };
        let tables = self.file.parts.iter().map(table);
        tables
            .filter(|table| table.rows.iter().any(|row| row[1..].iter().any(Value::is_string)))
            .collect()
    }

    /// Those with readings.
    fn views(&self, is_comparison: bool) -> impl Iterator<Item = &'static View> {
        let file = self.file;
        let views = file.views.iter().filter(move |view| view.source.is_some() == is_comparison);
        views.filter(|view| {
            let variants = self.variants(&view.variants);
            SIZES.iter().any(|&size| {
                variants.iter().any(|variant| self.spread_of(view, variant, size).is_some())
            })
        })
    }

    fn variants(&self, name: &str) -> &'static [String] {
        &self.file.variants[name]
    }

    /// `text` with the words in braces.
    fn filled(&self, text: &str) -> String {
        let fill = |text: String, (name, word): &(&str, String)| {
            text.replace(&format!("{{{name}}}"), word)
        };
        self.words.iter().fold(text.to_owned(), fill)
    }

    fn spread(&self, case: &str, size: u64, variant: &str, metric: &str) -> Option<Spread> {
        let size = text::size(size);
        let case = if case.is_empty() { size } else { format!("{case}, {size}") };
        let is_it = |row: &&Row| row.case == case && row.variant == variant && row.metric == metric;
        self.rows.iter().find(is_it)?.spread
    }

    fn spread_of(&self, view: &View, variant: &str, size: u64) -> Option<Spread> {
        self.spread(&view.case, size, variant, &view.metric)
    }

    /// Published columns: all, or, where they have names of variants, those of the shown ones.
    fn columns(&self, view: &View) -> Vec<Column> {
        let name = self.filled(&view.published);
        if name.is_empty() {
            return Vec::new();
        }
        let [by, of] = view.published_times.unwrap_or([1.0, 1.0]);
        let mut columns: Vec<Column> =
            self.file.published[&name].iter().map(|column| column.scaled(by / of)).collect();
        let variants = self.variants(&view.variants);
        if columns.iter().any(|column| variants.contains(&column.name)) {
            columns.retain(|column| variants.contains(&column.name));
        }
        columns
    }

    fn table(&self, view: &View, sizes: &[u64]) -> Table {
        let (variants, columns) = (self.variants(&view.variants), self.columns(view));
        let line = |&size: &u64| -> Vec<Value> {
            let ours = variants.iter().map(|variant| {
                self.spread_of(view, variant, size).map(|spread| spread.median).into()
            });
            let index = SIZES.iter().position(|other| *other == size);
            let theirs = columns.iter().map(|column| index.map(|index| column.cell(index)).into());
            std::iter::once(text::size(size).into()).chain(ours).chain(theirs).collect()
        };
        let doubts = columns.iter().filter_map(|column| column.doubt.as_ref());
        let shown = doubts.filter(|doubt| sizes.contains(&doubt.bytes));
        let doubts = shown.map(|doubt| format!(" {DOUBT} {}", doubt.why)).collect::<String>();
        let note = self.filled(&view.note);
        Table {
            title: self.filled(&view.title),
            note: format!("{note} Medians of the rounds; their spread is below.{doubts}")
                .trim_start()
                .to_owned(),
            columns: heads(variants).chain(columns.iter().map(Column::title)).collect(),
            rows: sizes.iter().map(line).collect(),
        }
    }

    fn figure(&self, view: &View) -> Option<Figure> {
        let file = view.figure.clone()?;
        let (variants, columns) = (self.variants(&view.variants), self.columns(view));
        let ours = variants.iter().enumerate().map(|(colour, variant)| {
            let point = |&size: &u64| {
                let spread = self.spread_of(view, variant, size)?;
                Some(Point { x: size as f64, y: spread.median, low: spread.min, high: spread.max })
            };
            let points = SIZES.iter().filter_map(point).collect();
            Series { name: variant.clone(), colour, points }
        });
        let theirs = columns.iter().enumerate().map(|(index, column)| {
            let point = |(&size, &y): (&u64, &f64)| Point { x: size as f64, y, low: y, high: y };
            let points = SIZES.iter().zip(&column.values).map(point).collect();
            Series { name: column.title(), colour: variants.len() + index, points }
        });
        let unit = &self.rows.iter().find(|row| row.metric == view.metric)?.unit;
        let y = Axis { label: format!("{} ({unit})", view.metric), scale: view.scale };
        let chart = Chart::Curves { x: message_size(), y, series: ours.chain(theirs).collect() };
        Some(Figure { file, title: self.filled(&view.title), chart })
    }
}

/// The head of the column of sizes, and those of variants.
fn heads(variants: &[String]) -> impl Iterator<Item = String> {
    std::iter::once("message".to_owned()).chain(variants.iter().cloned())
}
