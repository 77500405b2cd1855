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
    // If anything below fails, nothing of an earlier run may look as if it belonged to this one.
    destination.remove(RAW)?;
    destination.remove(REPORT)?;
    destination.remove_figures()?;
    // The mark of ownership goes first: the next run may still take the directory over.
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::plot::{Bar, Chart};
    use crate::record::{Metric, Sample, Samples};

    fn outcome() -> Outcome {
        let sample = Sample::new("case", "plain", Metric::higher("rate", "1/s"), 1, 2.0);
        let violation = Some("a byte was wrong".to_owned());
        let (parameters, samples) = (Default::default(), Samples(vec![sample]));
        Outcome { parameters, samples, baseline: "plain", violation }
    }

    fn findings() -> Findings {
        let bar = Bar { name: "one".to_owned(), value: 1.0, low: 1.0, high: 1.0 };
        let chart = Chart::Ratios { label: "ratio".to_owned(), bars: vec![bar] };
        let (file, title) = ("a.svg".to_owned(), "A".to_owned());
        Findings { figures: vec![Figure { file, title, chart }], ..Findings::default() }
    }

    #[test]
    fn files_of_an_earlier_run_do_not_stand_beside_those_of_a_later_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let foreign = tempfile::NamedTempFile::new().unwrap();
        let figures = ["old.svg", foreign.path().to_str().unwrap()]
            .map(|file| serde_json::json!({"file": file}));
        let result = serde_json::json!({"experiment": "x", "figures": figures}).to_string();
        for (name, text) in [
            (RESULT, result.as_str()),
            (RAW, "old"),
            (PACKED_RAW, "old"),
            (REPORT, "old"),
            ("old.svg", "old"),
            ("own.svg", "of the user"),
        ] {
            fs::write(path(name), text).unwrap();
        }
        let destination = Destination::prepare(directory.path()).unwrap();
        let description = Description { name: "x", about: "", paper_reference: None };
        let run = |draw: fn(&Figure) -> Result<String>| {
            measure(description, &destination, || Ok(outcome()), |_| findings(), draw)
        };
        run(|_| anyhow::bail!("no ink")).unwrap_err();
        assert!(fs::read_to_string(path(RAW)).unwrap().contains("plain"));
        assert!(![PACKED_RAW, REPORT, "old.svg"].iter().any(|name| path(name).exists()));
        assert!(path("own.svg").exists() && foreign.path().exists());
        let completed = run(|_| Ok("<svg></svg>".to_owned())).unwrap();
        let kept: ResultFile =
            serde_json::from_str(&fs::read_to_string(path(RESULT)).unwrap()).unwrap();
        assert_eq!(kept.violation.as_deref(), Some("a byte was wrong"));
        assert!(fs::read_to_string(completed.report()).unwrap().contains("a byte was wrong"));
    }
}
