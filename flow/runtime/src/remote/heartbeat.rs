//! When the last byte arrived from another process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The arrival time of the last byte.
pub(crate) struct Heartbeat {
    began: Instant,
    /// Nanoseconds after `began`.
    at: AtomicU64,
}

impl Heartbeat {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), at: AtomicU64::new(0) }
    }

    /// Notes that bytes have arrived.
    pub(crate) fn beat(&self) {
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.at.store(now, Ordering::Relaxed);
    }

    /// Time from the beginning to the last byte.
    pub(crate) fn last(&self) -> Duration {
        Duration::from_nanos(self.at.load(Ordering::Relaxed))
    }

    /// Time since the last byte.
    pub(crate) fn silence(&self) -> Duration {
        self.began.elapsed().saturating_sub(self.last())
    }
}
