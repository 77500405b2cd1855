//! Receiving in order, around the bytes that were taken.

use seekwire_protocol::span::Span;

use super::state::{Attempt, Engine, Stopped, errno};
use crate::Errno;
use crate::iov::Scatter;
use crate::seek::drained::CHUNK;
use crate::seek::source::Source;

/// Maximum number of bytes to be skipped that are still received together with the wanted ones.
const SKIP: usize = 64;

impl Engine {
    /// Fills `into` with the bytes at the head, holes skipped; 0 is the end of the stream.
    ///
    /// # Errors
    /// EAGAIN if there are none; those of recv(2).
    pub fn recv(
        &mut self,
        source: &mut impl Source,
        into: &mut Scatter<'_, '_>,
    ) -> Result<usize, Errno> {
        self.sizes.note(into.remaining());
        let begin = into.filled();
        let mut dry = false;
        while into.remaining() > 0 {
            let live = self.holes.first_live(into.remaining() as u64);
            if live.start < self.front {
                let here = Span { start: live.start, end: live.end.min(self.front) };
                self.drained.read(here, |piece| into.put(piece));
                self.holes.received(here.len());
                self.drained.forget(here);
                continue;
            }
            if dry || (into.filled() > 0 && source.has_only_error(0)?) {
                break;
            }
            let before = into.filled();
            match self.receive(source, live.len(), into, &mut dry) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    // A source that fails has received nothing, whatever it has copied.
                    into.rewind(into.filled() - before);
                    if before == begin {
                        return Err(error);
                    }
                    self.keep(error);
                    break;
                }
            }
        }
        if source.discards_cheaply() {
            self.discard_taken(source)?;
        }
        Ok(into.filled() - begin)
    }

    /// Receives the next bytes from the source, at most `most`, or moves more of them into library
    /// memory. Sets `dry` if the source has no more now.
    fn receive(
        &mut self,
        source: &mut impl Source,
        most: u64,
        into: &mut Scatter<'_, '_>,
        dry: &mut bool,
    ) -> Result<usize, Errno> {
        self.return_kept_error()?;
        if self.sizes.is_below(source.bulk_below()) && into.remaining() < CHUNK / 2 {
            match self.drain_once(source) {
                Err(Errno::NOBUFS) => {}
                Ok((n, room)) => {
                    *dry = n < room;
                    return Ok(n);
                }
                Err(error) => return Err(error),
            }
        }
        self.discard_taken(source)?;
        // A source may fill one buffer at a time.
        let wanted = into.next_room(usize::try_from(most).unwrap_or(usize::MAX)).len();
        let n = source.receive(into, most)?;
        self.front += n as u64;
        self.holes.received(n as u64);
        *dry = n < wanted;
        Ok(n)
    }

    /// Receives the bytes of a seek that accepts a part of them, if no wanted byte precedes them in
    /// the source: then they need not be peeked at first, and their memory is free at once. `None`
    /// if one does.
    pub(super) fn receive_in_front(
        &mut self,
        source: &mut impl Source,
        attempt: &Attempt,
        into: &mut Scatter<'_, '_>,
    ) -> Result<Option<usize>, Errno> {
        let Attempt { span, options, .. } = *attempt;
        let is_in_front = options.partial
            && !options.peek
            && options.skip <= SKIP as u64
            && span.len() > options.skip
            && into.filled() == 0
            && span.start == self.holes.taken_until(self.front)
            && self.drained.has_room();
        if !is_in_front {
            return Ok(None);
        }
        self.discard_taken(source)?;
        self.return_kept_error()?;
        let mut skip = [0; SKIP];
        let skip = &mut skip[..options.skip as usize];
        let wanted = span.len() - options.skip;
        let Some(n) = source.receive_behind(skip, into, wanted)? else { return Ok(None) };
        let end = span.start + n as u64;
        if into.filled() > 0 {
            self.front = end;
            self.holes.take(Span { start: span.start, end }).map_err(errno)?;
        } else if n > 0 {
            // Only bytes to be skipped have come. A seek takes them together with wanted ones or
            // not at all, so they wait in library memory.
            self.drained.put(self.front, &skip[..n])?;
            self.front = end;
            return Err(Errno::AGAIN);
        }
        Ok(Some(into.filled()))
    }

    /// As [`Self::recv`], but the bytes stay.
    ///
    /// # Errors
    /// Those of [`Self::recv`].
    pub fn peek(
        &mut self,
        source: &mut impl Source,
        into: &mut Scatter<'_, '_>,
    ) -> Result<usize, Errno> {
        self.peek_as_far(source, into).map(|(n, _)| n)
    }

    /// As [`Self::peek`]; also returns whether no more bytes follow these: the next receive returns
    /// the end of the stream, or an error.
    ///
    /// # Errors
    /// Those of [`Self::recv`].
    pub fn peek_as_far(
        &mut self,
        source: &mut impl Source,
        into: &mut Scatter<'_, '_>,
    ) -> Result<(usize, bool), Errno> {
        let begin = into.filled();
        let mut is_over = false;
        let mut at = self.holes.head();
        while into.remaining() > 0 {
            let mut live = self.holes.live_from(at, into.remaining() as u64).map_err(errno)?;
            if live.start < self.front {
                live.end = live.end.min(self.front);
            } else {
                let ahead = live.start - self.front;
                if into.filled() > begin && source.has_only_error(ahead)? {
                    is_over = true;
                    break;
                }
                // A look beyond the bytes that have arrived would take an error from the kernel,
                // which returns it once. It is for the receive after these bytes.
                let arrived = self.front + source.arrived()?;
                if live.start < arrived {
                    live.end = live.end.min(arrived);
                }
            }
            let before = into.filled();
            let copied = self.copy(source, live, before, into);
            is_over |= matches!(copied, Ok(Stopped::Ended));
            if into.filled() == begin {
                match copied? {
                    Stopped::Missing => return Err(Errno::AGAIN),
                    Stopped::Full => return Err(Errno::NOBUFS),
                    Stopped::Done | Stopped::Ended => return Ok((0, true)),
                }
            }
            if let Err(error) = copied {
                self.keep(error);
                is_over |= self.kept_error.is_some();
            }
            if ((into.filled() - before) as u64) < live.len() {
                break;
            }
            at = self.holes.taken_until(live.end);
        }
        Ok((into.filled() - begin, is_over))
    }
}
