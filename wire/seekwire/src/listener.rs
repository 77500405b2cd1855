//! [`Listener`], a listening socket whose connections are [`Stream`]s.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::Stream;

/// A TCP listener whose streams can move through shared memory.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Listener {
    /// Listens on the first of the addresses that is available.
    ///
    /// # Errors
    /// Those of bind(2) and listen(2).
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        Ok(Self(TcpListener::bind(address)?))
    }

    /// Takes over a listening socket.
    #[must_use]
    pub fn from_std(listener: TcpListener) -> Self {
        Self(listener)
    }

    /// Accepts the next connection, and returns it with the peer's address.
    ///
    /// # Errors
    /// Those of accept(2).
    pub fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let (socket, from) = self.0.accept()?;
        Ok((Stream::from_accepted(socket)?, from))
    }

    /// Iterates over the connections, one after the other. It never ends.
    #[must_use]
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// Those of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Returns and clears the pending error of the socket (SO_ERROR).
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.take_error()
    }

    /// Sets whether [`Listener::accept`] returns [`io::ErrorKind::WouldBlock`] instead of waiting.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        self.0.set_nonblocking(on)
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The descriptor is readable when there is a connection to accept.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An iterator over the connections of a listener.
#[derive(Debug)]
pub struct Incoming<'l>(&'l Listener);

impl Iterator for Incoming<'_> {
    type Item = io::Result<Stream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.accept().map(|(stream, _)| stream))
    }
}
