//! Errors of a mailbox. Their types say whose fault they are.

use std::io;

use seekwire_protocol::message::{HELLO, HeaderError, Ticket};

use crate::SeekError;

/// A peer broke the protocol. Nothing more is received from it. Messages that came before can still
/// be received.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerMisbehaved {
    /// The peer is not a mailbox.
    #[error("the peer began with {found:02x?} and not with {HELLO:02x?}: it is not a mailbox")]
    Hello {
        /// Its first bytes that have arrived, at most the length of the greeting.
        found: Vec<u8>,
    },
    /// The peer's messages are out of order, or longer than this end accepts.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The peer ended the stream in the middle of a message.
    #[error("the peer ended the stream {missing} bytes before the end of a message")]
    CutOff {
        /// Bytes that are known to be missing.
        missing: u64,
    },
}

/// Why nothing was received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The message is longer than the buffer. It stays in the stream, and nothing was written.
    #[error(
        "a message of {needed} bytes does not fit into a buffer of {room}: receive it into a larger one"
    )]
    TooSmall {
        /// Bytes of the message.
        needed: usize,
        /// Bytes of the buffer.
        room: usize,
    },
    /// Messages that nobody has asked for fill their memory, and the wanted message comes after
    /// them. Nothing is lost. Receiving works again once some of them have been received.
    #[error(
        "{messages} unexpected messages with {bytes} bytes fill the memory: receive some of them, \
         for example with recv_any, and try again"
    )]
    Full {
        /// Number of waiting messages.
        messages: usize,
        /// Total size of their bodies, in bytes.
        bytes: u64,
    },
    /// The peer has finished, or this end was closed, so no such message can come any more.
    #[error("there are no more messages: the peer has finished, or the mailbox was closed")]
    Closed,
    /// The peer broke the protocol.
    #[error(transparent)]
    Misbehaved(#[from] PeerMisbehaved),
    /// There is no receive with this ticket: it was already waited for, or cancelled.
    #[error("there is no posted receive {0:?}: it has completed or was cancelled")]
    UnknownTicket(Ticket),
    /// The stream failed.
    #[error("the stream failed: {0}")]
    Io(#[from] io::Error),
}

/// Why a message was not sent, or not completely.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The message is longer than [`Limits::message`](super::Limits::message).
    #[error(
        "a message of {len} bytes exceeds the limit of {most}: send it in parts, or raise the limit at both ends"
    )]
    TooLong {
        /// Bytes of the message.
        len: usize,
        /// The limit.
        most: u32,
    },
    /// Both ends wait for each other. The peer does not receive, and at this end messages that
    /// nobody has asked for fill their memory.
    #[error(
        "the peer does not receive, and {messages} unexpected messages fill the memory of this end: \
         receive some of them{}", if *begun { " (later calls send the rest of this message)" } else { ", then send again" }
    )]
    Full {
        /// Number of waiting messages.
        messages: usize,
        /// The peer has the first bytes of the message. This end keeps the others and sends them
        /// during other calls, when there is room. Do not send the message again.
        begun: bool,
    },
    /// This end has finished or was closed.
    #[error("nothing can be sent: this end has finished or was closed")]
    Finished,
    /// The peer broke the protocol, so nothing is sent to it either.
    #[error(transparent)]
    Misbehaved(#[from] PeerMisbehaved),
    /// The stream failed; `BrokenPipe` and `ConnectionReset`: the peer is gone.
    #[error("the stream failed: {0}")]
    Io(#[from] io::Error),
}

/// Why no more messages come.
#[derive(Clone, Debug)]
pub(super) enum End {
    Closed,
    Misbehaved(PeerMisbehaved),
    Failed(Failed),
}

/// An error that is reported more than once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    kind: io::ErrorKind,
    code: Option<i32>,
}

impl From<&SeekError> for Failed {
    fn from(error: &SeekError) -> Self {
        Self { kind: error.kind(), code: error.raw_os_error() }
    }
}

impl From<Failed> for io::Error {
    fn from(failed: Failed) -> Self {
        failed.code.map_or_else(|| failed.kind.into(), Self::from_raw_os_error)
    }
}

impl From<SeekError> for RecvError {
    fn from(error: SeekError) -> Self {
        Self::Io(error.into())
    }
}

impl From<End> for RecvError {
    fn from(end: End) -> Self {
        match end {
            End::Closed => Self::Closed,
            End::Misbehaved(why) => Self::Misbehaved(why),
            End::Failed(failed) => Self::Io(failed.into()),
        }
    }
}
