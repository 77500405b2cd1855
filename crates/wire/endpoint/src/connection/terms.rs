//! What callers say to a connection, and what it says to them.

use std::net::SocketAddr;
use std::time::Duration;

use seekwire_protocol::{Carrier, Reason, Role};

/// Which of two directions is meant.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Interest {
    /// Something to receive.
    pub read: bool,
    /// Room to send.
    pub write: bool,
}

/// What user space alone knows to be ready.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Readiness {
    /// The ring has something for the next receive. If not, the kernel's POLLIN on the socket
    /// decides.
    pub read: bool,
    /// The ring has room for the next send.
    pub write: bool,
    /// Sends travel on the ring: the kernel's POLLOUT on the socket means nothing.
    pub tx_on_ring: bool,
    /// Bytes wait for room in the kernel's socket: whoever waits for anything has to ask it for
    /// POLLOUT, and to call [`Connection::attend`] when it comes.
    ///
    /// [`Connection::attend`]: super::Connection::attend
    pub retransmits: bool,
    /// The stream has ended: the kernel may have POLLHUP, POLLRDHUP or POLLERR to add.
    pub end: bool,
}

/// How to receive; the flags of recv(2) that the ring knows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RecvFlags {
    /// MSG_PEEK: the bytes stay.
    pub peek: bool,
    /// MSG_WAITALL: wait until the buffer is full.
    pub wait_all: bool,
    /// MSG_DONTWAIT: do not wait, whatever O_NONBLOCK says.
    pub dont_wait: bool,
    /// MSG_TRUNC: throw the bytes away instead of copying them (tcp(7)).
    pub truncate: bool,
}

/// How to send; the flags of send(2) that the ring knows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SendFlags {
    /// MSG_DONTWAIT: do not wait, whatever O_NONBLOCK says.
    pub dont_wait: bool,
    /// MSG_NOSIGNAL: no SIGPIPE when the peer is gone.
    pub no_signal: bool,
    /// MSG_MORE: more follows soon, for which these bytes are held back.
    pub more: bool,
    /// MSG_EOR: if these bytes are held back, they do not wait for those that follow.
    pub end_of_record: bool,
    /// The caller also receives while it waits for room, so a full ring is no reason to go on by
    /// TCP.
    pub patient: bool,
}

/// What a connection has moved, by carrier, in bytes.
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
    /// Whether it ever got as far as shared memory.
    pub attached: bool,
    /// How long it took to get there, from the first look for the peer. The two ends agree within
    /// calls of their programs, so whatever these do meanwhile counts, too. Zero before.
    pub set_up: Duration,
    /// Why it is not on the ring.
    pub reason: Option<Reason>,
}

/// A connection as its owner sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Which end this is.
    pub role: Role,
    /// This end's address.
    pub local: SocketAddr,
    /// The other end's address.
    pub peer: SocketAddr,
    /// What the next byte sent travels on.
    pub tx: Carrier,
    /// What the next byte received comes from.
    pub rx: Carrier,
    /// Bytes moved so far.
    pub totals: Totals,
}
