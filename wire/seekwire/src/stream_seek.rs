//! Methods of [`Stream`] that receive out of its middle (Douglas and Pai, "Seekable sockets").

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use seekwire_endpoint::{RangeLoan, SendFlags};
use seekwire_protocol::span::Span;
use seekwire_transport::Errno;
use seekwire_transport::sys::poll::Deadline;
use seekwire_transport::sys::socket::{self, KernelSend};

use crate::Stream;
use crate::seek::{At, Extent, SeekError, SeekOptions, SeekSocket};

impl Stream {
    /// Takes the bytes from `offset` on, as many as `buf` has room for. Waits until they have
    /// arrived, unless the stream is nonblocking. Returns fewer bytes only at the end of the
    /// stream, and 0 past it. Offsets count from the first byte that was neither received nor
    /// taken. Taken bytes leave a hole. Offsets count the bytes of a hole, too, and an ordinary
    /// read skips it.
    ///
    /// ```no_run
    /// let stream = seekwire::Stream::connect("127.0.0.1:4000")?;
    /// let mut trailer = [0; 16];
    /// stream.seek_recv(&mut trailer, 1 << 20)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SeekError`] says why.
    pub fn seek_recv(&self, buf: &mut [u8], offset: u64) -> Result<usize, SeekError> {
        self.seek_recv_vectored(&mut [IoSliceMut::new(buf)], At::Offset(offset), SeekOptions::TAKE)
    }

    /// Like [`Stream::seek_recv`], but never waits.
    ///
    /// # Errors
    /// Those of [`Stream::seek_recv`].
    pub fn try_seek_recv(&self, buf: &mut [u8], offset: u64) -> Result<usize, SeekError> {
        self.try_seek(At::Offset(offset), &mut [IoSliceMut::new(buf)], SeekOptions::TAKE)
    }

    /// Like [`Stream::seek_recv`], but leaves the bytes in the stream.
    ///
    /// # Errors
    /// Those of [`Stream::seek_recv`].
    pub fn seek_peek(&self, buf: &mut [u8], offset: u64) -> Result<usize, SeekError> {
        let options = SeekOptions::PEEK;
        self.seek_recv_vectored(&mut [IoSliceMut::new(buf)], At::Offset(offset), options)
    }

    /// Like [`Stream::seek_recv`], but fills several buffers, from an offset or an absolute
    /// position, as `options` say.
    ///
    /// # Errors
    /// Those of [`Stream::seek_recv`].
    pub fn seek_recv_vectored(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        mut at: At,
        options: SeekOptions,
    ) -> Result<usize, SeekError> {
        loop {
            match self.connection().seek_again(bufs, &mut at, options, false) {
                Err(Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }

    /// Takes `len` bytes that begin at `at`, without copying them. On the ring they stay in the
    /// sender's segments until the loan is dropped; until then the sender cannot use these
    /// segments. Bytes outside segments are copied, and so are bytes already in library memory. The
    /// latter include all messages of a program that asks for less than a few KiB at a time. Waits
    /// as [`Stream::seek_recv`] does. Returns fewer bytes only at the end of the stream.
    ///
    /// # Errors
    /// Those of [`Stream::seek_recv`].
    pub fn seek_borrow(&self, mut at: At, len: usize) -> Result<SeekLoan<'_>, SeekError> {
        loop {
            match self.connection().seek_lend_range(&mut at, len, false) {
                Err(Errno::INTR) => {}
                lent => return Ok(SeekLoan { stream: self, lent: lent? }),
            }
        }
    }

    /// The holes, in order: bytes that were taken and that the head has not passed yet.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn holes(&self) -> Result<Vec<Span>, SeekError> {
        Ok(self.extent()?.holes)
    }
}

impl SeekSocket for Stream {
    fn try_seek(
        &self,
        at: At,
        into: &mut [IoSliceMut<'_>],
        options: SeekOptions,
    ) -> Result<usize, SeekError> {
        Ok(self.connection().seek(into, at, options, true)?)
    }

    fn wait_seek(&self, at: At, len: u64, timeout: Option<Duration>) -> Result<(), SeekError> {
        Ok(self.connection().wait_seek(at, len, Deadline::after(timeout))?)
    }

    fn try_send(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let connection = self.connection();
        if let Some(bracket) = connection.enter_plain() {
            let n = socket::send(connection.fd(), from, KernelSend::NOSIGNAL)?;
            bracket.sent(n);
            return Ok(n);
        }
        let flags =
            SendFlags { no_signal: true, dont_wait: true, patient: true, ..SendFlags::default() };
        Ok(connection.send(from, flags)?)
    }

    fn make_room(&self) -> Result<(), SeekError> {
        Ok(self.connection().make_room()?)
    }

    fn wait_send(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self.connection().wait_for_progress(Deadline::after(timeout)) {
            Err(Errno::TIMEDOUT) => Err(Errno::AGAIN.into()),
            waited => Ok(waited?),
        }
    }

    fn extent(&self) -> Result<Extent, SeekError> {
        Ok(self.connection().extent()?)
    }
}

/// Bytes that were taken out of a stream. On the ring they still lie where the sender put them.
/// Dropping the loan returns their memory to the sender.
#[derive(Debug)]
pub struct SeekLoan<'s> {
    stream: &'s Stream,
    lent: RangeLoan,
}

/// One piece of a loan.
#[derive(Clone, Copy, Debug)]
pub enum LoanBytes<'l> {
    /// Bytes in the peer's memory. They are atomics: a misbehaving peer may change them while they
    /// are read.
    Shared(&'l [AtomicU8]),
    /// Copied bytes.
    Own(&'l [u8]),
}

impl LoanBytes<'_> {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Shared(bytes) => bytes.len(),
            Self::Own(bytes) => bytes.len(),
        }
    }

    /// True if the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl SeekLoan<'_> {
    /// The pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = LoanBytes<'_>> {
        let connection = self.stream.connection();
        let shared = self.lent.loans().map(|loan| LoanBytes::Shared(connection.loan_bytes(loan)));
        let copy = Some(&self.lent.copy[..]).filter(|copy| !copy.is_empty());
        shared.chain(copy.map(LoanBytes::Own))
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lent.len()
    }

    /// True if there are none, because the stream has ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies as many bytes as fit and returns their number.
    pub fn copy_to(&self, into: &mut [u8]) -> usize {
        let mut done = 0;
        for piece in self.pieces() {
            let n = piece.len().min(into.len() - done);
            let room = &mut into[done..done + n];
            match piece {
                LoanBytes::Own(bytes) => room.copy_from_slice(&bytes[..n]),
                LoanBytes::Shared(bytes) => {
                    for (to, from) in room.iter_mut().zip(bytes) {
                        *to = from.load(Ordering::Relaxed);
                    }
                }
            }
            done += n;
        }
        done
    }
}

impl Drop for SeekLoan<'_> {
    fn drop(&mut self) {
        if self.lent.loans().next().is_some() {
            // An error means that the connection is broken, so nobody waits for the memory.
            let _ = self.stream.connection().return_loans(self.lent.loans());
        }
    }
}
