//! Our own program and those of others, in turns, with all offloads on and neither a slow link nor a weak host.

use std::time::Duration;

use anyhow::Result;
use gauge::{Kind, Test};
use testbed::Testbed;

use super::LARGE;
use crate::experiment::Context;
use crate::network::ends::{Ends, Host};
use crate::network::others::Tool;
use crate::network::step::Step;
use crate::network::{LATENCY, THROUGHPUT};
use crate::record::{Metric, Samples};
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::text;

/// Our own program among others.
pub(super) const OWN: &str = "seekwire";

/// Bytes of messages, and the program whose latency is compared; sockperf's have 14 at least.
pub(super) const SMALL: [(usize, Tool); 2] = [(1, Tool::Qperf), (64, Tool::Sockperf)];

/// Pairs of ours and of iperf3 or sockperf for each round: on a machine with two processors two tests of the same kind
/// may differ by half.
const PAIRS: usize = 3;

/// The case of a comparison.
pub(super) fn case(tool: Tool, metric: Metric, size: u64) -> String {
    format!("{} beside {}, {}", metric.name, tool.name(), text::size(size))
}

/// How long the tests take. Other programs know whole seconds only.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// A stream of iperf3, and ours beside it, in seconds.
    iperf3: u64,
    /// How long the same goes on before: a connection begins slowly.
    omit: u64,
    /// All others, in seconds.
    others: u64,
}

impl Times {
    pub(super) fn new(context: &Context<'_>) -> Self {
        Self { iperf3: context.pick(1, 3), omit: context.pick(0, 1), others: 1 }
    }

    /// For the parameters of a result.
    pub(super) fn notes(self, rounds: usize, context: &Context<'_>) -> [(&'static str, u64); 4] {
        [
            ("pairs of tests, of ours and of iperf3 or sockperf", pairs(rounds, context) as u64),
            ("seconds of each stream of iperf3 and ours", self.iperf3),
            ("seconds before, which do not count", self.omit),
            ("seconds of each test of other programs", self.others),
        ]
    }
}

fn pairs(rounds: usize, context: &Context<'_>) -> usize {
    rounds * context.pick(1, PAIRS)
}

/// Measures all that is compared.
///
/// # Errors
///
/// Only an interruption.
pub(super) fn measure(
    context: &Context<'_>,
    testbed: &Testbed,
    ends: &Ends<'_, '_>,
    rounds: usize,
    times: Times,
) -> Result<Samples> {
    let large = LARGE as u64;
    let stream = |tool: Tool, seconds: u64, omit: u64| {
        let case = case(tool, THROUGHPUT, large);
        let name = case.clone();
        let other = Variant::new(tool.name(), move |trial: &mut Trial| {
            ends.hosts().set(Step::Joining)?;
            let (seconds, omit) = if trial.is_warm_up() { (1, 0) } else { (seconds, omit) };
            trial.record(name.clone(), None, THROUGHPUT, tool.stream(testbed, LARGE, seconds, omit)?);
            Ok(())
        });
        Group::new(case.clone(), vec![own(ends, case, Kind::Stream, LARGE, seconds, omit), other])
    };
    let latency = |(size, tool): (usize, Tool)| {
        let case = case(tool, LATENCY, size as u64);
        let name = case.clone();
        let other = Variant::new(tool.name(), move |trial: &mut Trial| {
            ends.hosts().set(Step::Joining)?;
            trial.record(name.clone(), None, LATENCY, tool.latency(testbed, size, times.others)?);
            Ok(())
        });
        let own = own(ends, case.clone(), Kind::RequestResponse, size, times.others, 0);
        Group::new(case, vec![own, other])
    };
    let mut often = vec![stream(Tool::Iperf3, times.iperf3, times.omit)];
    let mut seldom = Vec::new();
    // In a hurry only what the summary needs: sockperf alone takes its time to calibrate itself.
    if !context.quick() {
        let [qperf, sockperf] = SMALL.map(latency);
        often.push(sockperf);
        seldom.extend([stream(Tool::Qperf, times.others, 0), qperf]);
    }
    let mut samples = alternate(&mut often, pairs(rounds, context), context.progress())?;
    samples.0.extend(alternate(&mut seldom, rounds, context.progress())?.0);
    Ok(samples)
}

/// The same test by our own program.
fn own<'a>(
    ends: &'a Ends<'_, '_>,
    case: String,
    kind: Kind,
    size: usize,
    seconds: u64,
    omit: u64,
) -> Variant<'a> {
    Variant::new(OWN, move |trial: &mut Trial| {
        ends.hosts().set(Step::Joining)?;
        let time = Duration::from_secs(seconds);
        let time = if trial.is_warm_up() { time / 10 } else { time };
        let warm_up =
            if trial.is_warm_up() { Duration::ZERO } else { Duration::from_secs(omit).max(time / 10) };
        let measured = ends.run(Host::Strong, &Test { warm_up, ..Test::new(kind, size, time) })?;
        for (metric, value) in measured.readings(1) {
            if [THROUGHPUT, LATENCY].contains(&metric) {
                trial.record(case.clone(), None, metric, value);
            }
        }
        Ok(())
    })
}
