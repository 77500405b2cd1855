//! Why a link has ended.

use std::io;
use std::time::Duration;

use thiserror::Error;

use super::protocol_error::ProtocolError;

/// Why a link has ended.
#[derive(Debug, Error)]
pub(crate) enum LinkError {
    #[error("it has ended")]
    Ended,
    #[error("it has said nothing for {} s: it was stopped, or the link is cut", .0.as_secs())]
    Silent(Duration),
    #[error("the link to it is broken: {0}")]
    Io(io::Error),
    #[error("it sends invalid messages: {0}")]
    Garbled(#[from] ProtocolError),
    #[error("it was asked to end, and has not within {} s", .0.as_secs())]
    Stays(Duration),
    #[error("it does not read: more messages wait for it than a running process leaves unread")]
    NotReading,
    #[error("the memory of a block that was sent to it could not be freed: that panicked")]
    Panic,
}
