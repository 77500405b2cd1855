//! The DICOM series, found by the beginnings of files, each of which is read once.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use seekwire_slides_image::{DatasetSummary, Error};

use crate::render::work;
use crate::stamps::Stamp;
use crate::warn_once::WarnOnce;

/// A series that is a slide.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// The identifier of the slide.
    pub(crate) id: String,
    pub(crate) heading: Arc<DatasetSummary>,
    /// Number of files whose names are those of instances.
    pub(crate) files: usize,
}

/// All series, by the UIDs of study and series.
pub(crate) type Index = BTreeMap<(String, String), Series>;

/// The series of a directory, by the UIDs of study and series.
pub(crate) type SeriesByUid = BTreeMap<(String, String), SeriesFiles>;

/// The files of a series in a directory.
#[derive(Debug)]
pub(crate) struct SeriesFiles {
    /// The first one.
    pub(crate) first: PathBuf,
    pub(crate) heading: Arc<DatasetSummary>,
    /// Number of files.
    pub(crate) count: usize,
    /// Files whose instance UID also belongs to an earlier file, and that file. Links to the same
    /// file do not count.
    pub(crate) twins: Vec<(PathBuf, PathBuf)>,
}

/// The stamp of a file, and its heading and instance UID; `None` for files that are not slides.
type HeadingEntry = (Stamp, Option<(Arc<DatasetSummary>, Arc<str>)>);

/// Cached beginnings of files.
#[derive(Debug, Default)]
pub(crate) struct Headings {
    pub(crate) warnings: Arc<WarnOnce>,
    entries: HashMap<PathBuf, HeadingEntry>,
    /// Those requested since the scan began.
    seen: HashMap<PathBuf, HeadingEntry>,
}

impl Headings {
    /// The series of the files of one directory. Files that are not slides, or are malformed,
    /// belong to none.
    pub(crate) fn series(&mut self, mut files: Vec<PathBuf>) -> SeriesByUid {
        files.sort();
        let mut series = SeriesByUid::new();
        let mut instances = HashMap::new();
        for file in files {
            let Some((stamp, entry)) = self.heading(&file) else { continue };
            let Some((heading, instance)) = entry else {
                self.seen.insert(file, (stamp, None));
                continue;
            };
            let key = (heading.study.clone(), heading.series.clone());
            let entry = series.entry(key.clone()).or_insert_with(|| SeriesFiles {
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
        series
    }

    fn heading(&self, file: &Path) -> Option<HeadingEntry> {
        let data = fs::metadata(file).ok()?;
        let stamp = Stamp::of(&data);
        if let Some((cached, heading)) = self.entries.get(file)
            && *cached == stamp
        {
            return Some((stamp, heading.clone()));
        }
        let heading = match DatasetSummary::read(file, &work::limits()) {
            Ok(heading) => heading,
            Err(error) => {
                self.warnings.warn(error.to_string());
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
        self.entries = std::mem::take(&mut self.seen);
        self.warnings.sweep();
    }
}
