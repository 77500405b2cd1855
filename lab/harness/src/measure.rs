//! From a measurement to its files.

use std::path::PathBuf;

use anyhow::Result;

use crate::context::Description;
use crate::machine::Machine;
use crate::outcome::{Findings, Outcome, Recorded, ResultFile};
use crate::output::{Destination, PACKED_RAW, RAW, RESULT};
use crate::plot::Figure;
use crate::report;

/// The page of a result.
const REPORT: &str = "report.html";

/// An experiment that has been run and written down.
#[derive(Debug)]
pub struct Completed {
    /// The directory that holds `result.json`, `raw.csv`, `report.html` and the figures.
    pub directory: PathBuf,
    /// The contents of `result.json`.
    pub result: ResultFile,
}

/// Runs `experiment` between two looks at the machine, and writes everything it found, and what
/// follows from it, with figures as `draw` makes them.
///
/// # Errors
///
/// If the experiment fails, a figure cannot be drawn, or the destination cannot be written to.
pub fn measure(
    description: Description,
    destination: &Destination,
    experiment: impl FnOnce() -> Result<Outcome>,
    findings: impl FnOnce(Recorded<'_>) -> Findings,
    draw: impl Fn(&Figure) -> Result<String>,
) -> Result<Completed> {
    let mut machine = Machine::describe();
    let outcome =
        experiment().map_err(|error| error.context(format!("experiment {}", description.name)))?;
    machine.finish();

    let findings_of_run =
        findings(Recorded { parameters: &outcome.parameters, samples: &outcome.samples });
    let summary = findings_of_run.summary.clone();
    let rows = outcome.samples.rows(outcome.baseline);
    let mut result = ResultFile::new(description.name, machine, outcome.parameters, rows);
    result.violation = outcome.violation;
    findings_of_run.put_into(&mut result);
    // The mark of ownership goes first: if anything below fails, the next run may still take the
    // directory over.
    destination.write(RESULT, &(serde_json::to_string_pretty(&result)? + "\n"))?;
    destination.write(RAW, &outcome.samples.to_csv())?;
    destination.remove(PACKED_RAW)?;
    let mut figures = Vec::new();
    for figure in &result.figures {
        let svg = draw(figure)?;
        destination.write(&figure.file, &svg)?;
        figures.push((figure.title.clone(), svg));
    }
    let report = report::html(&description, &result, &summary, &figures);
    destination.write(REPORT, &report)?;
    Ok(Completed { directory: destination.path().to_owned(), result })
}

impl Completed {
    /// Path of the report.
    pub fn report(&self) -> PathBuf {
        self.directory.join(REPORT)
    }
}
