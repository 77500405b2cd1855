//! Slides in DICOM: instances of VL Whole Slide Microscopy Image Storage (PS3.3, A.32.8). A level,
//! a label, an overview and a thumbnail are one each, or several that are concatenated.

mod element;
mod frames;
mod header;
mod heading;
mod instance;
mod json;
mod tiles;

pub(crate) use header::is;
pub use heading::Heading;
pub use instance::Instance;

use crate::grid::{Parts, microns};
use crate::source::{FileSource, Source};
use crate::{Error, Limits, Result, within};
use instance::Kind;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The SOP class of slides.
const SLIDE: &str = "1.2.840.10008.5.1.4.1.1.77.1.6";

/// The series that a slide is, for DICOMweb.
pub struct Dicom {
    instances: Vec<Arc<Instance>>,
}

impl Dicom {
    /// The UID of the study.
    pub fn study(&self) -> &str {
        &self.instances[0].header.study
    }

    /// The UID of the series.
    pub fn series(&self) -> &str {
        &self.instances[0].header.series
    }

    /// The instances: the largest images first, among these the levels.
    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter().map(|instance| &**instance)
    }

    /// The instance of a UID.
    pub fn instance(&self, uid: &str) -> Option<&Instance> {
        self.instances().find(|instance| instance.uid() == uid)
    }
}

/// Opens an instance that is alone.
pub(crate) fn open(source: &Arc<dyn Source>, limits: &Limits) -> Result<Parts> {
    parts(vec![Instance::open(source, limits)?], source.name(), limits)
}

/// Opens a file with the others of its series in the same directory, where links may lead to what
/// is inside of `root`, or of that directory.
pub(crate) fn beside(
    path: &Path,
    root: Option<&Path>,
    source: &Arc<dyn Source>,
    limits: &Limits,
) -> Result<Parts> {
    let first = Instance::open(source, limits)?;
    let series = first.header.series.clone();
    let mut instances = vec![first];
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    for other in files(parent, root.unwrap_or(parent), limits)? {
        // What is wrong with files of others is not asked.
        if other != path && series_of(&other, limits).ok().flatten().as_ref() == Some(&series) {
            instances.push(instance(&other, limits)?);
        }
    }
    parts(instances, source.name(), limits)
}

/// Opens the only series in a directory, where links may lead to what is inside of `root`; `None`
/// if there is no slide.
pub(crate) fn directory(path: &Path, root: &Path, limits: &Limits) -> Result<Option<Parts>> {
    let found = by_series(path, root, limits)?;
    let name = path.display().to_string();
    if found.len() > 1 {
        let series: Vec<String> = found.into_keys().take(8).collect();
        let what = format!("a directory of several series: {}", series.join(", "));
        return Err(Error::Unsupported { name, what });
    }
    let Some(files) = found.into_values().next() else { return Ok(None) };
    let instances: Result<Vec<Instance>> =
        files.iter().map(|file| instance(file, limits)).collect();
    parts(instances?, &name, limits).map(Some)
}

/// A file of the only series in a directory.
pub(crate) fn of_one(path: &Path, root: &Path, limits: &Limits) -> Result<Option<PathBuf>> {
    let mut found = by_series(path, root, limits)?.into_values();
    let (first, other) = (found.next(), found.next());
    Ok(first.filter(|_| other.is_none()).and_then(|files| files.into_iter().next()))
}

fn by_series(path: &Path, root: &Path, limits: &Limits) -> Result<BTreeMap<String, Vec<PathBuf>>> {
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in files(path, root, limits)? {
        if let Some(series) = series_of(&file, limits)? {
            found.entry(series).or_default().push(file);
        }
    }
    Ok(found)
}

fn instance(path: &Path, limits: &Limits) -> Result<Instance> {
    let source: Arc<dyn Source> = Arc::new(FileSource::open(path)?);
    Instance::open(&source, limits)
}

/// The series of a file; `None` if it is none of a slide in DICOM.
fn series_of(path: &Path, limits: &Limits) -> Result<Option<String>> {
    let source = FileSource::open(path)?;
    if is(&source)? { header::series(&source, limits) } else { Ok(None) }
}

/// The files in a directory, in the order of their names. Links that lead out of `root` are left
/// out.
fn files(directory: &Path, root: &Path, limits: &Limits) -> Result<Vec<PathBuf>> {
    let name = || directory.display().to_string();
    let io = |source| Error::Io { name: name(), source };
    let root = within::real(root)?;
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(io)? {
        let entry = entry.map_err(io)?;
        let (kind, path) = (entry.file_type().map_err(io)?, entry.path());
        let is_inside = || within::inside(&path, &root).is_ok_and(|real| real.is_file());
        if kind.is_file() || (kind.is_symlink() && is_inside()) {
            paths.push(path);
        }
        if paths.len() > limits.files {
            let what = format!("more than {} files in a directory", limits.files);
            return Err(Error::Limit { name: name(), what });
        }
    }
    paths.sort();
    Ok(paths)
}

/// Makes levels and associated images of the instances of a series.
fn parts(mut instances: Vec<Instance>, name: &str, limits: &Limits) -> Result<Parts> {
    let area = |of: &Instance| u64::from(of.header.total_columns) * u64::from(of.header.total_rows);
    instances
        .sort_by(|one, other| area(other).cmp(&area(one)).then_with(|| one.uid().cmp(other.uid())));
    // A file may be there twice: the one that was opened, or a copy.
    instances.dedup_by(|one, other| one.uid() == other.uid());
    let mut parts = Parts { format: "dicom", ..Parts::default() };
    let Some(main) = instances.iter().find(|instance| instance.kind() == Some(Kind::Level)) else {
        let what = "a series without an image of the type VOLUME".into();
        return Err(Error::Unsupported { name: name.into(), what });
    };
    let of = &main.header;
    parts.microns = match of.spacing {
        Some((row, column)) => microns(column * 1000.0, row * 1000.0),
        None => microns(
            f64::from(of.volume.0) * 1000.0 / f64::from(of.total_columns),
            f64::from(of.volume.1) * 1000.0 / f64::from(of.total_rows),
        ),
    };
    parts.properties = of.properties.clone();
    parts.icc = of.icc.clone();
    // Each level has one, which may be large.
    let without = |mut instance: Instance| {
        instance.header.icc = None;
        Arc::new(instance)
    };
    let instances: Vec<Arc<Instance>> = instances.into_iter().map(without).collect();

    let mut images: BTreeMap<(Kind, &str), Vec<Arc<Instance>>> = BTreeMap::new();
    for instance in &instances {
        let Some(kind) = instance.kind() else { continue };
        let of = &instance.header;
        let alone = of.concatenation.is_empty();
        let key = if alone { of.instance.as_str() } else { of.concatenation.as_str() };
        images.entry((kind, key)).or_default().push(Arc::clone(instance));
    }
    for ((kind, _), image) in images {
        let grid = tiles::grid(image, limits)?;
        match kind {
            Kind::Level => parts.levels.push(grid),
            Kind::Associated(name) => {
                parts.associated.entry(name.into()).or_insert(grid);
            }
        }
    }
    parts.sort();
    parts.dicom = Some(Dicom { instances });
    Ok(parts)
}
