//! Encoded images in a directory, which persist across restarts of the server.
//!
//! ```text
//! DIRECTORY/CACHEDIR.TAG
//! DIRECTORY/3f/3f09...   mark, hash of name and image, image
//! ```
//!
//! The name of an image is a hash of everything it depends on, including the state of the slide's
//! file, so no stale image is served. A file is written under a temporary name and then renamed, so
//! it is complete or absent; its contents are nevertheless compared with its hash. Servers keep no
//! list of the directory's contents, so several can share it. Nothing here is essential: failures
//! are logged, and the server continues.

mod sweep;

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use sweep::{Swept, size_on_disk};

/// The first bytes of each file.
const MARK: &[u8; 16] = b"seekwire slide 1";
/// Bytes before the image: the mark, and the hash.
const HEADER: usize = MARK.len() + 32;
/// The bound is checked each time one of so many parts of it has been written.
const STEPS: u64 = 16;
/// Images waiting to be written, and their bytes.
const WAITING: usize = 256;
const WAITING_BYTES: u64 = 64 << 20;

/// The time of a use is recorded if the recorded one is older than this.
const NOTED: Duration = Duration::from_secs(600);
/// How long the cache is not used after an error.
const PAUSE: Duration = Duration::from_secs(30);

/// Images read at a time: if the directory hangs, threads remain for other reads.
const READING: usize = 16;
/// An image that takes longer to read is made instead.
const SOON: Duration = Duration::from_secs(2);

/// The key of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name([u8; 32]);

impl Name {
    /// Hashes everything that an image depends on.
    pub(crate) fn new(parts: &[&str]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        Self(hash.finalize().into())
    }

    fn text(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct DiskCounts {
    pub(crate) found: AtomicU64,
    pub(crate) missing: AtomicU64,
    pub(crate) broken: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) removed: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

struct Shared {
    directory: PathBuf,
    limit: u64,
    counts: DiskCounts,
    /// Bytes in the directory at the last scan, plus those written since.
    held: AtomicU64,
    waiting: AtomicU64,
}

/// A cache in a directory.
pub(crate) struct Disk {
    shared: Arc<Shared>,
    reading: Arc<Semaphore>,
    /// When a read last timed out.
    hung: Mutex<Option<Instant>>,
    /// `None` when the cache shuts down.
    orders: Option<SyncSender<(Name, Bytes)>>,
    writer: Option<JoinHandle<()>>,
}

impl Disk {
    /// Keeps at most `limit` bytes in the directory, which is created if necessary. If it cannot be
    /// used, this is logged, and there is no cache.
    pub(crate) fn start(directory: &Path, limit: u64) -> Option<Self> {
        match Self::prepare(directory, limit) {
            Ok(disk) => Some(disk),
            Err(error) => {
                let directory = directory.display();
                tracing::warn!("{directory}: {error}; no images are kept on disk");
                None
            }
        }
    }

    fn prepare(directory: &Path, limit: u64) -> io::Result<Self> {
        // Images may show patients.
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let directory = fs::canonicalize(directory)?;
        let shared = Arc::new(Shared {
            directory,
            limit,
            counts: DiskCounts::default(),
            held: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
        });
        let (orders, received) = sync_channel(WAITING);
        let writer = Writer { shared: Arc::clone(&shared), written: 0, paused: None };
        let writer =
            thread::Builder::new().name("disk-cache".to_owned()).spawn(|| writer.run(received))?;
        let reading = Arc::new(Semaphore::new(READING));
        let hung = Mutex::default();
        Ok(Self { shared, reading, hung, orders: Some(orders), writer: Some(writer) })
    }

    pub(crate) fn counts(&self) -> &DiskCounts {
        &self.shared.counts
    }

    /// Bytes in use, and the limit.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.shared.held.load(Ordering::Relaxed), self.shared.limit)
    }

    /// The image of that name, if it is there and can be read soon.
    pub(crate) async fn get(&self, name: Name) -> Option<Bytes> {
        let hung = || *self.hung.lock().unwrap_or_else(PoisonError::into_inner);
        if hung().is_some_and(|since: Instant| since.elapsed() < PAUSE) {
            add(&self.shared.counts.missing, 1);
            return None;
        }
        let read = async {
            let turn = Arc::clone(&self.reading).acquire_owned().await.ok()?;
            let shared = Arc::clone(&self.shared);
            let read = move || {
                let _turn = turn;
                shared.read(name)
            };
            tokio::task::spawn_blocking(read).await.ok().flatten()
        };
        let image = timeout(SOON, read).await;
        if image.is_err() {
            let (directory, pause) = (self.shared.directory.display(), PAUSE.as_secs());
            if hung().is_none_or(|since| since.elapsed() >= PAUSE) {
                tracing::warn!(
                    "{directory}: it does not respond; nothing is read from it for {pause} s"
                );
            }
            *self.hung.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            add(&self.shared.counts.missing, 1);
        }
        image.ok().flatten()
    }

    /// Queues an image for writing, unless the queue is full.
    pub(crate) fn put(&self, name: Name, image: Bytes) {
        let length = image.len() as u64;
        let waiting = self.shared.waiting.fetch_add(length, Ordering::Relaxed) + length;
        let order = self.orders.as_ref().filter(|_| waiting <= WAITING_BYTES);
        if order.is_none_or(|orders| orders.try_send((name, image)).is_err()) {
            self.shared.waiting.fetch_sub(length, Ordering::Relaxed);
            add(&self.shared.counts.failed, 1);
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Queued images are written first.
        self.orders = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

fn hash(name: Name, image: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(name.0).chain_update(image).finalize().into()
}

impl Shared {
    fn path_of(&self, name: Name) -> PathBuf {
        let text = name.text();
        self.directory.join(&text[..2]).join(text)
    }

    /// Bytes of the largest file.
    fn largest(&self) -> u64 {
        self.limit / STEPS
    }

    fn read(&self, name: Name) -> Option<Bytes> {
        let path = self.path_of(name);
        let read = || -> io::Result<(File, Vec<u8>)> {
            let file = File::open(&path)?;
            let length = file.metadata()?.len().min(self.limit);
            let mut bytes = Vec::with_capacity(length as usize);
            (&file).take(length + 1).read_to_end(&mut bytes)?;
            Ok((file, bytes))
        };
        let (file, bytes) = match read() {
            Ok(read) => read,
            Err(error) => {
                add(&self.counts.missing, 1);
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!("{}: {error}", path.display());
                }
                return None;
            }
        };
        let image = bytes.strip_prefix(MARK).and_then(|rest| rest.split_at_checked(32));
        if image.is_none_or(|(stored, image)| stored != hash(name, image)) {
            add(&self.counts.broken, 1);
            tracing::warn!("{}: it is corrupted, and is removed", path.display());
            let _ = fs::remove_file(&path);
            return None;
        }
        let now = SystemTime::now();
        let is_old = |at| now.duration_since(at).is_ok_and(|age| age > NOTED);
        if file.metadata().and_then(|data| data.modified()).is_ok_and(is_old) {
            let _ = file.set_modified(now);
        }
        add(&self.counts.found, 1);
        Some(Bytes::from(bytes).slice(HEADER..))
    }
}

/// The thread that writes.
struct Writer {
    shared: Arc<Shared>,
    /// Bytes written since the last scan of the directory.
    written: u64,
    paused: Option<Instant>,
}

impl Writer {
    fn run(mut self, orders: Receiver<(Name, Bytes)>) {
        self.tag();
        self.sweep();
        while let Ok((name, image)) = orders.recv() {
            let counts = &self.shared.counts;
            if self.paused.is_some_and(|since| since.elapsed() < PAUSE) {
                add(&counts.failed, 1);
            } else if let Err(error) = self.write(name, &image) {
                add(&self.shared.counts.failed, 1);
                self.make_room(&error);
                let (directory, pause) = (self.shared.directory.display(), PAUSE.as_secs());
                tracing::warn!("{directory}: {error}; no images are written to it for {pause} s");
                self.paused = Some(Instant::now());
            }
            self.shared.waiting.fetch_sub(image.len() as u64, Ordering::Relaxed);
        }
    }

    /// Marks the directory as a cache for backup programs (<https://bford.info/cachedir/>).
    fn tag(&self) {
        let text = "Signature: 8a477f597d28d172789f06886806bc55\n\
            # Images made by `seekwire slides`, which makes them again if they are deleted.\n";
        let path = self.shared.directory.join("CACHEDIR.TAG");
        if !path.exists() {
            // If it cannot be written, writing the first image reports the error.
            let _ = fs::write(path, text);
        }
    }

    /// Scans the directory, and removes the least recently used images if there are too many.
    fn sweep(&mut self) {
        // Leaves room for what this server and another one write before their next scan.
        self.sweep_to(self.shared.limit / 8 * 7);
    }

    fn sweep_to(&mut self, allowed: u64) {
        let Swept { held, removed } = sweep::sweep(&self.shared.directory, allowed);
        self.written = 0;
        self.shared.held.store(held, Ordering::Relaxed);
        add(&self.shared.counts.removed, removed);
    }

    /// If the disk is full before the bound is reached, keeps less than now: the cache may be what
    /// fills it.
    fn make_room(&mut self, error: &io::Error) {
        if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
            // The current amount: another server may have removed something.
            let Swept { held, .. } = sweep::sweep(&self.shared.directory, self.shared.limit);
            self.sweep_to(held / 8 * 7);
        }
    }

    fn write(&mut self, name: Name, image: &[u8]) -> io::Result<()> {
        let size = size_on_disk((HEADER + image.len()) as u64);
        let path = self.shared.path_of(name);
        // Another server may have written it.
        if size > self.shared.largest() || path.exists() {
            return Ok(());
        }
        if self.written + size > self.shared.largest() {
            self.sweep();
        }
        let Some(folder) = path.parent() else { return Ok(()) };
        if let Err(error) = DirBuilder::new().mode(0o700).create(folder)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        let mut file = tempfile::Builder::new().prefix(sweep::UNFINISHED).tempfile_in(folder)?;
        file.write_all(MARK)?;
        file.write_all(&hash(name, image))?;
        file.write_all(image)?;
        file.persist(&path)?;
        self.written += size;
        self.shared.held.fetch_add(size, Ordering::Relaxed);
        add(&self.shared.counts.written, 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
