//! Errors between two ends that measure.

use std::io;
use std::net::SocketAddr;

/// Reasons why a test yields no reading.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be resolved.
    #[error("{address}: {reason}")]
    Address {
        /// The address as given.
        address: String,
        /// The resolver's error.
        reason: io::Error,
    },
    /// The server cannot listen on this address.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        reason: io::Error,
    },
    /// No server answers at this address.
    #[error("cannot connect to {address}: {reason}; does `seekwire nic serve` run there?")]
    Connect {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        reason: io::Error,
    },
    /// The test has invalid parameters; nothing was sent.
    #[error("{0}")]
    Test(String),
    /// The other end does not accept this test. It may accept another one.
    #[error("the other end refuses: {0}")]
    Refused(String),
    /// The other end is serving other clients. Retry later.
    #[error("the other end is busy: {0}")]
    Busy(String),
    /// The other end had to abort the test.
    #[error("the other end gave up: {0}")]
    Failed(String),
    /// The other end speaks another protocol or another version of this one.
    #[error("the other end does not speak this protocol: {0}")]
    Protocol(String),
    /// The connection to the other end was lost.
    #[error("lost the connection to the other end: {0}")]
    Gone(io::Error),
    /// The other end sent nothing within the time limit.
    #[error("the other end has sent nothing for {0} s")]
    Silent(u64),
    /// A received byte differs from the one that was sent.
    #[error("byte {0} of the connection was corrupted")]
    Damaged(u64),
    /// The two ends counted different numbers of bytes.
    #[error("{sent} bytes were sent and {received} received")]
    Lost {
        /// Bytes counted by the sender.
        sent: u64,
        /// Bytes counted by the receiver.
        received: u64,
    },
    /// The caller interrupted the test.
    #[error("interrupted")]
    Interrupted,
    /// A system call on this host failed.
    #[error("{what}: {reason}")]
    Host {
        /// The operation.
        what: String,
        /// The system's error.
        reason: io::Error,
    },
}

impl Error {
    /// True if a retry may succeed: the other end is busy, or it or the path to it is down, perhaps
    /// only temporarily. False if its host reports that nobody listens.
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
            // Calls interrupted by a signal are restarted, so this one comes from `lines::receive`.
            io::ErrorKind::Interrupted => Self::Interrupted,
            io::ErrorKind::InvalidData => Self::Protocol(error.to_string()),
            _ => Self::Gone(error),
        }
    }
}
