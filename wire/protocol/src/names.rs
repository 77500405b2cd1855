//! The words that every layer, log line and table uses.

use std::fmt;

/// The carrier of one direction of a connection.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Carrier {
    /// The kernel's TCP socket.
    #[default]
    Tcp = 0,
    /// The descriptor ring in shared memory.
    Ring = 1,
}

impl Carrier {
    /// The carrier that was stored as `code`; anything but 1 is TCP, the carrier that always works.
    #[must_use]
    pub fn from_code(code: u64) -> Self {
        if code == Self::Ring as u64 { Self::Ring } else { Self::Tcp }
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tcp => "tcp",
            Self::Ring => "ring",
        })
    }
}

/// The role of this end; it decides who offers and who answers.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Role {
    /// The socket came out of accept().
    Accepted = 0,
    /// The socket called connect().
    Connected = 1,
}

impl Role {
    /// The role that was stored as `code`.
    #[must_use]
    pub fn from_code(code: u64) -> Self {
        if code == Self::Connected as u64 { Self::Connected } else { Self::Accepted }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Accepted => "accepted",
            Self::Connected => "connected",
        })
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal => $text:literal,)*) => {
        /// Why bytes of a connection travel by TCP.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Reason { $($(#[$doc])* $name = $code,)* }

        impl Reason {
            /// Every reason, in the order of their codes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The reason that was stored as `code`; 0 stands for none.
            #[must_use]
            pub fn from_code(code: u64) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

reasons! {
    /// Too few calls or bytes so far: a short connection is left alone.
    BelowThreshold = 1 => "below threshold",
    /// No process of this user has registered the mirrored 4-tuple.
    NoPeer = 2 => "peer not found",
    /// The process at the other end refused, or could not accept.
    PeerRefused = 3 => "peer refused",
    /// Another process holds the same socket and may use it without the library.
    Shared = 4 => "socket shared with another process",
    /// No file descriptor was left for the connection.
    FdLimit = 5 => "file descriptor limit",
    /// Shared memory could not be allocated or mapped.
    Memory = 6 => "no shared memory",
    /// Out-of-band data was sent or requested.
    OutOfBand = 7 => "out-of-band data",
    // 8 was "splice or sendfile". A code is not used again.
    /// The descriptor was passed to another process.
    FdPassed = 9 => "descriptor passed",
    /// A program was started that inherits the socket.
    Exec = 10 => "inherited over exec",
    /// A socket option or flag that the ring does not emulate.
    UnknownOption = 11 => "option or flag",
    /// A stdio stream was opened on the descriptor.
    Stdio = 12 => "stdio stream",
    /// The other end asked for TCP.
    AskedByPeer = 13 => "asked by peer",
    /// The peer's memory had an impossible value.
    PeerViolation = 14 => "peer violated the protocol",
    /// Bytes moved through the socket without the library's knowledge.
    Bypassed = 15 => "bytes moved past the library",
    /// The configuration forces TCP.
    Forced = 16 => "forced by configuration",
    /// Seekwire is switched off.
    Disabled = 17 => "switched off",
    /// The registry could not be opened or had no free slot.
    NoRegistry = 18 => "no registry",
    /// It could not be proved that the other process holds the other end.
    Unproven = 19 => "peer not proved",
    /// Both directions had ended before the ring could be used.
    Over = 20 => "connection over",
    /// The program has forbidden itself system calls that the ring needs.
    Filtered = 21 => "system calls filtered",
    /// The link to the machine that has the peer's address is not attached, or was detached.
    NoLink = 22 => "link not attached",
    /// The memory that this machine shares with the peer's has no room left.
    LinkFull = 23 => "link full",
    /// No wake channel reaches the peer's machine, or it broke.
    NoWakeChannel = 24 => "no line to the other machine",
    /// The connection has passed the threshold, but the other end has not registered or answered
    /// yet.
    Waiting = 25 => "waiting for peer",
    /// The program waits for the connection by system calls that the library does not see.
    UnseenWait = 26 => "waited for outside the C library",
    /// The socket at the other end is another user's.
    OtherUser = 27 => "other user",
    /// The socket at the other end is in another network namespace of this host.
    OtherNamespace = 28 => "other network namespace",
    /// The socket at the other end is not in this network namespace, and neither is its address.
    Elsewhere = 29 => "other machine or namespace",
    /// This socket is not of the network namespace about which the process can ask the kernel.
    NamespaceUnproven = 30 => "namespace not proved",
    /// The addresses that the two ends see differ.
    Translated = 31 => "NAT between the ends",
    /// The process at the other end has not loaded the library.
    WithoutLibrary = 32 => "peer without the library",
    /// The process at the other end has the library, but system call filters keep it off.
    PeerFiltered = 33 => "peer filtered",
    /// The kernel has no sock_diag for TCP.
    NoDiag = 34 => "no tcp_diag",
    /// The process sees no /proc.
    NoProc = 35 => "no /proc",
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_code(*reason as u64), Some(*reason));
        }
        assert_eq!(Reason::from_code(0), None);
        assert_eq!(Reason::from_code(u64::MAX), None);
        assert_eq!(Carrier::from_code(Carrier::Ring as u64), Carrier::Ring);
        assert_eq!(Carrier::from_code(77), Carrier::Tcp);
        assert_eq!(Role::from_code(Role::Connected as u64), Role::Connected);
    }
}
