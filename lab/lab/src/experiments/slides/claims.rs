//! Numbers of the goals that no row of a result of `slides` has.

use super::cases::{COUNTS, GOAL, HELD, TWICE, viewers};
use crate::claim::{Estimate, Evidence};
use crate::outcome::{At, ResultFile};
use crate::record::Row;
use crate::slides::servers::ServerKind;
use crate::slides::view::ViewKind;

/// The number of a goal by its words.
pub(super) fn computed(words: &[&str], result: &ResultFile) -> Option<Evidence> {
    match words {
        ["decoded twice"] => Some(twice(result)),
        ["memory"] => Some(memory(result)),
        _ => None,
    }
}

/// Of all cases in which something is decoded or cached, the one with the largest number.
fn twice(result: &ResultFile) -> Evidence {
    let is_wanted =
        |row: &&Row| row.variant == ServerKind::Seekwire.name() && row.metric == TWICE.name;
    let spreads = result.rows.iter().filter(is_wanted).filter_map(|row| row.spread);
    let worst = spreads.max_by(|one, other| one.max.total_cmp(&other.max));
    Estimate::of(&worst.ok_or_else(|| format!("{} was not measured", TWICE.name))?)
}

/// With the largest number of viewers.
fn memory(result: &ResultFile) -> Evidence {
    let of = |count: &u64| {
        let case = viewers(ViewKind::Decoded, *count);
        let variant = ServerKind::Seekwire.name();
        Estimate::median(result, At { case: &case, variant, metric: HELD.name })
    };
    COUNTS.iter().rev().map(of).find(Result::is_ok).unwrap_or_else(|| of(&GOAL))
}
