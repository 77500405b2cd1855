//! How the time was spent, in a table and in words.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use seekwire_flow::{CopyReport, StreamReport};
use seekwire_program::table::{self, Align};

use crate::{decision_text, prediction};

/// A row for each copy with its shares of the time in percent, a line for each stream, and how long all
/// of it took.
pub(crate) fn table(copies: &[CopyReport], streams: &[StreamReport], elapsed: Duration) -> String {
    let columns = [
        ("filter", Align::Left),
        ("copy", Align::Right),
        ("busy", Align::Right),
        ("starved", Align::Right),
        ("blocked", Align::Right),
        ("blocks", Align::Right),
        ("bytes", Align::Right),
        ("MiB/s", Align::Right),
    ];
    let row = |copy: &CopyReport| {
        let [busy, starved, blocked] = shares(copy);
        vec![
            copy.filter.to_string(),
            location(copy),
            format!("{busy} %"),
            format!("{starved} %"),
            format!("{blocked} %"),
            copy.blocks.to_string(),
            table::bytes(copy.bytes),
            rate(copy.bytes, elapsed),
        ]
    };
    let rows: Vec<_> = copies.iter().map(row).collect();
    let mut text = table::layout(&columns, &rows);
    for stream in streams {
        let size = stream.block.as_ref().map(|block| format!(", at last of {} B", block.size));
        text.push_str(&format!(
            "{}: {} blocks, {}{}; at most {} of {} held\n",
            table::printable(&stream.name),
            stream.blocks,
            table::bytes(stream.bytes),
            size.unwrap_or_default(),
            table::bytes(stream.peak as u64),
            table::bytes(stream.limit as u64),
        ));
    }
    let sent = sent(streams);
    text.push_str(&format!(
        "Took {}, in which the sources sent {}: {} MiB/s.\n",
        decision_text::time(elapsed),
        table::bytes(sent),
        rate(sent, elapsed)
    ));
    text.push_str(&bottleneck(copies, streams.iter().map(|stream| &*stream.name)));
    text
}

/// Bytes of all filters to which no stream leads.
fn sent(streams: &[StreamReport]) -> u64 {
    let targets: BTreeSet<&str> = streams.iter().map(|stream| prediction::ends(stream).1).collect();
    let from: BTreeSet<&str> = streams.iter().map(|stream| prediction::ends(stream).0).collect();
    let sent = from.difference(&targets).map(|source| prediction::sent_by(source, streams));
    sent.fold(0, u64::saturating_add)
}

fn rate(bytes: u64, elapsed: Duration) -> String {
    let rate = bytes as f64 / f64::from(1 << 20) / elapsed.as_secs_f64().max(1e-9);
    format!("{rate:.1}")
}

/// The number of a copy, and its location if there are several.
pub(crate) fn location(copy: &CopyReport) -> String {
    match &copy.host {
        Some(host) => format!("{} on {host} ({})", copy.copy, copy.process),
        None => copy.copy.to_string(),
    }
}

/// Busy, starved and blocked, in whole percent that add up to 100.
pub(crate) fn shares(copy: &CopyReport) -> [u64; 3] {
    let times = [copy.busy, copy.starved, copy.blocked].map(|time| time.as_nanos() as f64);
    let all: f64 = times.iter().sum();
    if all == 0.0 {
        return [0, 100, 0];
    }
    let exact = times.map(|time| 100.0 * time / all);
    let mut shares = exact.map(|share| share.floor() as u64);
    // Give the remainder to the shares that rounding down cut most.
    let mut order = [0, 1, 2];
    order.sort_by(|a, b| exact[*b].fract().total_cmp(&exact[*a].fract()));
    let missing = 100 - shares.iter().sum::<u64>();
    for at in order.into_iter().take(missing as usize) {
        shares[at] += 1;
    }
    shares
}

/// The filter whose copies are busy most of the time. The names of the streams show which filters
/// are sources.
pub(crate) fn bottleneck<'s>(
    copies: &[CopyReport],
    streams: impl Iterator<Item = &'s str>,
) -> String {
    let targets = streams.filter_map(|name| name.split(" -> ").nth(1)?.split('.').next());
    let targets: BTreeSet<&str> = targets.collect();
    let mut filters: BTreeMap<&Arc<str>, (Duration, Duration, usize)> = BTreeMap::new();
    for copy in copies {
        let filter = filters.entry(&copy.filter).or_default();
        // The times may come from another process and be anything.
        let all = copy.busy.saturating_add(copy.starved).saturating_add(copy.blocked);
        filter.0 = filter.0.saturating_add(copy.busy);
        filter.1 = filter.1.saturating_add(all);
        filter.2 += 1;
    }
    let share = |(busy, all, _): &(Duration, Duration, usize)| {
        if all.is_zero() { 0.0 } else { busy.as_secs_f64() / all.as_secs_f64() }
    };
    let busiest = filters.iter().max_by(|a, b| share(a.1).total_cmp(&share(b.1)));
    // So may the names.
    let busiest = busiest.map(|(name, times)| (&***name, table::printable(name), times));
    match busiest {
        Some((filter, name, times)) if share(times) >= 0.5 => {
            let what = if !targets.contains(filter) {
                "its input is slower than the filters after it."
            } else if times.2 == 1 {
                "a second copy, if it can have one, or a faster processor would help."
            } else {
                "another copy or a faster processor would help."
            };
            let share = 100.0 * share(times);
            format!("The bottleneck is {name}, busy {share:.0} % of the time: {what}")
        }
        Some((_, name, times)) => format!(
            "No filter is busy most of the time; {name} is busiest, with {:.0} %.",
            100.0 * share(times)
        ),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(filter: &str, [busy, starved, blocked]: [u64; 3]) -> CopyReport {
        let time = Duration::from_micros;
        CopyReport {
            filter: filter.into(),
            copy: 0,
            process: 0,
            host: None,
            busy: time(busy),
            starved: time(starved),
            blocked: time(blocked),
            blocks: 1,
            bytes: 1,
            rejected: 0,
        }
    }

    #[test]
    fn shares_add_up_to_a_hundred() {
        assert_eq!(shares(&copy("a", [1, 1, 1])), [34, 33, 33]);
        assert_eq!(shares(&copy("a", [0, 0, 0])), [0, 100, 0]);
        assert_eq!(shares(&copy("a", [999, 0, 2])), [100, 0, 0]);
    }

    #[test]
    fn names_that_others_tell_do_not_steer_the_terminal() {
        let odd = "a\u{1b}[2J\u{9b}1m\nb";
        let mut copies = [copy(odd, [90, 5, 5]), copy(odd, [1, 9, 0])];
        copies[0].host = Some(odd.into());
        let stream = StreamReport {
            name: odd.into(),
            blocks: 1,
            bytes: 1,
            held: 1,
            peak: 1,
            limit: 1,
            block: None,
            copies: Vec::new(),
        };
        for copies in [&copies[..1], &copies[1..]] {
            let text = table(copies, std::slice::from_ref(&stream), Duration::ZERO);
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
            assert_eq!(text.lines().count(), 5, "{text}");
        }
    }

    #[test]
    fn the_bottleneck_is_the_busiest_filter() {
        let copies =
            [copy("slow", [90, 10, 0]), copy("slow", [80, 20, 0]), copy("fast", [9, 91, 0])];
        let streams = ["source.out -> slow.in", "slow.out -> fast.in"];
        let said = bottleneck(&copies, streams.into_iter());
        assert!(
            said.starts_with("The bottleneck is slow, busy 85 % of the time: another copy"),
            "{said}"
        );
        let said = bottleneck(&[copy("source", [90, 0, 10])], streams.into_iter());
        assert!(said.contains("source, busy 90 % of the time: its input is slower"), "{said}");
        let said = bottleneck(&copies[2..], streams.into_iter());
        assert_eq!(said, "No filter is busy most of the time; fast is busiest, with 9 %.");
    }
}
