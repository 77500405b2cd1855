//! The experiments of V. Melnyk et al., "Sockets and heterogeneous clusters" (2024), figures 5 and
//! 6 and the two about guarantees, which go back to P. Balaji et al., "Impact of high performance
//! sockets on data intensive applications" (HPDC 2003); over `seekwire-flow`.
//!
//! ```text
//! demand      execution time while copies are slow now and then, by how blocks are dealt
//! reaction    how soon the dealer knows that a copy has become slow
//! latency     of partial updates, while a rate of complete ones is guaranteed
//! updates     complete ones, while a latency of partial ones is guaranteed
//!   load      both at the same time, at fixed times
//!   gains     over TCP, beside the paper's
//! ```

pub(super) mod demand;
mod gains;
pub(super) mod latency;
mod load;
pub(super) mod reaction;
pub(super) mod updates;

use serde_json::Value;

use crate::outcome::Table;
use crate::plot::{Axis, Chart, Figure, Point, Scale, Series};
use crate::record::{Metric, Row};

const PAPER: &str = "Melnyk et al., “Sockets and heterogeneous clusters” (2024)";

const GIGABIT: u64 = 1_000_000_000;

/// The points of a curve: medians of a metric, from the smallest to the largest reading.
fn points<'a>(
    rows: &'a [Row],
    metric: Metric,
    variant: &'a str,
    is_wanted: impl Fn(&Row) -> bool + 'a,
) -> Vec<Point> {
    let of = rows.iter().filter(|row| row.variant == variant && row.metric == metric.name);
    let point = |row: &Row| {
        let spread = row.spread?;
        Some(Point { x: row.x?, y: spread.median, low: spread.min, high: spread.max })
    };
    let mut points: Vec<Point> = of.filter(|row| is_wanted(row)).filter_map(point).collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    points
}

fn figure(file: &str, title: String, x: Axis, y: Axis, series: Vec<Series>) -> Figure {
    let series = series.into_iter().filter(|series| !series.points.is_empty()).collect();
    Figure { file: file.to_owned(), title, chart: Chart::Curves { x, y, series } }
}

fn axis(label: impl Into<String>) -> Axis {
    Axis { label: label.into(), scale: Scale::Linear }
}

/// A line for each name, its cells from `cell` for each column.
fn grid(
    title: &str,
    note: &str,
    head: &str,
    columns: &[String],
    lines: &[String],
    cell: impl Fn(&str, &str) -> Option<f64>,
) -> Table {
    let line = |name: &String| {
        let cells = columns.iter().map(|column| cell(name, column).into());
        std::iter::once(Value::from(name.as_str())).chain(cells).collect()
    };
    Table {
        title: title.to_owned(),
        note: note.to_owned(),
        columns: std::iter::once(head.to_owned()).chain(columns.iter().cloned()).collect(),
        rows: lines.iter().map(line).collect(),
    }
}
