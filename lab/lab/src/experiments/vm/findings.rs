//! The findings: how the guests ran, figures, and the keys of the result.

use serde_json::Value;

use super::super::result_names::pairs_case;
use super::super::sweep::{curves, message_size};
use super::cases::{BULK, KINDS, VARIANTS, VCHAN, case, named, reverse, ring};
use crate::bench::{BANDWIDTH, EFFORT, LATENCY, LATENCY_TAIL};
use crate::guests::GuestKind;
use crate::launch::ACCELERATED;
use crate::outcome::{Recorded, Table};
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
            figures.push(curves(&file, &title, message_size(), scale, metric, &rows, &VARIANTS));
        };
        figure("bandwidth", "One-way bandwidth", Scale::Linear, BANDWIDTH);
        figure("latency", "Round trip, median", Scale::Log10, LATENCY);
        figure("latency-p99", "Round trip, 99th percentile", Scale::Log10, LATENCY_TAIL);
        figure("effort", "Processor time of both ends", Scale::Log10, EFFORT);
    }
    let of_cases = |name: &dyn Fn(u64) -> String, numbers: &[u64]| -> Vec<Row> {
        let value = |row: &Row| {
            numbers
                .iter()
                .find(|&&number| case(GuestKind::Machines, &name(number)) == row.case)
                .copied()
        };
        let placed = |row: &Row| Some(Row { x: Some(value(row)? as f64), ..row.clone() });
        rows.iter().filter_map(placed).collect()
    };
    let x = |label: &str, scale| Axis { label: label.to_owned(), scale };
    let rings = of_cases(&ring, &recorded.numbers("ring sizes"));
    let title = "Bandwidth of 64 KiB messages by size of the ring, ivshmem";
    let axis = x("size of the ring (bytes)", Scale::Sizes);
    figures.push(curves("rings.svg", title, axis, Scale::Linear, BANDWIDTH, &rings, &VARIANTS));
    let pairs = of_cases(&|count| pairs_case(count as usize), &recorded.numbers("pairs"));
    let title = "Aggregate bandwidth of 64 KiB messages, ivshmem";
    let axis = x("pairs of processes", Scale::Log2);
    figures.push(curves("pairs.svg", title, axis, Scale::Linear, BANDWIDTH, &pairs, &VARIANTS));
    figures
}

/// The ratio to libxenvchan in the direction where it is less; both directions, or none.
pub(super) fn against_vchan(samples: &Samples) -> Option<f64> {
    let ratio = |size: String| {
        let case = case(GuestKind::Xen, &size);
        let select = |variant| Selector { case: &case, variant, metric: BANDWIDTH };
        samples.ratio(select(ACCELERATED), select(VCHAN)).map(|ratio| ratio.value)
    };
    Some(ratio(text::size(BULK))?.min(ratio(reverse(BULK))?))
}
