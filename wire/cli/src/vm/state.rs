//! The state of a link, from what this machine keeps and from its region. The other machine writes
//! the region, so its content is only displayed: no decision depends on it.

use std::net::{IpAddr, SocketAddr};

use seekwire_link::{Definition, Layout, Link, LinkError, Map, Peers, Provider, Side, provider};
use seekwire_transport::sys::grants;
use serde::{Serialize, Serializer};

use super::map_file::provider as words;
use crate::{proc, status};

/// Whether the programs of a machine use a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Attached,
    Detached,
    NotAttached,
    /// Attached by another version, which cannot share memory with this one.
    OtherVersion,
    /// Its region or its state file is missing, or this user may not open it.
    Unusable,
}

impl Standing {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Attached => "attached",
            Self::Detached => "detached",
            Self::NotAttached => "not attached",
            Self::OtherVersion => "other version",
            Self::Unusable => "unusable",
        }
    }
}

impl Serialize for Standing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// How much of something is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Share {
    pub(crate) used: u64,
    pub(crate) most: u64,
}

/// A connection that has bytes in the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct UnreadConnection {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) bytes: u64,
}

/// A process that has the region mapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct User {
    pub(crate) pid: u32,
    /// Empty if it has ended meanwhile.
    pub(crate) program: String,
}

/// Processes that have the region of a link in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Users {
    /// Those that this user may inspect.
    pub(crate) listed: Vec<User>,
    /// Whether the region is in use at all.
    pub(crate) are_there: bool,
}

/// The publication of the other machine's agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OtherAgent {
    pub(crate) port: u16,
    pub(crate) addresses: Vec<IpAddr>,
}

/// The state of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LinkState {
    pub(crate) link: String,
    pub(crate) provider: &'static str,
    #[serde(rename = "where")]
    pub(crate) place: String,
    pub(crate) side: String,
    /// Addresses from the map.
    pub(crate) addresses: Vec<IpAddr>,
    /// Addresses that the agent has found.
    pub(crate) by_agent: Vec<IpAddr>,
    #[serde(rename = "state")]
    pub(crate) standing: Standing,
    pub(crate) problem: Option<String>,
    pub(crate) length: Option<u64>,
    pub(crate) peer: Option<Standing>,
    /// Whether an agent keeps the addresses.
    pub(crate) agent: Option<bool>,
    pub(crate) other_agent: Option<OtherAgent>,
    pub(crate) entries: Option<Share>,
    pub(crate) bytes: Option<Share>,
    pub(crate) unread: Option<Vec<UnreadConnection>>,
    pub(crate) processes: Option<Vec<User>>,
    pub(crate) in_use: Option<bool>,
}

/// Inspects every link of a map.
pub(crate) fn all(map: &Map) -> Vec<LinkState> {
    map.links().iter().map(|link| of(link, map)).collect()
}

fn of(link: &Definition, map: &Map) -> LinkState {
    let (kind, place) = words(&link.provider);
    let mut state = LinkState {
        link: link.name.clone(),
        provider: kind,
        place,
        side: link.side.to_string(),
        addresses: map.addresses(&link.name).collect(),
        by_agent: Vec::new(),
        standing: Standing::Unusable,
        problem: None,
        length: None,
        peer: None,
        agent: None,
        other_agent: None,
        entries: None,
        bytes: None,
        unread: None,
        processes: None,
        in_use: None,
    };
    // Checked before the attachment, because it has to be fixed first.
    let problem = match provider::open(link, map.state()) {
        Ok(memory) => {
            let length = memory.length();
            state.length = Some(length);
            Layout::of(length).err().map(|error| error.to_string())
        }
        Err(error) => {
            if error.is_not_attached() {
                state.standing = Standing::NotAttached;
            }
            Some(error.to_string())
        }
    };
    match problem {
        Some(problem) => state.problem = Some(problem),
        None => look_into(&mut state, link, map),
    }
    state
}

fn look_into(state: &mut LinkState, link: &Definition, map: &Map) {
    // Not by opening it: the lock of a user would keep others from attaching meanwhile.
    let usable = Link::inspect(link, map.state()).and_then(|open| {
        fill(state, link, map, &open);
        open.check_use()
    });
    state.standing = match &usable {
        Ok(()) => Standing::Attached,
        Err(LinkError::NotAttached(_)) => Standing::NotAttached,
        Err(LinkError::Detached(_)) => Standing::Detached,
        Err(_) => Standing::Unusable,
    };
    state.problem = usable.err().map(|error| error.to_string());
}

fn fill(state: &mut LinkState, definition: &Definition, map: &Map, link: &Link) {
    let usage = link.usage();
    state.peer = Some(match link.peer() {
        None if link.other_layout().is_some() => Standing::OtherVersion,
        None => Standing::NotAttached,
        Some(peer) if peer.is_detached => Standing::Detached,
        Some(_) => Standing::Attached,
    });
    state.agent = Some(link.has_agent());
    state.by_agent = proved_addresses(definition, map, link);
    let published =
        link.published().filter(|published| published.port != 0 && link.peer().is_some());
    state.other_agent = published
        .map(|published| OtherAgent { port: published.port, addresses: published.addresses });
    state.entries = Some(Share { used: usage.entries_used as u64, most: usage.entries as u64 });
    state.bytes = Some(Share { used: usage.bytes_used as u64, most: usage.bytes as u64 });
    state.unread = Some(unread(link));
    let Users { listed, are_there } = users(definition, link);
    state.processes = Some(listed);
    state.in_use = Some(are_there);
}

/// The addresses that an agent has found for a link, as programs use them.
fn proved_addresses(definition: &Definition, map: &Map, link: &Link) -> Vec<IpAddr> {
    let peers = Peers::read(definition, map.state()).filter(|peers| link.believes(peers));
    let mut addresses = peers.map(|peers| peers.addresses).unwrap_or_default();
    addresses.retain(|address| map.of_address(*address).is_none());
    addresses
}

/// As [`found`], if this user may inspect the link.
pub(crate) fn by_agent(definition: &Definition, map: &Map) -> Vec<IpAddr> {
    let link = Link::inspect(definition, map.state());
    link.map(|link| proved_addresses(definition, map, &link)).unwrap_or_default()
}

/// The connections that have unreceived bytes in the region.
pub(crate) fn unread(link: &Link) -> Vec<UnreadConnection> {
    let endpoint = |endpoint| status::canonical(SocketAddr::from(endpoint));
    let connections = link.unread().into_iter();
    connections
        .map(|(tuple, bytes)| UnreadConnection {
            local: endpoint(tuple.local),
            peer: endpoint(tuple.peer),
            bytes,
        })
        .collect()
}

/// The processes besides this one that have the region mapped.
pub(crate) fn users(definition: &Definition, link: &Link) -> Users {
    let usage = link.usage();
    let (_, place) = words(&definition.provider);
    let mut pids = match &definition.provider {
        Provider::File(path) => proc::that_map(path),
        Provider::Memory(_) => proc::that_map_number(link.file()),
        Provider::Ivshmem(_) => {
            proc::that_map(format!("/sys/bus/pci/devices/{place}/resource2").as_ref())
        }
        // The kernel does not show which of its pages a process has mapped.
        Provider::Xen { .. } => proc::that_map(match definition.side {
            Side::First => grants::ALLOCATOR.as_ref(),
            Side::Second => grants::MAPPER.as_ref(),
        }),
    };
    pids.extend(usage.pids);
    pids.retain(|pid| *pid != std::process::id());
    pids.sort_unstable();
    pids.dedup();
    let listed: Vec<User> = pids
        .into_iter()
        .map(|pid| User { pid, program: proc::name_of(pid).unwrap_or_default() })
        .collect();
    Users { are_there: usage.is_open_elsewhere || !listed.is_empty(), listed }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use seekwire_link::Access;
    use seekwire_transport::sys::ofd_lock::{LockMode, try_lock};

    use super::*;

    #[test]
    fn a_look_at_a_link_does_not_use_it() {
        /// The byte of the state file that users of the link lock.
        const MAPPED: u64 = 4097;
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        File::create(path("region")).unwrap().set_len(16 << 20).unwrap();
        let text = format!("state {}\nlink a file {} first\n", path("state"), path("region"));
        let map = Map::parse(&text).unwrap();
        let definition = &map.links()[0];
        Link::attach(definition, map.state(), Access { mode: 0o600, group: None }).unwrap();
        // As while the machine attaches: nobody may begin to use the link.
        let file = File::options().read(true).write(true).open(path("state/a.link")).unwrap();
        assert!(try_lock(&file, MAPPED, LockMode::Exclusive).unwrap());
        let state = all(&map).remove(0);
        assert_eq!((state.standing, state.problem), (Standing::Attached, None));
        Link::inspect(definition, map.state()).unwrap().take_back();
        assert_eq!(all(&map)[0].standing, Standing::Detached);
    }
}
