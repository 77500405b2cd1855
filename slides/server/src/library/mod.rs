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

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use anyhow::{Context, Result as Anyhow, bail};
use seekwire_slides_image::public;

use crate::failure::{Failure, Result, outside};
use crate::series::{Headings, Index};
use crate::web_limits::{self, Host};
use names::{free, is_text, parts, parts_of};
use scan::{INSTANCE, Root, STORE, ScanResult, ends, scan, took};

pub(crate) use names::is_address;
pub(crate) use scan::{List, SlideLocation};

/// The slides that can be served.
#[derive(Debug)]
pub(crate) struct SlideLibrary {
    roots: Vec<Root>,
    last_scan: Mutex<ScanResult>,
    /// Held by the thread that scans.
    scanning: Mutex<Headings>,
}

impl SlideLibrary {
    /// Serves directories, files and addresses.
    ///
    /// # Errors
    ///
    /// A location that does not exist or is not the address of a slide, and two slides of one name.
    pub(crate) fn new(locations: &[String]) -> Anyhow<Self> {
        let is_only = locations.len() == 1;
        let (mut roots, mut used_names) = (Vec::new(), BTreeSet::new());
        for (at, location) in locations.iter().enumerate() {
            if locations[..at].contains(location) {
                bail!("{}: given twice", public(location));
            }
            if let Some(parts) = bucket(location) {
                let prefix = match is_only {
                    true => String::new(),
                    false => format!("{}/", free(&mut used_names, &parts)?),
                };
                let address = format!("s3://{}/", parts.join("/"));
                roots.push(Root::Bucket { address, prefix });
                continue;
            }
            if is_address(location) {
                let id = free(&mut used_names, &parts_of(location)?)?;
                roots.push(Root::Slide { id, location: SlideLocation::Address(location.clone()) });
                continue;
            }
            if let Some((scheme, _)) = location.split_once("://") {
                bail!("{scheme}://: addresses begin with http://, https:// or s3://");
            }
            let real = fs::canonicalize(location).with_context(|| location.clone())?;
            if real.is_dir() && !ends(&real.to_string_lossy(), STORE) {
                let prefix = match is_only {
                    true => String::new(),
                    false => format!("{}/", free(&mut used_names, &parts(&real))?),
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
            let id = free(&mut used_names, &named)?;
            roots.push(Root::Slide {
                id,
                location: SlideLocation::File { path: real, within: None },
            });
        }
        let mut headings = Headings::default();
        let last_scan = scan(&roots, None, &mut headings)?;
        last_scan.notes.iter().for_each(|note| tracing::warn!("{note}"));
        let last_scan = Mutex::new(last_scan);
        Ok(Self { roots, last_scan, scanning: Mutex::new(headings) })
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
        let last_scan = self.state();
        last_scan.is_fresh(now).then(|| Arc::clone(&last_scan.series))
    }

    /// The same, without a scan. Does not block.
    pub(crate) fn known_series(&self) -> Arc<Index> {
        self.last_scan().series
    }

    /// Warnings of the last scan about slides with equal UIDs. Does not block.
    pub(crate) fn notes(&self) -> Arc<Vec<String>> {
        self.last_scan().notes
    }

    fn looked(&self) -> ScanResult {
        let last_scan = self.last_scan();
        if last_scan.is_fresh(Instant::now()) {
            return last_scan;
        }
        // One scan at a time; other threads use the last result.
        let mut headings = match self.scanning.try_lock() {
            Ok(headings) => headings,
            Err(TryLockError::Poisoned(headings)) => headings.into_inner(),
            Err(TryLockError::WouldBlock) => return last_scan,
        };
        let (last_scan, began) = (self.last_scan(), Instant::now());
        // Another scan may just have ended.
        if last_scan.is_fresh(began) {
            return last_scan;
        }
        let result = match scan(&self.roots, Some(&last_scan.list), &mut headings) {
            Ok(result) => {
                let new = result.notes.iter().filter(|note| !last_scan.notes.contains(note));
                new.for_each(|note| tracing::warn!("{note}"));
                result
            }
            // A failed scan is not repeated any sooner than a successful one.
            Err(error) => {
                tracing::error!("the slides cannot be listed: {error:#}");
                ScanResult { at: Instant::now(), took: took(&self.roots, began), ..last_scan }
            }
        };
        *self.state() = result.clone();
        result
    }

    fn state(&self) -> MutexGuard<'_, ScanResult> {
        self.last_scan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last_scan(&self) -> ScanResult {
        self.state().clone()
    }

    /// The web server of a slide, which is known without a scan. Does not block.
    pub(crate) fn host(&self, id: &str) -> Option<Host> {
        match self.last_scan().list.get(id) {
            Some(SlideLocation::Address(address)) => web_limits::host(address),
            _ => None,
        }
    }

    /// True if the last scan has found the slide. Does not block.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.state().list.contains_key(id)
    }

    /// The location of the slide with this identifier. Blocks, as [`list`](Self::list).
    pub(crate) fn find(&self, id: &str) -> Result<SlideLocation> {
        if let Some(location) = self.last_scan().list.get(id) {
            return Ok(location.clone());
        }
        self.list().get(id).cloned().ok_or_else(none)
    }

    /// True if no such slide is known and it is too early for another scan. Does not block.
    pub(crate) fn is_unknown(&self, id: &str, now: Instant) -> bool {
        let last_scan = self.state();
        last_scan.is_fresh(now) && !last_scan.list.contains_key(id)
    }
}

/// The failure for an unknown slide.
pub(crate) fn none() -> Failure {
    Failure::not_found("there is no such slide")
}

/// The location from which a slide is opened, after another check of where its links lead. Blocks.
/// For an instance of a DICOM series this is the path that the scan has found: if it is a link, the
/// others of its series are beside it, and its target may be beside instances that are not served.
pub(crate) fn location(slide: &SlideLocation, id: &str) -> Result<String> {
    let (path, within) = match slide {
        SlideLocation::Address(address) => return Ok(address.clone()),
        SlideLocation::File { path, within } => (path, within),
    };
    let gone = |error: &std::io::Error| {
        let text = outside(&error.to_string(), id, &path.to_string_lossy());
        Failure::not_found(format!("{id}: {text}"))
    };
    let real = fs::canonicalize(path).map_err(|error| gone(&error))?;
    if within.as_ref().is_some_and(|within| !real.starts_with(within)) {
        return Err(Failure::not_found(format!("{id}: it leads out of its directory")));
    }
    let is_instance = within.is_some() && ends(&path.to_string_lossy(), INSTANCE);
    let path = if is_instance { path.clone() } else { real };
    let text = path.into_os_string().into_string();
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
    let path = location.strip_prefix("s3://")?;
    let parts: Vec<String> = path.split('/').map(str::to_owned).collect();
    let (last, parts) = parts.split_last()?;
    match parts {
        [] => Some(vec![last.clone()]),
        [.., store] if last.is_empty() && !ends(store, STORE) => Some(parts.to_vec()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
