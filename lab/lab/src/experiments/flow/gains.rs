//! Gains over TCP under a guarantee, beside those of the paper.

use super::PAPER;
use super::load::TCP;
use crate::claim::{Estimate, Evidence, PublishedComparison};
use crate::experiments::by_size::median;
use crate::outcome::{At, ResultFile, SummaryValue, Table};
use crate::plot::{Bar, Chart, Figure};
use crate::record::{Better, Metric, Row};

/// A guarantee, and the quantity by which it is judged.
#[derive(Clone, Copy)]
pub(super) struct Guarantee {
    pub(super) metric: Metric,
    /// Of the cases with that computation, the one in which TCP and the other variant are compared:
    /// the hardest one that both hold.
    pub(super) case: fn(&[Row], &str, &str) -> Option<String>,
    pub(super) gains: &'static [Gain],
    pub(super) about: [&'static str; 2],
}

/// One comparison with TCP.
#[derive(Clone, Copy)]
pub(super) struct Gain {
    /// Its name in the summary.
    pub(super) key: &'static str,
    pub(super) compute: &'static str,
    pub(super) variant: &'static str,
    /// The paper's gain, where it gives one.
    pub(super) published: Option<f64>,
}

pub(super) const fn gain(
    key: &'static str,
    compute: &'static str,
    variant: &'static str,
    published: Option<f64>,
) -> Gain {
    Gain { key, compute, variant, published }
}

impl Guarantee {
    /// The number of a claim by its words: the computation and the variant of a gain.
    pub(super) fn computed(&self, words: &[&str], result: &ResultFile) -> Option<Evidence> {
        match words {
            ["gain", compute, variant] => Some(self.gain(result, compute, variant)),
            _ => None,
        }
    }

    /// How many times as good as over TCP.
    fn gain(&self, result: &ResultFile, compute: &str, variant: &str) -> Evidence {
        let case = (self.case)(&result.rows, compute, variant)
            .ok_or_else(|| format!("TCP and {variant} hold nothing in common, {compute}"))?;
        let ratio = Estimate::ratio(result, At { case: &case, variant, metric: self.metric.name })?;
        match self.metric.better {
            Better::Higher => Ok(ratio),
            Better::Lower => ratio.inverse(),
        }
    }

    pub(super) fn keys(&self, rows: &[Row]) -> Vec<SummaryValue> {
        let gain = |compute, variant| {
            let case = (self.case)(rows, compute, variant)?;
            let of = |variant| median(rows, &case, variant, self.metric);
            let ratio = of(variant)? / of(TCP)?;
            Some(if self.metric.better == Better::Higher { ratio } else { 1.0 / ratio })
        };
        let keys = self.gains.iter();
        keys.filter_map(|&Gain { key, compute, variant, published }| {
            let [first, rest] = self.about;
            let paper =
                published.map_or_else(String::new, |gain| format!("; the paper has {gain}"));
            let meaning = format!("{first} {variant}, {compute}, {rest}{paper}");
            SummaryValue::measured(
                key,
                meaning,
                gain(compute, variant).filter(|gain| gain.is_finite()),
            )
        })
        .collect()
    }

    /// Ours beside the paper's.
    pub(super) fn comparison(&self, result: &ResultFile) -> Option<PublishedComparison> {
        let mut bars = Vec::new();
        let mut rows = Vec::new();
        for &Gain { compute, variant, published, .. } in self.gains {
            let name = format!("{variant}, {compute}");
            let paper = format!("paper: {}, {compute}", variant.replace("ring", "VI sockets"));
            let own = self.gain(result, compute, variant).ok();
            rows.push(vec![
                name.as_str().into(),
                own.map(|own| own.value).into(),
                published.into(),
            ]);
            if let Some(Estimate { value, low, high, .. }) = own {
                let theirs = |value| (1, Bar { name: paper, value, low: value, high: value });
                bars.extend(published.map(theirs));
                bars.push((0, Bar { name, value, low, high }));
            }
        }
        if bars.is_empty() {
            return None;
        }
        Some(PublishedComparison {
            source: PAPER,
            table: Table {
                title: "Gain over TCP".to_owned(),
                note: "How many times as good, in the hardest case that both hold.".to_owned(),
                columns: vec!["what".to_owned(), "here".to_owned(), "paper".to_owned()],
                rows,
            },
            figure: Some(Figure {
                file: "paper.svg".to_owned(),
                title: "Gain over TCP beside the paper".to_owned(),
                chart: Chart::Published { label: "how many times as good".to_owned(), bars },
            }),
        })
    }
}
