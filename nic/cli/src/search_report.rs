//! The result of a search, as text for people.

use std::path::Path;

use seekwire_nic::Report;
use seekwire_program::table::{self, Align};
use seekwire_tune::{CandidateReport, CandidateResult, Figures, Interval, SearchResult};

use crate::render;

/// The table, the result, and what to do next.
pub(crate) fn result(
    outcome: &SearchResult,
    applied: Option<&Report>,
    written: Option<&Path>,
) -> String {
    let mut text = table(outcome);
    text.push('\n');
    text.push_str(&judgement(outcome));
    let Some(lasting) = &outcome.lasting else { return text };
    let name = &outcome.interface;
    match applied {
        Some(report) => {
            text.push_str(&format!("\n{}", render::report(name, report)));
            text.push_str(&format!(
                "`seekwire nic restore {name}` restores the state before the first change.\n"
            ));
        }
        None => {
            let changes = outcome.candidates[outcome.recommended].changes.join(" ");
            text.push_str(&format!(
                "To set it until the host restarts:\n\n  seekwire nic apply {name} {changes}\n"
            ));
        }
    }
    match written {
        Some(file) => text
            .push_str(&format!("\nOnce installed, {} makes the settings last.\n", file.display())),
        None => {
            let indent =
                |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("  {line}\n") };
            let indented = |lines: &str| lines.lines().map(indent).collect::<String>();
            text.push_str("\nTo make it last, run this at every start of the host:\n\n");
            text.push_str(&indented(&lasting.ethtool));
            let file = match &lasting.drop_in_for {
                Some(link) => format!("{link}.d/50-{name}.conf"),
                // A name that sorts before the files of the system.
                None => format!("00-{name}.link"),
            };
            text.push_str(&format!(
                "\nor create /etc/systemd/network/{file} with this content:\n\n"
            ));
            text.push_str(&indented(&lasting.link));
        }
    }
    text
}

/// The candidates, one on a line.
pub(crate) fn candidates(candidates: &[(String, Vec<String>)]) -> String {
    const COLUMNS: [(&str, Align); 2] = [("CANDIDATE", Align::Left), ("CHANGES", Align::Left)];
    let row = |(name, changes): &(String, Vec<String>)| {
        vec![name.clone(), if changes.is_empty() { "-".to_owned() } else { changes.join(" ") }]
    };
    table::layout(&COLUMNS, &candidates.iter().map(row).collect::<Vec<_>>())
}

/// The measured figures on one line.
pub(crate) fn line(measured: &Figures) -> String {
    let names = ["one way ", "p99 ", "", ""];
    let shown = names
        .iter()
        .zip(figures(measured))
        .filter_map(|(name, figure)| Some(format!("{name}{}", figure?)));
    shown.collect::<Vec<_>>().join(", ")
}

/// One-way latency, its 99th percentile, throughput, CPU time; empty if not measured.
fn figures(figures: &Figures) -> [Option<String>; 4] {
    let microseconds = |seconds: f64| format!("{:.1} us", seconds * 1e6);
    [
        figures.latency_seconds.map(microseconds),
        figures.p99_seconds.map(microseconds),
        figures.bytes_per_second.map(|bytes| format!("{:.0} MB/s", bytes / 1e6)),
        figures.cpu_seconds_per_gigabyte.map(|seconds| format!("{seconds:.3} s CPU/GB")),
    ]
}

fn table(outcome: &SearchResult) -> String {
    const COLUMNS: [(&str, Align); 8] = [
        ("CANDIDATE", Align::Left),
        ("ONE WAY", Align::Right),
        ("P99", Align::Right),
        ("STREAM", Align::Right),
        ("CPU", Align::Right),
        ("AGAINST FOUND", Align::Left),
        ("ROUNDS", Align::Right),
        ("RESULT", Align::Left),
    ];
    let row = |tried: &CandidateReport| {
        let mut row = vec![tried.name.clone()];
        row.extend(figures(&tried.figures).map(|figure| figure.unwrap_or_else(|| "-".to_owned())));
        row.push(tried.against_found.as_ref().map_or_else(|| "-".to_owned(), times));
        row.push(tried.rounds.to_string());
        row.push(end(tried));
        row
    };
    table::layout(&COLUMNS, &outcome.candidates.iter().map(row).collect::<Vec<_>>())
}

fn end(tried: &CandidateReport) -> String {
    let end = match tried.end {
        CandidateResult::Best => "best",
        CandidateResult::Open => "as good as the best, as far as measured",
        // The original settings run to the end.
        CandidateResult::Worse if tried.changes.is_empty() => "worse",
        CandidateResult::Worse => "dropped, seemed worse",
        CandidateResult::Failed => "could not be measured",
    };
    match tried.refused.as_slice() {
        [] => end.to_owned(),
        refused => format!("{end}; refused: {}", refused.join("; ")),
    }
}

fn times(interval: &Interval) -> String {
    format!("{:.3} ({:.3} to {:.3})", interval.ratio, interval.low, interval.high)
}

/// Explains the intervals.
fn note(confidence: f64) -> String {
    let sure = confidence * 100.0;
    let error = (1.0 - confidence) * 100.0;
    format!(
        "In {sure:.0} % of searches all intervals hold at once: a search recommends settings that are not better in \
         at most {error:.0} % of the cases.\n"
    )
}

fn judgement(outcome: &SearchResult) -> String {
    let SearchResult { interface, goal, rounds, seconds, .. } = outcome;
    let best = &outcome.candidates[outcome.best];
    let gain = best.against_found.as_ref().map(times).unwrap_or_default();
    let how = if outcome.is_decided { "decided" } else { "time over" };
    let head = format!("{interface}, {goal}, {rounds} rounds in {seconds:.0} s ({how}): ");
    let tail = if outcome.recommended != 0 {
        format!("{} is {gain} times as good as the original settings.\n", best.name)
    } else if outcome.best == 0 {
        "no better settings were found. Leave the interface as it is.\n".to_owned()
    } else {
        let is = if gain.is_empty() {
            String::new()
        } else {
            format!(", which is {gain} times as good")
        };
        format!(
            "no certain difference between the original settings and {}{is}. \
             Leave the interface as it is, or give the search more time (--time).\n",
            best.name
        )
    };
    head + &tail + &note(outcome.confidence)
}
