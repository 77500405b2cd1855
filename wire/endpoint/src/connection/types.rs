//! The parameters and results of a connection's methods.

use std::net::SocketAddr;
use std::time::Duration;

use seekwire_protocol::{Carrier, Reason, Role};

/// The directions that a caller is interested in.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Interest {
    /// Bytes to receive.
    pub read: bool,
    /// Room to send.
    pub write: bool,
}

impl Interest {
    /// Bytes to receive.
    pub const READ: Self = Self { read: true, write: false };
    /// Room to send.
    pub const WRITE: Self = Self { read: false, write: true };
}

/// Readiness that only user space knows of.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Readiness {
    /// The ring has bytes for the next receive. If not, the kernel's POLLIN on the socket decides.
    pub read: bool,
    /// The ring has room for the next send. If not, [`Connection::sends`] says whether the kernel's
    /// POLLOUT decides.
    ///
    /// [`Connection::sends`]: super::Connection::sends
    pub write: bool,
    /// The stream has ended: the kernel may have POLLHUP, POLLRDHUP or POLLERR to add.
    pub end: bool,
}

/// How to receive: the flags of recv(2) that the ring supports.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RecvFlags {
    /// MSG_PEEK: the bytes stay.
    pub peek: bool,
    /// MSG_WAITALL: wait until the buffer is full.
    pub wait_all: bool,
    /// MSG_DONTWAIT: do not wait, whatever O_NONBLOCK says.
    pub dont_wait: bool,
    /// MSG_TRUNC: discard the bytes instead of copying them (tcp(7)).
    pub truncate: bool,
}

/// How to send: the flags of send(2) that the ring supports.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SendFlags {
    /// MSG_DONTWAIT: do not wait, whatever O_NONBLOCK says.
    pub dont_wait: bool,
    /// MSG_NOSIGNAL: no SIGPIPE when the peer is gone.
    pub no_signal: bool,
    /// MSG_MORE: more bytes follow soon; these are held back until then.
    pub more: bool,
    /// MSG_EOR: if these bytes are held back, they do not wait for later ones.
    pub end_of_record: bool,
    /// The caller also receives while it waits for room, so a full ring is no reason to go on by
    /// TCP.
    pub patient: bool,
}

/// The bytes that a connection has moved, by carrier.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Totals {
    /// Sent by TCP.
    pub tx_tcp: u64,
    /// Sent on the ring.
    pub tx_ring: u64,
    /// Received by TCP.
    pub rx_tcp: u64,
    /// Received from the ring.
    pub rx_ring: u64,
    /// Whether it was ever attached to shared memory.
    pub attached: bool,
    /// Whether that memory is shared with another machine, by a link.
    pub linked: bool,
    /// How long it took to get there, from the first look for the peer. The two ends agree within
    /// calls of their programs, so this includes the time that the programs spend between calls.
    /// Zero before.
    pub set_up: Duration,
    /// Why it is not on the ring.
    pub reason: Option<Reason>,
}

/// A connection as its owner sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The role of this end.
    pub role: Role,
    /// This end's address.
    pub local: SocketAddr,
    /// The other end's address.
    pub peer: SocketAddr,
    /// The carrier of the next byte sent.
    pub tx: Carrier,
    /// The carrier of the next byte received.
    pub rx: Carrier,
    /// Bytes moved so far.
    pub totals: Totals,
}
