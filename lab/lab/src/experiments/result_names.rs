//! Names in results of variants and cases that several files need: those that measure, and those
//! that judge the measurements.

use crate::bench::LATENCY;
use crate::record::Metric;

/// Over mailboxes, and with the usual method of libraries without seeks.
pub(super) const MAILBOX: &str = "mailbox";
pub(super) const ASIDE: &str = "copied aside";

/// Geometries of the ring.
pub(super) const DEFAULT: &str = "default";
pub(super) const THIS: &str = "this geometry";

pub(super) const SMALL_LATENCY: Metric =
    Metric { name: "round trip of 1 KiB p50", unit: LATENCY.unit, better: LATENCY.better };

/// Ways of receiving out of order.
pub(super) const POOL: &str = "pool";
pub(super) const AWAITED: &str = "pool, awaited";
pub(super) const BULK: &str = "bulk";
pub(super) const SEEK: &str = "seek";
pub(super) const MODULE: &str = "module";

/// The limit that memory sets.
pub(super) const LIMIT: &str = "memory";

/// The case of this many pairs of processes at once.
pub(super) fn pairs_case(count: usize) -> String {
    if count == 1 { "1 pair".to_owned() } else { format!("{count} pairs") }
}
