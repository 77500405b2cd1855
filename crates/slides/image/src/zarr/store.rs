//! Many files by name, of which some may be absent.

use crate::source::{FileSource, Source};
use crate::within;
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

/// The files of a directory. A symbolic link counts if it leads to a file that is inside of it, or
/// of a larger directory.
#[derive(Debug)]
pub struct DirectoryStore {
    name: String,
    root: PathBuf,
    /// A real path.
    within: PathBuf,
}

impl DirectoryStore {
    /// Names are from this directory on.
    pub fn new(root: &Path) -> Self {
        Self::within(root, root)
    }

    /// Links may lead to all files inside of `within`.
    pub fn within(root: &Path, within: &Path) -> Self {
        // What does not exist has no files that could be inside.
        let within = within::real(within).unwrap_or_else(|_| within.to_owned());
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
        match within::inside(&path, &self.within).and_then(open) {
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
