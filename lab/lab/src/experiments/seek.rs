//! `seek`: the savings of a receiver that takes messages out of the middle of a stream; the
//! experiment of "Seekable sockets".

use anyhow::Result;
use serde_json::Value;

use super::published_seek;
use super::result_names::{AWAITED, BULK, POOL, SEEK};
use super::search_keys::{alone, with_point};
use crate::claim::{Evidence, PublishedComparison};
use crate::experiment::{Context, Experiment};
use crate::experiment_file::ExperimentFile;
use crate::outcome::{Findings, Outcome, Recorded, ResultFile, SummaryValue, Table};
use crate::plot::{Axis, Figure, Scale};
use crate::search::plan::MESSAGES;
use crate::search::receiver::processor;
use crate::search::reduction::{self, Reduction, extremes, on};
use crate::search::{
    self, CPU, CPU_MESSAGES, Carrier, Effort, SearchCase, SearchMethod, SearchMode, SearchPlan,
};

pub(super) struct Seek;

/// In the order of the figures.
pub(super) const BASELINES: [&str; 3] = [POOL, BULK, AWAITED];

/// The modes to compare: on each carrier the baselines, and those that should be better.
const MODES: [SearchMode; 9] = [
    SearchMode::new(POOL, SearchMethod::Pool, Carrier::Tcp),
    SearchMode::new(AWAITED, SearchMethod::Awaited, Carrier::Tcp),
    SearchMode::new(BULK, SearchMethod::Bulk, Carrier::Tcp),
    SearchMode::new(SEEK, SearchMethod::Seek, Carrier::Tcp),
    SearchMode::new("libfabric", SearchMethod::Fabric, Carrier::Tcp),
    SearchMode::new(POOL, SearchMethod::Pool, Carrier::Ring),
    SearchMode::new(BULK, SearchMethod::Bulk, Carrier::Ring),
    SearchMode::new(SEEK, SearchMethod::Seek, Carrier::Ring),
    SearchMode::new("seek, borrowed", SearchMethod::Borrow, Carrier::Ring),
];

impl Experiment for Seek {
    experiment_file!("seek");

    fn computed(&self, words: &[&str], result: &ResultFile) -> Option<Evidence> {
        published_seek::computed(words, result)
    }

    fn comparisons(&self, result: &ResultFile) -> Vec<PublishedComparison> {
        published_seek::search(result)
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(3, 10);
        let effort = Effort::of(context, 3);
        let sizes: &[u64] = context.pick(
            &[100, 1000, 1460, 16 << 10, 64 << 10],
            &[
                10,
                32,
                100,
                320,
                1000,
                1460,
                4 << 10,
                16 << 10,
                64 << 10,
                128 << 10,
                256 << 10,
                512 << 10,
                1 << 20,
            ],
        );
        let skips: &[u64] = context.pick(&[2, 16], &[2, 4, 8, 16]);
        let cases = cases(sizes, skips, |plan| effort.repetitions(plan));
        let samples = search::measure(context, &cases, rounds)?;

        let mut parameters = context.parameters(rounds);
        parameters.extend(search::parameters(&samples));
        parameters.insert("sizes".to_owned(), sizes.into());
        parameters.insert("messages skipped".to_owned(), skips.into());
        parameters.insert("messages per connection".to_owned(), MESSAGES.into());
        parameters.insert(
            "connections per value, by size".to_owned(),
            cases
                .iter()
                .map(|case| (case.plan.size.to_string(), Value::from(case.repetitions)))
                .collect(),
        );
        parameters.insert("processor of sender and receiver".to_owned(), processor().into());
        Ok(Outcome { parameters, samples, baseline: POOL, violation: None })
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        let (sizes, skips) = (recorded.numbers("sizes"), recorded.numbers("messages skipped"));
        let reductions = reduction::reductions(
            recorded.samples,
            &cases(&sizes, &skips, |_| 1),
            &BASELINES,
            &[CPU, CPU_MESSAGES],
        );
        let (figures, mut tables) = plots(&reductions, &skips);
        tables.push(reduction::table(&reductions));
        Findings { summary: summary(self.file(), &reductions), tables, figures }
    }
}

fn cases(sizes: &[u64], skips: &[u64], repetitions: impl Fn(SearchPlan) -> u64) -> Vec<SearchCase> {
    let case = |size, skip| {
        let plan = SearchPlan::search(size, skip);
        SearchCase { plan, modes: MODES.to_vec(), x: size as f64, repetitions: repetitions(plan) }
    };
    sizes
        .iter()
        .flat_map(|&size| skips.iter().map(move |&skip| (size, skip)))
        .map(|(size, skip)| case(size, skip))
        .collect()
}

/// Whether a reduction counts: everything from opening to closing, as in the paper. On the ring and
/// with libfabric, which set up memory when a connection is opened, only the messages.
fn counts(reduction: &Reduction) -> bool {
    let SearchMode { method, carrier, .. } = reduction.mode;
    let wanted =
        if carrier == Carrier::Ring || method == SearchMethod::Fabric { CPU_MESSAGES } else { CPU };
    reduction.metric == wanted
}

/// The paper's plot: one for each method, carrier and baseline, with one curve for each N; those of
/// seeks also as tables.
fn plots(reductions: &[Reduction], skips: &[u64]) -> (Vec<Figure>, Vec<Table>) {
    let (mut figures, mut tables) = (Vec::new(), Vec::new());
    for (index, baseline) in BASELINES.into_iter().enumerate() {
        for mode in MODES.into_iter().filter(|mode| !BASELINES[..=index].contains(&mode.name)) {
            let belongs = |reduction: &&Reduction, skip| {
                counts(reduction)
                    && reduction.mode == mode
                    && reduction.baseline == baseline
                    && reduction.plan.skip == skip
            };
            let curve = |&skip: &u64| {
                let points: Vec<_> =
                    reductions.iter().filter(|reduction| belongs(reduction, skip)).collect();
                (format!("N = {skip}"), points)
            };
            let x = Axis { label: "message size (bytes)".to_owned(), scale: Scale::Log10 };
            let carrier = mode.carrier.name();
            let file = format!("{}-{}-{baseline}.svg", carrier, mode.name).to_lowercase();
            let title = format!("{} over {carrier}, against {baseline}", mode.name);
            let curves: Vec<_> = skips.iter().map(curve).collect();
            if is_seek(mode) && curves.iter().any(|(_, points)| !points.is_empty()) {
                tables.push(reduction::grid(title.clone(), &curves));
            }
            figures.push(reduction::figure(file.replace(", ", "-"), title, x, baseline, curves));
        }
    }
    (figures, tables)
}

fn is_seek(mode: SearchMode) -> bool {
    matches!(mode.method, SearchMethod::Seek | SearchMethod::Borrow)
}

fn summary(file: &'static ExperimentFile, reductions: &[Reduction]) -> Vec<SummaryValue> {
    let of = |carrier, baseline: &'static str| {
        let seeks = on(reductions, carrier).filter(|reduction| is_seek(reduction.mode));
        seeks.filter(move |reduction| counts(reduction) && reduction.baseline == baseline)
    };
    // Of the methods over TCP, the one that chooses by itself.
    let tcp = |baseline| of(Carrier::Tcp, baseline).filter(|reduction| reduction.mode.name == SEEK);
    let (best, worst) = extremes(tcp(POOL)).unzip();
    let (best_ring, worst_ring) = extremes(of(Carrier::Ring, POOL)).unzip();
    let (_, worst_bulk) = extremes(tcp(BULK)).unzip();
    let example =
        tcp(POOL).find(|reduction| (reduction.plan.size, reduction.plan.skip) == (1000, 16));
    [
        with_point(file, "best_reduction_percent_tcp", best),
        with_point(file, "worst_reduction_percent_tcp", worst),
        with_point(file, "best_reduction_percent_ring", best_ring),
        with_point(file, "worst_reduction_percent_ring", worst_ring),
        alone(file, "reduction_percent_tcp_1000B_N16", example),
        with_point(file, "worst_vs_bulk_percent_tcp", worst_bulk),
    ]
    .concat()
}
