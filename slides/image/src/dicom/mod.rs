//! Slides in DICOM: instances of VL Whole Slide Microscopy Image Storage (PS3.3, A.32.8). A level,
//! a label, an overview and a thumbnail are one each, or several that are concatenated.

mod characters;
mod dataset_summary;
mod element;
mod frames;
mod header;
mod instance;
mod json;
mod levels;
mod series;
mod tiles;

pub use dataset_summary::DatasetSummary;
pub(crate) use header::is;
pub use instance::{Dicom, Instance};

use crate::files::ClosedSource;
use crate::grid::{Parts, microns};
use crate::source::{self, FileSource, Source};
use crate::{Error, Limits, Result, real_path};
use header::Names;
use instance::InstanceKind;
use series::Series;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tiles::{Paths, TiledImage};

/// Opens a single instance.
pub(crate) fn open(source: &Arc<dyn Source>, limits: &Limits) -> Result<Parts> {
    let mut series = Series::new(limits);
    series.add(source)?;
    parts(series, source.name(), limits)
}

/// Opens a file with the others of its series in the same directory. Links may lead to anything
/// inside `root`, or else inside that directory.
pub(crate) fn beside(
    path: &Path,
    root: Option<&Path>,
    source: &Arc<dyn Source>,
    limits: &Limits,
) -> Result<Parts> {
    let mut series = Series::new(limits);
    series.add(source)?;
    let first = &series.instances[0].header;
    let (study, uid) = (first.study.clone(), first.series.clone());
    let mut seen = HashSet::from([first.instance.clone()]);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    for other in files(parent, root.unwrap_or(parent), limits)? {
        if other == path {
            continue;
        }
        let names = match names_of(&other, limits) {
            Ok(Some(names)) => names,
            Err(error) if source::is_full(&error) => return Err(error),
            // Faults of unrelated files do not matter.
            _ => continue,
        };
        if (&names.study, &names.series) == (&study, &uid) && is_new(&mut seen, names.instance) {
            series.add(&file(&other)?)?;
        }
    }
    parts(series, source.name(), limits)
}

/// Opens the only series in a directory, where links may lead to anything inside `root`; `None` if
/// there is no slide.
pub(crate) fn directory(path: &Path, root: &Path, limits: &Limits) -> Result<Option<Parts>> {
    let series_files = by_series(path, root, limits)?;
    let name = path.display().to_string();
    if series_files.len() > 1 {
        let series: Vec<String> =
            series_files.into_keys().map(|(_, series)| series).take(8).collect();
        let what = format!("a directory of several series: {}", series.join(", "));
        return Err(Error::Unsupported { name, what });
    }
    let Some(files) = series_files.into_values().next() else { return Ok(None) };
    let mut series = Series::new(limits);
    for path in files {
        series.add(&file(&path)?)?;
    }
    parts(series, &name, limits).map(Some)
}

/// A file of the only series in a directory.
pub(crate) fn of_one(path: &Path, root: &Path, limits: &Limits) -> Result<Option<PathBuf>> {
    let mut series_files = by_series(path, root, limits)?.into_values();
    let (first, other) = (series_files.next(), series_files.next());
    Ok(first.filter(|_| other.is_none()).and_then(|files| files.into_iter().next()))
}

/// Files by the UIDs of study and series.
type BySeries = BTreeMap<(String, String), Vec<PathBuf>>;

fn by_series(path: &Path, root: &Path, limits: &Limits) -> Result<BySeries> {
    let mut series_files: BTreeMap<(String, String), (Vec<PathBuf>, HashSet<String>)> =
        BTreeMap::new();
    for file in files(path, root, limits)? {
        if let Some(names) = names_of(&file, limits)? {
            let (files, seen) = series_files.entry((names.study, names.series)).or_default();
            if is_new(seen, names.instance) {
                files.push(file);
            }
        }
    }
    Ok(series_files.into_iter().map(|(series, (files, _))| (series, files)).collect())
}

fn file(path: &Path) -> Result<Arc<dyn Source>> {
    Ok(Arc::new(ClosedSource::open(path)?))
}

/// The names of a file; `None` if it is not a slide in DICOM.
fn names_of(path: &Path, limits: &Limits) -> Result<Option<Names>> {
    let source = FileSource::open(path)?;
    if is(&source)? { header::names(&source, limits) } else { Ok(None) }
}

/// True if the instance has not been seen before: only the beginning of a copy of a file, or of a
/// link to it, is read.
fn is_new(seen: &mut HashSet<String>, instance: String) -> bool {
    instance.is_empty() || seen.insert(instance)
}

/// The files in a directory, sorted by name. Links that lead out of `root` are left out.
fn files(directory: &Path, root: &Path, limits: &Limits) -> Result<Vec<PathBuf>> {
    let name = || directory.display().to_string();
    let io = |source| Error::Io { name: name(), source };
    let root = real_path::real(root)?;
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(io)? {
        let entry = entry.map_err(io)?;
        let (kind, path) = (entry.file_type().map_err(io)?, entry.path());
        let is_inside = || real_path::inside(&path, &root).is_ok_and(|real| real.is_file());
        if kind.is_file() || (kind.is_symlink() && is_inside()) {
            paths.push(path);
        }
        if paths.len() > limits.files_beside {
            let what = format!("more than {} files in a directory", limits.files_beside);
            return Err(Error::Limit { name: name(), what });
        }
    }
    paths.sort();
    Ok(paths)
}

/// Makes levels and associated images from the instances of a series.
fn parts(series: Series<'_>, name: &str, limits: &Limits) -> Result<Parts> {
    let Series { mut instances, mut room, icc, .. } = series;
    instances.sort_by(series::order);
    let mut parts = Parts { format: "dicom", ..Parts::default() };
    let Some(main) = instances.iter().find(|instance| instance.kind() == Some(InstanceKind::Level))
    else {
        let what = "a series without an image of the type VOLUME".into();
        return Err(Error::Unsupported { name: name.into(), what });
    };
    let of = &main.header;
    let main = main.uid().to_owned();
    parts.microns = match of.spacing {
        Some((row, column)) => microns(column * 1000.0, row * 1000.0),
        None => microns(
            f64::from(of.volume.0) * 1000.0 / f64::from(of.total_columns),
            f64::from(of.volume.1) * 1000.0 / f64::from(of.total_rows),
        ),
    };
    parts.properties = of.properties.clone();
    parts.icc = icc;
    parts.state = instances.iter().map(Instance::state).collect();
    let instances: Vec<Arc<Instance>> = instances.into_iter().map(Arc::new).collect();

    let mut images: BTreeMap<(InstanceKind, &str), Vec<Arc<Instance>>> = BTreeMap::new();
    for instance in &instances {
        let Some(kind) = instance.kind() else { continue };
        let of = &instance.header;
        let alone = of.concatenation.is_empty();
        let key = if alone { of.instance.as_str() } else { of.concatenation.as_str() };
        images.entry((kind, key)).or_default().push(Arc::clone(instance));
    }
    let mut levels: Vec<Arc<TiledImage>> = Vec::new();
    for ((kind, _), image) in images {
        let image = Arc::new(tiles::image(image, limits, &mut room)?);
        match kind {
            InstanceKind::Level => levels.push(image),
            InstanceKind::Associated(name) => {
                parts.associated.entry(name.into()).or_insert_with(|| Paths::first(&image).grid());
            }
        }
    }
    levels::fill(&mut parts, levels, &main, name, limits)?;
    parts.dicom = Some(Dicom { instances });
    Ok(parts)
}
