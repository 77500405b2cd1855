//! Access to the files of a machine's links.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
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

/// Sets the group and mode of a socket in a directory to which other machines may write: they could
/// put a link to another file of this one in its place.
pub(crate) fn give_access_to_socket(path: &Path, access: Access) -> io::Result<()> {
    let socket = file::open(path, OFlags::PATH.union(OFlags::NOFOLLOW), 0)?;
    let metadata = rustix::fs::fstat(&socket)?;
    if FileType::from_raw_mode(metadata.st_mode) != FileType::Socket {
        return Err(io::Error::other("another file has taken the place of the socket"));
    }
    if let Some(group) = access.group {
        let group = Some(group_id(group)?);
        rustix::fs::chownat(&socket, c"", None, group, AtFlags::EMPTY_PATH)?;
    }
    // fchmod(2) refuses such a descriptor.
    let path = format!("/proc/self/fd/{}", socket.as_fd().as_raw_fd());
    Ok(rustix::fs::chmod(path, Mode::from_raw_mode(access.mode & 0o777))?)
}

fn group_id(group: u32) -> io::Result<Gid> {
    if group == u32::MAX {
        Err(io::ErrorKind::InvalidInput.into())
    } else {
        Ok(Gid::from_raw(group))
    }
}

/// Sets the group and mode of a file.
pub(crate) fn give_access(file: impl AsFd, access: Access) -> io::Result<()> {
    let file = file.as_fd();
    if let Some(group) = access.group {
        rustix::fs::fchown(file, None, Some(group_id(group)?))?;
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn a_file_in_the_place_of_a_socket_keeps_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let access = Access { mode: 0o666, group: Some(rustix::process::getegid().as_raw()) };
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let _socket = UnixDatagram::bind(&path).unwrap();
        give_access_to_socket(&path, access).unwrap();
        assert_eq!(mode(&path), 0o666);

        let secret = directory.path().join("secret");
        fs::write(&secret, "").unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        assert!(give_access_to_socket(&path, access).is_err());
        fs::remove_file(&path).unwrap();
        fs::hard_link(&secret, &path).unwrap();
        assert!(give_access_to_socket(&path, access).is_err());
        assert_eq!(mode(&secret), 0o600);
    }
}
