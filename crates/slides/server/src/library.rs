//! Which slides there are, by identifier.
//!
//! Identifiers come out of a scan; a request can only name one of them, so no path is ever made of
//! what a client says. A symbolic link counts if it leads to a file in the same directory tree. It
//! is judged again when the slide is opened.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result as Anyhow, bail};

use crate::failure::{Failure, Result, outside};
use crate::series::{Files, Headings, Index, Series};
use crate::shares::{self, Host};
use crate::told::Told;

/// Ends of the names of slides, in lower case; from the second line on, of those that only OpenSlide
/// reads.
const EXTENSIONS: [&str; 14] = [
    ".svs", ".tif", ".tiff", ".btf", ".tf2", ".tf8", //
    ".ndpi", ".mrxs", ".scn", ".bif", ".vms", ".vmu", ".svslide", ".czi",
];
/// Of directories that are slides: images in OME-Zarr.
const STORE: &str = ".zarr";
/// Of files that make their directory a slide, or several: instances of series in DICOM.
const INSTANCE: &str = ".dcm";
/// Directories below one another.
const DEEPEST: usize = 32;
/// Slides of one server.
const MOST: usize = 1 << 20;
/// A list is not made again before.
const FRESH: Duration = Duration::from_secs(2);

/// What was named on the command line.
#[derive(Debug)]
enum Root {
    /// Its real path, and what identifiers of what is in it begin with.
    Directory { path: PathBuf, prefix: String },
    /// A file, or an address.
    Slide { id: String, place: Place },
}

/// Where a slide is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A file, or a directory that is a slide; if it was found in a directory, it may not lead out of
    /// that.
    File { path: PathBuf, within: Option<Arc<Path>> },
    /// On a web server.
    Address(String),
}

impl fmt::Display for Place {
    /// Without what may be a signature.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, .. } => path.display().fmt(f),
            Self::Address(address) => f.write_str(path_of(address)),
        }
    }
}

impl Place {
    /// The file that it is, if it is one.
    fn file(&self) -> Option<PathBuf> {
        match self {
            Self::File { path, .. } if path.is_file() => Some(path.clone()),
            _ => None,
        }
    }

    /// Whether both were found in one directory.
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

/// Notes that are kept; more of them say nothing new.
const NOTES: usize = 64;

/// The slides that there are.
#[derive(Debug)]
pub(crate) struct Library {
    roots: Vec<Root>,
    known: Mutex<Known>,
    /// Held by who makes the list.
    scanning: Mutex<Headings>,
}

/// What the last scan has found.
#[derive(Debug, Clone)]
struct Known {
    list: Arc<List>,
    /// Those of the slides that are in DICOM.
    series: Arc<Index>,
    /// Which of them have the same UIDs.
    notes: Arc<Vec<String>>,
    at: Instant,
}

impl Library {
    /// Of directories, files and addresses.
    ///
    /// # Errors
    ///
    /// What does not exist, what is no address of a slide, and two slides of one name.
    pub(crate) fn new(locations: &[String]) -> Anyhow<Self> {
        let is_only = locations.len() == 1;
        let (mut roots, mut taken) = (Vec::new(), BTreeSet::new());
        for (at, location) in locations.iter().enumerate() {
            if locations[..at].contains(location) {
                bail!("{}: it is given twice", path_of(location));
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
            // A link was named, so what it links to is meant; its name is its own.
            let named = std::path::absolute(location).with_context(|| location.clone())?;
            let named = if real.is_dir() { parts(&real) } else { parts(&named) };
            if !named.last().is_some_and(|name| is_text(name)) {
                bail!("{location}: a name that is no text");
            }
            let id = free(&mut taken, &named)?;
            roots.push(Root::Slide { id, place: Place::File { path: real, within: None } });
        }
        let mut headings = Headings::default();
        let known = scan(&roots, &mut headings)?;
        known.notes.iter().for_each(|note| tracing::warn!("{note}"));
        let known = Mutex::new(known);
        Ok(Self { roots, known, scanning: Mutex::new(headings) })
    }

    /// The slides that there were at the last scan, which is made again if it was long ago. Blocks
    /// meanwhile.
    pub(crate) fn list(&self) -> Arc<List> {
        self.looked().list
    }

    /// The series in DICOM that there were at the last scan; as [`list`](Self::list).
    pub(crate) fn series(&self) -> Arc<Index> {
        self.looked().series
    }

    /// The same, without a scan. Does not block.
    pub(crate) fn known_series(&self) -> Arc<Index> {
        self.known().series
    }

    /// Which slides had the same UIDs at the last scan. Does not block.
    pub(crate) fn notes(&self) -> Arc<Vec<String>> {
        self.known().notes
    }

    fn looked(&self) -> Known {
        let known = self.known();
        if known.at.elapsed() < FRESH {
            return known;
        }
        // One at a time; others take what is known.
        let Ok(mut headings) = self.scanning.try_lock() else { return known };
        match scan(&self.roots, &mut headings) {
            Ok(found) => {
                let new = found.notes.iter().filter(|note| !known.notes.contains(note));
                new.for_each(|note| tracing::warn!("{note}"));
                *self.known.lock().unwrap_or_else(PoisonError::into_inner) = found.clone();
                found
            }
            Err(error) => {
                tracing::error!("the slides cannot be listed: {error:#}");
                known
            }
        }
    }

    fn known(&self) -> Known {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The web server that a slide is on: those are known without a scan. Does not block.
    pub(crate) fn host(&self, id: &str) -> Option<Host> {
        match self.known().list.get(id) {
            Some(Place::Address(address)) => shares::host(address),
            _ => None,
        }
    }

    /// Where a slide is that has this identifier. Blocks, as [`list`](Self::list).
    pub(crate) fn find(&self, id: &str) -> Result<Place> {
        if let Some(place) = self.known().list.get(id) {
            return Ok(place.clone());
        }
        let found = self.list().get(id).cloned();
        found.ok_or_else(|| Failure::not_found("there is no such slide"))
    }
}

/// What a slide is opened by, after a look at where it leads now. Blocks.
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
    text.map_err(|_| Failure::not_found(format!("{id}: a path that is no text")))
}

/// The directory with the instances of a slide in DICOM; `None` if its location is of another one.
pub(crate) fn instances(location: &str) -> Option<&Path> {
    let path = Path::new(location);
    if ends(location, INSTANCE) && path.is_file() {
        return path.parent();
    }
    (path.is_dir() && !ends(location, STORE)).then_some(path)
}

/// Whether a slide is on a web server.
pub(crate) fn is_address(location: &str) -> bool {
    ["http://", "https://", "s3://"].iter().any(|scheme| location.starts_with(scheme))
}

/// A location, of an address without what may be a signature. Keys of S3 are written as they are.
fn path_of(location: &str) -> &str {
    match ["http://", "https://"].iter().any(|scheme| location.starts_with(scheme)) {
        true => location.split(['?', '#']).next().unwrap_or(location),
        false => location,
    }
}

/// The parts of an address: host or bucket, and what its path or key has.
fn parts_of(address: &str) -> Anyhow<Vec<String>> {
    let is_object = address.starts_with("s3://");
    let path = path_of(address);
    let (_, rest) = path.split_once("://").unwrap_or(("", path));
    // Who asks is not told.
    let rest = rest.split_once('/').map_or(rest, |(host, _)| {
        let before = host.rfind('@').filter(|_| !is_object).map_or(0, |at| at + 1);
        &rest[before..]
    });
    let parts = rest.split('/').filter(|part| !part.is_empty());
    let parts: Vec<String> = parts
        .map(|part| match is_object {
            true => part.to_owned(),
            false => percent_encoding::percent_decode_str(part).decode_utf8_lossy().into_owned(),
        })
        .collect();
    if is_object && parts.len() < 2 {
        bail!("{path}: it has no key: a slide in a bucket is s3://BUCKET/KEY");
    }
    if !parts.last().is_some_and(|name| is_text(name)) {
        bail!("{path}: an address without a name");
    }
    Ok(parts)
}

/// The parts of a path.
fn parts(path: &Path) -> Vec<String> {
    let named = path.components().filter(|part| matches!(part, Component::Normal(_)));
    named.map(|part| part.as_os_str().to_string_lossy().into_owned()).collect()
}

/// The last part, which stays the name of what was named first, or with as many before it as it
/// takes to be another name.
fn free(taken: &mut BTreeSet<String>, parts: &[String]) -> Anyhow<String> {
    let names = (0..parts.len().max(1)).rev().map(|at| parts[at..].join("/"));
    let mut last = String::new();
    for name in names {
        if !name.contains(char::is_control) && taken.insert(name.clone()) {
            return Ok(name);
        }
        last = name;
    }
    bail!("two slides are called {last}");
}

fn is_text(name: &str) -> bool {
    is_printable(name) && !name.contains(char::REPLACEMENT_CHARACTER)
}

fn is_printable(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(char::is_control)
}

fn scan(roots: &[Root], headings: &mut Headings) -> Anyhow<Known> {
    let (mut list, mut index, mut notes) = (List::new(), Index::new(), Vec::new());
    look(roots, headings, &mut list, &mut index, &mut notes)?;
    headings.sweep();
    let (list, series, notes) = (Arc::new(list), Arc::new(index), Arc::new(notes));
    Ok(Known { list, series, notes, at: Instant::now() })
}

fn look(
    roots: &[Root],
    headings: &mut Headings,
    list: &mut List,
    index: &mut Index,
    notes: &mut Vec<String>,
) -> Anyhow<()> {
    let told = Arc::clone(&headings.told);
    let mut add = |id: String, place: Place| -> Anyhow<bool> {
        match list.entry(id) {
            Entry::Vacant(free) => _ = free.insert(place),
            // What somebody puts into a directory does not take away what is there.
            Entry::Occupied(other) if other.get().is_beside(&place) => {
                let (id, other) = (other.key(), other.get());
                let what = format!("two slides are called {id}: {other} is served, {place} is not");
                told.warn(what);
            }
            Entry::Occupied(other) => {
                bail!("two slides are called {}: {} and {place}", other.key(), other.get());
            }
        }
        Ok(list.len() < MOST)
    };
    for root in roots {
        match root {
            Root::Slide { id, place } => {
                if let Some(path) = place.file() {
                    for Files { heading, count, .. } in headings.series(vec![path]).into_values() {
                        enter(index, notes, Series { id: id.clone(), heading, files: count });
                    }
                }
                add(id.clone(), place.clone())?;
            }
            Root::Directory { path, prefix } => {
                let within: Arc<Path> = path.as_path().into();
                let mut todo = vec![(path.clone(), prefix.clone(), 0)];
                while let Some((directory, prefix, depth)) = todo.pop() {
                    let mut instances = Vec::new();
                    for (name, entry) in entries(&directory, &told) {
                        let id = format!("{prefix}{name}");
                        let path = entry.path();
                        match kind(&entry, &path, &within) {
                            Some(Kind::Directory) if ends(&name, STORE) => {
                                let within = Some(Arc::clone(&within));
                                add(id, Place::File { path, within })?;
                            }
                            Some(Kind::Directory) if depth < DEEPEST => {
                                todo.push((path, format!("{id}/"), depth + 1));
                            }
                            Some(Kind::File) if is_slide(&name) => {
                                let within = Some(Arc::clone(&within));
                                if !add(id, Place::File { path, within })? {
                                    told.warn(format!("only {MOST} slides are served"));
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
                    let found = headings.series(instances);
                    // Where there is none, opening the directory says why.
                    let is_one = found.len() < 2;
                    let alone = (whole.clone(), directory.clone());
                    let mut slides = if found.is_empty() { vec![alone] } else { Vec::new() };
                    // Series of several studies may have the same UID.
                    let mut uids = HashSet::new();
                    for ((_, uid), Files { first, heading, count, twins }) in found {
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
                        add(id, Place::File { path, within })?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Of a series that is there twice, the first one counts.
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

/// Whether a series can be called by its UID.
fn is_uid(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

fn name_of(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What is in a directory and has a name that can be shown. What cannot be read is not there.
fn entries(directory: &Path, told: &Told) -> Vec<(String, fs::DirEntry)> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => {
            told.warn(format!("{}: {error}", directory.display()));
            return Vec::new();
        }
    };
    let named = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        (is_printable(&name) && !name.starts_with('.')).then_some((name, entry))
    };
    entries.flatten().filter_map(named).collect()
}

enum Kind {
    Directory,
    File,
}

/// `None`: neither, or a link that leads out of the tree or to a directory.
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

fn ends(name: &str, extension: &str) -> bool {
    name.to_lowercase().ends_with(extension)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn ids(library: &Library) -> Vec<String> {
        library.list().keys().cloned().collect()
    }

    fn text(path: &Path) -> String {
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn only_slides_inside_of_the_tree_are_listed() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir_all(root.join("case 1/.hidden")).unwrap();
        for name in ["a.svs", "B.TIF", "notes.txt", "case 1/c.ome.tiff", "case 1/.hidden/d.svs"] {
            fs::write(root.join(name), "").unwrap();
        }
        for name in ["series/1.dcm", "series/2.dcm", "image.zarr/0/0.tif", "image.zarr/.zattrs"] {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), "").unwrap();
        }
        fs::write(outer.path().join("secret.svs"), "").unwrap();
        symlink("a.svs", root.join("inside.svs")).unwrap();
        symlink("../secret.svs", root.join("outside.svs")).unwrap();
        symlink("/nowhere", root.join("dangling.svs")).unwrap();
        symlink("..", root.join("up.svs")).unwrap();
        symlink(".", root.join("case 1/loop")).unwrap();
        let library = Library::new(&[text(&root)]).unwrap();
        let all = ["B.TIF", "a.svs", "case 1/c.ome.tiff", "image.zarr", "inside.svs", "series"];
        assert_eq!(ids(&library), all);
        let series = Library::new(&[text(&root.join("series"))]).unwrap();
        assert_eq!(ids(&series), ["series"]);
        let image = Library::new(&[text(&root.join("image.zarr"))]).unwrap();
        assert_eq!(ids(&image), ["image.zarr"]);
        // Two of one name in a directory do not take the others away.
        let slides = outer.path().join("slides");
        for name in ["a.svs", "1.dcm", "slides/1.dcm"] {
            fs::create_dir_all(slides.join(name).parent().unwrap()).unwrap();
            fs::write(slides.join(name), "").unwrap();
        }
        assert_eq!(ids(&Library::new(&[text(&slides)]).unwrap()), ["a.svs", "slides"]);

        for id in ["outside.svs", "../secret.svs", "case 1/../a.svs", "/etc/passwd", "", "a.svs\0"]
        {
            let failure = library.find(id).unwrap_err();
            assert_eq!(failure.status, axum::http::StatusCode::NOT_FOUND, "{id}");
        }
        // A file that becomes a link later.
        let place = library.find("a.svs").unwrap();
        assert!(location(&place, "a.svs").unwrap().ends_with("/root/a.svs"));
        fs::remove_file(root.join("a.svs")).unwrap();
        symlink("../secret.svs", root.join("a.svs")).unwrap();
        let failure = location(&place, "a.svs").unwrap_err();
        assert_eq!(&*failure.what, "a.svs: it leads out of its directory");
        fs::remove_file(root.join("a.svs")).unwrap();
        let failure = location(&place, "a.svs").unwrap_err();
        assert!(!failure.what.contains("root"), "{failure}");
    }

    #[test]
    fn several_places_have_names_of_their_own() {
        let outer = tempfile::tempdir().unwrap();
        for name in ["one", "two", "three/one"] {
            fs::create_dir_all(outer.path().join(name)).unwrap();
            fs::write(outer.path().join(name).join("a.svs"), "").unwrap();
        }
        fs::write(outer.path().join("any-name"), "").unwrap();
        let path = |name: &str| text(&outer.path().join(name));
        let address = "http://host/dir/b%20c.tif?key=x".to_owned();
        let object = "s3://bucket/dir/100% a?.svs".to_owned();
        let named = [path("one"), path("two"), path("any-name"), address, object];
        let library = Library::new(&named).unwrap();
        let all = ["100% a?.svs", "any-name", "b c.tif", "one/a.svs", "two/a.svs"];
        assert_eq!(ids(&library), all);
        let directories = Library::new(&[path("one"), path("three/one")]).unwrap();
        assert_eq!(ids(&directories), ["one/a.svs", "three/one/a.svs"]);
        let case = |number: u8| format!("s3://a/case{number}/slide.svs");
        let file = path("one/a.svs");
        fs::write(outer.path().join("slide.svs"), "").unwrap();
        let named = [case(1), case(2), "http://host/slide.svs".to_owned(), path("slide.svs"), file];
        let objects = Library::new(&named).unwrap();
        let own = outer.path().file_name().unwrap().to_str().unwrap();
        let all = ["a.svs", "case2/slide.svs", "host/slide.svs", "slide.svs"].map(String::from);
        let mut all = all.to_vec();
        all.push(format!("{own}/slide.svs"));
        all.sort();
        assert_eq!(ids(&objects), all);
        // The same twice; what may be a signature is not told.
        let address = |query: &str| format!("http://host/one/a.svs?key={query}");
        let prefixed = [address("s3cret"), address("s4cret"), path("one"), path("two")];
        for same in [&[path("one"), path("one")][..], &[case(1), case(1)], &prefixed] {
            let same = Library::new(same).unwrap_err().to_string();
            let is_told = ["two slides are called one/a.svs", "given twice"];
            let is_told = is_told.iter().any(|told| same.contains(told));
            assert!(is_told && !same.contains("cret"), "{same}");
        }
        for wrong in ["s3://bucket", "s3://bucket/", "ftp://host/a.svs", "http://"] {
            let error = Library::new(&[wrong.to_owned()]).unwrap_err().to_string();
            assert!(error.contains("key") || error.contains("address"), "{error}");
        }
        assert!(Library::new(&[path("none")]).unwrap_err().to_string().contains("none"));
        assert!(Library::new(&["http://".to_owned()]).is_err());
    }
}
