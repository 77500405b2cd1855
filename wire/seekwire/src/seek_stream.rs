//! [`SeekStream`] receives out of the middle of an ordinary TCP connection (Douglas and Pai,
//! "Seekable sockets").

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seekwire_endpoint::{Config, seek_threshold};
use seekwire_transport::Errno;
use seekwire_transport::seek::SeekTcp;
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::poll::{self, Deadline};
use seekwire_transport::sys::socket::{self, KernelSend};

use seekwire_protocol::span::Span;

use crate::seek::{At, Extent, SeekError, SeekMethod, SeekOptions, SeekSocket};
use crate::socket_options::socket_options;

/// Default limit of library memory for a stream, in bytes. It holds bytes that prevent wanted ones
/// from arriving.
const MEMORY: usize = 64 << 20;

/// A TCP connection whose bytes can be received in any order.
///
/// Offsets count from the first byte that was neither received nor taken. Taken bytes leave a hole.
/// Offsets count the bytes of a hole, too, and an ordinary read skips it. This works with any peer,
/// which needs no library.
///
/// Any thread may call any method. All receives have to go through this object. A blocking stream
/// controls its socket's SO_RCVLOWAT and SO_RCVTIMEO until [`SeekStream::get_ref`] or
/// [`SeekStream::set_nonblocking`] is called. A program that polls the socket, or changes these
/// options, must get the socket by one of these.
///
/// ```no_run
/// let stream = seekwire::SeekStream::connect("127.0.0.1:4000")?;
/// let mut trailer = [0; 16];
/// stream.seek_recv(&mut trailer, 1 << 20)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SeekStream {
    seek: SeekTcp,
    nonblocking: AtomicBool,
    /// True while nobody else uses the socket, so that this stream may set its SO_RCVTIMEO.
    private: AtomicBool,
    timeout: Mutex<Option<Duration>>,
    stream: TcpStream,
}

impl SeekStream {
    /// Connects to the first of the addresses that answers.
    ///
    /// # Errors
    /// Those of connect(2).
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        Ok(Self::new(TcpStream::connect(address)?))
    }

    /// Takes over a connected stream, of either end. Its next byte has position 0.
    #[must_use]
    pub fn new(stream: TcpStream) -> Self {
        Self::with_memory(stream, MEMORY)
    }

    /// Like [`SeekStream::new`], but with at most `bytes` of library memory for bytes that have to
    /// make room for others.
    #[must_use]
    pub fn with_memory(stream: TcpStream, bytes: usize) -> Self {
        seek_threshold::apply();
        let fd = Fd::from(&stream);
        let nonblocking = socket::is_nonblocking(fd);
        let timeout = socket::receive_timeout(fd);
        let private = nonblocking == Ok(false) && timeout.is_ok();
        let seek = SeekTcp::new(Config::get().seek_method, fd, 0, bytes);
        Self {
            seek: if private { seek.private() } else { seek },
            nonblocking: AtomicBool::new(nonblocking.unwrap_or(false)),
            private: AtomicBool::new(private),
            timeout: Mutex::new(timeout.unwrap_or(None)),
            stream,
        }
    }

    /// Takes the bytes from `offset` on, as many as `buf` has room for. Waits until they have
    /// arrived, unless the stream is nonblocking. Returns fewer bytes only at the end of the
    /// stream, and 0 past it.
    ///
    /// # Errors
    /// [`SeekError`] says why.
    pub fn seek_recv(&self, buf: &mut [u8], offset: u64) -> Result<usize, SeekError> {
        self.seek_recv_vectored(&mut [IoSliceMut::new(buf)], At::Offset(offset), SeekOptions::TAKE)
    }

    /// Like [`SeekStream::seek_recv`], but never waits.
    ///
    /// # Errors
    /// Those of [`SeekStream::seek_recv`].
    pub fn try_seek_recv(&self, buf: &mut [u8], offset: u64) -> Result<usize, SeekError> {
        self.try_seek(At::Offset(offset), &mut [IoSliceMut::new(buf)], SeekOptions::TAKE)
    }

    /// Like [`SeekStream::seek_recv`], but leaves the bytes in the stream.
    ///
    /// # Errors
    /// Those of [`SeekStream::seek_recv`].
    pub fn seek_peek(&self, buf: &mut [u8], offset: u64) -> Result<usize, SeekError> {
        let options = SeekOptions::PEEK;
        self.seek_recv_vectored(&mut [IoSliceMut::new(buf)], At::Offset(offset), options)
    }

    /// Like [`SeekStream::seek_recv`], but fills several buffers, from an offset or an absolute
    /// position, as `options` say.
    ///
    /// # Errors
    /// Those of [`SeekStream::seek_recv`].
    pub fn seek_recv_vectored(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        at: At,
        options: SeekOptions,
    ) -> Result<usize, SeekError> {
        if self.nonblocking.load(Ordering::Relaxed) {
            return self.try_seek(at, bufs, options);
        }
        Ok(timely(self.seek.seek(at, bufs, options, &|| self.deadline()))?)
    }

    /// How long receives wait; `None` means for ever.
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        match self.private.load(Ordering::Relaxed) {
            true => Ok(*self.timeout()),
            false => self.stream.read_timeout(),
        }
    }

    /// Sets how long receives wait; `None` means for ever.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a zero duration.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let mut limit = self.timeout();
        self.stream.set_read_timeout(timeout)?;
        *limit = timeout;
        Ok(())
    }

    /// How long writes wait; `None` means for ever.
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        self.stream.write_timeout()
    }

    /// Sets how long writes wait; `None` means for ever.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a zero duration.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream.set_write_timeout(timeout)
    }

    /// Receives bytes in order without taking them: the next read returns the same bytes.
    ///
    /// # Errors
    /// As [`Read::read`].
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.receive(&mut [IoSliceMut::new(into)], true)
    }

    /// Returns and clears the pending error of the socket (SO_ERROR).
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.stream.take_error()
    }

    /// Shuts down one direction or both.
    ///
    /// # Errors
    /// Those of shutdown(2).
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.stream.shutdown(how)
    }

    /// The holes, in order: bytes that were taken and that the head has not passed yet.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn holes(&self) -> Result<Vec<Span>, SeekError> {
        Ok(self.extent()?.holes)
    }

    /// How bytes are taken out of the middle of this stream.
    ///
    /// # Errors
    /// `WouldBlock` in a signal handler that interrupted another call on it.
    pub fn way(&self) -> Result<SeekMethod, SeekError> {
        Ok(self.seek.method()?)
    }

    /// Number of bytes that were moved into library memory so far, and so were copied twice: those
    /// of small messages, and those that had to make room.
    ///
    /// # Errors
    /// As [`SeekStream::way`].
    pub fn moved_bytes(&self) -> Result<u64, SeekError> {
        Ok(self.seek.moved()?)
    }

    /// Sets whether calls return instead of waiting.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.share();
        self.stream.set_nonblocking(nonblocking)?;
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// The underlying socket, for everything but receiving.
    #[must_use]
    pub fn get_ref(&self) -> &TcpStream {
        self.share();
        &self.stream
    }

    fn share(&self) {
        if self.private.swap(false, Ordering::Relaxed) {
            self.seek.share();
        }
    }

    /// Like [`SeekSocket::try_seek`], but turns `at` into the absolute position.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_seek_again(
        &self,
        at: &mut At,
        into: &mut [IoSliceMut<'_>],
        options: SeekOptions,
    ) -> Result<usize, SeekError> {
        Ok(self.seek.try_seek_again(at, into, options)?)
    }

    fn receive(&self, bufs: &mut [IoSliceMut<'_>], peek: bool) -> io::Result<usize> {
        let mut until = None;
        loop {
            match self.seek.try_recv(bufs, peek) {
                Err(Errno::AGAIN) if !self.nonblocking.load(Ordering::Relaxed) => {
                    let until = match until {
                        Some(until) => until,
                        None => *until.insert(self.deadline()?),
                    };
                    timely(self.seek.wait(At::Offset(0), 1, until))?;
                }
                done => return Ok(done?),
            }
        }
    }

    fn timeout(&self) -> MutexGuard<'_, Option<Duration>> {
        self.timeout.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time at which a receive that begins to wait now times out (SO_RCVTIMEO).
    fn deadline(&self) -> Result<Deadline, Errno> {
        let timeout = match self.private.load(Ordering::Relaxed) {
            true => *self.timeout(),
            false => socket::receive_timeout(Fd::from(&self.stream))?,
        };
        Ok(Deadline::after(timeout))
    }
}

socket_options!(SeekStream, stream);

impl Read for &SeekStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buf)])
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.receive(bufs, false)
    }
}

impl Read for SeekStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

impl Write for &SeekStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&self.stream).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.stream).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.stream).flush()
    }
}

impl Write for SeekStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl SeekSocket for SeekStream {
    fn try_seek(
        &self,
        at: At,
        into: &mut [IoSliceMut<'_>],
        options: SeekOptions,
    ) -> Result<usize, SeekError> {
        Ok(self.seek.try_seek(at, into, options)?)
    }

    fn wait_seek(&self, at: At, len: u64, timeout: Option<Duration>) -> Result<(), SeekError> {
        Ok(timely(self.seek.wait(at, len, Deadline::after(timeout)))?)
    }

    fn try_send(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(socket::send(Fd::from(&self.stream), from, KernelSend::NOSIGNAL)?)
    }

    fn make_room(&self) -> Result<(), SeekError> {
        Ok(self.seek.make_room()?)
    }

    fn wait_send(&self, timeout: Option<Duration>) -> io::Result<()> {
        let fd = Fd::from(&self.stream);
        let until = Deadline::after(timeout);
        self.seek.restore();
        Ok(timely(poll::wait(Fd::new(-1), fd, poll::of_progress(fd)?, until).map(drop))?)
    }

    fn extent(&self) -> Result<Extent, SeekError> {
        Ok(self.seek.extent()?)
    }
}

/// Maps an expired timeout to EAGAIN, as a socket reports it for SO_RCVTIMEO.
fn timely<T>(result: Result<T, Errno>) -> Result<T, Errno> {
    result.map_err(|error| if error == Errno::TIMEDOUT { Errno::AGAIN } else { error })
}
