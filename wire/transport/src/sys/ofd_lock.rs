//! Locks on single bytes of a file that an open file description has ("Open file description locks"
//! in fcntl(2)): forks share them, and the kernel releases them when the last process has closed
//! that description, for whatever reason.

use std::io;
use std::ops::Range;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};

use super::call;
use crate::Errno;

/// The locks that a lock excludes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LockMode {
    /// Exclusive locks of other descriptions.
    Shared,
    /// All locks of other descriptions.
    Exclusive,
}

impl LockMode {
    const fn code(self) -> i32 {
        match self {
            Self::Shared => libc::F_RDLCK,
            Self::Exclusive => libc::F_WRLCK,
        }
    }
}

/// Locks one byte, which need not be inside the file, unless a lock of another description excludes
/// this. The file has to be open for writing, or for reading if the lock is shared.
///
/// # Errors
/// Those of fcntl(2) `F_OFD_SETLK`; EINVAL if the kernel has no such locks.
pub fn try_lock(file: impl AsFd, byte: u64, kind: LockMode) -> io::Result<bool> {
    match fcntl(file.as_fd(), libc::F_OFD_SETLK, kind.code(), &(byte..byte + 1)) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Releases a lock that [`try_lock`] has taken with this description, for all processes that share
/// it.
///
/// # Errors
/// As [`try_lock`].
pub fn unlock(file: impl AsFd, byte: u64) -> io::Result<()> {
    fcntl(file.as_fd(), libc::F_OFD_SETLK, libc::F_UNLCK, &(byte..byte + 1))?;
    Ok(())
}

/// Whether another description has a lock of any kind on one of these bytes.
///
/// # Errors
/// As [`try_lock`].
pub fn is_locked(file: impl AsFd, bytes: Range<u64>) -> io::Result<bool> {
    let kind = fcntl(file.as_fd(), libc::F_OFD_GETLK, libc::F_WRLCK, &bytes)?;
    Ok(kind != libc::F_UNLCK)
}

/// Returns the type of lock that the kernel has left in the argument.
fn fcntl(file: BorrowedFd<'_>, command: i32, kind: i32, bytes: &Range<u64>) -> Result<i32, Errno> {
    let offset = |at: u64| i64::try_from(at).map_err(|_| Errno::OVERFLOW);
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: offset(bytes.start)?,
        l_len: offset(bytes.end.saturating_sub(bytes.start))?,
        l_pid: 0,
    };
    let place = (&raw mut lock).expose_provenance();
    let file = file.as_raw_fd() as usize;
    // SAFETY: the descriptor is open. The kernel reads one `flock`, which has this layout on 64-bit
    // machines, and writes at most one to the same place; nothing else refers to it meanwhile.
    unsafe { call(libc::SYS_fcntl, [file, command as usize, place, 0, 0, 0]) }?;
    Ok(i32::from(lock.l_type))
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};

    use super::*;

    /// Several descriptions of one new file.
    fn open<const N: usize>(name: &str) -> [File; N] {
        let path = std::env::temp_dir().join(format!("seekwire-{name}-{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let files = std::array::from_fn(|_| options.open(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        files
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no such locks")]
    fn each_description_and_each_byte_is_on_its_own() {
        let [one, other] = open("lease");
        assert!(try_lock(&one, 7, LockMode::Exclusive).unwrap());
        assert!(try_lock(&one, 7, LockMode::Exclusive).unwrap(), "it has it already");
        assert!(!try_lock(&other, 7, LockMode::Exclusive).unwrap());
        assert!(try_lock(&other, 8, LockMode::Exclusive).unwrap());
        assert!(is_locked(&other, 7..8).unwrap() && is_locked(&other, 0..100).unwrap());
        assert!(!is_locked(&one, 7..8).unwrap() && is_locked(&one, 7..9).unwrap());
        unlock(&one, 7).unwrap();
        assert!(try_lock(&other, 7, LockMode::Exclusive).unwrap());
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no such locks")]
    fn a_lock_ends_with_the_last_descriptor_of_its_description() {
        let [one, other] = open("last-lease");
        assert!(try_lock(&one, 0, LockMode::Exclusive).unwrap());
        let also = one.try_clone().unwrap();
        drop(one);
        assert!(is_locked(&other, 0..1).unwrap());
        drop(also);
        assert!(!is_locked(&other, 0..1).unwrap());
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no such locks")]
    fn shared_locks_are_many_and_keep_an_exclusive_one_away() {
        let [one, other, third] = open("shared-lease");
        assert!(try_lock(&one, 0, LockMode::Shared).unwrap());
        assert!(try_lock(&other, 0, LockMode::Shared).unwrap());
        assert!(!try_lock(&third, 0, LockMode::Exclusive).unwrap());
        drop((one, other));
        assert!(try_lock(&third, 0, LockMode::Exclusive).unwrap());
    }
}
