//! `mailbox`: the cost of tagged messages, expected and unexpected.

use anyhow::Result;
use serde_json::Value;

use super::published_seek;
use super::result_names::{ASIDE, MAILBOX};
use super::search_keys::with_point;
use crate::claim::Evidence;
use crate::experiment::{Context, Experiment};
use crate::experiment_file::ExperimentFile;
use crate::outcome::{Findings, Outcome, Recorded, ResultFile, SummaryValue};
use crate::plot::{Axis, Chart, Figure, Point, Scale, Series};
use crate::record::{Metric, Row};
use crate::search::reduction::{self, Reduction, extremes};
use crate::search::{
    self, CPU_MESSAGES, Carrier, Effort, RATE, SearchCase, SearchMethod, SearchMode, SearchPlan,
};
use crate::text;

pub(super) struct Mailbox;

const MODES: [SearchMode; 4] = [
    SearchMode::new(ASIDE, SearchMethod::Aside, Carrier::Tcp),
    SearchMode::new(MAILBOX, SearchMethod::Mailbox, Carrier::Tcp),
    SearchMode::new(ASIDE, SearchMethod::Aside, Carrier::Ring),
    SearchMode::new(MAILBOX, SearchMethod::Mailbox, Carrier::Ring),
];

const SIZES: [u64; 3] = [64, 4 << 10, 64 << 10];

impl Experiment for Mailbox {
    experiment_file!("mailbox");

    fn computed(&self, words: &[&str], result: &ResultFile) -> Option<Evidence> {
        match words {
            ["unexpected", size] => published_seek::unexpected(result, size),
            _ => None,
        }
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(3, 10);
        let effort = match (context.repetitions(), context.quick()) {
            (Some(repetitions), _) => Effort { repetitions, most_bytes: None },
            (None, true) => Effort { repetitions: 1, most_bytes: None },
            (None, false) => Effort { repetitions: 10, most_bytes: Some(1_000_000_000) },
        };
        let tags: &[u64] = context.pick(&[4, 64], &[1, 4, 16, 64]);
        let shares: &[u64] = context.pick(&[0, 50, 100], &[0, 25, 50, 75, 100]);
        let messages = |size: u64| (context.pick(16 << 20, 128 << 20) / size).clamp(1000, 20_000);
        let cases: Vec<SearchCase> = cases(&SIZES, tags, shares)
            .into_iter()
            .map(|case| {
                let plan = SearchPlan { messages: messages(case.plan.size), ..case.plan };
                SearchCase { plan, repetitions: effort.repetitions(plan), ..case }
            })
            .collect();
        let samples = search::measure(context, &cases, rounds)?;

        let mut parameters = context.parameters(rounds);
        parameters.extend(search::parameters(&samples));
        parameters.insert("sizes".to_owned(), SIZES.to_vec().into());
        parameters.insert("tags".to_owned(), tags.into());
        parameters.insert(SHARES.to_owned(), shares.into());
        let work = |case: &SearchCase| {
            let numbers = vec![Value::from(case.repetitions), Value::from(case.plan.messages)];
            (case.plan.describe(), Value::from(numbers))
        };
        parameters.insert(
            "connections per value, messages of each".to_owned(),
            cases.iter().map(work).collect(),
        );
        Ok(Outcome { parameters, samples, baseline: ASIDE, violation: None })
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        let (samples, sizes) = (recorded.samples, recorded.numbers("sizes"));
        let (tags, shares) = (&recorded.numbers("tags")[..], recorded.numbers(SHARES));
        let cases = cases(&sizes, tags, &shares);
        let reductions = reduction::reductions(samples, &cases, &[ASIDE], &[CPU_MESSAGES]);
        let rows = samples.rows(ASIDE);
        let mut figures = Vec::new();
        for mode in MODES.into_iter().filter(|mode| mode.name == MAILBOX) {
            for &size in &sizes {
                for (metric, what) in [(RATE, "rate"), (CPU_MESSAGES, "cpu")] {
                    figures.push(curves(&cases, &rows, mode, size, metric, what, tags));
                }
                figures.push(saved(&reductions, mode, size, tags));
            }
        }
        let mut summary = summary(self.file(), &reductions);
        summary.extend(self.file().summary(samples, &[]));
        Findings { summary, tables: vec![reduction::table(&reductions)], figures }
    }
}

/// The parameter that holds the shares of unexpected messages.
const SHARES: &str = "shares that come unexpected (%)";

fn cases(sizes: &[u64], tags: &[u64], shares: &[u64]) -> Vec<SearchCase> {
    let mut cases = Vec::new();
    for &size in sizes {
        for &tags in tags {
            let mut unexpected: Vec<u64> =
                shares.iter().map(|share| share.saturating_mul(tags) / 100).collect();
            unexpected.dedup();
            cases.extend(unexpected.into_iter().map(|skip| {
                let plan = SearchPlan { tags: Some(tags), ..SearchPlan::search(size, skip) };
                let x = 100.0 * skip as f64 / tags as f64;
                SearchCase { plan, modes: MODES.to_vec(), x, repetitions: 1 }
            }));
        }
    }
    cases
}

fn share() -> Axis {
    Axis { label: "messages that come unexpected (%)".to_owned(), scale: Scale::Linear }
}

/// A metric of a mode over the share, one curve for each number of tags.
fn curves(
    cases: &[SearchCase],
    rows: &[Row],
    mode: SearchMode,
    size: u64,
    metric: Metric,
    what: &str,
    tags: &[u64],
) -> Figure {
    let curve = |(colour, &tags): (usize, &u64)| {
        let of_tags =
            cases.iter().filter(|case| case.plan.size == size && case.plan.tags == Some(tags));
        let points = of_tags.filter_map(|case| {
            let name = case.name(mode.carrier);
            let row = rows.iter().find(|row| {
                row.case == name && row.variant == mode.name && row.metric == metric.name
            })?;
            let spread = row.spread?;
            Some(Point { x: case.x, y: spread.median, low: spread.min, high: spread.max })
        });
        Series { name: tags_name(tags), colour, points: points.collect() }
    };
    let carrier = mode.carrier.name();
    let y = Axis { label: format!("{} ({})", metric.name, metric.unit), scale: Scale::Linear };
    Figure {
        file: format!("{carrier}-{what}-{size}.svg").to_lowercase(),
        title: format!("Mailbox over {carrier}, messages of {}: {}", text::size(size), metric.name),
        chart: Chart::Curves {
            x: share(),
            y,
            series: tags.iter().enumerate().map(curve).collect(),
        },
    }
}

/// Processor time that a mode saves over the share, one curve for each number of tags.
fn saved(reductions: &[Reduction], mode: SearchMode, size: u64, tags: &[u64]) -> Figure {
    let curve = |&tags: &u64| {
        let belongs = |reduction: &&Reduction| {
            reduction.mode == mode
                && reduction.plan.size == size
                && reduction.plan.tags == Some(tags)
        };
        (tags_name(tags), reductions.iter().filter(belongs).collect())
    };
    let carrier = mode.carrier.name();
    let title =
        format!("Mailbox over {carrier}, messages of {}, against {ASIDE}", text::size(size));
    let file = format!("{carrier}-saved-{size}.svg").to_lowercase();
    reduction::figure(file, title, share(), ASIDE, tags.iter().map(curve).collect())
}

fn tags_name(tags: u64) -> String {
    if tags == 1 { "1 tag".to_owned() } else { format!("{tags} tags") }
}

fn summary(file: &'static ExperimentFile, reductions: &[Reduction]) -> Vec<SummaryValue> {
    let of_mailbox = reductions.iter().filter(|reduction| {
        reduction.mode.name == MAILBOX && reduction.mode.carrier == Carrier::Tcp
    });
    let (best, worst) = extremes(of_mailbox).unzip();
    [
        with_point(file, "best_reduction_percent_tcp", best),
        with_point(file, "worst_reduction_percent_tcp", worst),
    ]
    .concat()
}
