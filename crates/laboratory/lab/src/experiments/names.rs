//! What results call ways and cases that more than one file needs: those who measure, and those who
//! judge what was measured.

/// Over mailboxes, and as libraries do it without seeks.
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

/// What memory allows.
pub(super) const LIMIT: &str = "memory";

/// So many pairs of processes at once.
pub(super) fn pairs_case(count: usize) -> String {
    if count == 1 { "1 pair".to_owned() } else { format!("{count} pairs") }
}
