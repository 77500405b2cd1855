//! Messages over a stream, received in any order (the rules of MPI 4.1, section 3.5; the messaging
//! library that Douglas and Pai, "Seekable sockets", name as the use of seeks).
//!
//! ```text
//!   mod        the mailbox: how it begins and ends
//!     send       one message after the other; progress on receiving while there is no room
//!     receive    receives of the calling thread
//!     posted     receives that any thread completes
//!   waiting    who sleeps in the stream, and how the others are woken
//!   inbox      whom the messages are for
//!     scanner    finds the headers
//!   reader     takes messages out of the stream
//!     parcel     a message whose header has been read
//!     view       a copy of bytes that stay in the stream
//!     spent      bytes of the stream that nobody needs any more
//! ```

mod error;
mod inbox;
mod parcel;
mod posted;
mod reader;
mod receive;
mod scanner;
mod send;
mod spent;
mod view;
mod waiting;

use std::fmt;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Condvar, Mutex};

pub use error::{PeerMisbehaved, RecvError, SendError};
pub use seekwire_protocol::message::{Selector, Ticket};

use crate::seek::SeekSocket;
use crate::{SeekStream, Stream};
use error::End;
use inbox::Inbox;
use parcel::Parcel;
use send::Outbox;
use waiting::Session;

/// What is known of a message besides its bytes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Envelope {
    /// Chosen by the sender.
    pub tag: u64,
    /// Bytes of the message.
    pub len: usize,
    /// How many messages its sender had sent before, modulo 2^32.
    pub sequence: u32,
}

impl Envelope {
    fn of(tag: u64, parcel: &Parcel) -> Self {
        Self { tag, len: parcel.len, sequence: parcel.sequence }
    }
}

/// A posted receive that has its message.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Completed {
    /// What it is.
    pub envelope: Envelope,
    /// The buffer as it was posted; the message is in its first [`Envelope::len`] bytes.
    pub buffer: Vec<u8>,
}

impl Completed {
    /// The message.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.envelope.len]
    }
}

/// What a mailbox puts up with.
///
/// ```
/// use seekwire::mailbox::Limits;
///
/// let limits = Limits::default().message(64 << 10).unexpected(100);
/// # assert_eq!((limits.message, limits.unexpected), (65_536, 100));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of the longest message, either way. A peer that announces a longer one has
    /// misbehaved.
    pub message: u32,
    /// Messages that nobody has asked for; about 150 bytes of memory each. With more of them it is
    /// [`RecvError::Full`].
    pub unexpected: usize,
    /// Bytes of memory for messages that are moved out of the stream because it has too many
    /// holes.
    pub memory: usize,
}

impl Default for Limits {
    /// Messages of 1 GiB, 65,536 of them unexpected, 16 MiB of memory.
    fn default() -> Self {
        Self { message: 1 << 30, unexpected: 1 << 16, memory: 16 << 20 }
    }
}

impl Limits {
    /// With [`Limits::message`](field@Limits::message) as given, in bytes.
    #[must_use]
    pub const fn message(self, message: u32) -> Self {
        Self { message, ..self }
    }

    /// With [`Limits::unexpected`](field@Limits::unexpected) as given, in messages.
    #[must_use]
    pub const fn unexpected(self, unexpected: usize) -> Self {
        Self { unexpected, ..self }
    }

    /// With [`Limits::memory`](field@Limits::memory) as given, in bytes.
    #[must_use]
    pub const fn memory(self, memory: usize) -> Self {
        Self { memory, ..self }
    }
}

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

/// Sends and receives messages, each with a tag, over a stream whose other end is a mailbox, too.
///
/// **Order.** A message goes to the earliest receive that matches it; a receive takes the earliest
/// message that it matches. Thus messages that match the same receive never overtake each other,
/// whatever their sizes, and no message is passed over for ever by receives that match it:
/// [`Mailbox::recv_any`] takes the earliest of all.
///
/// **Memory.** A message that is asked for goes from the stream straight into the receiver's
/// buffer. One that nobody has asked for stays in the stream, and only its envelope is remembered;
/// when the stream's buffer is full of them, they are moved into the stream's library memory,
/// oldest first, up to its limit. Then a receive that would need yet another message is told
/// [`RecvError::Full`], and the peer cannot send any more until something is received: a tag
/// that nobody ever asks for ends there. Nothing is lost then, and nothing has to be opened anew.
///
/// **Threads.** Any thread may call any method; several may wait for different messages at a time.
/// Those who wait also do the work of those who do not: posted receives make progress in any call
/// that receives, or that has no room to send, and in no others, because a mailbox has no thread of
/// its own.
///
/// **Cost.** Headers and small messages are found by looking at up to 64 KiB of the stream at a
/// time; large messages cost a look at the header and one or two receives.
///
/// ```
/// use seekwire::mailbox::{Mailbox, Selector};
/// # use std::net::{TcpListener, TcpStream};
/// # let listener = TcpListener::bind("127.0.0.1:0")?;
/// # let left = TcpStream::connect(listener.local_addr()?)?;
/// # let right = listener.accept()?.0;
///
/// let left = Mailbox::from_tcp(left)?;
/// let right = Mailbox::from_tcp(right)?;
/// left.send(1, b"first")?;
/// left.send(2, b"second")?;
///
/// let mut buffer = [0; 16];
/// let second = right.recv(Selector::exact(2), &mut buffer)?;
/// assert_eq!(&buffer[..second.len], b"second");
/// let first = right.recv_any(&mut buffer)?;
/// assert_eq!((first.tag, &buffer[..first.len]), (1, &b"first"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Mailbox<S: SeekSocket> {
    stream: S,
    limits: Limits,
    inbox: Mutex<Inbox>,
    outbox: Mutex<Outbox>,
    /// Notified when the next one may send.
    turn: Condvar,
}

impl Mailbox<SeekStream> {
    /// Over a TCP connection. Sets TCP_NODELAY: a message does not wait for the next one.
    ///
    /// # Errors
    /// As [`Mailbox::new`], and those of setsockopt(2).
    pub fn from_tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Self::new(SeekStream::new(stream))
    }
}

impl<S: SeekSocket> Mailbox<S> {
    /// Over a stream, from the first byte that was not received on, and greets the other end.
    /// Nobody else may send or receive on the stream from now on.
    ///
    /// # Errors
    /// Those of [`SeekSocket::extent`].
    pub fn new(stream: S) -> io::Result<Self> {
        Self::with_limits(stream, Limits::default())
    }

    /// As [`Mailbox::new`], within these limits.
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

    /// The stream underneath; for its options, not for its bytes.
    #[must_use]
    pub fn get_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: Hangup> Mailbox<S> {
    /// Says that no more messages come: the peer gets [`RecvError::Closed`] once it has received
    /// those that were sent. Receiving goes on; [`RecvError::Closed`] says that the peer has
    /// finished, too. An end that is dropped before may lose what it has sent, if the peer sends
    /// something to it meanwhile: TCP resets such connections.
    ///
    /// # Errors
    /// As [`Mailbox::send`].
    pub fn finish(&self) -> Result<(), SendError> {
        self.finish_sending()?;
        Ok(self.stream.hang_up(Shutdown::Write)?)
    }

    /// Ends both directions now. Threads that wait get [`RecvError::Closed`] or [`SendError::Io`];
    /// messages that had been found by then can still be received.
    pub fn close(&self) {
        self.outbox().finished = true;
        // An error says that the connection has ended already.
        let _ = self.stream.hang_up(Shutdown::Both);
        Session::new(self).stop(End::Closed);
    }
}

impl<S: SeekSocket> Drop for Mailbox<S> {
    /// Takes everything out of the stream: bytes that are left in it, even those of the peer's
    /// greeting, would reset the connection (RFC 1122, 4.2.2.13), and the peer might lose what was
    /// sent to it last.
    fn drop(&mut self) {
        Session::new(self).flush(&self.stream);
        // There is nobody to tell.
        let _ = self.stream.make_room();
    }
}

impl<S: SeekSocket> fmt::Debug for Mailbox<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("limits", &self.limits).finish_non_exhaustive()
    }
}
