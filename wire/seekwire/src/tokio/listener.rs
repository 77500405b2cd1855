//! [`Listener`], a listening socket for tasks.

use std::io;
use std::net::SocketAddr;

use ::tokio::net::{TcpListener, ToSocketAddrs};

use super::Stream;

/// [`seekwire::Listener`](crate::Listener) for tasks.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Listener {
    /// Listens on the first of the addresses that is available.
    ///
    /// # Errors
    /// Those of bind(2) and listen(2); an unknown host name.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime, or in one without I/O.
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

    /// Accepts the next connection, and returns it with the peer's address. If the future is
    /// dropped before it completes, it has taken no connection.
    ///
    /// # Errors
    /// Those of accept(2); as [`Stream::new`].
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let (socket, from) = self.0.accept().await?;
        let stream = crate::Stream::from_accepted(socket.into_std()?)?;
        Ok((Stream::new(stream)?, from))
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// Those of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}
