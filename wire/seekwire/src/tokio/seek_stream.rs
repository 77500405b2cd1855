//! [`SeekStream`] for tasks: receives out of the middle of an ordinary TCP connection.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use ::tokio::net::{TcpStream, ToSocketAddrs};
use seekwire_endpoint::Interest;
use seekwire_protocol::span::Span;
use seekwire_transport::sys::Fd;

use super::stream::{shut, there};
use super::wakers::{READER, TaskWakers, WRITER};
use crate::seek::{At, SeekError, SeekOptions, SeekSocket};
use crate::socket_options::socket_options;

/// [`seekwire::SeekStream`](crate::SeekStream) for tasks. It works with any peer.
///
/// One task may read, one write, and any number seek at a time.
#[derive(Debug)]
pub struct SeekStream {
    // Dropped before the socket that it watches is closed.
    waiting: TaskWakers,
    stream: crate::SeekStream,
}

impl SeekStream {
    /// Connects to the first of the addresses that answers.
    ///
    /// # Errors
    /// Those of connect(2); an unknown host name.
    ///
    /// # Panics
    /// As [`SeekStream::new`].
    pub async fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        Self::new(crate::SeekStream::new(TcpStream::connect(address).await?.into_std()?))
    }

    /// Takes over a stream and makes it nonblocking.
    ///
    /// # Errors
    /// Those of fcntl(2) and epoll_ctl(2); EMFILE.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime, or in one without I/O or time.
    pub fn new(stream: crate::SeekStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { waiting: TaskWakers::new(Fd::from(stream.get_ref()))?, stream })
    }

    /// Returns and clears the pending error of the socket (SO_ERROR).
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.stream.take_error()
    }

    /// Takes the bytes from `offset` on, as many as `into` has room for, once they have arrived.
    /// Returns fewer bytes only at the end of the stream, and 0 past it. Like
    /// [`crate::SeekStream::seek_recv`], but while it waits, earlier bytes move to library memory.
    ///
    /// # Errors
    /// [`SeekError`] except [`SeekError::WouldBlock`]; [`SeekError::NoRoom`] as soon as library
    /// memory is full.
    pub async fn seek_recv(&self, into: &mut [u8], offset: u64) -> Result<usize, SeekError> {
        let into = &mut [IoSliceMut::new(into)];
        self.seek_recv_vectored(into, At::Offset(offset), SeekOptions::TAKE).await
    }

    /// Like [`SeekStream::seek_recv`], but leaves the bytes in the stream.
    ///
    /// # Errors
    /// Those of [`SeekStream::seek_recv`].
    pub async fn seek_peek(&self, into: &mut [u8], offset: u64) -> Result<usize, SeekError> {
        let into = &mut [IoSliceMut::new(into)];
        self.seek_recv_vectored(into, At::Offset(offset), SeekOptions::PEEK).await
    }

    /// Like [`SeekStream::seek_recv`], but fills several buffers, from an offset or an absolute
    /// position, as `options` say.
    ///
    /// # Errors
    /// Those of [`SeekStream::seek_recv`].
    pub async fn seek_recv_vectored(
        &self,
        into: &mut [IoSliceMut<'_>],
        mut at: At,
        options: SeekOptions,
    ) -> Result<usize, SeekError> {
        let waiter = self.waiting.waiter();
        std::future::poll_fn(|cx| {
            self.waiting.poll(cx, waiter.id(), Interest::READ, None, || {
                let mut attempt = || match self.stream.try_seek_again(&mut at, into, options) {
                    Err(SeekError::WouldBlock) => Ok(None),
                    done => done.map(Some),
                };
                Ok::<_, SeekError>(match attempt()? {
                    None => {
                        self.stream.make_room()?;
                        attempt()?
                    }
                    done => done,
                })
            })
        })
        .await
    }

    /// The holes, in order: bytes that were taken and that the head has not passed yet.
    ///
    /// # Errors
    /// As [`crate::SeekStream::holes`].
    pub fn holes(&self) -> Result<Vec<Span>, SeekError> {
        self.stream.holes()
    }

    fn poll_send(&self, cx: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.waiting
            .poll(cx, WRITER, Interest::WRITE, None, || there((&self.stream).write_vectored(from)))
    }
}

socket_options!(SeekStream, stream);

impl AsyncRead for SeekStream {
    /// Reads in order and skips holes.
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = into.initialize_unfilled();
        self.waiting
            .poll(cx, READER, Interest::READ, None, || there((&self.stream).read(room)))
            .map_ok(|n| into.advance(n))
    }
}

impl AsyncWrite for SeekStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, &[IoSlice::new(from)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, from)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing, because writes are not buffered.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends this direction; the peer still receives all bytes written before.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(shut(self.stream.shutdown(Shutdown::Write)))
    }
}
