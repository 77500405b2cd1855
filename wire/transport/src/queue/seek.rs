//! Looking ahead on the ring, and giving segments back out of its middle (Douglas and Pai,
//! "Seekable sockets": a hole frees its space in the buffer).
//!
//! All offsets count from the front, the first byte that was not taken off the ring in order. A
//! segment goes back to the sender as soon as all of its bytes are taken, wherever it lies; its
//! descriptor stays until the front passes it. Then the segment must not go back a second time. No
//! table is needed to know which ones went early ([`Rx::release`]): those of records of which no
//! byte was received in order, and all of whose bytes were taken ([`Rx::pass`]).

use seekwire_protocol::record::Record;
use seekwire_protocol::span::Span;

use super::pair::{QueueMemory, Violation};
use super::rx::{Located, Rx};
use crate::iov::Scatter;
use crate::layout;
use crate::mem::PeerMemory;
use crate::seek::LookAhead;
use crate::sync::Ordering;

/// Bytes of one of the peer's segments, in the middle of the ring.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SegmentPart {
    /// Offset in the peer's memory.
    pub offset: usize,
    /// Bytes, at least 1.
    pub len: usize,
    /// The segment, and all the bytes of its record; `None` for bytes that lie in the ring itself.
    pub segment: Option<(u16, Span)>,
}

/// A data record and those of its bytes that were not received in order.
struct UnreadRecord {
    located: Located,
    /// Bytes received in order.
    begun: usize,
    span: Span,
}

impl<O: QueueMemory, P: PeerMemory> Rx<'_, O, P> {
    /// Shows `visit` the records of data from the front on, until it returns false; then the result
    /// is `None`. If the records end before that, the result is what follows the last of them, and
    /// the number of bytes before it.
    fn walk(
        &self,
        mut visit: impl FnMut(&UnreadRecord) -> bool,
    ) -> Result<Option<(LookAhead, u64)>, Violation> {
        let q = self.queue;
        let begin = q.get(layout::RX_POSITION);
        let (mut position, mut at) = (begin, 0);
        // An honest ring does not return to where it began.
        while position - begin <= q.peer_geometry.cells() as u64 {
            let Some(located) = self.find(position)? else {
                return Ok(Some((LookAhead::Missing, at)));
            };
            match located.record {
                Record::Pad => {}
                Record::Inline { .. } | Record::Segment { .. } => {
                    let begun = q.offset_in(position);
                    let span = Span { start: at, end: at + (located.len - begun) as u64 };
                    at = span.end;
                    if !visit(&UnreadRecord { located, begun, span }) {
                        return Ok(None);
                    }
                }
                Record::Fin => return Ok(Some((LookAhead::Ended, at))),
                Record::Tcp => return Ok(Some((LookAhead::Behind(at), at))),
                Record::RingAt => return Err(Violation),
            }
            position += self.cells(&located);
        }
        Err(Violation)
    }

    /// Copies up to `most` bytes that begin `ahead` bytes after the front; they stay.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn look(
        &self,
        ahead: u64,
        most: u64,
        into: &mut Scatter<'_, '_>,
    ) -> Result<LookAhead, Violation> {
        let wanted = Span { start: ahead, end: ahead.saturating_add(most) };
        let peer = &self.queue.peer;
        let stopped = self.walk(|unread| {
            let here = unread.span.intersection(wanted);
            if !here.is_empty() {
                let at = unread.located.payload
                    + unread.begun
                    + (here.start - unread.span.start) as usize;
                into.fill(here.len() as usize, |done, piece| peer.read(at + done, piece));
            }
            unread.span.end < wanted.end
        })?;
        Ok(stopped.map_or(LookAhead::Done, |(look, _)| look))
    }

    /// Returns the locations of the bytes that [`Rx::look`] would copy, in order.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn parts(
        &self,
        ahead: u64,
        most: u64,
        mut visit: impl FnMut(SegmentPart),
    ) -> Result<LookAhead, Violation> {
        let wanted = Span { start: ahead, end: ahead.saturating_add(most) };
        let stopped = self.walk(|unread| {
            let here = unread.span.intersection(wanted);
            if !here.is_empty() {
                visit(SegmentPart {
                    offset: unread.located.payload
                        + unread.begun
                        + (here.start - unread.span.start) as usize,
                    len: here.len() as usize,
                    segment: unread.located.segment.map(|segment| (segment, unread.span)),
                });
            }
            unread.span.end < wanted.end
        })?;
        Ok(stopped.map_or(LookAhead::Done, |(look, _)| look))
    }

    /// The bytes of `span` were just taken: gives back the segments whose bytes were all taken,
    /// according to `is_taken`.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn release(&self, span: Span, is_taken: &dyn Fn(Span) -> bool) -> Result<(), Violation> {
        self.walk(|unread| {
            if let Some(segment) = unread.located.segment {
                if unread.begun == 0 && unread.span.overlaps(span) && is_taken(unread.span) {
                    self.return_segment(segment.into());
                }
            }
            unread.span.end < span.end
        })
        .map(drop)
    }

    /// Takes up to `max` bytes at the front off the ring without copying them. `was_released`: all
    /// of them were taken and [`Rx::release`]d before. `is_lent` returns whether some bytes of a
    /// span are lent: then its segment is not given back.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn pass(
        &self,
        max: u64,
        was_released: bool,
        is_lent: &dyn Fn(Span) -> bool,
    ) -> Result<u64, Violation> {
        let mut done = 0;
        while done < max {
            let Some(located) = self.head()?.filter(|l| l.len > 0) else { break };
            let offset = self.queue.offset_in(located.position);
            let left = (located.len - offset) as u64;
            let n = left.min(max - done);
            // Only the part of the record after the front counts here: its first byte may lie
            // before it.
            let record = || is_lent(Span { start: done, end: done + left });
            if n == left && ((was_released && offset == 0) || record()) {
                self.advance(self.cells(&located));
            } else {
                self.take(&located, offset, n as usize);
            }
            done += n;
        }
        self.count(done as usize);
        Ok(done)
    }

    /// Gives a lent segment back.
    pub fn return_lent_segment(&self, segment: u16) {
        self.return_segment(segment.into());
    }

    /// Number of bytes from the front to the first record that is not data, and what comes there.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn arrived(&self) -> Result<(LookAhead, u64), Violation> {
        Ok(self.walk(|_| true)?.unwrap_or((LookAhead::Missing, 0)))
    }

    /// As [`Rx::announce`], for a receiver that is about to sleep although the ring is not empty:
    /// tells the peer of any room at all.
    #[must_use]
    pub fn announce_before_sleep(&self) -> bool {
        let q = self.queue;
        // SYNC POINT "space", receiver: as in `Rx::announce`.
        q.own.store_fenced(layout::CONSUMED, q.get(layout::RX_POSITION));
        let armed = q.peer.load(layout::ARM_SPACE, Ordering::SeqCst);
        let ring = armed != 0 && armed != q.get(layout::RUNG_SPACE);
        if ring {
            q.set(layout::RUNG_SPACE, armed);
        }
        ring
    }
}
