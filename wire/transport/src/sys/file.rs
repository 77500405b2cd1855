//! Files that the library opens for itself, with its own system calls, so that neither opening nor
//! closing one comes to the preload library. No cancellation points, unlike [`std::fs`].

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RawDir, linkat};

use super::fd::LibraryFd;
use super::signal::without_signals;
use crate::Errno;

/// open(2), with a mode for a new file.
///
/// # Errors
/// Those of open(2).
pub fn open(path: &Path, flags: OFlags, mode: u32) -> io::Result<LibraryFd> {
    let fd = rustix::fs::open(path, flags.union(OFlags::CLOEXEC), Mode::from_raw_mode(mode))?;
    Ok(fd.into())
}

/// Opens a file that only this user may use for reading and writing. Creates it if necessary, at
/// least `len` bytes long, all of which are allocated on the disk: if the disk is full, touching a
/// mapped byte that is not allocated raises SIGBUS. A symbolic link is an error.
///
/// # Errors
/// Those of open(2) and fallocate(2).
pub fn open_long(path: &Path, len: u64) -> io::Result<LibraryFd> {
    /// The unit in which stat(2) counts blocks.
    const BLOCK: u64 = 512;
    let flags = OFlags::RDWR.union(OFlags::CREATE).union(OFlags::NOFOLLOW);
    let file = open(path, flags, 0o600)?;
    let metadata = rustix::fs::fstat(&file)?;
    if metadata.st_size == 0 {
        stay_in_place(&file);
    }
    if (metadata.st_size as u64) < len || (metadata.st_blocks as u64) * BLOCK < len {
        without_signals(|| match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len) {
            // A file system that cannot reserve room.
            Err(Errno::OPNOTSUPP) => {
                if (metadata.st_size as u64) < len {
                    rustix::fs::ftruncate(&file, len)?;
                }
                Ok(write_to_all(&file, len as usize)?)
            }
            result => Ok(result?),
        })?;
    }
    Ok(file)
}

/// On a file system that writes changes to another place, which takes room again each time, exempts
/// a new file from that.
fn stay_in_place(file: &LibraryFd) {
    use rustix::fs::{IFlags, fstatfs, ioctl_getflags, ioctl_setflags};
    const BTRFS: i64 = 0x9123_683e;
    if fstatfs(file).is_ok_and(|about| about.f_type == BTRFS) {
        let _ =
            ioctl_getflags(file).and_then(|flags| ioctl_setflags(file, flags.union(IFlags::NOCOW)));
    }
}

/// Allocates each page of a file on the disk, as if it were written to, but keeps its content:
/// others may use it meanwhile.
fn write_to_all(file: &LibraryFd, len: usize) -> Result<(), Errno> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
    let access = ProtFlags::READ.union(ProtFlags::WRITE);
    // SAFETY: a new mapping at an address of the kernel's choice, which nothing else uses.
    let base = unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, file, 0) }?;
    // SAFETY: the range is the one just mapped; no byte of it changes.
    let populated = unsafe { madvise(base, len, Advice::LinuxPopulateWrite) };
    // SAFETY: mapped above, and not used any more.
    unsafe { munmap(base, len) }?;
    match populated {
        // Touching it would raise SIGBUS.
        Err(Errno::FAULT) => Err(Errno::NOSPC),
        result => result,
    }
}

/// The content of a file.
///
/// # Errors
/// Those of open(2) and read(2); ENOMEM.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    const PIECE: usize = 4096;
    let file = open(path, OFlags::RDONLY, 0)?;
    let mut bytes = Vec::new();
    loop {
        let len = bytes.len();
        bytes.try_reserve(PIECE).map_err(|_| Errno::NOMEM)?;
        bytes.resize(len + PIECE, 0);
        let n = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut bytes[len..]))?;
        bytes.truncate(len + n);
        if n == 0 {
            return Ok(bytes);
        }
    }
}

/// The names in a directory, in any order.
///
/// # Errors
/// Those of open(2) and getdents(2); ENOMEM.
pub fn names(directory: &Path) -> io::Result<Vec<OsString>> {
    let directory = open(directory, OFlags::RDONLY.union(OFlags::DIRECTORY), 0)?;
    let mut space = [MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(&directory, &mut space);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        names.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

/// Replaces the content of a file.
///
/// # Errors
/// Those of open(2) and write(2).
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = open(path, OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::TRUNC), 0o666)?;
    write_all(&file, bytes)
}

fn write_all(file: &LibraryFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let n =
            without_signals(|| Ok(rustix::io::retry_on_intr(|| rustix::io::write(file, bytes))?))?;
        bytes = &bytes[n..];
    }
    Ok(())
}

/// Replaces a file so that a reader, at any time, finds all of the old bytes or all of the new.
/// `draft` is a name next to it that the file may have meanwhile.
///
/// # Errors
/// Those of open(2), write(2) and rename(2).
pub fn replace(path: &Path, draft: &Path, bytes: &[u8]) -> io::Result<()> {
    // Not every file system has unnamed files, and not every process has /proc.
    if link_whole(path, draft, bytes).is_ok() {
        return Ok(());
    }
    write(draft, bytes)?;
    Ok(rustix::fs::rename(draft, path)?)
}

/// Gives a file its name when all bytes are in it: if the process ends before, nothing is left.
fn link_whole(path: &Path, draft: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let file = open(directory, OFlags::WRONLY.union(OFlags::TMPFILE), 0o666)?;
    write_all(&file, bytes)?;
    let nameless = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let link = |to: &Path| linkat(CWD, nameless.as_str(), CWD, to, AtFlags::SYMLINK_FOLLOW);
    match link(path) {
        Err(Errno::EXIST) => {
            // A process with the same number, which was killed here, has left it.
            let _ = rustix::fs::unlink(draft);
            link(draft)?;
            Ok(rustix::fs::rename(draft, path)?)
        }
        linked => Ok(linked?),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "miri has no such calls")]
    fn all_names_are_found() {
        let directory = std::env::temp_dir().join(format!("seekwire-names-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let wanted: BTreeSet<OsString> =
            (0..300).map(|at| format!("a name that is rather long {at}").into()).collect();
        wanted.iter().for_each(|name| std::fs::write(directory.join(name), "").unwrap());
        assert_eq!(names(&directory).unwrap().into_iter().collect::<BTreeSet<_>>(), wanted);
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(names(&directory).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no such files")]
    fn a_long_file_has_room_for_each_byte() {
        const LEN: u64 = 64 << 10;
        let path = std::env::temp_dir().join(format!("seekwire-long-{}", std::process::id()));
        // One that is long enough, but has holes.
        std::fs::File::create(&path).unwrap().set_len(LEN).unwrap();
        for _ in 0..2 {
            let metadata = rustix::fs::fstat(open_long(&path, LEN).unwrap()).unwrap();
            assert!(
                metadata.st_size as u64 == LEN && metadata.st_blocks as u64 * 512 >= LEN,
                "{metadata:?}"
            );
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no such files")]
    fn what_was_written_is_read() {
        let path = std::env::temp_dir().join(format!("seekwire-file-{}", std::process::id()));
        let bytes: Vec<u8> = (0..10_000u32).map(|at| at as u8).collect();
        write(&path, &bytes).unwrap();
        assert_eq!(read(&path).unwrap(), bytes);
        write(&path, b"less").unwrap();
        assert_eq!(read(&path).unwrap(), b"less");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
