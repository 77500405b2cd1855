//! Bytes by range.

use crate::{Error, Result};
use bytes::Bytes;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fmt;
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Bytes of known length, read by range from any thread at once.
pub trait Source: Send + Sync {
    /// The name used in errors.
    fn name(&self) -> &str;

    /// Length in bytes.
    fn length(&self) -> u64;

    /// Identifies the file and its state at the time of opening; `None` if that is not known.
    fn state(&self) -> Option<String> {
        None
    }

    /// Fills `into` from byte `at` on.
    ///
    /// # Errors
    /// A range that is not wholly inside, and errors of the file system or the server.
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()>;
}

/// Reads `length` bytes after a check that they exist: a length from a hostile file costs no
/// memory.
pub(crate) fn read(source: &dyn Source, at: u64, length: u64) -> Result<Vec<u8>> {
    check(source, at, length)?;
    let mut bytes = vec![0; length as usize];
    source.read_at(at, &mut bytes)?;
    Ok(bytes)
}

pub(crate) fn check(source: &dyn Source, at: u64, length: u64) -> Result<()> {
    if at.checked_add(length).is_some_and(|end| end <= source.length()) {
        return Ok(());
    }
    Err(Error::Malformed {
        name: source.name().into(),
        at,
        what: format!("{length} bytes are wanted, but the file ends at {}", source.length()),
    })
}

/// A file, accessed with positioned reads. Its length is the one at the time of opening.
#[derive(Debug)]
pub struct FileSource {
    name: String,
    file: File,
    length: u64,
    identity: Identity,
}

/// Identifies a file and its state: device, inode, length, and the times of its last modification
/// and status change. Programs that repair a file may restore the modification time; nothing sets
/// the other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identity([u64; 3], [i64; 4]);

impl Identity {
    pub(crate) fn of(data: &Metadata) -> Self {
        let times = [data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec()];
        Self([data.dev(), data.ino(), data.len()], times)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(numbers, times) = self;
        write!(f, "{numbers:?}{times:?}")
    }
}

impl FileSource {
    /// Opens a file.
    ///
    /// # Errors
    /// File system errors, and a path that is not a regular file.
    pub fn open(path: &Path) -> Result<Self> {
        Self::named(path, path.display().to_string())
    }

    /// Opens a file under another name for errors.
    pub(crate) fn named(path: &Path, name: String) -> Result<Self> {
        let (file, metadata) = opened(path, &name)?;
        let identity = Identity::of(&metadata);
        Ok(Self { name, file, length: metadata.len(), identity })
    }
}

/// Opens a regular file; errors contain `name`.
pub(crate) fn opened(path: &Path, name: &str) -> Result<(File, Metadata)> {
    let other = || {
        Err(Error::Unsupported { name: name.to_owned(), what: "it is not a regular file".into() })
    };
    // Opening a device may have side effects.
    if !std::fs::metadata(path).map_err(|error| io(name, error))?.is_file() {
        return other();
    }
    // A FIFO may have replaced the file, and would block the open.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path);
    let file = file.map_err(|error| io(name, error))?;
    let metadata = file.metadata().map_err(|error| io(name, error))?;
    if !metadata.is_file() {
        return other();
    }
    Ok((file, metadata))
}

/// The process, or the system, has too many files open.
#[derive(Debug, thiserror::Error)]
#[error("{0}; raise the limit of open files (ulimit -n)")]
struct Full(std::io::Error);

/// Converts an error of the system for the file `name`.
pub(crate) fn io(name: &str, source: std::io::Error) -> Error {
    let full = [Errno::MFILE, Errno::NFILE].map(|error| Some(error.raw_os_error()));
    let source = match full.contains(&source.raw_os_error()) {
        true => std::io::Error::other(Full(source)),
        false => source,
    };
    Error::Io { name: name.to_owned(), source }
}

/// True if a file could not be opened because too many others are open.
pub(crate) fn is_full(error: &Error) -> bool {
    let Error::Io { source, .. } = error else { return false };
    source.get_ref().is_some_and(|inner| inner.is::<Full>())
}

impl Source for FileSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn length(&self) -> u64 {
        self.length
    }

    fn state(&self) -> Option<String> {
        Some(self.identity.to_string())
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()> {
        check(self, at, into.len() as u64)?;
        self.file.read_exact_at(into, at).map_err(|source| {
            let source = match source.kind() {
                kind @ std::io::ErrorKind::UnexpectedEof => {
                    std::io::Error::new(kind, "it has become shorter since it was opened")
                }
                _ => source,
            };
            Error::Io { name: self.name.clone(), source }
        })
    }
}

/// Bytes in memory.
#[derive(Debug, Clone)]
pub struct MemorySource {
    name: String,
    bytes: Bytes,
}

impl MemorySource {
    /// `name` is for errors.
    pub fn new(name: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        Self { name: name.into(), bytes: bytes.into() }
    }
}

impl Source for MemorySource {
    fn name(&self) -> &str {
        &self.name
    }

    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()> {
        check(self, at, into.len() as u64)?;
        let at = at as usize;
        into.copy_from_slice(&self.bytes[at..at + into.len()]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_become_shorter_says_so() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(100).unwrap();
        let source = FileSource::open(file.path()).unwrap();
        assert!(source.read_at(90, &mut [0; 10]).is_ok());
        file.as_file().set_len(95).unwrap();
        let error = source.read_at(90, &mut [0; 10]).unwrap_err().to_string();
        assert!(error.ends_with("it has become shorter since it was opened"), "{error}");
    }
}
