//! From an experiment to its files.

use anyhow::{Result, bail};

use crate::experiment::{Context, Experiment, Options, Unavailable};
use crate::experiments::by_name;
use crate::launch::interrupt;
use crate::measure::{Completed, measure};
use crate::outcome::Recorded;
use crate::output::{self, Destination};
use crate::progress::Progress;
use crate::{curves, record};

/// Runs the named experiments one after the other, and writes their results into directories of
/// their names.
///
/// # Errors
///
/// Unknown names, experiments that cannot run on this machine, and directories that cannot be
/// written to are reported before anything runs. Afterwards the first experiment that fails ends
/// the run; results of earlier ones have been written by then.
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
        .map(|experiment| Ok((experiment, destination(experiment, options)?)))
        .collect::<Result<_>>()?;
    if let Some(caution) = options.caution() {
        seekwire_program::tell(caution);
    }
    prepared
        .into_iter()
        .map(|(experiment, destination)| run_into(experiment, options, &destination))
        .collect()
}

/// Runs one experiment, known or not, and writes its result into a directory of its name.
///
/// # Errors
///
/// As [`run()`].
pub fn run_one(experiment: &dyn Experiment, options: &Options) -> Result<Completed> {
    interrupt::install();
    run_into(experiment, options, &destination(experiment, options)?)
}

/// The directory of the result. A quick run does not replace what took a thorough one hours.
fn destination(experiment: &dyn Experiment, options: &Options) -> Result<Destination> {
    let directory = options.out.join(experiment.name());
    if options.quick && output::is_thorough(&directory) {
        let place = directory.display();
        return Err(Unavailable(format!(
            "{place} has the result of a thorough run, which a quick one does not replace; name another directory \
             with --out"
        ))
        .into());
    }
    Destination::prepare(&directory)
}

fn run_into(
    experiment: &dyn Experiment,
    options: &Options,
    destination: &Destination,
) -> Result<Completed> {
    let context = Context::new(options, Progress::new(experiment.name()))?;
    let findings = |recorded: Recorded<'_>| experiment.findings(recorded);
    let completed = measure(
        experiment.description(),
        destination,
        || experiment.run(&context),
        findings,
        curves::svg,
    )?;
    for failure in record::failures(&completed.result.rows) {
        seekwire_program::tell(format_args!(
            "{}: not measured: {}: {}",
            experiment.name(),
            failure.variants().join("; "),
            failure.error
        ));
    }
    match &completed.result.violation {
        Some(violation) => bail!("experiment {}: {violation}", experiment.name()),
        None => Ok(completed),
    }
}
