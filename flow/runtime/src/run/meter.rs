//! How a copy spends its time.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The state of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Busy = 0,
    Starved = 1,
    Blocked = 2,
}

/// Only the thread of the copy writes it; any thread may read it.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Meter {
    /// For the thread of the copy, which mostly stays in the same phase.
    phase: AtomicU8,
    blocks: AtomicU64,
    bytes: AtomicU64,
    rejected: AtomicU64,
    /// Nanoseconds of waiting for room, without a wait that has not ended.
    blocked: AtomicU64,
    times: Mutex<Times>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    phase: Phase,
    since: Instant,
    spent: [Duration; 3],
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
    pub(crate) rejected: u64,
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
        Self {
            phase: AtomicU8::new(Phase::Starved as u8),
            blocks: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
            times: Mutex::new(Times {
                phase: Phase::Starved,
                since: Instant::now(),
                spent: [Duration::ZERO; 3],
                blocks: 0,
                bytes: 0,
                rejected: 0,
            }),
        }
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a phase; returns the previous one.
    pub(crate) fn enter(&self, phase: Phase) -> Phase {
        if self.phase.load(Ordering::Relaxed) == phase as u8 {
            return phase;
        }
        self.phase.store(phase as u8, Ordering::Relaxed);
        let mut times = self.times();
        times.count(Instant::now());
        let blocked = times.spent[Phase::Blocked as usize].as_nanos();
        self.blocked.store(u64::try_from(blocked).unwrap_or(u64::MAX), Ordering::Relaxed);
        std::mem::replace(&mut times.phase, phase)
    }

    pub(crate) fn processed(&self, bytes: usize) {
        // Only one thread writes.
        let add = |to: &AtomicU64, more: u64| {
            to.store(to.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        };
        add(&self.blocks, 1);
        add(&self.bytes, bytes as u64);
    }

    pub(crate) fn rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// The finished waits for room.
    pub(crate) fn blocked(&self) -> Duration {
        Duration::from_nanos(self.blocked.load(Ordering::Relaxed))
    }

    /// The times until now.
    pub(crate) fn read(&self) -> Times {
        let mut times = self.times();
        times.count(Instant::now());
        times.blocks = self.blocks.load(Ordering::Relaxed);
        times.bytes = self.bytes.load(Ordering::Relaxed);
        times.rejected = self.rejected.load(Ordering::Relaxed);
        *times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_gets_its_time_and_no_time_is_lost() {
        let before = Instant::now();
        let meter = Meter::new();
        assert_eq!(meter.enter(Phase::Busy), Phase::Starved);
        let busy = meter.read();
        assert_eq!(meter.enter(Phase::Busy), Phase::Busy);
        assert_eq!(meter.enter(Phase::Blocked), Phase::Busy);
        meter.processed(7);
        meter.processed(5);
        let times = meter.read();
        assert!(times.of(Phase::Busy) > busy.of(Phase::Busy));
        assert_eq!(times.of(Phase::Starved), busy.of(Phase::Starved));
        assert_eq!(meter.blocked(), Duration::ZERO);
        assert_eq!(meter.enter(Phase::Busy), Phase::Blocked);
        assert!(meter.blocked() >= times.of(Phase::Blocked) && !meter.blocked().is_zero());
        let all: Duration = times.spent.iter().sum();
        assert!(all <= before.elapsed());
        assert_eq!((times.blocks, times.bytes), (2, 12));
    }
}
