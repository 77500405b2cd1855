//! Finds the slides in directories.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result as Anyhow, bail};
use seekwire_slides_image::public;

use super::names::is_printable;
use crate::series::{Headings, Index, Series, SeriesFiles};
use crate::warn_once::WarnOnce;

/// Extensions of slides, in lower case; those from the second line on need OpenSlide.
const EXTENSIONS: [&str; 15] = [
    ".svs", ".tif", ".tiff", ".btf", ".tf2", ".tf8", ".qptiff", //
    ".ndpi", ".mrxs", ".scn", ".bif", ".vms", ".vmu", ".svslide", ".czi",
];
/// Extension of directories that are slides: OME-Zarr images.
pub(super) const STORE: &str = ".zarr";
/// Extension of files that make their directory one or more slides: instances of DICOM series.
pub(super) const INSTANCE: &str = ".dcm";
/// Maximum nesting of directories.
const DEEPEST: usize = 32;
/// Maximum directories of a bucket that are listed: each is a request that costs money.
const LISTED: usize = 10_000;
/// Maximum slides of one server.
const MOST: usize = 1 << 20;
/// Maximum notes that are kept; further ones would add little.
const NOTES: usize = 64;

/// A list stays valid for the time that its scan took, but at least this long and at most
/// `LONGEST`.
pub(super) const FRESH: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(60);

/// A location on the command line.
#[derive(Debug)]
pub(super) enum Root {
    /// Its real path, and the prefix of identifiers in it.
    Directory { path: PathBuf, prefix: String },
    /// The address of an S3 bucket's directory, with a `/` at its end, and the prefix likewise.
    Bucket { address: String, prefix: String },
    /// A file, or an address.
    Slide { id: String, location: SlideLocation },
}

/// Location of a slide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SlideLocation {
    /// A file, or a directory that is a slide; if it was found in a directory, it must stay inside
    /// that.
    File { path: PathBuf, within: Option<Arc<Path>> },
    /// A slide on a web server.
    Address(String),
}

impl fmt::Display for SlideLocation {
    /// Writes it without its query, which may be a signature.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, .. } => path.display().fmt(f),
            Self::Address(address) => f.write_str(&public(address)),
        }
    }
}

impl SlideLocation {
    /// The path of the file, if it is one.
    fn file(&self) -> Option<PathBuf> {
        match self {
            Self::File { path, .. } if path.is_file() => Some(path.clone()),
            _ => None,
        }
    }

    /// Metadata of the file or directory.
    pub(crate) fn data(&self) -> Option<fs::Metadata> {
        match self {
            Self::File { path, .. } => fs::metadata(path).ok(),
            Self::Address(_) => None,
        }
    }

    /// True if both were found in the same directory.
    fn is_beside(&self, other: &Self) -> bool {
        let directory = |location: &Self| match location {
            Self::File { within, .. } => within.clone(),
            Self::Address(_) => None,
        };
        directory(self).is_some_and(|own| directory(other) == Some(own))
    }
}

/// All slides, by identifier.
pub(crate) type List = BTreeMap<String, SlideLocation>;

/// The result of the last scan.
#[derive(Debug, Clone)]
pub(super) struct ScanResult {
    pub(super) list: Arc<List>,
    /// The slides in DICOM.
    pub(super) series: Arc<Index>,
    /// Warnings about slides with equal UIDs.
    pub(super) notes: Arc<Vec<String>>,
    /// When the scan ended.
    pub(super) at: Instant,
    pub(super) took: Duration,
}

impl ScanResult {
    /// True if it is too early for another scan.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < self.took.clamp(FRESH, LONGEST)
    }
}

/// Scans all locations of the command line. If a directory in a bucket cannot be listed, the slides
/// that an earlier scan found there stay.
///
/// # Errors
///
/// Two slides of one name, and a bucket that cannot be listed at the first scan.
pub(super) fn scan(
    roots: &[Root],
    before: Option<&List>,
    headings: &mut Headings,
) -> Anyhow<ScanResult> {
    let began = Instant::now();
    let (mut list, mut index, mut notes) = (List::new(), Index::new(), Vec::new());
    look(roots, before, headings, &mut list, &mut index, &mut notes)?;
    headings.sweep();
    let (list, series, notes) = (Arc::new(list), Arc::new(index), Arc::new(notes));
    Ok(ScanResult { list, series, notes, at: Instant::now(), took: took(roots, began) })
}

/// The duration that counts for the next scan's delay. Listing a bucket costs its owner money.
pub(super) fn took(roots: &[Root], began: Instant) -> Duration {
    let is_dear = roots.iter().any(|root| matches!(root, Root::Bucket { .. }));
    if is_dear { LONGEST } else { began.elapsed() }
}

fn look(
    roots: &[Root],
    before: Option<&List>,
    headings: &mut Headings,
    list: &mut List,
    index: &mut Index,
    notes: &mut Vec<String>,
) -> Anyhow<()> {
    let warnings = Arc::clone(&headings.warnings);
    let mut add = |id: String, location: SlideLocation| -> Anyhow<bool> {
        match list.entry(id) {
            Entry::Vacant(free) => _ = free.insert(location),
            // A new file in a directory does not displace a slide that is already served.
            Entry::Occupied(other) if other.get().is_beside(&location) => {
                let (id, other) = (other.key(), other.get());
                let what =
                    format!("two slides are called {id}: {other} is served, {location} is not");
                warnings.warn(what);
            }
            Entry::Occupied(other) => {
                bail!("two slides are called {}: {} and {location}", other.key(), other.get());
            }
        }
        Ok(list.len() < MOST)
    };
    for root in roots {
        match root {
            Root::Slide { id, location } => {
                if let Some(path) = location.file() {
                    for SeriesFiles { heading, count, .. } in
                        headings.series(vec![path]).into_values()
                    {
                        enter(index, notes, Series { id: id.clone(), heading, files: count });
                    }
                }
                add(id.clone(), location.clone())?;
            }
            Root::Bucket { address, prefix } => {
                let mut todo = vec![(address.clone(), prefix.clone(), 0)];
                let mut looked_at = 0;
                while let Some((address, prefix, depth)) = todo.pop() {
                    looked_at += 1;
                    if looked_at > LISTED {
                        warnings
                            .warn(format!("{address}: only {LISTED} directories are looked at"));
                        break;
                    }
                    let names = match seekwire_slides_image::list(&address) {
                        Ok(names) => names,
                        Err(error) if depth == 0 && before.is_none() => return Err(error.into()),
                        Err(error) => {
                            warnings.warn(error.to_string());
                            for (id, location) in
                                before.into_iter().flat_map(|list| below(list, &prefix, &address))
                            {
                                add(id.clone(), location.clone())?;
                            }
                            continue;
                        }
                    };
                    for (name, is_directory) in names {
                        if name.starts_with('.') || !is_printable(&name) {
                            continue;
                        }
                        let (id, address) = (format!("{prefix}{name}"), format!("{address}{name}"));
                        let is_slide =
                            if is_directory { ends(&name, STORE) } else { is_slide(&name) };
                        if is_slide {
                            if !add(id, SlideLocation::Address(address))? {
                                warnings.warn(format!("only {MOST} slides are served"));
                                return Ok(());
                            }
                        } else if is_directory && depth < DEEPEST {
                            todo.push((format!("{address}/"), format!("{id}/"), depth + 1));
                        }
                    }
                }
            }
            Root::Directory { path, prefix } => {
                let within: Arc<Path> = path.as_path().into();
                let mut todo = vec![(path.clone(), prefix.clone(), 0)];
                while let Some((directory, prefix, depth)) = todo.pop() {
                    let mut instances = Vec::new();
                    for (name, entry) in entries(&directory, &warnings) {
                        let id = format!("{prefix}{name}");
                        let path = entry.path();
                        match kind(&entry, &path, &within) {
                            Some(Kind::Directory) if ends(&name, STORE) => {
                                let within = Some(Arc::clone(&within));
                                add(id, SlideLocation::File { path, within })?;
                            }
                            Some(Kind::Directory) if depth < DEEPEST => {
                                todo.push((path, format!("{id}/"), depth + 1));
                            }
                            Some(Kind::File) if is_slide(&name) => {
                                let within = Some(Arc::clone(&within));
                                if !add(id, SlideLocation::File { path, within })? {
                                    warnings.warn(format!("only {MOST} slides are served"));
                                    return Ok(());
                                }
                            }
                            Some(Kind::File) if ends(&name, INSTANCE) => instances.push(path),
                            _ => {}
                        }
                    }
                    if instances.is_empty() {
                        continue;
                    }
                    let own = path.file_name().map(|name| name.to_string_lossy());
                    let whole = match prefix.trim_end_matches('/') {
                        "" => own.unwrap_or_default().into_owned(),
                        id => id.to_owned(),
                    };
                    let series = headings.series(instances);
                    // If it has none, opening the directory reports why.
                    let is_one = series.len() < 2;
                    let alone = (whole.clone(), directory.clone());
                    let mut slides = if series.is_empty() { vec![alone] } else { Vec::new() };
                    // Series of several studies may have the same UID.
                    let mut uids = HashSet::new();
                    for ((_, uid), SeriesFiles { first, heading, count, twins }) in series {
                        let own = |file: &Path| format!("{prefix}{}", name_of(file));
                        let (id, path) = match is_one {
                            true => (whole.clone(), directory.clone()),
                            false if is_uid(&uid) && uids.insert(uid.clone()) => {
                                (format!("{prefix}{uid}"), first)
                            }
                            false => (own(&first), first),
                        };
                        enter(index, notes, Series { id: id.clone(), heading, files: count });
                        for (file, first) in twins {
                            let (first, twin) = (own(&first), own(&file));
                            let what = "have the UID of the same instance";
                            let slide = format!("the other one is the slide {twin}");
                            note(notes, format!("{first}, in {id}, and {twin} {what}: {slide}"));
                            slides.push((twin, file));
                        }
                        slides.push((id, path));
                    }
                    for (id, path) in slides {
                        let within = Some(Arc::clone(&within));
                        add(id, SlideLocation::File { path, within })?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Slides of a list that are in this directory of a bucket and have this prefix in their
/// identifiers.
fn below<'a>(
    list: &'a List,
    prefix: &'a str,
    directory: &'a str,
) -> impl Iterator<Item = (&'a String, &'a SlideLocation)> {
    list.range(prefix.to_owned()..).take_while(move |(id, _)| id.starts_with(prefix)).filter(
        move |(_, location)| {
            matches!(location, SlideLocation::Address(address) if address.starts_with(directory))
        },
    )
}

/// Adds a series. If two have the same UIDs, the first one counts.
fn enter(index: &mut Index, notes: &mut Vec<String>, series: Series) {
    let key = (series.heading.study.clone(), series.heading.series.clone());
    match index.entry(key) {
        Entry::Vacant(free) => _ = free.insert(series),
        Entry::Occupied(first) => {
            let (first, other, uid) = (&first.get().id, series.id, &series.heading.series);
            let what = "have the UIDs of the same series";
            let slide = format!("{uid:?} in DICOMweb is the first one");
            note(notes, format!("{first} and {other} {what}: {slide}"));
        }
    }
}

fn note(notes: &mut Vec<String>, text: String) {
    if notes.len() < NOTES {
        notes.push(text);
    }
}

/// True if the UID can be part of an address.
fn is_uid(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

fn name_of(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The entries of a directory whose names can be shown. An unreadable directory counts as empty.
fn entries(directory: &Path, warnings: &WarnOnce) -> Vec<(String, fs::DirEntry)> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => {
            warnings.warn(format!("{}: {error}", directory.display()));
            return Vec::new();
        }
    };
    let named = |entry: fs::DirEntry| {
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b".") {
            return None;
        }
        let text = name.to_str().filter(|name| is_printable(name)).map(str::to_owned);
        if text.is_none() {
            let what = "is left out: its name is not UTF-8, or has control characters";
            warnings.warn(format!("{:?} {what}", entry.path()));
        }
        Some((text?, entry))
    };
    entries.flatten().filter_map(named).collect()
}

enum Kind {
    Directory,
    File,
}

/// `None` for anything else, or for a link that leads out of the tree or to a directory.
fn kind(entry: &fs::DirEntry, path: &Path, within: &Path) -> Option<Kind> {
    let kind = entry.file_type().ok()?;
    if kind.is_dir() {
        return Some(Kind::Directory);
    }
    if kind.is_file() {
        return Some(Kind::File);
    }
    let real = fs::canonicalize(path).ok().filter(|_| kind.is_symlink())?;
    (real.starts_with(within) && real.is_file()).then_some(Kind::File)
}

fn is_slide(name: &str) -> bool {
    EXTENSIONS.iter().any(|extension| ends(name, extension))
}

pub(super) fn ends(name: &str, extension: &str) -> bool {
    name.to_lowercase().ends_with(extension)
}
