//! Where an engine gets the bytes of a stream from.

use seekwire_protocol::span::Span;

use crate::Errno;
use crate::iov::Scatter;

/// How far a look ahead got.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Look {
    /// All the bytes were there.
    Done,
    /// The rest of them has not arrived.
    Missing,
    /// The stream ends before the rest of them.
    Ended,
    /// The rest of them cannot be looked at before this many bytes, counted from the front, are
    /// received.
    Behind(u64),
}

/// What came of taking bytes in one step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Take {
    /// So many were, fewer than were wanted only where that was allowed, or the stream ends.
    Taken(u64),
    /// They have not all arrived.
    Missing,
}

/// Bytes in order, with a look ahead. The front is the first byte that was not received from it.
/// No method waits.
pub trait Source {
    /// Receives up to `most` bytes from the front into `into`; 0 is the end of the stream.
    ///
    /// # Errors
    /// EAGAIN when there is nothing; those of recv(2).
    fn receive(&mut self, into: &mut Scatter<'_, '_>, most: u64) -> Result<usize, Errno>;

    /// As [`Source::receive`], but the first bytes go to `skip`, up to `most` behind them into
    /// `into`. `None`: that does not go in one step.
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

    /// Whether what lies at the front lies there in small pieces, which cost less to move once than
    /// to walk past again and again.
    ///
    /// # Errors
    /// Those of recv(2), not EAGAIN.
    fn begins_small(&mut self) -> Result<bool, Errno> {
        Ok(false)
    }

    /// As [`Source::receive`], but no more than lies there in small pieces; 0 where nothing does.
    ///
    /// # Errors
    /// As [`Source::begins_small`].
    fn receive_small(&mut self, _into: &mut Scatter<'_, '_>, _most: u64) -> Result<usize, Errno> {
        Ok(0)
    }

    /// Copies up to `most` bytes that begin `ahead` bytes behind the front; they stay. `into` holds
    /// those that were there, whatever is returned.
    ///
    /// # Errors
    /// Those of recv(2), not EAGAIN.
    fn look(&mut self, ahead: u64, most: u64, into: &mut Scatter<'_, '_>) -> Result<Look, Errno>;

    /// Copies `most` bytes that begin `ahead` bytes behind the front and takes them out of the
    /// source, all or none, with `partial` as many as have arrived. `None`: it cannot do both in
    /// one step, and nothing has changed.
    ///
    /// # Errors
    /// ENOBUFS when there would be too many holes; those of recv(2), not EAGAIN.
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
    /// taken. Whoever keeps holes of its own makes this one.
    ///
    /// # Errors
    /// As [`Source::take`]; then nothing has changed.
    fn cut(&mut self, _span: Span) -> Result<(), Errno> {
        Ok(())
    }

    /// Throws bytes at the front away, at most `n`, all of which were taken. Returns how many; 0
    /// when they are not there.
    ///
    /// # Errors
    /// Those of recv(2).
    fn discard(&mut self, n: u64) -> Result<u64, Errno>;

    /// The bytes of `span`, counted from the front, were just taken: their memory may go back.
    /// `is_taken` tells whether all of a span, counted alike, is.
    ///
    /// # Errors
    /// Those of recv(2).
    fn release(&mut self, span: Span, is_taken: &dyn Fn(Span) -> bool) -> Result<(), Errno>;

    /// Bytes that have arrived behind the front, as far as can be seen.
    ///
    /// # Errors
    /// Those of ioctl(2).
    fn arrived(&mut self) -> Result<u64, Errno>;

    /// As [`Source::arrived`], with those that cannot be looked at before others are received.
    ///
    /// # Errors
    /// Those of [`Source::arrived`].
    fn arrived_in_all(&mut self) -> Result<u64, Errno> {
        self.arrived()
    }

    /// Whether the stream ends at the front. Nothing is received for that, so no memory is needed.
    ///
    /// # Errors
    /// Those of recv(2), ioctl(2), not EAGAIN.
    fn has_ended(&mut self) -> Result<bool, Errno> {
        match self.receive(&mut Scatter::new(&mut []), 0) {
            // It also is the answer where bytes are. They stay, so those that came before are still
            // there.
            Ok(_) => Ok(self.arrived()? == 0),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether nothing but an error comes behind so many bytes. The kernel returns it once, and
    /// behind bytes it belongs to the next call.
    ///
    /// # Errors
    /// Those of poll(2).
    fn has_only_error(&mut self, _behind: u64) -> Result<bool, Errno> {
        Ok(false)
    }

    /// Average size of what is asked for, in bytes, below which it is best moved to library memory
    /// in bulk.
    fn bulk_below(&self) -> u32;

    /// Whether what was taken at the front is best thrown away at once, because that costs no
    /// system call.
    fn discards_cheaply(&self) -> bool;
}
