//! Measurements of "YASMIN: Efficient Intra-Node Communication Using Generic Sockets" (Rozis,
//! Gerangelos and Koziris), beside those made here. Its network path leads through the Xen
//! hypervisor's control domain, ours over TCP loopback.

use crate::bench::{BANDWIDTH, LATENCY};
use crate::claim::{Claim, Comparison, Criterion, Estimate, Source};
use crate::limits::TWO_COPIES;
use crate::outcome::{At, ResultFile, Table};
use crate::plot::{Axis, Bar, Chart, Figure, Point, Scale, Series};
use crate::record::{Better, Metric};
use crate::{launch, programs};

use super::names::{DEFAULT, LIMIT, THIS, pairs_case};
use super::ring_size::SMALL_LATENCY;
use super::{ACCELERATED, UNIX};

pub(super) const MICROBENCHMARKS: &str = "Rozis, Gerangelos and Koziris, “YASMIN”, section 4.1";
const FIGURE_4: &str = "Rozis, Gerangelos and Koziris, “YASMIN”, section 4.1 and figure 4";
pub(super) const FIGURE_5: &str =
    "Rozis, Gerangelos and Koziris, “YASMIN”, section 4.1 and figure 5";
pub(super) const FIGURE_6: &str =
    "Rozis, Gerangelos and Koziris, “YASMIN”, section 4.1 and figure 6";
pub(super) const FIGURE_7: &str =
    "Rozis, Gerangelos and Koziris, “YASMIN”, section 4.2 and figure 7";

/// Its statement about the largest messages.
pub(super) const DIP: &str = "Bandwidth grows with the message up to 2 MB and is lower again at 4 MB, probably because \
                              the two ends then compete for the memory bus.";

/// Average bandwidth over that of the network path, by iperf.
pub(super) const BANDWIDTH_GAIN: f64 = 4.4;
/// Round trip of 1 B over that of the network path: reduced by 65 %.
pub(super) const LATENCY_LEFT: f64 = 0.35;
/// Bandwidth with a ring of 2 MiB over that of UNIX sockets without virtual machines.
const OF_UNIX: f64 = 0.76;
/// MB/s: a ring of 512 KiB, UNIX sockets, and memory (STREAM, one thread).
const RING_512_KIB: f64 = 2048.0;
const UNIX_SOCKETS: f64 = 3250.0;
const MEMORY: f64 = 2813.0;
/// Gb/s of one pair and of four, messages of 512 KB.
pub(super) const PAIRS: [(f64, f64); 2] = [(1.0, 13.2), (4.0, 53.0)];

pub(super) type Evidence = Result<Estimate, String>;

fn bandwidth<'a>(case: &'a str, variant: &'a str) -> At<'a> {
    At { case, variant, metric: BANDWIDTH.name }
}

fn bulk_over_tcp(result: &ResultFile) -> Evidence {
    Estimate::ratio(result, bandwidth("64 KiB", ACCELERATED))
}

fn smallest_round_trip(result: &ResultFile) -> Evidence {
    Estimate::ratio(result, At { case: "1 B", variant: ACCELERATED, metric: LATENCY.name })
}

fn bulk_over_unix(result: &ResultFile) -> Evidence {
    Estimate::ratio_of_medians(result, bandwidth("64 KiB", ACCELERATED), bandwidth("64 KiB", UNIX))
}

fn bulk_over_memory(result: &ResultFile) -> Evidence {
    // The chunks and the pool that suit this machine best.
    let median = |case: &str| {
        Estimate::median(result, At { case, variant: LIMIT, metric: TWO_COPIES.name })
            .map(|e| e.value)
    };
    let rows =
        result.rows.iter().filter(|row| row.variant == LIMIT && row.metric == TWO_COPIES.name);
    let best = rows
        .filter_map(|row| Some((row.case.as_str(), median(&row.case).ok()?)))
        .max_by(|(_, a), (_, b)| a.total_cmp(b));
    let (case, _) = best.ok_or("the limits of memory were not measured")?;
    let memory = At { case, variant: LIMIT, metric: TWO_COPIES.name };
    Estimate::ratio_of_medians(result, bandwidth("64 KiB", ACCELERATED), memory)
}

pub(super) const SOCKETS: &[Claim] = &[
    Claim {
        title: "bandwidth over the network path",
        statement: "Sockets over shared memory reach several times the bandwidth of the default path through the \
                    network stack.",
        source: Source::Paper(MICROBENCHMARKS),
        published: "4.4",
        measure: "bandwidth of 64 KiB messages, accelerated over TCP loopback",
        unit: "",
        evidence: bulk_over_tcp,
        criterion: Criterion::AtLeast(BANDWIDTH_GAIN),
        better: None,
        otherwise: "shared memory gains less than the paper's factor here; loopback is a much shorter path than that \
                    through a control domain",
    },
    Claim {
        title: "latency of 1 B",
        statement: "The latency of a message of one byte falls by about two thirds.",
        source: Source::Paper(MICROBENCHMARKS),
        published: "−65 %, i.e. 0.35",
        measure: "round trip of 1 B, accelerated over TCP loopback",
        unit: "",
        evidence: smallest_round_trip,
        criterion: Criterion::AtMost(LATENCY_LEFT),
        better: None,
        otherwise: "small messages gain less than in the paper",
    },
    Claim {
        title: "bandwidth over UNIX sockets",
        statement: "With a ring of 2 MiB, which is the default here, bandwidth comes to three quarters of that of \
                    UNIX sockets on the bare machine.",
        source: Source::Paper(FIGURE_6),
        published: "0.76",
        measure: "bandwidth of 64 KiB messages, accelerated over a UNIX socket",
        unit: "",
        evidence: bulk_over_unix,
        criterion: Criterion::AtLeast(OF_UNIX),
        better: None,
        otherwise: "UNIX sockets are further ahead here",
    },
    Claim {
        title: "bandwidth over that of memory",
        statement: "A ring reaches most of the bandwidth of memory itself: 2048 of 2813 MB/s (STREAM).",
        source: Source::Paper(MICROBENCHMARKS),
        published: "0.73",
        measure: "bandwidth of 64 KiB messages, accelerated, over the best that one processor reaches when it copies \
                  in and out again",
        unit: "",
        evidence: bulk_over_memory,
        criterion: Criterion::AtLeast(RING_512_KIB / MEMORY),
        better: None,
        otherwise: "more is lost between two processes than by copying; the limit here is that of caches, not of \
                    main memory",
    },
    Claim {
        title: "dip of the largest messages",
        statement: DIP,
        source: Source::Paper(FIGURE_5),
        published: "",
        measure: "bandwidth of 4 MiB messages over that of 2 MiB messages, accelerated",
        unit: "",
        evidence: |result| {
            let of = |case| bandwidth(case, ACCELERATED);
            Estimate::ratio_of_medians(result, of("4 MiB"), of("2 MiB"))
        },
        criterion: Criterion::Below(1.0),
        better: Some(Better::Higher),
        otherwise: "there is no dip here: the ring is reused while it is in the caches",
    },
];

/// The network path in most experiments.
const LOOPBACK: &str = "here it is TCP loopback";

/// Bars in pairs: published, here. `path` names the network path.
pub(super) fn beside(
    title: &str,
    source: &'static str,
    path: &str,
    numbers: &[(&str, f64, Evidence)],
) -> Comparison {
    let mut bars = Vec::new();
    let mut rows = Vec::new();
    for (what, published, ours) in numbers {
        let bar =
            |who: &str, value, low, high| Bar { name: format!("{what}, {who}"), value, low, high };
        bars.push((6, bar("YASMIN", *published, *published, *published)));
        bars.extend(
            ours.as_ref().ok().map(|ours| (0, bar("here", ours.value, ours.low, ours.high))),
        );
        let ours = ours.as_ref().map_or_else(|why| why.clone(), Estimate::to_string);
        rows.push(vec![(*what).into(), (*published).into(), ours.into()]);
    }
    let has_ours = numbers.iter().any(|(_, _, ours)| ours.is_ok());
    let figure = has_ours.then(|| Figure {
        file: "published.svg".to_owned(),
        title: title.to_owned(),
        chart: Chart::Published { label: "ratio".to_owned(), bars },
    });
    let table = Table {
        title: title.to_owned(),
        note: format!(
            "Ratios. YASMIN’s network path is that of Xen’s netfront and netback between virtual machines; {path}. Ours \
             with 95 % intervals."
        ),
        columns: ["what", "YASMIN", "here"].map(str::to_owned).to_vec(),
        rows,
    };
    Comparison { source, figure, table }
}

pub(super) fn sockets(result: &ResultFile) -> Vec<Comparison> {
    vec![beside(
        "Shared memory against the other ways",
        MICROBENCHMARKS,
        LOOPBACK,
        &[
            ("bandwidth over network path", BANDWIDTH_GAIN, bulk_over_tcp(result)),
            ("round trip of 1 B over network path", LATENCY_LEFT, smallest_round_trip(result)),
            ("bandwidth over UNIX sockets", OF_UNIX, bulk_over_unix(result)),
            ("bandwidth over memory", RING_512_KIB / MEMORY, bulk_over_memory(result)),
        ],
    )]
}

/// A pool of about 512 KiB next to the default of 2 MiB.
fn small_pool(result: &ResultFile, metric: Metric) -> Evidence {
    let at = |case| At { case, variant: THIS, metric: metric.name };
    let of = |case| Estimate::ratio(result, at(case));
    of("32 KiB in 512 KiB").or_else(|why| of("64 KiB in 1 MiB").map_err(|_| why))
}

pub(super) const RING_SIZE: &[Claim] = &[
    Claim {
        title: "bandwidth by ring size",
        statement: "Bandwidth grows with the size of the ring, up to 2 MiB.",
        source: Source::Paper(FIGURE_6),
        published: "0.83",
        measure: "bandwidth of 64 KiB messages with a pool of 512 KiB (quick runs: 1 MiB) over that with 2 MiB, \
                  measured next to each other",
        unit: "",
        evidence: |result| small_pool(result, BANDWIDTH),
        criterion: Criterion::Below(1.0),
        better: Some(Better::Higher),
        otherwise: "smaller pools are as fast here",
    },
    Claim {
        title: "latency by ring size",
        statement: "The latency of messages of up to 1 KiB does not depend on the size of the ring.",
        source: Source::Paper(FIGURE_4),
        published: "",
        measure: "round trip of 1 KiB with a pool of 512 KiB (quick runs: 1 MiB) over that with 2 MiB, measured next \
                  to each other",
        unit: "",
        evidence: |result| small_pool(result, SMALL_LATENCY),
        criterion: Criterion::Between(0.95, 1.05),
        better: None,
        otherwise: "small messages depend on the size of the pool",
    },
];

pub(super) fn ring_size(result: &ResultFile) -> Vec<Comparison> {
    const MIB: f64 = (1 << 20) as f64;
    let published = [(0.5 * MIB, RING_512_KIB / (OF_UNIX * UNIX_SOCKETS)), (2.0 * MIB, 1.0)];
    let sizes =
        [(MIB / 8.0, "128 KiB"), (MIB / 4.0, "256 KiB"), (MIB / 2.0, "512 KiB"), (MIB, "1 MiB")];
    let sizes =
        sizes.into_iter().chain([(2.0 * MIB, "2 MiB"), (4.0 * MIB, "4 MiB"), (8.0 * MIB, "8 MiB")]);
    let mut points = Vec::new();
    let mut rows = Vec::new();
    for (pool, name) in sizes {
        // Segments of the default size, or of the nearest that there are.
        let ours = [32, 64, 16].into_iter().find_map(|segment| {
            let case = format!("{segment} KiB in {name}");
            Estimate::ratio(result, At { case: &case, variant: THIS, metric: BANDWIDTH.name }).ok()
        });
        let theirs = published.iter().find(|(size, _)| *size == pool).map(|(_, ratio)| *ratio);
        points.extend(ours.map(|ours| Point {
            x: pool,
            y: ours.value,
            low: ours.low,
            high: ours.high,
        }));
        if ours.is_some() || theirs.is_some() {
            rows.push(vec![name.into(), theirs.into(), ours.map(|ours| ours.to_string()).into()]);
        }
    }
    let title = "Bandwidth by size of the ring, over that of 2 MiB";
    let table = Table {
        title: title.to_owned(),
        note: format!(
            "The paper gives 2048 MB/s for 512 KiB, and for 2 MiB 76 % of its UNIX sockets’ {UNIX_SOCKETS} MB/s; its \
             other points are only in the figure. Here the pool is next to the {DEFAULT} one."
        ),
        columns: ["ring or pool", "YASMIN", "here (95 %)"].map(str::to_owned).to_vec(),
        rows,
    };
    let x = Axis { label: "size of ring or pool (bytes)".to_owned(), scale: Scale::Sizes };
    let label = "bandwidth over that of 2 MiB (95 %)";
    vec![Comparison {
        source: FIGURE_6,
        figure: curves(title, x, label, &published, points),
        table,
    }]
}

/// Published points as a curve of their own; `None` without ours.
fn curves(
    title: &str,
    x: Axis,
    y: &str,
    published: &[(f64, f64)],
    ours: Vec<Point>,
) -> Option<Figure> {
    let published = published.iter().map(|&(x, y)| Point { x, y, low: y, high: y }).collect();
    let series = |name: &str, colour, points| Series { name: name.to_owned(), colour, points };
    (!ours.is_empty()).then(|| Figure {
        file: "published.svg".to_owned(),
        title: title.to_owned(),
        chart: Chart::Curves {
            x,
            y: Axis { label: y.to_owned(), scale: Scale::Linear },
            series: vec![series("YASMIN", 6, published), series("here", 0, ours)],
        },
    })
}

fn four_pairs(result: &ResultFile) -> Evidence {
    match result.machine.cores {
        cores @ ..8 => Err(format!(
            "four pairs need eight processors to themselves, as in the paper; this machine has {cores}"
        )),
        _ => Estimate::ratio_of_medians(
            result,
            bandwidth("4 pairs", ACCELERATED),
            bandwidth("1 pair", ACCELERATED),
        ),
    }
}

pub(super) const PAIRS_CLAIMS: &[Claim] = &[
    Claim {
        title: "four pairs",
        statement: "Bandwidth grows in proportion to the number of communicating pairs, each on two processors of \
                    its own: four pairs move four times what one does.",
        source: Source::Paper(FIGURE_7),
        published: "13.2 and 53 Gb/s, i.e. 4.0",
        measure: "bandwidth of 64 KiB messages of 4 pairs over that of one, accelerated; at least nine tenths of the \
                  published factor",
        unit: "",
        evidence: four_pairs,
        criterion: Criterion::AtLeast(3.6),
        better: None,
        otherwise: "the pairs get into each other’s way, in the caches or at the memory",
    },
    Claim {
        title: "gain of several pairs",
        statement: "Four pairs together move more than over TCP, even where they have to share processors.",
        source: Source::Goal,
        published: "",
        measure: "bandwidth of 4 pairs, accelerated over TCP loopback",
        unit: "",
        evidence: |result| Estimate::ratio(result, bandwidth("4 pairs", ACCELERATED)),
        criterion: Criterion::Above(1.0),
        better: None,
        otherwise: "shared memory gains nothing when pairs compete for processors",
    },
];

pub(super) fn pairs(result: &ResultFile) -> Vec<Comparison> {
    let of = |count: usize| {
        let case = pairs_case(count);
        let one = bandwidth("1 pair", ACCELERATED);
        Estimate::ratio_of_medians(result, bandwidth(&case, ACCELERATED), one).ok()
    };
    let published: Vec<(f64, f64)> =
        PAIRS.iter().map(|(pairs, rate)| (*pairs, rate / PAIRS[0].1)).collect();
    let mut points = Vec::new();
    let mut rows = Vec::new();
    for count in [1, 2, 4, 8] {
        let x = count as f64;
        let ours = match count {
            1 => of(1).map(|one| Estimate { value: 1.0, low: 1.0, high: 1.0, ..one }),
            _ => of(count),
        };
        points.extend(ours.map(|ours| Point { x, y: ours.value, low: ours.low, high: ours.high }));
        let theirs = published.iter().find(|(pairs, _)| *pairs == x).map(|(_, ratio)| *ratio);
        rows.push(vec![count.into(), theirs.into(), ours.map(|ours| ours.to_string()).into()]);
    }
    let title = "Bandwidth of several pairs over that of one";
    let table = Table {
        title: title.to_owned(),
        note: "The paper gives 13.2 Gb/s for one pair of virtual machines and 53 Gb/s for four, each machine on a \
               processor of its own, messages of 512 KB; its other points are only in the figure. Here they are \
               processes and messages of 64 KiB, and the pairs share the available processors."
            .to_owned(),
        columns: ["pairs", "YASMIN", "here (95 %)"].map(str::to_owned).to_vec(),
        rows,
    };
    let x = Axis { label: "pairs".to_owned(), scale: Scale::Log2 };
    let figure = curves(title, x, "bandwidth over that of one pair (95 %)", &published, points);
    vec![Comparison { source: FIGURE_7, figure, table }]
}

fn iperf3(result: &ResultFile) -> Evidence {
    let at = At {
        case: programs::iperf3::FORWARD,
        variant: launch::ACCELERATED,
        metric: BANDWIDTH.name,
    };
    Estimate::ratio(result, at)
}

fn sockperf(result: &ResultFile) -> Evidence {
    let at =
        At { case: programs::sockperf::CASE, variant: launch::ACCELERATED, metric: LATENCY.name };
    Estimate::ratio(result, at)
}

pub(crate) const PROGRAMS: &[Claim] = &[
    Claim {
        title: "iperf",
        statement: "An unmodified iperf reaches 4.4 times the average bandwidth of the network path.",
        source: Source::Paper(MICROBENCHMARKS),
        published: "4.4",
        measure: "bandwidth of iperf3, one stream, accelerated over plain",
        unit: "",
        evidence: iperf3,
        criterion: Criterion::AtLeast(BANDWIDTH_GAIN),
        better: None,
        otherwise: "iperf3 gains less than in the paper",
    },
    Claim {
        title: "latency of small messages",
        statement: "The latency of small messages of unmodified programs falls by about two thirds.",
        source: Source::Paper(MICROBENCHMARKS),
        published: "−65 %, i.e. 0.35",
        measure: "round trip of sockperf’s ping-pong with 64 B, accelerated over plain",
        unit: "",
        evidence: sockperf,
        criterion: Criterion::AtMost(LATENCY_LEFT),
        better: None,
        otherwise: "small messages gain less than in the paper",
    },
];

pub(crate) fn programs(result: &ResultFile) -> Vec<Comparison> {
    vec![beside(
        "Unmodified programs over shared memory",
        MICROBENCHMARKS,
        LOOPBACK,
        &[
            ("bandwidth of iperf", BANDWIDTH_GAIN, iperf3(result)),
            ("round trip of a small message", LATENCY_LEFT, sockperf(result)),
        ],
    )]
}
