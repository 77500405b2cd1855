//! Many files by name, some of which may be absent.

use crate::real_path;
use crate::source::{self, FileSource, Source};
use crate::{Error, Limits, Result};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files by name, where names are paths with `/`: a directory, or something like one.
pub trait Store: Send + Sync {
    /// The name used in errors.
    fn name(&self) -> &str;

    /// Opens a file; `None` if it does not exist.
    ///
    /// # Errors
    /// A name that leads out of the store, and file system errors.
    fn open(&self, key: &str) -> Result<Option<Arc<dyn Source>>>;
}

/// A store that notes the states of the files that describe the image, while it is opened.
pub(super) struct Described {
    inner: Arc<dyn Store>,
    /// By name; `None` once it is open.
    states: Mutex<Option<BTreeMap<String, Option<String>>>>,
}

impl Described {
    pub(super) fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, states: Mutex::new(Some(BTreeMap::new())) }
    }

    fn states(&self) -> MutexGuard<'_, Option<BTreeMap<String, Option<String>>>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The states of all of these files; `None` if one is not known.
    pub(super) fn finish(&self) -> Option<String> {
        let states = self.states().take()?;
        let state = |(key, state): (String, Option<String>)| Some(format!("{key}: {}\n", state?));
        states.into_iter().map(state).collect()
    }
}

impl Store for Described {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn open(&self, key: &str) -> Result<Option<Arc<dyn Source>>> {
        let source = self.inner.open(key)?;
        let is_description = [".json", ".zattrs", ".zarray"].iter().any(|end| key.ends_with(end));
        if let (Some(source), true, Some(states)) = (&source, is_description, &mut *self.states()) {
            states.insert(key.to_owned(), source.state());
        }
        Ok(source)
    }
}

/// Checks that a name, which may come from a hostile file, stays inside the store.
pub(crate) fn inside(store: &str, key: &str) -> Result<()> {
    if Path::new(key).components().all(|part| matches!(part, Component::Normal(_))) {
        return Ok(());
    }
    let what = format!("{key:?} is not the name of a file in it");
    Err(Error::Malformed { name: store.into(), at: 0, what })
}

/// A JSON file.
pub(super) struct Text<'a> {
    store: &'a dyn Store,
    key: String,
    bytes: Vec<u8>,
}

impl<'a> Text<'a> {
    pub(super) fn read(store: &'a dyn Store, limits: &Limits, key: &str) -> Result<Option<Self>> {
        let Some(source) = store.open(key)? else { return Ok(None) };
        if source.length() > limits.value {
            let what = format!("{key} of {} bytes", source.length());
            return Err(Error::Limit { name: store.name().into(), what });
        }
        let bytes = source::read(&*source, 0, source.length())?;
        Ok(Some(Self { store, key: key.into(), bytes }))
    }

    pub(super) fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.bytes)
            .map_err(|error| malformed(self.store, format!("{}: {error}", self.key)))
    }
}

pub(super) fn malformed(store: &dyn Store, what: String) -> Error {
    Error::Malformed { name: store.name().into(), at: 0, what }
}

pub(super) fn unsupported(store: &dyn Store, what: String) -> Error {
    Error::Unsupported { name: store.name().into(), what }
}

/// The files of a directory. A symbolic link is followed only to a file inside it, or inside a
/// larger directory.
#[derive(Debug)]
pub struct DirectoryStore {
    name: String,
    root: PathBuf,
    /// The real path that links may lead into.
    within: PathBuf,
}

impl DirectoryStore {
    /// Names are relative to this directory.
    pub fn new(root: &Path) -> Self {
        Self::within(root, root)
    }

    /// Links may lead to all files inside `within`.
    pub fn within(root: &Path, within: &Path) -> Self {
        // A directory that does not exist contains no files that could be inside it.
        let within = real_path::real(within).unwrap_or_else(|_| within.to_owned());
        Self { name: root.display().to_string(), root: root.to_owned(), within }
    }
}

impl Store for DirectoryStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, key: &str) -> Result<Option<Arc<dyn Source>>> {
        inside(&self.name, key)?;
        let path = self.root.join(key);
        let open = |real: PathBuf| FileSource::named(&real, path.display().to_string());
        match real_path::inside(&path, &self.within).and_then(open) {
            Ok(source) => Ok(Some(Arc::new(source))),
            Err(Error::Io { source, .. })
                if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
