//! The slides that can be served, by identifier.
//!
//! ```text
//! scan    the contents of directories
//! names   the names of slides
//! ```
//!
//! Identifiers come from scans, and a request can only name one of them, so no path is ever built
//! from a client's input. A symbolic link is followed only to a file in the same directory tree.
//! This is checked again when the slide is opened.
//!
//! A request for an unknown slide may mean a new one, so it causes another scan; at most one runs
//! at a time. After a scan, unknown names are rejected without one for two seconds, or for as long
//! as the scan took, up to a minute: whatever names clients make up, no scan runs for at least half
//! of the time, or for a minute.

mod names;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result as Anyhow, bail};

use crate::failure::{Failure, Result, outside};
use crate::series::{Headings, Index};
use crate::shares::{self, Host};
use names::{free, is_text, parts, parts_of, path_of};
use scan::{INSTANCE, STORE, ends, scan, took};

/// A list stays valid for the time that its scan took, but at least this long and at most
/// `LONGEST`.
const FRESH: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(60);

/// A location on the command line.
#[derive(Debug)]
enum Root {
    /// Its real path, and the prefix of identifiers in it.
    Directory { path: PathBuf, prefix: String },
    /// The address of an S3 bucket's directory, with a `/` at its end, and the prefix likewise.
    Bucket { address: String, prefix: String },
    /// A file, or an address.
    Slide { id: String, place: Place },
}

/// Location of a slide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A file, or a directory that is a slide; if it was found in a directory, it must stay inside
    /// that.
    File { path: PathBuf, within: Option<Arc<Path>> },
    /// A slide on a web server.
    Address(String),
}

impl fmt::Display for Place {
    /// Writes it without its query, which may be a signature.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, .. } => path.display().fmt(f),
            Self::Address(address) => f.write_str(path_of(address)),
        }
    }
}

impl Place {
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
        let directory = |place: &Self| match place {
            Self::File { within, .. } => within.clone(),
            Self::Address(_) => None,
        };
        directory(self).is_some_and(|own| directory(other) == Some(own))
    }
}

/// All slides, by identifier.
pub(crate) type List = BTreeMap<String, Place>;

/// The slides that can be served.
#[derive(Debug)]
pub(crate) struct Library {
    roots: Vec<Root>,
    known: Mutex<Known>,
    /// Held by the thread that scans.
    scanning: Mutex<Headings>,
}

/// The result of the last scan.
#[derive(Debug, Clone)]
struct Known {
    list: Arc<List>,
    /// The slides in DICOM.
    series: Arc<Index>,
    /// Warnings about slides with equal UIDs.
    notes: Arc<Vec<String>>,
    /// When the scan ended.
    at: Instant,
    took: Duration,
}

impl Known {
    /// True if it is too early for another scan.
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < self.took.clamp(FRESH, LONGEST)
    }
}

impl Library {
    /// Serves directories, files and addresses.
    ///
    /// # Errors
    ///
    /// A location that does not exist or is not the address of a slide, and two slides of one name.
    pub(crate) fn new(locations: &[String]) -> Anyhow<Self> {
        let is_only = locations.len() == 1;
        let (mut roots, mut taken) = (Vec::new(), BTreeSet::new());
        for (at, location) in locations.iter().enumerate() {
            if locations[..at].contains(location) {
                bail!("{}: given twice", path_of(location));
            }
            if let Some(parts) = bucket(location) {
                let prefix = match is_only {
                    true => String::new(),
                    false => format!("{}/", free(&mut taken, &parts)?),
                };
                let address = format!("s3://{}/", parts.join("/"));
                roots.push(Root::Bucket { address, prefix });
                continue;
            }
            if is_address(location) {
                let id = free(&mut taken, &parts_of(location)?)?;
                roots.push(Root::Slide { id, place: Place::Address(location.clone()) });
                continue;
            }
            if let Some((scheme, _)) = location.split_once("://") {
                bail!("{scheme}://: addresses begin with http://, https:// or s3://");
            }
            let real = fs::canonicalize(location).with_context(|| location.clone())?;
            if real.is_dir() && !ends(&real.to_string_lossy(), STORE) {
                let prefix = match is_only {
                    true => String::new(),
                    false => format!("{}/", free(&mut taken, &parts(&real))?),
                };
                roots.push(Root::Directory { path: real, prefix });
                continue;
            }
            // An explicit link is followed anywhere, but the slide keeps the name of the link.
            let named = std::path::absolute(location).with_context(|| location.clone())?;
            let named = if real.is_dir() { parts(&real) } else { parts(&named) };
            if !named.last().is_some_and(|name| is_text(name)) {
                bail!("{location}: a name that is not UTF-8");
            }
            let id = free(&mut taken, &named)?;
            roots.push(Root::Slide { id, place: Place::File { path: real, within: None } });
        }
        let mut headings = Headings::default();
        let known = scan(&roots, None, &mut headings)?;
        known.notes.iter().for_each(|note| tracing::warn!("{note}"));
        let known = Mutex::new(known);
        Ok(Self { roots, known, scanning: Mutex::new(headings) })
    }

    /// The slides found by the last scan, which is repeated if it is too old. Blocks meanwhile.
    pub(crate) fn list(&self) -> Arc<List> {
        self.looked().list
    }

    /// The DICOM series found by the last scan; as [`list`](Self::list).
    pub(crate) fn series(&self) -> Arc<Index> {
        self.looked().series
    }

    /// The same, if it is too early for another scan. Does not block.
    pub(crate) fn fresh_series(&self, now: Instant) -> Option<Arc<Index>> {
        let known = self.state();
        known.is_fresh(now).then(|| Arc::clone(&known.series))
    }

    /// The same, without a scan. Does not block.
    pub(crate) fn known_series(&self) -> Arc<Index> {
        self.known().series
    }

    /// Warnings of the last scan about slides with equal UIDs. Does not block.
    pub(crate) fn notes(&self) -> Arc<Vec<String>> {
        self.known().notes
    }

    fn looked(&self) -> Known {
        let known = self.known();
        if known.is_fresh(Instant::now()) {
            return known;
        }
        // One scan at a time; other threads use the last result.
        let mut headings = match self.scanning.try_lock() {
            Ok(headings) => headings,
            Err(TryLockError::Poisoned(headings)) => headings.into_inner(),
            Err(TryLockError::WouldBlock) => return known,
        };
        let (known, began) = (self.known(), Instant::now());
        // Another scan may just have ended.
        if known.is_fresh(began) {
            return known;
        }
        let found = match scan(&self.roots, Some(&known.list), &mut headings) {
            Ok(found) => {
                let new = found.notes.iter().filter(|note| !known.notes.contains(note));
                new.for_each(|note| tracing::warn!("{note}"));
                found
            }
            // A failed scan is not repeated any sooner than a successful one.
            Err(error) => {
                tracing::error!("the slides cannot be listed: {error:#}");
                Known { at: Instant::now(), took: took(&self.roots, began), ..known }
            }
        };
        *self.state() = found.clone();
        found
    }

    fn state(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> Known {
        self.state().clone()
    }

    /// The web server of a slide, which is known without a scan. Does not block.
    pub(crate) fn host(&self, id: &str) -> Option<Host> {
        match self.known().list.get(id) {
            Some(Place::Address(address)) => shares::host(address),
            _ => None,
        }
    }

    /// True if the last scan has found the slide. Does not block.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.state().list.contains_key(id)
    }

    /// The location of the slide with this identifier. Blocks, as [`list`](Self::list).
    pub(crate) fn find(&self, id: &str) -> Result<Place> {
        if let Some(place) = self.known().list.get(id) {
            return Ok(place.clone());
        }
        self.list().get(id).cloned().ok_or_else(none)
    }

    /// True if no such slide is known and it is too early for another scan. Does not block.
    pub(crate) fn is_unknown(&self, id: &str, now: Instant) -> bool {
        let known = self.state();
        known.is_fresh(now) && !known.list.contains_key(id)
    }
}

/// The failure for an unknown slide.
pub(crate) fn none() -> Failure {
    Failure::not_found("there is no such slide")
}

/// The location from which a slide is opened, after another check of where its links lead. Blocks.
pub(crate) fn location(place: &Place, id: &str) -> Result<String> {
    let (path, within) = match place {
        Place::Address(address) => return Ok(address.clone()),
        Place::File { path, within } => (path, within),
    };
    let gone = |error: &std::io::Error| {
        let text = outside(&error.to_string(), id, &path.to_string_lossy());
        Failure::not_found(format!("{id}: {text}"))
    };
    let real = fs::canonicalize(path).map_err(|error| gone(&error))?;
    if within.as_ref().is_some_and(|within| !real.starts_with(within)) {
        return Err(Failure::not_found(format!("{id}: it leads out of its directory")));
    }
    let text = real.into_os_string().into_string();
    text.map_err(|_| Failure::not_found(format!("{id}: a path that is not UTF-8")))
}

/// The directory with the instances of a DICOM slide; `None` if the slide is not one.
pub(crate) fn instances(location: &str) -> Option<&Path> {
    let path = Path::new(location);
    if ends(location, INSTANCE) && path.is_file() {
        return path.parent();
    }
    (path.is_dir() && !ends(location, STORE)).then_some(path)
}

/// The parts of the address of a bucket's directory; `None` for another location.
fn bucket(location: &str) -> Option<Vec<String>> {
    let place = location.strip_prefix("s3://")?;
    let parts: Vec<String> = place.split('/').map(str::to_owned).collect();
    let (last, parts) = parts.split_last()?;
    match parts {
        [] => Some(vec![last.clone()]),
        [.., store] if last.is_empty() && !ends(store, STORE) => Some(parts.to_vec()),
        _ => None,
    }
}

/// True if a slide is on a web server.
pub(crate) fn is_address(location: &str) -> bool {
    ["http://", "https://", "s3://"].iter().any(|scheme| location.starts_with(scheme))
}

#[cfg(test)]
mod tests;
