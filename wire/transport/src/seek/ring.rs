//! The queue pair as a source.

use seekwire_protocol::span::Span;

use super::engine::Engine;
use crate::Errno;
use crate::iov::Scatter;
use crate::mem::{Own, Peer, PeerMemory};
use crate::queue::{QueueMemory, Rx, SegmentPart, Violation};

/// All loans of the peer's segments that were not returned yet.
#[derive(Debug, Default)]
pub struct SegmentLoans(Vec<SegmentLoan>);

/// Bytes of one segment that were taken and that the application still uses in place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SegmentLoan {
    /// Offset in the peer's memory, in bytes.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
    segment: u16,
    /// Positions of the bytes of its record.
    record: Span,
}

impl SegmentLoan {
    /// A loan of a part that counts from the position `front` on. `None` for a part that lies in
    /// the ring itself, which cannot be lent.
    #[must_use]
    pub fn new(part: SegmentPart, front: u64) -> Option<Self> {
        let (segment, record) = part.segment?;
        let record = Span { start: front + record.start, end: front + record.end };
        Some(Self { offset: part.offset, len: part.len, segment, record })
    }
}

impl SegmentLoans {
    /// The number of loans.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    fn overlap(&self, span: Span) -> bool {
        self.0.iter().any(|loan| loan.record.overlaps(span))
    }

    /// Enters a loan.
    pub fn add(&mut self, loan: SegmentLoan) {
        self.0.push(loan);
    }

    /// Removes a loan. Returns the segment to give back if it was the last loan of its record, and
    /// all of the record was taken.
    ///
    /// # Errors
    /// EINVAL if there is no such loan.
    pub fn end(&mut self, engine: &Engine, loan: SegmentLoan) -> Result<Option<u16>, Errno> {
        let at = self.0.iter().position(|other| *other == loan).ok_or(Errno::INVAL)?;
        self.0.swap_remove(at);
        let is_over = engine.is_behind(loan.record) && !self.overlap(loan.record);
        Ok(is_over.then_some(loan.segment))
    }
}

/// The receiving half as a source, while the next byte comes from the ring.
#[derive(Debug)]
pub struct RingSource<'r, 'q, O: QueueMemory = Own, P = Peer> {
    rx: &'r Rx<'q, O, P>,
    loans: &'r SegmentLoans,
    front: u64,
}

impl<'r, 'q, O: QueueMemory, P: PeerMemory> RingSource<'r, 'q, O, P> {
    /// Creates the source with the engine's front at `front`.
    #[must_use]
    pub fn new(rx: &'r Rx<'q, O, P>, loans: &'r SegmentLoans, front: u64) -> Self {
        Self { rx, loans, front }
    }

    fn is_lent(&self, span: Span) -> bool {
        self.loans.overlap(Span { start: self.front + span.start, end: self.front + span.end })
    }

    /// Takes bytes at the front off the ring.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn receive(&mut self, into: &mut Scatter<'_, '_>, most: u64) -> Result<usize, Violation> {
        if self.loans.count() == 0 {
            let n = into.at_most(most, |into| self.rx.pull(into))?;
            self.front += n as u64;
            return Ok(n);
        }
        let begin = into.filled();
        self.rx.look(0, most.min(into.remaining() as u64), into)?;
        let n = into.filled() - begin;
        self.pass(n as u64, false)?;
        Ok(n)
    }

    /// As [`Self::receive`], but only bytes in the ring itself, which are never lent.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn receive_small(
        &mut self,
        into: &mut Scatter<'_, '_>,
        most: u64,
    ) -> Result<usize, Violation> {
        let n = into.at_most(most, |into| self.rx.pull_inline(into))?;
        self.front += n as u64;
        Ok(n)
    }

    /// Takes `n` bytes at the front off the ring without reading them.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn pass(&mut self, n: u64, was_released: bool) -> Result<u64, Violation> {
        let n = self.rx.pass(n, was_released, &|span| self.is_lent(span))?;
        self.front += n;
        Ok(n)
    }

    /// As [`Rx::release`], but segments with lent bytes are not given back.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn release(&self, span: Span, is_taken: &dyn Fn(Span) -> bool) -> Result<(), Violation> {
        self.rx.release(span, &|span| is_taken(span) && !self.is_lent(span))
    }
}
