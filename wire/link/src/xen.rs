//! Memory that one Xen domain grants to another.
//!
//! ```text
//!   holder         the machine of the first side: grants pages
//!     grant_lists  pages that list the pages of the region
//!     store        xenstore, where the first of these pages is named
//!   mapper         the machine of the second side: learns which pages these are
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
//! are exchanged through the region. If none are left, or a program may not use them, the TCP
//! connections of the wake channels do that.
//!
//! A region is identified by a random number, the *token*, which is in xenstore and in the root: an
//! entry in xenstore that a domain has left behind leads to no memory.

mod error;
mod grant_lists;
mod holder;
mod mapper;
mod store;

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fd::AsFd;
use rustix::fs::OFlags;
use seekwire_transport::mem::Region;
use seekwire_transport::sys::fd::PrivateFd;
use seekwire_transport::sys::grants::{self, Grants};
use seekwire_transport::sys::{event_channel, file};

use crate::access::{Access, give_access_at};
use crate::holder::HolderError;
use crate::map::{Definition, Provider, Side};
use error::not_taken;

pub use error::XenError;
pub(crate) use holder::hold;

/// The origin of a region's pages.
#[derive(Debug)]
enum Pages {
    /// In a file of gntalloc, from an offset on.
    Handed(PrivateFd, u64),
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
            let (token, references) = mapper::read(&definition.name, domain, length, state)?;
            mapper::try_mapper()?;
            let grants = Grants::new(domain, &references);
            let grants = grants.ok_or_else(|| not_taken(domain, &definition.name))?;
            Ok(Granted { pages: Pages::Granted(grants), domain, length, token })
        }
    }
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
) -> Result<(), XenError> {
    let Provider::Xen { domain, length } = definition.provider else { return Ok(()) };
    let result =
        match definition.side {
            Side::First => give_access_at(&holder::path_of(&definition.name, state), access)
                .or_else(|error| match error.kind() {
                    // Opening gives a better error.
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(XenError::io(state, error)),
                }),
            Side::Second => mapper::take(&definition.name, domain, length, state, access),
        };
    result.and_then(|()| give_channels(access))
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
