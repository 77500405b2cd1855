//! `models`: the models of messaging that "Network hardware for business messaging" names as the
//! uses of middleware, each as real programs.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::NamedTempFile;

use crate::claim::{Claim, Criterion, Estimate, Source};
use crate::experiment::{Context, Experiment};
use crate::messaging::programs::{Library, Over, Programs, Way};
use crate::messaging::{Hub, Model, SERVICES, TOPICS};
use crate::outcome::{At, Findings, Key, Outcome, Recorded, ResultFile};
use crate::plot::{Bar, Chart, Figure};
use crate::record::{Better, Metric, Row, Samples, Selector};
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::text;

pub(super) struct Models;

const WAYS: [Way; 4] = [
    Way { name: "ZeroMQ, TCP", library: Library::Zeromq, over: Over::Tcp },
    Way { name: "ZeroMQ, ring", library: Library::Zeromq, over: Over::Ring },
    Way { name: "Mailbox, TCP", library: Library::Mailbox, over: Over::Tcp },
    Way { name: "Mailbox, ring", library: Library::Mailbox, over: Over::Ring },
];

const MEDIAN: Metric = Metric { name: "latency p50", unit: "µs", better: Better::Lower };
const TAIL: Metric = Metric { name: "latency p99", unit: "µs", better: Better::Lower };

/// A model and its size.
#[derive(Clone, Copy, Debug)]
struct Case {
    model: Model,
    members: usize,
    clients: usize,
    size: usize,
}

const fn case(model: Model, members: usize, clients: usize, size: usize) -> Case {
    Case { model, members, clients, size }
}

const CASES: [Case; 7] = [
    case(Model::Broker, SERVICES.len(), 2, 64),
    case(Model::Broker, SERVICES.len(), 2, 4 << 10),
    case(Model::Publish, 1, 0, 256),
    case(Model::Publish, 4, 0, 256),
    case(Model::File, 1, 0, 4 << 10),
    case(Model::Scatter, 4, 0, 1 << 10),
    case(Model::Scatter, 4, 0, 64 << 10),
];

impl Case {
    fn name(&self) -> String {
        let Self { members, clients, .. } = self;
        let size = text::size(self.size as u64);
        match self.model {
            Model::Broker => format!("broker, {members} services, {clients} clients, {size}"),
            Model::Publish if *members == 1 => format!("publish, 1 subscriber, {size}"),
            Model::Publish => format!("publish, {members} subscribers, {size}"),
            Model::File => "file transfer".to_owned(),
            Model::Scatter => format!("scatter/gather, {members} workers, {size} each"),
        }
    }

    /// The metric of its rate, and the divisor for its unit.
    fn rate(&self) -> (Metric, f64) {
        let metric = |name, unit| Metric { name, unit, better: Better::Higher };
        match self.model {
            Model::Broker => (metric("requests", "1/s"), 1.0),
            Model::Publish => (metric("deliveries", "1/s"), 1.0),
            Model::File => (metric("bandwidth", "GB/s"), 1e9),
            Model::Scatter => (metric("rounds", "1/s"), 1.0),
        }
    }

    fn hub(&self, milliseconds: u64) -> Hub {
        let Self { model, members, clients, size } = *self;
        Hub {
            model,
            address: String::new(),
            members,
            clients,
            size,
            milliseconds,
            directory: PathBuf::new(),
        }
    }
}

fn ring_over_tcp(result: &ResultFile, case: &Case) -> Result<Estimate, String> {
    let name = case.name();
    Estimate::ratio(result, At { case: &name, variant: WAYS[1].name, metric: case.rate().0.name })
}

const fn ring_is_faster(
    title: &'static str,
    measure: &'static str,
    evidence: fn(&ResultFile) -> Result<Estimate, String>,
) -> Claim {
    Claim {
        title,
        statement: "Unmodified programs over libzmq achieve more on the ring than over TCP.",
        source: Source::Goal,
        published: "",
        measure,
        unit: "",
        evidence,
        criterion: Criterion::Above(1.0),
        better: None,
        otherwise: "the ring gains nothing in this model",
    }
}

const CLAIMS: &[Claim] = &[
    ring_is_faster("broker", "requests through a broker, ring over TCP", |result| {
        ring_over_tcp(result, &CASES[0])
    }),
    ring_is_faster("publish", "deliveries to 4 subscribers, ring over TCP", |result| {
        ring_over_tcp(result, &CASES[3])
    }),
    ring_is_faster("file", "bandwidth of a file transfer, ring over TCP", |result| {
        ring_over_tcp(result, &CASES[4])
    }),
    ring_is_faster("scatter", "rounds of 64 KiB to 4 workers, ring over TCP", |result| {
        ring_over_tcp(result, &CASES[6])
    }),
];

impl Experiment for Models {
    fn name(&self) -> &'static str {
        "models"
    }

    fn question(&self) -> &'static str {
        "Performance of broker, publisher, file transfer and scatter/gather over ZeroMQ and mailboxes, by TCP and on \
            the ring."
    }

    fn about(&self) -> &'static str {
        "Four models of messaging, each written over libzmq and over seekwire::Mailbox, run by TCP and on the ring: \
         requests to several services through a broker, publishing by topic to subscribers, the transfer of a file, \
         and scatter and gather as in a cluster. Length and number of every message are checked while time is taken. \
         Contents are compared in full in the warm-up and after the last message; of published messages, one in 256 is \
         compared meanwhile; the checksum of a file is compared after its time has been taken. Anything wrong or \
         missing ends the experiment with an error. The latencies are those of a request, of a message until all its \
         subscribers have confirmed it, of a file of 4 KiB until it is stored, and of a round."
    }

    fn paper_reference(&self) -> Option<&'static str> {
        Some(
            "the models of messaging that \"Network hardware for business messaging\" names; the numbers are ours",
        )
    }

    fn claims(&self) -> &'static [Claim] {
        CLAIMS
    }

    fn duration(&self, quick: bool) -> Duration {
        Duration::from_secs(if quick { 20 } else { 300 })
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(3, 5);
        let milliseconds = context.pick(100, 200);
        let bytes = context.pick(8 << 20, 128 << 20);
        let file = file(bytes)?;
        let programs = Programs::new(context, Err("models run on one host".to_owned()))?;
        let (programs, path) = (&programs, file.path());
        let mut groups: Vec<Group<'_>> = CASES
            .iter()
            .map(|case| {
                let variant = |way: Way| {
                    Variant::new(way.name, move |trial: &mut Trial| {
                        run(programs, way, case, milliseconds, path, trial)
                    })
                };
                Group::new(case.name(), WAYS.map(variant).into())
            })
            .collect();
        let samples = alternate(&mut groups, rounds, context.progress())?;
        drop(groups);

        let mut parameters = context.parameters(rounds);
        let mut note =
            |name: &str, value: serde_json::Value| parameters.insert(name.to_owned(), value);
        note("milliseconds for rates and latencies, each", milliseconds.into());
        note("bytes of the file", bytes.into());
        note("services", SERVICES.to_vec().into());
        note("topics", TOPICS.into());
        let violation = programs.violation();
        Ok(Outcome { parameters, samples, baseline: WAYS[0].name, violation })
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        let rows = recorded.samples.rows(WAYS[0].name);
        Findings {
            summary: summary(recorded.samples),
            figures: vec![
                figure(
                    "rates.svg",
                    "Rates",
                    "way / ZeroMQ over TCP (higher is better)",
                    Better::Higher,
                    &rows,
                ),
                figure(
                    "latencies.svg",
                    "Latencies, p50",
                    "way / ZeroMQ over TCP (lower is better)",
                    Better::Lower,
                    &rows,
                ),
            ],
            tables: Vec::new(),
        }
    }
}

/// Creates a file that cannot be compressed.
fn file(bytes: u64) -> Result<NamedTempFile> {
    let mut file = NamedTempFile::new().context("cannot make the file to transfer")?;
    let mut random = fastrand::Rng::with_seed(bytes);
    let mut block = vec![0; 1 << 20];
    for _ in 0..bytes >> 20 {
        random.fill(&mut block);
        file.write_all(&block).context("cannot write the file to transfer")?;
    }
    Ok(file)
}

fn run(
    programs: &Programs<'_, '_>,
    way: Way,
    case: &Case,
    milliseconds: u64,
    file: &Path,
    trial: &mut Trial,
) -> Result<()> {
    let milliseconds = if trial.is_warm_up() { milliseconds / 4 } else { milliseconds };
    let modelled = programs.model(way, &case.hub(milliseconds), file, trial)?;
    let (metric, unit) = case.rate();
    let x = Some(case.size as f64);
    trial.record(case.name(), x, metric, modelled.rate / unit);
    trial.record(case.name(), x, MEDIAN, modelled.p50_ns as f64 / 1e3);
    trial.record(case.name(), x, TAIL, modelled.p99_ns as f64 / 1e3);
    Ok(())
}

fn figure(file: &str, title: &str, label: &str, better: Better, rows: &[Row]) -> Figure {
    let bars = rows
        .iter()
        .filter(|row| row.better == better && row.metric != TAIL.name)
        .filter_map(|row| {
            let ratio = row.ratio?;
            let name = format!("{}: {}", row.case, row.variant);
            Some(Bar { name, value: ratio.value, low: ratio.low, high: ratio.high })
        });
    let chart = Chart::Ratios { label: label.to_owned(), bars: bars.collect() };
    Figure { file: file.to_owned(), title: title.to_owned(), chart }
}

fn summary(samples: &Samples) -> Vec<Key> {
    let ratio = |case: &Case, this: usize, that: usize| {
        let name = case.name();
        let select =
            |way: usize| Selector { case: &name, variant: WAYS[way].name, metric: case.rate().0 };
        samples.ratio(select(this), select(that)).map(|ratio| ratio.value)
    };
    let [broker, _, _, publish, file, _, scatter] = &CASES;
    const ZEROMQ: &str =
        "rate of unmodified libzmq programs on the ring over that by TCP; higher is better";
    const MAILBOX: &str =
        "rate of programs over mailboxes on the ring over that by TCP; higher is better";
    let keys = [
        ("zeromq_ring_vs_tcp_broker", ZEROMQ, ratio(broker, 1, 0)),
        ("zeromq_ring_vs_tcp_publish", ZEROMQ, ratio(publish, 1, 0)),
        ("zeromq_ring_vs_tcp_file", ZEROMQ, ratio(file, 1, 0)),
        ("zeromq_ring_vs_tcp_scatter", ZEROMQ, ratio(scatter, 1, 0)),
        ("mailbox_ring_vs_tcp_broker", MAILBOX, ratio(broker, 3, 2)),
        ("mailbox_ring_vs_tcp_publish", MAILBOX, ratio(publish, 3, 2)),
        ("mailbox_ring_vs_tcp_file", MAILBOX, ratio(file, 3, 2)),
        ("mailbox_ring_vs_tcp_scatter", MAILBOX, ratio(scatter, 3, 2)),
    ];
    keys.into_iter()
        .filter_map(|(name, meaning, value)| Key::measured(name, meaning, value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let mut names: Vec<String> = CASES.iter().map(Case::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), CASES.len());
    }

    #[test]
    fn the_file_has_its_size_and_no_pattern() {
        let file = file(2 << 20).unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        assert_eq!(bytes.len(), 2 << 20);
        assert_ne!(bytes[..1 << 20], bytes[1 << 20..]);
    }
}
