//! Errors between two ends that measure.

use std::io;
use std::net::SocketAddr;

/// Why there is no reading.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address means nothing.
    #[error("{address}: {reason}")]
    Address {
        /// As it was given.
        address: String,
        /// What is wrong with it.
        reason: io::Error,
    },
    /// Nobody can listen there.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// Where.
        address: String,
        /// Why.
        reason: io::Error,
    },
    /// Nobody answers at this address.
    #[error("cannot connect to {address}: {reason}; does `seekwire nic serve` run there?")]
    Connect {
        /// Where.
        address: SocketAddr,
        /// Why.
        reason: io::Error,
    },
    /// The test is not one that can be run; nothing was sent.
    #[error("{0}")]
    Test(String),
    /// The other end does not do that; it can be asked for something else.
    #[error("the other end refuses: {0}")]
    Refused(String),
    /// Others are being served; the same can be asked again later.
    #[error("the other end is busy: {0}")]
    Busy(String),
    /// The other end has had to give up.
    #[error("the other end gave up: {0}")]
    Failed(String),
    /// The other end is not one of us, or of another version.
    #[error("the other end does not speak this protocol: {0}")]
    Protocol(String),
    /// The other end has ended, or the way to it has.
    #[error("the other end has gone: {0}")]
    Gone(io::Error),
    /// Nothing has come from the other end for as long as one waits.
    #[error("the other end has said nothing for {0} s")]
    Silent(u64),
    /// The bytes are not those that were sent.
    #[error("byte {0} of the connection is not what was sent")]
    Damaged(u64),
    /// The two ends have not counted the same number of bytes.
    #[error("{sent} bytes were sent and {received} received")]
    Lost {
        /// By the one end.
        sent: u64,
        /// By the other.
        received: u64,
    },
    /// The caller has said so.
    #[error("interrupted")]
    Interrupted,
    /// Something of this host failed.
    #[error("{what}: {reason}")]
    Host {
        /// What was tried.
        what: String,
        /// Why it failed.
        reason: io::Error,
    },
}

impl Error {
    /// Whether the same may work soon: the other end is busy, or it or the way to it is gone,
    /// perhaps only for now. Not where its host says that nobody listens.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Connect { reason, .. } => reason.kind() != io::ErrorKind::ConnectionRefused,
            Self::Busy(_) | Self::Failed(_) | Self::Gone(_) | Self::Silent(_) => true,
            _ => false,
        }
    }

    pub(crate) fn host(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |reason| Self::Host { what, reason }
    }
}

/// Failures of reading from and writing to the other end.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Self::Silent(crate::limits::ANSWER_LIMIT.as_secs())
            }
            // Calls that a signal has interrupted are made again: this is said by our own.
            io::ErrorKind::Interrupted => Self::Interrupted,
            io::ErrorKind::InvalidData => Self::Protocol(error.to_string()),
            _ => Self::Gone(error),
        }
    }
}
