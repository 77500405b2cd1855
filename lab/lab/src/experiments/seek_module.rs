//! `seek-module`: the experiment of "Seekable sockets" where the kernel seeks by itself, as in the
//! paper.

use std::time::Duration;

use anyhow::{Result, bail};
use seekwire::seek::Way as SeekWay;
use seekwire_transport::seek::KernelCursor;
use seekwire_transport::sys::Fd;
use serde_json::Value;

use super::names::{BULK, MODULE, POOL};
use super::search_keys::names;
use super::seekable;
use crate::claim::{Claim, Comparison};
use crate::experiment::{Context, Experiment, Options};
use crate::outcome::{Findings, Key, Outcome, Recorded, ResultFile, Table};
use crate::plot::{Axis, Figure, Scale};
use crate::search::plan::MESSAGES;
use crate::search::receiver::processor;
use crate::search::reduction::{self, Reduction, extremes};
use crate::search::{
    self, CPU, Carrier, Case, Effort, INSTRUCTIONS, Mode, Plan, Way, counts_instructions,
};

pub(super) struct SeekModule;

const BASELINES: [&str; 2] = [POOL, BULK];

const MODES: [Mode; 5] = [
    Mode::new(POOL, Way::Pool, Carrier::Tcp),
    Mode::new(BULK, Way::Bulk, Carrier::Tcp),
    Mode::new(MODULE, Way::Module, Carrier::Tcp),
    Mode::new("peek", Way::Peek, Carrier::Tcp),
    Mode::new("drain", Way::Drain, Carrier::Tcp),
];

/// Minimum number of bytes for each value where an emulator, which is slow, counts instructions:
/// enough for messages that are not small.
const LEAST: u64 = 32 << 20;

const NO_MODULE: &str = "the kernel module tcp_seek is not loaded (wire/docs/kernel.md); `make kernel-lab` counts \
                         instructions in a virtual machine that has it";

impl Experiment for SeekModule {
    fn name(&self) -> &'static str {
        "seek-module"
    }

    fn question(&self) -> &'static str {
        "Savings of seek where the kernel has the module tcp_seek."
    }

    fn about(&self) -> &'static str {
        "As seek, over TCP, where the kernel has the module tcp_seek, as the paper's kernel has its patch. What does a \
         seek by the module save the receiver against the paper's baseline (pool) and against the stronger one (bulk)? \
         The ways of a stock kernel are measured beside it: SO_PEEK_OFF (peek, Linux 6.9) and library memory (drain). \
         Where the processor counts instructions, those of the receiver are compared, otherwise its processor time. In \
         the virtual machine of `make kernel-lab`, they are the instructions that QEMU executed for it, in user space \
         and in the kernel. They are not time: a cache miss costs as much as a hit, and an instruction that copies 32 \
         bytes as much as one that copies a byte. The kernel's tracepoint counts system calls during a connection that \
         is not measured. The programs count copies, by byte of a message: bytes that came out of the kernel, and \
         bytes that the program or the library copied once more. The module's copies inside the kernel, to free the \
         rest of a buffer, are not among them, but their instructions are."
    }

    fn paper_reference(&self) -> Option<&'static str> {
        Some("figure 3 of the paper on seekable sockets")
    }

    fn claims(&self) -> &'static [Claim] {
        seekable::SEARCH
    }

    fn comparisons(&self, result: &ResultFile) -> Vec<Comparison> {
        seekable::search(result)
    }

    fn duration(&self, quick: bool) -> Duration {
        Duration::from_secs(if quick { 40 } else { 5400 })
    }

    fn unavailable(&self, _: &Options) -> Option<String> {
        (!has_module().unwrap_or(false)).then(|| NO_MODULE.to_owned())
    }

    fn own_options(&self) -> &'static [&'static str] {
        &["repetitions", "gigabytes"]
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
            let plan = Plan { messages: messages(size), ..Plan::search(size, skip) };
            // Enough for the differences between connections: when sender and receiver take turns.
            let repetitions = match context.repetitions() {
                None if counted => (LEAST / (plan.size * plan.messages)).clamp(1, 10),
                _ => effort.repetitions(plan),
            };
            Case { plan, modes: MODES.to_vec(), x: size as f64, repetitions }
        };
        let cases: Vec<Case> = sizes
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
            let plan = Plan::search(size, skip);
            Case { plan, modes: MODES.to_vec(), x: size as f64, repetitions: 1 }
        };
        let cases: Vec<Case> = sizes
            .iter()
            .flat_map(|&size| skips.iter().map(move |&skip| case(size, skip)))
            .collect();
        let has_instructions =
            recorded.samples.0.iter().any(|sample| sample.metric == Some(INSTRUCTIONS));
        let metric = if has_instructions { INSTRUCTIONS } else { CPU };
        let reductions = reduction::reductions(recorded.samples, &cases, &BASELINES, &[metric]);
        let (figures, mut tables) = plots(&reductions, &skips);
        tables.push(reduction::table(&reductions));
        Findings { summary: summary(&reductions, has_instructions), tables, figures }
    }
}

/// Tries it with a socket of its own.
fn has_module() -> Result<bool> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let socket = std::net::TcpStream::connect(listener.local_addr()?)?;
    Ok(KernelCursor::by(SeekWay::Module, Fd::from(&socket)).is_ok())
}

/// The paper's plot: one for each way and baseline, with one curve for each N, and the numbers as a
/// table.
fn plots(reductions: &[Reduction], skips: &[u64]) -> (Vec<Figure>, Vec<Table>) {
    let (mut figures, mut tables) = (Vec::new(), Vec::new());
    for baseline in BASELINES {
        for mode in MODES.into_iter().filter(|mode| mode.way.of_tcp().is_some()) {
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

fn summary(reductions: &[Reduction], has_instructions: bool) -> Vec<Key> {
    let of = |baseline: &'static str| {
        reductions.iter().filter(move |reduction| {
            reduction.mode.name == MODULE && reduction.baseline == baseline
        })
    };
    let (pool, bulk) = (extremes(of(POOL)), extremes(of(BULK)));
    let (best, worst) = (pool.map(|(best, _)| best), pool.map(|(_, worst)| worst));
    let worst_bulk = bulk.map(|(_, worst)| worst);
    let keys = match has_instructions {
        true => [
            names!("best_instruction_reduction_percent").with_point(
                "executed instructions that seeks by the module save the receiver against the paper's baseline, from \
                 opening to closing, %, where they save most; higher is better",
                best,
            ),
            names!("worst_instruction_reduction_percent")
                .with_point("the same where they save least; negative: they cost more", worst),
            names!("worst_instruction_reduction_vs_bulk_percent")
                .with_point("the same against one bulk read and copies", worst_bulk),
        ],
        false => [
            names!("best_reduction_percent").with_point(
                "processor time that seeks by the module save the receiver against the paper's baseline, from opening to \
                 closing, %, where they save most; higher is better",
                best,
            ),
            names!("worst_reduction_percent")
                .with_point("the same where they save least; negative: they cost more", worst),
            names!("worst_reduction_vs_bulk_percent")
                .with_point("the same against one bulk read and copies", worst_bulk),
        ],
    };
    keys.concat()
}
