//! Entries of the registry, and reading those of a file that another user may change.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;

use seekwire_protocol::{Carrier, Endpoint, FourTuple, Reason, Role};
use seekwire_transport::sys::unix;

use super::layout::{
    ATTRIBUTES, BITMAP, COUNTS, HEADER, LINK, LIVE, LOCAL, MAGIC, NAMESPACE, NONCE, PEER,
    PID_NAMESPACE, PORTS, PROGRAM, SLOT, SLOTS, STATE, WAKE_PORTS, WORDS,
};
use crate::rendezvous::rendezvous_path;

/// One connection as `seekwire status` shows it.
#[derive(Clone, Debug)]
pub struct RegistryEntry {
    /// The process that holds this end, as its own pid namespace numbers it.
    pub pid: u32,
    /// The inode of that namespace; 0 if the process had no /proc.
    pub pid_namespace: u64,
    /// The cookie of its network namespace.
    pub namespace: u64,
    /// The name of its program, at most 31 bytes.
    pub program: String,
    /// The role of this end.
    pub role: Role,
    /// This end's address.
    pub local: SocketAddr,
    /// The other end's address.
    pub peer: SocketAddr,
    /// The carrier of its sends.
    pub tx: Carrier,
    /// The carrier of its receives.
    pub rx: Carrier,
    /// Bytes sent by TCP.
    pub tx_tcp: u64,
    /// Bytes sent on the ring.
    pub tx_ring: u64,
    /// Bytes received by TCP.
    pub rx_tcp: u64,
    /// Bytes received from the ring.
    pub rx_ring: u64,
    /// Why it is not, or no longer, on the ring.
    pub reason: Option<Reason>,
    /// The link to the machine that has the peer's address.
    pub link: Option<String>,
    /// The ports of the wake channel to the other machine, this end's first: a connection of the
    /// library's own between the same addresses.
    pub wake_ports: Option<(u16, u16)>,
    /// Identifies the process's rendezvous.
    nonce: u64,
}

impl RegistryEntry {
    /// The entry in a slot, if there is one.
    pub(super) fn of(words: &[u64; WORDS]) -> Option<Self> {
        if words[STATE] & 0xffff_ffff != LIVE {
            return None;
        }
        let name = |at: usize| {
            let bytes = words[at..at + 4].iter().flat_map(|word| word.to_le_bytes());
            let name: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
            String::from_utf8_lossy(&name).into_owned()
        };
        let tuple = tuple(|word| words[word]);
        let attributes = words[ATTRIBUTES];
        Some(Self {
            pid: (words[STATE] >> 32) as u32,
            pid_namespace: words[PID_NAMESPACE],
            namespace: tuple.namespace,
            program: name(PROGRAM),
            role: Role::from_code(attributes & 0xff),
            local: tuple.local.into(),
            peer: tuple.peer.into(),
            tx: Carrier::from_code(attributes >> 8 & 0xff),
            rx: Carrier::from_code(attributes >> 16 & 0xff),
            tx_tcp: words[COUNTS],
            tx_ring: words[COUNTS + 1],
            rx_tcp: words[COUNTS + 2],
            rx_ring: words[COUNTS + 3],
            reason: Reason::from_code(attributes >> 24 & 0xff),
            link: Some(name(LINK)).filter(|name| !name.is_empty()),
            wake_ports: match words[WAKE_PORTS] {
                0 => None,
                ports => Some(((ports >> 16) as u16, ports as u16)),
            },
            nonce: words[NONCE],
        })
    }

    /// Whether its process lives, as far as its rendezvous in the registry's directory shows: unlike
    /// a process id, that can be asked across pid namespaces.
    #[must_use]
    pub fn listens_in(&self, directory: &Path) -> bool {
        !unix::is_abandoned(&rendezvous_path(directory, self.pid, self.nonce))
    }
}

/// The connection in a slot whose words are these.
pub(super) fn tuple(word: impl Fn(usize) -> u64) -> FourTuple {
    let address = |at| u128::from(word(at)) << 64 | u128::from(word(at + 1));
    let ports = word(PORTS);
    FourTuple {
        local: Endpoint::from_parts(address(LOCAL), (ports >> 16) as u16),
        peer: Endpoint::from_parts(address(PEER), ports as u16),
        namespace: word(NAMESPACE),
    }
}

/// The connections in a file of any user. It is read, and at most once, never mapped: its owner can
/// truncate it at any time, which would end a process that has it mapped. It may hold anything.
///
/// # Errors
/// Those of pread(2); `InvalidData` if it is no registry.
pub fn read(file: &File) -> io::Result<Vec<RegistryEntry>> {
    /// The slots of a word of the bitmap.
    const GROUP: usize = 64;
    let mut header = vec![0; HEADER];
    file.read_exact_at(&mut header, 0)?;
    let word = |bytes: &[u8], at: usize| {
        let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
        u64::from_ne_bytes(word.copied().unwrap_or_default())
    };
    if word(&header, 0) != MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a registry"));
    }
    let mut entries = Vec::new();
    let mut slots = vec![0; GROUP * SLOT];
    for group in 0..SLOTS as usize / GROUP {
        let used = word(&header, BITMAP + group * 8);
        if used == 0 {
            continue;
        }
        file.read_exact_at(&mut slots, (HEADER + group * GROUP * SLOT) as u64)?;
        let words = |slot: usize| std::array::from_fn(|at| word(&slots, slot * SLOT + at * 8));
        let slots = (0..GROUP).filter(|slot| used >> slot & 1 != 0);
        entries.extend(slots.filter_map(|slot| RegistryEntry::of(&words(slot))));
    }
    Ok(entries)
}
