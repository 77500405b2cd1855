//! The goals, judged by a result of `slides`.

use super::{COLD, COUNTS, FIRST, GOAL, HELD, RATE, TAIL, TWICE, closed, viewers, workers};
use crate::claim::{Claim, Criterion, Estimate, Source};
use crate::imaging::Dealing;
use crate::outcome::{At, ResultFile};
use crate::record::Metric;
use crate::slides::servers::Peer;
use crate::slides::view::What;

type Evidence = Result<Estimate, String>;

fn at<'a>(case: &'a str, metric: Metric) -> At<'a> {
    At { case, variant: Peer::Seekwire.name(), metric: metric.name }
}

fn over_iipsrv(result: &ResultFile, what: What) -> Evidence {
    Estimate::ratio(result, at(&closed(what, GOAL), RATE))
}

/// Tiles of five channels over those of the only other server that has them.
fn over_large_image(result: &ResultFile) -> Evidence {
    let case = closed(What::Channels, GOAL);
    let theirs = At { variant: Peer::LargeImage.name(), ..at(&case, RATE) };
    Estimate::ratio_of_medians(result, at(&case, RATE), theirs)
}

fn median(result: &ResultFile, case: &str, metric: Metric) -> Evidence {
    Estimate::median(result, at(case, metric))
}

/// Of all cases in which something is decoded or cached, the one with the largest number.
fn worst(result: &ResultFile, metric: Metric) -> Evidence {
    let is_wanted = |metric: Metric| {
        move |row: &&crate::record::Row| {
            row.variant == Peer::Seekwire.name() && row.metric == metric.name
        }
    };
    let spreads = result.rows.iter().filter(is_wanted(metric)).filter_map(|row| row.spread);
    let worst = spreads.max_by(|one, other| one.max.total_cmp(&other.max));
    Estimate::of(&worst.ok_or_else(|| format!("{} was not measured", metric.name))?)
}

/// With the largest number of viewers.
fn memory(result: &ResultFile) -> Evidence {
    let of = |count: &u64| median(result, &viewers(What::Decoded, *count), HELD);
    COUNTS.iter().rev().map(of).find(Result::is_ok).unwrap_or_else(|| of(&GOAL))
}

/// Latency p99 with a slow worker if dealt adaptively, over another latency.
fn slow_worker(result: &ResultFile, dealing: Dealing, is_one_slow: bool) -> Evidence {
    fn at(case: &str, dealing: Dealing) -> At<'_> {
        At { case, variant: dealing.name(), metric: TAIL.name }
    }
    let (slow, other) = (workers::tail_case(true), workers::tail_case(is_one_slow));
    Estimate::ratio_of_medians(result, at(&slow, Dealing::Adaptive), at(&other, dealing))
}

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        title: "stored tiles over iipsrv",
        statement: "The server passes at least three times as many stored tiles through as iipsrv.",
        source: Source::Goal,
        published: "",
        measure: "stored tiles per second on 16 connections, over iipsrv",
        unit: "",
        evidence: |result| over_iipsrv(result, What::Stored),
        criterion: Criterion::AtLeast(3.0),
        better: None,
        otherwise: "iipsrv is not that much slower",
    },
    Claim {
        title: "stored tiles",
        statement: "The server delivers more than 10,000 stored tiles a second.",
        source: Source::Goal,
        published: "",
        measure: "stored tiles per second on 16 connections",
        unit: "1/s",
        evidence: |result| median(result, &closed(What::Stored, GOAL), RATE),
        criterion: Criterion::Above(10_000.0),
        better: None,
        otherwise: "there are fewer, with the load on the same processors",
    },
    Claim {
        title: "decoded tiles over iipsrv",
        statement: "The server delivers at least 1.5 times as many decoded tiles as iipsrv.",
        source: Source::Goal,
        published: "",
        measure: "decoded tiles per second on 16 connections, over iipsrv",
        unit: "",
        evidence: |result| over_iipsrv(result, What::Decoded),
        criterion: Criterion::AtLeast(1.5),
        better: None,
        otherwise: "decoding and encoding take iipsrv hardly longer",
    },
    Claim {
        title: "tiles of five channels over large_image",
        statement: "The server delivers at least three times as many tiles blended from five channels of 16 bits as \
            large_image.",
        source: Source::Goal,
        published: "",
        measure: "tiles of five channels per second on 16 connections, over large_image",
        unit: "",
        evidence: over_large_image,
        criterion: Criterion::AtLeast(3.0),
        better: None,
        otherwise: "large_image is not that much slower",
    },
    Claim {
        title: "latency of decoded tiles",
        statement: "While 16 viewers pan, 99 of 100 decoded tiles arrive within 50 ms.",
        source: Source::Goal,
        published: "",
        measure: "decoded tiles for 16 viewers that pan: latency p99, from when a tile was due",
        unit: "ms",
        evidence: |result| median(result, &viewers(What::Decoded, GOAL), TAIL),
        criterion: Criterion::Below(50.0),
        better: None,
        otherwise: "some wait longer than that",
    },
    Claim {
        title: "first tile of a slide",
        statement: "A slide that nobody has opened shows a tile within 200 ms.",
        source: Source::Goal,
        published: "",
        measure: "from the request to the first tile of a slide that is not in the page cache",
        unit: "ms",
        evidence: |result| median(result, COLD, FIRST),
        criterion: Criterion::Below(200.0),
        better: None,
        otherwise: "opening it takes longer",
    },
    Claim {
        title: "decoded twice",
        statement: "No tile is decoded while it is being decoded or cached.",
        source: Source::Goal,
        published: "",
        measure: "stored tiles that were decoded twice, in the worst case",
        unit: "",
        evidence: |result| worst(result, TWICE),
        criterion: Criterion::AtMost(0.0),
        better: None,
        otherwise: "some are",
    },
    Claim {
        title: "memory",
        statement: "The server grows by no more than its options allow.",
        source: Source::Goal,
        published: "",
        measure: "decoded tiles for the most viewers: growth of the server over what its caches and images may hold",
        unit: "",
        evidence: memory,
        criterion: Criterion::AtMost(1.0),
        better: None,
        otherwise: "it grows by more",
    },
    Claim {
        title: "a slow worker, adaptive",
        statement: "One worker of four that is ten times slower costs adaptive dealing less than 1.3 times in latency.",
        source: Source::Goal,
        published: "",
        measure: "decoded tiles for viewers that pan, dealt adaptively: latency p99 with a slow worker over that without",
        unit: "",
        evidence: |result| slow_worker(result, Dealing::Adaptive, false),
        criterion: Criterion::Below(1.3),
        better: None,
        otherwise: "it costs more",
    },
    Claim {
        title: "a slow worker, adaptive against round-robin",
        statement: "With such a worker, tiles arrive sooner if they are dealt adaptively than if they are dealt in \
            turn.",
        source: Source::Goal,
        published: "",
        measure: "decoded tiles for viewers that pan, with a slow worker: latency p99 of adaptive over round-robin",
        unit: "",
        evidence: |result| slow_worker(result, Dealing::RoundRobin, true),
        criterion: Criterion::Below(1.0),
        better: None,
        otherwise: "they do not",
    },
];
