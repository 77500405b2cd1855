//! [`Stream`], a connected stream for tasks.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use ::tokio::net::{TcpStream, ToSocketAddrs};
use seekwire_endpoint::{Interest, RecvFlags, SendFlags, Status};
use seekwire_protocol::span::Span;
use seekwire_transport::Errno;

use super::wakers::{READER, TaskWakers, WRITER};
use crate::seek::{At, SeekError, SeekOptions, SeekSocket};
use crate::socket_options::socket_options;

const RECV: RecvFlags =
    RecvFlags { peek: false, wait_all: false, dont_wait: true, truncate: false };
const SEND: SendFlags = SendFlags {
    dont_wait: true,
    no_signal: true,
    more: false,
    end_of_record: false,
    patient: false,
};

/// [`seekwire::Stream`](crate::Stream) for tasks. Its bytes travel through shared memory if both
/// ends are on one host and use Seekwire, whether or not the other end uses tokio.
///
/// One task may read, one write, and any number seek at a time.
#[derive(Debug)]
pub struct Stream {
    // Dropped before the socket and the doorbell that it watches are closed.
    waiting: TaskWakers,
    /// Held by receives: the first seek must not overlap with a receive that ignores holes.
    receiving: Mutex<()>,
    stream: crate::Stream,
}

impl Stream {
    /// Connects to the first of the addresses that answers.
    ///
    /// # Errors
    /// Those of connect(2); an unknown host name.
    ///
    /// # Panics
    /// As [`Stream::new`].
    pub async fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        let socket = TcpStream::connect(address).await?.into_std()?;
        Self::new(crate::Stream::from_connected(socket)?)
    }

    /// Takes over a stream and makes it nonblocking.
    ///
    /// # Errors
    /// Those of fcntl(2) and epoll_ctl(2); EMFILE.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime, or in one without I/O or time.
    pub fn new(stream: crate::Stream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let waiting = TaskWakers::new(stream.connection().fd())?;
        let stream = Self { waiting, receiving: Mutex::new(()), stream };
        // The stream may already use the ring.
        stream.waiting.follow(Some(stream.stream.connection()));
        Ok(stream)
    }

    /// The carrier of each direction, and the number of bytes it has moved. Also works after the
    /// end of the connection.
    ///
    /// # Errors
    /// ENOTCONN before the connection is established.
    pub fn status(&self) -> io::Result<Status> {
        self.stream.status()
    }

    /// Returns and clears the pending error of the socket (SO_ERROR).
    ///
    /// # Errors
    /// None; see std's `TcpStream`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.stream.take_error()
    }

    /// Receives bytes without taking them: the next read returns the same bytes. For the task that
    /// reads.
    ///
    /// # Errors
    /// Those of recv(2).
    pub async fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        let flags = RecvFlags { peek: true, ..RECV };
        std::future::poll_fn(|cx| self.poll_receive(cx, into, flags)).await
    }

    /// Takes the bytes from `offset` on, as many as `into` has room for, once they have arrived.
    /// Returns fewer bytes only at the end of the stream, and 0 past it. Like
    /// [`crate::Stream::seek_recv`], but while it waits, earlier bytes move to library memory.
    ///
    /// # Errors
    /// [`SeekError`] except [`SeekError::WouldBlock`]; [`SeekError::NoRoom`] as soon as library
    /// memory is full.
    pub async fn seek_recv(&self, into: &mut [u8], offset: u64) -> Result<usize, SeekError> {
        let into = &mut [IoSliceMut::new(into)];
        self.seek_recv_vectored(into, At::Offset(offset), SeekOptions::TAKE).await
    }

    /// Like [`Stream::seek_recv`], but leaves the bytes in the stream.
    ///
    /// # Errors
    /// Those of [`Stream::seek_recv`].
    pub async fn seek_peek(&self, into: &mut [u8], offset: u64) -> Result<usize, SeekError> {
        let into = &mut [IoSliceMut::new(into)];
        self.seek_recv_vectored(into, At::Offset(offset), SeekOptions::PEEK).await
    }

    /// Like [`Stream::seek_recv`], but fills several buffers, from an offset or an absolute
    /// position, as `options` say.
    ///
    /// # Errors
    /// Those of [`Stream::seek_recv`].
    pub async fn seek_recv_vectored(
        &self,
        into: &mut [IoSliceMut<'_>],
        mut at: At,
        options: SeekOptions,
    ) -> Result<usize, SeekError> {
        let waiter = self.waiting.waiter();
        let connection = self.stream.connection();
        std::future::poll_fn(|cx| {
            self.waiting.poll(cx, waiter.id(), Interest::READ, Some(connection), || {
                let _one = self.receiving.lock().unwrap_or_else(PoisonError::into_inner);
                let mut attempt = || match connection.seek_again(into, &mut at, options, true) {
                    Err(Errno::AGAIN) => Ok(None),
                    done => done.map(Some).map_err(SeekError::from),
                };
                Ok(match attempt()? {
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
    /// As [`crate::Stream::holes`].
    pub fn holes(&self) -> Result<Vec<Span>, SeekError> {
        let holes = self.stream.holes();
        // The call may have brought the connection to the ring, for which other tasks do not wait.
        self.waiting.follow(Some(self.stream.connection()));
        holes
    }

    fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        into: &mut [u8],
        flags: RecvFlags,
    ) -> Poll<io::Result<usize>> {
        let connection = self.stream.connection();
        self.waiting.poll(cx, READER, Interest::READ, Some(connection), || {
            let _one = self.receiving.lock().unwrap_or_else(PoisonError::into_inner);
            there(self.stream.receive(&mut [IoSliceMut::new(into)], flags))
        })
    }

    fn poll_send(&self, cx: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let connection = self.stream.connection();
        self.waiting.poll(cx, WRITER, Interest::WRITE, Some(connection), || {
            there(self.stream.transmit(from, SEND))
        })
    }
}

/// Turns `WouldBlock` into `None`.
pub(super) fn there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        done => done.map(Some),
    }
}

/// Ignores that the direction was already shut down, as tokio's own streams do.
pub(super) fn shut(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        done => done,
    }
}

socket_options!(Stream, stream);

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_receive(cx, into.initialize_unfilled(), RECV).map_ok(|n| into.advance(n))
    }
}

impl AsyncWrite for Stream {
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
        let result = shut(self.stream.shutdown(Shutdown::Write));
        self.waiting.follow(Some(self.stream.connection()));
        Poll::Ready(result)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.waiting.disarm(self.stream.connection());
    }
}
