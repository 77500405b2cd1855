//! When something was last heard of another process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time of the last byte that came.
pub(crate) struct Pulse {
    began: Instant,
    /// In nanoseconds after that.
    at: AtomicU64,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), at: AtomicU64::new(0) }
    }

    /// Something has come.
    pub(crate) fn beat(&self) {
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.at.store(now, Ordering::Relaxed);
    }

    /// From the beginning to the last byte.
    pub(crate) fn last(&self) -> Duration {
        Duration::from_nanos(self.at.load(Ordering::Relaxed))
    }

    /// How long ago that was.
    pub(crate) fn silence(&self) -> Duration {
        self.began.elapsed().saturating_sub(self.last())
    }
}
