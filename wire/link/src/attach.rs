//! Attaching a machine to a link.

use std::io;
use std::path::Path;

use rustix::fs::FallocateFlags;
use seekwire_transport::Errno;
use seekwire_transport::sys::host;
use seekwire_transport::sys::ofd_lock::LockMode;
use seekwire_transport::sys::signal::without_signals;

use crate::access::{Access, alone, give_access, make_directory};
use crate::error::LinkError;
use crate::half::HalfMemory;
use crate::holder;
use crate::layout::Layout;
use crate::map::Definition;
use crate::provider::Memory;
use crate::region::open_region;
use crate::state::{self, RegionId, StateFile, pids};
use crate::xen;

/// The result of attaching.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Attached {
    /// The machine uses the link from now on.
    Anew,
    /// The machine already used the link.
    Already,
}

/// See [`crate::Link::attach`].
pub(crate) fn attach(
    definition: &Definition,
    directory: &Path,
    access: Access,
) -> Result<Attached, LinkError> {
    let of_directory = |error| LinkError::of(directory, error);
    make_directory(directory).map_err(of_directory)?;
    let _alone = alone(directory).map_err(of_directory)?;
    xen::prepare(definition, directory, access).map_err(|source| LinkError::Provider {
        name: definition.name.clone(),
        source: source.into(),
    })?;
    let (region, identity, layout) = open_region(definition, directory, holder::COMMANDS)?;
    let of_region = |source| LinkError::Region { place: definition.provider.to_string(), source };
    let own = half(definition, &region, layout).map_err(of_region)?;
    let path = state::path_of(definition, directory);
    let of_state = |error| LinkError::of(&path, error);

    // Locked until the new file has its name, so that nobody begins to use the old one in the
    // meantime.
    let old = existing(definition, &path)?;
    if let Some(old) = &old {
        if is_in_use_as_it_is(old, &own, identity) {
            give_access(old.file(), access).map_err(of_state)?;
            give_device(definition, &region, access).map_err(of_region)?;
            return Ok(Attached::Already);
        }
        if is_detached_as_it_is(old, &own, identity) {
            // Connections that have gone back to TCP keep their entries and places until they end;
            // new connections get others.
            own.set_attached();
            old.set_attached();
            give_access(old.file(), access).map_err(of_state)?;
            give_device(definition, &region, access).map_err(of_region)?;
            tracing::info!("link {}: attached again", definition.name);
            return Ok(Attached::Anew);
        }
        // The users of the old file go back to TCP.
        old.set_detached();
        if old.is_of(identity) {
            let is_free = old.lock_mapped(LockMode::Exclusive).map_err(of_state)?
                && !old.is_leased().map_err(of_state)?;
            if !is_free {
                return Err(LinkError::InUse { name: definition.name.clone(), pids: pids(old) });
            }
        }
    }

    give_device(definition, &region, access).map_err(of_region)?;
    let token = host::random();
    own.format(token);
    StateFile::create(&path, identity, layout, token, access).map_err(of_state)?;
    tracing::info!("link {}: attached as the {} side", definition.name, definition.side);
    Ok(Attached::Anew)
}

/// This machine's half. Allocates memory for the whole region, because programs of this machine
/// also read the other half.
fn half(definition: &Definition, region: &Memory, layout: Layout) -> io::Result<HalfMemory> {
    if let Some(region) = region.file().filter(|_| definition.provider.has_holes()) {
        let len = layout.length() as u64;
        // Touching a page that cannot be allocated later would raise SIGBUS.
        without_signals(|| match rustix::fs::fallocate(region, FallocateFlags::empty(), 0, len) {
            Err(Errno::OPNOTSUPP) => Ok(()),
            result => Ok(result?),
        })?;
    }
    Ok(HalfMemory::new(region.map(layout.length())?, layout, definition.side))
}

/// The state file, if there is one of this version.
fn existing(definition: &Definition, path: &Path) -> Result<Option<StateFile>, LinkError> {
    match StateFile::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(LinkError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        // A file of another version, or not a state file: it is replaced, unless processes use it.
        Err(LinkError::OtherLayout(_)) => {
            let is_used = state::is_used(path).map_err(|error| LinkError::of(path, error))?;
            let in_use = || LinkError::InUse { name: definition.name.clone(), pids: Vec::new() };
            if is_used { Err(in_use()) } else { Ok(None) }
        }
        Err(error) => Err(error),
    }
}

fn is_in_use_as_it_is(old: &StateFile, own: &HalfMemory, identity: RegionId) -> bool {
    is_its_own(old, own, identity)
        && !old.is_detached()
        && own.read_header().is_some_and(|header| !header.is_detached)
}

/// True if this machine has detached, and nothing else has changed.
fn is_detached_as_it_is(old: &StateFile, own: &HalfMemory, identity: RegionId) -> bool {
    is_its_own(old, own, identity) && old.is_whole() && old.is_mapped().unwrap_or(true)
}

/// True if this machine has attached the region since it booted, and nobody else has attached here
/// since then.
fn is_its_own(old: &StateFile, own: &HalfMemory, identity: RegionId) -> bool {
    old.is_of(identity)
        && old.is_of_this_start()
        && own.read_header().is_some_and(|header| header.token == old.token())
}

fn give_device(definition: &Definition, region: &Memory, access: Access) -> io::Result<()> {
    match (region.file(), access.group) {
        (Some(region), Some(_)) if definition.provider.is_device() => give_access(region, access),
        _ => Ok(()),
    }
}
