//! The DICOM series, found by the beginnings of files, each of which is read once.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use seekwire_slides_image::{Error, Heading};

use crate::render::work;
use crate::stamps::Stamp;
use crate::told::Told;

/// A series that is a slide.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// The identifier of the slide.
    pub(crate) id: String,
    pub(crate) heading: Arc<Heading>,
    /// Number of files whose names are those of instances.
    pub(crate) files: usize,
}

/// All series, by the UIDs of study and series.
pub(crate) type Index = BTreeMap<(String, String), Series>;

/// The series of a directory, by the UIDs of study and series.
pub(crate) type Found = BTreeMap<(String, String), Files>;

/// The files of a series in a directory.
#[derive(Debug)]
pub(crate) struct Files {
    /// The first one.
    pub(crate) first: PathBuf,
    pub(crate) heading: Arc<Heading>,
    /// Number of files.
    pub(crate) count: usize,
    /// Files whose instance UID also belongs to an earlier file, and that file. Links to the same
    /// file do not count.
    pub(crate) twins: Vec<(PathBuf, PathBuf)>,
}

/// The stamp of a file, and its heading and instance UID; `None` for files that are not slides.
type Known = (Stamp, Option<(Arc<Heading>, Arc<str>)>);

/// Cached beginnings of files.
#[derive(Debug, Default)]
pub(crate) struct Headings {
    pub(crate) told: Arc<Told>,
    known: HashMap<PathBuf, Known>,
    /// Those requested since the scan began.
    seen: HashMap<PathBuf, Known>,
}

impl Headings {
    /// The series of the files of one directory. Files that are not slides, or are malformed,
    /// belong to none.
    pub(crate) fn series(&mut self, mut files: Vec<PathBuf>) -> Found {
        files.sort();
        let mut found = Found::new();
        let mut instances = HashMap::new();
        for file in files {
            let Some((stamp, known)) = self.heading(&file) else { continue };
            let Some((heading, instance)) = known else {
                self.seen.insert(file, (stamp, None));
                continue;
            };
            let key = (heading.study.clone(), heading.series.clone());
            let entry = found.entry(key.clone()).or_insert_with(|| Files {
                first: file.clone(),
                heading: Arc::clone(&heading),
                count: 0,
                twins: Vec::new(),
            });
            entry.count += 1;
            if !instance.is_empty() {
                let first = instances.entry((key, Arc::clone(&instance)));
                let (first, of) = first.or_insert_with(|| (file.clone(), stamp));
                if *of != stamp {
                    entry.twins.push((file.clone(), first.clone()));
                }
            }
            // Most headings are the same for all files of a series, and stored once.
            let is_same = *entry.heading == *heading;
            let heading = if is_same { Arc::clone(&entry.heading) } else { heading };
            self.seen.insert(file, (stamp, Some((heading, instance))));
        }
        found
    }

    fn heading(&self, file: &Path) -> Option<Known> {
        let data = fs::metadata(file).ok()?;
        let stamp = Stamp::of(&data);
        if let Some((known, heading)) = self.known.get(file)
            && *known == stamp
        {
            return Some((stamp, heading.clone()));
        }
        let heading = match Heading::read(file, &work::limits()) {
            Ok(heading) => heading,
            Err(error) => {
                self.told.warn(error.to_string());
                // A file that cannot be read at the moment is tried again.
                if matches!(error, Error::Io { .. }) {
                    return None;
                }
                None
            }
        };
        Some((stamp, heading.map(|(heading, instance)| (Arc::new(heading), instance.into()))))
    }

    /// Ends a scan: forgets files that were not requested.
    pub(crate) fn sweep(&mut self) {
        self.known = std::mem::take(&mut self.seen);
        self.told.sweep();
    }
}
