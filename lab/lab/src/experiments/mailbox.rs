//! `mailbox`: the cost of tagged messages, expected and unexpected.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::names::{ASIDE, MAILBOX};
use super::search_keys::names;
use super::seekable;
use crate::claim::Claim;
use crate::experiment::{Context, Experiment};
use crate::outcome::{Findings, Key, Outcome, Recorded};
use crate::plot::{Axis, Chart, Figure, Point, Scale, Series};
use crate::record::{Metric, Row, Selector};
use crate::search::reduction::{self, Reduction, extremes};
use crate::search::{self, CPU_MESSAGES, Carrier, Case, Effort, Mode, Plan, RATE, Way};
use crate::text;

pub(super) struct Mailbox;

const MODES: [Mode; 4] = [
    Mode::new(ASIDE, Way::Aside, Carrier::Tcp),
    Mode::new(MAILBOX, Way::Mailbox, Carrier::Tcp),
    Mode::new(ASIDE, Way::Aside, Carrier::Ring),
    Mode::new(MAILBOX, Way::Mailbox, Carrier::Ring),
];

const SIZES: [u64; 3] = [64, 4 << 10, 64 << 10];

impl Experiment for Mailbox {
    fn name(&self) -> &'static str {
        "mailbox"
    }

    fn question(&self) -> &'static str {
        "How fast and how costly tagged messages are, expected and unexpected."
    }

    fn about(&self) -> &'static str {
        "Messages with tags go through seekwire::Mailbox. The experiment measures how many arrive a second, and what \
         each costs the receiver. The tags 0, 1, .. repeat. In each lap, a share of the messages is unexpected: these \
         arrive first, are known to be there before they are requested, and are requested last. The receives of the \
         others are posted before they arrive. The comparison receives the same messages as libraries do without \
         seeks: it reads arrived bytes at once, copies unexpected messages aside, copies them again when they are \
         requested, and reads large expected ones straight into their buffer. Opening and closing a connection do not \
         count."
    }

    fn paper_reference(&self) -> Option<&'static str> {
        Some("the messaging library that the paper on seekable sockets names as future work")
    }

    fn claims(&self) -> &'static [Claim] {
        seekable::MAILBOX_CLAIMS
    }

    fn duration(&self, quick: bool) -> Duration {
        Duration::from_secs(if quick { 17 } else { 2400 })
    }

    fn own_options(&self) -> &'static [&'static str] {
        &["repetitions"]
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
        let cases: Vec<Case> = cases(&SIZES, tags, shares)
            .into_iter()
            .map(|case| {
                let plan = Plan { messages: messages(case.plan.size), ..case.plan };
                Case { plan, repetitions: effort.repetitions(plan), ..case }
            })
            .collect();
        let samples = search::measure(context, &cases, rounds)?;

        let mut parameters = context.parameters(rounds);
        parameters.extend(search::parameters(&samples));
        parameters.insert("sizes".to_owned(), SIZES.to_vec().into());
        parameters.insert("tags".to_owned(), tags.into());
        parameters.insert(SHARES.to_owned(), shares.into());
        let work = |case: &Case| {
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
        let median = |size, tags, skip, metric| {
            let plan = Plan { tags: Some(tags), ..Plan::search(size, skip) };
            let case = format!("{}, {}", Carrier::Tcp.name(), plan.describe());
            samples.median(Selector { case: &case, variant: MAILBOX, metric })
        };
        let mut summary = summary(&reductions);
        let keys = [
            (
                "rate_64B_expected",
                "messages of 64 B per second over TCP, 64 tags, all expected; higher is better",
                median(64, 64, 0, RATE),
            ),
            ("rate_64B_unexpected", "the same, all unexpected", median(64, 64, 64, RATE)),
            (
                "cpu_64KiB_expected_us",
                "processor time of the receiver for a message of 64 KiB, 64 tags, all expected, µs; lower is better",
                median(64 << 10, 64, 0, CPU_MESSAGES),
            ),
            (
                "cpu_64KiB_unexpected_us",
                "the same, all unexpected",
                median(64 << 10, 64, 64, CPU_MESSAGES),
            ),
        ];
        summary.extend(
            keys.into_iter()
                .filter_map(|(name, meaning, value)| Key::measured(name, meaning, value)),
        );
        Findings { summary, tables: vec![reduction::table(&reductions)], figures }
    }
}

/// The parameter that holds the shares of unexpected messages.
const SHARES: &str = "shares that come unexpected (%)";

fn cases(sizes: &[u64], tags: &[u64], shares: &[u64]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &size in sizes {
        for &tags in tags {
            let mut unexpected: Vec<u64> =
                shares.iter().map(|share| share.saturating_mul(tags) / 100).collect();
            unexpected.dedup();
            cases.extend(unexpected.into_iter().map(|skip| {
                let plan = Plan { tags: Some(tags), ..Plan::search(size, skip) };
                let x = 100.0 * skip as f64 / tags as f64;
                Case { plan, modes: MODES.to_vec(), x, repetitions: 1 }
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
    cases: &[Case],
    rows: &[Row],
    mode: Mode,
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
fn saved(reductions: &[Reduction], mode: Mode, size: u64, tags: &[u64]) -> Figure {
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

fn summary(reductions: &[Reduction]) -> Vec<Key> {
    let of_mailbox = reductions.iter().filter(|reduction| {
        reduction.mode.name == MAILBOX && reduction.mode.carrier == Carrier::Tcp
    });
    let (best, worst) = extremes(of_mailbox).unzip();
    [
        names!("best_reduction_percent_tcp").with_point(
            "processor time that a mailbox over TCP saves its receiver against copying unexpected messages aside, %, where \
             it saves most; higher is better",
            best,
        ),
        names!("worst_reduction_percent_tcp")
            .with_point("the same where it saves least; negative: it costs more", worst),
    ]
    .concat()
}
