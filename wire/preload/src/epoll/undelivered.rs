//! Connections to other machines with bytes on their rings that the peer has not taken. They have
//! to be checked now and then ([`Connection::has_undelivered`]). There may be many, each for a
//! short time: so they are noted once, and checked together.
//!
//! [`Connection::has_undelivered`]: seekwire_endpoint::Connection::has_undelivered

use std::time::{Duration, Instant};

use super::state::SetState;
use super::watch::SocketHandle;

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
}

impl<S: SocketHandle> SetState<S> {
    /// Notes an armed watch if it needs checks; returns true if it is the first one.
    pub(super) fn note_undelivered(&mut self, index: u32) -> bool {
        let Some(watch) = self.at(index) else { return false };
        if watch.is_undelivered || !watch.socket.connection.has_undelivered() {
            return false;
        }
        watch.is_undelivered = true;
        self.undelivered.watches.push(index);
        let is_first = self.undelivered.since.is_none();
        self.undelivered.since.get_or_insert_with(Instant::now);
        is_first
    }

    /// Has the noted watches checked again, if it is time for that.
    pub(super) fn recheck_undelivered(&mut self) {
        if self.undelivered.since.is_none_or(|since| since.elapsed() < PERIOD) {
            return;
        }
        let undelivered = std::mem::take(&mut self.undelivered);
        for index in undelivered.watches {
            if let Some(watch) = self.at(index) {
                watch.is_undelivered = false;
            }
            self.mark_hot(index);
        }
    }
}
