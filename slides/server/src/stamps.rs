//! Stamps identify states of files by inode, length and times. A slide in several files is
//! identified by a hash of their names and stamps as well.

use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::render::work;

/// Files that describe groups and arrays of Zarr, in both versions of the format.
const DESCRIPTIONS: [&str; 4] = ["zarr.json", ".zattrs", ".zgroup", ".zarray"];
/// Maximum nesting of groups in an OME-Zarr image, including arrays.
const DEEPEST: usize = 2;
/// Maximum names examined in an OME-Zarr image.
const MOST: usize = 1024;

/// The stamp of a file: inode, length, and the times of its last modification and status change.
/// Programs that repair a file may restore the modification time; nothing sets the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp([i64; 6]);

impl Stamp {
    pub(crate) fn of(data: &Metadata) -> Self {
        let [inode, length] = [data.ino(), data.len()].map(|number| number as i64);
        let (changed, status) = (data.mtime(), data.ctime());
        Self([inode, length, changed, data.mtime_nsec(), status, data.ctime_nsec()])
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [inode, length, changed, part, status, part_of_status] = self.0;
        write!(f, "{inode}-{length}-{changed}.{part}-{status}.{part_of_status}")
    }
}

/// The directory with the other files of a slide that OpenSlide opens by this one: those of MIRAX
/// are in a directory of the same name, and those of VMS and VMU beside it.
pub(crate) fn companions(file: &Path) -> Option<PathBuf> {
    match file.extension()?.to_str()?.to_lowercase().as_str() {
        "mrxs" => Some(file.with_extension("")),
        "vms" | "vmu" => file.parent().map(Path::to_owned),
        _ => None,
    }
}

/// The stamp of all files in a directory.
pub(crate) fn all(directory: &Path) -> String {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = files.take(work::limits().files_beside).map(|entry| entry.path());
    hash(directory, files.collect())
}

/// The stamp of an OME-Zarr image: of the files that describe it. Chunks, of which there may be
/// millions, are not examined.
pub(crate) fn image(store: &Path) -> String {
    let mut described = Vec::new();
    let mut left = MOST;
    let mut todo = vec![(store.to_owned(), 0)];
    while let Some((directory, depth)) = todo.pop() {
        let files = DESCRIPTIONS.map(|name| directory.join(name));
        let length = described.len();
        described.extend(files.into_iter().filter(|file| file.is_file()));
        // Directories inside an array, or without a description, hold chunks.
        let is_array = described.last().is_some_and(|file| file.ends_with(".zarray"));
        if is_array || described.len() == length || depth == DEEPEST {
            continue;
        }
        let below = fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in below.take(left) {
            left -= 1;
            if entry.path().is_dir() {
                todo.push((entry.path(), depth + 1));
            }
        }
    }
    hash(store, described)
}

fn hash(below: &Path, mut files: Vec<PathBuf>) -> String {
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let Ok(data) = fs::metadata(&file) else { continue };
        let name = file.strip_prefix(below).unwrap_or(&file);
        hash.update(name.as_os_str().as_bytes());
        hash.update(b"\0");
        for number in Stamp::of(&data).0 {
            hash.update(number.to_le_bytes());
        }
    }
    hexadecimal(&hash.finalize()[..8])
}

/// Encodes each byte with two digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.extend(
            [byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_description_counts_and_no_chunk_does() {
        let directory = tempfile::tempdir().unwrap();
        let described = [
            ["", ".zattrs"],
            ["", ".zgroup"],
            ["0", ".zattrs"],
            ["0/0", ".zarray"],
            ["0/1", ".zarray"],
            ["1", "zarr.json"],
            ["1/a", "zarr.json"],
        ];
        let path = |[below, name]: [&str; 2]| directory.path().join(below).join(name);
        for one in described {
            fs::create_dir_all(path(one).parent().unwrap()).unwrap();
            fs::write(path(one), "{}").unwrap();
        }
        let chunks = [["0/0/7", "1"], ["1/a/c", "0"], ["0/0/7", ".zarray"]];
        for chunk in chunks {
            fs::create_dir_all(path(chunk).parent().unwrap()).unwrap();
        }
        let mut before = image(directory.path());
        for chunk in chunks {
            fs::write(path(chunk), "chunk").unwrap();
            assert_eq!(image(directory.path()), before, "{chunk:?}");
        }
        for one in described {
            fs::write(path(one), "{  }").unwrap();
            let after = image(directory.path());
            assert_ne!(after, before, "{one:?}");
            before = after;
        }
        fs::rename(path(["0", ".zattrs"]), path(["0", ".other"])).unwrap();
        assert_ne!(image(directory.path()), before);
    }
}
