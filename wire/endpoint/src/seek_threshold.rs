//! A measurement of this machine: the average size of messages from which taking them in place is
//! cheaper than moving everything that has arrived into library memory
//! ([`seekwire_transport::seek::cost`]).
//!
//! Kept in a file of the user's, `$XDG_CACHE_HOME/seekwire/tuning` (else
//! `~/.cache/seekwire/tuning`), written by `seekwire calibrate` and read by the first seek of a
//! process. Lines of `name=value`. A file of another host, kernel or user does not count; without a
//! file, the built-in default applies.

use std::env;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Once;

use seekwire_transport::seek::cost;
use seekwire_transport::sys::host;

use crate::config::Config;

/// The largest average size that is stored, in bytes: larger messages are always taken in place.
pub const MOST: u32 = 256 << 10;

/// The origin of the switch-over size.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ThresholdSource {
    /// SEEKWIRE_SEEK_SWITCH.
    Environment,
    /// Measured on this host, in this file.
    Measured(PathBuf),
    /// Built in.
    Default,
}

/// The path of the file, if there is a place for it.
#[must_use]
pub fn path() -> Option<PathBuf> {
    let absolute =
        |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("seekwire/tuning"))
}

/// The average size in bytes at which the ways change over, and its origin.
#[must_use]
pub fn seek_switch() -> (u32, ThresholdSource) {
    if let Some(bytes) = Config::get().seek_switch {
        return (bytes, ThresholdSource::Environment);
    }
    let measured = path().and_then(|path| Some((load(&path)?, ThresholdSource::Measured(path))));
    measured.unwrap_or((cost::DEFAULT_SWITCH, ThresholdSource::Default))
}

/// Applies the measured size, once for this process.
pub fn apply() {
    static APPLIED: Once = Once::new();
    APPLIED.call_once(|| cost::set_switch(seek_switch().0));
}

/// Makes this process change over at another average size, in bytes: for measuring.
pub fn set_seek_switch(bytes: u32) {
    apply();
    cost::set_switch(bytes);
}

/// Stores a measured size, in bytes.
///
/// # Errors
/// Those of writing the file.
pub fn store(path: &Path, seek_switch: u32) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    // A reader finds the old file or the new one.
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let text = format!("host={}\nseek_switch={}\n", host::fingerprint(), seek_switch.min(MOST));
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    std::fs::rename(&new, path)
}

/// The stored size, if the file is of this host and user.
fn load(path: &Path) -> Option<u32> {
    let text = host::read_own_file(path)?;
    let value =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    (value("host")? == host::fingerprint()).then_some(())?;
    value("seek_switch")?.parse().ok().filter(|bytes| *bytes <= MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_loaded_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache/tuning");
        assert_eq!(load(&path), None);
        store(&path, 5000).unwrap();
        assert_eq!(load(&path), Some(5000));
        store(&path, u32::MAX).unwrap();
        assert_eq!(load(&path), Some(MOST));
        for text in ["host=another\nseek_switch=5\n", "seek_switch=5\n", "", "host"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(load(&path), None, "{text:?}");
        }
    }
}
