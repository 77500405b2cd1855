//! Annotations of slides: GeoJSON in a file beside the slide, and the part of it in a view.
//!
//! ```text
//! beside ── file ── json_limits ── read ── index (kept, one flight each) ── view ──> answer
//! ```
//!
//! - json_limits: limits on text length and nesting
//! - read: GeoJSON, as a stream, within a memory budget
//! - index: features, the largest first
//! - tree: bounding boxes of the features
//! - view: clips features to a view, and simplifies them to its resolution

mod budget;
mod index;
mod json_limits;
mod read;
mod tree;
mod view;

use std::fs::{self, File};
use std::io::{self, BufReader, Cursor, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::http::StatusCode;
use flate2::read::MultiGzDecoder;
use rustix::fs::OFlags;
use serde::de::DeserializeSeed;
use tokio::sync::Semaphore;

use crate::byte_lru::Bounded;
use crate::failure::{Failure, Result};
use crate::library::SlideLocation;
use crate::single_flight::{Flight, Flights, Joined};
use crate::stamps::Stamp;
use budget::Budget;
use index::{Builder, Index};
use json_limits::Guard;
use read::Document;
pub(crate) use view::VisibleArea;

/// Maximum views processed at a time.
const CUT: usize = 4;

/// Bytes of the largest file that is read.
const LARGEST: u64 = 1 << 30;

/// Suffix of compressed files.
const COMPRESSED: &str = ".geojson.gz";

/// A byte order mark, in UTF-8.
const MARK: &[u8; 3] = b"\xef\xbb\xbf";

/// A file in a certain state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct AnnotationFile {
    path: PathBuf,
    /// Identifies the state of the file.
    pub(crate) stamp: String,
}

impl AnnotationFile {
    /// Bytes of its strings.
    fn bytes(&self) -> usize {
        self.path.capacity() + self.stamp.capacity()
    }

    /// The name that clients may see.
    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// The file with the annotations of a slide, if there is one: `case.svs.geojson` or `case.geojson`
/// for `case.svs`. It may be a link, but not one that leads out of the served directory. Blocks.
pub(crate) fn beside(location: &SlideLocation) -> Option<AnnotationFile> {
    let SlideLocation::File { path, within } = location else { return None };
    let name = path.file_name()?.to_str()?;
    let short = name.rsplit_once('.').map_or(name, |(short, _)| short);
    let shorter = short.strip_suffix(".ome").unwrap_or(short);
    let ends = [".geojson", COMPRESSED];
    let mut names = [name, short, shorter].into_iter().flat_map(|name| ends.map(|end| (name, end)));
    names.find_map(|(name, end)| {
        let real = fs::canonicalize(path.with_file_name(format!("{name}{end}"))).ok()?;
        let data = fs::metadata(&real).ok()?;
        let is_inside = within.as_ref().is_none_or(|within| real.starts_with(within));
        let stamp = Stamp::of(&data).to_string();
        (is_inside && data.is_file()).then_some(AnnotationFile { path: real, stamp })
    })
}

type IndexResult = Result<Arc<Index>>;

/// The most recently used annotations.
pub(crate) struct Annotations {
    kept: Bounded<AnnotationFile, IndexResult>,
    flights: Arc<Flights<AnnotationFile, IndexResult>>,
    /// One file is read at a time, so that only one is in memory while it is parsed.
    reading: Arc<Semaphore>,
    cutting: Arc<Semaphore>,
    /// Maximum bytes in memory of one file's annotations.
    limit: usize,
}

impl Annotations {
    /// Keeps at most `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        let flights = Arc::new(Flights::new());
        // A little less, so that any file that could be read fits into the cache.
        let limit = bytes - bytes / 8;
        let [reading, cutting] = [1, CUT].map(|most| Arc::new(Semaphore::new(most)));
        Self { kept: Bounded::new(bytes), flights, reading, cutting, limit }
    }

    /// Bytes in use, and the limit.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        self.kept.bytes()
    }

    async fn index(self: &Arc<Self>, beside: &AnnotationFile) -> IndexResult {
        let ticket = match self.flights.join(beside, || self.kept.get(beside)) {
            Joined::Ready(result) => return result,
            Joined::Later(ticket) => ticket,
            Joined::First(ticket, flight) => {
                let (annotations, beside) = (Arc::clone(self), beside.clone());
                tokio::spawn(annotations.fetch(beside, flight));
                ticket
            }
        };
        ticket
            .wait()
            .await
            .unwrap_or_else(|| Err(Failure::unavailable("the server is shutting down")))
    }

    /// Reads a file when its turn comes; it does not hold a thread while waiting.
    async fn fetch(
        self: Arc<Self>,
        beside: AnnotationFile,
        flight: Flight<AnnotationFile, IndexResult>,
    ) {
        let turn = tokio::select! {
            turn = Arc::clone(&self.reading).acquire_owned() => turn,
            () = flight.until_unwanted() => return,
        };
        let read = move || {
            let _turn = turn;
            let (result, is_lasting) = self.read(&beside);
            let kept = result.clone();
            let found_bytes = match &kept {
                Ok(index) => index.bytes(),
                Err(failure) => failure.what.len(),
            };
            let bytes = found_bytes + beside.bytes();
            flight.land(result, || {
                if is_lasting {
                    self.kept.put(beside, kept, bytes);
                }
            });
        };
        // If this panics, the flight notifies its waiters.
        let _ = tokio::task::spawn_blocking(read).await;
    }

    /// Reads a file. Also returns whether the result is final until the file changes.
    fn read(&self, beside: &AnnotationFile) -> (IndexResult, bool) {
        let read = indexed(&beside.path, self.limit);
        let is_lasting = !matches!(read, Err(Wrong::Now(_)));
        let read = read.map_err(Wrong::failure);
        if let Ok(index) = &read {
            let (count, bytes) = (index.count(), index.bytes());
            tracing::debug!(file = beside.name(), count, bytes, "annotations");
        }
        let result = read.map(Arc::new).map_err(|failure| {
            let what = format!("{}: {}", beside.name(), failure.what);
            tracing::warn!("{what}");
            Failure { what: what.into(), ..failure }
        });
        (result, is_lasting)
    }

    /// The annotations in a view, as GeoJSON in pixels of level 0.
    pub(crate) async fn view(
        self: &Arc<Self>,
        beside: &AnnotationFile,
        view: VisibleArea,
    ) -> Result<Vec<u8>> {
        let index = self.index(beside).await?;
        let turn = Arc::clone(&self.cutting).acquire_owned().await;
        let made = tokio::task::spawn_blocking(move || {
            // The client may disconnect meanwhile.
            let _turn = turn;
            serde_json::to_vec(&view::collection(&index, view)).map_err(|error| error.to_string())
        });
        let made = made.await.map_err(|_| Failure::internal("the annotations cannot be cut"))?;
        made.map_err(Failure::internal)
    }
}

/// Why annotations are unavailable.
#[derive(Debug)]
enum Wrong {
    /// The file cannot be read at the moment.
    Now(io::Error),
    /// The file is malformed or too large.
    File(Failure),
}

impl Wrong {
    fn failure(self) -> Failure {
        match self {
            Self::Now(error) => Failure::internal(error.to_string()),
            Self::File(failure) => failure,
        }
    }
}

fn indexed(path: &Path, limit: usize) -> std::result::Result<Index, Wrong> {
    // It may have become a FIFO that has no writer.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path);
    let file = file.map_err(Wrong::Now)?;
    let data = file.metadata().map_err(Wrong::Now)?;
    if !data.is_file() {
        return Err(Wrong::Now(io::Error::other("it is no longer a file")));
    }
    let size = data.len();
    let large = |what: String| Wrong::File(Failure::new(StatusCode::NOT_IMPLEMENTED, what));
    if size > LARGEST {
        return Err(large(format!("{} MiB, of {} at most", size >> 20, LARGEST >> 20)));
    }
    // The file may grow while it is read.
    let is_compressed = path.to_string_lossy().ends_with(COMPRESSED);
    let file: Box<dyn Read> = match is_compressed {
        true => Box::new(MultiGzDecoder::new(BufReader::with_capacity(64 << 10, file))),
        false => Box::new(file),
    };
    let mut from = BufReader::with_capacity(64 << 10, Guard::new(file, LARGEST));
    let of_file = |error: &io::Error| {
        // The guard's errors and decompression errors are faults of the file.
        let is_cut = [ErrorKind::InvalidInput, ErrorKind::UnexpectedEof].contains(&error.kind());
        error.kind() == ErrorKind::InvalidData || (is_compressed && is_cut)
    };
    // Some programs write a byte order mark, which JSON does not allow.
    let mut mark = Vec::new();
    if let Err(error) = from.by_ref().take(MARK.len() as u64).read_to_end(&mut mark) {
        return Err(match of_file(&error) {
            true => Wrong::File(Failure::internal(error.to_string())),
            false => Wrong::Now(error),
        });
    }
    if mark == MARK {
        mark.clear();
    }
    let from = Cursor::new(mark).chain(from);
    let budget = Budget::new(limit.saturating_sub(Builder::BESIDES));
    let mut builder = Builder::default();
    let mut json = serde_json::Deserializer::from_reader(from);
    let document = Document { builder: &mut builder, budget: &budget };
    let read = document.deserialize(&mut json).and_then(|()| json.end());
    match read {
        Ok(()) => Ok(builder.finish()),
        Err(error) if budget.is_spent() => Err(large(error.to_string())),
        Err(error) if error.is_io() => {
            let what = error.to_string();
            let error = io::Error::from(error);
            Err(match of_file(&error) {
                true => Wrong::File(Failure::internal(what)),
                false => Wrong::Now(error),
            })
        }
        Err(error) => Err(Wrong::File(Failure::internal(error.to_string()))),
    }
}

#[cfg(test)]
mod tests;
