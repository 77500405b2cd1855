//! How the loader is told of libseekwire.so.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use anyhow::{Result, bail};

/// The value of `LD_PRELOAD` that loads `library` before whatever `existing` asks for.
///
/// # Errors
///
/// The loader splits the value at colons and spaces and expands `$`, with no way to quote them (ld.so(8)).
pub(crate) fn preload_value(library: &Path, existing: Option<&OsStr>) -> Result<OsString> {
    let path = library.as_os_str().as_bytes();
    if let Some(bad) = path.iter().find(|byte| b" :$".contains(byte)) {
        bail!(
            "the path of the library, {}, contains {:?}, which LD_PRELOAD cannot express; install Seekwire elsewhere",
            library.display(),
            char::from(*bad)
        );
    }
    let others = existing.map(OsStr::as_bytes).unwrap_or_default();
    let mut value = path.to_vec();
    for other in others.split(|byte| b" :".contains(byte)) {
        if !other.is_empty() && other != path {
            value.push(b':');
            value.extend_from_slice(other);
        }
    }
    Ok(OsString::from_vec(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(existing: Option<&str>, expected: &str) {
        let value = preload_value(Path::new("/x/libseekwire.so"), existing.map(OsStr::new)).unwrap();
        assert_eq!(value, OsStr::new(expected));
    }

    #[test]
    fn existing_preloads_are_kept_after_ours() {
        check(None, "/x/libseekwire.so");
        check(Some(""), "/x/libseekwire.so");
        check(Some("/a.so b.so"), "/x/libseekwire.so:/a.so:b.so");
        check(Some(":/a.so::"), "/x/libseekwire.so:/a.so");
    }

    #[test]
    fn ours_is_named_once() {
        check(Some("/a.so:/x/libseekwire.so"), "/x/libseekwire.so:/a.so");
    }

    #[test]
    fn paths_that_the_loader_would_split_are_refused() {
        for path in ["/a b/libseekwire.so", "/a:b/libseekwire.so", "/$LIB/libseekwire.so"] {
            assert!(preload_value(Path::new(path), None).is_err(), "{path}");
        }
    }
}
