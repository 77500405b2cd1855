//! The distance that the source has to advance before some bytes are there.

use seekwire_protocol::span::Span;

use super::state::{Attempt, Engine};
use crate::Errno;
use crate::seek::request::Extent;
use crate::seek::source::Source;

impl Engine {
    /// Bytes that the source needs to hold after the front for an attempt to succeed; 0 if library
    /// memory suffices.
    #[must_use]
    pub fn needs(&self, attempt: &Attempt) -> u64 {
        self.needed_end(attempt).saturating_sub(self.front)
    }

    /// The distances to positions for a source that `leaves_holes`, or does not.
    #[must_use]
    pub fn reach(&self, leaves_holes: bool) -> Reach<'_> {
        Reach::new(self.front, leaves_holes.then(|| self.holes.spans()))
    }

    /// Bytes in holes.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.holes.spans().iter().map(|hole| hole.len()).sum()
    }

    /// Bytes after the front that were taken.
    #[must_use]
    pub fn taken_ahead(&self) -> u64 {
        taken_in(self.holes.spans(), Span { start: self.front, end: u64::MAX })
    }

    /// Bytes that were taken, in the middle or at the head, and that the source still has to pass.
    #[must_use]
    pub fn taken_before_their_turn(&self) -> u64 {
        self.holes.head().saturating_sub(self.front) + self.taken_ahead()
    }

    /// The position that has to have arrived for an attempt to succeed.
    #[must_use]
    pub fn needed_end(&self, attempt: &Attempt) -> u64 {
        let Attempt { span, options, .. } = *attempt;
        if options.partial {
            span.end.min(span.start.saturating_add(options.skip).saturating_add(1))
        } else {
            span.end
        }
    }

    /// The extent of the bytes that can be received.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn extent(&mut self, source: &mut impl Source) -> Result<Extent, Errno> {
        let arrived = self.front + source.arrived()?;
        Ok(Extent { head: self.holes.head(), arrived, holes: self.holes.spans().to_vec() })
    }

    /// Bytes that [`Self::recv`] can return at once.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn unread(&mut self, source: &mut impl Source) -> Result<u64, Errno> {
        let arrived = self.front + source.arrived_in_all()?;
        Ok(self.holes.live_bytes(arrived))
    }
}

/// The number of bytes that a source has to hold before those after them are there.
#[derive(Clone, Copy, Debug)]
pub struct Reach<'h> {
    front: u64,
    holes: &'h [Span],
}

impl<'h> Reach<'h> {
    /// The reach from the front on; `holes` are those whose bytes the source no longer has.
    #[must_use]
    pub fn new(front: u64, holes: Option<&'h [Span]>) -> Self {
        Self { front, holes: holes.unwrap_or_default() }
    }

    /// Position of the first byte that was not received from the source.
    #[must_use]
    pub fn front(self) -> u64 {
        self.front
    }

    /// Number of bytes before position `end`.
    #[must_use]
    pub fn bytes_before(self, end: u64) -> u64 {
        let behind = Span { start: self.front, end: end.max(self.front) };
        behind.len() - taken_in(self.holes, behind)
    }
}

/// Bytes of `span` that lie in holes.
fn taken_in(holes: &[Span], span: Span) -> u64 {
    holes.iter().map(|hole| hole.intersection(span).len()).sum()
}
