//! Where to reach the pipelines of this user on this host: a directory that is the user's
//! alone, with a Unix socket `PID.sock` for each.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::process::getuid;

const SUFFIX: &str = "sock";

/// The directory. `XDG_RUNTIME_DIR` belongs to the user and is removed after logout.
fn directory() -> PathBuf {
    let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let base = base.filter(|base| base.is_absolute() && is_private(base));
    match base {
        Some(base) => base.join("seekwire"),
        None => PathBuf::from(format!("/tmp/seekwire-{}", getuid().as_raw())),
    }
}

/// Whether it is a directory of this user that is closed to others.
fn is_private(directory: &Path) -> bool {
    fs::symlink_metadata(directory).is_ok_and(|data| {
        data.is_dir() && data.uid() == getuid().as_raw() && data.mode() & 0o077 == 0
    })
}

/// This process's socket, until it is removed.
static OWN: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Opens the socket of this process.
pub(crate) fn open() -> io::Result<UnixListener> {
    let directory = directory();
    match DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !is_private(&directory) {
        return Err(io::Error::new(ErrorKind::PermissionDenied, "the directory is not private"));
    }
    let path = directory.join(format!("{}.{SUFFIX}", std::process::id()));
    // A killed process that had the same id may have left one.
    if path.exists() && !remove_if_stale(&path) {
        return Err(ErrorKind::AddrInUse.into());
    }
    // It listens before it gets its name, so that nobody takes it for stale.
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let listener = UnixListener::bind(&new)?;
    fs::rename(&new, &path)?;
    if let Ok(mut own) = OWN.lock() {
        *own = Some(path);
    }
    Ok(listener)
}

/// Removes the socket of this process, which is about to exit.
pub(crate) fn close() {
    let own = OWN.try_lock().ok().and_then(|mut own| own.take());
    if let Some(path) = own {
        let _ = fs::remove_file(path);
    }
}

/// Returns true if nobody listened there.
fn remove_if_stale(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    let is_refused = |error: &io::Error| error.kind() == ErrorKind::ConnectionRefused;
    is_socket
        && UnixStream::connect(path).err().as_ref().is_some_and(is_refused)
        && fs::remove_file(path).is_ok()
}

/// The process and the socket of each pipeline that runs.
pub(crate) fn all() -> Vec<(u32, PathBuf)> {
    let directory = directory();
    if !is_private(&directory) {
        return Vec::new();
    }
    let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let paths = paths.filter(|path| path.extension().is_some_and(|suffix| suffix == SUFFIX));
    let mut all: Vec<(u32, PathBuf)> = paths
        .filter_map(|path| Some((path.file_stem()?.to_str()?.parse().ok()?, path)))
        .filter(|(_, path)| !remove_if_stale(path))
        .collect();
    all.sort();
    all
}
