//! Watches that are checked again after a while, because their events may come without a doorbell.
//!
//! There may be many, each for a short time: so they are noted once, and checked together. Their
//! time runs from the first note on, however often other connections wake the set meanwhile.

use std::time::{Duration, Instant};

#[derive(Default)]
pub(super) struct Rechecks {
    watches: Vec<u32>,
    due: Option<Instant>,
}

impl Rechecks {
    /// How long a sleep may be; `None` if no watch needs a check.
    pub(super) fn left(&self) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    pub(super) fn noted(&self) -> &[u32] {
        &self.watches
    }

    /// Notes a watch, unless it is noted already; returns true if sleeps have to become shorter
    /// because of it.
    pub(super) fn note(&mut self, index: u32, is_noted: bool, after: Duration) -> bool {
        if !is_noted {
            self.watches.push(index);
        }
        let due = Instant::now() + after;
        let is_first = self.due.is_none_or(|first| due < first);
        if is_first {
            self.due = Some(due);
        }
        is_first
    }

    /// The noted watches, if it is time to check them. They are forgotten.
    pub(super) fn take_due(&mut self) -> Vec<u32> {
        if self.left().is_none_or(|left| !left.is_zero()) {
            return Vec::new();
        }
        std::mem::take(self).watches
    }
}
