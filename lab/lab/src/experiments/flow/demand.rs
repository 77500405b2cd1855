//! `flow-demand`: execution time while blocks take longer now and then, or one host always does, by
//! how blocks are dealt; figure 6.

use anyhow::{Result, ensure};
use seekwire_flow::DealingPolicy;

use super::{GIGABIT, axis, figure, grid, points};
use crate::claim::{Estimate, Evidence};
use crate::experiment::{Context, Experiment};
use crate::experiments::by_size::median;
use crate::imaging::cluster::{Cluster, ClusterCarrier, Surroundings};
use crate::imaging::cost::{Compute, EmulationMode, Slow, oracle};
use crate::imaging::{BlockSize, ClusterTask, IMAGE, POLICIES};
use crate::outcome::{At, Findings, Outcome, Recorded, ResultFile, Table};
use crate::plot::{Figure, Series};
use crate::record::{Metric, Row};
use crate::schedule::{Group, Trial, Variant, alternate};

pub(in crate::experiments) struct Demand;

const TIME: Metric = Metric::lower("execution time", "ms");
/// Execution time over that of a dealer that knows everything.
const RATIO: Metric = Metric::lower("time over the oracle's", "");
/// Computation time of copies of clip over the intended time.
const EMULATION: Metric = Metric::lower("computation over wanted", "");

const ORACLE: &str = "oracle";
/// Asked for at once: filling and emptying the pipeline is a part of all of them.
const UPDATES: u64 = 3;

const FACTORS: &str = "heterogeneity factors";
const PERCENTS: &str = "probabilities of slowness (%)";

/// The carrier, the size of blocks, and how computation is emulated.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Setting {
    carrier: ClusterCarrier,
    block: BlockSize,
    mode: EmulationMode,
    /// Whether all factors and probabilities are tried, or few.
    is_full: bool,
}

impl Setting {
    const fn new(carrier: ClusterCarrier, block: BlockSize) -> Self {
        Self { carrier, block, mode: EmulationMode::Sleep, is_full: true }
    }

    const fn few(self) -> Self {
        Self { is_full: false, ..self }
    }

    const fn burning(self) -> Self {
        Self { mode: EmulationMode::Burn, ..self }
    }

    fn name(self) -> String {
        let mode = if self.mode == EmulationMode::Burn { ", burning" } else { "" };
        format!("{}, {}{mode}", self.carrier.name(), self.block.name())
    }

    /// Whether its dealing is judged. In the others something else is the limit: processors that
    /// compute, or that move eight times as many blocks, or a link.
    fn is_judged(self) -> bool {
        self.mode == EmulationMode::Sleep
            && self.block == BlockSize::LARGE
            && self.carrier.rate().is_none()
    }
}

/// The paper's two kinds of sockets with the block size of each, and settings of our own.
const SETTINGS: [Setting; 8] = [
    Setting::new(ClusterCarrier::Tcp, BlockSize::LARGE),
    Setting::new(ClusterCarrier::Ring, BlockSize::SMALL),
    Setting::new(ClusterCarrier::Ring, BlockSize::LARGE),
    Setting::new(ClusterCarrier::Tcp, BlockSize::SMALL).few(),
    Setting::new(ClusterCarrier::Ring, BlockSize::Auto).few(),
    Setting::new(ClusterCarrier::Ring, BlockSize::LARGE).burning().few(),
    Setting::new(ClusterCarrier::Link(GIGABIT), BlockSize::LARGE).few(),
    Setting::new(ClusterCarrier::Link(GIGABIT / 10), BlockSize::LARGE).few(),
];

const QUICK: [Setting; 4] = [
    Setting::new(ClusterCarrier::Tcp, BlockSize::LARGE),
    Setting::new(ClusterCarrier::Ring, BlockSize::SMALL).few(),
    Setting::new(ClusterCarrier::Ring, BlockSize::LARGE),
    Setting::new(ClusterCarrier::Link(GIGABIT), BlockSize::LARGE).few(),
];

/// How speeds vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speeds {
    /// This percentage of the blocks is slow, whichever copy gets them.
    Change(u64),
    /// One host is slow.
    Stand,
}

impl Speeds {
    fn slow(self, factor: u64, seed: u64) -> Slow {
        match self {
            Self::Change(percent) => Slow::Drawn { percent, factor, seed },
            Self::Stand => Slow::Host { factor },
        }
    }

    fn case(self, setting: Setting, factor: u64) -> String {
        let what = match self {
            Self::Change(percent) => format!("{percent} % slow"),
            Self::Stand => "one host slow".to_owned(),
        };
        format!("{}, factor {factor}, {what}", setting.name())
    }

    fn x(self, factor: u64) -> f64 {
        match self {
            Self::Change(percent) => percent as f64,
            Self::Stand => factor as f64,
        }
    }
}

/// The cases of a setting.
fn cases(setting: Setting, factors: &[u64], percents: &[u64]) -> Vec<(u64, Speeds)> {
    let some: &[u64] = match setting.is_full {
        true => factors,
        false => &factors[factors.len() / 2..][..usize::from(!factors.is_empty())],
    };
    let is_tried = |percent: &&u64| setting.is_full || **percent == 20;
    let change = |&factor: &u64| {
        let changes = percents.iter().filter(is_tried);
        let changes = changes.map(move |percent| (factor, Speeds::Change(*percent)));
        changes.chain(std::iter::once((factor, Speeds::Stand)))
    };
    some.iter().flat_map(change).collect()
}

impl Experiment for Demand {
    experiment_file!("flow-demand");

    fn computed(&self, words: &[&str], result: &ResultFile) -> Option<Evidence> {
        match words {
            ["kinds of sockets"] => Some(kinds_of_sockets(result)),
            ["never slower"] => Some(largest(result, TIME, true, Estimate::ratio)),
            ["oracle, speeds change"] => Some(largest(result, RATIO, true, Estimate::median)),
            ["oracle, speeds stand still"] => Some(largest(result, RATIO, false, Estimate::median)),
            _ => None,
        }
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(3, 5);
        let settings: &[Setting] = context.pick(&QUICK, &SETTINGS);
        let factors: &[u64] = context.pick(&[4], &[2, 4, 6, 8, 10]);
        let percents: &[u64] = context.pick(&[0, 20, 50, 100], &[0, 10, 20, 40, 50, 60, 80, 100]);
        let surroundings = Surroundings::new();
        let surroundings = &surroundings;
        let mut groups: Vec<Group<'_>> = settings
            .iter()
            .map(|&setting| {
                let cases = cases(setting, factors, percents);
                let variant = |dealing: DealingPolicy| {
                    let cases = cases.clone();
                    Variant::new(dealing.name(), move |trial: &mut Trial| {
                        measure(context, surroundings, setting, dealing, &cases, trial)
                    })
                };
                Group::new(setting.name(), POLICIES.map(variant).into())
            })
            .collect();
        let samples = alternate(&mut groups, rounds, context.progress())?;
        drop(groups);

        let mut parameters = context.parameters(rounds);
        parameters.insert(FACTORS.to_owned(), factors.into());
        parameters.insert(PERCENTS.to_owned(), percents.into());
        parameters.insert("bytes of the image".to_owned(), IMAGE.into());
        parameters.insert("updates at once".to_owned(), context.pick(1, UPDATES).into());
        Ok(Outcome {
            parameters,
            samples,
            baseline: DealingPolicy::Demand.name(),
            violation: surroundings.violation(),
        })
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        let rows = recorded.samples.rows(DealingPolicy::Demand.name());
        let (factors, percents) = (recorded.numbers(FACTORS), recorded.numbers(PERCENTS));
        Findings {
            summary: self.file().summary(recorded.samples, &summary(&rows)),
            tables: SETTINGS
                .iter()
                .filter_map(|&setting| table(&rows, setting, &factors, &percents))
                .collect(),
            figures: figures(&rows, &factors),
        }
    }
}

fn measure(
    context: &Context<'_>,
    surroundings: &Surroundings,
    setting: Setting,
    dealing: DealingPolicy,
    cases: &[(u64, Speeds)],
    trial: &mut Trial,
) -> Result<()> {
    let Setting { carrier, block, mode, .. } = setting;
    let mut cluster =
        Cluster::start(context, surroundings, carrier, block, [dealing, DealingPolicy::Demand])?;
    // All processes have connected, connections have their carrier, and memory has been touched.
    cluster.run(ClusterTask::Updates { count: 1, compute: Compute::clip(Slow::Nobody, mode) })?;
    let cases = if trial.is_warm_up() { &cases[..cases.len().min(1)] } else { cases };
    for &(factor, speeds) in cases {
        // The same draw in all rounds and for all policies.
        let slow = speeds.slow(factor, factor);
        let count = context.pick(1, UPDATES);
        let report =
            cluster.run(ClusterTask::Updates { count, compute: Compute::clip(slow, mode) })?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let processors = (mode == EmulationMode::Burn).then_some(processors);
        let least = oracle(
            slow,
            &report.work,
            processors,
            carrier.rate().map(|rate| (count * IMAGE, rate)),
        );
        ensure!(least > 0.0, "no copy has reported its computation");
        let (time, least) = (report.span_ns as f64 / 1e9 / count as f64, least / count as f64);
        let sum =
            |of: fn(&crate::imaging::ClipWork) -> u64| report.work.iter().map(of).sum::<u64>();
        let emulated = sum(|work| work.took_ns) as f64 / sum(|work| work.cost_ns).max(1) as f64;
        let case = speeds.case(setting, factor);
        let x = Some(speeds.x(factor));
        trial.record(&case, x, TIME, time * 1e3);
        trial.record(&case, x, RATIO, time / least);
        trial.record(&case, x, EMULATION, emulated);
    }
    Ok(())
}

fn is_changing(case: &str) -> bool {
    case.ends_with("% slow")
}

/// The rows of an own setting whose dealing is judged.
fn judged<'r>(
    rows: &'r [Row],
    variant: &'r str,
    metric: Metric,
    is_change: bool,
) -> impl Iterator<Item = &'r Row> {
    let names: Vec<String> = SETTINGS
        .iter()
        .filter(|setting| setting.is_judged())
        .map(|setting| format!("{}, factor", setting.name()))
        .collect();
    rows.iter().filter(move |row| {
        row.variant == variant
            && row.metric == metric.name
            && is_changing(&row.case) == is_change
            && names.iter().any(|name| row.case.starts_with(name))
    })
}

/// The row in which that is largest.
fn worst<'r>(
    rows: impl Iterator<Item = &'r Row>,
    of: impl Fn(&Row) -> Option<f64>,
) -> Option<(&'r Row, f64)> {
    let values = rows.filter_map(|row| Some((row, of(row)?)));
    values.max_by(|(_, a), (_, b)| a.total_cmp(b))
}

fn middle(row: &Row) -> Option<f64> {
    row.spread.map(|spread| spread.median)
}

fn against_demand(row: &Row) -> Option<f64> {
    row.ratio.map(|ratio| ratio.value)
}

const ADAPTIVE: &str = DealingPolicy::Adaptive.name();

fn summary(rows: &[Row]) -> [(&'static str, Option<f64>); 3] {
    let oracle =
        |is_change| worst(judged(rows, ADAPTIVE, RATIO, is_change), middle).map(|(_, ratio)| ratio);
    let against_demand = worst(judged(rows, ADAPTIVE, TIME, true), against_demand);
    [
        ("adaptive_vs_demand_worst_ratio", against_demand.map(|(_, ratio)| ratio)),
        ("adaptive_vs_oracle_worst_ratio", oracle(true)),
        ("static_vs_oracle_ratio", oracle(false)),
    ]
}

fn table(rows: &[Row], setting: Setting, factors: &[u64], percents: &[u64]) -> Option<Table> {
    let cases: Vec<String> = cases(setting, factors, percents)
        .into_iter()
        .map(|(factor, speeds)| speeds.case(setting, factor))
        .collect();
    let is_measured =
        |case: &String| rows.iter().any(|row| row.case == *case && row.spread.is_some());
    let cases: Vec<String> = cases.into_iter().filter(is_measured).collect();
    if cases.is_empty() {
        return None;
    }
    let columns = POLICIES.map(|dealing| dealing.name().to_owned());
    Some(grid(
        &format!("Execution time over the oracle’s, {}", setting.name()),
        &format!("Medians of the rounds. Computation is emulated by {}.", setting.mode.name()),
        "case",
        &columns,
        &cases,
        |case, variant| median(rows, case, variant, RATIO),
    ))
}

/// One for each setting and factor of all, over the probability, and one over the factor.
fn figures(rows: &[Row], factors: &[u64]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for setting in SETTINGS {
        let file = setting.name().to_lowercase().replace(", ", "-").replace([' ', '/'], "");
        for factor in factors {
            let start = format!("{}, factor {factor}, ", setting.name());
            let is_own = |row: &Row| is_changing(&row.case) && row.case.starts_with(&start);
            figures.push(figure(
                &format!("{file}-{factor}.svg"),
                format!("{}, slow blocks take {factor} times as long", setting.name()),
                axis("blocks that are slow (%)"),
                axis("execution time (ms)"),
                curves(rows, is_own),
            ));
        }
        let start = format!("{}, factor ", setting.name());
        let is_own = |row: &Row| !is_changing(&row.case) && row.case.starts_with(&start);
        figures.push(figure(
            &format!("{file}-standing.svg"),
            format!("{}, one host is slow", setting.name()),
            axis("by which factor the host is slow"),
            axis("execution time (ms)"),
            curves(rows, is_own),
        ));
    }
    figures
}

/// Curves of the policies, and the oracle’s, which is below all of them.
fn curves(rows: &[Row], is_own: impl Fn(&Row) -> bool + Copy) -> Vec<Series> {
    let policy = |(colour, dealing): (usize, &DealingPolicy)| Series {
        name: dealing.name().to_owned(),
        colour,
        points: points(rows, TIME, dealing.name(), is_own),
    };
    let mut series: Vec<Series> = POLICIES.iter().enumerate().map(policy).collect();
    let mut bound = points(rows, TIME, ADAPTIVE, is_own);
    for point in &mut bound {
        let row = rows.iter().find(|row| {
            row.variant == ADAPTIVE
                && row.metric == TIME.name
                && row.x == Some(point.x)
                && is_own(row)
        });
        let ratio = row.and_then(|row| median(rows, &row.case, ADAPTIVE, RATIO));
        point.y /= ratio.unwrap_or(f64::NAN);
        (point.low, point.high) = (point.y, point.y);
    }
    bound.retain(|point| point.y.is_finite());
    series.push(Series { name: ORACLE.to_owned(), colour: 6, points: bound });
    series
}

/// Of adaptive dealing, the largest of a number of all rows that are judged.
fn largest(
    result: &ResultFile,
    metric: Metric,
    is_change: bool,
    of: fn(&ResultFile, At<'_>) -> Evidence,
) -> Evidence {
    let rows = judged(&result.rows, ADAPTIVE, metric, is_change);
    let number =
        |row: &Row| of(result, At { case: &row.case, variant: ADAPTIVE, metric: metric.name });
    let all = rows.map(number).collect::<Result<Vec<_>, _>>()?;
    Estimate::largest(all).ok_or_else(|| "adaptive dealing was not measured".to_owned())
}

/// The paper's two kinds of sockets, dealt on demand, where they differ most.
fn kinds_of_sockets(result: &ResultFile) -> Evidence {
    const DEMAND: &str = DealingPolicy::Demand.name();
    let [tcp, ring, ..] = SETTINGS;
    let start = format!("{}, ", tcp.name());
    fn at(case: &str) -> At<'_> {
        At { case, variant: DEMAND, metric: TIME.name }
    }
    let tcp_rows =
        result.rows.iter().filter(|row| row.variant == DEMAND && row.metric == TIME.name);
    let ratio = |row: &Row| {
        let what = row.case.strip_prefix(&start).filter(|_| is_changing(&row.case))?;
        let other = format!("{}, {what}", ring.name());
        Estimate::ratio_of_medians(result, at(&other), at(&row.case)).ok()
    };
    let all: Vec<Estimate> = tcp_rows.filter_map(ratio).collect();
    let [most, least] = [Estimate::largest(all.clone()), Estimate::smallest(all)];
    let farther = |most: Estimate, least: Estimate| match most.value * least.value > 1.0 {
        true => most,
        false => least,
    };
    most.zip(least)
        .map(|(most, least)| farther(most, least))
        .ok_or_else(|| "demand was not measured with both".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Sample, Samples};

    fn sample(case: &str, variant: &str, metric: Metric, round: usize, value: f64) -> Sample {
        Sample { x: Some(20.0), ..Sample::new(case, variant, metric, round, value) }
    }

    #[test]
    fn the_worst_case_is_what_counts_and_only_where_dealing_decides() {
        let [tcp, ring, large, .., link] = SETTINGS;
        let mut samples = Samples::default();
        for round in 1..=5 {
            for (setting, time) in [(tcp, 110.0), (large, 105.0), (ring, 200.0), (link, 500.0)] {
                let [change, stand] =
                    [Speeds::Change(20), Speeds::Stand].map(|speeds| speeds.case(setting, 4));
                samples.0.extend([
                    sample(&change, ADAPTIVE, TIME, round, time),
                    sample(&change, ADAPTIVE, RATIO, round, time / 100.0),
                    sample(&change, DealingPolicy::Demand.name(), TIME, round, 100.0),
                    sample(&stand, ADAPTIVE, RATIO, round, time / 104.0),
                ]);
            }
        }
        let values =
            summary(&samples.rows(DealingPolicy::Demand.name())).map(|(_, value)| value.unwrap());
        assert_eq!(values, [1.1, 1.1, 110.0 / 104.0]);
    }

    #[test]
    fn few_cases_are_those_of_a_middle_factor() {
        let few = SETTINGS[3];
        assert_eq!(
            cases(few, &[2, 4, 8], &[0, 20, 100]),
            [(4, Speeds::Change(20)), (4, Speeds::Stand)]
        );
        assert_eq!(cases(SETTINGS[0], &[2, 4], &[0, 20]).len(), 6);
        // Of a damaged file.
        assert_eq!(cases(few, &[], &[]), []);
    }
}
