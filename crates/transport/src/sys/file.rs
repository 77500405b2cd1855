//! Files that the library opens for itself: by system calls of its own, so that neither opening nor closing one comes
//! to the preload library. No cancellation points, as [`std::fs`] has.

use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::fd::Opened;

/// open(2), with a mode for a file that is new.
///
/// # Errors
/// Those of open(2).
pub fn open(path: &Path, flags: OFlags, mode: u32) -> io::Result<Opened> {
    let fd = rustix::fs::open(path, flags.union(OFlags::CLOEXEC), Mode::from_raw_mode(mode))?;
    Ok(fd.into())
}

/// Opens a file of this user's alone for reading and writing, made if need be and at least `len` bytes long. A symbolic
/// link is an error.
///
/// # Errors
/// Those of open(2) and ftruncate(2).
pub fn open_long(path: &Path, len: u64) -> io::Result<Opened> {
    let flags = OFlags::RDWR.union(OFlags::CREATE).union(OFlags::NOFOLLOW);
    let file = open(path, flags, 0o600)?;
    if (rustix::fs::fstat(&file)?.st_size as u64) < len {
        rustix::fs::ftruncate(&file, len)?;
    }
    Ok(file)
}

/// All that is in a file.
///
/// # Errors
/// Those of open(2) and read(2).
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    const PIECE: usize = 4096;
    let file = open(path, OFlags::RDONLY, 0)?;
    let mut bytes = Vec::new();
    loop {
        let len = bytes.len();
        bytes.resize(len + PIECE, 0);
        let n = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut bytes[len..]))?;
        bytes.truncate(len + n);
        if n == 0 {
            return Ok(bytes);
        }
    }
}

/// Writes a file anew.
///
/// # Errors
/// Those of open(2) and write(2).
pub fn write(path: &Path, mut bytes: &[u8]) -> io::Result<()> {
    let file = open(path, OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::TRUNC), 0o666)?;
    while !bytes.is_empty() {
        let n = rustix::io::retry_on_intr(|| rustix::io::write(&file, bytes))?;
        bytes = &bytes[n..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
