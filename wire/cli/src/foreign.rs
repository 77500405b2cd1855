//! Files in the tree that another process sees, whose user may be hostile: root of a container, for
//! one. A path is resolved inside that tree, so no link leads out of it. Only regular files are
//! opened, and none is mapped.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2};

use crate::proc::Process;

/// How long the files of another user may take: a process of that user may answer for them (FUSE).
const PATIENCE: Duration = Duration::from_secs(2);

/// The result of `work`, unless that has not ended by then; it goes on by itself.
pub(crate) fn within_patience<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    // If nobody waits any more, the result is dropped.
    thread::Builder::new().spawn(move || drop(sender.send(work()))).ok()?;
    receiver.recv_timeout(PATIENCE).ok()
}

/// The root directory of a process.
#[derive(Debug, Clone)]
pub(crate) struct Root(PathBuf);

impl Root {
    pub(crate) fn of(process: &Process) -> Self {
        Self(process.directory.join("root"))
    }

    /// The root directory of this process.
    pub(crate) fn own() -> Self {
        Self("/".into())
    }

    /// The file at `path`, without opening it: a FIFO or a device does nothing.
    fn find(&self, path: &Path, flags: OFlags) -> io::Result<(OwnedFd, Stat)> {
        let place = OFlags::PATH.union(OFlags::CLOEXEC);
        let none = Mode::empty();
        let root = rustix::fs::openat(CWD, &self.0, place.union(OFlags::DIRECTORY), none)?;
        let inside = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);
        let found = openat2(root, path, place.union(flags), none, inside)?;
        let about = fstat(&found)?;
        Ok((found, about))
    }

    /// The attributes of a file or directory.
    pub(crate) fn look_at(&self, path: &Path) -> io::Result<Stat> {
        self.find(path, OFlags::empty()).map(|(_, about)| about)
    }

    /// Opens a regular file of one of these users for reading.
    pub(crate) fn open(&self, path: &Path, owners: &[u32]) -> io::Result<File> {
        let (found, about) = self.find(path, OFlags::NOFOLLOW)?;
        let is_regular = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
        if !is_regular || !owners.contains(&about.st_uid) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // The file that was examined, whichever has its name by now.
        let found = format!("/proc/self/fd/{}", found.as_raw_fd());
        let flags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
        Ok(File::from(rustix::fs::open(found, flags, Mode::empty())?))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_leads_out_of_the_tree_and_only_regular_files_are_opened() {
        let outside = tempfile::tempdir().unwrap();
        let tree = outside.path().join("tree");
        fs::create_dir_all(tree.join("run")).unwrap();
        fs::write(outside.path().join("secret"), "outside").unwrap();
        fs::write(tree.join("secret"), "inside").unwrap();
        for (name, target) in [
            ("up", Path::new("../../../../secret")),
            ("absolute", &outside.path().join("secret")),
            ("magic", Path::new("/proc/self/cwd")),
        ] {
            symlink(target, tree.join("run").join(name)).unwrap();
        }
        symlink("/run", tree.join("directory")).unwrap();
        let fifo = tree.join("run/fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, 0o600.into(), 0).unwrap();
        let (root, user) = (Root(tree.clone()), rustix::process::geteuid().as_raw());
        let open = |path: &str| root.open(path.as_ref(), &[user]);

        for path in ["/run/up", "/run/absolute", "/run/magic", "/run/fifo", "/run", "/missing"] {
            assert!(open(path).is_err(), "{path}");
        }
        assert!(root.open("/secret".as_ref(), &[user + 1]).is_err(), "another user's");
        for path in ["/secret", "/../../secret", "/directory/../secret"] {
            let mut text = String::new();
            open(path).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "inside", "{path}");
        }
        // Where links are followed, it is within the tree.
        let size = |path: &str| root.look_at(path.as_ref()).map(|about| about.st_size);
        assert_eq!(size("/run/up").unwrap(), 6);
        assert!(size("/run/absolute").is_err());
    }

    #[test]
    fn a_result_that_never_comes_is_not_waited_for() {
        assert_eq!(within_patience(|| 7), Some(7));
        assert_eq!(
            within_patience(|| loop {
                thread::park()
            }),
            None::<()>
        );
    }
}
