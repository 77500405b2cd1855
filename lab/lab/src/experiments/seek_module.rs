//! `seek-module`: the experiment of "Seekable sockets" where the kernel seeks by itself, as in the
//! paper.

use anyhow::{Result, bail};
use seekwire::seek::SeekMethod as SeekWay;
use seekwire_transport::seek::KernelCursor;
use seekwire_transport::sys::Fd;
use serde_json::Value;

use super::published_seek;
use super::result_names::{BULK, MODULE, POOL};
use super::search_keys::with_point;
use super::seek::Seek;
use crate::claim::{Claim, Evidence, PublishedComparison};
use crate::experiment::{Context, Experiment, Options};
use crate::experiment_file::ExperimentFile;
use crate::outcome::{Findings, Outcome, Recorded, ResultFile, SummaryValue, Table};
use crate::plot::{Axis, Figure, Scale};
use crate::search::plan::MESSAGES;
use crate::search::receiver::processor;
use crate::search::reduction::{self, Reduction, extremes};
use crate::search::{
    self, CPU, Carrier, Effort, INSTRUCTIONS, SearchCase, SearchMethod, SearchMode, SearchPlan,
    counts_instructions,
};

pub(super) struct SeekModule;

const BASELINES: [&str; 2] = [POOL, BULK];

const MODES: [SearchMode; 5] = [
    SearchMode::new(POOL, SearchMethod::Pool, Carrier::Tcp),
    SearchMode::new(BULK, SearchMethod::Bulk, Carrier::Tcp),
    SearchMode::new(MODULE, SearchMethod::Module, Carrier::Tcp),
    SearchMode::new("peek", SearchMethod::Peek, Carrier::Tcp),
    SearchMode::new("drain", SearchMethod::Drain, Carrier::Tcp),
];

/// Minimum number of bytes for each value where an emulator, which is slow, counts instructions:
/// enough for messages that are not small.
const LEAST: u64 = 32 << 20;

const NO_MODULE: &str = "the kernel module tcp_seek is not loaded (wire/docs/kernel.md); `make kernel-lab` counts \
                         instructions in a virtual machine that has it";

impl Experiment for SeekModule {
    experiment_file!("seek-module");

    fn claims(&self) -> &'static [Claim] {
        Seek.claims()
    }

    fn computed(&self, words: &[&str], result: &ResultFile) -> Option<Evidence> {
        published_seek::computed(words, result)
    }

    fn comparisons(&self, result: &ResultFile) -> Vec<PublishedComparison> {
        published_seek::search(result)
    }

    fn unavailable(&self, _: &Options) -> Option<String> {
        (!has_module().unwrap_or(false)).then(|| NO_MODULE.to_owned())
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        if !has_module()? {
            bail!("{NO_MODULE}");
        }
        // Instruction counts hardly differ from one round to the next.
        let counted = counts_instructions();
        let rounds = if counted { context.rounds(1, 2) } else { context.rounds(3, 10) };
        let effort = Effort::of(context, 3);
        let sizes: &[u64] = context.pick(
            &[100, 1460, 16 << 10, 64 << 10],
            &[10, 100, 1000, 1460, 4 << 10, 16 << 10, 64 << 10, 256 << 10],
        );
        let skips: &[u64] = context.pick(&[2, 16], &[2, 4, 8, 16]);
        let messages =
            |size: u64| if counted { (LEAST / size).clamp(100, MESSAGES) } else { MESSAGES };
        let case = |size, skip| {
            let plan = SearchPlan { messages: messages(size), ..SearchPlan::search(size, skip) };
            // Enough for the differences between connections: when sender and receiver take turns.
            let repetitions = match context.repetitions() {
                None if counted => (LEAST / (plan.size * plan.messages)).clamp(1, 10),
                _ => effort.repetitions(plan),
            };
            SearchCase { plan, modes: MODES.to_vec(), x: size as f64, repetitions }
        };
        let cases: Vec<SearchCase> = sizes
            .iter()
            .flat_map(|&size| skips.iter().map(move |&skip| case(size, skip)))
            .collect();
        let samples = search::measure(context, &cases, rounds)?;

        let mut parameters = context.parameters(rounds);
        parameters.extend(search::parameters(&samples));
        parameters.insert("sizes".to_owned(), sizes.into());
        parameters.insert("messages skipped".to_owned(), skips.into());
        parameters.insert(
            "messages per connection, by size".to_owned(),
            cases
                .iter()
                .map(|case| (case.plan.size.to_string(), Value::from(case.plan.messages)))
                .collect(),
        );
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
        let case = |size, skip| {
            let plan = SearchPlan::search(size, skip);
            SearchCase { plan, modes: MODES.to_vec(), x: size as f64, repetitions: 1 }
        };
        let cases: Vec<SearchCase> = sizes
            .iter()
            .flat_map(|&size| skips.iter().map(move |&skip| case(size, skip)))
            .collect();
        let has_instructions =
            recorded.samples.0.iter().any(|sample| sample.metric == Some(INSTRUCTIONS));
        let metric = if has_instructions { INSTRUCTIONS } else { CPU };
        let reductions = reduction::reductions(recorded.samples, &cases, &BASELINES, &[metric]);
        let (figures, mut tables) = plots(&reductions, &skips);
        tables.push(reduction::table(&reductions));
        Findings { summary: summary(self.file(), &reductions, has_instructions), tables, figures }
    }
}

/// Tries it with a socket of its own.
fn has_module() -> Result<bool> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let socket = std::net::TcpStream::connect(listener.local_addr()?)?;
    Ok(KernelCursor::by(SeekWay::Module, Fd::from(&socket)).is_ok())
}

/// The paper's plot: one for each method and baseline, with one curve for each N, and the numbers
/// as a table.
fn plots(reductions: &[Reduction], skips: &[u64]) -> (Vec<Figure>, Vec<Table>) {
    let (mut figures, mut tables) = (Vec::new(), Vec::new());
    for baseline in BASELINES {
        for mode in MODES.into_iter().filter(|mode| mode.method.of_tcp().is_some()) {
            let of = |skip| -> Vec<&Reduction> {
                let belongs = |reduction: &&Reduction| {
                    reduction.mode == mode
                        && reduction.baseline == baseline
                        && reduction.plan.skip == skip
                };
                reductions.iter().filter(belongs).collect()
            };
            let curves: Vec<_> =
                skips.iter().map(|&skip| (format!("N = {skip}"), of(skip))).collect();
            if curves.iter().all(|(_, points)| points.is_empty()) {
                continue;
            }
            let title = format!("{} against {baseline}", mode.name);
            let x = Axis { label: "message size (bytes)".to_owned(), scale: Scale::Log10 };
            tables.push(reduction::grid(title.clone(), &curves));
            figures.push(reduction::figure(
                format!("{}-{baseline}.svg", mode.name),
                title,
                x,
                baseline,
                curves,
            ));
        }
    }
    (figures, tables)
}

fn summary(
    file: &'static ExperimentFile,
    reductions: &[Reduction],
    has_instructions: bool,
) -> Vec<SummaryValue> {
    let of = |baseline: &'static str| {
        reductions.iter().filter(move |reduction| {
            reduction.mode.name == MODULE && reduction.baseline == baseline
        })
    };
    let (best, worst) = extremes(of(POOL)).unzip();
    let (_, worst_bulk) = extremes(of(BULK)).unzip();
    let [of_best, of_worst, of_bulk] = match has_instructions {
        true => [
            "best_instruction_reduction_percent",
            "worst_instruction_reduction_percent",
            "worst_instruction_reduction_vs_bulk_percent",
        ],
        false => {
            ["best_reduction_percent", "worst_reduction_percent", "worst_reduction_vs_bulk_percent"]
        }
    };
    [
        with_point(file, of_best, best),
        with_point(file, of_worst, worst),
        with_point(file, of_bulk, worst_bulk),
    ]
    .concat()
}
