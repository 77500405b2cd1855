//! The engine: what was taken out of a stream (the holes), what waits in library memory, and by
//! which way bytes are taken. It is the same for every source of bytes.
//!
//! ```text
//!   position   head                front                     arrived
//!              |... library memory ...|....... source .........|
//! ```
//!
//! What lies before the front was received from the source: into the caller's memory, into library
//! memory, or it was taken and thrown away. What lies behind it is looked at where it is.

mod drain;
mod in_order;

use std::io::IoSliceMut;

use seekwire_protocol::holes::{HoleError, Holes};
use seekwire_protocol::span::Span;

use super::cost::Average;
use super::drained::Drained;
use super::source::{Look, Source, Take};
use super::{At, Extent, SeekOptions};
use crate::Errno;
use crate::iov::Scatter;
use drain::Drain;

/// The state of one stream that is received out of order. For one caller at a time.
#[derive(Debug)]
pub struct Engine {
    holes: Holes,
    /// Position of the first byte that was not received from the source.
    front: u64,
    /// Position up to which bytes were seen to be there.
    seen: u64,
    drained: Drained,
    sizes: Average,
    moved: u64,
    /// An error that the source told behind bytes that were received nevertheless. The next call
    /// that asks the source returns it, since the kernel tells an error only once.
    late: Option<Errno>,
}

/// The bytes that one seek means, wherever the head goes meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    span: Span,
    options: SeekOptions,
    waits: bool,
}

impl Attempt {
    /// The same, for a caller that sleeps when it fails. Such an attempt may fail although the last
    /// bytes have just come: the sleep ends at once then.
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
    /// For a stream of which `head` bytes were received. It may use `memory` bytes of library
    /// memory.
    #[must_use]
    pub fn new(head: u64, memory: usize) -> Self {
        Self {
            holes: Holes::new(head),
            front: head,
            seen: head,
            drained: Drained::new(memory),
            sizes: Average::default(),
            moved: 0,
            late: None,
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

    /// Whether nothing was taken out of the middle of what is to come.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        self.holes.spans().is_empty()
    }

    /// Whether the next bytes in order are in library memory.
    #[must_use]
    pub fn has_drained(&self) -> bool {
        self.holes.head() < self.front
    }

    // ---- out of order -------------------------------------------------------------------------

    /// Which bytes a seek means: `len` of them, or some of them, behind those that it skips.
    ///
    /// # Errors
    /// ENXIO when some of them were taken before; ENOBUFS when there would be too many holes;
    /// EINVAL when there can be no such position.
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
    /// attempt goes on behind them.
    ///
    /// # Errors
    /// EAGAIN when they have not all arrived; ENXIO when some were taken before; ENOBUFS when there
    /// would be too many holes; those of recv(2).
    pub fn attempt(
        &mut self,
        source: &mut impl Source,
        attempt: Attempt,
        into: &mut Scatter<'_, '_>,
    ) -> Result<usize, Errno> {
        let Attempt { span, options, waits } = attempt;
        // Somebody else may have taken them since.
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
                    // The source is not asked again for what may have come since: the caller's
                    // sleep ends at once if something has.
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
                self.say_late()?;
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

    /// Whether bytes that nobody wants to see have arrived; `false` where the stream ends before.
    fn has_arrived(&mut self, source: &mut impl Source, span: Span) -> Result<bool, Errno> {
        if span.is_empty()
            || span.end <= self.front.max(self.seen)
            || span.end <= self.front + source.arrived()?
        {
            return Ok(true);
        }
        // The source does not count all that has arrived: a look at the last byte tells.
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

    /// Copies what has arrived of `span` into `into`, which holds `begin` other bytes and perhaps
    /// the first ones of `span` behind them; returns what keeps the rest away.
    fn copy(
        &mut self,
        source: &mut impl Source,
        span: Span,
        begin: usize,
        into: &mut Scatter<'_, '_>,
    ) -> Result<Stopped, Errno> {
        loop {
            let at = span.start + (into.filled() - begin) as u64;
            if at >= span.end {
                return Ok(Stopped::Done);
            }
            if at < self.front {
                self.drained.read(Span { start: at, end: span.end.min(self.front) }, |piece| {
                    into.put(piece)
                });
                continue;
            }
            self.say_late()?;
            match source.look(at - self.front, span.end - at, into)? {
                Look::Done => {}
                // No honest source has to receive 0 bytes first: a hostile ring may have changed
                // between two looks.
                Look::Missing | Look::Behind(0) => return Ok(Stopped::Missing),
                Look::Ended => return Ok(Stopped::Ended),
                Look::Behind(bytes) => {
                    match self.drain_to(source, self.front.saturating_add(bytes))? {
                        Drain::All | Drain::Some => {}
                        Drain::Nothing => return Ok(Stopped::Missing),
                        Drain::Full if source.arrived()? > 0 => return Ok(Stopped::Full),
                        Drain::Full if source.has_ended()? => return Ok(Stopped::Ended),
                        // No library memory is in use that receiving could free: when they come,
                        // they can be received.
                        Drain::Full if self.drained.is_empty() => return Ok(Stopped::Missing),
                        Drain::Full => return Ok(Stopped::Full),
                        Drain::Ended => return Ok(Stopped::Ended),
                    }
                }
            }
        }
    }

    /// Enters the bytes of `span`, which the source has taken itself, as taken.
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
    /// `ahead` bytes behind the front, or the first ones of them, and returns how many. Nothing in
    /// library memory is lent. The caller goes on with [`Engine::discard_taken`].
    ///
    /// # Errors
    /// EAGAIN, ENXIO, ENOBUFS as [`Engine::attempt`]; then nothing has changed.
    pub fn lend(
        &mut self,
        attempt: &Attempt,
        lend: impl FnOnce(u64, u64, u64) -> Result<u64, Errno>,
    ) -> Result<u64, Errno> {
        let span = attempt.span;
        // Somebody else may have taken them since.
        self.holes.check(span).map_err(errno)?;
        // However many are lent, they make no more holes than the first byte would.
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

    /// Whether bytes are better copied than lent: they are in library memory, or what is asked for
    /// has fewer than `bulk_below` bytes on average, which is best moved there.
    #[must_use]
    pub fn prefers_copy(&self, attempt: &Attempt, bulk_below: u32) -> bool {
        let span = attempt.span;
        span.is_empty() || span.start < self.front || self.sizes.is_below(bulk_below)
    }

    /// Whether nothing of `span` will be received from the source any more.
    #[must_use]
    pub fn is_behind(&self, span: Span) -> bool {
        let rest = Span { start: span.start.max(self.front), end: span.end };
        rest.is_empty() || self.holes.is_taken(rest)
    }

    // ---- what there is ------------------------------------------------------------------------

    /// Bytes that the source needs to hold behind the front for an attempt to succeed; 0 when it
    /// can go by library memory alone.
    #[must_use]
    pub fn needs(&self, attempt: &Attempt) -> u64 {
        self.needed_end(attempt).saturating_sub(self.front)
    }

    /// How far away positions are for a source that `leaves_holes`, or does not.
    #[must_use]
    pub fn reach(&self, leaves_holes: bool) -> Reach<'_> {
        Reach::new(self.front, leaves_holes.then(|| self.holes.spans()))
    }

    /// Bytes in holes.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.holes.spans().iter().map(|hole| hole.len()).sum()
    }

    /// Bytes behind the front that were taken.
    #[must_use]
    pub fn taken_ahead(&self) -> u64 {
        taken_in(self.holes.spans(), Span { start: self.front, end: u64::MAX })
    }

    /// Position that has to have arrived for an attempt to succeed.
    #[must_use]
    pub fn needed_end(&self, attempt: &Attempt) -> u64 {
        let Attempt { span, options, .. } = *attempt;
        if options.partial {
            span.end.min(span.start.saturating_add(options.skip).saturating_add(1))
        } else {
            span.end
        }
    }

    /// What can be received.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn extent(&mut self, source: &mut impl Source) -> Result<Extent, Errno> {
        let arrived = self.front + source.arrived()?;
        Ok(Extent { head: self.holes.head(), arrived, holes: self.holes.spans().to_vec() })
    }

    /// Bytes that [`Self::recv`] can give at once.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn unread(&mut self, source: &mut impl Source) -> Result<u64, Errno> {
        let arrived = self.front + source.arrived_in_all()?;
        Ok(self.holes.live_bytes(arrived))
    }
}

/// What keeps the rest of some bytes away.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stopped {
    /// Nothing: they were all there.
    Done,
    /// It has not arrived.
    Missing,
    /// The stream ends.
    Ended,
    /// It can be reached only by moving what lies before it, and there is no more memory for that.
    Full,
}

/// Bytes of `span` that lie in holes.
fn taken_in(holes: &[Span], span: Span) -> u64 {
    holes.iter().map(|hole| hole.intersection(span).len()).sum()
}

/// How many bytes a source has to have before what lies behind them is there.
#[derive(Clone, Copy, Debug)]
pub struct Reach<'h> {
    front: u64,
    holes: &'h [Span],
}

impl<'h> Reach<'h> {
    /// From the front on; `holes`: those whose bytes the source does not have any more.
    #[must_use]
    pub fn new(front: u64, holes: Option<&'h [Span]>) -> Self {
        Self { front, holes: holes.unwrap_or_default() }
    }

    /// Position of the first byte that was not received from the source.
    #[must_use]
    pub fn front(self) -> u64 {
        self.front
    }

    /// Bytes that come before position `end`.
    #[must_use]
    pub fn bytes_before(self, end: u64) -> u64 {
        let behind = Span { start: self.front, end: end.max(self.front) };
        behind.len() - taken_in(self.holes, behind)
    }
}

fn errno(error: HoleError) -> Errno {
    match error {
        HoleError::Taken => Errno::NXIO,
        HoleError::TooMany => Errno::NOBUFS,
        HoleError::OutOfRange => Errno::INVAL,
    }
}
