//! `links`: the performance of a link between two machines, where both are network namespaces of
//! one host.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use seekwire_testbed::Testbed;

use super::{TCP, curves, message_size, program_pair, record, sweep};
use crate::bench::{
    BANDWIDTH, EFFORT, LATENCY, LATENCY_TAIL, Operation, Pair, Places, Socket, Test,
};
use crate::claim::{Claim, Criterion, Estimate, Source};
use crate::experiment::{Context, Experiment};
use crate::launch::{Mode, Traffic};
use crate::network::hosts::namespaces;
use crate::network::machines::Machines;
use crate::outcome::{At, Findings, Key, Outcome, Recorded, ResultFile};
use crate::plot::Scale;
use crate::record::{Better, Metric, Selector};
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::text;

pub(super) struct Links;

const LINK: &str = "link";
const RING: &str = "ring";

/// Size of the messages whose round trips measure how long it takes to set up a connection.
const SET_UP_SIZE: u64 = 1;
const SET_UP_CASE: &str = "set-up";
/// Time from the first look for the peer until an end has shared memory.
const SET_UP: Metric = Metric { name: "set-up", unit: "ms", better: Better::Lower };

/// Of smaller messages, more than a few are on their way at once.
const SMALL: u64 = 16 << 10;
const SIZES: [u64; 6] = [1, 64, 1 << 10, 16 << 10, 64 << 10, 1 << 20];

pub(super) const fn goal(
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

const fn bulk(variant: &'static str) -> At<'static> {
    At { case: "64 KiB", variant, metric: BANDWIDTH.name }
}

const GOALS: &[Claim] = &[
    goal(
        "a link carries as much as the ring",
        "Large messages between two machines reach at least nine tenths of the bandwidth that they have on \
         one.",
        "bandwidth of 64 KiB messages, over the link over that on the ring of one machine",
        Criterion::AtLeast(0.9),
        |result| Estimate::ratio_of_medians(result, bulk(LINK), bulk(RING)),
    ),
    goal(
        "a link carries more than TCP",
        "Large messages between two machines have more bandwidth over the link than by TCP.",
        "bandwidth of 64 KiB messages, over the link over TCP",
        Criterion::Above(1.0),
        |result| Estimate::ratio(result, bulk(LINK)),
    ),
    Claim {
        unit: "ms",
        ..goal(
            "a connection over a link is set up soon",
            "A connection that exchanges messages uses the memory of the link within 10 ms.",
            "time from the first look for the peer until an end has memory over the link, average of both",
            Criterion::AtMost(10.0),
            |result| {
                let at = At { case: SET_UP_CASE, variant: LINK, metric: SET_UP.name };
                Estimate::median(result, at)
            },
        )
    },
];

impl Experiment for Links {
    fn name(&self) -> &'static str {
        "links"
    }

    fn question(&self) -> &'static str {
        "Performance of a link between two machines, beside TCP between them and the ring of one machine."
    }

    fn about(&self) -> &'static str {
        "Two network namespaces that share a file play two machines with a link between them. The same \
         unmodified C program exchanges messages of 1 B to 1 MiB by plain TCP between the two, accelerated \
         over the link, and accelerated on the ordinary ring of one machine. Round-trip time and one-way \
         bandwidth are measured. No hypervisor takes part: this measures the code that carries bytes between \
         machines, not virtual machines."
    }

    fn paper_reference(&self) -> Option<&'static str> {
        None
    }

    fn claims(&self) -> &'static [Claim] {
        GOALS
    }

    fn duration(&self, quick: bool) -> Duration {
        Duration::from_secs(if quick { 15 } else { 210 })
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(3, 15);
        let time = Duration::from_millis(context.pick(30, 300));
        let tests = sweep(&[Operation::Pingpong, Operation::Bandwidth], &SIZES, time);

        let testbed = namespaces().map(Arc::new);
        // They hold the link until the last round has finished.
        let machines = between(&testbed).and_then(|testbed| Machines::new(Arc::clone(testbed)));
        let cable = between(&testbed).map(|testbed| Places {
            testbed: Arc::clone(testbed),
            near: Vec::new(),
            far: Vec::new(),
        });
        let link = machines.as_ref().map(Machines::places).map_err(|error| anyhow!("{error:#}"));
        let pair = |is_accelerated| program_pair(context, Socket::Tcp, is_accelerated);
        let at = |places: Result<Places>, is_accelerated| {
            places.and_then(|places| Ok(pair(is_accelerated)?.at(places)))
        };
        let mut groups = [Group::new(
            "all sizes",
            vec![
                variant(TCP, at(cable, false), &tests),
                variant(LINK, at(link, true), &tests),
                variant(RING, pair(true), &tests),
            ],
        )];
        let samples = alternate(&mut groups, rounds, context.progress())?;
        drop(groups);

        let mut parameters = context.parameters(rounds);
        parameters.insert("milliseconds per test".to_owned(), (time.as_millis() as u64).into());
        parameters.insert("sizes".to_owned(), SIZES.to_vec().into());
        Ok(Outcome { parameters, samples, baseline: TCP, violation: None })
    }

    fn findings(&self, Recorded { samples, .. }: Recorded<'_>) -> Findings {
        let rows = samples.rows(TCP);
        let figure = |file, title, scale, metric| {
            curves(file, title, message_size(), scale, metric, &rows, &[TCP, LINK, RING])
        };
        let figures = vec![
            figure("bandwidth.svg", "One-way bandwidth", Scale::Linear, BANDWIDTH),
            figure("latency.svg", "Round trip, median", Scale::Log10, LATENCY),
            figure("latency-p99.svg", "Round trip, 99th percentile", Scale::Log10, LATENCY_TAIL),
            figure("effort.svg", "Processor time of both ends", Scale::Log10, EFFORT),
        ];
        let ratio = |case, metric: Metric, other| {
            let select = |variant| Selector { case, variant, metric };
            samples.ratio(select(LINK), select(other)).map(|ratio| ratio.value)
        };
        let set_up = Selector { case: SET_UP_CASE, variant: LINK, metric: SET_UP };
        let median = samples.median(set_up);
        let keys = [
            (
                "link_vs_ring_bulk",
                "bandwidth of 64 KiB messages, over the link over that on the ring of one machine; 1 means that \
                 nothing is lost, higher is better",
                ratio("64 KiB", BANDWIDTH, RING),
            ),
            (
                "link_vs_ring_latency",
                "median 64 B round trip, over the link over that on the ring of one machine; lower is better",
                ratio("64 B", LATENCY, RING),
            ),
            (
                "link_vs_tcp_bulk",
                "bandwidth of 64 KiB messages, over the link over TCP between the namespaces; higher is better",
                ratio("64 KiB", BANDWIDTH, TCP),
            ),
            (
                "link_set_up_ms",
                "milliseconds from the first look for the peer until an end has memory over a link, on average of \
                 both ends; lower is better",
                median,
            ),
            (
                "link_vs_tcp_latency",
                "median 64 B round trip, over the link over TCP between the namespaces; lower is better",
                ratio("64 B", LATENCY, TCP),
            ),
        ];
        let keys = keys.into_iter();
        let summary =
            keys.filter_map(|(name, meaning, value)| Key::measured(name, meaning, value)).collect();
        Findings { summary, figures, tables: Vec::new() }
    }
}

/// The two namespaces, or why there are none.
fn between(made: &Result<Arc<Testbed>, seekwire_testbed::Error>) -> Result<&Arc<Testbed>> {
    made.as_ref().map_err(|error| anyhow!("there are no network namespaces here: {error}"))
}

/// A variant in which the peers of `pair` run `tests`, each in processes of its own: only then do
/// their counters reveal a single test that stayed on TCP.
fn variant<'a>(name: &str, pair: Result<Pair>, tests: &[Test]) -> Variant<'a> {
    let pair = match pair {
        Ok(pair) => pair,
        Err(error) => return Variant::unavailable(name, format!("{error:#}")),
    };
    let tests = tests.to_vec();
    let is_accelerated = !matches!(pair.mode, Mode::Plain);
    Variant::new(name, move |trial: &mut Trial| {
        for test in &tests {
            let before = trial.traffic().unwrap_or_default();
            let mut reports = Vec::new();
            pair.run(slice::from_ref(test), trial, |_, report| reports.push(report))?;
            if is_accelerated {
                let traffic = trial.traffic().unwrap_or_default().since(before);
                check(test, traffic)?;
                let tells = test.operation == Operation::Pingpong && test.size == SET_UP_SIZE;
                if let Some(microseconds) = traffic.set_up().filter(|_| tells) {
                    trial.record(SET_UP_CASE, None, SET_UP, microseconds / 1e3);
                }
            }
            reports.into_iter().for_each(|report| record(trial, report));
        }
        Ok(())
    })
}

/// Fails if a test did not go through shared memory.
pub(super) fn check(test: &Test, Traffic { ring, tcp, .. }: Traffic) -> Result<()> {
    let is_shared = match test.operation {
        // The median is that of most round trips.
        Operation::Pingpong => ring > tcp,
        // A sender leaves a ring that is full of small messages until the receiver has caught up.
        _ if test.size < SMALL => ring > tcp / 100,
        _ => ring > tcp,
    };
    let (operation, size) = (test.operation.name(), text::size(test.size));
    ensure!(
        is_shared,
        "{operation} of {size}: {ring} bytes went through shared memory and {tcp} by TCP; `seekwire doctor` may \
         say why"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Peer;
    use crate::network::hosts::namespaces_if_permitted;
    use crate::progress::Progress;
    use crate::streambench;

    const TIME: Duration = Duration::from_millis(1);

    #[test]
    fn what_went_by_tcp_is_no_result() {
        let check = |operation, ring, tcp| {
            super::check(
                &Test { operation, size: 64, time: TIME },
                Traffic { ring, tcp, ..Traffic::default() },
            )
        };
        let large = |ring, tcp| {
            let test = Test { operation: Operation::Bandwidth, size: 65536, time: TIME };
            super::check(&test, Traffic { ring, tcp, ..Traffic::default() })
        };
        large(1001, 1000).unwrap();
        large(1000, 1000).unwrap_err();
        for operation in [Operation::Pingpong, Operation::Bandwidth] {
            check(operation, 1001, 1000).unwrap();
            check(operation, 0, 0).unwrap_err();
            let error = check(operation, 0, 1000).unwrap_err().to_string();
            assert!(
                error.contains(" of 64 B: 0 bytes") && error.contains("1000 by TCP"),
                "{error}"
            );
        }
        check(Operation::Pingpong, 1000, 1000).unwrap_err();
        check(Operation::Bandwidth, 11, 1000).unwrap();
        check(Operation::Bandwidth, 10, 1000).unwrap_err();
    }

    #[test]
    fn programs_in_two_namespaces_meet_at_the_far_address() {
        let Some(testbed) = namespaces_if_permitted().map(Arc::new) else { return };
        let program = Peer::Program(streambench::path().unwrap().to_owned());
        let pair = Pair::new(program, Socket::Tcp, Mode::Plain);
        // Only the far namespace has the address that the server binds.
        let pair = pair.at(Places { testbed, near: Vec::new(), far: Vec::new() });
        let tests = sweep(&[Operation::Pingpong, Operation::Bandwidth], &[64], TIME);
        let mut groups = [Group::new("64 B", vec![variant(TCP, Ok(pair), &tests)])];
        let samples = alternate(&mut groups, 1, &Progress::silent()).unwrap();
        let found: Vec<_> = samples.0.iter().map(|sample| (&*sample.case, sample.metric)).collect();
        let metrics = [LATENCY, LATENCY_TAIL, BANDWIDTH, EFFORT];
        assert_eq!(found, metrics.map(|metric| ("64 B", Some(metric))));
        assert!(samples.0.iter().all(|sample| sample.outcome.is_ok()), "{samples:?}");
    }
}
