//! The waiters of this end.

use std::sync::atomic::{AtomicU32, Ordering};

/// Counts of waiters, by what they know.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// Receives that sleep on the ring's doorbell, or are about to, and began before the first
    /// seek.
    pub(super) unaware: AtomicU32,
    /// Callers of [`Connection::wait`] that sleep there, or are about to, until the next byte is
    /// there.
    ///
    /// [`Connection::wait`]: super::Connection::wait
    pub(super) watchers: AtomicU32,
}

impl Waiters {
    /// In the child of a fork, the sleepers are threads of the parent.
    pub(super) fn forget(&self) {
        self.unaware.store(0, Ordering::Relaxed);
        self.watchers.store(0, Ordering::Relaxed);
    }
}

/// One counted waiter, until it is dropped.
pub(super) struct Counted<'c>(&'c AtomicU32);

impl<'c> Counted<'c> {
    pub(super) fn among(number: &'c AtomicU32) -> Self {
        number.fetch_add(1, Ordering::SeqCst);
        Self(number)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
