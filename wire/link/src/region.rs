//! The region of an open link, with this machine's state.

use std::path::Path;
use std::time::Duration;

use crate::error::LinkError;
use crate::half::HalfMemory;
use crate::layout::Layout;
use crate::map::Definition;
use crate::provider::{self, Memory};
use crate::state::{RegionId, StateFile};

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
    /// True if this machine's header still belongs to the attachment under which this link was
    /// opened.
    pub(crate) fn is_current(&self) -> bool {
        self.own.read_header().is_some_and(|header| header.token == self.token)
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.state.is_detached()
            || !self.is_current()
            || self.peer.read_header().is_some_and(|peer| peer.is_detached)
    }
}

/// Opens the region of a link, and divides it. Waits at most `patience` for a process that holds
/// it.
pub(crate) fn open_region(
    definition: &Definition,
    directory: &Path,
    patience: Duration,
) -> Result<(Memory, RegionId, Layout), LinkError> {
    let name = || definition.name.clone();
    let region = provider::open_within(definition, directory, patience)
        .map_err(|source| LinkError::Provider { name: name(), source })?;
    let length = region.length();
    let layout = Layout::of(length).map_err(|source| LinkError::Length { name: name(), source })?;
    let (device, inode) = region
        .identity()
        .map_err(|source| LinkError::Region { place: definition.provider.to_string(), source })?;
    Ok((region, RegionId { device, inode, length, side: definition.side }, layout))
}
