//! Processor time saved against a baseline, in percent.
//!
//! Each round gives one reduction, from two values that were measured in turns; the paper plots
//! their mean and its standard error.

use serde_json::Value;

use super::INSTRUCTIONS;
use super::plan::{Carrier, SearchMode, SearchPlan};
use super::rounds::SearchCase;
use crate::outcome::Table;
use crate::plot::{Axis, Chart, Figure, Point, Scale, Series};
use crate::record::{Metric, Samples, Selector};
use crate::stats::Mean;
use crate::text;

/// The saving of a mode in a case.
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    /// The messages.
    pub plan: SearchPlan,
    /// Where it lies on the horizontal axis.
    pub x: f64,
    /// The mode that is compared,
    pub mode: SearchMode,
    /// and with which variant.
    pub baseline: &'static str,
    /// The quantity that is compared.
    pub metric: Metric,
    /// Percent; negative if it costs more.
    pub percent: Mean,
}

/// The savings of every mode against the modes called `baselines` on the same carrier.
pub fn reductions(
    samples: &Samples,
    cases: &[SearchCase],
    baselines: &[&'static str],
    metrics: &[Metric],
) -> Vec<Reduction> {
    let mut reductions = Vec::new();
    for case in cases {
        for &mode in &case.modes {
            let name = case.name(mode.carrier);
            for &baseline in baselines.iter().filter(|&&baseline| baseline != mode.name) {
                for &metric in metrics {
                    let select = |variant| Selector { case: &name, variant, metric };
                    let pairs = samples.pairs(select(mode.name), select(baseline));
                    let percent: Vec<f64> =
                        pairs.iter().map(|(this, other)| 100.0 * (1.0 - this / other)).collect();
                    if let Some(percent) = Mean::of(&percent) {
                        reductions.push(Reduction {
                            plan: case.plan,
                            x: case.x,
                            mode,
                            baseline,
                            metric,
                            percent,
                        });
                    }
                }
            }
        }
    }
    reductions
}

/// The saved quantity, for people.
fn what<'a>(mut reductions: impl Iterator<Item = &'a Reduction>) -> &'static str {
    match reductions.next() {
        Some(reduction) if reduction.metric == INSTRUCTIONS => "Instructions",
        _ => "Processor time",
    }
}

/// A curve for each of `curves`, a name and its reductions; bars are standard errors.
pub fn figure(
    file: String,
    title: String,
    x: Axis,
    baseline: &str,
    curves: Vec<(String, Vec<&Reduction>)>,
) -> Figure {
    let what = what(curves.iter().flat_map(|(_, points)| points).copied());
    let series = curves.into_iter().enumerate().map(|(colour, (name, reductions))| {
        let mut points: Vec<Point> = reductions
            .into_iter()
            .map(|reduction| {
                let Mean { value, standard_error, .. } = reduction.percent;
                let error = standard_error.unwrap_or(0.0);
                Point { x: reduction.x, y: value, low: value - error, high: value + error }
            })
            .collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Series { name, colour, points }
    });
    let label = format!("{what} saved against {baseline} (%, ± standard error)");
    let y = Axis { label, scale: Scale::Signed };
    Figure { file, title, chart: Chart::Curves { x, y, series: series.collect() } }
}

/// The plot as numbers: a row for each message size, a column for each curve.
pub fn grid(title: String, curves: &[(String, Vec<&Reduction>)]) -> Table {
    let mut sizes: Vec<u64> =
        curves.iter().flat_map(|(_, points)| points).map(|reduction| reduction.plan.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let cell = |points: &[&Reduction], size| {
        let reduction = points.iter().find(|reduction| reduction.plan.size == size);
        reduction.map(|Reduction { percent, .. }| match percent.standard_error {
            Some(error) => format!("{:.1} ± {error:.1}", percent.value),
            None => format!("{:.1}", percent.value),
        })
    };
    let row = |size| -> Vec<Value> {
        let cells = curves.iter().map(|(_, points)| cell(points, size).into());
        std::iter::once(text::size(size).into()).chain(cells).collect()
    };
    Table {
        title,
        note: "Saved, %: mean of the rounds ± standard error.".to_owned(),
        columns: std::iter::once("message")
            .chain(curves.iter().map(|(name, _)| name.as_str()))
            .map(str::to_owned)
            .collect(),
        rows: sizes.into_iter().map(row).collect(),
    }
}

/// All of them, in numbers.
pub fn table(reductions: &[Reduction]) -> Table {
    let columns = [
        "carrier",
        "way",
        "message (B)",
        "piece (B)",
        "tags",
        "N",
        "baseline",
        "of",
        "saved (%)",
        "standard error",
        "rounds",
    ];
    let row = |reduction: &Reduction| -> Vec<Value> {
        vec![
            reduction.mode.carrier.name().into(),
            reduction.mode.name.into(),
            reduction.plan.size.into(),
            reduction.plan.piece.into(),
            reduction.plan.tags.into(),
            reduction.plan.skip.into(),
            reduction.baseline.into(),
            reduction.metric.name.into(),
            reduction.percent.value.into(),
            reduction.percent.standard_error.into(),
            reduction.percent.n.into(),
        ]
    };
    Table {
        title: format!("{} saved", what(reductions.iter())),
        note: "Mean over the rounds of 100 % × (1 − this way / baseline), each of two values that were measured in turns \
               within the round. Negative: this way costs more."
            .to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: reductions.iter().map(row).collect(),
    }
}

/// The largest and the smallest of `reductions`.
pub fn extremes<'a>(
    reductions: impl Iterator<Item = &'a Reduction> + Clone,
) -> Option<(&'a Reduction, &'a Reduction)> {
    let by_value = |a: &&Reduction, b: &&Reduction| a.percent.value.total_cmp(&b.percent.value);
    Some((reductions.clone().max_by(by_value)?, reductions.min_by(by_value)?))
}

/// Those of one carrier.
pub fn on(reductions: &[Reduction], carrier: Carrier) -> impl Iterator<Item = &Reduction> + Clone {
    reductions.iter().filter(move |reduction| reduction.mode.carrier == carrier)
}

#[cfg(test)]
mod tests {
    use super::super::{CPU, SearchMethod};
    use super::*;
    use crate::record::Sample;

    #[test]
    fn reductions_come_from_pairs_of_a_round() {
        let plan = SearchPlan::search(1000, 16);
        let mode = |name, method| SearchMode::new(name, method, Carrier::Tcp);
        let modes = vec![mode("pool", SearchMethod::Pool), mode("seek", SearchMethod::Seek)];
        let case = SearchCase { plan, modes, x: 1000.0, repetitions: 1 };
        let sample = |variant: &str, round, value| {
            Sample::new(case.name(Carrier::Tcp), variant, CPU, round, value)
        };
        let samples = Samples(vec![
            sample("pool", 1, 10.0),
            sample("seek", 1, 5.0),
            sample("seek", 2, 18.0),
            sample("pool", 2, 20.0),
            sample("pool", 3, 20.0),
        ]);
        let saved = reductions(&samples, &[case], &["pool"], &[CPU]);
        assert_eq!(saved.len(), 1, "{saved:?}");
        assert_eq!((saved[0].percent.n, saved[0].percent.value), (2, 30.0));
        assert!((saved[0].percent.standard_error.unwrap() - 20.0).abs() < 1e-9);
        assert_eq!(table(&saved).rows.len(), 1);
        let grid = grid("seek".to_owned(), &[("N = 16".to_owned(), saved.iter().collect())]);
        assert_eq!(grid.rows, [["1000 B", "30.0 ± 20.0"]]);
    }
}
