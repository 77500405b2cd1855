//! A directory of files that only its owner can access. Another user of the host may have created
//! it first, or put a symbolic link or a FIFO there. Anything unexpected is refused, and no call
//! blocks.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

const DIRECTORY: Mode = Mode::RWXU;
const FILE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Write permissions of group and others, with which they could put files into the directory.
const WRITE_BY_OTHERS: u32 = 0o022;
const ANY_BY_OTHERS: u32 = 0o077;

/// An open and checked directory. Its files are opened relative to it, so it cannot be exchanged.
#[derive(Debug)]
pub(crate) struct Directory {
    descriptor: OwnedFd,
    owner: u32,
}

impl Directory {
    /// Opens the directory to read. Returns `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// Of the kind [`io::ErrorKind::PermissionDenied`] for a directory that is closed to this
    /// process; others where it belongs to a user who is not this one nor root, where others could
    /// write, and for what is not a directory.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // A slash at the end would follow a link.
        let path: PathBuf = path.components().collect();
        let descriptor = match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Err(io::Error::other("it is not a directory"));
            }
            opened => opened?,
        };
        let stat = rustix::fs::fstat(&descriptor)?;
        if ![0, user()].contains(&stat.st_uid) {
            return Err(belongs_to(&stat));
        }
        if stat.st_mode & WRITE_BY_OTHERS != 0 {
            return Err(io::Error::other(
                "others can write to it, so what is there cannot be trusted",
            ));
        }
        Ok(Some(Self { descriptor, owner: stat.st_uid }))
    }

    /// Opens it to write, and makes it if there is none: mode 0700. In one that others can look
    /// into, which may be there for something else too, they see names, and can open nothing.
    ///
    /// # Errors
    ///
    /// As [`Directory::open`]; where it does not belong to this user; those of making it.
    pub(crate) fn make(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
        }
        match rustix::fs::mkdir(path, DIRECTORY) {
            Err(Errno::EXIST) => {}
            made => made?,
        }
        let directory = Self::open(path)?.ok_or(Errno::NOENT)?;
        let stat = rustix::fs::fstat(&directory.descriptor)?;
        if stat.st_uid != user() {
            return Err(belongs_to(&stat));
        }
        Ok(directory)
    }

    /// Reads a file, up to `most` bytes. Returns `None` if it does not exist.
    pub(crate) fn read(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        let file = match self.open_file(name, OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?.0,
        };
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Opens or creates a lock file.
    pub(crate) fn lock_file(&self, name: &str) -> io::Result<File> {
        let (file, stat) = self.open_file(name, OFlags::RDONLY | OFlags::CREATE)?;
        // Anyone who can read the file can lock it.
        if stat.st_mode & ANY_BY_OTHERS != 0 {
            rustix::fs::fchmod(&file, FILE)?;
        }
        Ok(file)
    }

    /// Writes a file atomically and syncs it to the disk, replacing an existing one. Concurrent
    /// calls for one name are not allowed.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let draft = format!(".{name}");
        self.remove(&draft)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(&self.descriptor, &draft, flags, FILE)?);
        let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| {
            Ok(rustix::fs::renameat(&self.descriptor, &draft, &self.descriptor, name)?)
        });
        if written.is_err() {
            // The error of the write is the one to report.
            let _ = self.remove(&draft);
        }
        written?;
        Ok(rustix::fs::fsync(&self.descriptor)?)
    }

    /// True if an entry of that name exists.
    pub(crate) fn has(&self, name: &str) -> io::Result<bool> {
        match rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(false),
            result => Ok(result.map(|_| true)?),
        }
    }

    /// The names of all entries, except those that are not UTF-8.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.descriptor)? {
            names.extend(entry?.file_name().to_str().map(str::to_owned));
        }
        Ok(names)
    }

    /// Removes a file if it exists.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.descriptor, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }

    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<(File, Stat)> {
        // NONBLOCK: nobody may ever open the other end of a FIFO.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.descriptor, name, flags, FILE) {
            Err(Errno::LOOP) => return Err(io::Error::other("it is a symbolic link")),
            opened => File::from(opened?),
        };
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("it is not a regular file"));
        }
        if stat.st_uid != self.owner {
            return Err(belongs_to(&stat));
        }
        Ok((file, stat))
    }
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn belongs_to(stat: &Stat) -> io::Error {
    io::Error::other(format!("it belongs to user {}, not to {}", stat.st_uid, user()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn said<T: std::fmt::Debug>(result: io::Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn directory_and_files_are_closed_to_others_from_the_beginning() {
        let outside = tempfile::tempdir().unwrap();
        let path = outside.path().join("new/private");
        assert!(Directory::open(&path).unwrap().is_none());
        let directory = Directory::make(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        directory.write("state", b"one").unwrap();
        directory.write("state", b"two").unwrap();
        drop(directory.lock_file("lock").unwrap());
        assert_eq!((mode(&path.join("state")), mode(&path.join("lock"))), (0o600, 0o600));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2, "no draft is left");
        assert_eq!(directory.read("state", 2).unwrap().unwrap(), b"tw");
        assert!(directory.has("state").unwrap() && !directory.has("other").unwrap());
        directory.remove("state").unwrap();
        directory.remove("state").unwrap();
        assert!(directory.read("state", 9).unwrap().is_none());
    }

    #[test]
    fn files_are_closed_to_others_in_a_directory_that_is_not() {
        let outside = tempfile::tempdir().unwrap();
        let path = outside.path().join("older");
        fs::create_dir(&path).unwrap();
        let open = |mode| fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        open(0o755);
        fs::write(path.join("older.lock"), "").unwrap();
        fs::set_permissions(path.join("older.lock"), Permissions::from_mode(0o644)).unwrap();
        let directory = Directory::make(&path).unwrap();
        drop(directory.lock_file("older.lock").unwrap());
        directory.write("state", b"").unwrap();
        let modes = ["", "older.lock", "state"].map(|name| mode(&path.join(name)));
        assert_eq!(modes, [0o755, 0o600, 0o600]);
        for writable in [0o1777, 0o770, 0o702] {
            open(writable);
            assert!(said(Directory::make(&path)).contains("others can write"), "{writable:o}");
            assert!(said(Directory::open(&path)).contains("others can write"), "{writable:o}");
            assert_eq!(mode(&path), writable, "left as it was");
        }
    }

    #[test]
    fn what_is_not_a_directory_or_a_file_is_refused_at_once() {
        let outside = tempfile::tempdir().unwrap();
        let path = outside.path().join("private");
        let directory = Directory::make(&path).unwrap();
        let link = outside.path().join("link");
        symlink(&path, &link).unwrap();
        fs::write(outside.path().join("file"), "").unwrap();
        for other in [link.clone(), link.join(""), outside.path().join("file")] {
            assert!(said(Directory::make(&other)).contains("not a directory"), "{other:?}");
            assert!(said(Directory::open(&other)).contains("not a directory"), "{other:?}");
        }
        rustix::fs::mknodat(rustix::fs::CWD, path.join("fifo"), FileType::Fifo, FILE, 0).unwrap();
        symlink("/dev/zero", path.join("link")).unwrap();
        fs::create_dir(path.join("directory")).unwrap();
        for (name, why) in
            [("fifo", "regular"), ("link", "symbolic link"), ("directory", "regular")]
        {
            assert!(said(directory.read(name, 9)).contains(why), "{name}");
            directory.lock_file(name).unwrap_err();
        }
        // It is replaced, not followed.
        directory.write("link", b"text").unwrap();
        assert_eq!(directory.read("link", 9).unwrap().unwrap(), b"text");
    }

    #[test]
    fn what_belongs_to_somebody_else_is_refused() {
        let outside = tempfile::tempdir().unwrap();
        let path = outside.path().join("private");
        let directory = Directory::make(&path).unwrap();
        directory.write("state", b"").unwrap();
        let give = |path: &Path| std::os::unix::fs::chown(path, Some(65534), None);
        // Only root can give something away.
        if give(&path.join("state")).is_ok() {
            assert!(said(directory.read("state", 9)).contains("belongs to user 65534"));
            assert!(said(directory.lock_file("state")).contains("belongs to user 65534"));
            give(&path).unwrap();
            assert!(said(Directory::make(&path)).contains("belongs to user 65534"));
            assert!(said(Directory::open(&path)).contains("belongs to user 65534"));
        }
    }
}
