//! Holes: the bytes that were taken out of the middle of a stream (Douglas and Pai, "Seekable
//! sockets").
//!
//! ```text
//!   position   0        head                                 end of what has arrived
//!              |consumed|....live....|taken|...live...|taken|..live..
//! ```
//!
//! An ordinary receive goes on at the head and skips holes. Adjacent holes are merged; when the
//! head reaches a hole, the hole vanishes and the head moves to its end. Offsets count from the
//! head and include the bytes of holes.

use crate::span::Span;

/// Maximum number of holes in a stream at a time. Bounds the memory and time that one connection
/// can cost.
pub const MAX_HOLES: usize = 1024;

/// The holes of one direction of a connection.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Holes {
    head: u64,
    /// In order, none empty, none touching another or the head.
    holes: Vec<Span>,
}

/// Why bytes cannot be taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HoleError {
    /// Some of them were taken or received before (ENXIO).
    #[error("the range touches bytes that were taken before")]
    Taken,
    /// The stream already has the maximum number of holes: receive something at the head first
    /// (ENOBUFS).
    #[error("the stream has {MAX_HOLES} holes already")]
    TooMany,
    /// The position does not exist in any stream (EINVAL).
    #[error("the range ends beyond the last possible position")]
    OutOfRange,
}

impl Holes {
    /// A stream of which `head` bytes were received in order and none taken.
    #[must_use]
    pub fn new(head: u64) -> Self {
        Self { head, holes: Vec::new() }
    }

    /// Reads back the values that [`Self::head`] and [`Self::spans`] returned; `None` if they
    /// cannot return such values.
    #[must_use]
    pub fn from_parts(head: u64, spans: impl IntoIterator<Item = Span>) -> Option<Self> {
        let holes: Vec<Span> = spans.into_iter().take(MAX_HOLES + 1).collect();
        let mut behind = head;
        for hole in &holes {
            if hole.is_empty() || hole.start <= behind {
                return None;
            }
            behind = hole.end;
        }
        (holes.len() <= MAX_HOLES).then_some(Self { head, holes })
    }

    /// Position of the first byte that was neither received nor taken.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The holes, in order.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.holes
    }

    /// The bytes that a seek addresses: `len` bytes, starting `offset` bytes after the head.
    ///
    /// # Errors
    /// [`HoleError::Taken`], [`HoleError::OutOfRange`].
    pub fn locate(&self, offset: u64, len: u64) -> Result<Span, HoleError> {
        let start = self.head.checked_add(offset).ok_or(HoleError::OutOfRange)?;
        let span = Span::new(start, len).ok_or(HoleError::OutOfRange)?;
        self.check(span)?;
        Ok(span)
    }

    /// The bytes from `start` to the next hole, at most `len` of them.
    ///
    /// # Errors
    /// [`HoleError::Taken`] when the first byte is taken; [`HoleError::OutOfRange`].
    pub fn live_from(&self, start: u64, len: u64) -> Result<Span, HoleError> {
        let span = Span::new(start, len).ok_or(HoleError::OutOfRange)?;
        self.check(Span { start, end: span.end.min(start.saturating_add(1)) })?;
        let next = self.holes.partition_point(|hole| hole.end <= start);
        let bound = self.holes.get(next).map_or(u64::MAX, |hole| hole.start);
        Ok(Span { start, end: span.end.min(bound) })
    }

    /// The first position at or after `position` whose byte was neither received nor taken.
    #[must_use]
    pub fn taken_until(&self, position: u64) -> u64 {
        if position < self.head {
            return self.head;
        }
        let at = self.holes.partition_point(|hole| hole.end <= position);
        self.holes.get(at).filter(|hole| hole.start <= position).map_or(position, |hole| hole.end)
    }

    /// Whether all of `span` was received or taken.
    #[must_use]
    pub fn is_taken(&self, span: Span) -> bool {
        let from = span.start.max(self.head);
        from >= span.end || self.taken_until(from) >= span.end
    }

    /// Whether all of `span` is still there, or to come.
    ///
    /// # Errors
    /// [`HoleError::Taken`].
    pub fn check(&self, span: Span) -> Result<(), HoleError> {
        if span.is_empty() {
            return Ok(());
        }
        let next = self.holes.partition_point(|hole| hole.end <= span.start);
        let hole = self.holes.get(next).is_some_and(|hole| hole.start < span.end);
        if span.start < self.head || hole { Err(HoleError::Taken) } else { Ok(()) }
    }

    /// Whether [`Self::take`] of `span` would succeed.
    ///
    /// # Errors
    /// [`HoleError::Taken`], [`HoleError::TooMany`].
    pub fn may_take(&self, span: Span) -> Result<(), HoleError> {
        self.check(span)?;
        let grows = !span.is_empty() && span.start != self.head && !self.touches(span);
        if grows && self.holes.len() >= MAX_HOLES { Err(HoleError::TooMany) } else { Ok(()) }
    }

    fn touches(&self, span: Span) -> bool {
        let at = self.holes.partition_point(|hole| hole.start < span.start);
        let before = at.checked_sub(1).is_some_and(|before| self.holes[before].end == span.start);
        before || self.holes.get(at).is_some_and(|after| after.start == span.end)
    }

    /// Takes `span` out of the stream.
    ///
    /// # Errors
    /// As [`Self::may_take`]; then nothing has changed.
    pub fn take(&mut self, span: Span) -> Result<(), HoleError> {
        self.may_take(span)?;
        if span.is_empty() {
            return Ok(());
        }
        if span.start == self.head {
            self.head = span.end;
            self.skip();
            return Ok(());
        }
        let at = self.holes.partition_point(|hole| hole.start < span.start);
        let joins_before = at.checked_sub(1).filter(|&before| self.holes[before].end == span.start);
        let joins_after = self.holes.get(at).is_some_and(|after| after.start == span.end);
        match (joins_before, joins_after) {
            (Some(before), true) => {
                self.holes[before].end = self.holes[at].end;
                self.holes.remove(at);
            }
            (Some(before), false) => self.holes[before].end = span.end,
            (None, true) => self.holes[at].start = span.start,
            (None, false) => self.holes.insert(at, span),
        }
        Ok(())
    }

    /// Moves the head past a hole that it has reached.
    fn skip(&mut self) {
        if let Some(first) = self.holes.first() {
            if first.start == self.head {
                self.head = first.end;
                self.holes.remove(0);
            }
        }
    }

    /// The live bytes from the head to the first hole, at most `most`: the bytes that an ordinary
    /// receive takes in one piece.
    #[must_use]
    pub fn first_live(&self, most: u64) -> Span {
        let bound = self.holes.first().map_or(u64::MAX, |hole| hole.start);
        Span { start: self.head, end: self.head.saturating_add(most).min(bound) }
    }

    /// Records that `n` bytes of [`Self::first_live`] were received.
    ///
    /// # Panics
    /// If there are fewer before the first hole.
    pub fn received(&mut self, n: u64) {
        let first = self.first_live(n);
        assert_eq!(first.len(), n, "more was received than lies before the first hole");
        self.head = first.end;
        self.skip();
    }

    /// The spans between the head and `end` that are not holes, in order.
    pub fn live(&self, end: u64) -> impl Iterator<Item = Span> + '_ {
        let starts = std::iter::once(self.head).chain(self.holes.iter().map(|hole| hole.end));
        let ends = self.holes.iter().map(|hole| hole.start).chain(std::iter::once(u64::MAX));
        starts
            .zip(ends)
            .map(move |(start, stop)| Span { start, end: stop.min(end) })
            .take_while(move |span| span.start < end)
            .filter(|span| !span.is_empty())
    }

    /// Bytes between the head and `end` that are not holes.
    #[must_use]
    pub fn live_bytes(&self, end: u64) -> u64 {
        self.live(end).map(Span::len).sum()
    }
}
