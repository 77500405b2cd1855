//! Finds and preloads `libseekwire.so`, the library that accelerates unmodified programs.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// File name of the library. An installed copy has a version suffix, which is part of its SONAME.
pub const FILE_NAME: &str = "libseekwire.so";

/// Whether a path is that of a copy of the library, with or without a number.
pub fn is_copy(path: &Path) -> bool {
    let behind =
        path.file_name().and_then(|name| name.as_bytes().strip_prefix(FILE_NAME.as_bytes()));
    behind.is_some_and(|behind| behind.is_empty() || behind.starts_with(b"."))
}

/// Names the library explicitly, instead of a search.
const VARIABLE: &str = "SEEKWIRE_LIBRARY";

/// No library was found to load.
#[derive(Debug, Error)]
pub enum NotFound {
    /// It is in none of the usual directories.
    #[error(
        "{FILE_NAME} was not found (looked at {}); build or install it, or set {VARIABLE} to its path",
        listed(looked_at)
    )]
    Nowhere {
        /// All of these paths.
        looked_at: Vec<PathBuf>,
    },
    /// The file that the environment names is no library.
    #[error("{VARIABLE}={}: {why}; set it to the path of {FILE_NAME}, or unset it", path.display())]
    Named {
        /// The named file.
        path: PathBuf,
        /// Why it cannot be used.
        why: String,
    },
}

/// LD_PRELOAD cannot express such a path: the dynamic loader it splits LD_PRELOAD at colons and
/// blanks and expands `$`, with no way to quote them (ld.so(8)).
#[derive(Debug, Error)]
#[error(
    "the path of the library, {}, contains a colon, a blank or a dollar sign, which LD_PRELOAD cannot express; install \
     Seekwire elsewhere",
    library.display()
)]
pub struct Inexpressible {
    library: PathBuf,
}

pub(crate) fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The library to load: the one that `$SEEKWIRE_LIBRARY` names; if that is not set, the one that
/// belongs to the running binary, beside it (as in a build directory) or in `../lib/seekwire` or
/// `../lib` of its directory (as installed). The path is absolute, as LD_PRELOAD needs it once a
/// child changes directory.
///
/// # Errors
///
/// [`NotFound`]. A file that the environment names is used or refused, without a search for others.
pub fn find() -> Result<PathBuf, NotFound> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return named(PathBuf::from(path));
    }
    let own = std::env::current_exe().ok();
    first_file(own.as_deref().and_then(Path::parent).map(beside).into_iter().flatten().collect())
}

fn named(path: PathBuf) -> Result<PathBuf, NotFound> {
    match shared_object(&path) {
        Ok(true) => {
            path.canonicalize().map_err(|error| NotFound::Named { path, why: error.to_string() })
        }
        Ok(false) => Err(NotFound::Named { path, why: "not a shared library".to_owned() }),
        Err(error) => Err(NotFound::Named { path, why: error.to_string() }),
    }
}

/// True if the first bytes of a file are those of a shared object (elf(5): magic and e_type).
fn shared_object(path: &Path) -> io::Result<bool> {
    const TYPE: usize = 16;
    const SHARED: u8 = 3;
    if !path.metadata()?.is_file() {
        return Ok(false);
    }
    let mut header = Vec::new();
    File::open(path)?.take(TYPE as u64 + 2).read_to_end(&mut header)?;
    // The value is below 256, so one of the two bytes holds it, whatever the byte order.
    Ok(header.starts_with(b"\x7fELF")
        && header.get(TYPE..).is_some_and(|kind| kind.contains(&SHARED)))
}

fn beside(directory: &Path) -> [PathBuf; 3] {
    ["", "../lib/seekwire", "../lib"].map(|relative| directory.join(relative).join(FILE_NAME))
}

fn first_file(candidates: Vec<PathBuf>) -> Result<PathBuf, NotFound> {
    match candidates.iter().find(|path| path.is_file()).and_then(|path| path.canonicalize().ok()) {
        Some(path) => Ok(path),
        None => Err(NotFound::Nowhere { looked_at: candidates }),
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
    let is_other =
        |entry: &&[u8]| !entry.is_empty() && !is_copy(Path::new(OsStr::from_bytes(entry)));
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
        let file = first_file(beside(&binaries).to_vec()).unwrap();
        assert_eq!(file, library.join(FILE_NAME).canonicalize().unwrap());
    }

    #[test]
    fn other_preloaded_libraries_are_kept_and_ours_is_named_once() {
        let library = Path::new("/x/libseekwire.so");
        let value = |existing: &str| preload(library, OsStr::new(existing)).unwrap();
        assert_eq!(value(""), "/x/libseekwire.so");
        assert_eq!(value(":/a.so b.so:"), "/x/libseekwire.so:/a.so:b.so");
        assert_eq!(value("/a.so:/y/libseekwire.so"), "/x/libseekwire.so:/a.so");
        assert_eq!(without(OsStr::new("/y/libseekwire.so /a.so")), "/a.so");
        assert_eq!(
            without(OsStr::new("/y/libseekwire.so.0:libseekwire.so.d/a.so")),
            "libseekwire.so.d/a.so"
        );
    }

    #[test]
    fn paths_that_the_loader_would_split_are_refused() {
        for path in ["/a b/libseekwire.so", "/a:b/libseekwire.so", "/$LIB/libseekwire.so"] {
            assert!(preload(Path::new(path), OsStr::new("")).is_err(), "{path}");
        }
    }

    #[test]
    fn the_error_names_the_paths() {
        let error = first_file(beside(Path::new("/nowhere/bin")).to_vec()).unwrap_err().to_string();
        assert!(error.contains("/nowhere/bin/../lib/libseekwire.so"), "{error}");
        assert!(error.contains("SEEKWIRE_LIBRARY"), "{error}");
    }

    #[test]
    fn what_is_named_must_be_a_library() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("any-name.so");
        let refused = |path: &Path| named(path.to_owned()).unwrap_err().to_string();
        assert!(refused(&path).contains("No such file"), "{}", refused(&path));
        assert!(refused(directory.path()).contains("not a shared library"));
        std::fs::write(&path, b"\x7fELF").unwrap();
        assert!(refused(&path).contains("not a shared library"));
        std::fs::write(&path, b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0>\0").unwrap();
        assert_eq!(named(path.clone()).unwrap(), path.canonicalize().unwrap());
    }
}
