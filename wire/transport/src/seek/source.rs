//! The source from which an engine gets the bytes of a stream.

use seekwire_protocol::span::Span;

use crate::Errno;
use crate::iov::Scatter;

/// The outcome of a look ahead.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LookAhead {
    /// All the bytes were there.
    Done,
    /// The rest of them has not arrived.
    Missing,
    /// The stream ends before the rest of them.
    Ended,
    /// The rest of them cannot be seen before this many bytes, counted from the front, are
    /// received.
    Behind(u64),
}

/// The outcome of taking bytes in one step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Take {
    /// This many were taken: fewer than wanted only if that was allowed, or the stream ends.
    Taken(u64),
    /// They have not all arrived.
    Missing,
}

/// Bytes in order, with a look ahead. The front is the first byte that was not received from the
/// source. No method waits.
pub trait Source {
    /// Receives up to `most` bytes from the front into `into`; 0 is the end of the stream.
    ///
    /// # Errors
    /// EAGAIN if there are no bytes; those of recv(2).
    fn receive(&mut self, into: &mut Scatter<'_, '_>, most: u64) -> Result<usize, Errno>;

    /// As [`Source::receive`], but the first bytes go to `skip`, and up to `most` after them into
    /// `into`. `None` if that cannot be done in one step.
    ///
    /// # Errors
    /// Those of [`Source::receive`].
    fn receive_behind(
        &mut self,
        _skip: &mut [u8],
        _into: &mut Scatter<'_, '_>,
        _most: u64,
    ) -> Result<Option<usize>, Errno> {
        Ok(None)
    }

    /// Whether the bytes at the front lie there in small pieces, which cost less to move once than
    /// to pass again and again.
    ///
    /// # Errors
    /// Those of recv(2), not EAGAIN.
    fn begins_small(&mut self) -> Result<bool, Errno> {
        Ok(false)
    }

    /// As [`Source::receive`], but only bytes that lie there in small pieces; 0 if none do.
    ///
    /// # Errors
    /// As [`Source::begins_small`].
    fn receive_small(&mut self, _into: &mut Scatter<'_, '_>, _most: u64) -> Result<usize, Errno> {
        Ok(0)
    }

    /// Copies up to `most` bytes that begin `ahead` bytes after the front; they stay. `into` then
    /// holds those that were there, whatever is returned.
    ///
    /// # Errors
    /// Those of recv(2), not EAGAIN.
    fn look(
        &mut self,
        ahead: u64,
        most: u64,
        into: &mut Scatter<'_, '_>,
    ) -> Result<LookAhead, Errno>;

    /// Copies `most` bytes that begin `ahead` bytes after the front and takes them out of the
    /// source, all or none; with `partial` as many as have arrived. `None` if it cannot do both in
    /// one step; then nothing has changed.
    ///
    /// # Errors
    /// ENOBUFS if there would be too many holes; those of recv(2), not EAGAIN.
    fn take(
        &mut self,
        _ahead: u64,
        _most: u64,
        _partial: bool,
        _into: &mut Scatter<'_, '_>,
    ) -> Result<Option<Take>, Errno> {
        Ok(None)
    }

    /// The bytes of `span`, counted from the front, have arrived, were copied, and are about to be
    /// taken. A source that keeps holes of its own makes this one.
    ///
    /// # Errors
    /// As [`Source::take`]; then nothing has changed.
    fn cut(&mut self, _span: Span) -> Result<(), Errno> {
        Ok(())
    }

    /// Discards bytes at the front, at most `n`, all of which were taken. Returns their number; 0
    /// if they are not there.
    ///
    /// # Errors
    /// Those of recv(2).
    fn discard(&mut self, n: u64) -> Result<u64, Errno>;

    /// The bytes of `span`, counted from the front, were just taken: their memory may go back.
    /// `is_taken` returns whether all of a span, counted likewise, is taken.
    ///
    /// # Errors
    /// Those of recv(2).
    fn release(&mut self, span: Span, is_taken: &dyn Fn(Span) -> bool) -> Result<(), Errno>;

    /// Number of bytes that have arrived after the front, if they can be seen.
    ///
    /// # Errors
    /// Those of ioctl(2).
    fn arrived(&mut self) -> Result<u64, Errno>;

    /// As [`Source::arrived`], including bytes that cannot be seen before others are received.
    ///
    /// # Errors
    /// Those of [`Source::arrived`].
    fn arrived_in_all(&mut self) -> Result<u64, Errno> {
        self.arrived()
    }

    /// Whether the stream ends at the front. Nothing is received for this check, so no memory is
    /// needed.
    ///
    /// # Errors
    /// Those of recv(2), ioctl(2), not EAGAIN.
    fn has_ended(&mut self) -> Result<bool, Errno> {
        match self.receive(&mut Scatter::new(&mut []), 0) {
            // This is also the answer if bytes are there. They stay, so those that came before are
            // still there.
            Ok(_) => Ok(self.arrived()? == 0),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether only an error follows this many bytes. The kernel returns it once, and after bytes
    /// it belongs to the next call.
    ///
    /// # Errors
    /// Those of poll(2).
    fn has_only_error(&mut self, _behind: u64) -> Result<bool, Errno> {
        Ok(false)
    }

    /// Average size of requests, in bytes, below which bytes are best moved to library memory in
    /// bulk.
    fn bulk_below(&self) -> u32;

    /// Whether bytes that were taken at the front are best discarded at once, because that costs no
    /// system call.
    fn discards_cheaply(&self) -> bool;
}
