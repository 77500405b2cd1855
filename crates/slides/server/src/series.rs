//! Which series in DICOM there are, by the beginnings of files, each of which is read once.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use seekwire_slides_image::{Error, Heading};

use crate::render::work;
use crate::told::Told;

/// A series that is a slide.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// The identifier of the slide.
    pub(crate) id: String,
    pub(crate) heading: Arc<Heading>,
    /// Files whose names say that they are instances.
    pub(crate) files: usize,
}

/// All of them, by the UIDs of study and series.
pub(crate) type Index = BTreeMap<(String, String), Series>;

/// What says whether a file is still the same: inode, length, time.
type Stamp = (u64, u64, i64, i64);

/// Those of a directory, by UID: the first of its files, and how many there are.
pub(crate) type Found = BTreeMap<String, (PathBuf, Arc<Heading>, usize)>;

/// The beginnings of files that were read.
#[derive(Debug, Default)]
pub(crate) struct Headings {
    pub(crate) told: Arc<Told>,
    known: HashMap<PathBuf, (Stamp, Option<Arc<Heading>>)>,
    /// Those that were asked for since the scan began.
    seen: HashMap<PathBuf, (Stamp, Option<Arc<Heading>>)>,
}

impl Headings {
    /// The series of files of one directory. What is no slide, or is broken, is of none.
    pub(crate) fn series(&mut self, mut files: Vec<PathBuf>) -> Found {
        files.sort();
        let mut found = Found::new();
        for file in files {
            let Some((heading, stamp)) = self.heading(&file) else { continue };
            let Some(heading) = heading else {
                self.seen.insert(file, (stamp, None));
                continue;
            };
            let entry = found
                .entry(heading.series.clone())
                .or_insert_with(|| (file.clone(), Arc::clone(&heading), 0));
            entry.2 += 1;
            // Most are the same for all files of a series, and kept once.
            let heading = if *entry.1 == *heading { Arc::clone(&entry.1) } else { heading };
            self.seen.insert(file, (stamp, Some(heading)));
        }
        found
    }

    fn heading(&self, file: &Path) -> Option<(Option<Arc<Heading>>, Stamp)> {
        let data = fs::metadata(file).ok()?;
        let stamp = (data.ino(), data.len(), data.mtime(), data.mtime_nsec());
        if let Some((known, heading)) = self.known.get(file) {
            if *known == stamp {
                return Some((heading.clone(), stamp));
            }
        }
        let heading = match Heading::read(file, &work::limits()) {
            Ok(heading) => heading,
            Err(error) => {
                self.told.warn(error.to_string());
                // One that could not be read now is read again.
                if matches!(error, Error::Io { .. }) {
                    return None;
                }
                None
            }
        };
        Some((heading.map(Arc::new), stamp))
    }

    /// A scan has ended: files that were not asked for are forgotten.
    pub(crate) fn sweep(&mut self) {
        self.known = std::mem::take(&mut self.seen);
        self.told.sweep();
    }
}
