//! Runs a part of a pipeline, without its sinks, and estimates how fast the whole can be.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use seekwire_flow::{
    Block, CopyReport, Filter, FilterError, Guarantee, Outputs, Running, StreamReport, Unit,
};
use seekwire_program::standard;
use seekwire_program::table::{self, Align, printable};
use seekwire_values::Size;

use crate::arguments::FlowPlan;
use crate::builtin::exec;
use crate::prediction::{self, ByteCost, Predicted};
use crate::{decision_text, pipeline, run, unit_argument};

/// Columns of a sentence, for a narrow terminal.
const WIDTH: usize = 79;

/// Replaces a sink.
struct Drops;

impl Filter for Drops {
    fn process(&mut self, _: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        Ok(())
    }
}

/// Measurements of a part of the work.
struct Sample {
    seconds: f64,
    /// How long each finished unit took.
    units: Vec<Duration>,
    /// How long the unit took until then that was stopped, if not all were done in time.
    stopped: Option<Duration>,
    copies: Vec<CopyReport>,
    streams: Vec<StreamReport>,
}

pub(crate) fn plan(options: &FlowPlan) -> Result<ExitCode> {
    let (origin, units) = options.pipeline.parts();
    let mut pipeline = pipeline::read(origin)?;
    let filters = pipeline.graph.filters();
    let sinks = filters.filter(|(_, _, ports)| ports.outputs.is_empty());
    let sinks: Vec<String> = sinks.map(|(name, ..)| name.to_owned()).collect();
    for sink in &sinks {
        pipeline.graph.replace(sink, Arc::new(|| Box::new(Drops)))?;
    }
    run::end_well_at_signals(None)?;
    let running = Arc::new(pipeline.graph.start().context("the pipeline does not start")?);
    // The process exits without waiting for any filter.
    std::mem::forget(Arc::clone(&running));
    let sample = measure(&running, &units, options.time.get());
    exec::end_all();
    let sample = sample?;
    let predicted = prediction::predict(&pipeline.filters, &sample.copies, &sample.streams);
    let sent = prediction::sent(&predicted, &sample.streams);
    ensure!(sent > 0, "the sources have sent nothing that could be measured");
    let mut text = report(&sample, &predicted, sent, &sinks, options.throughput);
    if let Some(guarantee) = pipeline.guarantee {
        text += &filled(&[kept(guarantee, &sample, &predicted, sent)]);
    }
    standard::output()?.lock().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn measure(running: &Arc<Running>, units: &[OsString], longest: Duration) -> Result<Sample> {
    let once = [OsString::new()];
    let units = if units.is_empty() { &once[..] } else { units };
    let began = Instant::now();
    let sample = |units, stopped| Sample {
        seconds: began.elapsed().as_secs_f64(),
        units,
        stopped,
        copies: running.copies(),
        streams: running.streams(),
    };
    let mut done_units = Vec::new();
    for argument in units {
        let submitted = Instant::now();
        let unit = running.submit(Unit::new(unit_argument::to_text(argument)));
        let (done, outcome) = channel();
        let wait = move || {
            // Nobody receives it once the time has passed.
            let _ = done.send(unit.wait());
        };
        thread::Builder::new().spawn(wait).context("cannot start a thread")?;
        match outcome.recv_timeout(longest.saturating_sub(began.elapsed())) {
            Ok(Ok(report)) => done_units.push(report.took),
            Ok(Err(failure)) => bail!("{}", printable(&failure.to_string())),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Ok(sample(done_units, Some(submitted.elapsed())));
            }
        }
    }
    Ok(sample(done_units, None))
}

fn report(
    sample: &Sample,
    predicted: &[Predicted],
    sent: u64,
    sinks: &[String],
    rate: Option<Size>,
) -> String {
    let seconds = sample.seconds;
    let through = prediction::come_through(predicted, &sample.copies, sent);
    let how = match sample.stopped {
        None => "all of the input",
        Some(_) => "then it was stopped, so that what filters do at the end was not measured",
    };
    let mut sentences = vec![format!(
        "Measured: {seconds:.2} s, in which the sources sent {} and {} came through, {} per \
         second; {how}. Nothing was written: a sink that drops its input replaced {}.",
        table::bytes(sent),
        table::bytes(through as u64),
        per_second(through / seconds),
        sinks.join(", "),
    )];
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let busy: f64 = sample.copies.iter().map(|copy| copy.busy.as_secs_f64()).sum();
    if busy > 1.05 * seconds * processors as f64 {
        sentences.push(format!(
            "On average {:.1} copies were busy at a time, on {processors} processors: measured \
             costs are higher than they would be on enough processors.",
            busy / seconds
        ));
    }
    let mut text = filled(&sentences);
    let (target, of) = match rate.map(Size::get) {
        Some(rate) => (Some(rate as f64), format!("{} per second", table::bytes(rate))),
        None => {
            let sources = predicted.iter().filter(|one| one.is_source);
            let bound = sources.filter_map(Predicted::bound).min_by(f64::total_cmp);
            (bound, "as much as the sources can send".to_owned())
        }
    };
    text += &format!("\n{}\n", rows(predicted, target));
    text += &filled(&derived(predicted, processors, &of));
    text
}

/// Whether the pipeline will keep its guarantee.
fn kept(guarantee: Guarantee, sample: &Sample, predicted: &[Predicted], sent: u64) -> String {
    let promise = decision_text::promise(guarantee);
    let slowest = sample.units.iter().max().copied();
    let says = match (guarantee, slowest, sample.stopped) {
        (Guarantee::Latency(allowed), _, Some(stopped)) if stopped > allowed => {
            format!(
                "does not hold here: a unit was not done after {}",
                decision_text::time(stopped)
            )
        }
        (Guarantee::Latency(allowed), Some(slowest), _) => {
            let does = if slowest <= allowed { "holds here" } else { "does not hold here" };
            format!("{does}: the slowest unit took {}", decision_text::time(slowest))
        }
        (Guarantee::Rate(rate), Some(_), stopped) => {
            let count = sample.units.len() as f64;
            let measured = count / sample.units.iter().sum::<Duration>().as_secs_f64().max(1e-9);
            let bounds = predicted.iter().filter_map(Predicted::bound);
            // The sources may have sent all of the unit that was stopped.
            let most = count + if stopped.is_some() { 1.0 } else { 0.0 };
            let bound = bounds.fold(f64::INFINITY, f64::min) * most / sent as f64;
            match () {
                () if measured >= rate => format!("holds here: there were {measured:.2}"),
                () if bound >= rate => format!(
                    "does not hold here: there were {measured:.2}; the filters could do {bound:.2} \
                     on enough processors, if several units are under way"
                ),
                () => format!("cannot hold: the filters do at most {bound:.2}"),
            }
        }
        _ => "could not be tried: no unit was done; take more seconds, or smaller units".to_owned(),
    };
    format!("The guarantee that {promise} {says}. Sinks were not run.")
}

fn filled(sentences: &[String]) -> String {
    let lines = sentences.iter().flat_map(|sentence| table::wrap(sentence, WIDTH));
    lines.map(|line| line + "\n").collect()
}

fn per_second(rate: f64) -> String {
    table::bytes(rate as u64)
}

fn rows(predicted: &[Predicted], target: Option<f64>) -> String {
    let columns = [
        ("filter", Align::Left),
        ("copies", Align::Right),
        ("cost per byte", Align::Right),
        ("from", Align::Left),
        ("load", Align::Right),
        ("at most, per second", Align::Right),
        ("copies needed", Align::Right),
    ];
    let nothing = || "-".to_owned();
    let row = |one: &Predicted| {
        let nanoseconds = |cost: f64| {
            let cost = 1e9 * cost;
            let decimals = if cost < 10.0 { 2 } else { 0 };
            format!("{cost:.decimals$} ns")
        };
        let (cost, from) = match one.cost {
            ByteCost::Measured(cost) => (nanoseconds(cost), "measured"),
            ByteCost::Said(cost) => (nanoseconds(cost), "its option"),
            ByteCost::Dropped => (nothing(), "not run"),
            ByteCost::NoBytes => (nothing(), "no bytes"),
        };
        let needed = target.and_then(|target| one.needed(target)).map_or_else(nothing, |needed| {
            if needed > 1.0 && !one.is_split {
                format!("{needed}, can have 1")
            } else {
                needed.to_string()
            }
        });
        vec![
            one.filter.clone(),
            one.copies.to_string(),
            cost,
            from.to_owned(),
            format!("{:.2}", one.load),
            one.bound().map_or_else(nothing, per_second),
            needed,
        ]
    };
    table::layout(&columns, &predicted.iter().map(row).collect::<Vec<_>>())
}

/// The conclusions from the table.
fn derived(predicted: &[Predicted], processors: usize, of: &str) -> Vec<String> {
    let bounds = predicted.iter().filter_map(|one| Some((one, one.bound()?)));
    let mut sentences = Vec::new();
    if let Some((one, bound)) = bounds.min_by(|a, b| a.1.total_cmp(&b.1)) {
        let copies = if one.copies == 1 { "the one copy" } else { "all copies" };
        sentences.push(format!(
            "Derived: the pipeline takes at most {} per second from its sources, what {copies} of \
             {} can do; that is the bottleneck.",
            per_second(bound),
            one.filter
        ));
    }
    let work: f64 = predicted.iter().filter_map(Predicted::work).sum();
    if work > 0.0 {
        sentences.push(format!(
            "If all of the costs are computation, and not waiting, {processors} processors do at \
             most {} per second, however many copies there are.",
            per_second(processors as f64 / work)
        ));
    }
    sentences.push(format!("Copies needed are for {of}."));
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guarantee_is_judged_by_single_units_although_not_all_were_done() {
        let millis = Duration::from_millis;
        let says = |guarantee, units: &[u64], stopped: Option<u64>| {
            let sample = Sample {
                seconds: 2.0,
                units: units.iter().copied().map(millis).collect(),
                stopped: stopped.map(millis),
                copies: Vec::new(),
                streams: Vec::new(),
            };
            kept(guarantee, &sample, &[], 1)
        };
        let latency = Guarantee::Latency(millis(40));
        for (units, stopped, expected) in [
            (&[10, 30, 20][..], None, " holds here: the slowest unit took 30.0 ms"),
            (&[10, 30, 20], Some(35), " holds here: the slowest unit took 30.0 ms"),
            (&[10, 50], Some(35), " does not hold here: the slowest unit took 50.0 ms"),
            (&[10], Some(60), " does not hold here: a unit was not done after 60.0 ms"),
            (&[], Some(35), " could not be tried: "),
        ] {
            let said = says(latency, units, stopped);
            assert!(said.contains(expected), "{said}");
        }
        let rate = Guarantee::Rate(20.0);
        assert!(says(rate, &[40, 60], Some(10)).contains(" holds here: there were 20.00"));
        assert!(says(rate, &[], Some(10)).contains(" could not be tried: "));
    }
}
