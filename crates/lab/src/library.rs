//! `libseekwire.so`, the library that accelerates unmodified programs: where it is, and how it is preloaded.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
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

/// The dynamic loader cannot be told to preload from such a path: it splits LD_PRELOAD at colons and blanks and expands
/// `$`, with no way to quote them (ld.so(8)).
#[derive(Debug, Error)]
#[error(
    "the path of the library, {}, contains a colon, a blank or a dollar sign, which LD_PRELOAD cannot express; install \
     Seekwire elsewhere",
    library.display()
)]
pub struct Inexpressible {
    library: PathBuf,
}

/// The library that belongs to the running binary: beside it (as in a build directory), else in `../lib/seekwire` or
/// `../lib` of its directory (as installed), else `$SEEKWIRE_LIBRARY`. The path is absolute, as LD_PRELOAD needs it once a child changes directory.
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

fn beside(directory: &Path) -> [PathBuf; 3] {
    ["", "../lib/seekwire", "../lib"].map(|place| directory.join(place).join(FILE_NAME))
}

fn first_file(candidates: Vec<PathBuf>) -> Result<PathBuf, NotFound> {
    match candidates.iter().find(|path| path.is_file()).and_then(|path| path.canonicalize().ok()) {
        Some(path) => Ok(path),
        None => Err(NotFound { looked_at: candidates }),
    }
}

/// The value of LD_PRELOAD that loads `library` before everything that `existing` asks for.
///
/// # Errors
///
/// [`Inexpressible`].
pub fn preload(library: &Path, existing: &OsStr) -> Result<OsString, Inexpressible> {
    let path = library.as_os_str();
    if path.as_bytes().iter().any(|byte| b" :$".contains(byte)) {
        return Err(Inexpressible { library: library.to_owned() });
    }
    let mut value = path.to_owned();
    let others = without(existing);
    if !others.is_empty() {
        value.push(":");
        value.push(others);
    }
    Ok(value)
}

/// A value of LD_PRELOAD without any copy of the library.
pub fn without(existing: &OsStr) -> OsString {
    let is_other = |entry: &&[u8]| {
        let name = Path::new(OsStr::from_bytes(entry)).file_name();
        !entry.is_empty() && name != Some(OsStr::new(FILE_NAME))
    };
    let entries: Vec<&[u8]> =
        existing.as_bytes().split(|byte| b" :".contains(byte)).filter(is_other).collect();
    OsString::from_vec(entries.join(&b':'))
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
    fn other_preloaded_libraries_are_kept_and_ours_is_named_once() {
        let library = Path::new("/x/libseekwire.so");
        let value = |existing: &str| preload(library, OsStr::new(existing)).unwrap();
        assert_eq!(value(""), "/x/libseekwire.so");
        assert_eq!(value(":/a.so b.so:"), "/x/libseekwire.so:/a.so:b.so");
        assert_eq!(value("/a.so:/y/libseekwire.so"), "/x/libseekwire.so:/a.so");
        assert_eq!(without(OsStr::new("/y/libseekwire.so /a.so")), "/a.so");
    }

    #[test]
    fn paths_that_the_loader_would_split_are_refused() {
        for path in ["/a b/libseekwire.so", "/a:b/libseekwire.so", "/$LIB/libseekwire.so"] {
            assert!(preload(Path::new(path), OsStr::new("")).is_err(), "{path}");
        }
    }

    #[test]
    fn error_names_the_places() {
        let error = first_file(beside(Path::new("/nowhere/bin")).to_vec()).unwrap_err().to_string();
        assert!(error.contains("/nowhere/bin/../lib/libseekwire.so"), "{error}");
        assert!(error.contains("SEEKWIRE_LIBRARY"), "{error}");
    }
}
