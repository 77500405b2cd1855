//! Regions whose pages another domain of Xen's has granted.
//!
//! If the domain has its own page tables (a PV guest), the kernel omits such a mapping from the
//! memory of a child. The child then maps the pages again, before it uses them.

use std::io;
use std::sync::{Arc, Mutex, TryLockError, Weak};

use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

use super::{Mapping, PAGE, Region};
use crate::Errno;
use crate::sys::fd::LibraryFd;
use crate::sys::grants::{Grants, MAPPER};

/// The mappings that a child may have to map again.
static MAPPED: Mutex<Vec<Granted>> = Mutex::new(Vec::new());

struct Granted {
    mapping: Weak<Mapping>,
    grants: Grants,
}

/// Opens the device without libc, whose open() is the preload library's.
fn open() -> Result<LibraryFd, Errno> {
    Ok(rustix::fs::open(MAPPER, OFlags::RDWR.union(OFlags::CLOEXEC), Mode::empty())?.into())
}

impl Region {
    /// Maps pages of another domain. They stay mapped even if that domain revokes them, or ends.
    ///
    /// # Errors
    /// Those of open(2) of gntdev, and of mapping: EINVAL if a page is not granted to this domain
    /// for writing, or Xen has no room to record the mapping.
    pub fn of_grants(mut grants: Grants) -> io::Result<Self> {
        let file = open()?;
        let at = grants.request(&file)?;
        let access = ProtFlags::READ.union(ProtFlags::WRITE);
        let mapping = Arc::new(Mapping::of_file(file.as_fd(), at, grants.bytes(), access)?);
        let mut mapped = MAPPED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        mapped.retain(|entry| entry.mapping.strong_count() > 0);
        mapped.push(Granted { mapping: Arc::downgrade(&mapping), grants });
        Ok(Self { mapping })
    }
}

/// The content of pages of another domain, which may have been granted for reading only.
///
/// # Errors
/// As [`Region::of_grants`].
pub fn read_grants(grants: &Grants) -> io::Result<Vec<u8>> {
    let file = open()?;
    let at = grants.clone().request(&file)?;
    let mapping = Mapping::of_file(file.as_fd(), at, grants.bytes(), ProtFlags::READ)?;
    let mut bytes = vec![0; grants.bytes()];
    mapping.read(0, &mut bytes);
    Ok(bytes)
}

/// To be called after fork() in the child: maps again what the kernel has omitted. Pages that
/// cannot be mapped read as zero in this process, as if the other machine had gone.
///
/// # Errors
/// The reason why a mapping failed, as [`Region::of_grants`].
pub fn after_fork_child() -> Result<(), Errno> {
    let mut mapped = match MAPPED.try_lock() {
        Ok(mapped) => mapped,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        // A fork waits for the parent's thread that holds it, but not for ever.
        Err(TryLockError::WouldBlock) => return Ok(()),
    };
    let mut result = Ok(());
    for Granted { mapping, grants } in &mut *mapped {
        let Some(mapping) = mapping.upgrade() else { continue };
        if is_mapped(&mapping) {
            continue;
        }
        if let Err(error) = map_again(&mapping, grants) {
            result = Err(error);
            // The other mappings are still tried.
            let _ = zero(&mapping);
        }
    }
    result
}

fn is_mapped(mapping: &Mapping) -> bool {
    // SAFETY: nothing is written: for a mapping without a file on a disk, this only reports whether
    // the mapping exists.
    let result =
        unsafe { rustix::mm::msync(mapping.base.as_ptr().cast(), PAGE, MsyncFlags::ASYNC) };
    result != Err(Errno::NOMEM)
}

/// Only at an address where nothing is mapped.
const HERE: MapFlags = MapFlags::SHARED.union(MapFlags::FIXED_NOREPLACE);
const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

fn map_again(mapping: &Mapping, grants: &mut Grants) -> Result<(), Errno> {
    let file = open()?;
    let at = grants.request(&file)?;
    let place = mapping.base.as_ptr().cast();
    // SAFETY: this process treats the range as mapped, and it is not; the kernel refuses if
    // anything else is mapped there by now.
    unsafe { rustix::mm::mmap(place, mapping.len, ACCESS, HERE, &file, at) }?;
    Ok(())
}

fn zero(mapping: &Mapping) -> Result<(), Errno> {
    let place = mapping.base.as_ptr().cast();
    // SAFETY: as in `map_again`.
    unsafe { rustix::mm::mmap_anonymous(place, mapping.len, ACCESS, HERE) }?;
    Ok(())
}

// Miri has no forks.
#[cfg(all(test, not(miri)))]
mod tests {
    use rustix::mm::{Advice, madvise};
    use rustix::process::{Pid, WaitOptions, waitpid};

    use super::*;

    /// As the kernel does with mappings of a PV guest.
    #[test]
    fn what_a_fork_leaves_out_is_noticed_and_replaced_once() {
        let left_out = Mapping::new(None, 2 * PAGE, ACCESS).unwrap();
        // SAFETY: applies to this test's own mapping; for the parent it changes nothing.
        unsafe { madvise(left_out.base.as_ptr().cast(), left_out.len, Advice::LinuxDontFork) }
            .unwrap();
        assert!(is_mapped(&left_out));
        // SAFETY: the child makes system calls only, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut byte = [1];
            let was_missing = !is_mapped(&left_out);
            let replaced = zero(&left_out).is_ok() && is_mapped(&left_out);
            left_out.read(PAGE, &mut byte);
            let is_done = was_missing && replaced && byte == [0] && zero(&left_out).is_err();
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!is_done)) };
        }
        let (_, status) = waitpid(Pid::from_raw(child), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0));
    }

    #[test]
    fn where_there_is_no_such_device_nothing_is_mapped() {
        if !std::path::Path::new(MAPPER).exists() {
            let grants = Grants::new(1, &[1]).unwrap();
            let error = Region::of_grants(grants.clone()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            assert_eq!(read_grants(&grants).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        assert_eq!(after_fork_child(), Ok(()));
    }
}
