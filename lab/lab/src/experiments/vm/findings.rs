//! The findings: how the guests ran, figures, and the keys of the result.

use serde_json::Value;

use super::super::names::pairs_case;
use super::super::{curves, message_size};
use super::{BULK, KINDS, SMALL, VCHAN, WAYS, case, named, reverse, ring};
use crate::bench::{BANDWIDTH, EFFORT, LATENCY, LATENCY_TAIL};
use crate::guests::Kind;
use crate::launch::{ACCELERATED, PLAIN};
use crate::outcome::{Key, Recorded, Table};
use crate::plot::{Axis, Figure, Scale};
use crate::record::{Metric, Row, Samples, Selector};
use crate::text;

/// How the guests ran.
pub(super) fn how(Recorded { parameters, .. }: Recorded<'_>) -> Table {
    let whats = ["processors", "network", "kernel"];
    let rows = whats.into_iter().map(|what| {
        let of = |kind| parameters.get(&case(kind, what)).cloned().unwrap_or(Value::Null);
        [what.into()].into_iter().chain(KINDS.map(of)).collect()
    });
    Table {
        title: "How the guests ran".to_owned(),
        note: "An emulated processor has other timings than a real one: where it is emulated, only ratios within this \
               run are meaningful, and these also differ from those of real processors."
            .to_owned(),
        columns: ["", "virtual machines with ivshmem", "domains of Xen"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

pub(super) fn figures(rows: &[Row], recorded: &Recorded<'_>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (kind, sizes) in KINDS.into_iter().zip(["sizes", "sizes between domains of Xen"]) {
        let cases: Vec<String> =
            recorded.numbers(sizes).into_iter().map(|size| case(kind, &text::size(size))).collect();
        let rows: Vec<Row> = rows.iter().filter(|row| cases.contains(&row.case)).cloned().collect();
        let file = |what: &str| format!("{}-{what}.svg", named(kind).to_lowercase());
        let title = |what: &str| format!("{what}, {}", named(kind));
        let mut figure = |what: &str, titled: &str, scale, metric: Metric| {
            let (file, title) = (file(what), title(titled));
            figures.push(curves(&file, &title, message_size(), scale, metric, &rows, &WAYS));
        };
        figure("bandwidth", "One-way bandwidth", Scale::Linear, BANDWIDTH);
        figure("latency", "Round trip, median", Scale::Log10, LATENCY);
        figure("latency-p99", "Round trip, 99th percentile", Scale::Log10, LATENCY_TAIL);
        figure("effort", "Processor time of both ends", Scale::Log10, EFFORT);
    }
    let of_cases = |name: &dyn Fn(u64) -> String, numbers: &[u64]| -> Vec<Row> {
        let place = |row: &Row| {
            numbers.iter().find(|&&number| case(Kind::Machines, &name(number)) == row.case).copied()
        };
        let placed = |row: &Row| Some(Row { x: Some(place(row)? as f64), ..row.clone() });
        rows.iter().filter_map(placed).collect()
    };
    let x = |label: &str, scale| Axis { label: label.to_owned(), scale };
    let rings = of_cases(&ring, &recorded.numbers("ring sizes"));
    let title = "Bandwidth of 64 KiB messages by size of the ring, ivshmem";
    let axis = x("size of the ring (bytes)", Scale::Sizes);
    figures.push(curves("rings.svg", title, axis, Scale::Linear, BANDWIDTH, &rings, &WAYS));
    let pairs = of_cases(&|count| pairs_case(count as usize), &recorded.numbers("pairs"));
    let title = "Aggregate bandwidth of 64 KiB messages, ivshmem";
    let axis = x("pairs of processes", Scale::Log2);
    figures.push(curves("pairs.svg", title, axis, Scale::Linear, BANDWIDTH, &pairs, &WAYS));
    figures
}

pub(super) fn summary(samples: &Samples) -> Vec<Key> {
    let ratio = |case: String, metric: Metric, other| {
        let select = |variant| Selector { case: &case, variant, metric };
        samples.ratio(select(ACCELERATED), select(other)).map(|ratio| ratio.value)
    };
    let bulk = |kind| ratio(case(kind, &text::size(BULK)), BANDWIDTH, PLAIN);
    let latency = |kind| ratio(case(kind, &text::size(SMALL)), LATENCY, PLAIN);
    let against_vchan = [text::size(BULK), reverse(BULK)]
        .map(|size| ratio(case(Kind::Xen, &size), BANDWIDTH, VCHAN));
    // Both directions, or none.
    let against_vchan = match against_vchan {
        [Some(there), Some(back)] => Some(there.min(back)),
        _ => None,
    };
    let keys = [
        (
            "ivshmem_vs_virtio_bulk",
            "bandwidth of 64 KiB messages between virtual machines, over ivshmem over virtio-net; higher is better",
            bulk(Kind::Machines),
        ),
        (
            "ivshmem_vs_virtio_latency",
            "median round trip of 1 B, over ivshmem over virtio-net; lower is better",
            latency(Kind::Machines),
        ),
        (
            "xen_vs_netfront_bulk",
            "bandwidth of 64 KiB messages between domains of Xen, over granted memory over netfront; higher is better",
            bulk(Kind::Xen),
        ),
        (
            "xen_vs_netfront_latency",
            "median round trip of 1 B, over granted memory over netfront; lower is better",
            latency(Kind::Xen),
        ),
        (
            "xen_vs_vchan_bulk",
            "bandwidth of 64 KiB messages between domains of Xen, over granted memory over libxenvchan, in the direction \
             where it is less; higher is better",
            against_vchan,
        ),
    ];
    let keys = keys.into_iter();
    keys.filter_map(|(name, meaning, value)| Key::measured(name, meaning, value)).collect()
}
