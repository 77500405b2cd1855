//! `flow-reaction`: how soon a dealer detects that a node has become slow; figure 5.

use anyhow::{Result, bail};
use seekwire_flow::DealingPolicy;

use super::{PAPER, axis, figure, grid, points};
use crate::claim::{Estimate, Evidence, PublishedComparison};
use crate::experiment::{Context, Experiment};
use crate::experiments::by_size::median;
use crate::imaging::cluster::{Cluster, ClusterCarrier, Surroundings};
use crate::imaging::cost::{Compute, EmulationMode, PER_BYTE_NS, Slow};
use crate::imaging::{BlockSize, ClusterTask, Onset, POLICIES, SLOW_HOST, TILE};
use crate::outcome::{At, Findings, Outcome, Recorded, ResultFile, Table};
use crate::plot::{Axis, Bar, Chart, Figure, Point, Scale, Series};
use crate::record::{Metric, Row};
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::stats::Spread;

pub(in crate::experiments) struct Reaction;

const MEAN: Metric = Metric::lower("reaction time", "µs");
const HEARD: Metric = Metric::lower("reaction time, with the way", "µs");
/// Quantiles of the times of one run.
const QUANTILES: [Metric; 5] = [
    Metric::lower("reaction time min", "µs"),
    Metric::lower("reaction time q1", "µs"),
    Metric::lower("reaction time p50", "µs"),
    Metric::lower("reaction time q3", "µs"),
    Metric::lower("reaction time max", "µs"),
];
const SHARE: Metric = Metric::lower("blocks of the slow host", "%");

const FACTORS: &str = "heterogeneity factors";

/// Of its own blocks, a host processes this many at full speed, and then [`SLOW`] slowly.
const FAST: u64 = 12;
const SLOW: u64 = 4;

/// The paper's ratio of reaction times, and that of block sizes.
const PUBLISHED: f64 = 8.0;

/// A carrier and the size of blocks on it, by the name of its variant.
const VARIANTS: [(&str, ClusterCarrier, BlockSize); 4] = [
    (SMALL_RING, ClusterCarrier::Ring, BlockSize::SMALL),
    (LARGE_RING, ClusterCarrier::Ring, BlockSize::LARGE),
    (SMALL_TCP, ClusterCarrier::Tcp, BlockSize::SMALL),
    (LARGE_TCP, ClusterCarrier::Tcp, BlockSize::LARGE),
];
const SMALL_RING: &str = "ring, 2 KiB";
const LARGE_RING: &str = "ring, 16 KiB";
const SMALL_TCP: &str = "TCP, 2 KiB";
const LARGE_TCP: &str = "TCP, 16 KiB";

fn case(dealing: DealingPolicy, factor: u64) -> String {
    format!("{}, factor {factor}", dealing.name())
}

/// The case of the mean over all factors.
fn all_factors(dealing: DealingPolicy) -> String {
    format!("{}, all factors", dealing.name())
}

impl Experiment for Reaction {
    experiment_file!("flow-reaction");

    fn comparisons(&self, result: &ResultFile) -> Vec<PublishedComparison> {
        comparison(result).into_iter().collect()
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(3, 7);
        let factors: &[u64] = context.pick(&[2, 4, 8], &[2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let surroundings = Surroundings::of_one_host();
        let surroundings = &surroundings;
        let mut groups: Vec<Group<'_>> = POLICIES
            .into_iter()
            .map(|dealing| {
                let variant = |(name, carrier, block)| {
                    Variant::new(name, move |trial: &mut Trial| {
                        let mut cluster = Cluster::start(
                            context,
                            surroundings,
                            carrier,
                            block,
                            [dealing, DealingPolicy::Demand],
                        )?;
                        measure(&mut cluster, dealing, factors, trial)
                    })
                };
                Group::new(dealing.name(), VARIANTS.map(variant).into())
            })
            .collect();
        let samples = alternate(&mut groups, rounds, context.progress())?;
        drop(groups);

        let mut parameters = context.parameters(rounds);
        parameters.insert(FACTORS.to_owned(), factors.into());
        parameters.insert("own blocks at full speed, and slow".to_owned(), vec![FAST, SLOW].into());
        Ok(Outcome {
            parameters,
            samples,
            baseline: SMALL_RING,
            violation: surroundings.violation(),
        })
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        let rows = recorded.samples.rows(SMALL_RING);
        let factors = recorded.numbers(FACTORS);
        Findings {
            summary: self.file().summary(recorded.samples, &[]),
            tables: tables(&rows, &factors),
            figures: POLICIES.map(|dealing| curves(&rows, dealing, &factors)).into(),
        }
    }
}

fn measure(
    cluster: &mut Cluster<'_>,
    dealing: DealingPolicy,
    factors: &[u64],
    trial: &mut Trial,
) -> Result<()> {
    let update = |cluster: &mut Cluster<'_>, slow| {
        cluster.run(ClusterTask::Updates {
            count: 1,
            compute: Compute::clip(slow, EmulationMode::Sleep),
        })
    };
    update(cluster, Slow::Nobody)?;
    let factors = if trial.is_warm_up() { &factors[..1] } else { factors };
    let mut sums = [0.0; 2];
    for &factor in factors {
        let report = update(cluster, Slow::Phases { fast: FAST, slow: SLOW, factor })?;
        let times = |of: fn(&Onset) -> u64| -> Vec<f64> {
            report.onsets.iter().map(|onset| of(onset) as f64 / 1e3).collect()
        };
        let (done, heard) = (times(|onset| onset.done_ns), times(|onset| onset.heard_ns));
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
        let spread = Spread::of(&done);
        let Some(Spread { min, q1, median, q3, max, .. }) = spread else {
            bail!("the host never became slow");
        };
        let (case, x) = (case(dealing, factor), Some(factor as f64));
        let [done, heard] = [mean(&done), mean(&heard)];
        sums[0] += done;
        sums[1] += heard;
        trial.record(&case, x, MEAN, done);
        trial.record(&case, x, HEARD, heard);
        for (metric, value) in QUANTILES.into_iter().zip([min, q1, median, q3, max]) {
            trial.record(&case, x, metric, value);
        }
        let all: u64 = report.work.iter().map(|work| work.blocks).sum();
        let own = report.work.get(SLOW_HOST as usize - 1).map_or(0, |work| work.blocks);
        trial.record(&case, x, SHARE, 100.0 * own as f64 / all.max(1) as f64);
    }
    for (metric, sum) in [MEAN, HEARD].into_iter().zip(sums) {
        trial.record(all_factors(dealing), None, metric, sum / factors.len() as f64);
    }
    Ok(())
}

fn tables(rows: &[Row], factors: &[u64]) -> Vec<Table> {
    let columns = VARIANTS.map(|(name, ..)| name.to_owned());
    let mut tables = Vec::new();
    for dealing in POLICIES {
        let cases: Vec<String> = factors.iter().map(|factor| case(dealing, *factor)).collect();
        for (metric, title) in [
            (MEAN, "Reaction time (µs)"),
            (HEARD, "Reaction time, with the way of the news (µs)"),
            (SHARE, "Blocks that the slow host gets (%)"),
        ] {
            tables.push(grid(
                &format!("{title}, {}", dealing.name()),
                "Medians of the rounds. Computation is emulated by sleeping.",
                "case",
                &columns,
                &cases,
                |case, variant| median(rows, case, variant, metric),
            ));
        }
    }
    tables
}

/// The paper's model: the time for a whole block, multiplied by the factor.
fn model(block: u64, factors: &[u64]) -> Vec<Point> {
    let point = |&factor: &u64| {
        let y = (factor * PER_BYTE_NS * block) as f64 / 1e3;
        Point { x: factor as f64, y, low: y, high: y }
    };
    factors.iter().map(point).collect()
}

/// The distribution over all times at which the host became slow: medians, quartiles as bars.
fn curves(rows: &[Row], dealing: DealingPolicy, factors: &[u64]) -> Figure {
    let is_own = |row: &Row| row.case.starts_with(&format!("{}, factor", dealing.name()));
    let [_, q1, p50, q3, _] = QUANTILES;
    let own = |(colour, (name, ..)): (usize, (&str, ClusterCarrier, BlockSize))| {
        let [low, middle, high] = [q1, p50, q3].map(|metric| points(rows, metric, name, is_own));
        let bars = middle.iter().zip(low.iter().zip(&high));
        let points = bars.map(|(at, (low, high))| Point {
            low: low.y.min(at.y),
            high: high.y.max(at.y),
            ..*at
        });
        Series { name: name.to_owned(), colour, points: points.collect() }
    };
    let mut series: Vec<Series> = VARIANTS.into_iter().enumerate().map(own).collect();
    if series.iter().any(|series| !series.points.is_empty()) {
        for (name, block) in [("factor × 18 ns × 2 KiB", TILE / 8), ("× 16 KiB", TILE)] {
            let points = model(block, factors);
            series.push(Series { name: name.to_owned(), colour: 6, points });
        }
    }
    figure(
        &format!("{}.svg", dealing.name()),
        format!("Reaction time, {}: medians and quartiles of all onsets", dealing.name()),
        axis("heterogeneity factor"),
        Axis { label: "reaction time (µs)".to_owned(), scale: Scale::Log10 },
        series,
    )
}

fn ratio(result: &ResultFile, dealing: DealingPolicy, large: &str) -> Evidence {
    let case = all_factors(dealing);
    Estimate::ratio(result, At { case: &case, variant: large, metric: MEAN.name })
}

/// The paper gives one number.
fn comparison(result: &ResultFile) -> Option<PublishedComparison> {
    let own = |dealing: DealingPolicy, large: &str, name: String| {
        let Estimate { value, low, high, .. } = ratio(result, dealing, large).ok()?;
        Some((0, Bar { name, value, low, high }))
    };
    let ring = |dealing: DealingPolicy| {
        own(dealing, LARGE_RING, format!("{}, ring, 16 KiB over 2 KiB", dealing.name()))
    };
    let tcp = own(
        DealingPolicy::RoundRobin,
        LARGE_TCP,
        "round-robin, TCP 16 KiB over ring 2 KiB".to_owned(),
    );
    let mut bars: Vec<(usize, Bar)> = POLICIES.into_iter().filter_map(ring).chain(tcp).collect();
    if bars.is_empty() {
        return None;
    }
    let name = "paper: round-robin, TCP 16 KB over VI sockets 2 KB".to_owned();
    bars.insert(0, (1, Bar { name, value: PUBLISHED, low: PUBLISHED, high: PUBLISHED }));
    let line = |(_, bar): &(usize, Bar)| vec![bar.name.as_str().into(), bar.value.into()];
    Some(PublishedComparison {
        source: PAPER,
        table: Table {
            title: "Reaction time with large blocks over that with small ones".to_owned(),
            note: "Means over all factors.".to_owned(),
            columns: vec!["what".to_owned(), "ratio".to_owned()],
            rows: bars.iter().map(line).collect(),
        },
        figure: Some(Figure {
            file: "paper.svg".to_owned(),
            title: "Reaction time beside the paper".to_owned(),
            chart: Chart::Published { label: "16 KiB over 2 KiB".to_owned(), bars },
        }),
    })
}
