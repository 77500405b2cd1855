//! Detects the format of a file or a directory.

use crate::grid::Parts;
use crate::source::{self, FileSource, Source};
use crate::zarr::{self, DirectoryStore};
use crate::{Error, Limits, Result, dicom, openslide, real_path, tiff};
use std::path::Path;
use std::sync::Arc;

/// Opens a file or a directory. Files are read only inside `root`; if that is `None`, inside the
/// directory itself or, for a DICOM file, its parent directory.
pub(crate) fn at(path: &Path, root: Option<&Path>, limits: &Limits) -> Result<Parts> {
    let root = root.map(real_path::real).transpose()?;
    if let Some(root) = &root {
        real_path::inside(path, root)?;
    }
    if path.is_dir() {
        let root = root.as_deref().unwrap_or(path);
        if zarr::is(path) {
            return zarr::open(Arc::new(DirectoryStore::within(path, root)), limits);
        }
        return match dicom::directory(path, root, limits) {
            Ok(Some(parts)) => Ok(parts),
            Ok(None) => Err(Error::Unsupported {
                name: path.display().to_string(),
                what: "a directory with neither an OME-Zarr image nor a slide in DICOM".into(),
            }),
            Err(Error::Unsupported { name, what }) => match dicom::of_one(path, root, limits)? {
                Some(file) => openslide::instead(&file, limits, name, what),
                None => Err(Error::Unsupported { name, what }),
            },
            Err(error) => Err(error),
        };
    }
    let source: Arc<dyn Source> = Arc::new(FileSource::open(path)?);
    let own = match dicom::is(&*source)? {
        true => dicom::beside(path, root.as_deref(), &source, limits),
        false => of(&source, limits),
    };
    match own {
        Err(Error::Unsupported { name, what }) => openslide::instead(path, limits, name, what),
        own => own,
    }
}

/// Opens a slide that is one file.
pub(crate) fn of(source: &Arc<dyn Source>, limits: &Limits) -> Result<Parts> {
    // DICOM comes first: such a file may also begin as a TIFF of the same tiles.
    if dicom::is(&**source)? {
        return dicom::open(source, limits);
    }
    if let Some(parts) = tiff::open(source, limits)? {
        return Ok(Parts { state: source.state(), ..parts });
    }
    Err(Error::Unsupported {
        name: source.name().into(),
        what: "its format; TIFF, BigTIFF, Aperio SVS, OME-TIFF, DICOM and OME-Zarr are read".into(),
    })
}

/// Guesses a format from the first bytes of a file, or from the names in a directory: `tiff`,
/// `dicom` or `ome-zarr`; `None` if it is not a slide. Opening the slide may still fail.
/// Subdirectories are not searched.
pub fn sniff(path: &Path) -> Option<&'static str> {
    if path.is_dir() {
        if zarr::is(path) {
            return Some("ome-zarr");
        }
        let mut files = std::fs::read_dir(path).ok()?.flatten().take(Limits::default().files);
        return files.any(|file| sniff_file(&file.path()) == Some("dicom")).then_some("dicom");
    }
    sniff_file(path)
}

fn sniff_file(path: &Path) -> Option<&'static str> {
    let source = FileSource::open(path).ok()?;
    if dicom::is(&source).ok()? {
        return Some("dicom");
    }
    let start = source::read(&source, 0, 4).ok()?;
    let tiff = matches!(&start[..], b"II\x2a\0" | b"II\x2b\0" | b"MM\0\x2a" | b"MM\0\x2b");
    tiff.then_some("tiff")
}
