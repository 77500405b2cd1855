//! What a sleep waits for, and how long it may last.

use std::time::{Duration, Instant};

use super::signal::HeldBack;

/// Until when to wait, if nothing else ends it before.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    end: Option<Instant>,
    /// The signals that stay blocked in the sleep; those of the thread if not said.
    blocked: Option<u64>,
}

impl Deadline {
    /// Never ends.
    pub const NEVER: Self = Self { end: None, blocked: None };

    /// From now on this long; `None` for ever.
    #[must_use]
    pub fn after(timeout: Option<Duration>) -> Self {
        Self { end: timeout.and_then(|t| Instant::now().checked_add(t)), ..Self::NEVER }
    }

    /// The same, but signals that are held back come in, and end a sleep, also those that have come
    /// before it.
    #[must_use]
    pub fn letting_in(self, signals: &HeldBack) -> Self {
        Self { blocked: Some(*signals.mask()), ..self }
    }

    /// Time left; `None` for ever.
    #[must_use]
    pub fn left(self) -> Option<Duration> {
        self.end.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// This one, or `most` from now on, whichever comes first.
    #[must_use]
    pub fn at_most(self, most: Duration) -> Self {
        let other = Instant::now() + most;
        Self { end: Some(self.end.map_or(other, |end| end.min(other))), ..self }
    }

    /// Those that stay blocked in the sleep, if that was said.
    pub(super) fn blocked(&self) -> Option<&u64> {
        self.blocked.as_ref()
    }

    /// Whether it has passed.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.left() == Some(Duration::ZERO)
    }
}

/// What the kernel says of a socket.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Events {
    /// Something to read: data or the end of the stream.
    pub read: bool,
    /// Room to write.
    pub write: bool,
    /// The peer ended its sending direction, or died.
    pub hangup: bool,
    /// Error, or both directions have ended. Reported whether wanted or not.
    pub dead: bool,
}

impl Events {
    /// Something to read.
    pub const READ: Self = Self { read: true, write: false, hangup: false, dead: false };
    /// Room to write.
    pub const WRITE: Self = Self { read: false, write: true, hangup: false, dead: false };
}
