//! A listening socket.

use std::io;
use std::net::SocketAddr;

use ::tokio::net::{TcpListener, ToSocketAddrs};

use super::Stream;

/// [`seekwire::Listener`](crate::Listener) for tasks.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Listener {
    /// Listens at the first of the addresses that can be had.
    ///
    /// # Errors
    /// Those of bind(2) and listen(2); that a name is not known.
    ///
    /// # Panics
    /// Outside of a tokio runtime, or in one without I/O.
    pub async fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        Ok(Self(TcpListener::bind(address).await?))
    }

    /// Takes over a listening socket.
    ///
    /// # Errors
    /// Those of fcntl(2) and epoll_ctl(2).
    ///
    /// # Panics
    /// As [`Listener::bind`].
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self(TcpListener::from_std(listener)?))
    }

    /// The next connection and where it comes from. Dropped before it has completed, it has taken
    /// none.
    ///
    /// # Errors
    /// Those of accept(2); as [`Stream::new`].
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let (socket, from) = self.0.accept().await?;
        let stream = crate::Stream::from_accepted(socket.into_std()?)?;
        Ok((Stream::new(stream)?, from))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// Those of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}
