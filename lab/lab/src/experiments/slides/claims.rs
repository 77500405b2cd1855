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

const OWN: &str = ServerKind::Seekwire.name();

/// The largest number of a run: one that decodes a tile twice is enough.
fn twice(result: &ResultFile) -> Evidence {
    let is_wanted = |row: &&Row| row.variant == OWN && row.metric == TWICE.name;
    let spreads = result.rows.iter().filter(is_wanted).filter_map(|row| row.spread);
    let most = spreads.map(|spread| Estimate::mean(spread.max, 0.0, spread.n));
    let most = Estimate::largest(most.collect::<Result<Vec<_>, _>>()?);
    most.ok_or_else(|| format!("{} was not measured", TWICE.name))
}

/// With the largest number of viewers that was tried.
fn memory(result: &ResultFile) -> Evidence {
    let case = |count: &u64| viewers(ViewKind::Decoded, *count);
    let is_tried =
        |count: &&u64| result.rows.iter().any(|row| row.variant == OWN && row.case == case(count));
    let most = COUNTS.iter().rev().find(is_tried).unwrap_or(&GOAL);
    Estimate::median(result, At { case: &case(most), variant: OWN, metric: HELD.name })
}
