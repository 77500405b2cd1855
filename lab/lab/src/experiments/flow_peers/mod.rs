//! `flow-peers`: one pipeline of four stages over seekwire-flow and over other runtimes: how many
//! blocks pass, how long one takes, how much memory a slow consumer costs, and how soon a copy that
//! stood still regains its share.

mod auto;
mod cases;
mod claims;
mod programs;
mod recovery;
mod tables;

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::claim::Evidence;
use crate::experiment::{Context, Experiment};
use crate::outcome::{Findings, Outcome, Recorded, ResultFile};
use crate::pipeline::PipelineOrder;
use crate::schedule::{Group, Trial, Variant, alternate};
use cases::{
    CROSSBEAM, GROWTH, HELD, MEDIAN, OTHERS, PAUSE, PEAK, RATE, RECOVERY, RING, RuntimeVariant,
    SIZES, SLOW, TAIL, VARIANTS, case,
};
use programs::{Carrier, Pipelines, Runtime};

pub(super) struct FlowPeers;

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

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// An order for blocks of that size for that time, as fast as they pass.
fn order(size: usize, milliseconds: u64) -> PipelineOrder {
    PipelineOrder {
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
    experiment_file!("flow-peers");

    fn computed(&self, words: &[&str], result: &ResultFile) -> Option<Evidence> {
        claims::computed(words, result)
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(2, 7);
        let milliseconds = context.pick(60, 400);
        let pipelines = Pipelines::new(context)?;
        let pipelines = &pipelines;
        let mut groups: Vec<Group<'_>> = SIZES
            .iter()
            .map(|&size| {
                let build = |variant: RuntimeVariant| {
                    Variant::new(variant.name, move |trial: &mut Trial| {
                        speed(pipelines, variant, size, milliseconds, trial)
                    })
                };
                Group::new(case(size), VARIANTS.map(build).into())
            })
            .collect();
        let bounded = VARIANTS.into_iter().filter(|variant| variant.is_bounded).map(|variant| {
            Variant::new(variant.name, move |trial: &mut Trial| {
                slow_consumer(pipelines, variant, trial)
            })
        });
        groups.push(Group::new(SLOW, bounded.collect()));
        let dealing = VARIANTS.into_iter().filter(|variant| variant.has_copies).map(|variant| {
            Variant::new(variant.name, move |trial: &mut Trial| pause(pipelines, variant, trial))
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
        tables::findings(self.file(), recorded)
    }
}

fn speed(
    pipelines: &Pipelines<'_>,
    variant: RuntimeVariant,
    size: u64,
    milliseconds: u64,
    trial: &mut Trial,
) -> Result<()> {
    let milliseconds = if trial.is_warm_up() { milliseconds / 4 } else { milliseconds };
    let order = order(size as usize, milliseconds);
    let full = pipelines.run(variant.runtime, order)?;
    let (name, x) = (case(size), Some(size as f64));
    trial.record(&name, x, RATE, full.blocks as f64 / full.seconds);
    let single = pipelines
        .run(variant.runtime, PipelineOrder { interval_ns: nanoseconds(INTERVAL), ..order })?;
    let latencies = single.p50_ns.zip(single.p99_ns).context("no latencies were reported")?;
    trial.record(&name, x, MEDIAN, latencies.0 as f64 / 1e3);
    trial.record(&name, x, TAIL, latencies.1 as f64 / 1e3);
    Ok(())
}

fn slow_consumer(
    pipelines: &Pipelines<'_>,
    variant: RuntimeVariant,
    trial: &mut Trial,
) -> Result<()> {
    let order = PipelineOrder {
        limit: SLOW_LIMIT,
        sink_ns: nanoseconds(SLOW_SINK),
        ..order(SLOW_SIZE, if trial.is_warm_up() { 20 } else { 300 })
    };
    let report = pipelines.run(variant.runtime, order)?;
    let resident = report.resident.context("no memory was reported")?;
    let growth = resident.growth() as f64 / (STREAMS * SLOW_LIMIT as u64) as f64;
    trial.record(SLOW, None, GROWTH, growth);
    if let Some(held) = report.held {
        trial.record(SLOW, None, HELD, held);
    }
    if variant.runtime == Runtime::Flow(Carrier::Ring) {
        trial.record(SLOW, None, RING, resident.shared as f64 / f64::from(1 << 20));
    }
    trial.record(SLOW, None, PEAK, growth.max(report.held.unwrap_or(0.0)));
    Ok(())
}

fn pause(pipelines: &Pipelines<'_>, variant: RuntimeVariant, trial: &mut Trial) -> Result<()> {
    if trial.is_warm_up() {
        // No warm-up is left to do, and it is known to start.
        return Ok(());
    }
    let order = PipelineOrder {
        limit: PAUSE_LIMIT,
        service_ns: nanoseconds(SERVICE),
        pause_ms: PAUSE_TIME.as_millis() as u64,
        ..order(PAUSE_SIZE, 800)
    };
    let report = pipelines.run(variant.runtime, order)?;
    let recovery = recovery::of(&report.copies, PAUSE_TIME)?;
    trial.record(PAUSE, None, RECOVERY, recovery.service_times);
    trial.record(PAUSE, None, OTHERS, recovery.others);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_is_in_one_figure() {
        let shown: Vec<&String> = FlowPeers.file().variants.values().flatten().collect();
        assert!(VARIANTS.iter().all(|variant| shown.iter().any(|name| *name == variant.name)));
        assert_eq!(shown.len(), VARIANTS.len());
    }
}
