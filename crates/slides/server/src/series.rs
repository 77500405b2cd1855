//! Which series in DICOM there are, by the beginnings of files, each of which is read once.

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
    /// Files whose names say that they are instances.
    pub(crate) files: usize,
}

/// All of them, by the UIDs of study and series.
pub(crate) type Index = BTreeMap<(String, String), Series>;

/// Those of a directory, by the UIDs of study and series.
pub(crate) type Found = BTreeMap<(String, String), Files>;

/// The files of a series in a directory.
#[derive(Debug)]
pub(crate) struct Files {
    /// The first one.
    pub(crate) first: PathBuf,
    pub(crate) heading: Arc<Heading>,
    /// How many there are.
    pub(crate) count: usize,
    /// Those with the UID of an instance that another file before them has, and that one. Links to
    /// the same file are none of them.
    pub(crate) twins: Vec<(PathBuf, PathBuf)>,
}

/// Files that are no slides have no heading; others that, and the UID of their instance.
type Known = (Stamp, Option<(Arc<Heading>, Arc<str>)>);

/// The beginnings of files that were read.
#[derive(Debug, Default)]
pub(crate) struct Headings {
    pub(crate) told: Arc<Told>,
    known: HashMap<PathBuf, Known>,
    /// Those that were asked for since the scan began.
    seen: HashMap<PathBuf, Known>,
}

impl Headings {
    /// The series of files of one directory. What is no slide, or is broken, is of none.
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
            // Most are the same for all files of a series, and kept once.
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
                // One that could not be read now is read again.
                if matches!(error, Error::Io { .. }) {
                    return None;
                }
                None
            }
        };
        Some((stamp, heading.map(|(heading, instance)| (Arc::new(heading), instance.into()))))
    }

    /// A scan has ended: files that were not asked for are forgotten.
    pub(crate) fn sweep(&mut self) {
        self.known = std::mem::take(&mut self.seen);
        self.told.sweep();
    }
}
