//! Memory that one Xen domain grants to another.
//!
//! ```text
//!   holder   the machine of the first side: grants pages
//!     lists  pages that list the pages of the region
//!     store  xenstore, where the first of these pages is named
//!   taken    the machine of the second side: learns which pages these are
//! ```
//!
//! The machine of the first side grants all pages of a region, once. `seekwire vm hold` allocates
//! them with gntalloc, whose pages belong to an open file: programs of that machine can map them
//! only through the same file. So that process stays, and hands the file to programs that may open
//! its socket in the state directory. If it ends, the pages stay for programs that have mapped
//! them, and others cannot get them any more.
//!
//! The machine of the second side maps the pages with gntdev, in each program separately. It has to
//! know their references, one for each page. They are in *lists*, pages that are granted for
//! reading, and one more page, the *root*, has the references of the lists. `seekwire vm attach`
//! reads them and stores them in the state directory. Only this command and `vm hold` access
//! xenstore, which has the reference of the root; programs never do. A region carries all
//! connections between two machines, and none of them involves Xen any further.
//!
//! The programs at the two ends of a connection wake each other with event channels, whose ports
//! are exchanged through the region. If none are left, or a program may not use them, the TCP lines
//! do that.
//!
//! A region is identified by a random number, the *token*, which is in xenstore and in the root: an
//! entry in xenstore that a domain has left behind leads to no memory.

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

/// Why the memory of another Xen domain is not available, or cannot be granted to it. Each message
/// names a remedy.
#[derive(Debug, thiserror::Error)]
pub enum XenError {
    /// This machine lacks a Xen device.
    #[error("this machine has no {device}; as root: modprobe {module} (only Xen domains have it)")]
    NoDevice {
        /// The device.
        device: &'static str,
        /// The kernel module that provides it.
        module: &'static str,
    },
    /// The link needs more pages than the kernel module may allocate.
    #[error(
        "the link needs {needed} pages, and the kernel grants {limit} in all; as root: echo \
         {needed} >/sys/module/xen_gntalloc/parameters/limit, or more if other programs also grant \
         pages; to keep it across reboots: options xen-gntalloc limit={needed} in \
         /etc/modprobe.d/seekwire.conf"
    )]
    Limit {
        /// Number of pages of the link.
        needed: u64,
        /// The module parameter of gntalloc.
        limit: u64,
    },
    /// The kernel or Xen has no room for this many grants.
    #[error(
        "domain {domain} could not be granted {needed} pages: {source}; give this domain a larger \
         max_grant_frames (seekwire vm plan --for xen prints it), raise the limit of gntalloc, or \
         give the link less memory"
    )]
    Grant {
        /// The number of the other domain.
        domain: u16,
        /// Number of pages of the link.
        needed: u64,
        /// The cause.
        source: io::Error,
    },
    /// The error of the process that holds the memory on this machine, the first side.
    #[error(transparent)]
    Holder(#[from] HolderError),
    /// The map has changed in the meantime.
    #[error(
        "the memory that is held for this link has {found} bytes, but the map says {expected}; as \
         root, restart seekwire vm hold"
    )]
    Differs {
        /// Length of the held memory in bytes.
        found: u64,
        /// Length in the map, in bytes.
        expected: u64,
    },
    /// This machine has not looked up the granted pages yet, or only those of another domain.
    #[error(
        "this machine does not know which pages domain {domain} grants it; as root: seekwire vm \
         attach {name}"
    )]
    NotTaken {
        /// The number of the other domain.
        domain: u16,
        /// The name of the link.
        name: String,
    },
    /// The other domain offers no memory for the link.
    #[error(
        "domain {domain} offers no memory for the link {name} ({why}); on that machine: seekwire \
         vm hold {name}. The map there must have the number of this domain, and the map here the \
         number of that one: a domain gets a new number each time it starts"
    )]
    NotOffered {
        /// The number of the other domain.
        domain: u16,
        /// The name of the link.
        name: String,
        /// The missing item.
        why: String,
    },
    /// The pages cannot be mapped.
    #[error(
        "the pages of domain {domain} cannot be mapped: {source}; as root: seekwire vm attach, \
         since that domain may have granted other pages, or give this domain a larger \
         max_maptrack_frames (seekwire vm plan --for xen prints it)"
    )]
    Map {
        /// The number of the other domain.
        domain: u16,
        /// The cause.
        source: io::Error,
    },
    /// An error of the kernel or xenstore.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
}

impl XenError {
    fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.display().to_string(), source }
    }

    /// The error of opening a device.
    fn device(device: &'static str, module: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::NoDevice { device, module },
            _ => Self::io(device.as_ref(), source),
        }
    }
}

/// The origin of a region's pages.
#[derive(Debug)]
enum Pages {
    /// In a file of gntalloc, from an offset on.
    Handed(Placed, u64),
    /// Granted by another domain.
    Granted(Grants),
}

/// A region of granted pages that is not yet mapped.
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

/// Opens the region of a link between domains. Programs can do this once the machine is attached.
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

/// If no process holds the memory, reports a cause that would prevent holding it, if there is one.
fn explain(error: HolderError, length: u64) -> XenError {
    if !matches!(error, HolderError::NotHeld(_)) {
        return error.into();
    }
    if !Path::new(grants::ALLOCATOR).exists() {
        return XenError::NoDevice { device: grants::ALLOCATOR, module: holder::MODULE };
    }
    holder::check_limit(length).err().unwrap_or(error.into())
}

/// Prepares attaching before the region is opened; does nothing unless the provider is Xen.
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
                    // Opening gives a better error.
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

/// Lets the users of the memory wake each other with event channels. Without these, they use TCP.
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

/// Checks that this process may wake programs in other domains with event channels.
///
/// # Errors
/// Those of open(2): NotFound if the kernel module `xen-evtchn` is not loaded.
pub fn try_channels() -> io::Result<()> {
    file::open(event_channel::DEVICE.as_ref(), OFlags::RDWR, 0).map(drop)
}

/// Number of pages of a region.
fn pages_of(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX) / PAGE
}
