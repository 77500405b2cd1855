//! Why a search ended without a result.

/// Why a search ended. A session that holds has put the original settings back by then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The interface cannot be read or changed.
    #[error(transparent)]
    Interface(#[from] seekwire_nic::Error),
    /// The peer cannot be reached or measured with.
    #[error(transparent)]
    Peer(seekwire_gauge::Error),
    /// The peer could be measured with, and cannot any more, although the interface has the
    /// settings again that were found.
    #[error(
        "the peer has not answered since `{after}` was tried, nor for about {seconds} s after the original \
         settings were back: {reason}"
    )]
    Lost {
        /// What was tried last.
        after: String,
        /// How long it was tried.
        seconds: u64,
        /// Why the last attempt failed.
        reason: seekwire_gauge::Error,
    },
    /// The caller has said so.
    #[error("interrupted")]
    Interrupted,
    /// Not even the state that was found could be measured.
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
