//! One line of the answer: a connection, and the process that holds it.

use std::net::SocketAddr;

use seekwire_endpoint::registry::RegistryEntry;
use seekwire_endpoint::{Carrier, Reason};
use serde::{Serialize, Serializer};

/// One connection of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    /// None for a process of another pid namespace, which is not visible from here.
    pub(super) pid: Option<u32>,
    pub(super) program: String,
    #[serde(flatten)]
    pub(super) holder: Holder,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    /// The carrier of the next byte sent.
    #[serde(serialize_with = "as_word")]
    pub(super) tx: Carrier,
    /// The carrier of the next byte received.
    #[serde(serialize_with = "as_word")]
    pub(super) rx: Carrier,
    /// None: the library does not count the bytes of this connection.
    pub(super) bytes: Option<Bytes>,
    /// Why a direction is on TCP.
    #[serde(serialize_with = "as_word_or_null")]
    pub(super) reason: Option<Reason>,
    /// More about the reason.
    pub(super) detail: Option<String>,
    /// The link to the machine that has the peer's address.
    pub(super) link: Option<String>,
    /// The ports of the wake channel to that machine.
    #[serde(skip)]
    pub(super) wake_ports: Option<(u16, u16)>,
    /// The inode of the socket, if /proc has shown it.
    #[serde(skip)]
    pub(super) socket: Option<u64>,
    /// The inode of the network namespace.
    #[serde(skip)]
    pub(super) namespace: Option<u64>,
    /// While watching, since the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_per_second: Option<Rates>,
}

/// The process that holds a connection, and where it runs.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Holder {
    /// Its number in its own pid namespace, if that is another one than this command's.
    pub(super) pid_inside: Option<u32>,
    /// The name of the user for whom it acts, or the number, if it has none here.
    pub(super) user: Option<String>,
    pub(super) uid: Option<u32>,
    /// Its systemd unit.
    pub(super) unit: Option<String>,
    /// Its container.
    pub(super) container: Option<String>,
    /// The directory in which it looks for other processes, as it names it.
    pub(super) directory: Option<String>,
    /// The registry there, once the process has it.
    #[serde(skip)]
    pub(super) registry: Option<FileNumber>,
}

/// The ends of a connection of a user in a network namespace. What a registry says of the
/// connections of one user must not touch those of others.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Ends {
    user: Option<u32>,
    namespace: Option<u64>,
    local: SocketAddr,
    peer: SocketAddr,
}

/// A file's device and inode.
pub(super) type FileNumber = (u64, u64);

/// The reason for a connection whose process keeps it from the registry.
pub(super) const UNKNOWN: &str = "not in the registry; SEEKWIRE_LOG says why";

impl Row {
    /// A connection on TCP, about which nothing else is known.
    pub(super) fn plain(local: SocketAddr, peer: SocketAddr) -> Self {
        Self {
            pid: None,
            program: String::new(),
            holder: Holder::default(),
            local,
            peer,
            tx: Carrier::Tcp,
            rx: Carrier::Tcp,
            bytes: None,
            reason: None,
            detail: None,
            link: None,
            wake_ports: None,
            socket: None,
            namespace: None,
            bytes_per_second: None,
        }
    }

    /// Adds all that the registry has about the connection.
    pub(super) fn fill(&mut self, entry: &RegistryEntry) {
        self.tx = entry.tx;
        self.rx = entry.rx;
        self.bytes = Some(Bytes {
            tx_tcp: entry.tx_tcp,
            tx_ring: entry.tx_ring,
            rx_tcp: entry.rx_tcp,
            rx_ring: entry.rx_ring,
        });
        self.reason = entry.reason;
        self.link = entry.link.clone();
        self.wake_ports = entry.wake_ports;
    }

    /// Takes over the state of the same connection in another process.
    pub(super) fn share(&mut self, other: &Self) {
        let (pid, program, holder) = (self.pid, self.program.clone(), self.holder.clone());
        *self = Self { pid, program, holder, ..other.clone() };
    }

    pub(super) fn key(&self) -> (Option<u32>, SocketAddr, SocketAddr) {
        (self.pid, self.local, self.peer)
    }

    /// The wake channel to another machine.
    pub(super) fn wake_channel(&self) -> Option<Ends> {
        let (own, peer) = self.wake_ports?;
        let with = |address: SocketAddr, port| SocketAddr::new(address.ip(), port);
        Some(Ends { local: with(self.local, own), peer: with(self.peer, peer), ..self.ends() })
    }

    pub(super) fn ends(&self) -> Ends {
        Ends {
            user: self.holder.uid,
            namespace: self.namespace,
            local: self.local,
            peer: self.peer,
        }
    }

    /// Why a direction is on TCP, if that is known.
    pub(super) fn why_not(&self) -> Option<String> {
        match (&self.reason, &self.detail) {
            (Some(reason), Some(detail)) => Some(format!("{reason}: {detail}")),
            (Some(reason), None) => Some(reason.to_string()),
            (None, _) if self.is_unexplained() => Some(UNKNOWN.to_owned()),
            (None, _) => None,
        }
    }

    /// Whether the process keeps it from the registry, and only its log says why.
    fn is_unexplained(&self) -> bool {
        self.reason.is_none() && self.bytes.is_none() && self.tx == Carrier::Tcp
    }
}

/// Bytes moved so far, by direction and carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Bytes {
    pub(super) tx_tcp: u64,
    pub(super) tx_ring: u64,
    pub(super) rx_tcp: u64,
    pub(super) rx_ring: u64,
}

impl Bytes {
    pub(super) fn tx(&self) -> u64 {
        self.tx_tcp.saturating_add(self.tx_ring)
    }

    pub(super) fn rx(&self) -> u64 {
        self.rx_tcp.saturating_add(self.rx_ring)
    }
}

/// Bytes moved in a second, on both carriers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Rates {
    pub(super) tx: u64,
    pub(super) rx: u64,
}

/// IPv4 addresses as such, even if they come from an IPv6 socket.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Serializes carriers and reasons as words, for people and for JSON.
fn as_word<T: ToString, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.to_string())
}

fn as_word_or_null<T: ToString, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.as_ref().map(T::to_string).serialize(serializer)
}
