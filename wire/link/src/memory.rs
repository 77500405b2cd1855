//! Memory that parts of one host, such as containers, share, and that nobody can truncate: a sealed
//! memfd. It has no name, so one process holds it, and hands it to those that may open a socket in
//! a directory that both have mounted.

use std::path::Path;
use std::time::Duration;

use rustix::fd::AsFd;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use seekwire_transport::Errno;
use seekwire_transport::sys::fd::{LibraryFd, PrivateFd};
use seekwire_transport::sys::signal::without_signals;

use crate::access::Access;
use crate::holder::{self, HeldMemory, HolderError};

/// Default length of a region in bytes.
const LENGTH: u64 = 64 << 20;

/// Both sides write to it; its length is fixed.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Makes the memory of a link, which programs get from a socket.
pub(crate) fn hold(
    socket: &Path,
    length: Option<u64>,
    access: Access,
) -> Result<HeldMemory, HolderError> {
    holder::is_free(socket)?;
    let length = length.unwrap_or(LENGTH);
    let make = || {
        let flags = MemfdFlags::CLOEXEC.union(MemfdFlags::ALLOW_SEALING);
        let file = LibraryFd::from(rustix::fs::memfd_create(c"seekwire-link", flags)?);
        // Allocates all memory now: later, there might be none left.
        without_signals(|| Ok(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, length)?))?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        holder::listen(socket, file, [0, 0, length], access)
    };
    make().map_err(|error| HolderError::io(socket, error))
}

/// Requests the memory of a link from a socket; returns it with its length.
pub(crate) fn open(
    name: &str,
    socket: &Path,
    patience: Duration,
) -> Result<(PrivateFd, u64), HolderError> {
    let file = holder::ask(name, socket, patience)?.file;
    let is_sealed = rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALS));
    let length = rustix::fs::fstat(file.as_fd()).map(|metadata| metadata.st_size as u64);
    match length {
        Ok(length) if is_sealed => Ok((file, length)),
        Ok(_) => Err(HolderError::NotSealed { path: socket.display().to_string() }),
        Err(error) => Err(HolderError::io(socket, Errno::into(error))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;

    const ACCESS: Access = Access { mode: 0o600, group: None };
    const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

    #[test]
    fn nobody_who_has_it_can_cut_it_short() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let held = hold(&socket, Some(1 << 20), ACCESS).unwrap();
        std::thread::spawn(move || held.serve());
        let [one, other] = [(); 2].map(|()| open("a", &socket, REPLY_TIMEOUT).unwrap());
        assert_eq!((one.1, other.1), (1 << 20, 1 << 20));
        assert!(rustix::fs::ftruncate(&one.0, 0).is_err());
        let again = File::options().write(true).open(format!("/proc/self/fd/{}", one.0.fd().raw()));
        assert!(again.unwrap().set_len(0).is_err());
        assert!(matches!(hold(&socket, None, ACCESS), Err(HolderError::Held)));
        let same = |file: &PrivateFd| rustix::fs::fstat(file.as_fd()).unwrap().st_ino;
        assert_eq!(same(&one.0), same(&other.0));
    }

    #[test]
    fn what_is_not_sealed_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let file = LibraryFd::from(rustix::fs::memfd_create(c"bare", MemfdFlags::CLOEXEC).unwrap());
        rustix::fs::ftruncate(&file, 1 << 20).unwrap();
        let held = holder::listen(&socket, file, [0, 0, 1 << 20], ACCESS).unwrap();
        std::thread::spawn(move || held.serve());
        let error = open("a", &socket, REPLY_TIMEOUT).unwrap_err().to_string();
        assert!(error.contains("something other than sealed memory"), "{error}");
    }
}
