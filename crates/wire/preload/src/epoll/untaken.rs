//! Connections to other machines that have left something on their rings which the peer has not
//! taken. Somebody has to look after that now and then
//! ([`Connection::is_untaken`](seekwire_endpoint::Connection::is_untaken)). There may be many, each
//! for a moment: so they are noted once, and looked at together.

use std::time::{Duration, Instant};

use super::state::State;
use super::watch::Share;

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(500);
/// A timer of no time would be none.
const LEAST: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(super) struct Untaken {
    watches: Vec<u32>,
    /// When the first of them was noted.
    since: Option<Instant>,
}

impl Untaken {
    /// How long a sleep may be; `None` if no connection needs a look.
    pub(super) fn left(&self) -> Option<Duration> {
        self.since.map(|since| PERIOD.saturating_sub(since.elapsed()).max(LEAST))
    }

    pub(super) fn last(&self) -> Option<u32> {
        self.watches.last().copied()
    }
}

impl<S: Share> State<S> {
    /// Notes a watch that was armed, if it is to be looked after; true if it is the first one.
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

    /// Has those looked at again that were noted, if it is time for that.
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
