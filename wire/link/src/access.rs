//! Access to the files of a machine's links.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use rustix::fd::AsFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::process::Gid;
use seekwire_transport::sys::fd::LibraryFd;
use seekwire_transport::sys::file;
use seekwire_transport::sys::signal::without_signals;

/// The users of a link on this machine: those who may read and write the state file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Access {
    /// The mode of the state file, see chmod(2).
    pub mode: u32,
    /// Its group. If `None`, the group of the process that attaches.
    pub group: Option<u32>,
}

pub(crate) fn make_directory(directory: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)
}

/// While this file is open, nobody else attaches links of this directory. Only root may open it, so
/// nobody else can lock root out.
pub(crate) fn alone(directory: &Path) -> io::Result<LibraryFd> {
    let flags = OFlags::RDWR.union(OFlags::CREATE).union(OFlags::NOFOLLOW);
    let file = file::open(&directory.join(".lock"), flags, 0o600)?;
    rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))?;
    Ok(file)
}

/// Sets the group and mode of the file at a path.
pub(crate) fn give_access_at(path: &Path, access: Access) -> io::Result<()> {
    if access.group.is_some() {
        std::os::unix::fs::chown(path, None, access.group)?;
    }
    std::fs::set_permissions(path, Permissions::from_mode(access.mode & 0o777))
}

/// Sets the group and mode of a file.
pub(crate) fn give_access(file: impl AsFd, access: Access) -> io::Result<()> {
    let file = file.as_fd();
    if let Some(group) = access.group {
        if group == u32::MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        rustix::fs::fchown(file, None, Some(Gid::from_raw(group)))?;
    }
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(access.mode & 0o777))?)
}

/// Writes a file under another name, and then renames it. Only one process at a time does this.
pub(crate) fn replace(path: &Path, bytes: &[u8], access: Access) -> io::Result<()> {
    let new = path.with_extension("new");
    // Left by a process that was killed.
    let _ = rustix::fs::unlink(&new);
    let flags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL);
    let file = file::open(&new, flags, 0o600)?;
    let write = |mut rest: &[u8]| -> io::Result<()> {
        while !rest.is_empty() {
            let n = rustix::io::retry_on_intr(|| rustix::io::write(&file, rest))?;
            rest = &rest[n..];
        }
        Ok(())
    };
    let written = without_signals(|| write(bytes))
        .and_then(|()| give_access(&file, access))
        .and_then(|()| Ok(rustix::fs::rename(&new, path)?));
    if written.is_err() {
        let _ = rustix::fs::unlink(&new);
    }
    written
}
