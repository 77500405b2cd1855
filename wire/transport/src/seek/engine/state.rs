//! The state of one stream: its holes, and the position up to which its source was received.

use seekwire_protocol::holes::{HoleError, Holes};
use seekwire_protocol::span::Span;

use crate::Errno;
use crate::seek::cost::Average;
use crate::seek::drained::Drained;
use crate::seek::request::SeekOptions;

/// The state of one stream that is received out of order. For one caller at a time.
#[derive(Debug)]
pub struct Engine {
    pub(super) holes: Holes,
    /// Position of the first byte that was not received from the source.
    pub(super) front: u64,
    /// Position up to which bytes were seen.
    pub(super) seen: u64,
    pub(super) drained: Drained,
    pub(super) sizes: Average,
    pub(super) moved: u64,
    /// An error that the source reported after bytes that were still received. The next call that
    /// asks the source returns it, since the kernel reports an error only once.
    pub(super) kept_error: Option<Errno>,
}

/// The bytes that one seek addresses, wherever the head moves meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    pub(super) span: Span,
    pub(super) options: SeekOptions,
    pub(super) waits: bool,
}

impl Attempt {
    /// The same, for a caller that sleeps when it fails. Such an attempt may fail although the last
    /// bytes have just come: then the sleep ends at once.
    #[must_use]
    pub fn before_a_sleep(self) -> Self {
        Self { waits: true, ..self }
    }

    /// Position of the first byte.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.span.start
    }

    /// The same without its first `n` bytes.
    #[must_use]
    pub fn behind(self, n: u64) -> Self {
        let start = self.span.start.saturating_add(n).min(self.span.end);
        Self { span: Span { start, end: self.span.end }, ..self }
    }
}

impl Engine {
    /// Creates the state of a stream of which `head` bytes were received. It may use `memory` bytes
    /// of library memory.
    #[must_use]
    pub fn new(head: u64, memory: usize) -> Self {
        Self {
            holes: Holes::new(head),
            front: head,
            seen: head,
            drained: Drained::new(memory),
            sizes: Average::default(),
            moved: 0,
            kept_error: None,
        }
    }

    /// Position of the first byte that was neither received nor taken.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.holes.head()
    }

    /// Position of the first byte that was not received from the source.
    #[must_use]
    pub fn front(&self) -> u64 {
        self.front
    }

    /// Bytes that were moved into library memory so far.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// Whether no byte was taken out of the middle of the unread ones.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        self.holes.spans().is_empty()
    }

    /// Whether the next bytes in order are in library memory.
    #[must_use]
    pub fn has_drained(&self) -> bool {
        self.holes.head() < self.front
    }

    /// Keeps an error that came after bytes, for the next call that asks the source. Errors that
    /// concern one call and not the stream are dropped.
    pub fn keep(&mut self, error: Errno) {
        let of_call = [
            Errno::AGAIN,
            Errno::INTR,
            Errno::CANCELED,
            Errno::NOBUFS,
            Errno::NOMEM,
            Errno::FAULT,
            Errno::BUSY,
            Errno::NXIO,
            Errno::INVAL,
        ];
        if !of_call.contains(&error) {
            self.kept_error = Some(error);
        }
    }

    /// Whether an error is [kept](Self::keep).
    #[must_use]
    pub fn has_kept_error(&self) -> bool {
        self.kept_error.is_some()
    }

    /// Takes the error that is [kept](Self::keep).
    pub fn take_kept_error(&mut self) -> Option<Errno> {
        self.kept_error.take()
    }

    pub(super) fn return_kept_error(&mut self) -> Result<(), Errno> {
        self.take_kept_error().map_or(Ok(()), Err)
    }
}

/// The reason why the rest of some bytes is missing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stopped {
    /// None: they were all there.
    Done,
    /// It has not arrived.
    Missing,
    /// The stream ends.
    Ended,
    /// It can be reached only by moving the bytes before it, and there is no more memory for that.
    Full,
}

pub(super) fn errno(error: HoleError) -> Errno {
    match error {
        HoleError::Taken => Errno::NXIO,
        HoleError::TooMany => Errno::NOBUFS,
        HoleError::OutOfRange => Errno::INVAL,
    }
}
