//! Where the time of a copy goes.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a copy is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Busy = 0,
    Starved = 1,
    Blocked = 2,
}

/// Written by the thread of the copy, read by anybody.
#[derive(Debug)]
pub(crate) struct Meter(Mutex<Times>);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    phase: Phase,
    since: Instant,
    spent: [Duration; 3],
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
}

impl Times {
    pub(crate) fn of(&self, phase: Phase) -> Duration {
        self.spent[phase as usize]
    }

    fn count(&mut self, now: Instant) {
        self.spent[self.phase as usize] += now.saturating_duration_since(self.since);
        self.since = now;
    }
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Times {
            phase: Phase::Starved,
            since: Instant::now(),
            spent: [Duration::ZERO; 3],
            blocks: 0,
            bytes: 0,
        }))
    }

    /// From now on; returns what it was at before.
    pub(crate) fn enter(&self, phase: Phase) -> Phase {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.count(Instant::now());
        std::mem::replace(&mut times.phase, phase)
    }

    pub(crate) fn processed(&self, bytes: usize) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.blocks += 1;
        times.bytes += bytes as u64;
    }

    /// Until now.
    pub(crate) fn read(&self) -> Times {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.count(Instant::now());
        *times
    }
}
