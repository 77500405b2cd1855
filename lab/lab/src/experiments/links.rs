//! `links`: the performance of a link between two machines, where both are network namespaces of
//! one host.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use seekwire_testbed::Testbed;

use super::sweep::{TCP, curves, message_size, program_pair, record, sweep};
use crate::bench::{
    BANDWIDTH, EFFORT, LATENCY, LATENCY_TAIL, LinkedHosts, Operation, PeerPair, Socket, Test,
};
use crate::experiment::{Context, Experiment};
use crate::launch::{Mode, Traffic};
use crate::network::hosts::namespaces;
use crate::network::machines::Machines;
use crate::outcome::{Findings, Outcome, Recorded};
use crate::plot::Scale;
use crate::record::Metric;
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::text;

pub(super) struct Links;

const LINK: &str = "link";
const RING: &str = "ring";

/// Size of the messages whose round trips measure how long it takes to set up a connection.
const SET_UP_SIZE: u64 = 1;
const SET_UP_CASE: &str = "set-up";
/// Time from the first look for the peer until an end has shared memory.
const SET_UP: Metric = Metric::lower("set-up", "ms");

/// Of smaller messages, more than a few are on their way at once.
const SMALL: u64 = 16 << 10;
const SIZES: [u64; 6] = [1, 64, 1 << 10, 16 << 10, 64 << 10, 1 << 20];

impl Experiment for Links {
    experiment_file!("links");

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(3, 15);
        let time = Duration::from_millis(context.pick(30, 300));
        let tests = sweep(&[Operation::Pingpong, Operation::Bandwidth], &SIZES, time);

        let testbed = namespaces().map(Arc::new);
        // They hold the link until the last round has finished.
        let machines = between(&testbed).and_then(|testbed| Machines::new(Arc::clone(testbed)));
        let cable = between(&testbed).map(|testbed| LinkedHosts {
            testbed: Arc::clone(testbed),
            near: Vec::new(),
            far: Vec::new(),
        });
        let link =
            machines.as_ref().map(Machines::linked_hosts).map_err(|error| anyhow!("{error:#}"));
        let pair = |is_accelerated| program_pair(context, Socket::Tcp, is_accelerated);
        let at = |hosts: Result<LinkedHosts>, is_accelerated| {
            hosts.and_then(|hosts| Ok(pair(is_accelerated)?.at(hosts)))
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
        Findings { summary: self.file().summary(samples, &[]), figures, tables: Vec::new() }
    }
}

/// The two namespaces, or why there are none.
fn between(made: &Result<Arc<Testbed>, seekwire_testbed::Error>) -> Result<&Arc<Testbed>> {
    made.as_ref().map_err(|error| anyhow!("there are no network namespaces here: {error}"))
}

/// A variant in which the peers of `pair` run `tests`, each in processes of its own: only then do
/// their counters reveal a single test that stayed on TCP.
fn variant<'a>(name: &str, pair: Result<PeerPair>, tests: &[Test]) -> Variant<'a> {
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
    fn programs_in_two_namespaces_connect_at_the_far_address() {
        let Some(testbed) = namespaces_if_permitted().map(Arc::new) else { return };
        let program = Peer::Program(streambench::path().unwrap().to_owned());
        let pair = PeerPair::new(program, Socket::Tcp, Mode::Plain);
        // Only the far namespace has the address that the server binds.
        let pair = pair.at(LinkedHosts { testbed, near: Vec::new(), far: Vec::new() });
        let tests = sweep(&[Operation::Pingpong, Operation::Bandwidth], &[64], TIME);
        let mut groups = [Group::new("64 B", vec![variant(TCP, Ok(pair), &tests)])];
        let samples = alternate(&mut groups, 1, &Progress::silent()).unwrap();
        let measured: Vec<_> =
            samples.0.iter().map(|sample| (&*sample.case, sample.metric)).collect();
        let metrics = [LATENCY, LATENCY_TAIL, BANDWIDTH, EFFORT];
        assert_eq!(measured, metrics.map(|metric| ("64 B", Some(metric))));
        assert!(samples.0.iter().all(|sample| sample.outcome.is_ok()), "{samples:?}");
    }
}
