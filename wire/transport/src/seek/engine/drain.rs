//! Moving bytes out of a source: to library memory, or nowhere.

use std::io::IoSliceMut;

use super::state::{Engine, errno};
use crate::Errno;
use crate::iov::Scatter;
use crate::seek::source::Source;

/// The outcome of moving bytes.
pub(super) enum Drain {
    All,
    Some,
    Nothing,
    Ended,
    Full,
}

impl Engine {
    /// Moves the bytes that have arrived into library memory. Returns whether any were moved.
    ///
    /// # Errors
    /// ENOBUFS if there is no memory left; those of recv(2).
    pub fn drain(&mut self, source: &mut impl Source) -> Result<bool, Errno> {
        match self.drain_to(source, u64::MAX)? {
            Drain::All | Drain::Some => Ok(true),
            Drain::Nothing | Drain::Ended => Ok(false),
            Drain::Full if source.arrived()? == 0 => Ok(false),
            Drain::Full => Err(Errno::NOBUFS),
        }
    }

    pub(super) fn drain_to(&mut self, source: &mut impl Source, end: u64) -> Result<Drain, Errno> {
        let begin = self.front;
        while self.front < end {
            let stopped = match self.drain_once(source) {
                Ok((0, _)) => Drain::Ended,
                Ok((n, room)) if n < room => Drain::Nothing,
                Ok(_) => continue,
                Err(Errno::AGAIN) => Drain::Nothing,
                Err(Errno::NOBUFS) => Drain::Full,
                Err(error) => return Err(error),
            };
            return Ok(if self.front > begin { Drain::Some } else { stopped });
        }
        Ok(Drain::All)
    }

    /// Moves small pieces at the front of the source, while there is memory for them.
    pub(super) fn drain_small(&mut self, source: &mut impl Source) -> Result<(), Errno> {
        loop {
            match self.drain_by(source, |source, into, most| source.receive_small(into, most)) {
                Ok((n, room)) if n > 0 && n == room => {}
                Ok(_) | Err(Errno::NOBUFS) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads once from the source. Returns the number of bytes that came, 0 at the end of the
    /// stream, and the number that could have come.
    pub(super) fn drain_once(&mut self, source: &mut impl Source) -> Result<(usize, usize), Errno> {
        self.drain_by(source, |source, into, most| source.receive(into, most))
    }

    fn drain_by<S: Source>(
        &mut self,
        source: &mut S,
        receive: impl FnOnce(&mut S, &mut Scatter<'_, '_>, u64) -> Result<usize, Errno>,
    ) -> Result<(usize, usize), Errno> {
        self.discard_taken(source)?;
        self.return_kept_error()?;
        let front = self.front;
        let live = self.holes.live_from(front, u64::MAX - front).map_err(errno)?;
        let room = self.drained.room(front, live.len())?;
        let len = room.len().min(usize::try_from(live.len()).unwrap_or(usize::MAX));
        let into = &mut [IoSliceMut::new(&mut room[..len])];
        let got = receive(source, &mut Scatter::new(into), len as u64);
        let n = *got.as_ref().unwrap_or(&0);
        self.drained.filled(n);
        self.front += n as u64;
        self.moved += n as u64;
        got.map(|n| (n, len))
    }

    /// Discards the bytes that were taken at the front of the source.
    ///
    /// # Errors
    /// Those of recv(2).
    pub fn discard_taken(&mut self, source: &mut impl Source) -> Result<(), Errno> {
        loop {
            let taken = self.taken_at_front();
            if taken == 0 {
                return Ok(());
            }
            let n = source.discard(taken)?;
            if n == 0 {
                // Nobody else may receive from the source, so the bytes that were seen must be
                // there.
                return Err(Errno::IO);
            }
            self.front += n;
        }
    }

    /// Number of bytes at the front of the source that were taken, but not discarded yet.
    #[must_use]
    pub fn taken_at_front(&self) -> u64 {
        self.holes.taken_until(self.front) - self.front
    }
}
