//! Metrics, variants and cases of the results.

use crate::record::Metric;
use crate::slides::servers::ServerKind;
use crate::slides::view::ViewKind;

/// The servers that are measured, in the order of tables.
pub(super) const PEERS: [ServerKind; 5] = [
    ServerKind::Seekwire,
    ServerKind::Iipsrv,
    ServerKind::WsiStreamer,
    ServerKind::Openslide,
    ServerKind::LargeImage,
];

pub(super) const RATE: Metric = Metric::higher("answers", "1/s");
pub(super) const MEDIAN: Metric = Metric::lower("latency p50", "ms");
pub(super) const TAIL: Metric = Metric::lower("latency p99", "ms");
/// Of an open load, the requests without an answer five seconds after the last one.
pub(super) const MISSING: Metric = Metric::lower("not answered", "%");
/// All processes of the server; 100 % is one processor.
pub(super) const CPU: Metric = Metric::lower("CPU of the server", "%");
pub(super) const EFFORT: Metric = Metric::lower("CPU time of an answer", "µs");
pub(super) const SIZE: Metric = Metric::lower("size of an answer", "KiB");
/// The peak of each of its processes, added up.
pub(super) const PEAK: Metric = Metric::lower("memory peak", "MiB");
/// The growth since the server was started, over what its options allow.
pub(super) const HELD: Metric = Metric::lower("memory over allowed", "");
pub(super) const TWICE: Metric = Metric::lower("tiles decoded twice", "");
/// CPU time of the thread that sends the requests.
pub(super) const LOAD: Metric = Metric::lower("CPU of the load", "%");
pub(super) const FIRST: Metric = Metric::lower("first tile", "ms");
/// Bytes of the slide's file in the page cache before it is opened.
pub(super) const CACHED: Metric = Metric::lower("in the page cache", "MiB");
/// The worst of the pictures that were compared with those of vips.
pub(super) const PSNR: Metric = Metric::higher("PSNR", "dB");

/// Numbers of connections, and of viewers.
pub(super) const COUNTS: [u64; 3] = [1, 16, 64];
/// The number that the goals name.
pub(super) const GOAL: u64 = 16;

pub(super) const COLD: &str = "cold open";

/// The case of this many connections, each of which sends a request upon every answer.
pub(super) fn closed(what: ViewKind, connections: u64) -> String {
    match connections {
        1 => format!("{}, 1 connection", what.name()),
        _ => format!("{}, {connections} connections", what.name()),
    }
}

pub(super) fn viewers(what: ViewKind, count: u64) -> String {
    match count {
        1 => format!("{}, 1 viewer", what.name()),
        _ => format!("{}, {count} viewers", what.name()),
    }
}

pub(super) fn real(what: ViewKind) -> String {
    format!("{}, real slide", what.name())
}
