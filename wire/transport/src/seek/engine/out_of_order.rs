//! Receiving from the middle of the stream.

use std::io::IoSliceMut;

use seekwire_protocol::span::Span;

use super::drain::Drain;
use super::state::{Attempt, Engine, Stopped, errno};
use crate::Errno;
use crate::iov::Scatter;
use crate::seek::source::{Source, Take};
use crate::seek::{At, SeekOptions};

impl Engine {
    /// Determines the bytes that a seek addresses: `len` of them, or some of them, after those that
    /// it skips.
    ///
    /// # Errors
    /// ENXIO if some of them were taken before; ENOBUFS if there would be too many holes; EINVAL if
    /// no such position can exist.
    #[inline]
    pub fn begin(&mut self, at: At, len: u64, options: SeekOptions) -> Result<Attempt, Errno> {
        let start = match at {
            At::Offset(offset) => self.holes.head().checked_add(offset).ok_or(Errno::INVAL)?,
            At::Position(position) => position,
        };
        let whole = len.checked_add(options.skip).ok_or(Errno::INVAL)?;
        let span = self.holes.live_from(start, whole).map_err(errno)?;
        let least = if options.partial { options.skip + len.min(1) } else { whole };
        if span.len() < least {
            return Err(Errno::NXIO);
        }
        if !options.peek && len > 0 {
            self.sizes.note(len as usize);
        }
        Ok(Attempt { span, options, waits: false })
    }

    /// Takes the bytes if they are there. `into` keeps those that were copied, so that another
    /// attempt continues after them.
    ///
    /// # Errors
    /// EAGAIN if they have not all arrived; ENXIO if some were taken before; ENOBUFS if there would
    /// be too many holes; those of recv(2).
    pub fn attempt(
        &mut self,
        source: &mut impl Source,
        attempt: Attempt,
        into: &mut Scatter<'_, '_>,
    ) -> Result<usize, Errno> {
        let Attempt { span, options, waits } = attempt;
        // Another thread may have taken them since.
        if options.peek {
            self.holes.check(span).map_err(errno)?;
        } else {
            self.holes.may_take(span).map_err(errno)?;
        }
        let mut stopped = Stopped::Done;
        let mut there = span;
        if self.front < span.end {
            if options.bulk || self.sizes.is_below(source.bulk_below()) {
                let came = self.drain_to(source, span.end)?;
                if waits && matches!(came, Drain::Some | Drain::Nothing) {
                    // The source is not asked again for bytes that may have come since: if any
                    // have, the caller's sleep ends at once.
                    there.end = self.front.clamp(span.start, span.end);
                    stopped = Stopped::Missing;
                }
            } else if let Some(n) = self.receive_in_front(source, &attempt, into)? {
                return Ok(n);
            } else if source.begins_small()? {
                self.drain_small(source)?;
            } else if !options.peek
                && options.skip == 0
                && into.filled() == 0
                && span.start >= self.front
            {
                self.return_kept_error()?;
                match source.take(span.start - self.front, span.len(), options.partial, into)? {
                    Some(Take::Taken(n)) => {
                        return self.took(source, Span { start: span.start, end: span.start + n });
                    }
                    Some(Take::Missing) => return Err(Errno::AGAIN),
                    None => {}
                }
            }
        }
        let wanted = Span { start: span.start + options.skip, end: span.end };
        match self.copy(source, Span { start: wanted.start, ..there }, 0, into)? {
            Stopped::Done => {}
            kept_away => stopped = kept_away,
        }
        let n = into.filled();
        let enough = if options.partial { wanted.len().min(1) } else { wanted.len() };
        if (n as u64) < enough {
            match stopped {
                Stopped::Missing => return Err(Errno::AGAIN),
                Stopped::Full => return Err(Errno::NOBUFS),
                Stopped::Done | Stopped::Ended => {}
            }
        }
        if n > 0 {
            self.seen = self.seen.max(wanted.start + n as u64);
        }
        let is_there = n > 0 || (wanted.is_empty() && self.has_arrived(source, span)?);
        if is_there && !options.peek {
            self.take(source, Span { start: span.start, end: wanted.start + n as u64 })?;
        }
        Ok(n)
    }

    /// Whether bytes that the caller does not want to see have arrived; `false` if the stream ends
    /// before.
    fn has_arrived(&mut self, source: &mut impl Source, span: Span) -> Result<bool, Errno> {
        if span.is_empty()
            || span.end <= self.front.max(self.seen)
            || span.end <= self.front + source.arrived()?
        {
            return Ok(true);
        }
        // The source does not count all bytes that have arrived: a look at the last byte decides.
        let mut last = [0];
        let into = &mut [IoSliceMut::new(&mut last)];
        match self.copy(
            source,
            Span { start: span.end - 1, end: span.end },
            0,
            &mut Scatter::new(into),
        )? {
            Stopped::Done => Ok(true),
            Stopped::Ended => Ok(false),
            Stopped::Missing => Err(Errno::AGAIN),
            Stopped::Full => Err(Errno::NOBUFS),
        }
    }

    /// Marks the bytes of `span`, which the source has taken itself, as taken.
    fn took(&mut self, source: &mut impl Source, span: Span) -> Result<usize, Errno> {
        self.holes.take(span).map_err(errno)?;
        self.discard_taken(source)?;
        Ok(span.len() as usize)
    }

    fn take(&mut self, source: &mut impl Source, span: Span) -> Result<(), Errno> {
        let there = Span { start: span.start.max(self.front), end: span.end };
        if !there.is_empty() {
            source.cut(Span { start: there.start - self.front, end: there.end - self.front })?;
        }
        self.holes.take(span).map_err(errno)?;
        self.drained.forget(span);
        if !there.is_empty() {
            let (front, holes) = (self.front, &self.holes);
            let relative = Span { start: there.start - front, end: there.end - front };
            source.release(relative, &|span: Span| {
                holes.is_taken(Span { start: front + span.start, end: front + span.end })
            })?;
        }
        if source.discards_cheaply() { self.discard_taken(source) } else { Ok(()) }
    }

    /// Takes bytes that stay where they are. `lend(ahead, len, front)` lends `len` bytes that begin
    /// `ahead` bytes after the front, or the first ones of them, and returns their number. Bytes in
    /// library memory are never lent. The caller goes on with [`Engine::discard_taken`].
    ///
    /// # Errors
    /// EAGAIN, ENXIO, ENOBUFS as [`Engine::attempt`]; then nothing has changed.
    pub fn lend(
        &mut self,
        attempt: &Attempt,
        lend: impl FnOnce(u64, u64, u64) -> Result<u64, Errno>,
    ) -> Result<u64, Errno> {
        let span = attempt.span;
        // Another thread may have taken them since.
        self.holes.check(span).map_err(errno)?;
        // All lent bytes together make no more holes than the first one would.
        self.holes
            .may_take(Span { start: span.start, end: span.end.min(span.start + 1) })
            .map_err(errno)?;
        if span.start < self.front {
            return Ok(0);
        }
        let lent = lend(span.start - self.front, span.len(), self.front)?;
        let taken = Span { start: span.start, end: span.start + lent.min(span.len()) };
        self.holes.take(taken).map_err(errno)?;
        Ok(taken.len())
    }

    /// Whether bytes are better copied than lent: they are in library memory, or requests have
    /// fewer than `bulk_below` bytes on average, and are best moved there.
    #[must_use]
    pub fn prefers_copy(&self, attempt: &Attempt, bulk_below: u32) -> bool {
        let span = attempt.span;
        span.is_empty() || span.start < self.front || self.sizes.is_below(bulk_below)
    }

    /// Whether no byte of `span` will be received from the source any more.
    #[must_use]
    pub fn is_behind(&self, span: Span) -> bool {
        let rest = Span { start: span.start.max(self.front), end: span.end };
        rest.is_empty() || self.holes.is_taken(rest)
    }
}
