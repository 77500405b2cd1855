//! Memory that one domain of Xen's grants to another.
//!
//! ```text
//!   holder   the machine of the first side: grants pages
//!     lists  pages that say which pages the region has
//!     store  xenstore, where the first of these pages is named
//!   taken    the machine of the second side: learns which pages those are
//! ```
//!
//! The machine of the first side grants all pages of a region, once. `seekwire vm hold` allocates
//! them by gntalloc, whose pages belong to an open file: programs of that machine can only map them
//! by the same one. So that process stays, and hands the file to whoever may open its socket in the
//! state directory. If it ends, the pages stay for those that have mapped them; who comes later
//! finds nobody to ask.
//!
//! The machine of the second side maps the pages by gntdev, each program by itself. It has to know
//! their references, one for each page. They stand in *lists*, pages that are granted for reading,
//! and the *root*, a page more, has the references of the lists. `seekwire vm attach` reads them
//! and keeps them in the state directory. Only it and `vm hold` look at xenstore, which has the
//! reference of the root, and no program ever does. A region carries all connections between two
//! machines; none of them has anything to do with Xen.
//!
//! What wakes the programs at both ends, between one connection's two, are event channels, whose
//! ports are handed over in the region; where there are none left, or a program may not use them,
//! lines do.
//!
//! A region is told from others by a random number, the *token*, which stands in xenstore and in
//! the root: what was left in xenstore by somebody who is gone leads to no memory.

mod holder;
mod lists;
mod store;
mod taken;

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fd::AsFd;
use rustix::fs::OFlags;
use seekwire_transport::mem::Region;
use seekwire_transport::sys::fd::Placed;
use seekwire_transport::sys::grants::{self, Grants, PAGE};
use seekwire_transport::sys::{event_channel, file};

use crate::attach::{Access, give_access_at};
use crate::error::LinkError;
use crate::holder::HolderError;
use crate::map::{Definition, Provider, Side};
pub(crate) use holder::hold;

/// Why memory cannot be had of another domain of Xen's, or be given to it. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum XenError {
    /// This machine has none of Xen's devices.
    #[error(
        "this machine has no {device}; as root: modprobe {module} (only domains of Xen's have it)"
    )]
    NoDevice {
        /// The device.
        device: &'static str,
        /// The kernel's module that makes it.
        module: &'static str,
    },
    /// More pages than the kernel's module may allocate.
    #[error(
        "the link needs {needed} pages, and the kernel grants {limit} in all; as root: echo \
         {needed} >/sys/module/xen_gntalloc/parameters/limit, or more where other programs grant \
         pages, too, and for each start: options xen-gntalloc limit={needed} in \
         /etc/modprobe.d/seekwire.conf"
    )]
    Limit {
        /// All pages of the link.
        needed: u64,
        /// The parameter of gntalloc.
        limit: u64,
    },
    /// The kernel or Xen has no room for so many grants.
    #[error(
        "domain {domain} could not be granted {needed} pages: {source}; give this domain a larger \
         max_grant_frames (seekwire vm plan --for xen says which), raise the limit of gntalloc, or \
         give the link less memory"
    )]
    Grant {
        /// The other one.
        domain: u16,
        /// All pages of the link.
        needed: u64,
        /// Why.
        source: io::Error,
    },
    /// The process that holds the memory on this machine, the first side.
    #[error(transparent)]
    Holder(#[from] HolderError),
    /// The map has changed since.
    #[error(
        "the memory that is held for this link has {found} bytes, and the map says {expected}; as \
         root, start seekwire vm hold anew"
    )]
    Differs {
        /// Of what is held.
        found: u64,
        /// In the map.
        expected: u64,
    },
    /// This machine has not looked yet which pages it is granted, or of another domain.
    #[error(
        "this machine does not know the pages of domain {domain} for it; as root: seekwire vm \
         attach {name}"
    )]
    NotTaken {
        /// The other one.
        domain: u16,
        /// Of the link.
        name: String,
    },
    /// The other domain offers no memory for the link.
    #[error(
        "domain {domain} offers no memory for the link {name} ({why}); on that machine: seekwire \
         vm hold {name}, and there the map has to have the number of this domain, and here its \
         own: both change with each start of a domain"
    )]
    NotOffered {
        /// The other one.
        domain: u16,
        /// Of the link.
        name: String,
        /// What was looked for, and not found.
        why: String,
    },
    /// The pages cannot be mapped.
    #[error(
        "the pages of domain {domain} cannot be mapped: {source}; as root: seekwire vm attach, \
         since that domain may have granted others, or give this domain a larger \
         max_maptrack_frames (seekwire vm plan --for xen says which)"
    )]
    Map {
        /// The other one.
        domain: u16,
        /// Why.
        source: io::Error,
    },
    /// The kernel or xenstore said no.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: String,
        /// Why.
        source: io::Error,
    },
}

impl XenError {
    fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.display().to_string(), source }
    }

    /// Of opening a device.
    fn device(device: &'static str, module: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::NoDevice { device, module },
            _ => Self::io(device.as_ref(), source),
        }
    }
}

/// Where the pages of a region are to be had.
#[derive(Debug)]
enum Pages {
    /// In a file of gntalloc, from some byte on.
    Handed(Placed, u64),
    /// Of another domain.
    Granted(Grants),
}

/// A region of granted pages, not yet mapped.
#[derive(Debug)]
pub(crate) struct Granted {
    pages: Pages,
    domain: u16,
    pub(crate) length: u64,
    pub(crate) token: u64,
}

impl Granted {
    pub(crate) fn map(&self, len: usize) -> io::Result<Region> {
        match &self.pages {
            Pages::Handed(file, at) => Region::of_file_from(file.as_fd(), *at, len),
            Pages::Granted(grants) => Region::of_grants(grants.clone()).map_err(|source| {
                io::Error::new(source.kind(), XenError::Map { domain: self.domain, source })
            }),
        }
    }
}

/// Opens the region of a link of a domain. Programs do it as soon as the machine is attached.
pub(crate) fn open(
    definition: &Definition,
    domain: u16,
    length: u64,
    state: &Path,
    patience: Duration,
) -> Result<Granted, XenError> {
    match definition.side {
        Side::First => {
            let path = holder::path_of(&definition.name, state);
            let handed = crate::holder::ask(&definition.name, &path, patience)
                .map_err(|error| explain(error, length))?;
            if handed.length != length {
                return Err(XenError::Differs { found: handed.length, expected: length });
            }
            let pages = Pages::Handed(handed.file, handed.offset);
            Ok(Granted { pages, domain, length, token: handed.token })
        }
        Side::Second => {
            let (token, references) = taken::read(&definition.name, domain, length, state)?;
            taken::try_mapper()?;
            let grants = Grants::new(domain, &references);
            let grants = grants.ok_or_else(|| not_taken(domain, &definition.name))?;
            Ok(Granted { pages: Pages::Granted(grants), domain, length, token })
        }
    }
}

fn not_taken(domain: u16, name: &str) -> XenError {
    XenError::NotTaken { domain, name: name.to_owned() }
}

/// Where nobody holds the memory, what would keep somebody from it is to be mended first.
fn explain(error: HolderError, length: u64) -> XenError {
    if !matches!(error, HolderError::NotHeld(_)) {
        return error.into();
    }
    if !Path::new(grants::ALLOCATOR).exists() {
        return XenError::NoDevice { device: grants::ALLOCATOR, module: holder::MODULE };
    }
    holder::check_limit(length).err().unwrap_or(error.into())
}

/// What attaching has to do before the region can be opened; nothing unless it comes from Xen.
pub(crate) fn prepare(
    definition: &Definition,
    state: &Path,
    access: Access,
) -> Result<(), LinkError> {
    let Provider::Xen { domain, length } = definition.provider else { return Ok(()) };
    let result =
        match definition.side {
            Side::First => give_access_at(&holder::path_of(&definition.name, state), access)
                .or_else(|error| match error.kind() {
                    // Opening says it better.
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(XenError::io(state, error)),
                }),
            Side::Second => taken::take(&definition.name, domain, length, state, access),
        };
    result.and_then(|()| give_channels(access)).map_err(|source| LinkError::Provider {
        name: definition.name.clone(),
        source: source.into(),
    })
}

/// Has those who may use the memory wake each other by event channels. Without, they do it by TCP.
fn give_channels(access: Access) -> Result<(), XenError> {
    if access.group.is_none() {
        return Ok(());
    }
    let device = Path::new(event_channel::DEVICE);
    match give_access_at(device, access) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(XenError::io(device, error)),
        _ => Ok(()),
    }
}

/// Whether this process may wake programs in other domains by event channels.
///
/// # Errors
/// Those of open(2): NotFound where the kernel has not loaded its module `xen-evtchn`.
pub fn try_channels() -> io::Result<()> {
    file::open(event_channel::DEVICE.as_ref(), OFlags::RDWR, 0).map(drop)
}

/// Whole pages of a region.
fn pages_of(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX) / PAGE
}
