//! `sockets`: latency, bandwidth and message rate over message size, in the manner of NetPIPE.

use std::time::Duration;

use anyhow::Result;

use super::published_yasmin;
use super::result_names::LIMIT;
use super::sweep::{
    ACCELERATED, TCP, UNIX, curves, message_size, pair_variant, program_variant, sweep,
};
use crate::bench::{
    BANDWIDTH, EFFORT, LATENCY, LATENCY_TAIL, Operation, Peer, PeerPair, RATE, Socket, Test,
};
use crate::claim::Evidence;
use crate::experiment::{Context, Experiment};
use crate::limits::{self, CACHE_LINE, COPY, Copying, PIPELINE, TWO_COPIES};
use crate::outcome::{Findings, Outcome, Recorded, ResultFile};
use crate::plot::Scale;
use crate::record::{Samples, Selector};
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::text;

pub(super) struct Sockets;

/// Both sides spin longer than any wait of these tests.
const SPIN_US: &str = "1000";

const TCP_POLLED: &str = "TCP, busy polling";
const SPINNING: &str = "accelerated, spinning";
const SLEEPING: &str = "accelerated, sleeping";
const API: &str = "Rust API";
const IN_PLACE: &str = "Rust API, in place";

const CHUNKS: [usize; 3] = [16 << 10, 32 << 10, 64 << 10];
const POOLS: [usize; 3] = [128 << 10, 512 << 10, 2 << 20];

impl Experiment for Sockets {
    experiment_file!("sockets");

    fn computed(&self, words: &[&str], result: &ResultFile) -> Option<Evidence> {
        (words == ["over memory"]).then(|| published_yasmin::bulk_over_memory(result))
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(3, 7);
        let time = Duration::from_millis(context.pick(30, 60));
        let sizes: Vec<u64> = match context.quick() {
            true => vec![1, 64, 1 << 10, 16 << 10, 64 << 10, 1 << 20],
            false => (0..=22).map(|power| 1 << power).collect(),
        };
        let mut groups = [Group::new("all sizes", variants(context, &sizes, time))];
        let samples = alternate(&mut groups, rounds, context.progress())?;
        drop(groups);

        let mut parameters = context.parameters(rounds);
        parameters.insert("milliseconds per test".to_owned(), (time.as_millis() as u64).into());
        parameters.insert("sizes".to_owned(), sizes.into());
        parameters.insert("memory chunks".to_owned(), CHUNKS.to_vec().into());
        parameters.insert("memory pools".to_owned(), POOLS.to_vec().into());
        Ok(Outcome { parameters, samples, baseline: TCP, violation: None })
    }

    fn findings(&self, Recorded { samples, .. }: Recorded<'_>) -> Findings {
        let rows = samples.rows(TCP);
        let all = [TCP, UNIX, ACCELERATED, API, IN_PLACE, TCP_POLLED, SPINNING, SLEEPING];
        let figure = |file, title, scale, metric| {
            curves(file, title, message_size(), scale, metric, &rows, &all)
        };
        let figures = vec![
            figure("bandwidth.svg", "One-way bandwidth", Scale::Linear, BANDWIDTH),
            figure("latency.svg", "Round trip, median", Scale::Log10, LATENCY),
            figure("latency-p99.svg", "Round trip, 99th percentile", Scale::Log10, LATENCY_TAIL),
            figure("effort.svg", "Processor time of both ends", Scale::Log10, EFFORT),
            figure("rate.svg", "One-way message rate", Scale::Log10, RATE),
        ];
        Findings {
            summary: self.file().summary(samples, &of_memory(samples)),
            figures,
            tables: Vec::new(),
        }
    }
}

fn variants<'a>(context: &Context<'_>, sizes: &[u64], time: Duration) -> Vec<Variant<'a>> {
    let everything =
        sweep(&[Operation::Pingpong, Operation::Bandwidth, Operation::Rate], sizes, time);
    // The way of waiting matters for round trips of small messages.
    let small: Vec<u64> =
        sizes.iter().copied().filter(|&size| size <= 64 << 10 && size.ilog2() % 2 == 0).collect();
    let round_trips = sweep(&[Operation::Pingpong], &small, time);
    let program = |name, socket, accelerated, tests: &Vec<Test>| {
        program_variant(context, name, socket, accelerated, tests.clone(), |pair| pair)
    };
    let with_spin = |name, spin: &'static str| {
        let tests = round_trips.clone();
        program_variant(context, name, Socket::Tcp, true, tests, |pair| {
            pair.env("SEEKWIRE_SPIN_US", spin)
        })
    };
    vec![
        program(TCP, Socket::Tcp, false, &everything),
        program(UNIX, Socket::Unix, false, &everything),
        program(ACCELERATED, Socket::Tcp, true, &everything),
        with_spin(SPINNING, SPIN_US),
        with_spin(SLEEPING, "0"),
        program_variant(context, TCP_POLLED, Socket::Tcp, false, round_trips.clone(), |pair| {
            pair.wait("spin")
        }),
        role(context, API, "stream", everything.clone()),
        role(context, IN_PLACE, "in-place", everything),
        Variant::new(LIMIT, move |trial: &mut Trial| physical_limits(trial, time)),
    ]
}

/// A variant in which the peers use an API of Seekwire themselves, without the library preloaded.
fn role<'a>(context: &Context<'_>, name: &str, api: &'static str, tests: Vec<Test>) -> Variant<'a> {
    match context.peer() {
        Ok(path) => pair_variant(
            name,
            PeerPair::new(Peer::Role(path, api), Socket::Tcp, context.linked()),
            tests,
        ),
        Err(error) => Variant::unavailable(name, format!("{error:#}")),
    }
}

/// Every way to copy, and the name of its case.
fn copyings() -> impl Iterator<Item = (Copying, String)> {
    CHUNKS.into_iter().flat_map(|chunk| {
        POOLS.into_iter().map(move |pool| {
            let name =
                format!("{} chunks, pool of {}", text::size(chunk as u64), text::size(pool as u64));
            (Copying { chunk, pool }, name)
        })
    })
}

fn physical_limits(trial: &mut Trial, time: Duration) -> Result<()> {
    for (how, case) in copyings() {
        trial.record(&case, None, COPY, limits::single_copy(how, time));
        trial.record(&case, None, TWO_COPIES, limits::two_copies(how, time));
        trial.record(&case, None, PIPELINE, limits::two_copy_pipeline(how, time)?);
    }
    trial.record("cache line", None, CACHE_LINE, limits::cache_line_round_trip(time)?);
    Ok(())
}

/// Numbers of the summary. The best of all is the limit: small pools make the two wait for each
/// other, large ones leave the cache.
fn of_memory(samples: &Samples) -> [(&'static str, Option<f64>); 5] {
    let median =
        |case: &str, variant: &str, metric| samples.median(Selector { case, variant, metric });
    let best = |metric| {
        copyings().filter_map(|(_, case)| median(&case, LIMIT, metric)).max_by(f64::total_cmp)
    };
    let bulk = median("64 KiB", ACCELERATED, BANDWIDTH);
    let limit = best(PIPELINE).into_iter().chain(best(TWO_COPIES)).max_by(f64::total_cmp);
    [
        ("bulk_vs_memcpy_limit", bulk.zip(limit).map(|(bulk, limit)| bulk / limit)),
        ("single_copy_gbps", best(COPY)),
        ("two_copies_one_processor_gbps", best(TWO_COPIES)),
        ("two_copies_two_processors_gbps", best(PIPELINE)),
        ("two_copy_limit_gbps", limit),
    ]
}
