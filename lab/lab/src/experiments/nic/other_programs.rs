//! Our own program and those of others, in turns, with all offloads on and neither a slow link nor
//! a weak host.

use std::time::Duration;

use anyhow::Result;
use seekwire_gauge::{Test, TestKind};
use seekwire_testbed::Testbed;

use super::cases::LARGE;
use crate::experiment::Context;
use crate::network::other_programs::Tool;
use crate::network::step::OffloadStep;
use crate::network::test_processes::{Host, TestProcesses};
use crate::network::{LATENCY, THROUGHPUT};
use crate::record::{Metric, Sample, Samples};
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::text;

/// Our own program among others.
pub(super) const OWN: &str = "seekwire";

/// Bytes of messages, and the program whose latency is compared; sockperf's have 14 at least.
pub(super) const SMALL: [(usize, Tool); 2] = [(1, Tool::Qperf), (64, Tool::Sockperf)];

/// Pairs of ours and of another program for each round. Tests of the same kind differ by a third
/// from one to the next, however long they are: within one of them the rate hardly changes. So many
/// short ones are more precise than a few long ones.
const STREAMS: usize = 8;
const LATENCIES: usize = 3;

/// Our measurement over that of another program, taken next to it.
pub(super) const RATIO: Metric = Metric::higher("seekwire over it", "");

/// The case of a comparison.
pub(super) fn case(tool: Tool, metric: Metric, size: u64) -> String {
    format!("{} beside {}, {}", metric.name, tool.name(), text::size(size))
}

/// Seconds of each test; other programs accept only whole seconds.
const SECONDS: u64 = 1;

/// How often something is compared.
fn pairs(rounds: usize, each: usize, context: &Context<'_>) -> usize {
    rounds * context.pick(1, each)
}

/// For the parameters of a result.
pub(super) fn notes(rounds: usize, context: &Context<'_>) -> [(&'static str, usize); 3] {
    [
        ("pairs of streams, of iperf3 and ours", pairs(rounds, STREAMS, context)),
        ("pairs of latencies, of sockperf and ours", pairs(rounds, LATENCIES, context)),
        ("seconds of each test of other programs, and of ours beside it", SECONDS as usize),
    ]
}

/// Measures all comparisons.
///
/// # Errors
///
/// Only an interruption.
pub(super) fn measure(
    context: &Context<'_>,
    testbed: &Testbed,
    ends: &TestProcesses<'_, '_>,
    rounds: usize,
) -> Result<Samples> {
    let stream = |tool: Tool| {
        let case = case(tool, THROUGHPUT, LARGE as u64);
        let name = case.clone();
        let other = Variant::new(tool.name(), move |trial: &mut Trial| {
            ends.hosts().set(OffloadStep::Joining)?;
            trial.record(name.clone(), None, THROUGHPUT, tool.stream(testbed, LARGE, SECONDS)?);
            Ok(())
        });
        Group::new(case.clone(), vec![own(ends, case, TestKind::Stream, LARGE), other])
    };
    let latency = |(size, tool): (usize, Tool)| {
        let case = case(tool, LATENCY, size as u64);
        let name = case.clone();
        let other = Variant::new(tool.name(), move |trial: &mut Trial| {
            ends.hosts().set(OffloadStep::Joining)?;
            trial.record(name.clone(), None, LATENCY, tool.latency(testbed, size, SECONDS)?);
            Ok(())
        });
        let own = own(ends, case.clone(), TestKind::RequestResponse, size);
        Group::new(case, vec![own, other])
    };
    let [qperf, sockperf] = SMALL.map(latency);
    let mut repeated = vec![(STREAMS, vec![stream(Tool::Iperf3)])];
    // In quick runs only the summary's comparisons: sockperf alone takes long to calibrate itself.
    if !context.quick() {
        repeated.push((LATENCIES, vec![sockperf]));
        repeated.push((1, vec![stream(Tool::Qperf), qperf]));
    }
    let mut samples = Samples::default();
    for (each, groups) in &mut repeated {
        samples.0.extend(alternate(groups, pairs(rounds, *each, context), context.progress())?.0);
    }
    let ratios = ratios(&samples);
    samples.0.extend(ratios);
    Ok(samples)
}

/// A sample for each pair: a disturbance of some minutes slows both.
fn ratios(samples: &Samples) -> Vec<Sample> {
    let others = samples.0.iter().filter(|sample| sample.variant != OWN);
    let pair = |other: &Sample| {
        let metric = other.metric?;
        let own = samples.0.iter().find(|own| {
            (own.variant == OWN && own.case == other.case)
                && (own.round, own.metric) == (other.round, Some(metric))
        })?;
        let ratio = own.outcome.as_ref().ok()? / other.outcome.as_ref().ok()?;
        Some(Sample { metric: Some(RATIO), outcome: Ok(ratio), ..other.clone() })
    };
    others.filter_map(pair).collect()
}

/// The same test by our own program.
fn own<'a>(
    ends: &'a TestProcesses<'_, '_>,
    case: String,
    kind: TestKind,
    size: usize,
) -> Variant<'a> {
    Variant::new(OWN, move |trial: &mut Trial| {
        ends.hosts().set(OffloadStep::Joining)?;
        let time = Duration::from_secs(SECONDS);
        let time = if trial.is_warm_up() { time / 10 } else { time };
        let measured = ends.run(Host::Strong, &Test::new(kind, size, time))?;
        for (metric, value) in measured.readings(1) {
            if [THROUGHPUT, LATENCY].contains(&metric) {
                trial.record(case.clone(), None, metric, value);
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_compared_with_their_own_partners() {
        let case = case(Tool::Iperf3, THROUGHPUT, LARGE as u64);
        let sample = |variant: &str, round, outcome: Result<f64, String>| Sample {
            outcome,
            ..Sample::new(&case, variant, THROUGHPUT, round, 0.0)
        };
        let samples = Samples(vec![
            sample(OWN, 1, Ok(10.0)),
            sample("iperf3", 1, Ok(10.0)),
            sample("iperf3", 2, Ok(40.0)),
            sample(OWN, 2, Ok(20.0)),
            sample(OWN, 3, Ok(20.0)),
            sample("iperf3", 3, Err("hung".to_owned())),
        ]);
        let ratios: Vec<_> =
            ratios(&samples).into_iter().map(|one| (one.round, one.variant, one.outcome)).collect();
        let of = |round, ratio| (round, "iperf3".to_owned(), Ok(ratio));
        assert_eq!(ratios, [of(1, 1.0), of(2, 0.5)], "the third has no partner");
    }
}
