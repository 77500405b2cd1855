//! How a mailbox begins and ends.

use std::fmt;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Condvar, Mutex};

use seekwire_protocol::span::Span;

use super::error::{End, SendError};
use super::inbox::Inbox;
use super::outbox::Outbox;
use super::session::Session;
use super::state::Mailbox;
use super::types::Limits;
use crate::seek::{At, SeekOptions, SeekSocket};
use crate::{SeekStream, Stream};

/// A stream whose directions can be ended.
pub trait Hangup: SeekSocket {
    /// shutdown(2).
    ///
    /// # Errors
    /// Those of shutdown(2).
    fn hang_up(&self, how: Shutdown) -> io::Result<()>;
}

impl Hangup for SeekStream {
    fn hang_up(&self, how: Shutdown) -> io::Result<()> {
        self.shutdown(how)
    }
}

impl Hangup for Stream {
    fn hang_up(&self, how: Shutdown) -> io::Result<()> {
        self.shutdown(how)
    }
}

impl Mailbox<SeekStream> {
    /// Makes a mailbox over a TCP connection. Sets TCP_NODELAY, so that a message does not wait for
    /// the next one.
    ///
    /// # Errors
    /// As [`Mailbox::new`], and those of setsockopt(2).
    pub fn from_tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Self::new(SeekStream::new(stream))
    }
}

impl<S: SeekSocket> Mailbox<S> {
    /// Makes a mailbox over a stream, from the first unreceived byte on, and greets the other end.
    /// Nobody else may send or receive on the stream from then on.
    ///
    /// # Errors
    /// Those of [`SeekSocket::extent`].
    pub fn new(stream: S) -> io::Result<Self> {
        Self::with_limits(stream, Limits::default())
    }

    /// Like [`Mailbox::new`], with these limits.
    ///
    /// # Errors
    /// Those of [`Mailbox::new`].
    pub fn with_limits(stream: S, limits: Limits) -> io::Result<Self> {
        let start = stream.extent()?.head;
        let mailbox = Self {
            stream,
            limits,
            inbox: Mutex::new(Inbox::new(start, limits)),
            outbox: Mutex::new(Outbox::new()),
            turn: Condvar::new(),
        };
        mailbox.send_rest();
        Ok(mailbox)
    }

    /// The underlying stream. Use it for its options only, not for its bytes.
    #[must_use]
    pub fn get_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: Hangup> Mailbox<S> {
    /// Announces that this end sends no more messages. The peer gets [`RecvError::Closed`] once it
    /// has received the earlier ones. This end can still receive, until [`RecvError::Closed`]
    /// reports that the peer has also finished. If an end is dropped before that and the peer sends
    /// something to it meanwhile, TCP resets the connection, and sent messages may be lost.
    ///
    /// # Errors
    /// As [`Mailbox::send`].
    ///
    /// [`RecvError::Closed`]: super::RecvError::Closed
    pub fn finish(&self) -> Result<(), SendError> {
        self.finish_sending()?;
        Ok(self.stream.hang_up(Shutdown::Write)?)
    }

    /// Ends both directions now. Waiting threads get [`RecvError::Closed`] or [`SendError::Io`].
    /// Messages that were found before can still be received.
    ///
    /// [`RecvError::Closed`]: super::RecvError::Closed
    pub fn close(&self) {
        self.outbox().finished = true;
        // An error means that the connection has already ended.
        let _ = self.stream.hang_up(Shutdown::Both);
        Session::new(self).stop(End::Closed);
    }
}

impl<S: SeekSocket> Drop for Mailbox<S> {
    /// Takes all bytes out of the stream: unread bytes, even those of the peer's greeting, would
    /// reset the connection (RFC 1122, 4.2.2.13), and the peer might lose the last messages sent to
    /// it.
    fn drop(&mut self) {
        Session::new(self).flush(&self.stream);
        // A destructor has no caller to report an error to.
        let Ok(extent) = self.stream.extent() else { return };
        let arrived = Span { start: extent.arrived, end: extent.arrived };
        let mut start = extent.head;
        for hole in extent.holes.into_iter().chain([arrived]) {
            let unread = hole.start.saturating_sub(start);
            if unread > 0 {
                let take = SeekOptions::TAKE.skip(unread);
                let _ = self.stream.try_seek(At::Position(start), &mut [], take);
            }
            start = hole.end;
        }
        // By TCP, bytes that were taken may still lie in the kernel.
        let _ = self.stream.make_room();
    }
}

impl<S: SeekSocket> fmt::Debug for Mailbox<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("limits", &self.limits).finish_non_exhaustive()
    }
}
