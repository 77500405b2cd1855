//! Names in results of ways and cases that several files need: those that measure, and those that
//! judge the measurements.

/// Over mailboxes, and in the usual way of libraries without seeks.
pub(super) const MAILBOX: &str = "mailbox";
pub(super) const ASIDE: &str = "copied aside";

/// Geometries of the ring.
pub(super) const DEFAULT: &str = "default";
pub(super) const THIS: &str = "this geometry";

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
