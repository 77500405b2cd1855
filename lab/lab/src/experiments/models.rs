//! `models`: the models of messaging that "Network hardware for business messaging" names as the
//! uses of middleware, each as real programs.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tempfile::NamedTempFile;

use crate::experiment::{Context, Experiment};
use crate::messaging::programs::{Library, MessagingTransport, MessagingVariant, Programs};
use crate::messaging::{Hub, Model, SERVICES, TOPICS};
use crate::outcome::{Findings, Outcome, Recorded};
use crate::plot::{Bar, Chart, Figure};
use crate::record::{Better, Metric, Row};
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::text;

pub(super) struct Models;

const VARIANTS: [MessagingVariant; 4] = [
    MessagingVariant {
        name: "ZeroMQ, TCP",
        library: Library::Zeromq,
        over: MessagingTransport::Tcp,
    },
    MessagingVariant {
        name: "ZeroMQ, ring",
        library: Library::Zeromq,
        over: MessagingTransport::Ring,
    },
    MessagingVariant {
        name: "Mailbox, TCP",
        library: Library::Mailbox,
        over: MessagingTransport::Tcp,
    },
    MessagingVariant {
        name: "Mailbox, ring",
        library: Library::Mailbox,
        over: MessagingTransport::Ring,
    },
];

const MEDIAN: Metric = Metric::lower("latency p50", "µs");
const TAIL: Metric = Metric::lower("latency p99", "µs");

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
        let metric = |name, unit| Metric::higher(name, unit);
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

impl Experiment for Models {
    experiment_file!("models");

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
                let build = |variant: MessagingVariant| {
                    Variant::new(variant.name, move |trial: &mut Trial| {
                        run(programs, variant, case, milliseconds, path, trial)
                    })
                };
                Group::new(case.name(), VARIANTS.map(build).into())
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
        Ok(Outcome { parameters, samples, baseline: VARIANTS[0].name, violation })
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        let rows = recorded.samples.rows(VARIANTS[0].name);
        Findings {
            summary: self.file().summary(recorded.samples, &[]),
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
    variant: MessagingVariant,
    case: &Case,
    milliseconds: u64,
    file: &Path,
    trial: &mut Trial,
) -> Result<()> {
    let milliseconds = if trial.is_warm_up() { milliseconds / 4 } else { milliseconds };
    let modelled = programs.model(variant, &case.hub(milliseconds), file, trial)?;
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
            let ratio = row.widened_ratio()?;
            let name = format!("{}: {}", row.case, row.variant);
            Some(Bar { name, value: ratio.value, low: ratio.low, high: ratio.high })
        });
    let chart = Chart::Ratios { label: label.to_owned(), bars: bars.collect() };
    Figure { file: file.to_owned(), title: title.to_owned(), chart }
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
