//! How fast a pipeline can be, estimated from the cost of its filters on a part of the work.
//!
//! While the pipeline runs, streams fill up: a slow filter has taken less than was sent to it. So
//! the input of a filter is not compared with the output of the sources, but followed from filter
//! to filter: each sends a number of bytes for each byte that it has taken.

use std::collections::HashMap;

use seekwire_flow::{CopyReport, StreamReport};

use crate::pipeline::Line;

/// The cost of a byte for a filter, in seconds of one copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ByteCost {
    Measured(f64),
    /// Stated by an option.
    Said(f64),
    /// A sink, which was replaced.
    Dropped,
    /// The filter received none.
    NoBytes,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Predicted {
    pub(crate) filter: String,
    pub(crate) copies: usize,
    pub(crate) is_split: bool,
    pub(crate) is_source: bool,
    pub(crate) cost: ByteCost,
    /// Bytes that it receives for each byte of the sources; for a source, its share of them.
    pub(crate) load: f64,
}

impl ByteCost {
    fn seconds(self) -> Option<f64> {
        match self {
            Self::Measured(seconds) | Self::Said(seconds) => Some(seconds),
            Self::Dropped | Self::NoBytes => None,
        }
    }
}

impl Predicted {
    /// Seconds that its copies work for each byte of the sources.
    pub(crate) fn work(&self) -> Option<f64> {
        self.cost.seconds().map(|cost| cost * self.load)
    }

    /// Bytes of the sources per second that its copies can keep up with.
    pub(crate) fn bound(&self) -> Option<f64> {
        self.work().filter(|work| *work > 0.0).map(|work| self.copies as f64 / work)
    }

    /// Copies needed to keep up with this many bytes of the sources per second.
    pub(crate) fn needed(&self, rate: f64) -> Option<f64> {
        self.work().map(|work| (work * rate).ceil().max(1.0))
    }
}

/// Bytes that all sources have sent.
pub(crate) fn sent(predicted: &[Predicted], streams: &[StreamReport]) -> u64 {
    let sources = predicted.iter().filter(|one| one.is_source);
    sources.map(|source| sent_by(&source.filter, streams)).sum()
}

/// How many of these bytes every filter has taken, in their original or processed form.
pub(crate) fn come_through(predicted: &[Predicted], copies: &[CopyReport], sent: u64) -> f64 {
    let consumed = |one: &Predicted| -> u64 {
        copies.iter().filter(|copy| *copy.filter == *one.filter).map(|copy| copy.bytes).sum()
    };
    let others = predicted.iter().filter(|one| !one.is_source && one.load > 0.0);
    others.map(|one| consumed(one) as f64 / one.load).fold(sent as f64, f64::min)
}

/// Bytes that a filter has sent; all streams from one port carry the same bytes.
pub(crate) fn sent_by(filter: &str, streams: &[StreamReport]) -> u64 {
    let mut ports: HashMap<&str, u64> = HashMap::new();
    for stream in streams.iter().filter(|stream| ends(stream).0 == filter) {
        let port = stream.name.split(" -> ").next().unwrap_or_default();
        let bytes = ports.entry(port).or_default();
        *bytes = stream.bytes.max(*bytes);
    }
    // The counts may come from another process and be anything.
    ports.into_values().fold(0, u64::saturating_add)
}

/// The filters that a stream leads from and to.
pub(crate) fn ends(stream: &StreamReport) -> (&str, &str) {
    let (from, to) = stream.name.split_once(" -> ").unwrap_or((&stream.name, ""));
    let filter = |end: &'_ str| end.find('.').unwrap_or(end.len());
    (&from[..filter(from)], &to[..filter(to)])
}

/// Predicts from the measured costs of a part of the work.
pub(crate) fn predict(
    filters: &[Line],
    copies: &[CopyReport],
    streams: &[StreamReport],
) -> Vec<Predicted> {
    let is_source = |name: &str| !streams.iter().any(|stream| ends(stream).1 == name);
    let is_sink = |name: &str| !streams.iter().any(|stream| ends(stream).0 == name);
    // For each filter: busy time, and bytes taken, or sent by a source.
    let total = |name: &str| {
        let own = copies.iter().filter(|copy| &*copy.filter == name);
        let (busy, consumed) =
            own.fold((0.0, 0), |sum, copy| (sum.0 + copy.busy.as_secs_f64(), sum.1 + copy.bytes));
        (busy, if is_source(name) { sent_by(name, streams) } else { consumed })
    };
    let all: u64 =
        filters.iter().filter(|line| is_source(&line.name)).map(|line| total(&line.name).1).sum();
    let mut loads: HashMap<&str, f64> = HashMap::new();
    // The streams form no circle, so each turn settles at least one filter.
    while loads.len() < filters.len() {
        for Line { name, .. } in filters {
            let share = |stream: &StreamReport| {
                let (from, _) = ends(stream);
                let consumed = total(from).1.max(1) as f64;
                Some(loads.get(from)? * stream.bytes as f64 / consumed)
            };
            let load = match is_source(name) {
                true => Some(total(name).1 as f64 / all.max(1) as f64),
                false => {
                    let own = streams.iter().filter(|stream| ends(stream).1 == name);
                    own.map(share).sum()
                }
            };
            if let Some(load) = load {
                loads.insert(name, load);
            }
        }
    }
    let predicted = |line: &Line| {
        let (busy, bytes) = total(&line.name);
        let cost = match line.nanoseconds_per_byte {
            _ if is_sink(&line.name) => ByteCost::Dropped,
            Some(nanoseconds) => ByteCost::Said(nanoseconds as f64 / 1e9),
            None if bytes == 0 => ByteCost::NoBytes,
            None => ByteCost::Measured(busy / bytes as f64),
        };
        Predicted {
            filter: line.name.clone(),
            copies: line.copies,
            is_split: line.is_split,
            is_source: is_source(&line.name),
            cost,
            load: loads[&*line.name],
        }
    };
    filters.iter().map(predicted).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::origin::Origin;

    fn copy(filter: &str, busy: u64, bytes: u64) -> CopyReport {
        let [busy, none] = [busy, 0].map(Duration::from_secs);
        CopyReport {
            filter: filter.into(),
            copy: 0,
            process: 0,
            host: None,
            busy,
            starved: none,
            blocked: none,
            blocks: 1,
            bytes,
            rejected: 0,
        }
    }

    fn stream(name: &str, bytes: u64) -> StreamReport {
        StreamReport {
            name: name.into(),
            blocks: 1,
            bytes,
            held: 0,
            peak: 0,
            limit: 1,
            block: None,
            copies: Vec::new(),
        }
    }

    /// Two sources; the data of one of them triples, and half of it is not processed yet.
    #[test]
    fn what_comes_to_a_filter_is_followed_from_the_sources() {
        let file = "\
[filter.big]
run = \"read\"
[filter.small]
run = \"read\"
[filter.unzip]
run = \"gunzip\"
[filter.work]
run = \"exec\"
command = [\"x\"]
copies = 2
[filter.burn]
run = \"burn\"
nanoseconds-per-byte = 1000
[filter.a]
run = \"write\"
[filter.b]
run = \"write\"
[[stream]]
from = \"big\"
to = \"unzip\"
[[stream]]
from = \"unzip\"
to = \"work\"
[[stream]]
from = \"small\"
to = \"burn\"
[[stream]]
from = \"work\"
to = \"a\"
[[stream]]
from = \"burn\"
to = \"b\"
";
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.toml");
        std::fs::write(&path, file).unwrap();
        let pipeline = crate::pipeline::read(Origin::File(&path)).unwrap();
        let copies = [
            copy("big", 1, 0),
            copy("small", 2, 0),
            copy("unzip", 6, 600),
            copy("work", 4, 500),
            copy("work", 5, 400),
            copy("burn", 1, 100),
            copy("b", 0, 100),
        ];
        let streams = [
            stream("big.out -> unzip.in", 600),
            stream("unzip.out -> work.in", 1800),
            stream("small.out -> burn.in", 200),
            stream("work.out -> a.in", 0),
            stream("burn.out -> b.in", 100),
        ];
        let predicted = predict(&pipeline.filters, &copies, &streams);
        let find = |name: &str| predicted.iter().find(|one| one.filter == name).unwrap();
        assert_eq!(sent(&predicted, &streams), 800);
        // Half of what both sources sent: work has taken 900 of 1800, burn 100 of 200.
        assert!((come_through(&predicted, &copies, 800) - 400.0).abs() < 1e-9);
        assert_eq!((find("big").load, find("small").load), (0.75, 0.25));
        let work = find("work");
        assert_eq!((work.load, work.cost), (2.25, ByteCost::Measured(0.01)));
        assert!((work.bound().unwrap() - 2.0 / 0.0225).abs() < 1e-9);
        assert_eq!(work.needed(800.0), Some(18.0));
        let burn = find("burn");
        assert_eq!((burn.load, burn.cost), (0.25, ByteCost::Said(1e-6)));
        assert_eq!((find("a").cost, find("a").bound()), (ByteCost::Dropped, None));
    }
}
