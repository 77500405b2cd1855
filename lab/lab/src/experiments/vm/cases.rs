//! Metrics, variants and cases of the results.

use crate::guests::GuestKind;
use crate::launch::{ACCELERATED, PLAIN};
use crate::text;

pub(super) const VCHAN: &str = "vchan";
pub(super) const VARIANTS: [&str; 3] = [PLAIN, ACCELERATED, VCHAN];

/// The sizes that the goals name.
pub(super) const BULK: u64 = 64 << 10;
pub(super) const SMALL: u64 = 1;

/// Names of the two kinds of guests in results.
pub(super) const fn named(kind: GuestKind) -> &'static str {
    match kind {
        GuestKind::Machines => "ivshmem",
        GuestKind::Xen => "Xen",
    }
}

pub(super) const KINDS: [GuestKind; 2] = [GuestKind::Machines, GuestKind::Xen];

pub(super) fn case(kind: GuestKind, what: &str) -> String {
    format!("{}, {what}", named(kind))
}

/// From the second guest to the first one is the usual direction.
pub(super) fn reverse(size: u64) -> String {
    format!("{}, reverse", text::size(size))
}

pub(super) fn ring(size: u64) -> String {
    format!("ring of {}", text::size(size))
}

pub(super) fn counted(size: u64) -> String {
    format!("{}, counted", text::size(size))
}
