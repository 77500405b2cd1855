//! Mistakes in the bytes or messages of another process.

use thiserror::Error;

use crate::stream::elsewhere::Unexpected;

/// Why bytes are not a valid frame.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum ProtocolError {
    #[error("a message of {0} bytes is longer than any")]
    TooLong(usize),
    #[error("a block of {0} bytes is larger than any stream takes")]
    TooLarge(usize),
    #[error("a message that cannot be read: {0}")]
    Unreadable(postcard::Error),
    #[error("a payload where there can be none, or none where there must be one")]
    Payload,
    #[error("it does not fit: {0}")]
    Unexpected(&'static str),
}

impl From<Unexpected> for ProtocolError {
    fn from(Unexpected(what): Unexpected) -> Self {
        Self::Unexpected(what)
    }
}
