//! The way from an experiment to its files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::experiment::{Context, Description, Experiment, Options};
use crate::experiments::by_name;
use crate::launch::interrupt;
use crate::machine::{COMMIT, Machine};
use crate::outcome::{Findings, Outcome, Recorded, ResultFile};
use crate::output::{Destination, RESULT};
use crate::pack::{PACKED_RAW, RAW};
use crate::progress::Progress;
use crate::{record, report};

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
        seekwire_program::tell(caution);
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
/// As [`run()`].
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
    let findings = |recorded: Recorded<'_>| experiment.findings(recorded);
    let completed =
        measure(Description::of(experiment), destination, || experiment.run(&context), findings)?;
    for failure in record::failures(&completed.result.rows) {
        seekwire_program::tell(format_args!(
            "{}: not measured: {}: {}",
            experiment.name(),
            failure.variants().join("; "),
            failure.error
        ));
    }
    match &completed.violation {
        Some(violation) => bail!("experiment {}: {violation}", experiment.name()),
        None => Ok(completed),
    }
}

/// Runs `experiment` between two looks at the machine, and writes everything it found, and what
/// follows from it.
pub(crate) fn measure(
    description: Description,
    destination: &Destination,
    experiment: impl FnOnce() -> Result<Outcome>,
    findings: impl FnOnce(Recorded<'_>) -> Findings,
) -> Result<Completed> {
    let mut machine = Machine::describe();
    let outcome =
        experiment().map_err(|error| error.context(format!("experiment {}", description.name)))?;
    machine.finish();

    let found = findings(Recorded { parameters: &outcome.parameters, samples: &outcome.samples });
    let summary = found.summary.clone();
    let mut result = ResultFile {
        experiment: description.name.to_owned(),
        machine,
        commit: COMMIT.to_owned(),
        parameters: outcome.parameters,
        rows: outcome.samples.rows(outcome.baseline),
        tables: Vec::new(),
        summary: BTreeMap::new(),
        meanings: BTreeMap::new(),
        figures: Vec::new(),
    };
    found.put_into(&mut result);
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
    let report = report::html(&description, &result, &summary, &figures);
    destination.write("report.html", &report)?;
    Ok(Completed { directory: destination.path().to_owned(), result, violation: outcome.violation })
}

impl Completed {
    /// Path of the report.
    pub fn report(&self) -> PathBuf {
        self.directory.join(Path::new("report.html"))
    }
}
