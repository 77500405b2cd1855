//! What a program does with a link that its machine is attached to.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use seekwire_protocol::{FourTuple, Role};
use seekwire_transport::mem::Region;
use seekwire_transport::sys::host;
use seekwire_transport::sys::lease::Kind;

use crate::attach::{self, Access, Attached};
use crate::entry::{Entry, Other};
use crate::error::{EnterError, LinkError};
use crate::half::{HalfMemory, PeerHeader};
use crate::holder::{self, Held};
use crate::layout::Layout;
use crate::map::{Definition, Provider, Side};
use crate::peers::Peers;
use crate::provider::{self, Memory};
use crate::state::{self, Identity, StateFile};
use crate::table::{self, PATIENCE, Table};

/// A link, mapped. Clones are the same link; any thread may use it, and forks of this process.
#[derive(Clone, Debug)]
pub struct Link(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) name: String,
    pub(crate) is_on_this_host: bool,
    pub(crate) domain: Option<u16>,
    pub(crate) layout: Layout,
    pub(crate) own: HalfMemory,
    pub(crate) peer: HalfMemory,
    pub(crate) state: StateFile,
    pub(crate) token: u64,
}

impl Inner {
    /// Whether this machine's header is that of the attachment which this link was opened in.
    pub(crate) fn is_current(&self) -> bool {
        self.own.read_header().is_some_and(|header| header.token == self.token)
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.state.is_detached()
            || !self.is_current()
            || self.peer.read_header().is_some_and(|peer| peer.is_detached)
    }
}

impl Link {
    /// Has this machine use a link from now on: formats its half, and makes the state file with the
    /// mode and group of `access`. Places that the other machine still names stay as they are.
    ///
    /// A machine that uses it already goes on ([`Attached::Already`]); only the access changes. Where
    /// one has detached, and processes still have the region mapped, their connections stay on TCP,
    /// and new ones come to the link. Of an ivshmem device, the group of `access` also gets the
    /// memory: only root has it otherwise.
    ///
    /// # Errors
    /// [`LinkError`]; [`LinkError::InUse`] when the region has lost this machine's header, and
    /// processes still have it mapped.
    pub fn attach(
        definition: &Definition,
        state: &Path,
        access: Access,
    ) -> Result<Attached, LinkError> {
        attach::attach(definition, state, access)
    }

    /// Opens a link that this machine uses.
    ///
    /// # Errors
    /// [`LinkError`], which says what to do.
    pub fn open(definition: &Definition, directory: &Path) -> Result<Self, LinkError> {
        let name = || definition.name.clone();
        let path = state::path_of(definition, directory);
        let since = host::nanoseconds();
        let state = loop {
            let state = open_state(definition, &path)?;
            if !state.is_of_this_start() {
                return Err(LinkError::NotAttached(name()));
            }
            let is_mapped =
                state.lock_mapped(Kind::Shared).map_err(|error| LinkError::of(&path, error))?;
            // Attaching may give the path to another file meanwhile.
            if is_mapped && state.is_current() {
                break state;
            }
            if host::since(since).is_none_or(|waited| waited > PATIENCE) {
                return Err(LinkError::Busy(name()));
            }
            std::thread::yield_now();
        };
        let link = Self::of(definition, state, directory, holder::PROGRAMS)?;
        if link.is_detached_here() { Err(LinkError::Detached(name())) } else { Ok(link) }
    }

    /// As [`Self::open`], to look at it: also when it is detached, and without being counted among
    /// those who use it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn inspect(definition: &Definition, directory: &Path) -> Result<Self, LinkError> {
        let state = open_state(definition, &state::path_of(definition, directory))?;
        Self::of(definition, state, directory, holder::COMMANDS)
    }

    /// As [`Self::inspect`], for the agent of the link, which there is one of. Where this machine
    /// is detached, the region is not touched: it may be on its way out.
    ///
    /// # Errors
    /// As [`Self::open`], and [`LinkError::HasAgent`].
    pub fn keep(definition: &Definition, directory: &Path) -> Result<Self, LinkError> {
        let name = || definition.name.clone();
        let path = state::path_of(definition, directory);
        let state = open_state(definition, &path)?;
        if !state.is_of_this_start() {
            return Err(LinkError::NotAttached(name()));
        }
        if state.is_detached() {
            return Err(LinkError::Detached(name()));
        }
        if !state.lock_agent().map_err(|error| LinkError::of(&path, error))? {
            return Err(LinkError::HasAgent(name()));
        }
        // What an agent has left that was killed, nobody has proved by now, and programs would believe
        // it from here on.
        let of_peers = |error| LinkError::of(&Peers::path(definition, directory), error);
        Peers::remove(definition, directory).map_err(of_peers)?;
        let link = Self::of(definition, state, directory, holder::COMMANDS)?;
        if link.is_detached_here() { Err(LinkError::Detached(name())) } else { Ok(link) }
    }

    /// Makes the memory of a link, of `length` bytes if the map does not say how many. By Xen, this
    /// machine has the first side, and grants it to the other domain. It has to be
    /// [served](Held::serve) before anybody can use it.
    ///
    /// # Errors
    /// [`LinkError::Provider`]: among others when the link is by neither memory nor Xen, and when
    /// another process holds it already.
    pub fn hold(
        definition: &Definition,
        directory: &Path,
        length: Option<u64>,
        access: Access,
    ) -> Result<Held, LinkError> {
        holder::hold(definition, directory, length, access)
    }

    fn of(
        definition: &Definition,
        state: StateFile,
        directory: &Path,
        patience: Duration,
    ) -> Result<Self, LinkError> {
        let (region, identity, layout) = open_region(definition, directory, patience)?;
        if !state.is_of(identity) || state.entries() != layout.entries() {
            return Err(LinkError::OtherRegion(definition.name.clone()));
        }
        let region = region.map(layout.length()).map_err(|source| LinkError::Region {
            place: definition.provider.to_string(),
            source,
        })?;
        let side = definition.side;
        let name = definition.name.clone();
        let token = state.token();
        let own = HalfMemory::new(region.clone(), layout, side);
        let peer = HalfMemory::new(region, layout, side.other());
        let is_on_this_host =
            matches!(definition.provider, Provider::File(_) | Provider::Memory(_));
        let domain = match definition.provider {
            Provider::Xen { domain, .. } => Some(domain),
            _ => None,
        };
        let inner = Inner { name, is_on_this_host, domain, layout, own, peer, state, token };
        Ok(Self(Arc::new(inner)))
    }

    /// Its name in the map.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether the other machine is only another part of this host, with the same processors.
    #[must_use]
    pub fn is_on_this_host(&self) -> bool {
        self.0.is_on_this_host
    }

    /// The number of the domain of Xen's at the other end, which can be reached by event channels;
    /// `None` where it is none.
    #[must_use]
    pub fn domain(&self) -> Option<u16> {
        self.0.domain
    }

    /// Which half is this machine's.
    #[must_use]
    pub fn side(&self) -> Side {
        self.0.own.side()
    }

    /// How the region is divided.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.0.layout
    }

    /// The device and the inode of a region that is a file.
    #[must_use]
    pub fn file(&self) -> (u64, u64) {
        self.0.state.region()
    }

    /// The memory.
    #[must_use]
    pub fn region(&self) -> &Region {
        self.0.own.region()
    }

    /// Whether this machine or the other one does not use the link any more, or this one was
    /// attached anew: no connection comes here, and those that are here go back.
    #[must_use]
    pub fn is_detached(&self) -> bool {
        self.0.is_detached()
    }

    /// The same of this machine alone.
    #[must_use]
    pub fn is_detached_here(&self) -> bool {
        self.0.state.is_detached() || !self.0.is_current()
    }

    /// Of the attachment of this machine.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.0.token
    }

    /// Who is at the other end; `None` while nobody has attached there, or only with another
    /// version of Seekwire, or another length, or as the same side as this machine.
    #[must_use]
    pub fn peer(&self) -> Option<PeerHeader> {
        self.0.peer.read_header()
    }

    /// The layout by which another version of Seekwire has attached the other machine, if one has.
    #[must_use]
    pub fn other_layout(&self) -> Option<u16> {
        self.0.peer.other_layout()
    }

    /// Enters a connection. `port` is where an accepting end listens for the line.
    ///
    /// # Errors
    /// [`EnterError`].
    pub fn enter(&self, tuple: &FourTuple, role: Role, port: u16) -> Result<Entry, EnterError> {
        Entry::enter(&self.0, tuple, role, port)
    }

    /// Finds the entry of the other machine whose own view of a connection is `tuple`, as the end
    /// that has this role there. Of several, it is the one that was entered last: others were left
    /// by earlier connections between the same addresses.
    #[must_use]
    pub fn find(&self, tuple: &FourTuple, role: Role) -> Option<Other> {
        self.sweep_if_asked();
        // Of two ends that enter and then look, one at least finds the other.
        fence(Ordering::SeqCst);
        let Inner { peer, .. } = &*self.0;
        let token = peer.read_header()?.token;
        let entries = (0..peer.used()).filter(|index| peer.has(*index, tuple));
        entries
            .filter_map(|index| Some((index, peer.read(index)?)))
            .filter(|(_, found)| {
                let same_tuple = found.tuple.local == tuple.local && found.tuple.peer == tuple.peer;
                same_tuple && found.role == role && found.token == token
            })
            .max_by_key(|(_, found)| found.order)
            .map(|(index, found)| Other::of(index, &found))
    }

    /// Clears what the dead have left, if the other machine has found no room since the last time.
    fn sweep_if_asked(&self) {
        if table::asked(&self.0).is_none() {
            return;
        }
        let Ok(Some(file)) = self.0.state.reopen() else { return };
        match Table::lock(&self.0, &file) {
            Ok(table) => table.sweep_if_asked(),
            Err(error) => tracing::debug!("link {}: not swept: {error}", self.0.name),
        }
    }
}

fn open_state(definition: &Definition, path: &Path) -> Result<StateFile, LinkError> {
    StateFile::open(path).map_err(|error| match error {
        LinkError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            LinkError::NotAttached(definition.name.clone())
        }
        error => error,
    })
}

/// Opens the region of a link, and divides it. Waits at most so long for a process that has it.
pub(crate) fn open_region(
    definition: &Definition,
    directory: &Path,
    patience: Duration,
) -> Result<(Memory, Identity, Layout), LinkError> {
    let name = || definition.name.clone();
    let region = provider::open_within(definition, directory, patience)
        .map_err(|source| LinkError::Provider { name: name(), source })?;
    let length = region.length();
    let layout = Layout::of(length).map_err(|source| LinkError::Length { name: name(), source })?;
    let (device, inode) = region
        .identity()
        .map_err(|source| LinkError::Region { place: definition.provider.to_string(), source })?;
    Ok((region, Identity { device, inode, length, side: definition.side }, layout))
}
