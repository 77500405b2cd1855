//! Many files by name, of which some may be absent.

use crate::source::{FileSource, Source};
use crate::{Error, Result};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Files by their names, which are paths with `/` in them: a directory, or what is like one.
pub trait Store: Send + Sync {
    /// What errors call it.
    fn name(&self) -> &str;

    /// Opens a file; `None` if there is none of that name.
    ///
    /// # Errors
    /// A name that leads out of the store, and what the file system says.
    fn open(&self, key: &str) -> Result<Option<Arc<dyn Source>>>;
}

/// Checks a name, which may come out of a hostile file: whether it stays inside of a store.
pub(crate) fn inside(store: &str, key: &str) -> Result<()> {
    if Path::new(key).components().all(|part| matches!(part, Component::Normal(_))) {
        return Ok(());
    }
    let what = format!("{key:?} is no name of a file in it");
    Err(Error::Malformed { name: store.into(), at: 0, what })
}

/// The files of a directory.
#[derive(Debug)]
pub struct DirectoryStore {
    name: String,
    root: PathBuf,
}

impl DirectoryStore {
    /// Names are from this directory on.
    pub fn new(root: &Path) -> Self {
        Self { name: root.display().to_string(), root: root.to_owned() }
    }
}

impl Store for DirectoryStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, key: &str) -> Result<Option<Arc<dyn Source>>> {
        inside(&self.name, key)?;
        match FileSource::open(&self.root.join(key)) {
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
