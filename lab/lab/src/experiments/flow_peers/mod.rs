//! `flow-peers`: one pipeline of four stages over seekwire-flow and over other runtimes: how many
//! blocks pass, how long one takes, how much memory a slow consumer costs, and how soon a copy that
//! stood still regains its share.

mod auto;
mod claims;
mod recovery;
mod start;
mod tables;

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::claim::Claim;
use crate::experiment::{Context, Experiment};
use crate::outcome::{Findings, Outcome, Recorded};
use crate::pipeline::Order;
use crate::record::{Better, Metric};
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::text;
use start::{Carrier, Pipelines, Runtime, Transport};

pub(super) struct FlowPeers;

/// A runtime as tables name it.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    runtime: Runtime,
    /// Whether its memory can be bounded, so that a slow consumer is a meaningful test.
    is_bounded: bool,
    /// Whether it deals blocks to copies, of which one may stand still.
    has_copies: bool,
}

const FLOW: &str = "flow, one process";
const FLOW_RING: &str = "flow, ring";
const FLOW_TCP: &str = "flow, TCP";
const CROSSBEAM: &str = "crossbeam-channel";
const TIMELY: &str = "timely";
const TBB: &str = "oneTBB";
const GSTREAMER: &str = "GStreamer";
const ZEROMQ_TCP: &str = "ZeroMQ, tcp://";
const ZEROMQ_IPC: &str = "ZeroMQ, ipc://";
const DASK: &str = "Dask";

const fn way(name: &'static str, runtime: Runtime, is_bounded: bool, has_copies: bool) -> Way {
    Way { name, runtime, is_bounded, has_copies }
}

const WAYS: [Way; 10] = [
    way(FLOW, Runtime::Role("local"), true, true),
    way(CROSSBEAM, Runtime::Role("crossbeam"), true, true),
    way(TIMELY, Runtime::Role("timely"), true, false),
    way(TBB, Runtime::Tbb, true, false),
    way(GSTREAMER, Runtime::Gstreamer, true, false),
    way(FLOW_RING, Runtime::Flow(Carrier::Ring), true, true),
    way(FLOW_TCP, Runtime::Flow(Carrier::Tcp), true, true),
    way(ZEROMQ_TCP, Runtime::Zeromq(Transport::Tcp), true, true),
    way(ZEROMQ_IPC, Runtime::Zeromq(Transport::Ipc), true, true),
    way(DASK, Runtime::Dask, false, false),
];

/// Those that hand blocks over in one process.
const WITHIN: [&str; 5] = [FLOW, CROSSBEAM, TIMELY, TBB, GSTREAMER];
/// Those that pass them between processes.
const BETWEEN: [&str; 5] = [FLOW_RING, FLOW_TCP, ZEROMQ_TCP, ZEROMQ_IPC, DASK];

const RATE: Metric = Metric { name: "blocks", unit: "1/s", better: Better::Higher };
const MEDIAN: Metric = Metric { name: "latency p50", unit: "µs", better: Better::Lower };
const TAIL: Metric = Metric { name: "latency p99", unit: "µs", better: Better::Lower };
/// Growth of the process that grows most since before the first block, without the ring, over the
/// limits of the three streams together.
const GROWTH: Metric = Metric { name: "memory over declared", unit: "", better: Better::Lower };
/// The most that a stream held over its limit, as the runtime counts it.
const HELD: Metric = Metric { name: "held over declared", unit: "", better: Better::Lower };
/// Shared memory of a process.
const RING: Metric = Metric { name: "ring", unit: "MiB", better: Better::Lower };
/// The larger of the first two.
const PEAK: Metric = Metric { name: "peak over declared", unit: "", better: Better::Lower };
const RECOVERY: Metric =
    Metric { name: "time to full share", unit: "service times", better: Better::Lower };
const OTHERS: Metric =
    Metric { name: "work of the others meanwhile", unit: "%", better: Better::Higher };

const SIZES: [u64; 4] = [64, 2 << 10, 16 << 10, 64 << 10];
/// The size that the goals name.
const GOAL_SIZE: u64 = 2 << 10;

const SLOW: &str = "slow consumer";
const PAUSE: &str = "pause of 200 ms";

const COPIES: usize = 3;
const STREAMS: u64 = 3;
/// Limit of each stream while rates and latencies are measured.
const LIMIT: usize = 1 << 20;
/// Time between two blocks whose latencies are measured: the pipeline is empty again.
const INTERVAL: Duration = Duration::from_micros(500);

/// With a slow consumer.
const SLOW_SIZE: usize = 16 << 10;
const SLOW_LIMIT: usize = 16 << 20;
const SLOW_SINK: Duration = Duration::from_millis(1);

/// With a pause.
const PAUSE_SIZE: usize = 2 << 10;
const PAUSE_LIMIT: usize = 64 << 10;
const SERVICE: Duration = Duration::from_millis(2);
const PAUSE_TIME: Duration = Duration::from_millis(200);

fn case(size: u64) -> String {
    text::size(size)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// An order for blocks of that size for that time, as fast as they pass.
fn order(size: usize, milliseconds: u64) -> Order {
    Order {
        size,
        milliseconds,
        interval_ns: 0,
        limit: LIMIT,
        copies: COPIES,
        sink_ns: 0,
        service_ns: 0,
        pause_ms: 0,
    }
}

impl Experiment for FlowPeers {
    fn name(&self) -> &'static str {
        "flow-peers"
    }

    fn question(&self) -> &'static str {
        "One pipeline over seekwire-flow, channels, timely, oneTBB, GStreamer, ZeroMQ and Dask: speed and memory."
    }

    fn about(&self) -> &'static str {
        "The same pipeline, a source, two steps with three copies each and a sink, over seekwire-flow in one process \
         and between two, over threads and channels (the floor), timely, oneTBB, GStreamer, ZeroMQ's PUSH/PULL and \
         Dask. The source writes every block, each stage reads all of it and adds it up, and the sums are compared \
         with the expected ones. Streams may hold the same number of bytes everywhere. Rates are counted at the sink \
         at full speed; latencies are those of single blocks, from before one is made until the sink has read it, \
         every 500 µs. A slow consumer shows how much is held; a copy that stands still for 200 ms shows how soon it \
         regains its share. Where a stream of seekwire-flow finds the size of its blocks, the time for a unit of work \
         stands beside those of fixed sizes."
    }

    fn paper_reference(&self) -> Option<&'static str> {
        None
    }

    fn claims(&self) -> &'static [Claim] {
        claims::CLAIMS
    }

    fn duration(&self, quick: bool) -> Duration {
        Duration::from_secs(if quick { 60 } else { 420 })
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(2, 7);
        let milliseconds = context.pick(60, 400);
        let pipelines = Pipelines::new(context)?;
        let pipelines = &pipelines;
        let mut groups: Vec<Group<'_>> = SIZES
            .iter()
            .map(|&size| {
                let variant = |way: Way| {
                    Variant::new(way.name, move |trial: &mut Trial| {
                        speed(pipelines, way, size, milliseconds, trial)
                    })
                };
                Group::new(case(size), WAYS.map(variant).into())
            })
            .collect();
        let bounded = WAYS.into_iter().filter(|way| way.is_bounded).map(|way| {
            Variant::new(way.name, move |trial: &mut Trial| slow_consumer(pipelines, way, trial))
        });
        groups.push(Group::new(SLOW, bounded.collect()));
        let dealing = WAYS.into_iter().filter(|way| way.has_copies).map(|way| {
            Variant::new(way.name, move |trial: &mut Trial| pause(pipelines, way, trial))
        });
        groups.push(Group::new(PAUSE, dealing.collect()));
        groups.extend(auto::groups(context, pipelines));
        let samples = alternate(&mut groups, rounds, context.progress())?;
        drop(groups);

        let mut parameters = context.parameters(rounds);
        let mut note =
            |name: &str, value: serde_json::Value| parameters.insert(name.to_owned(), value);
        note("sizes", SIZES.to_vec().into());
        note("milliseconds for rates and latencies, each", milliseconds.into());
        note("bytes of each stream", LIMIT.into());
        note("bytes of each stream, slow consumer", SLOW_LIMIT.into());
        note("bytes of each stream, pause", PAUSE_LIMIT.into());
        note(
            "microseconds between blocks for latencies",
            nanoseconds(INTERVAL).div_ceil(1000).into(),
        );
        note("service time, ms, by sleeping", (nanoseconds(SERVICE) as f64 / 1e6).into());
        Ok(Outcome { parameters, samples, baseline: CROSSBEAM, violation: pipelines.violation() })
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        tables::findings(recorded)
    }
}

fn speed(
    pipelines: &Pipelines<'_>,
    way: Way,
    size: u64,
    milliseconds: u64,
    trial: &mut Trial,
) -> Result<()> {
    let milliseconds = if trial.is_warm_up() { milliseconds / 4 } else { milliseconds };
    let order = order(size as usize, milliseconds);
    let full = pipelines.run(way.runtime, order)?;
    let (name, x) = (case(size), Some(size as f64));
    trial.record(&name, x, RATE, full.blocks as f64 / full.seconds);
    let single =
        pipelines.run(way.runtime, Order { interval_ns: nanoseconds(INTERVAL), ..order })?;
    let latencies = single.p50_ns.zip(single.p99_ns).context("no latencies were reported")?;
    trial.record(&name, x, MEDIAN, latencies.0 as f64 / 1e3);
    trial.record(&name, x, TAIL, latencies.1 as f64 / 1e3);
    Ok(())
}

fn slow_consumer(pipelines: &Pipelines<'_>, way: Way, trial: &mut Trial) -> Result<()> {
    let order = Order {
        limit: SLOW_LIMIT,
        sink_ns: nanoseconds(SLOW_SINK),
        ..order(SLOW_SIZE, if trial.is_warm_up() { 20 } else { 300 })
    };
    let report = pipelines.run(way.runtime, order)?;
    let resident = report.resident.context("no memory was reported")?;
    let growth = resident.growth() as f64 / (STREAMS * SLOW_LIMIT as u64) as f64;
    trial.record(SLOW, None, GROWTH, growth);
    if let Some(held) = report.held {
        trial.record(SLOW, None, HELD, held);
    }
    if way.runtime == Runtime::Flow(Carrier::Ring) {
        trial.record(SLOW, None, RING, resident.shared as f64 / f64::from(1 << 20));
    }
    trial.record(SLOW, None, PEAK, growth.max(report.held.unwrap_or(0.0)));
    Ok(())
}

fn pause(pipelines: &Pipelines<'_>, way: Way, trial: &mut Trial) -> Result<()> {
    if trial.is_warm_up() {
        // No warm-up is left to do, and it is known to start.
        return Ok(());
    }
    let order = Order {
        limit: PAUSE_LIMIT,
        service_ns: nanoseconds(SERVICE),
        pause_ms: PAUSE_TIME.as_millis() as u64,
        ..order(PAUSE_SIZE, 800)
    };
    let report = pipelines.run(way.runtime, order)?;
    let recovery = recovery::of(&report.copies, PAUSE_TIME)?;
    trial.record(PAUSE, None, RECOVERY, recovery.service_times);
    trial.record(PAUSE, None, OTHERS, recovery.others);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_in_one_figure() {
        let shown: Vec<&str> = WITHIN.into_iter().chain(BETWEEN).collect();
        assert!(WAYS.iter().all(|way| shown.contains(&way.name)));
        assert_eq!(shown.len(), WAYS.len());
    }
}
