//! Files of DICOM series, which may have thousands: few of them are open at a time.
//!
//! A file that was closed is reopened when it is read, and must still be the same file, unchanged.

use crate::source::{Identity, Source, check, io, is_full, opened};
use crate::{Error, Result};
use lru::LruCache;
use std::fs::{File, Metadata};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// Files open at a time, over all series of the process, besides those being read.
const OPEN: NonZeroUsize = NonZeroUsize::new(128).unwrap();

/// The open files: those read most recently. Nothing is read under its lock.
#[derive(Debug)]
pub(crate) struct Files {
    open: Mutex<LruCache<u64, Arc<File>>>,
    next: AtomicU64,
}

static FILES: LazyLock<Arc<Files>> = LazyLock::new(|| Files::new(OPEN));

impl Files {
    fn new(most: NonZeroUsize) -> Arc<Self> {
        Arc::new(Self { open: Mutex::new(LruCache::new(most)), next: AtomicU64::new(0) })
    }

    fn open(&self) -> MutexGuard<'_, LruCache<u64, Arc<File>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes all files that nobody is reading.
    fn close(&self) {
        let mut open = self.open();
        let closed: Vec<_> = std::iter::from_fn(|| open.pop_lru()).collect();
        drop(open);
        drop(closed);
    }

    fn put(&self, number: u64, file: Arc<File>) {
        let old = self.open().push(number, file);
        // Closed without holding the lock.
        drop(old);
    }
}

/// Opens a file; if the process has too many open, closes those that are kept open only to speed up
/// later reads.
fn reopened(path: &Path, name: &str, files: &Files) -> Result<(File, Metadata)> {
    match opened(path, name) {
        Err(error) if is_full(&error) => {
            files.close();
            opened(path, name)
        }
        other => other,
    }
}

/// A file that is open while it is read, and for a while afterwards.
#[derive(Debug)]
pub(crate) struct ClosedSource {
    name: String,
    path: PathBuf,
    identity: Identity,
    length: u64,
    number: u64,
    files: Arc<Files>,
}

impl ClosedSource {
    /// Opens a file.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::among(path, &FILES)
    }

    fn among(path: &Path, files: &Arc<Files>) -> Result<Self> {
        let name = path.display().to_string();
        let (file, data) = reopened(path, &name, files)?;
        // The process may change its working directory.
        let path = std::path::absolute(path).map_err(|error| io(&name, error))?;
        let (identity, length) = (Identity::of(&data), data.len());
        let number = files.next.fetch_add(1, Ordering::Relaxed);
        files.put(number, Arc::new(file));
        Ok(Self { name, path, identity, length, number, files: Arc::clone(files) })
    }

    fn file(&self) -> Result<Arc<File>> {
        let open = self.files.open().get(&self.number).cloned();
        if let Some(file) = open {
            return Ok(file);
        }
        let (file, data) = reopened(&self.path, &self.name, &self.files)?;
        if Identity::of(&data) != self.identity {
            return Err(Error::Changed { name: self.name.clone() });
        }
        let file = Arc::new(file);
        self.files.put(self.number, Arc::clone(&file));
        Ok(file)
    }
}

impl Drop for ClosedSource {
    fn drop(&mut self) {
        let file = self.files.open().pop(&self.number);
        drop(file);
    }
}

impl Source for ClosedSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn length(&self) -> u64 {
        self.length
    }

    fn state(&self) -> Option<String> {
        Some(self.identity.to_string())
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()> {
        check(self, at, into.len() as u64)?;
        self.file()?.read_exact_at(into, at).map_err(|error| io(&self.name, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    /// Number of files in a directory that this process has open.
    fn open(directory: &Path) -> usize {
        let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let paths = links.filter_map(|link| fs::read_link(link.path()).ok());
        paths.filter(|path| path.starts_with(directory)).count()
    }

    #[test]
    fn few_of_many_are_open_and_all_can_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap();
        let path = |number: usize| real.join(number.to_string());
        let files = Files::new(NonZeroUsize::new(3).unwrap());
        let sources: Vec<_> = (0..50)
            .map(|number| {
                fs::write(path(number), format!("{number:03}")).unwrap();
                ClosedSource::among(&path(number), &files).unwrap()
            })
            .collect();
        assert_eq!(open(&real), 3);
        let read = |number: usize| {
            let mut bytes = [0; 3];
            sources[number].read_at(0, &mut bytes).map(|()| String::from_utf8_lossy(&bytes).into())
        };
        for number in (0..50).chain([49, 0, 49]) {
            let text: String = read(number).unwrap();
            assert_eq!(text, format!("{number:03}"));
            assert!(open(&real) <= 3);
        }
        // Another file with its name; one that was written to; one whose length and modification
        // time were kept; none.
        fs::write(real.join("other"), "007").unwrap();
        fs::rename(real.join("other"), path(7)).unwrap();
        fs::write(path(8), "longer").unwrap();
        let before = fs::metadata(path(10)).unwrap();
        let mut status = (before.ctime(), before.ctime_nsec());
        // File clocks advance in ticks.
        while status == (before.ctime(), before.ctime_nsec()) {
            fs::write(path(10), "abc").unwrap();
            let file = File::options().write(true).open(path(10)).unwrap();
            file.set_modified(before.modified().unwrap()).unwrap();
            let after = file.metadata().unwrap();
            assert_eq!((after.len(), after.mtime_nsec()), (before.len(), before.mtime_nsec()));
            status = (after.ctime(), after.ctime_nsec());
        }
        fs::remove_file(path(9)).unwrap();
        for number in [7, 8, 10] {
            let error: Result<String> = read(number);
            assert!(matches!(error, Err(Error::Changed { .. })), "{error:?}");
        }
        let error: Result<String> = read(9);
        assert!(matches!(error, Err(Error::Io { .. })), "{error:?}");
        files.close();
        assert_eq!(open(&real), 0);
        assert_eq!(read(5).unwrap(), "005");
        drop(sources);
        assert_eq!(open(&real), 0);
    }

    #[test]
    fn too_many_open_files_are_reported_with_a_remedy() {
        let full = io("a.dcm", Errno::MFILE.into());
        let text = full.to_string();
        assert!(text.contains("a.dcm") && text.contains("ulimit -n") && is_full(&full), "{text}");
        assert!(!is_full(&io("a.dcm", Errno::NOENT.into())));
    }
}
