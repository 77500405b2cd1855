//! `sockets`: latency, bandwidth and message rate over message size, in the manner of NetPIPE.

use std::sync::LazyLock;
use std::time::Duration;

use anyhow::Result;

use super::names::LIMIT;
use super::{
    ACCELERATED, TCP, UNIX, curves, message_size, pair_variant, program_variant, sweep, yasmin,
};
use crate::bench::{
    BANDWIDTH, EFFORT, LATENCY, LATENCY_TAIL, Operation, Pair, Peer, RATE, Socket, Test,
};
use crate::claim::{Claim, Comparison, Criterion, Estimate, Source};
use crate::experiment::{Context, Experiment};
use crate::limits::{self, CACHE_LINE, COPY, Copying, PIPELINE, TWO_COPIES};
use crate::outcome::{At, Findings, Key, Outcome, Recorded, ResultFile};
use crate::plot::Scale;
use crate::record::{Metric, Samples, Selector};
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

const fn goal(
    title: &'static str,
    statement: &'static str,
    measure: &'static str,
    criterion: Criterion,
    evidence: fn(&ResultFile) -> Result<Estimate, String>,
) -> Claim {
    let otherwise = "it is not reached on this machine";
    let (source, published, unit, better) = (Source::Goal, "", "", None);
    Claim {
        title,
        statement,
        source,
        published,
        measure,
        unit,
        evidence,
        criterion,
        better,
        otherwise,
    }
}

const fn at(case: &'static str, variant: &'static str, metric: Metric) -> At<'static> {
    At { case, variant, metric: metric.name }
}

const GOALS: &[Claim] = &[
    goal(
        "twice the bandwidth of TCP",
        "Large messages reach at least twice the bandwidth of TCP loopback.",
        "bandwidth of 64 KiB messages, accelerated over TCP loopback",
        Criterion::AtLeast(2.0),
        |result| Estimate::ratio(result, at("64 KiB", ACCELERATED, BANDWIDTH)),
    ),
    goal(
        "more bandwidth than UNIX sockets",
        "Large messages reach at least 1.7 times the bandwidth of a UNIX socket.",
        "bandwidth of 64 KiB messages, accelerated over a UNIX socket",
        Criterion::AtLeast(1.7),
        |result| {
            let of = |variant| at("64 KiB", variant, BANDWIDTH);
            Estimate::ratio_of_medians(result, of(ACCELERATED), of(UNIX))
        },
    ),
    goal(
        "three times the bandwidth in place",
        "Messages that are made and used in place reach at least three times the bandwidth of TCP loopback.",
        "bandwidth of 64 KiB messages, Rust API in place over TCP loopback",
        Criterion::AtLeast(3.0),
        |result| Estimate::ratio(result, at("64 KiB", IN_PLACE, BANDWIDTH)),
    ),
    goal(
        "round trip awake",
        "Where both ends are awake, a small round trip takes at most a tenth of that over TCP loopback.",
        "round trip of 64 B, accelerated with both ends awake over TCP loopback",
        Criterion::AtMost(0.1),
        |result| Estimate::ratio(result, at("64 B", SPINNING, LATENCY)),
    ),
    goal(
        "round trip awake, over TCP that is polled",
        "The same where both ends of the TCP connection are also awake.",
        "round trip of 64 B, accelerated with both ends awake over TCP that both ends poll",
        Criterion::AtMost(0.1),
        |result| {
            let of = |variant| at("64 B", variant, LATENCY);
            Estimate::ratio_of_medians(result, of(SPINNING), of(TCP_POLLED))
        },
    ),
    goal(
        "round trip asleep",
        "Where both ends sleep, a small round trip takes no longer than over a UNIX socket.",
        "round trip of 64 B, accelerated with both ends asleep over a UNIX socket",
        Criterion::AtMost(1.0),
        |result| {
            let of = |variant| at("64 B", variant, LATENCY);
            Estimate::ratio_of_medians(result, of(SLEEPING), of(UNIX))
        },
    ),
    goal(
        "rate of small messages",
        "At least five times as many small messages a second as over TCP loopback.",
        "messages of 64 B per second, accelerated over TCP loopback",
        Criterion::AtLeast(5.0),
        |result| Estimate::ratio(result, at("64 B", ACCELERATED, RATE)),
    ),
];

impl Experiment for Sockets {
    fn name(&self) -> &'static str {
        "sockets"
    }

    fn question(&self) -> &'static str {
        "Latency, bandwidth and message rate against TCP loopback and UNIX sockets, by size."
    }

    fn about(&self) -> &'static str {
        "Two processes exchange messages of 1 B to 4 MiB. Round-trip time, one-way bandwidth and one-way message rate \
         are measured over kernel TCP (loopback), over UNIX sockets, with the same unmodified C program accelerated, \
         and with the Rust API, with and without copies. The limits of the memory itself stand beside them. For \
         bandwidth, the receiver takes whatever has arrived; for the rate, it receives each message by itself. In \
         place, the sender writes every byte into shared memory, and the receiver loads one byte of every cache line. \
         Elsewhere the same buffer is sent again and again, and nobody reads what was received, which favours the \
         others."
    }

    fn paper_reference(&self) -> Option<&'static str> {
        Some("the NetPIPE measurements of the YASMIN paper (intra-node sockets over shared memory)")
    }

    fn claims(&self) -> &'static [Claim] {
        static CLAIMS: LazyLock<Vec<Claim>> = LazyLock::new(|| [yasmin::SOCKETS, GOALS].concat());
        &CLAIMS
    }

    fn comparisons(&self, result: &ResultFile) -> Vec<Comparison> {
        yasmin::sockets(result)
    }

    fn duration(&self, quick: bool) -> Duration {
        Duration::from_secs(if quick { 25 } else { 420 })
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
        Findings { summary: summary(samples), figures, tables: Vec::new() }
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
            Pair::new(Peer::Role(path, api), Socket::Tcp, context.linked()),
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

fn summary(samples: &Samples) -> Vec<Key> {
    let ratio = |case, metric: Metric, numerator, denominator| {
        let select = |variant| Selector { case, variant, metric };
        samples.ratio(select(numerator), select(denominator)).map(|ratio| ratio.value)
    };
    let median =
        |case: &str, variant: &str, metric| samples.median(Selector { case, variant, metric });
    // The best of all is the limit: small pools make the two wait for each other, large ones leave
    // the cache.
    let best = |metric| {
        copyings().filter_map(|(_, case)| median(&case, LIMIT, metric)).max_by(f64::total_cmp)
    };
    let bulk = median("64 KiB", ACCELERATED, BANDWIDTH);
    let limit = best(PIPELINE).into_iter().chain(best(TWO_COPIES)).max_by(f64::total_cmp);
    let of_limit = bulk.zip(limit).map(|(bulk, limit)| bulk / limit);
    let keys = [
        (
            "bulk_vs_tcp",
            "bandwidth of 64 KiB writes, accelerated C program over TCP loopback; higher is better",
            ratio("64 KiB", BANDWIDTH, ACCELERATED, TCP),
        ),
        (
            "bulk_vs_unix",
            "the same over a UNIX socket; higher is better",
            ratio("64 KiB", BANDWIDTH, ACCELERATED, UNIX),
        ),
        (
            "bulk_vs_memcpy_limit",
            "the same over the two-copy limit of this machine (two_copy_limit_gbps); 1 is the limit",
            of_limit,
        ),
        (
            "in_place_vs_tcp",
            "bandwidth of 64 KiB messages, Rust API in place over TCP loopback; higher is better",
            ratio("64 KiB", BANDWIDTH, IN_PLACE, TCP),
        ),
        (
            "rtt64_spin_vs_tcp",
            "median 64 B round trip, accelerated with both sides spinning over TCP that sleeps; lower is better",
            ratio("64 B", LATENCY, SPINNING, TCP),
        ),
        (
            "rtt64_spin_vs_tcp_polled",
            "the same over TCP that is busily polled by both sides; lower is better",
            ratio("64 B", LATENCY, SPINNING, TCP_POLLED),
        ),
        (
            "rtt64_sleep_vs_tcp",
            "median 64 B round trip, accelerated with both sides sleeping over TCP; lower is better",
            ratio("64 B", LATENCY, SLEEPING, TCP),
        ),
        (
            "rtt64_sleep_vs_unix",
            "the same over a UNIX socket; lower is better",
            ratio("64 B", LATENCY, SLEEPING, UNIX),
        ),
        (
            "rtt64_default_vs_tcp",
            "median 64 B round trip, accelerated as users run it over TCP; lower is better",
            ratio("64 B", LATENCY, ACCELERATED, TCP),
        ),
        (
            "rate64_vs_tcp",
            "64 B messages per second, one way, accelerated C program over TCP loopback; higher is better",
            ratio("64 B", RATE, ACCELERATED, TCP),
        ),
        (
            "rate64_vs_unix",
            "the same over a UNIX socket; higher is better",
            ratio("64 B", RATE, ACCELERATED, UNIX),
        ),
        ("single_copy_gbps", "one processor copying chunks into a pool, GB/s", best(COPY)),
        (
            "two_copies_one_processor_gbps",
            "one processor copying chunks into a pool and out again, GB/s",
            best(TWO_COPIES),
        ),
        (
            "two_copies_two_processors_gbps",
            "one processor copying chunks into a pool while another one copies them out, GB/s",
            best(PIPELINE),
        ),
        (
            "two_copy_limit_gbps",
            "the higher of the two, with the chunks and the pool that suit it best: what two processes could exchange \
             through shared memory if nothing but copying took time, GB/s",
            limit,
        ),
        (
            "cache_line_rtt_ns",
            "time for a cache line to go to another processor and back, ns",
            median("cache line", LIMIT, CACHE_LINE),
        ),
    ];
    keys.into_iter()
        .filter_map(|(name, meaning, value)| Key::measured(name, meaning, value))
        .collect()
}
