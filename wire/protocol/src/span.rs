//! Positions in a stream of bytes.

use std::fmt;

/// Bytes `start..end` of a stream, counted from its first byte. May be empty.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Span {
    /// Position of the first byte.
    pub start: u64,
    /// Position after the last byte, at least `start`.
    pub end: u64,
}

impl Span {
    /// `len` bytes from `start` on; `None` if that exceeds the last possible position.
    #[must_use]
    pub fn new(start: u64, len: u64) -> Option<Self> {
        Some(Self { start, end: start.checked_add(len)? })
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Whether both have a byte in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        !self.intersection(other).is_empty()
    }

    /// The common bytes of both.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        let start = self.start.max(other.start);
        Self { start, end: self.end.min(other.end).max(start) }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}
