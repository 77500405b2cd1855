//! Measurements of "YASMIN: Efficient Intra-Node Communication Using Generic Sockets" (Rozis,
//! Gerangelos and Koziris), beside those made here. Its network path leads through the Xen
//! hypervisor's control domain, ours over TCP loopback.

use crate::bench::BANDWIDTH;
use crate::claim::{Estimate, Evidence, PublishedComparison};
use crate::limits::TWO_COPIES;
use crate::outcome::{At, ResultFile, Table};
use crate::plot::{Axis, Chart, Figure, Point, Scale, Series};

use super::result_names::{DEFAULT, LIMIT, THIS, pairs_case};
use super::sweep::ACCELERATED;

const FIGURE_6: &str = "Rozis, Gerangelos and Koziris, “YASMIN”, section 4.1 and figure 6";
const FIGURE_7: &str = "Rozis, Gerangelos and Koziris, “YASMIN”, section 4.2 and figure 7";

/// Bandwidth with a ring of 2 MiB over that of UNIX sockets without virtual machines.
const OF_UNIX: f64 = 0.76;
/// MB/s: a ring of 512 KiB, and UNIX sockets.
const RING_512_KIB: f64 = 2048.0;
const UNIX_SOCKETS: f64 = 3250.0;
/// Gb/s of one pair and of four, messages of 512 KB.
const PAIRS: [(f64, f64); 2] = [(1.0, 13.2), (4.0, 53.0)];

fn bandwidth<'a>(case: &'a str, variant: &'a str) -> At<'a> {
    At { case, variant, metric: BANDWIDTH.name }
}

pub(super) fn bulk_over_memory(result: &ResultFile) -> Evidence {
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

/// A pool of about 512 KiB next to the default of 2 MiB.
pub(super) fn small_pool(result: &ResultFile, metric: &str) -> Evidence {
    let at = |case| At { case, variant: THIS, metric };
    let of = |case| Estimate::ratio(result, at(case));
    of("32 KiB in 512 KiB").or_else(|why| of("64 KiB in 1 MiB").map_err(|_| why))
}

pub(super) fn ring_size(result: &ResultFile) -> Vec<PublishedComparison> {
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
    vec![PublishedComparison {
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

pub(super) fn four_pairs(result: &ResultFile) -> Evidence {
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

pub(super) fn pairs(result: &ResultFile) -> Vec<PublishedComparison> {
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
    vec![PublishedComparison { source: FIGURE_7, figure, table }]
}
