//! Findings of the papers on receiving out of order, beside the measurements here: Douglas and Pai,
//! "Seekable sockets: a mechanism to reduce copy overheads in TCP-based messaging", and Melnyk et
//! al. on direct message search (2019).

use serde_json::Value;

use crate::claim::{Estimate, Evidence, PublishedComparison};
use crate::outcome::{ResultFile, Table};
use crate::plot::{Axis, Chart, Figure, Point, Scale, Series};
use crate::search::{CPU, CPU_MESSAGES, INSTRUCTIONS};
use crate::text;

use super::result_names::{ASIDE, MAILBOX, MODULE, POOL, SEEK};

const FIGURE_3: &str = "Douglas and Pai, “Seekable sockets”, section 4 and figure 3";

/// Percentage of the receiver's processor time that both papers save at best, and the range that
/// the second one gives.
const BEST: f64 = 40.0;
const BEST_2019: f64 = 36.0;

/// A line of the table of savings.
struct Saved {
    size: u64,
    piece: Option<u64>,
    skip: u64,
    percent: Evidence,
}

/// Savings of `method` over TCP against `baseline`, by the metric that counts.
fn saved(result: &ResultFile, method: &str, baseline: &str, metrics: &[&str]) -> Vec<Saved> {
    let mut savings = Vec::new();
    for table in &result.tables {
        let column = |names: &[&str]| {
            table.columns.iter().position(|column| names.contains(&column.as_str()))
        };
        let text =
            |row: &[Value], names: &[&str]| Some(row.get(column(names)?)?.as_str()?.to_owned());
        let number = |row: &[Value], name: &str| row.get(column(&[name])?)?.as_f64();
        for row in &table.rows {
            let is = |names: &[&str], wanted: &[&str]| {
                text(row, names).is_some_and(|text| wanted.contains(&text.as_str()))
            };
            if !(is(&["carrier"], &["TCP"])
                && is(&["way"], &[method])
                && is(&["baseline"], &[baseline]))
            {
                continue;
            }
            // Earlier files name the column after the saved quantity.
            if !is(&["of", "time"], metrics) {
                continue;
            }
            let (Some(size), Some(skip), Some(value)) =
                (number(row, "message (B)"), number(row, "N"), number(row, "saved (%)"))
            else {
                continue;
            };
            let rounds = number(row, "rounds").unwrap_or(0.0) as usize;
            let percent = match number(row, "standard error") {
                Some(error) => Estimate::mean(value, error, rounds),
                None => Estimate::mean(value, 0.0, 1),
            };
            let piece = number(row, "piece (B)").map(|piece| piece as u64);
            savings.push(Saved { size: size as u64, piece, skip: skip as u64, percent });
        }
    }
    savings
}

/// The savings that a result reports: of seeks, by the library or by the module.
fn searches(result: &ResultFile) -> Vec<Saved> {
    let method = if result.experiment == "seek-module" { MODULE } else { SEEK };
    saved(result, method, POOL, &[CPU.name, INSTRUCTIONS.name])
}

fn at(savings: &[Saved], size: u64, skip: u64) -> Evidence {
    let saved = savings.iter().find(|saved| (saved.size, saved.skip) == (size, skip));
    let missing = || format!("messages of {}, N = {skip}, were not measured", text::size(size));
    saved.ok_or_else(missing)?.percent.clone()
}

/// Sizes in ascending order.
fn sizes(savings: &[Saved]) -> Vec<u64> {
    let mut sizes: Vec<u64> = savings.iter().map(|saved| saved.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn ends(savings: &[Saved]) -> Result<(u64, u64), String> {
    let sizes = sizes(savings);
    let (first, last) = (sizes.first(), sizes.last());
    first
        .zip(last)
        .map(|(first, last)| (*first, *last))
        .ok_or_else(|| "no savings were measured".to_owned())
}

/// The numbers of claims about searches, by their words.
pub(super) fn computed(words: &[&str], result: &ResultFile) -> Option<Evidence> {
    match words {
        ["best"] => Some(best(result)),
        ["smallest"] => Some(smallest(result)),
        ["larger N"] => Some(larger_n(result)),
        ["larger messages"] => Some(larger_messages(result)),
        ["dip"] => Some(dip(result)),
        _ => None,
    }
}

fn best(result: &ResultFile) -> Evidence {
    let savings = searches(result);
    let measured = savings.iter().filter_map(|saved| saved.percent.as_ref().ok().copied());
    let best = measured.max_by(|a, b| a.value.total_cmp(&b.value));
    match (best, savings.first()) {
        (Some(best), _) => Ok(best),
        (None, Some(saved)) => saved.percent.clone(),
        (None, None) => Err("no savings were measured".to_owned()),
    }
}

fn smallest(result: &ResultFile) -> Evidence {
    let savings = searches(result);
    at(&savings, ends(&savings)?.0, 2)
}

fn larger_n(result: &ResultFile) -> Evidence {
    let savings = searches(result);
    at(&savings, 64 << 10, 16)?.minus(at(&savings, 64 << 10, 2)?)
}

fn larger_messages(result: &ResultFile) -> Evidence {
    let savings = searches(result);
    let (smallest, largest) = ends(&savings)?;
    at(&savings, largest, 16)?.minus(at(&savings, smallest, 16)?)
}

/// How much more is saved at the nearest smaller and larger sizes, the less of the two.
fn dip(result: &ResultFile) -> Evidence {
    let savings = searches(result);
    let near = at(&savings, 1000, 16).or_else(|why| at(&savings, 1460, 16).map_err(|_| why))?;
    let all = sizes(&savings);
    let below = all.iter().rev().find(|&&size| size < 1000);
    let above = all.iter().find(|&&size| size > 1460);
    let missing = "there are no sizes on both sides of 1000 B";
    let (below, above) = below.zip(above).ok_or(missing)?;
    let (below, above) = (at(&savings, *below, 16)?, at(&savings, *above, 16)?);
    Estimate::smallest([below.minus(near)?, above.minus(near)?]).ok_or_else(|| missing.to_owned())
}

/// The paper's plot, and everything that its text says about the curves.
pub(super) fn search(result: &ResultFile) -> Vec<PublishedComparison> {
    let savings = searches(result);
    let all = sizes(&savings);
    let (Some(&smallest), Some(&largest)) = (all.first(), all.last()) else { return Vec::new() };
    let flat =
        |y: f64| [smallest, largest].map(|x| Point { x: x as f64, y, low: y, high: y }).to_vec();
    let mut series = vec![
        Series { name: "Douglas and Pai, best".to_owned(), colour: 6, points: flat(BEST) },
        Series { name: "2019, best (from)".to_owned(), colour: 7, points: flat(BEST_2019) },
    ];
    for (colour, skip) in [2, 4, 8, 16].into_iter().enumerate() {
        let points: Vec<Point> = all
            .iter()
            .filter_map(|&size| {
                let Estimate { value: y, low, high, .. } = at(&savings, size, skip).ok()?;
                Some(Point { x: size as f64, y, low, high })
            })
            .collect();
        if !points.is_empty() {
            series.push(Series { name: format!("here, N = {skip}"), colour, points });
        }
    }
    let shown = |evidence: Evidence| match evidence {
        Ok(estimate) => estimate.to_string(),
        Err(why) => why,
    };
    let title = "Saved by seeking, against the pool";
    let rows = vec![
        vec![
            "where most is saved, %".into(),
            "40; 36 to 40 (2019)".into(),
            shown(best(result)).into(),
        ],
        vec![
            format!("{}, N = 2, %", text::size(smallest)).into(),
            "below 0 (10 B)".into(),
            shown(at(&savings, smallest, 2)).into(),
        ],
        vec!["1000 B, N = 16, %".into(), "a dip".into(), shown(at(&savings, 1000, 16)).into()],
        vec![
            format!("{}, N = 16, %", text::size(largest)).into(),
            "among the best".into(),
            shown(at(&savings, largest, 16)).into(),
        ],
    ];
    let table = Table {
        title: title.to_owned(),
        note: "The papers print only curves; numbers in their text are drawn as lines. Ours with 95 % intervals."
            .to_owned(),
        columns: ["what", "papers", "here (95 %)"].map(str::to_owned).to_vec(),
        rows,
    };
    let x = Axis { label: "message size (bytes)".to_owned(), scale: Scale::Log10 };
    let y = Axis { label: "saved against the pool (%, 95 %)".to_owned(), scale: Scale::Signed };
    let chart = Chart::Curves { x, y, series };
    let figure = Figure { file: "published.svg".to_owned(), title: title.to_owned(), chart };
    vec![PublishedComparison { source: FIGURE_3, figure: Some(figure), table }]
}

pub(super) fn pieces_matter(result: &ResultFile) -> Evidence {
    let savings = saved(result, SEEK, POOL, &[CPU.name]);
    let of_size = || savings.iter().filter(|saved| saved.size == 64 << 10 && saved.piece.is_some());
    let (smallest, largest) =
        (of_size().min_by_key(|saved| saved.piece), of_size().max_by_key(|saved| saved.piece));
    let missing = "messages of 64 KiB in pieces were not measured";
    let (smallest, largest) = smallest.zip(largest).ok_or(missing)?;
    smallest.percent.clone()?.minus(largest.percent.clone()?)
}

/// All unexpected, 64 tags, messages of a size.
pub(super) fn unexpected(result: &ResultFile, size: &str) -> Option<Evidence> {
    let size = [64, 64 << 10].into_iter().find(|bytes| text::size(*bytes) == size)?;
    Some(at(&saved(result, MAILBOX, ASIDE, &[CPU_MESSAGES.name]), size, 64))
}
