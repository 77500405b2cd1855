//! Why nothing could be found out.

/// What ended a search. The interface is as it was found, if the session that was used holds.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The interface cannot be read or changed.
    #[error(transparent)]
    Interface(#[from] nic::Error),
    /// The peer cannot be reached or measured with.
    #[error(transparent)]
    Peer(#[from] gauge::Error),
    /// What was measured would say nothing about the interface.
    #[error("{peer} is reached by {by}, not by {interface}: tune that, or name a peer behind {interface}")]
    OtherWay {
        /// The address.
        peer: std::net::IpAddr,
        /// The interface that was to be tuned.
        interface: String,
        /// The interface of the route.
        by: String,
    },
    /// The caller has said so.
    #[error("interrupted")]
    Interrupted,
    /// Not even the state that was found could be measured.
    #[error("nothing could be measured; give it more time")]
    Nothing,
}
