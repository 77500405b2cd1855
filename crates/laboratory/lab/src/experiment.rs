//! Experiments, what they get to work with, and how they are run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use seekwire_program::library;
use serde_json::Value;

use crate::claim::{Claim, Comparison};
use crate::launch::{Mode, Registry, interrupt};
use crate::machine::{COMMIT, Machine};
use crate::outcome::{Outcome, ResultFile};
use crate::output::{Destination, RESULT};
use crate::pack::{PACKED_RAW, RAW};
use crate::progress::Progress;
use crate::{experiments, network, record, report};

/// Something that can be measured.
pub trait Experiment: Sync {
    /// The name by which users ask for it, and the name of its directory.
    fn name(&self) -> &'static str;

    /// What it measures, in a sentence or two.
    fn about(&self) -> &'static str;

    /// What is asked, in a line.
    fn question(&self) -> &'static str {
        let about = self.about();
        about.split_once(". ").map_or(about, |(first, _)| first)
    }

    /// The paper and figures that it follows, if any.
    fn paper_reference(&self) -> Option<&'static str>;

    /// What it can support or not, the most important first; reports judge it by the result.
    fn claims(&self) -> &'static [Claim] {
        &[]
    }

    /// Published numbers beside those of `result`, for reports.
    fn comparisons(&self, result: &ResultFile) -> Vec<Comparison> {
        let _ = result;
        Vec::new()
    }

    /// About how long it takes on a machine with two processors, for those who wait.
    fn duration(&self, quick: bool) -> Duration {
        Duration::from_secs(if quick { 45 } else { 600 })
    }

    /// Why it cannot run on this machine, if it cannot; what to do about it belongs there, too.
    fn unavailable(&self, options: &Options) -> Option<String> {
        let _ = options;
        None
    }

    /// Options of `seekwire lab run` that not all experiments have, and it has; without the dashes.
    fn own_options(&self) -> &'static [&'static str] {
        &[]
    }

    /// Measures. What cannot be measured here is a sample with an error, not a failure of the
    /// experiment.
    ///
    /// # Errors
    ///
    /// If nothing at all can be measured, or the user interrupts.
    fn run(&self, context: &Context<'_>) -> Result<Outcome>;
}

/// How experiments are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Fewer sizes, fewer rounds, shorter runs: to see whether everything works, not to draw
    /// conclusions.
    pub quick: bool,
    /// Each experiment writes into a directory of its name below this one.
    pub out: PathBuf,
    /// Number of rounds, if not the experiment's own.
    pub rounds: Option<usize>,
    /// Number of connections behind each value of a message search, if not the experiment's own.
    pub repetitions: Option<u64>,
    /// Bytes that each of these values moves at most, if not the experiment's own number.
    pub most_bytes: Option<u64>,
    /// `libseekwire.so`, if not the one that [`library::find`] finds.
    pub library: Option<PathBuf>,
    /// The program that plays the `lab-peer` role (see [`crate::peer`]), if not the running one.
    pub peer: Option<PathBuf>,
    /// Hosts of network tests.
    pub network: network::Options,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            quick: false,
            out: PathBuf::from("out/lab"),
            rounds: None,
            repetitions: None,
            most_bytes: None,
            library: None,
            peer: None,
            network: network::Options::default(),
        }
    }
}

/// Rounds below which intervals are not to be relied on.
const ENOUGH_ROUNDS: usize = 5;

impl Options {
    /// What to tell somebody who wants so few rounds of a thorough run.
    pub(crate) fn caution(&self) -> Option<String> {
        let few = self.rounds.filter(|rounds| !self.quick && *rounds < ENOUGH_ROUNDS);
        few.map(|rounds| {
            let rounds = if rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds") };
            format!("{rounds}: intervals need at least {ENOUGH_ROUNDS}; take these numbers for a first look")
        })
    }

    /// See [`Context::peer`].
    pub(crate) fn program(&self) -> Result<PathBuf> {
        match &self.peer {
            Some(peer) => Ok(peer.clone()),
            None => Ok(std::env::current_exe()?),
        }
    }
}

/// What an experiment gets to work with.
#[derive(Debug)]
pub struct Context<'a> {
    options: &'a Options,
    progress: Progress,
    library: Result<PathBuf, String>,
    registry: Registry,
}

impl<'a> Context<'a> {
    /// A context for one experiment, reporting to `progress`.
    ///
    /// # Errors
    ///
    /// If no temporary directory can be made.
    pub fn new(options: &'a Options, progress: Progress) -> Result<Self> {
        let library = match &options.library {
            Some(library) => {
                library.canonicalize().map_err(|error| format!("{}: {error}", library.display()))
            }
            None => library::find().map_err(|error| error.to_string()),
        };
        let registry =
            Registry::new().context("cannot make a directory for the registry of the children")?;
        Ok(Self { options, progress, library, registry })
    }

    /// How to start an accelerated program.
    ///
    /// # Errors
    ///
    /// If the library was not found.
    pub fn accelerated(&self) -> Result<Mode> {
        let library = self.library.clone().map_err(|why| anyhow!("{why}"))?;
        Ok(Mode::Accelerated { library, registry: self.registry.clone() })
    }

    /// How to start a program that uses Seekwire itself.
    pub fn linked(&self) -> Mode {
        Mode::Linked { registry: self.registry.clone() }
    }

    /// Whether to be quick rather than thorough.
    pub fn quick(&self) -> bool {
        self.options.quick
    }

    /// One of two values, by [`Context::quick`].
    pub fn pick<T>(&self, quick: T, thorough: T) -> T {
        if self.options.quick { quick } else { thorough }
    }

    /// Number of rounds: as the user wishes, else one of these two.
    pub fn rounds(&self, quick: usize, thorough: usize) -> usize {
        self.options.rounds.unwrap_or(self.pick(quick, thorough)).max(1)
    }

    /// Number of connections behind each value of a message search, if the user wishes for one.
    pub fn repetitions(&self) -> Option<u64> {
        self.options.repetitions
    }

    /// Bytes that a value of a message search moves at most: as the user wishes, else one of these
    /// two.
    pub fn most_bytes(&self, quick: u64, thorough: u64) -> u64 {
        self.options.most_bytes.unwrap_or(self.pick(quick, thorough))
    }

    /// Hosts of network tests.
    pub fn network(&self) -> &network::Options {
        &self.options.network
    }

    /// Where to report progress.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The program that plays the `lab-peer` role.
    ///
    /// # Errors
    ///
    /// If the path of the running program cannot be learnt.
    pub fn peer(&self) -> Result<PathBuf> {
        self.options.program()
    }

    /// Parameters that every result names: rounds, thoroughness, and settings the accelerated
    /// programs inherited.
    pub(crate) fn parameters(&self, rounds: usize) -> BTreeMap<String, Value> {
        let inherited: BTreeMap<String, Value> = std::env::vars()
            .filter(|(name, _)| name.starts_with("SEEKWIRE_"))
            .map(|(name, value)| (name, value.into()))
            .collect();
        BTreeMap::from([
            ("rounds".to_owned(), rounds.into()),
            ("quick".to_owned(), self.options.quick.into()),
            ("environment".to_owned(), Value::Object(inherited.into_iter().collect())),
        ])
    }
}

/// What a reader is told about an experiment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Description {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) paper_reference: Option<&'static str>,
}

impl Description {
    pub(crate) fn of(experiment: &dyn Experiment) -> Self {
        let (name, about, paper_reference) =
            (experiment.name(), experiment.about(), experiment.paper_reference());
        Self { name, about, paper_reference }
    }
}

/// An experiment that has been run and written down.
#[derive(Debug)]
pub struct Completed {
    /// The directory that holds `result.json`, `raw.csv`, `report.html` and the figures.
    pub directory: PathBuf,
    /// What `result.json` holds.
    pub result: ResultFile,
    /// See [`Outcome::violation`].
    pub violation: Option<String>,
}

/// Runs the named experiments one after the other, and writes what they found into directories of
/// their names.
///
/// # Errors
///
/// Unknown names, experiments that cannot run on this machine, and directories that cannot be
/// written to are reported before anything runs. Afterwards the first experiment that fails ends
/// the run; what earlier ones found has been written by then.
pub fn run<N: AsRef<str>>(names: &[N], options: &Options) -> Result<Vec<Completed>> {
    interrupt::install();
    let chosen: Vec<&dyn Experiment> =
        names.iter().map(|name| by_name(name.as_ref())).collect::<Result<_>>()?;
    for experiment in &chosen {
        if let Some(why) = experiment.unavailable(options) {
            bail!("experiment {} cannot run here: {why}", experiment.name());
        }
    }
    let prepared: Vec<_> = chosen
        .into_iter()
        .map(|experiment| {
            Ok((experiment, Destination::prepare(&options.out.join(experiment.name()))?))
        })
        .collect::<Result<_>>()?;
    if let Some(caution) = options.caution() {
        eprintln!("{caution}");
    }
    prepared
        .into_iter()
        .map(|(experiment, destination)| run_into(experiment, options, &destination))
        .collect()
}

/// Runs one experiment, of whatever origin, and writes what it found into a directory of its name.
///
/// # Errors
///
/// As [`run`].
pub fn run_one(experiment: &dyn Experiment, options: &Options) -> Result<Completed> {
    interrupt::install();
    run_into(experiment, options, &Destination::prepare(&options.out.join(experiment.name()))?)
}

fn run_into(
    experiment: &dyn Experiment,
    options: &Options,
    destination: &Destination,
) -> Result<Completed> {
    let context = Context::new(options, Progress::new(experiment.name()))?;
    let completed = measure(Description::of(experiment), destination, || experiment.run(&context))?;
    for failure in record::failures(&completed.result.rows) {
        eprintln!(
            "{}: not measured: {}: {}",
            experiment.name(),
            failure.variants().join("; "),
            failure.error
        );
    }
    match &completed.violation {
        Some(violation) => bail!("experiment {}: {violation}", experiment.name()),
        None => Ok(completed),
    }
}

pub(crate) fn by_name(name: &str) -> Result<&'static dyn Experiment> {
    let known = experiments();
    match known.iter().find(|experiment| experiment.name() == name) {
        Some(experiment) => Ok(*experiment),
        None => {
            let names: Vec<&str> = known.iter().map(|experiment| experiment.name()).collect();
            bail!("there is no experiment '{name}'; there are {}", names.join(", "))
        }
    }
}

/// Runs `experiment` between two looks at the machine, and writes everything it found.
pub(crate) fn measure(
    description: Description,
    destination: &Destination,
    experiment: impl FnOnce() -> Result<Outcome>,
) -> Result<Completed> {
    let mut machine = Machine::describe();
    let outcome =
        experiment().map_err(|error| error.context(format!("experiment {}", description.name)))?;
    machine.finish();

    let result = ResultFile {
        experiment: description.name.to_owned(),
        machine,
        commit: COMMIT.to_owned(),
        parameters: outcome.parameters,
        rows: outcome.samples.rows(outcome.baseline),
        tables: outcome.tables,
        summary: outcome.summary.iter().map(|key| (key.name.to_owned(), key.value)).collect(),
        meanings: outcome
            .summary
            .iter()
            .map(|key| (key.name.to_owned(), key.meaning.to_string()))
            .collect(),
        figures: outcome.figures.into_iter().filter(|figure| !figure.is_empty()).collect(),
    };
    // The mark of ownership goes first: if anything below fails, the next run may still take the
    // directory over.
    destination.write(RESULT, &(serde_json::to_string_pretty(&result)? + "\n"))?;
    destination.write(RAW, &outcome.samples.to_csv())?;
    destination.remove(PACKED_RAW)?;
    let mut figures = Vec::new();
    for figure in &result.figures {
        let svg = figure.to_svg()?;
        destination.write(&figure.file, &svg)?;
        figures.push((figure.title.clone(), svg));
    }
    let report = report::html(&description, &result, &outcome.summary, &figures);
    destination.write("report.html", &report)?;
    Ok(Completed { directory: destination.path().to_owned(), result, violation: outcome.violation })
}

impl Completed {
    /// Path of the report.
    pub fn report(&self) -> PathBuf {
        self.directory.join(Path::new("report.html"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rounds_are_said_to_be_few_where_it_matters() {
        let caution = |rounds, quick| Options { rounds, quick, ..Options::default() }.caution();
        let one = "1 round: intervals need at least 5; take these numbers for a first look";
        assert_eq!(caution(Some(1), false).as_deref(), Some(one));
        assert!(caution(Some(4), false).unwrap().starts_with("4 rounds: "));
        assert_eq!(
            [caution(Some(5), false), caution(None, false), caution(Some(1), true)],
            [None, None, None]
        );
    }
}
