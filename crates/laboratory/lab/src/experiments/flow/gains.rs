//! What is gained over TCP under a guarantee, beside what the paper gains.

use super::load::{COMPUTES, REDISTRIBUTED, RING, TCP};
use super::{PAPER, median};
use crate::claim::{Comparison, Estimate};
use crate::experiments::by_size::spread;
use crate::outcome::{At, Key, ResultFile, Table};
use crate::plot::{Bar, Chart, Figure};
use crate::record::{Better, Metric, Row};

/// What is guaranteed, and what it is judged by.
#[derive(Clone, Copy)]
pub(super) struct Guarantee {
    pub(super) metric: Metric,
    /// Of the cases with that computation, the one in which TCP and the other way are compared: the
    /// hardest one that both hold.
    pub(super) case: fn(&[Row], &str, &str) -> Option<String>,
    /// The paper's gains: with blocks cut into smaller ones without computation and with it, and
    /// then without cutting.
    pub(super) published: [f64; 4],
    pub(super) about: [&'static str; 2],
}

pub(super) const NO_COMPUTE: &str = COMPUTES[0].0;
pub(super) const COMPUTE: &str = COMPUTES[1].0;

/// In the order of [`Guarantee::published`].
const PAIRS: [(&str, &str); 4] =
    [(NO_COMPUTE, REDISTRIBUTED), (COMPUTE, REDISTRIBUTED), (NO_COMPUTE, RING), (COMPUTE, RING)];

impl Guarantee {
    /// How many times as good as over TCP.
    pub(super) fn gain(
        &self,
        result: &ResultFile,
        compute: &str,
        way: &str,
    ) -> Result<Estimate, String> {
        let case = (self.case)(&result.rows, compute, way)
            .ok_or_else(|| format!("TCP and {way} hold nothing in common, {compute}"))?;
        // A ratio of nothing has no interval, unless it was nothing in all rounds.
        if median(&result.rows, &case, way, self.metric) == Some(0.0) {
            let all = spread(&result.rows, &case, way, self.metric);
            if all.is_none_or(|all| all.max > 0.0) {
                return Err(format!("{way} mostly holds nothing where TCP does: {case}"));
            }
            let tcp = At { case: &case, variant: TCP, metric: self.metric.name };
            let rounds = Estimate::median(result, tcp)?.rounds;
            return Ok(Estimate { value: 0.0, low: 0.0, high: 0.0, rounds });
        }
        let ratio =
            Estimate::ratio(result, At { case: &case, variant: way, metric: self.metric.name })?;
        Ok(match self.metric.better {
            Better::Higher => ratio,
            Better::Lower => Estimate {
                value: 1.0 / ratio.value,
                low: 1.0 / ratio.high,
                high: 1.0 / ratio.low,
                rounds: ratio.rounds,
            },
        })
    }

    pub(super) fn keys(&self, rows: &[Row]) -> Vec<Key> {
        let gain = |compute, way| {
            let case = (self.case)(rows, compute, way)?;
            let of = |variant| median(rows, &case, variant, self.metric);
            let ratio = of(way)? / of(TCP)?;
            Some(if self.metric.better == Better::Higher { ratio } else { 1.0 / ratio })
        };
        let names = [
            "gain_over_tcp_no_compute",
            "gain_over_tcp_18ns",
            "gain_over_tcp_no_compute_16k",
            "gain_over_tcp_18ns_16k",
        ];
        let keys = names.into_iter().zip(PAIRS).zip(self.published);
        keys.filter_map(|((name, (compute, way)), published)| {
            let [first, rest] = self.about;
            let meaning = format!("{first} {way}, {compute}, {rest}; the paper has {published}");
            Key::measured(name, meaning, gain(compute, way).filter(|gain| gain.is_finite()))
        })
        .collect()
    }

    /// Ours beside the paper's.
    pub(super) fn comparison(&self, result: &ResultFile) -> Option<Comparison> {
        let mut bars = Vec::new();
        let mut rows = Vec::new();
        for ((compute, way), published) in PAIRS.into_iter().zip(self.published) {
            let name = format!("{way}, {compute}");
            let paper = format!("paper: {}, {compute}", way.replace("ring", "VI sockets"));
            let own = self.gain(result, compute, way).ok();
            rows.push(vec![
                name.as_str().into(),
                own.map(|own| own.value).into(),
                published.into(),
            ]);
            if let Some(Estimate { value, low, high, .. }) = own {
                bars.push((
                    1,
                    Bar { name: paper, value: published, low: published, high: published },
                ));
                bars.push((0, Bar { name, value, low, high }));
            }
        }
        if bars.is_empty() {
            return None;
        }
        Some(Comparison {
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
