//! Finds `libseekwire.so`, the library that accelerates unmodified programs.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// File name of the library.
pub const FILE_NAME: &str = "libseekwire.so";

/// The library is not where it should be.
#[derive(Debug, Error)]
#[error(
    "{FILE_NAME} was not found (looked at {}); build or install it, or set SEEKWIRE_LIBRARY to its path",
    looked_at.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
)]
pub struct NotFound {
    looked_at: Vec<PathBuf>,
}

/// The library that belongs to the running binary: beside it, else `../lib/seekwire/` of its directory, else
/// `$SEEKWIRE_LIBRARY`. The path is absolute, as LD_PRELOAD needs it once a child changes directory.
///
/// # Errors
///
/// [`NotFound`] names every place that was looked at.
pub fn find() -> Result<PathBuf, NotFound> {
    let mut candidates = Vec::new();
    if let Some(directory) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
        candidates.extend(beside(directory));
    }
    candidates
        .extend(std::env::var_os("SEEKWIRE_LIBRARY").filter(|path| !path.is_empty()).map(PathBuf::from));
    first_file(candidates)
}

fn beside(directory: &Path) -> [PathBuf; 2] {
    [directory.join(FILE_NAME), directory.join("../lib/seekwire").join(FILE_NAME)]
}

fn first_file(candidates: Vec<PathBuf>) -> Result<PathBuf, NotFound> {
    match candidates.iter().find(|path| path.is_file()).and_then(|path| path.canonicalize().ok()) {
        Some(path) => Ok(path),
        None => Err(NotFound { looked_at: candidates }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_layout_is_found_and_made_absolute() {
        let prefix = tempfile::tempdir().unwrap();
        let library = prefix.path().join("lib/seekwire");
        let binaries = prefix.path().join("bin");
        std::fs::create_dir_all(&library).unwrap();
        std::fs::create_dir_all(&binaries).unwrap();
        std::fs::write(library.join(FILE_NAME), b"").unwrap();
        let found = first_file(beside(&binaries).to_vec()).unwrap();
        assert_eq!(found, library.join(FILE_NAME).canonicalize().unwrap());
    }

    #[test]
    fn error_names_the_places() {
        let error = first_file(beside(Path::new("/nowhere/bin")).to_vec()).unwrap_err().to_string();
        assert!(error.contains("/nowhere/bin/libseekwire.so"), "{error}");
        assert!(error.contains("SEEKWIRE_LIBRARY"), "{error}");
    }
}
