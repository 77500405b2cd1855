//! Errors of this crate, each with its remedy.

use std::io;
use std::path::PathBuf;

/// Reasons why an interface could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No interface of this network namespace has that name.
    #[error("there is no interface `{0}` here; `seekwire nic show` lists them")]
    NoSuchInterface(String),
    /// The interface has left the network namespace since its state was saved.
    #[error(
        "{0} is not in this network namespace any more; if it was moved to another one, it has taken its settings along: \
         move it back (`ip netns exec NAMESPACE ip link set {0} netns PID`), then run `seekwire nic restore {0}`"
    )]
    Gone(String),
    /// The interface exists, but its driver has detached the device.
    #[error(
        "the device of {0} does not answer: its driver has detached it, as for the moment of a reset or while it \
         sleeps; try again"
    )]
    Detached(String),
    /// This process may read the interface but not change it.
    #[error(
        "changing {0} needs the capability CAP_NET_ADMIN in its network namespace: run this command with sudo, \
         or give the container --cap-add NET_ADMIN"
    )]
    NotPermitted(String),
    /// The kernel refused a request.
    #[error("{what}: {reason}")]
    Kernel {
        /// The request.
        what: String,
        /// The kernel's error.
        reason: String,
    },
    /// The interface carries the default route, and the caller did not allow changes of such an
    /// interface.
    #[error(
        "{0} carries the default route: changing it may cut this host off for a moment; to change it \
         anyway, add --default-route"
    )]
    DefaultRoute(String),
    /// The route to the peer does not use the interface, so measurements would say nothing about it.
    #[error(
        "{peer} is reached by {by}, not by {interface}: name that, or a peer behind {interface}"
    )]
    OtherWay {
        /// The address.
        peer: std::net::IpAddr,
        /// The interface that was named.
        interface: String,
        /// The interface of the route.
        by: String,
    },
    /// Another process is changing the interface, or holds its settings.
    #[error("another process{} holds the settings of {name}: end it first", by(*.process))]
    Busy {
        /// The interface.
        name: String,
        /// The process id, if known.
        process: Option<u32>,
    },
    /// Two settings exclude each other.
    #[error("{feature}=on needs {needs}, but {needs} is to be off: choose one of the two")]
    Conflict {
        /// The feature that is to be on.
        feature: String,
        /// The feature that it needs.
        needs: String,
    },
    /// Nothing has been changed that could be restored.
    #[error(
        "{0}: nothing to restore: no state was saved in this network namespace; if the interface was changed in \
         another one, move it back to that and restore it there"
    )]
    NothingSaved(String),
    /// The saved state cannot be read or written.
    #[error(
        "{}: {source}; saved states of interfaces need a directory of their own, which the environment variable \
         SEEKWIRE_NIC_STATE can name", path.display()
    )]
    State {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The directory of saved states belongs to another user, so this process cannot read it.
    #[error("{}: not readable for this user: only its owner can see whether interfaces have been changed", .0.display())]
    Closed(PathBuf),
    /// The saved state has been damaged.
    #[error(
        "{}: not a saved state of an interface: {reason}; remove this file, then set what you need with \
         `seekwire nic apply`", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The defect of the file.
        reason: String,
    },
}

fn by(process: Option<u32>) -> String {
    process.map(|process| format!(" ({process})")).unwrap_or_default()
}
