//! `ring-size`: bandwidth and latency against the geometry of the ring.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use seekwire_transport::layout::Geometry;

use super::published_yasmin;
use super::result_names::{DEFAULT, SMALL_LATENCY, THIS};
use super::sweep::{TCP, program_pair};
use crate::bench::{BANDWIDTH, LATENCY, Operation, PeerPair, Socket, Test};
use crate::claim::{Evidence, PublishedComparison};
use crate::experiment::{Context, Experiment};
use crate::outcome::{Findings, Outcome, Recorded, ResultFile};
use crate::plot::{Axis, Chart, Figure, Point, Scale, Series};
use crate::record::{Metric, Sample, Samples};
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::stats::Spread;
use crate::{stats, text};

pub(super) struct RingSize;

/// Messages are large enough to need the pool, and small enough to fit into the smallest one twice.
const MESSAGE: u64 = 64 << 10;

/// The largest messages whose latency does not depend on the ring, as the paper says.
const SMALL: u64 = 1 << 10;

impl Experiment for RingSize {
    experiment_file!("ring-size");

    fn computed(&self, words: &[&str], result: &ResultFile) -> Option<Evidence> {
        match words {
            ["small pool", metric] => Some(published_yasmin::small_pool(result, metric)),
            _ => None,
        }
    }

    fn comparisons(&self, result: &ResultFile) -> Vec<PublishedComparison> {
        published_yasmin::ring_size(result)
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(3, 15);
        let time = Duration::from_millis(context.pick(40, 60));
        let segments: &[u64] = context
            .pick(&[16 << 10, 64 << 10], &[4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10]);
        let pools: &[u64] = context.pick(
            &[256 << 10, 1 << 20, 4 << 20],
            &[128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20],
        );
        let test = |operation, size| Test { operation, size, time };
        let tests = vec![
            test(Operation::Pingpong, MESSAGE),
            test(Operation::Bandwidth, MESSAGE),
            test(Operation::Pingpong, SMALL),
        ];

        let geometries = geometries(segments, pools);
        let default = Geometry::default();
        let default_name = geometry(
            default.segment_size() as u64,
            (default.segment_size() * default.segments()) as u64,
        );
        let tcp = || variant(&default_name, TCP, program_pair(context, Socket::Tcp, false), &tests);
        let of_geometry = |&(segment, pool): &(u64, u64)| {
            let name = geometry(segment, pool);
            let pair = || program_pair(context, Socket::Tcp, true);
            let other = pair().map(|pair| {
                pair.env("SEEKWIRE_SEGMENT_SIZE", segment).env("SEEKWIRE_SEGMENTS", pool / segment)
            });
            let mut variants =
                vec![variant(&name, DEFAULT, pair(), &tests), variant(&name, THIS, other, &tests)];
            if name == default_name {
                variants.push(tcp());
            }
            Group::new(name, variants)
        };
        let mut groups: Vec<Group<'_>> = geometries.iter().map(of_geometry).collect();
        if groups.iter().all(|group| group.name != default_name) {
            let own =
                variant(&default_name, DEFAULT, program_pair(context, Socket::Tcp, true), &tests);
            groups.push(Group::new(&default_name, vec![own, tcp()]));
        }
        let samples = alternate(&mut groups, rounds, context.progress())?;
        drop(groups);

        let mut parameters = context.parameters(rounds);
        parameters.insert("milliseconds per test".to_owned(), (time.as_millis() as u64).into());
        parameters.insert("message size".to_owned(), MESSAGE.into());
        parameters.insert("segment sizes".to_owned(), segments.into());
        parameters.insert("default segment size".to_owned(), default.segment_size().into());
        parameters.insert("default segments".to_owned(), default.segments().into());
        parameters.insert("pool sizes".to_owned(), pools.into());
        Ok(Outcome { parameters, samples, baseline: DEFAULT, violation: None })
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        let segments = &recorded.numbers("segment sizes")[..];
        let geometries = geometries(segments, &recorded.numbers("pool sizes"));
        let points = relative(recorded.samples, &geometries);
        let figures = vec![
            figure("bandwidth.svg", "Bandwidth of 64 KiB messages", BANDWIDTH, segments, &points),
            figure(
                "latency.svg",
                "Round trip of 64 KiB messages, median",
                LATENCY,
                segments,
                &points,
            ),
        ];
        Findings {
            summary: self.file().summary(recorded.samples, &summary(recorded.samples, &points)),
            figures,
            tables: Vec::new(),
        }
    }
}

fn geometries(segments: &[u64], pools: &[u64]) -> Vec<(u64, u64)> {
    segments
        .iter()
        .flat_map(|&segment| pools.iter().map(move |&pool| (segment, pool)))
        .filter(|&(segment, pool)| is_possible(segment, pool))
        .collect()
}

/// Whether the library accepts a geometry. It replaces others by its defaults, and the label would
/// lie.
fn is_possible(segment: u64, pool: u64) -> bool {
    let [segment_size, segments] =
        [segment, pool.checked_div(segment).unwrap_or(0)].map(u32::try_from);
    let cells = Geometry::default().cells() as u32;
    matches!((segment_size, segments), (Ok(size), Ok(count)) if Geometry::new(cells, size, count).is_ok())
}

fn geometry(segment: u64, pool: u64) -> String {
    format!("{} in {}", text::size(segment), text::size(pool))
}

/// The peers of `pair` run `tests`, as readings of one case.
fn variant<'a>(case: &str, name: &str, pair: Result<PeerPair>, tests: &[Test]) -> Variant<'a> {
    let (case, tests) = (case.to_owned(), tests.to_vec());
    match pair {
        Ok(pair) => Variant::new(name, move |trial: &mut Trial| {
            pair.run(&tests, trial, |trial, report| {
                for (metric, value) in report.readings() {
                    let metric = match report.size {
                        SMALL if metric == LATENCY => SMALL_LATENCY,
                        SMALL => continue,
                        _ => metric,
                    };
                    trial.record(&case, None, metric, value);
                }
            })
        }),
        Err(error) => Variant::unavailable(name, format!("{error:#}")),
    }
}

/// A geometry over the default one.
struct Relative {
    segment: u64,
    pool: u64,
    metric: &'static str,
    /// Spread of the ratios of neighbours, one for each round.
    spread: Spread,
}

fn relative(samples: &Samples, geometries: &[(u64, u64)]) -> Vec<Relative> {
    let mut points = Vec::new();
    for &(segment, pool) in geometries {
        let case = geometry(segment, pool);
        for metric in [BANDWIDTH, LATENCY] {
            let values = |variant: &str| -> BTreeMap<usize, f64> {
                let of = |sample: &&Sample| {
                    sample.case == case
                        && sample.variant == variant
                        && sample.metric.is_some_and(|other| other.name == metric.name)
                };
                let value = |sample: &Sample| Some((sample.round, sample.outcome.clone().ok()?));
                samples.0.iter().filter(of).filter_map(value).collect()
            };
            let (this, default) = (values(THIS), values(DEFAULT));
            let ratios: Vec<f64> = this
                .iter()
                .filter_map(|(round, value)| Some(value / default.get(round)?))
                .collect();
            if let Some(spread) = Spread::of(&ratios) {
                points.push(Relative { segment, pool, metric: metric.name, spread });
            }
        }
    }
    points
}

fn figure(
    file: &str,
    title: &str,
    metric: Metric,
    segments: &[u64],
    points: &[Relative],
) -> Figure {
    let curve = |(colour, &segment): (usize, &u64)| {
        let of = |point: &&Relative| point.segment == segment && point.metric == metric.name;
        let point = |point: &Relative| Point {
            x: point.pool as f64,
            y: point.spread.median,
            low: point.spread.q1,
            high: point.spread.q3,
        };
        let points = points.iter().filter(of).map(point).collect();
        Series { name: format!("segments of {}", text::size(segment)), colour, points }
    };
    Figure {
        file: file.to_owned(),
        title: title.to_owned(),
        chart: Chart::Curves {
            x: Axis { label: "pool size (bytes)".to_owned(), scale: Scale::Sizes },
            y: Axis {
                label: format!("{} / that of the default next to it (quartiles)", metric.name),
                scale: Scale::Linear,
            },
            series: segments.iter().enumerate().map(curve).collect(),
        },
    }
}

fn summary(samples: &Samples, points: &[Relative]) -> [(&'static str, Option<f64>); 4] {
    let best = points
        .iter()
        .filter(|point| point.metric == BANDWIDTH.name)
        .max_by(|a, b| a.spread.median.total_cmp(&b.spread.median));
    let medians: Vec<f64> = samples
        .0
        .iter()
        .filter(|s| {
            s.variant == DEFAULT && s.metric.is_some_and(|metric| metric.name == BANDWIDTH.name)
        })
        .filter_map(|sample| sample.outcome.clone().ok())
        .collect();
    [
        ("best_segment_size", best.map(|best| best.segment as f64)),
        ("best_pool_size", best.map(|best| best.pool as f64)),
        ("best_vs_default", best.map(|best| best.spread.median)),
        ("default_bandwidth_gbps", stats::median(&medians)),
    ]
}
