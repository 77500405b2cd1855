//! The events that a sleep waits for, and its deadline.

use std::time::{Duration, Instant};

use super::signal::HeldBack;

/// The time until which to wait, if nothing else ends the wait before.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    end: Option<Instant>,
    /// The signals that stay blocked during the sleep; those of the thread if not set.
    blocked: Option<u64>,
}

impl Deadline {
    /// Never ends.
    pub const NEVER: Self = Self { end: None, blocked: None };

    /// Ends after this time from now on; `None` never ends.
    #[must_use]
    pub fn after(timeout: Option<Duration>) -> Self {
        Self { end: timeout.and_then(|t| Instant::now().checked_add(t)), ..Self::NEVER }
    }

    /// The same, but a sleep lets in the signals that are held back, including those that came
    /// before it, and they end it.
    #[must_use]
    pub fn letting_in(self, signals: &HeldBack) -> Self {
        Self { blocked: Some(*signals.mask()), ..self }
    }

    /// Time left; `None` for ever.
    #[must_use]
    pub fn left(self) -> Option<Duration> {
        self.end.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// This one, or `most` from now on, whichever is earlier.
    #[must_use]
    pub fn at_most(self, most: Duration) -> Self {
        let other = Instant::now() + most;
        Self { end: Some(self.end.map_or(other, |end| end.min(other))), ..self }
    }

    /// The signals that stay blocked during the sleep, if set.
    pub(super) fn blocked(&self) -> Option<&u64> {
        self.blocked.as_ref()
    }

    /// Whether it has passed.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.left() == Some(Duration::ZERO)
    }
}

/// Events of a socket, as the kernel reports them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Events {
    /// Data, or the end of the stream, to read.
    pub read: bool,
    /// Room to write.
    pub write: bool,
    /// The peer ended its sending direction, or died.
    pub hangup: bool,
    /// Error, or both directions have ended. Reported whether wanted or not.
    pub dead: bool,
}

impl Events {
    /// Data, or the end of the stream, to read.
    pub const READ: Self = Self { read: true, write: false, hangup: false, dead: false };
    /// Room to write.
    pub const WRITE: Self = Self { read: false, write: true, hangup: false, dead: false };
}
