//! Decides whether files belong to a directory by their real paths: a symbolic link may lead
//! elsewhere.

use crate::{Error, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The real path of a directory.
pub(crate) fn real(path: &Path) -> Result<PathBuf> {
    let io = |source| Error::Io { name: path.display().to_string(), source };
    std::fs::canonicalize(path).map_err(io)
}

/// The real path of a file, which must be inside the directory whose real path is `root`.
pub(crate) fn inside(path: &Path, root: &Path) -> Result<PathBuf> {
    let real = real(path)?;
    if real.starts_with(root) {
        return Ok(real);
    }
    let source = std::io::Error::new(
        ErrorKind::PermissionDenied,
        "a symbolic link that leads out of the directory",
    );
    Err(Error::Io { name: path.display().to_string(), source })
}
