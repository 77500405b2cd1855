//! [`Stream`], a connected stream, and reading and writing it in place.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{self, SocketAddr, TcpStream, ToSocketAddrs};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use seekwire_endpoint::{
    Config, Connection, HeadLoan, Interest, RecvFlags, Reserved, SendFlags, Status,
};
use seekwire_protocol::{Carrier, Role};
use seekwire_transport::Errno;
use seekwire_transport::sys::poll::Deadline;
use seekwire_transport::sys::socket::{self, KernelRecv, KernelSend};
use seekwire_transport::sys::{Fd, poll};

use crate::socket_options::socket_options;

/// A TCP stream whose bytes travel through shared memory if both ends are on one host and use
/// Seekwire.
///
/// Use it like [`TcpStream`]. Reading and writing also work on `&Stream`, so threads can share it
/// without cloning. Dropping it closes it. If received bytes are unread at that time, TCP resets
/// the connection, as always.
///
/// It has no [`AsFd`], because none of its descriptors can be polled. The kernel's socket is not
/// readable when bytes lie in shared memory, and the doorbell that signals those has to be armed
/// first. Wait for one stream with [`Stream::wait_readable`] and [`Stream::wait_writable`]. Wait
/// for many streams with a thread each, or with the cargo feature `tokio`.
///
/// ```
/// use std::io::{Read, Write};
/// # let listener = seekwire::Listener::bind("127.0.0.1:0")?;
/// # let address = listener.local_addr()?;
///
/// let mut client = seekwire::Stream::connect(address)?;
/// let (mut server, _) = listener.accept()?;
/// client.write_all(b"ping")?;
/// let mut question = [0; 4];
/// server.read_exact(&mut question)?;
/// assert_eq!(&question, b"ping");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Stream {
    connection: Connection,
    socket: TcpStream,
}

/// Waits according to the socket's options, and reports a broken pipe as an error.
const WAITING: SendFlags = SendFlags {
    dont_wait: false,
    no_signal: true,
    more: false,
    end_of_record: false,
    patient: false,
};

/// Size in bytes of a private buffer, used while the ring is not the carrier.
const BUFFER: usize = 64 << 10;

impl Stream {
    /// Connects to the first of the addresses that answers.
    ///
    /// # Errors
    /// Those of connect(2).
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        Self::from_connected(TcpStream::connect(address)?)
    }

    /// Connects, or fails when the timeout expires.
    ///
    /// # Errors
    /// Those of connect(2); [`io::ErrorKind::InvalidInput`] for a zero duration.
    pub fn connect_timeout(address: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        Self::from_connected(TcpStream::connect_timeout(address, timeout)?)
    }

    /// Takes over a connected socket of the end that called connect(2). Nothing may have been sent
    /// or received through it yet, and nobody else may use it from now on.
    ///
    /// The end that connected offers shared memory, and the end that accepted answers. If both ends
    /// claim to have connected, they stay on TCP.
    ///
    /// ```no_run
    /// let socket = std::net::TcpStream::connect("127.0.0.1:7000")?;
    /// let stream = seekwire::Stream::from_connected(socket)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn from_connected(socket: TcpStream) -> io::Result<Self> {
        Self::new(socket, Role::Connected)
    }

    /// Like [`Stream::from_connected`], but for a socket that accept(2) returned. Use it in a
    /// program that is started for each connection, or whose listener is not a
    /// [`Listener`](crate::Listener).
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn from_accepted(socket: TcpStream) -> io::Result<Self> {
        Self::new(socket, Role::Accepted)
    }

    fn new(socket: TcpStream, role: Role) -> io::Result<Self> {
        let connection = Connection::new(Fd::from(&socket), role);
        let settings = connection.settings();
        settings.set_nonblocking(socket::is_nonblocking(connection.fd())?);
        let (recv, send) = socket::timeouts(connection.fd())?;
        settings.set_recv_timeout(recv);
        settings.set_send_timeout(send);
        // Keeps the names for a status after the end. If connecting is still in progress, a later
        // call fetches them.
        let _ = connection.names();
        Ok(Self { connection, socket })
    }

    /// The kernel's socket, for options that have no method here. Do not poll, read or write it: it
    /// does not show bytes in shared memory, and bytes sent or received through it bypass them.
    #[must_use]
    pub fn kernel_socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The carrier of each direction, and the number of bytes it has moved. Also works after the
    /// end of the connection.
    ///
    /// # Errors
    /// ENOTCONN before the connection is established.
    pub fn status(&self) -> io::Result<Status> {
        Ok(self.connection.status()?)
    }

    /// Sets whether calls return [`io::ErrorKind::WouldBlock`] instead of waiting.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        self.connection.settings().set_nonblocking(on);
        self.socket.set_nonblocking(on)
    }

    /// Sets how long reads wait; `None` means for ever.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a zero duration.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(timeout)?;
        self.connection.settings().set_recv_timeout(timeout);
        Ok(())
    }

    /// Sets how long writes wait; `None` means for ever.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a zero duration.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_write_timeout(timeout)?;
        self.connection.settings().set_send_timeout(timeout);
        Ok(())
    }

    /// How long reads wait; `None` means for ever.
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        self.socket.read_timeout()
    }

    /// How long writes wait; `None` means for ever.
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        self.socket.write_timeout()
    }

    /// Returns and clears the pending error of the socket (SO_ERROR).
    ///
    /// # Errors
    /// None; see [`TcpStream::take_error`].
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.connection.take_error().map(io::Error::from))
    }

    /// Shuts down one direction or both.
    ///
    /// # Errors
    /// Those of shutdown(2).
    pub fn shutdown(&self, how: net::Shutdown) -> io::Result<()> {
        Ok(self.connection.shutdown(how)?)
    }

    /// Receives bytes without taking them: the next read returns the same bytes.
    ///
    /// # Errors
    /// As [`Read::read`].
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.receive(&mut [IoSliceMut::new(into)], RecvFlags { peek: true, ..RecvFlags::default() })
    }

    /// Waits until a read would return bytes or the end of the stream. Returns false when the
    /// timeout expires.
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn wait_readable(&self, timeout: Option<Duration>) -> io::Result<bool> {
        self.wait(Interest { read: true, write: false }, timeout)
    }

    /// Waits until a write would accept bytes. Returns false when the timeout expires.
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn wait_writable(&self, timeout: Option<Duration>) -> io::Result<bool> {
        self.wait(Interest { read: false, write: true }, timeout)
    }

    fn wait(&self, want: Interest, timeout: Option<Duration>) -> io::Result<bool> {
        match self.connection.wait(want, Deadline::after(timeout)) {
            Ok(()) => Ok(true),
            Err(Errno::TIMEDOUT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks for the ring now instead of after the usual number of calls. Waits until this end's
    /// sends travel on it, for at most `timeout`, and returns whether they do. The other end takes
    /// part only inside its own calls, so it does not answer if it does nothing with the
    /// connection.
    ///
    /// # Errors
    /// ENOTCONN if the connection is gone.
    pub fn upgrade(&self, timeout: Duration) -> io::Result<bool> {
        let until = Instant::now() + timeout;
        loop {
            self.connection.hurry();
            if self.connection.next_carrier()? == Carrier::Ring {
                return Ok(true);
            }
            if Instant::now() >= until || !Config::get().enabled {
                return Ok(false);
            }
            // The answer comes as a word in shared memory, without a doorbell.
            std::thread::yield_now();
        }
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    // ---- plain and attached -------------------------------------------------------------------

    pub(crate) fn receive(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        flags: RecvFlags,
    ) -> io::Result<usize> {
        loop {
            let Some(bracket) = self.connection.enter_plain_to_receive() else {
                return Ok(self.connection.recv(bufs, flags)?);
            };
            let how = if flags.peek { KernelRecv::PEEK } else { KernelRecv::empty() };
            match socket::recv_vectored(self.connection.fd(), bufs, how) {
                Ok(n) => {
                    bracket.received(if flags.peek { 0 } else { n });
                    return Ok(n);
                }
                Err(Errno::AGAIN)
                    if !flags.dont_wait && !self.connection.settings().is_nonblocking() =>
                {
                    let read = poll::Events { read: true, ..Default::default() };
                    let until = Deadline::after(self.connection.settings().recv_timeout());
                    self.sleep(read, until)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(crate) fn transmit(&self, bufs: &[IoSlice<'_>], flags: SendFlags) -> io::Result<usize> {
        loop {
            let Some(bracket) = self.connection.enter_plain() else {
                return Ok(self.connection.send(bufs, flags)?);
            };
            match socket::send(self.connection.fd(), bufs, KernelSend::NOSIGNAL) {
                Ok(n) => {
                    bracket.sent(n);
                    return Ok(n);
                }
                Err(Errno::AGAIN)
                    if !flags.dont_wait && !self.connection.settings().is_nonblocking() =>
                {
                    let write = poll::Events { write: true, ..Default::default() };
                    let until = Deadline::after(self.connection.settings().send_timeout());
                    self.sleep(write, until)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sleeps in the plain phase, inside the caller's bracket.
    fn sleep(&self, want: poll::Events, until: Deadline) -> io::Result<()> {
        match poll::wait(Fd::new(-1), self.connection.fd(), want, until) {
            Ok(_) => Ok(()),
            Err(Errno::TIMEDOUT) => Err(Errno::AGAIN.into()),
            Err(error) => Err(error.into()),
        }
    }

    // ---- in place -----------------------------------------------------------------------------

    /// Maximum number of bytes that [`Stream::reserve`] can return at once.
    #[must_use]
    pub fn max_reserve() -> usize {
        Config::get().geometry.segment_size()
    }

    /// Returns a buffer of `len` bytes, at most [`Stream::max_reserve`]. Fill it in place, then
    /// call [`Reservation::commit`]. On the ring it is the segment itself, so nothing is copied. On
    /// TCP it is a private buffer. Its initial content is unspecified.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the stream is nonblocking and no segment is free;
    /// [`io::ErrorKind::InvalidInput`] for more than [`Stream::max_reserve`].
    pub fn reserve(&self, len: usize) -> io::Result<Reservation<'_>> {
        if len > Self::max_reserve() {
            return Err(Errno::INVAL.into());
        }
        let backing = match self.connection.reserve()? {
            Some(reserved) => Backing::Segment(reserved),
            None => Backing::Buffer(vec![0; len]),
        };
        Ok(Reservation { stream: self, backing, len })
    }

    /// Lends the next contiguous bytes of the stream in place; on the ring nothing is copied. Waits
    /// for at least one byte. An empty loan is the end of the stream. No other thread may receive
    /// during the loan: on the ring it waits, but by TCP it would get the same bytes.
    ///
    /// # Errors
    /// As [`Read::read`].
    pub fn borrow(&self) -> io::Result<Loan<'_>> {
        loop {
            if let Some(lent) = self.connection.lend_head()? {
                return Ok(Loan { stream: self, from: Source::Ring(lent) });
            }
            // The bytes go by TCP, or have not arrived, or the stream has ended: a peek waits for
            // either.
            let mut one = [0];
            if self.peek(&mut one)? == 0 {
                return Ok(Loan { stream: self, from: Source::Copy(Vec::new()) });
            }
            if self.connection.lend_head()?.is_none() {
                let mut copy = vec![0; BUFFER];
                let n = self.peek(&mut copy)?;
                let copy = copy[..n].iter().map(|byte| AtomicU8::new(*byte)).collect();
                return Ok(Loan { stream: self, from: Source::Copy(copy) });
            }
        }
    }
}

/// A buffer to fill and send. It derefs to the bytes. Dropping it sends nothing.
#[derive(Debug)]
pub struct Reservation<'s> {
    stream: &'s Stream,
    backing: Backing<'s>,
    len: usize,
}

#[derive(Debug)]
enum Backing<'s> {
    Segment(Reserved<'s>),
    Buffer(Vec<u8>),
}

impl Reservation<'_> {
    /// Sends the first `len` bytes of the buffer, and waits as a write does.
    ///
    /// # Errors
    /// As [`Write::write_all`]; [`io::ErrorKind::InvalidInput`] if `len` is more than was
    /// reserved.
    pub fn commit(self, len: usize) -> io::Result<()> {
        if len > self.len {
            return Err(Errno::INVAL.into());
        }
        match self.backing {
            Backing::Segment(reserved) => Ok(reserved.commit(len)?),
            Backing::Buffer(buffer) => (&mut &*self.stream).write_all(&buffer[..len]),
        }
    }
}

impl Deref for Reservation<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.backing {
            Backing::Segment(reserved) => &reserved.bytes()[..self.len],
            Backing::Buffer(buffer) => buffer,
        }
    }
}

impl DerefMut for Reservation<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.backing {
            Backing::Segment(reserved) => &mut reserved.bytes_mut()[..self.len],
            Backing::Buffer(buffer) => buffer,
        }
    }
}

/// Bytes at the head of the stream. Dropping the loan leaves them unread.
#[derive(Debug)]
pub struct Loan<'s> {
    stream: &'s Stream,
    from: Source<'s>,
}

#[derive(Debug)]
enum Source<'s> {
    Ring(HeadLoan<'s>),
    Copy(Vec<AtomicU8>),
}

impl Loan<'_> {
    /// The bytes. They are atomics, because the peer owns the memory: a misbehaving peer may change
    /// them while they are read.
    #[must_use]
    pub fn as_atomic(&self) -> &[AtomicU8] {
        match &self.from {
            Source::Ring(lent) => lent.bytes(),
            Source::Copy(copy) => copy,
        }
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_atomic().len()
    }

    /// True if the stream has ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies as many bytes as fit and returns their number.
    pub fn copy_to(&self, into: &mut [u8]) -> usize {
        let bytes = self.as_atomic();
        for (to, from) in into.iter_mut().zip(bytes) {
            *to = from.load(Ordering::Relaxed);
        }
        bytes.len().min(into.len())
    }

    /// Takes the first `n` bytes from the stream and leaves the rest.
    ///
    /// # Errors
    /// As [`Read::read`].
    pub fn consume(self, n: usize) -> io::Result<()> {
        match self.from {
            Source::Ring(lent) => Ok(lent.consume(n)?),
            Source::Copy(copy) => {
                let mut taken = vec![0; n.min(copy.len())];
                (&mut &*self.stream).read_exact(&mut taken)
            }
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.receive(&mut [IoSliceMut::new(into)], RecvFlags::default())
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.receive(into, RecvFlags::default())
    }
}

impl Write for &Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.transmit(&[IoSlice::new(from)], WAITING)
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.transmit(from, WAITING)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&mut &*self).read(into)
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&mut &*self).read_vectored(into)
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        (&mut &*self).write(from)
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        (&mut &*self).write_vectored(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

socket_options!(Stream, socket);

impl Drop for Stream {
    fn drop(&mut self) {
        self.connection.close();
    }
}
