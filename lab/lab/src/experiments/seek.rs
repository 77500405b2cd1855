//! `seek`: the savings of a receiver that takes messages out of the middle of a stream; the
//! experiment of "Seekable sockets".

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::names::{AWAITED, BULK, POOL, SEEK};
use super::search_keys::names;
use super::seekable;
use crate::claim::{Claim, Comparison};
use crate::experiment::{Context, Experiment};
use crate::outcome::{Findings, Key, Outcome, Recorded, ResultFile, Table};
use crate::plot::{Axis, Figure, Scale};
use crate::search::plan::MESSAGES;
use crate::search::receiver::processor;
use crate::search::reduction::{self, Reduction, extremes, on};
use crate::search::{self, CPU, CPU_MESSAGES, Carrier, Case, Effort, Mode, Plan, Way};

pub(super) struct Seek;

/// In the order of the figures.
pub(super) const BASELINES: [&str; 3] = [POOL, BULK, AWAITED];

/// The modes to compare: on each carrier the baselines, and those that should be better.
const MODES: [Mode; 9] = [
    Mode::new(POOL, Way::Pool, Carrier::Tcp),
    Mode::new(AWAITED, Way::Awaited, Carrier::Tcp),
    Mode::new(BULK, Way::Bulk, Carrier::Tcp),
    Mode::new(SEEK, Way::Seek, Carrier::Tcp),
    Mode::new("libfabric", Way::Fabric, Carrier::Tcp),
    Mode::new(POOL, Way::Pool, Carrier::Ring),
    Mode::new(BULK, Way::Bulk, Carrier::Ring),
    Mode::new(SEEK, Way::Seek, Carrier::Ring),
    Mode::new("seek, borrowed", Way::Borrow, Carrier::Ring),
];

impl Experiment for Seek {
    fn name(&self) -> &'static str {
        "seek"
    }

    fn question(&self) -> &'static str {
        "Savings of a receiver that takes messages out of the middle of a stream."
    }

    fn about(&self) -> &'static str {
        "A sender sends messages of one size over one connection. The receiver skips N of them, takes the following \
         one, then takes the N in order, and so on for 1000 messages. Each value stands for 100 such connections, or \
         fewer where they would move more than 4 GB (--repetitions changes that). The measured quantity is the user \
         and system time of the receiver from opening to closing. It shares a processor with the sender: on two \
         processors, every copy would also pay for the way from cache to cache. The baseline \"pool\" is the paper's: \
         each skipped message is received into a pool by itself, and copied out of there when its turn comes. The pool \
         was allocated and touched before. \"Bulk\" is what libraries do today, and a stronger baseline: they read \
         arrived bytes at once into memory of their own, and copy all messages out of there. \"Pool, awaited\" is the \
         pool with one thing borrowed from seeks: it sleeps until the wanted message has arrived (SO_RCVLOWAT). Seeks \
         save against it by copying less, not by waking up less often. Over TCP, \"seek\" is SeekStream, which chooses \
         the cheapest of its ways itself. \"Libfabric\" makes tagged receives through its tcp provider, with \
         unexpected messages, over one connection per value. \"Borrowed\" messages are used where the sender put them. \
         On the ring, both ends are attached before the messages start, and no end spins (SEEKWIRE_SPIN_US=0), in all \
         modes alike. Plots for the ring and for libfabric leave out opening and closing; the table has both. The \
         receive buffer, or the shared memory, holds the skipped messages, in all modes alike; where so large a buffer \
         is not allowed, TCP chooses it. Every mode looks at both ends of each message, where its number is, and at \
         nothing else."
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
        Duration::from_secs(if quick { 53 } else { 7200 })
    }

    fn own_options(&self) -> &'static [&'static str] {
        &["repetitions", "gigabytes", "way"]
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
        Findings { summary: summary(&reductions), tables, figures }
    }
}

fn cases(sizes: &[u64], skips: &[u64], repetitions: impl Fn(Plan) -> u64) -> Vec<Case> {
    let case = |size, skip| {
        let plan = Plan::search(size, skip);
        Case { plan, modes: MODES.to_vec(), x: size as f64, repetitions: repetitions(plan) }
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
    let Mode { way, carrier, .. } = reduction.mode;
    let wanted = if carrier == Carrier::Ring || way == Way::Fabric { CPU_MESSAGES } else { CPU };
    reduction.metric == wanted
}

/// The paper's plot: one for each way, carrier and baseline, with one curve for each N; those of
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

fn is_seek(mode: Mode) -> bool {
    matches!(mode.way, Way::Seek | Way::Borrow)
}

fn summary(reductions: &[Reduction]) -> Vec<Key> {
    let of = |carrier, baseline: &'static str| {
        let seeks = on(reductions, carrier).filter(|reduction| is_seek(reduction.mode));
        seeks.filter(move |reduction| counts(reduction) && reduction.baseline == baseline)
    };
    // Of the ways over TCP, the one that chooses by itself.
    let tcp = |baseline| of(Carrier::Tcp, baseline).filter(|reduction| reduction.mode.name == SEEK);
    let (pool, bulk, ring) =
        (extremes(tcp(POOL)), extremes(tcp(BULK)), extremes(of(Carrier::Ring, POOL)));
    let example =
        tcp(POOL).find(|reduction| (reduction.plan.size, reduction.plan.skip) == (1000, 16));
    [
        names!("best_reduction_percent_tcp").with_point(
            "processor time that seeks over TCP save the receiver against the paper's baseline, from opening to closing, %, \
             where they save most; higher is better",
            pool.map(|(best, _)| best)
        ),
        names!("worst_reduction_percent_tcp").with_point(
            "the same where they save least; negative: they cost more",
            pool.map(|(_, worst)| worst)
        ),
        names!("best_reduction_percent_ring").with_point(
            "the same over the ring, without opening and closing, where seeks (copied or borrowed) save most; higher is \
             better",
            ring.map(|(best, _)| best)
        ),
        names!("worst_reduction_percent_ring").with_point(
            "the same where they save least; negative: they cost more",
            ring.map(|(_, worst)| worst)
        ),
        names!("reduction_percent_tcp_1000B_N16").alone(
            "over TCP, messages of 1000 B, N = 16, against the paper's baseline, %; higher is better",
            example
        ),
        names!("worst_vs_bulk_percent_tcp").with_point(
            "over TCP against one bulk read and copies, %, where seeks save least; negative: they cost more",
            bulk.map(|(_, worst)| worst)
        ),
    ]
    .concat()
}
