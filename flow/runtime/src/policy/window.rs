//! How many blocks are sent ahead to a copy in another process, and when one is called back.
//!
//! A copy always has one to begin whenever it finishes one. How many that takes depends on how fast
//! it was. If it is slower now, others may finish its blocks before it would begin them.
//!
//! This module has no clock and no lock: callers pass the time, so that tests can simulate it.

use std::time::Duration;

use crate::policy::dealing::BATCH;

/// Blocks on their way to a copy of unknown speed: one to process, one to come.
const FIRST_WINDOW: usize = 2;

/// Most blocks on their way to one copy.
const LARGEST_WINDOW: usize = 4096;

/// A block is called back if that is sooner by this factor, and by a few batches: what is known of
/// copies is only a guess.
const MARGIN: u32 = 2;

/// Most blocks that a copy may have, if it takes this long for one and this long is known for the
/// round trip of a block and its acknowledgement.
pub(crate) fn window(service: Option<Duration>, round_trip: Option<Duration>) -> usize {
    let window = match (service, round_trip) {
        (Some(service), Some(round_trip)) => {
            let service = service.as_nanos().max(1);
            // It reports a batch only when all of it is finished, and then begins the next one.
            let ahead = (round_trip + 2 * BATCH).as_nanos().div_ceil(service);
            // One that it is processing, and one for round trips that take longer than the
            // shortest, as most do on shared processors.
            usize::try_from(ahead).unwrap_or(LARGEST_WINDOW).saturating_add(2)
        }
        _ => FIRST_WINDOW,
    };
    window.min(LARGEST_WINDOW)
}

/// Whether to call a block back from a copy that would be done with its blocks after `until`, if
/// another one would be done with that block after `sooner`, and this is the round trip to the
/// first.
pub(crate) fn is_worth_a_recall(until: Duration, sooner: Duration, round_trip: Duration) -> bool {
    until > (sooner + round_trip).saturating_mul(MARGIN) + 4 * BATCH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_covers_the_round_trip_and_has_bounds() {
        let of = |service, round_trip| {
            window(Some(Duration::from_nanos(service)), Some(Duration::from_micros(round_trip)))
        };
        assert_eq!(window(None, Some(Duration::from_secs(1))), FIRST_WINDOW);
        assert_eq!(window(Some(Duration::from_secs(1)), None), FIRST_WINDOW);
        assert_eq!(of(1_000_000, 100), 3);
        assert_eq!(of(10_000, 100), 16 + 2);
        assert_eq!(of(0, 1_000_000), LARGEST_WINDOW);
    }

    #[test]
    fn a_block_is_called_back_only_if_that_is_clearly_sooner() {
        let after = |until| {
            let [until, sooner, round_trip] = [until, 300, 100].map(Duration::from_micros);
            is_worth_a_recall(until, sooner, round_trip)
        };
        assert!(!after(920) && after(921));
    }
}
