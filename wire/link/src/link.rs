//! The operations of a program on a link that its machine is attached to.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use seekwire_protocol::{FourTuple, Role};
use seekwire_transport::mem::Region;
use seekwire_transport::sys::host;
use seekwire_transport::sys::ofd_lock::LockMode;

use crate::access::{Access, alone, make_directory};
use crate::allocation::{self, LOCK_TIMEOUT, Table};
use crate::attach::{self, Attached};
use crate::entry::{LinkEntry, Other};
use crate::error::{EnterError, LinkError};
use crate::half::{HalfMemory, PeerHeader};
use crate::holder::{self, HeldMemory, HolderError};
use crate::layout::Layout;
use crate::map::{Definition, Provider, Side};
use crate::peers::Peers;
use crate::provider::ProviderError;
use crate::region::{Inner, open_region};
use crate::state::{self, StateFile};
use crate::{memory, xen};

/// A mapped link. Clones are the same link; any thread may use it, and so may forked children.
#[derive(Clone, Debug)]
pub struct Link(pub(crate) Arc<Inner>);

impl Link {
    /// Attaches this machine to a link: formats its half, and makes the state file with the mode
    /// and group of `access`. Places that the other machine still names stay as they are.
    ///
    /// If the machine is already attached, only the access changes ([`Attached::Already`]). If it
    /// has detached, and processes still have the region mapped, their connections stay on TCP, and
    /// new ones use the link. With an ivshmem device, the group of `access` also gets access to the
    /// device memory, which otherwise only root has.
    ///
    /// # Errors
    /// [`LinkError`]; [`LinkError::InUse`] if the region has lost this machine's header, and
    /// processes still have it mapped.
    pub fn attach(
        definition: &Definition,
        state: &Path,
        access: Access,
    ) -> Result<Attached, LinkError> {
        attach::attach(definition, state, access)
    }

    /// Opens a link to which this machine is attached.
    ///
    /// # Errors
    /// [`LinkError`], whose message names a remedy.
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
                state.lock_mapped(LockMode::Shared).map_err(|error| LinkError::of(&path, error))?;
            // In the meantime, attaching may have given the path to another file.
            if is_mapped && state.is_current() {
                break state;
            }
            if host::since(since).is_none_or(|waited| waited > LOCK_TIMEOUT) {
                return Err(LinkError::Busy(name()));
            }
            std::thread::yield_now();
        };
        let link = Self::of(definition, state, directory, holder::PROGRAMS)?;
        link.check_use().map(|()| link)
    }

    /// Like [`Self::open`], but for inspection: also works on a link that programs cannot
    /// [use](Self::check_use), and does not count as a user of it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn inspect(definition: &Definition, directory: &Path) -> Result<Self, LinkError> {
        let state = open_state(definition, &state::path_of(definition, directory))?;
        Self::of(definition, state, directory, holder::COMMANDS)
    }

    /// Like [`Self::inspect`], but for the only agent of the link. If this machine is detached, it
    /// does not touch the region, which may be about to be removed.
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
        // The addresses of an agent that was killed are no longer proved, and programs would
        // believe them from here on.
        let of_peers = |error| LinkError::of(&Peers::path(definition, directory), error);
        Peers::remove(definition, directory).map_err(of_peers)?;
        let link = Self::of(definition, state, directory, holder::COMMANDS)?;
        link.check_use().map(|()| link)
    }

    /// Makes the memory of a link, with `length` bytes if the map does not give the size. With Xen,
    /// this machine has the first side, and grants the memory to the other domain. The memory has
    /// to be [served](HeldMemory::serve) before anybody can use it.
    ///
    /// # Errors
    /// [`LinkError::Provider`], for example if the link uses neither memory nor Xen, or if another
    /// process already holds it.
    pub fn hold(
        definition: &Definition,
        directory: &Path,
        length: Option<u64>,
        access: Access,
    ) -> Result<HeldMemory, LinkError> {
        let of_directory = |error| LinkError::of(directory, error);
        make_directory(directory).map_err(of_directory)?;
        // Until the memory has its socket, which tells others that it is held.
        let _alone = alone(directory).map_err(of_directory)?;
        let held = match (&definition.provider, length) {
            (Provider::Memory(socket), length) => {
                memory::hold(socket, length, access).map_err(ProviderError::from)
            }
            (Provider::Xen { .. }, Some(_)) => Err(HolderError::LengthOfMap.into()),
            (Provider::Xen { domain, length }, None) => {
                xen::hold(definition, *domain, *length, directory, access)
                    .map_err(ProviderError::from)
            }
            (Provider::File(_) | Provider::Ivshmem(_), _) => Err(HolderError::NothingToHold.into()),
        };
        held.map_err(|source| LinkError::Provider { name: definition.name.clone(), source })
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
        let is_on_this_host = definition.provider.is_on_this_host();
        let domain = definition.provider.domain();
        let inner = Inner { name, is_on_this_host, domain, layout, own, peer, state, token };
        Ok(Self(Arc::new(inner)))
    }

    /// Its name in the map.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// True if the other machine is only another part of this host, with the same processors.
    #[must_use]
    pub fn is_on_this_host(&self) -> bool {
        self.0.is_on_this_host
    }

    /// The number of the Xen domain at the other end, which event channels can reach; `None`
    /// without Xen.
    #[must_use]
    pub fn domain(&self) -> Option<u16> {
        self.0.domain
    }

    /// The half of this machine.
    #[must_use]
    pub fn side(&self) -> Side {
        self.0.own.side()
    }

    /// The division of the region.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.0.layout
    }

    /// The device and inode numbers of a region that is a file.
    #[must_use]
    pub fn file(&self) -> (u64, u64) {
        self.0.state.region()
    }

    /// The mapped memory.
    #[must_use]
    pub fn region(&self) -> &Region {
        self.0.own.region()
    }

    /// True if this or the other machine no longer uses the link, or this one has attached again:
    /// no new connections use it, and existing ones go back to TCP.
    #[must_use]
    pub fn is_detached(&self) -> bool {
        self.0.is_detached()
    }

    /// The same for this machine alone.
    #[must_use]
    pub fn is_detached_here(&self) -> bool {
        self.0.state.is_detached() || !self.0.is_current()
    }

    /// Succeeds if programs of this machine can use the link.
    ///
    /// # Errors
    /// [`LinkError::NotAttached`], [`LinkError::Detached`].
    pub fn check_use(&self) -> Result<(), LinkError> {
        let name = || self.0.name.clone();
        if !self.0.state.is_of_this_start() {
            Err(LinkError::NotAttached(name()))
        } else if self.is_detached_here() {
            Err(LinkError::Detached(name()))
        } else {
            Ok(())
        }
    }

    /// The token of this machine's attachment.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.0.token
    }

    /// The machine at the other end. `None` if no machine has attached there, or only one with
    /// another version of Seekwire, another length, or the same side as this machine.
    #[must_use]
    pub fn peer(&self) -> Option<PeerHeader> {
        self.0.peer.read_header()
    }

    /// The layout version of the other machine, if it has attached with another version of
    /// Seekwire.
    #[must_use]
    pub fn other_layout(&self) -> Option<u16> {
        self.0.peer.other_layout()
    }

    /// Enters a connection. `port` is the port at which an accepting end listens for the wake
    /// channel.
    ///
    /// # Errors
    /// [`EnterError`].
    pub fn enter(&self, tuple: &FourTuple, role: Role, port: u16) -> Result<LinkEntry, EnterError> {
        LinkEntry::enter(&self.0, tuple, role, port)
    }

    /// Finds the other machine's entry for the connection that it sees as `tuple`, with this role
    /// there. Of several entries, it returns the latest; the others were left by earlier
    /// connections between the same addresses.
    #[must_use]
    pub fn find(&self, tuple: &FourTuple, role: Role) -> Option<Other> {
        self.sweep_if_asked();
        // If both ends enter and then look, at least one finds the other.
        fence(Ordering::SeqCst);
        let Inner { peer, .. } = &*self.0;
        let token = peer.read_header()?.token;
        let entries = (0..peer.used()).filter(|index| peer.has(*index, tuple));
        entries
            .filter_map(|index| Some((index, peer.read(index)?)))
            .filter(|(_, entered)| {
                let same_tuple =
                    entered.tuple.local == tuple.local && entered.tuple.peer == tuple.peer;
                same_tuple && entered.role == role && entered.token == token
            })
            .max_by_key(|(_, entered)| entered.order)
            .map(|(index, entered)| Other::of(index, &entered))
    }

    /// Clears entries of dead processes, if the other machine has found no room since the last
    /// time.
    fn sweep_if_asked(&self) {
        if allocation::asked(&self.0).is_none() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_nothing_to_hold_is_refused() {
        let state = tempfile::tempdir().unwrap();
        let access = Access { mode: 0o600, group: None };
        let (file, xen) =
            (Provider::File("/a".into()), Provider::Xen { domain: 3, length: 1 << 20 });
        for (provider, side, length, why) in [
            (xen.clone(), Side::Second, None, "there is nothing to hold"),
            (xen, Side::First, Some(1 << 20), "the map gives the size"),
            (file, Side::First, None, "there is nothing to hold"),
        ] {
            let definition = Definition { name: "a".to_owned(), provider, side };
            let said =
                Link::hold(&definition, state.path(), length, access).unwrap_err().to_string();
            assert!(said.contains("link a: ") && said.contains(why), "{said}");
        }
    }
    #[test]
    fn of_several_that_hold_at_once_one_succeeds() {
        let directory = tempfile::tempdir().unwrap();
        let provider = Provider::Memory(directory.path().join("socket"));
        let definition = Definition { name: "a".to_owned(), provider, side: Side::First };
        let access = Access { mode: 0o600, group: None };
        let hold = || Link::hold(&definition, directory.path(), Some(16 << 20), access);
        let held: Vec<_> = std::thread::scope(|scope| {
            let holders: Vec<_> = (0..4).map(|_| scope.spawn(hold)).collect();
            holders.into_iter().map(|holder| holder.join().unwrap()).collect()
        });
        assert_eq!(held.iter().filter(|held| held.is_ok()).count(), 1, "{held:?}");
    }
}
