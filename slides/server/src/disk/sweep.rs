//! Scans a directory. It only remembers how many bytes were last used in each minute, so a million
//! files take no more memory than a few.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry, Metadata};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The disk space of a file is a multiple of this.
const BLOCK: u64 = 4096;
/// Prefix of the names of files being written.
pub(super) const UNFINISHED: &str = ".new-";
/// An unfinished file of this age was left by a server that was killed.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The result of a scan.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Swept {
    /// Bytes that remain.
    pub(super) held: u64,
    /// Number of files that were removed.
    pub(super) removed: u64,
}

/// Removes the least recently used files until at most `allowed` bytes remain. Files whose names
/// are not those of images are not touched.
pub(super) fn sweep(directory: &Path, allowed: u64) -> Swept {
    let mut ages: BTreeMap<u64, u64> = BTreeMap::new();
    let mut held = 0;
    each(directory, |data, _| {
        let size = size_on_disk(data.len());
        held += size;
        *ages.entry(minute(data)).or_default() += size;
    });
    let mut excess = held.saturating_sub(allowed);
    // All files last used before some minute are removed, and those of that minute as far as
    // necessary.
    let mut gone = 0;
    let last = ages.iter().find(|(_, size)| {
        gone += **size;
        gone >= excess
    });
    let Some((last, _)) = last.filter(|_| excess > 0) else { return Swept { held, removed: 0 } };
    let mut removed = 0;
    each(directory, |data, path| {
        let at = minute(data);
        let size = size_on_disk(data.len());
        if at > *last || (at == *last && excess == 0) {
            return;
        }
        // Another server may have removed it already.
        let is_gone = fs::remove_file(path)
            .map_or_else(|error| error.kind() == std::io::ErrorKind::NotFound, |()| true);
        if is_gone {
            held = held.saturating_sub(size);
            excess = excess.saturating_sub(size);
            removed += 1;
        }
    });
    Swept { held, removed }
}

/// Disk space of a file of so many bytes.
pub(super) fn size_on_disk(length: u64) -> u64 {
    length.div_ceil(BLOCK) * BLOCK
}

/// When a file was last used, in minutes.
fn minute(data: &Metadata) -> u64 {
    let at = data.modified().unwrap_or(UNIX_EPOCH);
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 60
}

/// Visits all images. Files left unfinished for long are removed.
fn each(directory: &Path, mut look: impl FnMut(&Metadata, &Path)) {
    let entries = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten();
    let is_name = |entry: &DirEntry, digits: usize| {
        let name = entry.file_name();
        let mut bytes = name.as_encoded_bytes().iter();
        name.len() == digits && bytes.all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    for folder in entries(directory).filter(|entry| is_name(entry, 2)) {
        if !folder.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        for entry in entries(&folder.path()) {
            // Metadata of the entry itself, not of a link's target.
            let Ok(data) = entry.metadata() else { continue };
            if !data.is_file() {
                continue;
            }
            if is_name(&entry, 64) {
                look(&data, &entry.path());
            } else if entry.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes()) {
                let age =
                    data.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
                if age.is_some_and(|age| age > ABANDONED) {
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
    }
}
