//! Errors of a search.

/// Reasons why a search ended without a result. The caller ends the session, which restores the
/// original settings if it holds.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The interface cannot be read or changed.
    #[error(transparent)]
    Interface(#[from] seekwire_nic::Error),
    /// The peer cannot be reached or measured with.
    #[error(transparent)]
    Peer(seekwire_gauge::Error),
    /// The peer has stopped answering, although the interface has its original settings again.
    #[error(
        "the peer has not answered since `{after}` was tried, nor for about {seconds} s after the original \
         settings were back: {reason}"
    )]
    Lost {
        /// The last candidate that was tried.
        after: String,
        /// How long the search waited for the peer.
        seconds: u64,
        /// Why the last attempt failed.
        reason: seekwire_gauge::Error,
    },
    /// The caller interrupted the search.
    #[error("interrupted")]
    Interrupted,
    /// Not even the original settings could be measured.
    #[error("nothing could be measured; give the search more time (--time)")]
    Nothing,
}

impl From<seekwire_gauge::Error> for Error {
    fn from(error: seekwire_gauge::Error) -> Self {
        match error {
            seekwire_gauge::Error::Interrupted => Self::Interrupted,
            error => Self::Peer(error),
        }
    }
}
