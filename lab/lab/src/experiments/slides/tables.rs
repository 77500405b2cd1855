//! Tables, plots and the summary of `slides`.

use serde_json::Value;

use super::cases::{
    CACHED, COLD, CPU, EFFORT, FIRST, LOAD, MEDIAN, MISSING, PEAK, PEERS, PSNR, RATE, SIZE, TAIL,
    TWICE,
};
use super::workers;
use crate::experiment_file::ExperimentFile;
use crate::experiments::by_size::spread;
use crate::experiments::sweep::curves;
use crate::outcome::{Findings, Recorded, Table};
use crate::plot::{Axis, Figure, Scale};
use crate::record::{Metric, Row};
use crate::slides::servers::ServerKind;
use crate::slides::view::ViewKind;

/// A table of all cases in which a quantity was measured.
struct View {
    title: &'static str,
    note: &'static str,
    metric: Metric,
}

const VIEWS: [View; 7] = [
    View {
        title: "Answers per second",
        note: "Connections send requests without a pause. Each tile or region is requested once, from a server that \
               has just started and has the slide open; caches are no advantage. On the real slide, one connection \
               requests all tiles.",
        metric: RATE,
    },
    View {
        title: "Latency p50, ms",
        note: "Viewers: from when a tile was due. Connections: from when it was requested.",
        metric: MEDIAN,
    },
    View { title: "Latency p99, ms", note: "The same.", metric: TAIL },
    View {
        title: "Not answered, %",
        note: "Tiles that viewers did not have five seconds after the last one was due; latencies count them with the \
               time that they had waited.",
        metric: MISSING,
    },
    View {
        title: "Processor time of the server for an answer, µs",
        note: "All processes of a server and of its web server, user and system.",
        metric: EFFORT,
    },
    View {
        title: "Size of an answer, KiB",
        note: "Stored tiles have their size in the slide, all others that of the encoder's output, with a quality of \
            80.",
        metric: SIZE,
    },
    View {
        title: "Memory peak, MiB",
        note: "The peaks of all processes of a server (VmHWM), added up. Shared memory counts for each.",
        metric: PEAK,
    },
];

pub(super) fn findings(file: &'static ExperimentFile, recorded: Recorded<'_>) -> Findings {
    let is_peer = |row: &Row| PEERS.iter().any(|peer| peer.name() == row.variant);
    let rows = recorded.samples.rows(ServerKind::Iipsrv.name());
    let (rows, dealt): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(is_peer);
    let mut tables: Vec<Table> = VIEWS.iter().map(|view| table(view, &rows)).collect();
    tables.push(cold(&rows));
    tables.push(busy(&rows));
    tables.push(pictures(&rows));
    tables.push(workers::table(&dealt));
    tables.retain(|table| !table.rows.is_empty());
    let twice = recorded.samples.0.iter().filter(|sample| sample.metric == Some(TWICE));
    let twice = twice.filter_map(|sample| sample.outcome.clone().ok()).reduce(f64::max);
    let summary = file.summary(recorded.samples, &[("decoded_twice", twice)]);
    Findings { summary, tables, figures: figures(&rows) }
}

/// The cases of a metric, in the order in which they were measured.
fn cases(rows: &[Row], metric: Metric) -> Vec<&str> {
    let mut cases: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.metric == metric.name) {
        if !cases.contains(&row.case.as_str()) {
            cases.push(&row.case);
        }
    }
    cases
}

fn median(rows: &[Row], case: &str, peer: ServerKind, metric: Metric) -> Value {
    spread(rows, case, peer.name(), metric).map(|spread| spread.median).into()
}

fn columns<'a>(first: &'a str, others: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    std::iter::once(first).chain(others).map(str::to_owned).collect()
}

fn table(view: &View, rows: &[Row]) -> Table {
    let line = |case: &str| -> Vec<Value> {
        let cells = PEERS.iter().map(|peer| median(rows, case, *peer, view.metric));
        std::iter::once(case.into()).chain(cells).collect()
    };
    Table {
        title: view.title.to_owned(),
        note: view.note.to_owned(),
        columns: columns("case", PEERS.iter().map(|peer| peer.name())),
        rows: cases(rows, view.metric).into_iter().map(line).collect(),
    }
}

fn cold(rows: &[Row]) -> Table {
    let line = |peer: &ServerKind| {
        let first = spread(rows, COLD, peer.name(), FIRST)?;
        let rest = [first.min.into(), first.max.into(), median(rows, COLD, *peer, CACHED)];
        let begin = [peer.name().into(), Value::from(first.median)];
        Some(begin.into_iter().chain(rest).collect::<Vec<Value>>())
    };
    Table {
        title: "First tile of a slide that nobody has opened".to_owned(),
        note: "From the request to the last byte of a tile in the middle of the large synthetic slide, by a server \
               that has just started. The kernel was asked to drop the file from its cache; the last column is what it \
               kept. The metadata of the file system stays in memory."
            .to_owned(),
        columns: columns("server", ["median, ms", "min, ms", "max, ms", "in the page cache, MiB"]),
        rows: PEERS.iter().filter_map(line).collect(),
    }
}

fn busy(rows: &[Row]) -> Table {
    let line = |case: &str| -> Vec<Value> {
        let of = |metric| {
            let cell = move |peer: &ServerKind| median(rows, case, *peer, metric);
            PEERS.iter().map(cell).collect::<Vec<_>>()
        };
        let shown = of(CPU).into_iter().zip(of(LOAD)).map(|(server, load)| {
            match (server.as_f64(), load.as_f64()) {
                (Some(server), Some(load)) => format!("{server:.0} + {load:.0}").into(),
                _ => Value::Null,
            }
        });
        std::iter::once(case.into()).chain(shown).collect()
    };
    Table {
        title: "Processors in use, %".to_owned(),
        note: "The server's processes + the load's thread; 100 % is one processor. Where the load has nearly 100 %, it \
               limits the answers."
            .to_owned(),
        columns: columns("case", PEERS.iter().map(|peer| peer.name())),
        rows: cases(rows, LOAD).into_iter().map(line).collect(),
    }
}

fn pictures(rows: &[Row]) -> Table {
    let view = View {
        title: "Pictures beside those of vips, PSNR in dB",
        note: "The worst one of three places. 99: the same pixels. Servers scale in different ways, and encode, so \
               their means of 4 x 4 pixels must agree before anything is measured.",
        metric: PSNR,
    };
    table(&view, rows)
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let names = PEERS.map(ServerKind::name);
    let figure = |file: &str, title: &str, what: ViewKind, metric: Metric, who: &str, y: Scale| {
        let is_wanted = |row: &&Row| {
            row.case.starts_with(what.name()) && row.x.is_some() && row.case.contains(who)
        };
        let rows: Vec<Row> = rows.iter().filter(is_wanted).cloned().collect();
        let x = Axis { label: format!("{who}s"), scale: Scale::Log2 };
        curves(file, title, x, y, metric, &rows, &names)
    };
    let (log, stored, decoded) = (Scale::Log10, ViewKind::Stored, ViewKind::Decoded);
    vec![
        figure("stored.svg", "Stored tiles per second", stored, RATE, "connection", log),
        figure("decoded.svg", "Decoded tiles per second", decoded, RATE, "connection", log),
        figure(
            "stored-p99.svg",
            "Stored tiles while viewers pan, p99",
            stored,
            TAIL,
            "viewer",
            log,
        ),
        figure(
            "decoded-p99.svg",
            "Decoded tiles while viewers pan, p99",
            decoded,
            TAIL,
            "viewer",
            log,
        ),
    ]
}
