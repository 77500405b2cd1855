//! The document of what was run.

use std::fmt::Write;

use crate::campaign::failures;
use crate::mode::Mode;
use crate::record::{Circumstances, End, Outcome, Record};
use crate::suite::Suite;

/// The document, in Markdown.
pub(crate) fn document(suites: &[Suite], records: &[Record]) -> String {
    let mut text = String::from(
        "# Compatibility\n\n\
         Other projects' test suites, and workloads by their documentation where a project ships no tests, run on plain TCP and \
         accelerated. This file is written by `make test-suites` from what was run.\n\n",
    );
    under_what(&mut text, records);
    text.push_str(
        "A suite runs *plain*, without the library; by *default*, as a user gets it; *early*, where every connection is attached as \
         early as it can be; and by *fallback*, where in addition each connection goes back to TCP after 1000 bytes. A test that passes plain \
         and not accelerated is repeated three times each way. Bytes are those of processes that ended by themselves: one that was killed \
         writes no counters. A connection comes to the ring by calls that both ends make on it. One that is over after a few, or whose \
         client has sent everything before the server accepts it, as in most tests of libuv and in requests to a web server that are not kept alive, \
         stays on TCP: its ends find it below the threshold, the other end not there, or the connection over.\n\n\
         | suite | mode | passed | failed | skipped | attached | bytes by the ring | differ |\n\
         |-------|------|-------:|-------:|--------:|---------:|------------------:|-------:|\n",
    );
    for record in records {
        row(&mut text, suites, record);
    }
    details(&mut text, suites, records);
    text
}

/// The suites of which there is no record: a document without them would lose what is known of
/// them.
pub(crate) fn missing(suites: &[Suite], records: &[Record]) -> Vec<String> {
    let is_missing = |suite: &&Suite| records.iter().all(|record| record.suite != suite.name);
    suites.iter().filter(is_missing).map(|suite| suite.name.clone()).collect()
}

fn under_what(text: &mut String, records: &[Record]) {
    let mut all: Vec<(&Circumstances, Vec<&str>)> = Vec::new();
    for record in records {
        let at =
            all.iter().position(|(one, _)| **one == record.circumstances).unwrap_or_else(|| {
                all.push((&record.circumstances, Vec::new()));
                all.len() - 1
            });
        let suites = &mut all[at].1;
        if suites.last() != Some(&record.suite.as_str()) {
            suites.push(&record.suite);
        }
    }
    let only_one = all.len() == 1;
    for (one, suites) in &all {
        let which = if only_one { String::new() } else { format!(": {}", suites.join(", ")) };
        let _ = writeln!(
            text,
            "Run on {} at commit {} ({} build), {}{which}.\n",
            one.date, one.commit, one.build, one.machine
        );
    }
}

fn row(text: &mut String, suites: &[Suite], record: &Record) {
    let suite = suites.iter().find(|suite| suite.name == record.suite);
    if let End::NotRun(why) = &record.end {
        let _ = writeln!(text, "| {} | not run: {} | | | | | | |", record.suite, cell(why));
        return;
    }
    let end = match &record.end {
        End::TimedOut => ", over its limit",
        End::Died(_) => ", died",
        _ => "",
    };
    let (attached, bytes, differ) = if record.mode.is_accelerated() {
        let connections = record.counters.connections;
        let none = if record.counters.ring() == 0 && suite.is_some_and(|suite| suite.ring) {
            " (none)"
        } else {
            ""
        };
        (
            format!("{} of {}", connections.attached, connections.tracked),
            format!("{}{none}", record.counters.ring()),
            suite.map_or(0, |suite| failures(suite, record).len()).to_string(),
        )
    } else {
        Default::default()
    };
    let name = if record.mode == Mode::Plain { record.suite.as_str() } else { "" };
    let _ = writeln!(
        text,
        "| {name} | {}{end} | {} | {} | {} | {attached} | {bytes} | {differ} |",
        record.mode,
        record.count(Outcome::Passed),
        record.count(Outcome::Failed),
        record.count(Outcome::Skipped),
    );
}

fn details(text: &mut String, suites: &[Suite], records: &[Record]) {
    text.push_str("\n## What they are\n\n");
    for suite in suites {
        let Some(record) = records.iter().find(|record| record.suite == suite.name) else {
            continue;
        };
        let part = if record.fast { " Its fast part only." } else { "" };
        let version = if record.version.is_empty() {
            String::new()
        } else {
            format!(" ({})", record.version)
        };
        let _ = writeln!(
            text,
            "- **{}**: {}{version}.{part}",
            suite.name,
            suite.about.trim_end_matches('.')
        );
    }
    text.push_str("\n## Differences\n\n");
    let mut any = false;
    for record in records {
        let Some(suite) = suites.iter().find(|suite| suite.name == record.suite) else { continue };
        for line in failures(suite, record) {
            any = true;
            let _ = writeln!(text, "- {}, {}: {}.", record.suite, record.mode, cell(&line));
        }
        for one in record.differences.iter().filter(|one| !one.is_ours()) {
            any = true;
            let _ = writeln!(
                text,
                "- {}, {}: {} is unsteady: it failed in {} of {} runs accelerated, and in {} plain.",
                record.suite,
                record.mode,
                cell(&one.test),
                one.accelerated,
                one.runs,
                one.plain
            );
        }
    }
    if !any {
        text.push_str("None: what passes plain passes accelerated.\n");
    }
    text.push_str("\n## What fails plain, too\n\n");
    let mut any = false;
    for record in records.iter().filter(|record| record.mode == Mode::Plain) {
        let failed: Vec<_> = record
            .outcomes
            .iter()
            .filter(|(_, outcome)| **outcome == Outcome::Failed)
            .map(|(test, _)| cell(test))
            .collect();
        if !failed.is_empty() {
            any = true;
            let _ = writeln!(text, "- {}: {}.", record.suite, failed.join(", "));
        }
    }
    if !any {
        text.push_str("Nothing.\n");
    }
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
    use crate::record::Outcomes;

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
            end: End::Finished,
            seconds: 1,
            counters: Counters::default(),
            outcomes: Outcomes::from([("t|x".to_owned(), outcome)]),
            differences: Vec::new(),
        };
        let mut accelerated = record(Mode::Early, Outcome::Failed);
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
        let records = [record(Mode::Plain, Outcome::Passed), accelerated];
        assert_eq!(missing(&suites, &records), ["two"]);
        let text = document(&suites, &records);
        assert!(text.contains("| one | plain | 1 | 0 | 0 |"), "{text}");
        assert!(text.contains("|  | early | 0 | 1 | 0 | 0 of 0 | 0 (none) | 1 |"), "{text}");
        assert!(
            text.contains("- one, early: t\\|x: fails in 4 of 4 runs, plain in none."),
            "{text}"
        );
        assert!(text.contains("at commit abc (release build), Linux: one."), "{text}");
        assert!(text.contains("at commit def (release build), Linux: one."), "{text}");
        let text = document(&suites, &records[..1]);
        assert!(text.contains("at commit abc (release build), Linux.\n"), "{text}");
    }
}
