//! Receiving in order from a connection that is also received from out of order.

use std::io::IoSliceMut;

use seekwire_transport::Errno;
use seekwire_transport::buffer::zeros;
use seekwire_transport::iov::Scatter;
use seekwire_transport::seek::{At, Engine, SeekOptions, Source};

use super::state::Seeking;
use crate::connection::call_limit::Limit;
use crate::connection::state::Connection;
use crate::connection::types::RecvFlags;

impl Connection {
    /// [`Connection::recv`] of a seeking connection.
    pub(in crate::connection) fn recv_seeking(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        flags: RecvFlags,
    ) -> Result<usize, Errno> {
        let seeking = self.seeking();
        let mut scatter = Scatter::new(bufs);
        self.recv_seeking_into(seeking, &mut scatter, flags, &Limit::receive())
    }

    /// Goes on with a receive that began before the first seek.
    #[cold]
    pub(in crate::connection) fn go_on_seeking(
        &self,
        scatter: &mut Scatter<'_, '_>,
        flags: RecvFlags,
        limit: &Limit,
    ) -> Result<usize, Errno> {
        self.recv_seeking_into(self.seeking(), scatter, flags, limit)
    }

    fn recv_seeking_into(
        &self,
        seeking: &Seeking,
        scatter: &mut Scatter<'_, '_>,
        flags: RecvFlags,
        limit: &Limit,
    ) -> Result<usize, Errno> {
        let call = self.begin_call();
        let mut asks_kernel = flags.dont_wait || self.settings.is_nonblocking();
        let enough = self.enough(scatter.remaining() + scatter.filled(), flags);
        if enough > scatter.filled() + 1 && !limit.forbids(self, flags.dont_wait) {
            call.hold_signals();
        }
        loop {
            if scatter.remaining() == 0 {
                return Ok(scatter.filled());
            }
            let before = scatter.filled();
            let tried = self.with_engine(seeking, asks_kernel, |engine, source| {
                let (n, is_over) = match flags {
                    RecvFlags { peek: true, .. } => engine.peek_as_far(source, scatter)?,
                    RecvFlags { truncate: true, .. } => (discard(engine, source, scatter)?, false),
                    _ => (engine.recv(source, scatter)?, false),
                };
                // The attempt for further bytes: one more byte at the head, or, for a peek, at the
                // end of the bytes it saw.
                let more = if flags.peek {
                    At::Position(engine.extent(source)?.arrived)
                } else {
                    At::Offset(0)
                };
                let attempt = engine.begin(more, 1, SeekOptions::PEEK.partial(true))?;
                Ok((if is_over { 0 } else { n }, attempt))
            });
            let stop = |error, filled: usize| {
                if filled == 0 {
                    return Err(error);
                }
                // The kernel reports it once: the next call returns it.
                self.keep_for_next(seeking, error);
                Ok(filled)
            };
            let (n, attempt) = match tried {
                Ok((n, _)) if scatter.filled() >= enough || n == 0 => return Ok(scatter.filled()),
                Ok((n, attempt)) => (n, Some(attempt)),
                Err(Errno::AGAIN) => (0, None),
                Err(error) => return stop(error, before),
            };
            if self.is_receive_shut() {
                return if scatter.filled() > 0 {
                    Ok(scatter.filled())
                } else {
                    self.end_of_shut()
                };
            }
            if limit.forbids(self, flags.dont_wait) {
                return stop(Errno::AGAIN, scatter.filled());
            }
            if let Some(until) = limit.until(self) {
                match self.wait_for_more(seeking, attempt, until, &call) {
                    Ok(ready) => asks_kernel |= ready,
                    Err(error) => return stop(error, scatter.filled()),
                }
            }
            if flags.peek {
                scatter.rewind(n);
            }
        }
    }

    /// Asks the engine about an error that it keeps. `None` if there is no engine, or if it cannot
    /// be locked: in a signal handler that interrupted a seek.
    pub(in crate::connection) fn with_engine_if_free<R>(
        &self,
        ask: impl FnOnce(&mut Engine) -> R,
    ) -> Option<R> {
        let seeking = self.intact_seeking();
        let mut state = seeking?.state.lock().ok()?;
        state.as_mut().map(|state| ask(&mut state.engine))
    }

    pub(super) fn keep_for_next(&self, seeking: &Seeking, error: Errno) {
        let _ = self.with_engine(seeking, false, |engine, _| {
            engine.keep(error);
            Ok(())
        });
    }
}

/// MSG_TRUNC: discards the bytes that would have been received.
#[cold]
fn discard(
    engine: &mut Engine,
    source: &mut impl Source,
    scatter: &mut Scatter<'_, '_>,
) -> Result<usize, Errno> {
    let mut nowhere = zeros(scatter.remaining().min(16 << 10))?;
    let n = engine.recv(source, &mut Scatter::new(&mut [IoSliceMut::new(&mut nowhere)]))?;
    scatter.skip(n);
    Ok(n)
}
