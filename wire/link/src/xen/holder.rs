//! The machine of the first side: allocates the pages of a region, and grants them to the other
//! domain.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use rustix::fd::AsFd;
use rustix::fs::OFlags;
use seekwire_transport::mem::Region;
use seekwire_transport::sys::fd::LibraryFd;
use seekwire_transport::sys::grants::{self, ALLOCATOR};
use seekwire_transport::sys::{file, host};

use super::error::XenError;
use super::grant_lists::{self, pages_of};
use super::store::{self, Store};
use crate::access::Access;
use crate::holder::{self, HeldMemory, HolderError};
use crate::map::{Definition, Side};

/// The kernel module that grants pages.
pub(super) const MODULE: &str = "xen-gntalloc";

/// The path of the socket at which programs ask for the memory of a link.
pub(super) fn path_of(name: &str, state: &Path) -> PathBuf {
    state.join(format!("{name}.holder"))
}

/// Allocates the memory of a link and grants it to the other domain.
pub(crate) fn hold(
    definition: &Definition,
    domain: u16,
    length: u64,
    state: &Path,
    access: Access,
) -> Result<HeldMemory, XenError> {
    let name = &definition.name;
    if definition.side != Side::First {
        return Err(HolderError::NothingToHold.into());
    }
    let path = path_of(name, state);
    holder::is_free(&path)?;
    let token = host::random();
    let (file, offset, root) = grant(domain, length, token)?;
    let held = holder::listen(&path, file, [token, offset, length], access)
        .map_err(|error| XenError::io(&path, error))?;
    show(name, domain, root, token).map_err(|error| XenError::io(store::DEVICE.as_ref(), error))?;
    Ok(held)
}

/// Returns the file that has the pages, the offset of the region in it, and the reference of the
/// root.
fn grant(domain: u16, length: u64, token: u64) -> Result<(LibraryFd, u64, u32), XenError> {
    let file = file::open(ALLOCATOR.as_ref(), OFlags::RDWR, 0)
        .map_err(|error| XenError::device(ALLOCATOR, MODULE, error))?;
    check_limit(length)?;
    let failed = |source| XenError::Grant { domain, needed: needed(length), source };
    let count = grant_lists::count(length);
    let (at, own) = grants::allocate(&file, domain, 1 + count, false).map_err(failed)?;
    let (offset, references) =
        grants::allocate(&file, domain, pages_of(length), true).map_err(failed)?;
    let bytes = grant_lists::write(token, length, &own[1..], &references);
    let pages = Region::of_file_from(file.as_fd(), at, bytes.len()).map_err(failed)?;
    for (at, word) in bytes.chunks_exact(8).enumerate() {
        let mut number = [0; 8];
        number.copy_from_slice(word);
        pages.word(at * 8).store(u64::from_ne_bytes(number), Ordering::Release);
    }
    Ok((file, offset, own[0]))
}

/// Announces the root in xenstore, readable by the other domain alone.
fn show(name: &str, domain: u16, root: u32, token: u64) -> io::Result<()> {
    let store = Store::open()?;
    let own = store.read("domid")?;
    let own =
        own.trim().parse().map_err(|_| io::Error::other("domid in xenstore is not a number"))?;
    let path = store::below_domain(name);
    store.write(&path, &store::offer(root, token))?;
    store.show(&path, own, domain)
}

/// Number of pages of a link, with the lists and the root.
fn needed(length: u64) -> u64 {
    (pages_of(length) + grant_lists::count(length) + 1) as u64
}

/// Checks that the kernel would grant that many pages.
pub(super) fn check_limit(length: u64) -> Result<(), XenError> {
    let needed = needed(length);
    match grants::limit() {
        Some(limit) if limit < needed => Err(XenError::Limit { needed, limit }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_needs_a_page_for_each_1024_pages_and_one_more() {
        assert_eq!(needed(1 << 20), 256 + 1 + 1);
        assert_eq!(needed(64 << 20), 16384 + 16 + 1);
    }
}
