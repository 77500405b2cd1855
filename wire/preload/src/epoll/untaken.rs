//! Connections to other machines with bytes on their rings that the peer has not taken. They have
//! to be checked now and then
//! ([`Connection::is_untaken`](seekwire_endpoint::Connection::is_untaken)). There may be many, each
//! for a short time: so they are noted once, and checked together.

use std::time::{Duration, Instant};

use super::state::State;
use super::watch::Share;

/// Time between two checks.
const PERIOD: Duration = Duration::from_millis(500);
/// Minimum for a timer, since 0 would disarm it.
const LEAST: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(super) struct Untaken {
    watches: Vec<u32>,
    /// The time at which the first of them was noted.
    since: Option<Instant>,
}

impl Untaken {
    /// How long a sleep may be; `None` if no connection needs a check.
    pub(super) fn left(&self) -> Option<Duration> {
        self.since.map(|since| PERIOD.saturating_sub(since.elapsed()).max(LEAST))
    }

    pub(super) fn last(&self) -> Option<u32> {
        self.watches.last().copied()
    }
}

impl<S: Share> State<S> {
    /// Notes an armed watch if it needs checks; returns true if it is the first one.
    pub(super) fn note_untaken(&mut self, index: u32) -> bool {
        let Some(watch) = self.at(index) else { return false };
        if watch.is_untaken || !watch.socket.connection.is_untaken() {
            return false;
        }
        watch.is_untaken = true;
        self.untaken.watches.push(index);
        let is_first = self.untaken.since.is_none();
        self.untaken.since.get_or_insert_with(Instant::now);
        is_first
    }

    /// Has the noted watches checked again, if it is time for that.
    pub(super) fn heat_untaken(&mut self) {
        if self.untaken.since.is_none_or(|since| since.elapsed() < PERIOD) {
            return;
        }
        let untaken = std::mem::take(&mut self.untaken);
        for index in untaken.watches {
            if let Some(watch) = self.at(index) {
                watch.is_untaken = false;
            }
            self.heat(index);
        }
    }
}
