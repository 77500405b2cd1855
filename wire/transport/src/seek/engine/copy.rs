//! Copying bytes for a caller, out of library memory and the source.

use seekwire_protocol::span::Span;

use super::drain::Drain;
use super::state::{Engine, Stopped};
use crate::Errno;
use crate::iov::Scatter;
use crate::seek::source::{LookAhead, Source};

impl Engine {
    /// Copies the bytes of `span` that have arrived into `into`, which holds `begin` other bytes
    /// and perhaps, after them, the first ones of `span`. Returns the reason why the rest is
    /// missing.
    pub(super) fn copy(
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
            self.return_kept_error()?;
            match source.look(at - self.front, span.end - at, into)? {
                LookAhead::Done => {}
                // An honest source never has to receive 0 bytes first: a hostile ring may have
                // changed between two looks.
                LookAhead::Missing | LookAhead::Behind(0) => return Ok(Stopped::Missing),
                LookAhead::Ended => return Ok(Stopped::Ended),
                LookAhead::Behind(bytes) => {
                    match self.drain_to(source, self.front.saturating_add(bytes))? {
                        Drain::All | Drain::Some => {}
                        Drain::Nothing => return Ok(Stopped::Missing),
                        Drain::Full if source.arrived()? > 0 => return Ok(Stopped::Full),
                        Drain::Full if source.has_ended()? => return Ok(Stopped::Ended),
                        // No library memory is in use that receiving could free: when the bytes
                        // come, they can be received.
                        Drain::Full if self.drained.is_empty() => return Ok(Stopped::Missing),
                        Drain::Full => return Ok(Stopped::Full),
                        Drain::Ended => return Ok(Stopped::Ended),
                    }
                }
            }
        }
    }
}
