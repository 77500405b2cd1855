//! Renders the results as a page.

use crate::campaign::failures;
use crate::mode::SuiteMode;
use crate::outcome::TestOutcome;
use crate::page::Page;
use crate::record::{Record, RunEnd};
use crate::suite::Suite;

/// The page of these records.
pub(crate) fn page(suites: &[Suite], records: &[Record]) -> Page {
    let mut page = Page::default();
    for record in records {
        let Some(suite) = suites.iter().find(|suite| suite.name == record.suite) else { continue };
        let part = page.part(&record.suite);
        let one = &record.circumstances;
        let run =
            format!("{} at commit {} ({} build), {}", one.date, one.commit, one.build, one.machine);
        if !part.runs.contains(&run) {
            part.runs.push(run);
        }
        part.rows.push(row(suite, record));
        if part.what.is_empty() {
            part.what = what(suite, record);
        }
        part.differences.extend(differences(suite, record));
        if record.mode == SuiteMode::Plain {
            part.fails_plain = fails_plain(record);
        }
    }
    page
}

/// The suites that the page does not contain.
pub(crate) fn missing<'a>(suites: &'a [Suite], page: &Page) -> Vec<&'a str> {
    let names = suites.iter().map(|suite| suite.name.as_str());
    names.filter(|name| !page.0.contains_key(*name)).collect()
}

fn row(suite: &Suite, record: &Record) -> String {
    if let RunEnd::NotRun(why) = &record.end {
        return format!("| {} | not run: {} | | | | | | |", record.suite, cell(why));
    }
    let end = match &record.end {
        RunEnd::TimedOut => ", over its limit",
        RunEnd::Died(_) => ", died",
        _ => "",
    };
    let (attached, bytes, differ) = if record.mode.is_accelerated() {
        let (connections, ring) = (record.counters.connections, record.counters.ring());
        let none = if ring == 0 && suite.ring { " (none)" } else { "" };
        (
            format!("{} of {}", connections.attached, connections.tracked),
            format!("{ring}{none}"),
            failures(suite, record).len().to_string(),
        )
    } else {
        Default::default()
    };
    let name = if record.mode == SuiteMode::Plain { record.suite.as_str() } else { "" };
    format!(
        "| {name} | {}{end} | {} | {} | {} | {attached} | {bytes} | {differ} |",
        record.mode,
        record.count(TestOutcome::Passed),
        record.count(TestOutcome::Failed),
        record.count(TestOutcome::Skipped),
    )
}

fn what(suite: &Suite, record: &Record) -> String {
    let part = if record.fast { " Its fast part only." } else { "" };
    let version = match record.version.as_str() {
        "" => String::new(),
        version => format!(" ({version})"),
    };
    format!("- **{}**: {}{version}.{part}", suite.name, suite.about.trim_end_matches('.'))
}

fn differences(suite: &Suite, record: &Record) -> Vec<String> {
    let (name, mode) = (&record.suite, record.mode);
    let ours = failures(suite, record);
    let ours = ours.iter().map(|line| format!("- {name}, {mode}: {}.", cell(line)));
    let unsteady = record.differences.iter().filter(|one| !one.is_ours()).map(|one| {
        format!(
            "- {name}, {mode}: {} is unsteady: it failed in {} of {} runs accelerated, and in {} plain.",
            cell(&one.test),
            one.accelerated,
            one.runs,
            one.plain
        )
    });
    ours.chain(unsteady).collect()
}

fn fails_plain(record: &Record) -> Option<String> {
    let failed: Vec<_> = record
        .outcomes
        .iter()
        .filter(|(_, outcome)| **outcome == TestOutcome::Failed)
        .map(|(test, _)| cell(test))
        .collect();
    (!failed.is_empty()).then(|| format!("- {}: {}.", record.suite, failed.join(", ")))
}

/// Text that breaks neither a table nor a list.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
        .replace(['\n', '\r'], " ")
        .replace('_', "\\_")
        .replace('*', "\\*")
        .replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counters;
    use crate::outcome::Outcomes;
    use crate::record::Circumstances;

    #[test]
    fn a_row_for_each_mode_and_a_line_for_each_difference() {
        let circumstances = Circumstances {
            commit: "abc".to_owned(),
            date: "2026-01-01".to_owned(),
            machine: "Linux".to_owned(),
            build: "release".to_owned(),
        };
        let record = |mode, outcome| Record {
            suite: "one".to_owned(),
            mode,
            circumstances: circumstances.clone(),
            version: "One 1.0".to_owned(),
            fast: false,
            end: RunEnd::Finished,
            seconds: 1,
            counters: Counters::default(),
            outcomes: Outcomes::from([("t|x".to_owned(), outcome)]),
            differences: Vec::new(),
        };
        let mut accelerated = record(SuiteMode::Early, TestOutcome::Failed);
        accelerated.circumstances.commit = "def".to_owned();
        accelerated.differences.push(crate::verdict::Difference {
            test: "t|x".to_owned(),
            accelerated: 4,
            plain: 0,
            runs: 4,
        });
        let directory = tempfile::tempdir().unwrap();
        for name in ["one", "two"] {
            std::fs::write(directory.path().join(name), "#!/bin/sh\n# about: Tests of one\n")
                .unwrap();
        }
        let suites = crate::suite::all(directory.path()).unwrap();
        let records = [record(SuiteMode::Plain, TestOutcome::Passed), accelerated];
        let text = page(&suites, &records);
        assert_eq!(missing(&suites, &text), ["two"]);
        let text = text.to_string();
        assert!(text.contains("| one | plain | 1 | 0 | 0 |"), "{text}");
        assert!(text.contains("|  | early | 0 | 1 | 0 | 0 of 0 | 0 (none) | 1 |"), "{text}");
        assert!(
            text.contains("- one, early: t\\|x: fails in 4 of 4 runs, plain in none."),
            "{text}"
        );
        assert!(text.contains("at commit abc (release build), Linux: one."), "{text}");
        assert!(text.contains("at commit def (release build), Linux: one."), "{text}");
        let text = page(&suites, &records[..1]).to_string();
        assert!(text.contains("at commit abc (release build), Linux.\n"), "{text}");
    }
}
