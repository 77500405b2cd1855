//! Connections to other machines with bytes on their rings that the peer has not taken. They have
//! to be checked now and then ([`Connection::has_undelivered`]). There may be many, each for a
//! short time: so they are noted once, and checked together.
//!
//! [`Connection::has_undelivered`]: seekwire_endpoint::Connection::has_undelivered

use std::time::{Duration, Instant};

/// Time between two checks.
const PERIOD: Duration = Duration::from_millis(500);
/// Minimum for a timer, since 0 would disarm it.
const LEAST: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(super) struct Undelivered {
    watches: Vec<u32>,
    /// The time at which the first of them was noted.
    since: Option<Instant>,
}

impl Undelivered {
    /// How long a sleep may be; `None` if no connection needs a check.
    pub(super) fn left(&self) -> Option<Duration> {
        self.since.map(|since| PERIOD.saturating_sub(since.elapsed()).max(LEAST))
    }

    pub(super) fn last(&self) -> Option<u32> {
        self.watches.last().copied()
    }

    /// Notes a watch; returns true if it is the first one.
    pub(super) fn note(&mut self, index: u32) -> bool {
        self.watches.push(index);
        let is_first = self.since.is_none();
        self.since.get_or_insert_with(Instant::now);
        is_first
    }

    /// The noted watches, if it is time to check them. They are forgotten.
    pub(super) fn take_due(&mut self) -> Vec<u32> {
        if self.since.is_none_or(|since| since.elapsed() < PERIOD) {
            return Vec::new();
        }
        std::mem::take(self).watches
    }
}
