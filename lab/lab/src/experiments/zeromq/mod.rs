//! `zeromq`: messages of the real libzmq over all its transports, over the ring, and between two
//! hosts with their offloads in steps, after "Network hardware for business messaging", sections
//! 4.1 and 4.2.

mod cases;

use anyhow::Result;
use seekwire_gauge::Load;

use crate::experiment::{self, Context, Experiment};
use crate::experiments::by_size::{BySize, SIZES};
use crate::messaging::programs::{MessagingTransport, MessagingVariant, Programs, over_zeromq};
use crate::messaging::{MessagePattern, MessagingTest, TestReading};
use crate::network::hosts::Hosts;
use crate::network::options::NetworkOptions;
use crate::network::{self, LATENCY};
use crate::outcome::{Findings, Outcome, Recorded};
use crate::record::Metric;
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::text;
use cases::{APART, BOTH, EFFORT, HERE, QUANTILES, RATE, RECEIVER, SENDER, TCP, THROUGHPUT, case};

pub(super) struct Zeromq;

impl Experiment for Zeromq {
    experiment_file!("zeromq");

    fn unavailable(&self, options: &experiment::Options) -> Option<String> {
        // Mailboxes alone would be compared with nothing.
        let command = options.program().map_err(|error| error.to_string());
        command.and_then(|command| over_zeromq(&command)).err()
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let mut made = false;
        let with_hosts = Hosts::with(&NetworkOptions::default(), |hosts| {
            made = true;
            measure(context, &Programs::new(context, Ok(hosts))?)
        });
        match with_hosts {
            // The other variants are still measured.
            Err(error) if !made => {
                measure(context, &Programs::new(context, Err(format!("{error:#}")))?)
            }
            outcome => outcome,
        }
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        let (rows, sizes) = (recorded.samples.rows(TCP), recorded.numbers("sizes"));
        let by_size = BySize { file: self.file(), words: &[], rows: &rows };
        let mut tables = by_size.tables(&sizes);
        tables.extend(by_size.parts(&sizes));
        Findings {
            summary: self.file().summary(recorded.samples, &[]),
            tables,
            figures: by_size.figures(),
        }
    }
}

fn measure(context: &Context<'_>, programs: &Programs<'_, '_>) -> Result<Outcome> {
    let rounds = context.rounds(3, 5);
    let milliseconds = context.pick(30, 120);
    let sizes: &[u64] = context.pick(&[1, 1 << 10, 64 << 10], &SIZES);
    let variants = || HERE.into_iter().chain(APART);
    let mut groups: Vec<Group<'_>> = sizes
        .iter()
        .map(|&size| {
            let build = |variant: MessagingVariant| {
                Variant::new(variant.name, move |trial: &mut Trial| {
                    run(programs, variant, size, milliseconds, trial)
                })
            };
            Group::new(text::size(size), variants().map(build).collect())
        })
        .collect();
    let samples = alternate(&mut groups, rounds, context.progress())?;
    drop(groups);

    let mut parameters = context.parameters(rounds);
    let mut note = |name: &str, value: serde_json::Value| parameters.insert(name.to_owned(), value);
    note("sizes", sizes.into());
    note("milliseconds of each test", milliseconds.into());
    note("TCP congestion control on loopback", congestion_control().into());
    note("TCP congestion control between namespaces", "cubic, or reno where there is none".into());
    Ok(Outcome { parameters, samples, baseline: TCP, violation: programs.violation() })
}

/// libzmq uses that of the system, and so do mailboxes.
fn congestion_control() -> String {
    let read = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    read.map_or_else(|error| error.to_string(), |name| name.trim().to_owned())
}

/// Both tests of messages of one size.
fn run(
    programs: &Programs<'_, '_>,
    variant: MessagingVariant,
    size: u64,
    milliseconds: u64,
    trial: &mut Trial,
) -> Result<()> {
    let milliseconds = if trial.is_warm_up() { milliseconds / 4 } else { milliseconds };
    let tests = [MessagePattern::RequestReply, MessagePattern::PushPull]
        .map(|kind| MessagingTest { kind, size: size as usize, milliseconds });
    for reading in programs.two_ends(variant, tests.into(), trial)? {
        for (metric, value) in readings(&reading, variant.over == MessagingTransport::Inproc) {
            trial.record(case(reading.test.kind, size), Some(size as f64), metric, value);
        }
    }
    Ok(())
}

fn readings(reading: &TestReading, one_process: bool) -> Vec<(Metric, f64)> {
    let TestReading { test, sender, receiver, .. } = reading;
    let measured = reading.measured();
    let rate = measured.rate();
    let mut readings = match test.kind {
        // As remote_lat reports it: half of the mean round trip.
        MessagePattern::RequestReply => vec![(LATENCY, 1e6 / (2.0 * rate))],
        MessagePattern::PushPull => vec![(RATE, rate), (THROUGHPUT, rate * test.size as f64 / 1e6)],
    };
    let quantiles = QUANTILES.into_iter().zip([measured.p50_ns, measured.p99_ns]);
    readings.extend(quantiles.filter_map(|(metric, ns)| Some((metric, ns? as f64 / 2e3))));
    let of = |Load { seconds, user, system, .. }: Load| {
        [user + system, user, system].map(|of| 100.0 * of / seconds)
    };
    let (sender, receiver) = (of(sender.load), of(receiver.load));
    if one_process {
        readings.extend(BOTH.into_iter().zip(receiver));
    } else {
        readings.extend(BOTH.into_iter().zip([0, 1, 2].map(|part| sender[part] + receiver[part])));
        readings.extend(SENDER.into_iter().zip(sender));
        readings.extend(RECEIVER.into_iter().zip(receiver));
    }
    if let Some(machine) = measured.load.machine {
        let load = network::of_machines(&[machine]);
        let [(_, busy), ..] = load;
        readings.extend(load);
        if test.kind == MessagePattern::PushPull {
            readings.push((EFFORT, busy / 100.0 / rate * 1e6));
        }
    }
    readings
}

#[cfg(test)]
mod tests {
    use seekwire_gauge::CpuTimes;
    use serde_json::Value;

    use super::*;
    use crate::messaging::Measured;
    use crate::network::{CPU, CPU_SOFTIRQ, CPU_SYSTEM, CPU_USER};
    use crate::plot::Chart;
    use crate::record::{Row, Sample, Samples};

    /// Of a host with two processors, whose sender works half of the time and whose receiver a
    /// quarter of the time.
    fn reading(kind: MessagePattern) -> TestReading {
        let machine =
            CpuTimes { user: 0.3, system: 0.1, softirq: 0.05, idle: 0.5, stolen: 0.0, cpus: 2 };
        let load = |user, system| Load { seconds: 0.1, user, system, machine: Some(machine) };
        let measured = |load| Measured {
            messages: 1000,
            load,
            p50_ns: Some(90_000).filter(|_| kind == MessagePattern::RequestReply),
            p99_ns: None,
        };
        let test = MessagingTest { kind, size: 1000, milliseconds: 100 };
        TestReading::of(test, measured(load(0.04, 0.01)), measured(load(0.02, 0.005))).unwrap()
    }

    fn values(readings: &[(Metric, f64)], metrics: &[Metric]) -> Vec<Option<f64>> {
        let value = |wanted: &Metric| readings.iter().find(|(metric, _)| metric == wanted);
        metrics
            .iter()
            .map(|metric| value(metric).map(|(_, value)| (value * 1e6).round() / 1e6))
            .collect()
    }

    #[test]
    fn latency_is_half_a_round_trip() {
        let readings = readings(&reading(MessagePattern::RequestReply), false);
        let [p50, p99] = QUANTILES;
        assert_eq!(
            values(&readings, &[LATENCY, p50, p99, RATE]),
            [Some(50.0), Some(45.0), None, None]
        );
    }

    #[test]
    fn loads_of_two_processes_are_added_and_that_of_one_is_not() {
        let two = readings(&reading(MessagePattern::PushPull), false);
        assert_eq!(values(&two, &[RATE, THROUGHPUT]), [Some(10_000.0), Some(10.0)]);
        assert_eq!(values(&two, &BOTH), [75.0, 60.0, 15.0].map(Some));
        assert_eq!(values(&two, &SENDER), [50.0, 40.0, 10.0].map(Some));
        assert_eq!(values(&two, &RECEIVER), [25.0, 20.0, 5.0].map(Some));
        let one = readings(&reading(MessagePattern::PushPull), true);
        assert_eq!(values(&one, &BOTH), [25.0, 20.0, 5.0].map(Some));
        assert_eq!(values(&one, &[SENDER[0], RECEIVER[0]]), [None; 2]);
    }

    #[test]
    fn the_load_of_the_machine_is_counted_once() {
        let metrics = [CPU, CPU_USER, CPU_SYSTEM, CPU_SOFTIRQ, EFFORT];
        for (kind, one_process) in
            [(MessagePattern::RequestReply, false), (MessagePattern::PushPull, true)]
        {
            let mut reading = reading(kind);
            let effort = (kind == MessagePattern::PushPull).then_some(100.0);
            assert_eq!(
                values(&readings(&reading, one_process), &metrics),
                [Some(100.0), Some(60.0), Some(20.0), Some(10.0), effort]
            );
            reading.sender.load.machine = None;
            reading.receiver.load.machine = None;
            assert_eq!(values(&readings(&reading, one_process), &metrics), [None; 5]);
        }
    }

    #[test]
    fn the_tables_have_all_variants() {
        let variants = &Zeromq.file().variants;
        assert_eq!(variants["here"], HERE.map(|variant| variant.name));
        assert_eq!(variants["apart"], APART.map(|variant| variant.name));
    }

    fn by_size(rows: &[Row]) -> BySize<'_> {
        BySize { file: Zeromq.file(), words: &[], rows }
    }

    fn rows() -> Vec<Row> {
        let sample = |variant: &MessagingVariant, size: u64, metric, value| Sample {
            x: Some(size as f64),
            ..Sample::new(case(MessagePattern::PushPull, size), variant.name, metric, 1, value)
        };
        Samples(vec![
            sample(&APART[0], 64, THROUGHPUT, 100.0),
            sample(&APART[2], 128, THROUGHPUT, 300.0),
            sample(&APART[1], 64, CPU_USER, 50.4),
            sample(&APART[1], 64, CPU_SYSTEM, 30.0),
            sample(&APART[1], 64, CPU_SOFTIRQ, 0.0),
            sample(&APART[2], 64, CPU_USER, 50.0),
        ])
        .rows(HERE[0].name)
    }

    #[test]
    fn parts_are_shown_where_all_of_them_are_known() {
        let tables = by_size(&rows()).parts(&[64, 128]);
        assert_eq!(tables.len(), 1, "an unmeasured quantity has no table");
        assert!(
            tables[0]
                .note
                .ends_with("user + system + softirq. Medians of the rounds, each by itself.")
        );
        let row = ["64 B".into(), Value::Null, "50 + 30 + 0".into(), Value::Null, Value::Null];
        assert_eq!(
            tables[0].rows,
            [row, ["128 B".into(), Value::Null, Value::Null, Value::Null, Value::Null]]
        );
    }

    #[test]
    fn the_thesis_stands_beside_what_was_measured() {
        let tables = by_size(&rows()).tables(&[64, 128]);
        assert_eq!(tables.len(), 1, "an unmeasured quantity has no table");
        assert_eq!(tables[0].columns.len(), 1 + APART.len() + 2);
        assert_eq!(tables[0].columns[5..], ["thesis: everything off", "thesis: + TSO, SG"]);
        assert_eq!(
            tables[0].rows[0][1..],
            [
                100.0.into(),
                Value::Null,
                Value::Null,
                Value::Null,
                40.5.into(),
                (485.66 / 8.0).into()
            ]
        );
        assert_eq!(tables[0].rows[1][5..], [Value::from("49.12*"), (590.33 / 8.0).into()]);
        assert!(tables[0].note.contains("* As printed, but") && tables[0].note.contains("not 393"));
        let tables = by_size(&rows()).tables(&[64]);
        assert!(!tables[0].note.contains('*'), "that row is not shown");
    }

    #[test]
    fn figures_have_a_curve_for_each() {
        let figures = by_size(&rows()).figures();
        let Chart::Curves { series, .. } = &figures[0].chart else { panic!("these are curves") };
        let points: Vec<usize> = series.iter().map(|series| series.points.len()).collect();
        assert_eq!(points, [1, 0, 1, 0, 17, 17]);
    }

    /// The tables have two columns for the same quantity, which verify the transcription.
    #[test]
    fn throughput_is_rate_times_size() {
        let published = &Zeromq.file().published;
        for (throughput, rate) in published["throughput"].iter().zip(&published["rate"]) {
            let [doubt, other] =
                [throughput, rate].map(|column| column.doubt.as_ref().map(|doubt| doubt.bytes));
            assert_eq!(doubt, other);
            for (power, (throughput, rate)) in
                throughput.values.into_iter().zip(rate.values).enumerate()
            {
                let doubted = doubt == Some(1 << power);
                let bits = rate * f64::from(8u32 << power) / 1e6;
                // The tool prints whole megabits, so small ones are coarse.
                assert_eq!(
                    (bits - throughput).abs() < 1.0,
                    !doubted,
                    "{power}: {throughput} Mb/s, {rate}/s"
                );
            }
        }
    }
}
