//! A pipeline in a table, for people: the changes between one status and the next.

use std::collections::HashMap;
use std::time::Duration;

use seekwire_flow::CopyReport;
use seekwire_program::table::{self, Align};

use crate::monitor::status::{CopyStatus, Status, StreamStatus};
use crate::{decision_text, time_report};

/// Columns of a sentence, for a narrow terminal.
const WIDTH: usize = 79;

pub(crate) struct StatusTable {
    before: Status,
}

impl StatusTable {
    pub(crate) fn new(before: Status) -> Self {
        Self { before }
    }

    /// The changes since the last status.
    pub(crate) fn next(&mut self, now: Status) -> String {
        let text = text(&self.before, &now);
        self.before = now;
        text
    }
}

/// The changes between two statuses; since the beginning if the first one is empty.
pub(crate) fn text(before: &Status, now: &Status) -> String {
    let previous: HashMap<(&str, usize), &CopyStatus> =
        before.copies.iter().map(|copy| ((copy.filter.as_str(), copy.copy), copy)).collect();
    let none = CopyStatus::default();
    let since = |copy: &CopyStatus| {
        copy.since(previous.get(&(copy.filter.as_str(), copy.copy)).copied().unwrap_or(&none))
    };
    let copies: Vec<CopyReport> = now.copies.iter().map(since).collect();
    let seconds = now.seconds - before.seconds;
    let streams = now.streams.iter().map(|stream| &*stream.stream);
    let bottleneck = time_report::bottleneck(&copies, streams);
    let sentences =
        [bottleneck].into_iter().chain(now.guarantee.iter().map(decision_text::guarantee));
    let decided = now.streams.iter().filter_map(|stream| {
        let last = stream.block.as_ref()?.decisions.last()?;
        Some(table::printable(&decision_text::decision(&stream.stream, last)))
    });
    format!(
        "{}\n{}\n{}\n{}{}{}",
        title(now),
        wrapped(sentences),
        table_of_copies(&copies, seconds),
        table_of_streams(before, now, seconds),
        table_of_dealing(now),
        wrapped(decided),
    )
}

fn wrapped(sentences: impl Iterator<Item = String>) -> String {
    let lines = sentences.flat_map(|sentence| table::wrap(&sentence, WIDTH));
    lines.map(|line| line + "\n").collect()
}

/// The name of the pipeline, and its progress.
fn title(now: &Status) -> String {
    let units = &now.units;
    let ended = units.done.saturating_add(units.failed);
    let mut title = format!("{}, process {}, {}", now.pipeline, now.pid, time(now.seconds));
    if units.all > 1 && ended < units.all {
        title += &format!(": unit {} of {} ({})", ended + 1, units.all, units.argument);
    }
    if units.failed > 0 {
        title += &format!(", {} failed", units.failed);
    }
    table::printable(&title)
}

/// In words: `12 s`, `3 min 12 s`, `2 h 3 min`.
pub(crate) fn time(seconds: f64) -> String {
    let seconds = Duration::try_from_secs_f64(seconds).unwrap_or_default().as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// The number per second.
fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

fn blocks_per_second(count: u64, seconds: f64) -> String {
    let rate = rate(count, seconds);
    let decimals = usize::from(rate < 10.0);
    format!("{rate:.decimals$}")
}

fn bytes_per_second(count: u64, seconds: f64) -> String {
    table::bytes(rate(count, seconds) as u64)
}

fn table_of_copies(copies: &[CopyReport], seconds: f64) -> String {
    let columns = [
        ("filter", Align::Left),
        ("copy", Align::Right),
        ("busy", Align::Right),
        ("starved", Align::Right),
        ("blocked", Align::Right),
        ("blocks/s", Align::Right),
        ("bytes/s", Align::Right),
    ];
    let row = |copy: &CopyReport| {
        let mut row = vec![copy.filter.to_string(), copy.copy.to_string()];
        row.extend(time_report::shares(copy).map(|share| format!("{share} %")));
        row.push(blocks_per_second(copy.blocks, seconds));
        row.push(bytes_per_second(copy.bytes, seconds));
        row
    };
    table::layout(&columns, &copies.iter().map(row).collect::<Vec<_>>())
}

fn table_of_streams(before: &Status, now: &Status, seconds: f64) -> String {
    let columns = [
        ("stream", Align::Left),
        ("blocks/s", Align::Right),
        ("bytes/s", Align::Right),
        ("block", Align::Right),
        ("held", Align::Right),
        ("limit", Align::Right),
    ];
    let previous: HashMap<&str, &StreamStatus> =
        before.streams.iter().map(|stream| (stream.stream.as_str(), stream)).collect();
    let none = StreamStatus::default();
    let row = |stream: &StreamStatus| {
        let before = previous.get(stream.stream.as_str()).copied().unwrap_or(&none);
        vec![
            stream.stream.clone(),
            blocks_per_second(stream.blocks.saturating_sub(before.blocks), seconds),
            bytes_per_second(stream.bytes.saturating_sub(before.bytes), seconds),
            stream.block.as_ref().map_or_else(|| "-".to_owned(), |block| block.size.to_string()),
            table::bytes(stream.held_bytes),
            table::bytes(stream.limit_bytes),
        ]
    };
    table::layout(&columns, &now.streams.iter().map(row).collect::<Vec<_>>())
}

/// The figures that dealing uses, for streams with a choice.
fn table_of_dealing(now: &Status) -> String {
    let columns = [
        ("dealing", Align::Left),
        ("copy", Align::Right),
        ("outstanding", Align::Right),
        ("service", Align::Right),
        ("round trip", Align::Right),
    ];
    let time = |time: Option<Duration>| time.map_or_else(|| "-".to_owned(), decision_text::time);
    let mut rows = Vec::new();
    for stream in now.streams.iter().filter(|stream| stream.copies.len() > 1) {
        for (number, copy) in stream.copies.iter().enumerate() {
            let outstanding = match copy.is_lost {
                true => "lost".to_owned(),
                false => copy.outstanding.to_string(),
            };
            let number = number.to_string();
            let name = stream.stream.clone();
            rows.push(vec![name, number, outstanding, time(copy.service), time(copy.round_trip)]);
        }
    }
    if rows.is_empty() { String::new() } else { format!("\n{}", table::layout(&columns, &rows)) }
}

#[cfg(test)]
mod tests {
    use seekwire_flow::CopyState;

    use super::*;
    use crate::monitor::status::UnitProgress;

    fn status(seconds: f64, [busy, starved]: [f64; 2], blocks: u64) -> Status {
        let copy = CopyStatus {
            filter: "slow".to_owned(),
            busy_seconds: busy,
            starved_seconds: starved,
            blocks,
            bytes: blocks.saturating_mul(2048),
            ..CopyStatus::default()
        };
        let stream = StreamStatus {
            stream: "read.out -> slow.in".to_owned(),
            blocks,
            held_bytes: 4096,
            limit_bytes: 1 << 20,
            ..StreamStatus::default()
        };
        Status {
            pid: 7,
            pipeline: "p\u{1b}.toml".to_owned(),
            seconds,
            units: UnitProgress { all: 3, done: 1, failed: 1, argument: "x".to_owned() },
            copies: vec![copy],
            streams: vec![stream],
            guarantee: None,
        }
    }

    #[test]
    fn what_is_shown_is_what_has_happened_since() {
        let mut view = StatusTable::new(status(100.0, [90.0, 10.0], 1000));
        let text = view.next(status(102.0, [90.5, 11.5], 1010));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "p\u{fffd}.toml, process 7, 1 min 42 s: unit 3 of 3 (x), 1 failed");
        assert_eq!(lines[1], "No filter is busy most of the time; slow is busiest, with 25 %.");
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[4]), "slow 0 25 % 75 % 0 % 5.0 10 KiB");
        assert_eq!(words(lines[7]), "read.out -> slow.in 5.0 0 B - 4.0 KiB 1.0 MiB");
    }

    #[test]
    fn where_there_is_a_choice_it_is_shown_what_it_goes_by() {
        let mut now = status(1.0, [1.0, 0.0], 5);
        let service = Some(Duration::from_micros(1234));
        let copy = CopyState { outstanding: 3, service, ..CopyState::default() };
        now.streams[0].copies = vec![copy, CopyState { is_lost: true, ..CopyState::default() }];
        let text = text(&Status::default(), &now);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        let last = &lines[lines.len() - 2..];
        assert_eq!(last, ["read.out -> slow.in 0 3 1.23 ms -", "read.out -> slow.in 1 lost - -"]);
    }

    #[test]
    fn nonsense_from_elsewhere_does_no_harm() {
        let mut view = StatusTable::new(status(5.0, [f64::MAX, 1.0], u64::MAX));
        let mut odd = status(-1e300, [1.8e19, 1.8e19], 0);
        odd.copies.push(odd.copies[0].clone());
        odd.units.done = usize::MAX;
        let text = view.next(odd);
        assert!(text.contains("100 %"), "{text}");
    }
}
