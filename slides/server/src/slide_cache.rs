//! Open slides: each is opened once for all requests, and a limited number stays open.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lru::LruCache;
use seekwire_slides_image::{Error, Level, Limits, Rendering, Slide};

use crate::counters::Counters;
use crate::failure::{Failure, Result, outside};
use crate::library::{self, SlideLibrary, SlideLocation};
use crate::render::colour;
use crate::single_flight::{Flight, Flights, Joined};
use crate::stamps::{self, Stamp};
use crate::web_limits::{self, Host, TOO_MANY, Web};

/// Maximum age of the last check that a file is unchanged.
const FRESH: Duration = Duration::from_secs(1);

/// An open slide.
pub(crate) struct Open {
    /// Identifies this opening, so that nothing cached for a file is served for its replacement.
    pub(crate) number: u64,
    pub(crate) id: String,
    /// The slide's location, which no client sees.
    pub(crate) location: String,
    /// The web server that has the slide.
    pub(crate) host: Option<Host>,
    pub(crate) slide: Slide,
    pub(crate) levels: Vec<Level>,
    /// The default rendering of its channels; `None` if it has no channels.
    pub(crate) rendering: Option<Arc<Rendering>>,
    /// True if it has a colour profile that can be used for conversion.
    pub(crate) converts: bool,
    /// Identifies the state of the file.
    pub(crate) stamp: String,
    /// Identifies the slide: changes whenever it does, and never else. The stamp of a slide in
    /// several files may change with other files in their directory, and that of one on a web server
    /// changes each time the slide is opened. `None` if nothing else is known.
    pub(crate) identity: Option<String>,
    /// True once the file on a web server is known to have changed.
    changed: AtomicBool,
}

impl Open {
    /// Width and height in pixels.
    pub(crate) fn size(&self) -> (u32, u32) {
        self.levels.first().map_or((0, 0), |level| (level.width, level.height))
    }

    /// Converts an error of the slide for clients; the log has the full error.
    pub(crate) fn wrong(&self, error: &Error) -> Failure {
        tracing::warn!(slide = self.id, "{error}");
        if matches!(error, Error::Changed { .. }) {
            self.changed.store(true, Ordering::Relaxed);
        }
        Failure::of_slide(error, &self.id, &self.location)
    }

    /// True if its stamp identifies it even after a restart. A slide on a web server may be
    /// replaced, and the chunks of OME-Zarr are not checked.
    pub(crate) fn is_known_by_stamp(&self) -> bool {
        !library::is_address(&self.location) && self.slide.format() != "ome-zarr"
    }

    /// Converts an error of decoding or encoding for clients; the log has the full error.
    pub(crate) fn undone(&self, what: &str) -> Failure {
        tracing::warn!(slide = self.id, "{what}");
        Failure::internal(outside(what, &self.id, &self.location))
    }
}

fn converts(slide: &Slide, id: &str) -> bool {
    // A scanner's profile does not apply to colours of channels.
    let Some(icc) = slide.icc().filter(|_| slide.channels().is_empty()) else { return false };
    let checked = colour::check(icc);
    if let Err(what) = &checked {
        tracing::warn!(slide = id, "{what}; its colours are not converted");
    }
    checked.is_ok()
}

type Opened = Result<Arc<Open>>;

struct Entry {
    opened: Opened,
    /// True if the result is final until the file changes.
    is_lasting: bool,
    stamp: String,
    checked: Instant,
}

/// Where a slide is, and the state of its file.
struct Found {
    slide_location: SlideLocation,
    location: String,
    stamp: String,
    /// The open slide, or the lasting failure, if the file has not changed since.
    current: Option<Opened>,
}

impl Entry {
    /// True if the open slide is known to be outdated.
    fn is_old(&self) -> bool {
        self.opened.as_ref().is_ok_and(|open| open.changed.load(Ordering::Relaxed))
    }
}

/// The open slides.
pub(crate) struct SlideCache {
    library: SlideLibrary,
    limits: Limits,
    entries: Mutex<LruCache<String, Entry>>,
    flights: Arc<Flights<String, Opened>>,
    next: AtomicU64,
    /// Identifies this run, for slides that have no stamp of their own.
    started: u128,
    web: Arc<Web>,
    counters: Arc<Counters>,
}

impl SlideCache {
    /// Keeps at most `most` slides open, besides those being read.
    pub(crate) fn new(
        library: SlideLibrary,
        most: NonZeroUsize,
        limits: Limits,
        web: Arc<Web>,
        counters: Arc<Counters>,
    ) -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Self {
            library,
            limits,
            entries: Mutex::new(LruCache::new(most)),
            flights: Arc::new(Flights::new()),
            next: AtomicU64::new(0),
            started,
            web,
            counters,
        }
    }

    pub(crate) fn library(&self) -> &SlideLibrary {
        &self.library
    }

    /// Number of open slides.
    pub(crate) fn count(&self) -> usize {
        self.entries().iter().filter(|(_, entry)| entry.opened.is_ok()).count()
    }

    /// Number of empty tiles in the open slides.
    pub(crate) fn empty_tiles(&self) -> u64 {
        let entries = self.entries();
        let open = entries.iter().filter_map(|(_, entry)| entry.opened.as_ref().ok());
        open.flat_map(|open| open.slide.empty_tiles()).sum()
    }

    fn entries(&self) -> MutexGuard<'_, LruCache<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fresh(&self, id: &str) -> Option<Opened> {
        let mut entries = self.entries();
        let entry = entries.get(id)?;
        // Reads from a web server detect changes themselves.
        let is_remote = entry.opened.as_ref().is_ok_and(|open| open.host.is_some());
        if is_remote && !self.library.has(id) {
            return Some(Err(library::none()));
        }
        let is_fresh = is_remote || entry.checked.elapsed() < FRESH;
        (is_fresh && !entry.is_old()).then(|| entry.opened.clone())
    }

    /// The slide of that identifier.
    pub(crate) async fn get(self: &Arc<Self>, id: &str) -> Opened {
        if let Some(opened) = self.fresh(id) {
            return opened;
        }
        // Made-up names take no thread. If the slide is open, it may have to be closed.
        if self.library.is_unknown(id, Instant::now()) && !self.entries().contains(id) {
            return Err(library::none());
        }
        let id = id.to_owned();
        let host = self.library.host(&id);
        let Some(_waits) = self.web.requests.try_take(host.as_ref()) else {
            return Err(Failure::unavailable(TOO_MANY));
        };
        let ticket = match self.flights.join(&id, || self.fresh(&id)) {
            Joined::Ready(opened) => return opened,
            Joined::Later(ticket) => ticket,
            Joined::First(ticket, flight) => {
                tokio::spawn(Arc::clone(self).fetch(id, host, flight));
                ticket
            }
        };
        ticket
            .wait()
            .await
            .unwrap_or_else(|| Err(Failure::unavailable("the server is shutting down")))
    }

    /// Opens a slide when its turn comes, if it is still wanted then.
    async fn fetch(
        self: Arc<Self>,
        id: String,
        host: Option<Host>,
        flight: Flight<String, Opened>,
    ) {
        let turn = tokio::select! {
            turn = self.web.threads.take(host.as_ref(), 1) => turn,
            () = flight.until_unwanted() => return,
        };
        if flight.ends_unwanted() {
            return;
        }
        let (slides, of) = (Arc::clone(&self), id.clone());
        // If this panics, the flight notifies its waiters.
        let found = tokio::task::spawn_blocking(move || slides.look(&of)).await;
        let Ok(found) = found else { return };
        // Opening may decode tiles, to measure the brightness of channels.
        let decoder = match &found {
            Ok(found) if found.current.is_none() => tokio::select! {
                decoder = self.web.decoder(host.as_ref()) => decoder,
                () = flight.until_unwanted() => return,
            },
            _ => None,
        };
        if flight.ends_unwanted() {
            return;
        }
        let land = move || {
            let _held = (turn, decoder);
            self.land(id, found, flight);
        };
        let _ = tokio::task::spawn_blocking(land).await;
    }

    /// Locates a slide, and finds whether the open one is still current.
    fn look(&self, id: &str) -> Result<Found> {
        let slide_location = self.library.find(id)?;
        let location = library::location(&slide_location, id)?;
        let stamp = self.stamp(&slide_location, &location);
        let is_same = |entry: &&Entry| entry.stamp == stamp && entry.is_lasting && !entry.is_old();
        let current = self.entries().get(id).filter(is_same).map(|entry| entry.opened.clone());
        Ok(Found { slide_location, location, stamp, current })
    }

    /// Opens a slide, unless the open one is current.
    fn land(&self, id: String, found: Result<Found>, flight: Flight<String, Opened>) {
        let ((opened, is_lasting), stamp) = match found {
            // Made-up names leave nothing behind.
            Err(failure) => {
                // Closed without holding the lock.
                let gone = self.entries().pop(&id);
                flight.land(Err(failure), || {});
                return drop(gone);
            }
            Ok(Found { stamp, current: Some(opened), .. }) => ((opened, true), stamp),
            Ok(Found { slide_location, location, stamp, .. }) => {
                (self.open(&id, &slide_location, location, &stamp), stamp)
            }
        };
        let entry = Entry { opened: opened.clone(), is_lasting, stamp, checked: Instant::now() };
        let mut old = None;
        flight.land(opened, || old = self.entries().push(id, entry));
        // Closed without holding the lock.
        drop(old);
    }

    /// Opens a slide. Also returns whether the result is valid as long as the file is unchanged.
    fn open(
        &self,
        id: &str,
        slide_location: &SlideLocation,
        location: String,
        stamp: &str,
    ) -> (Opened, bool) {
        Counters::add(&self.counters.opened, 1);
        let slide = match slide_location {
            SlideLocation::File { within: Some(root), .. } => {
                Slide::open_within(&location, root, self.limits.clone())
            }
            _ => Slide::open(&location, self.limits.clone()),
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let stamp = match slide_location {
            SlideLocation::File { .. } => stamp.to_owned(),
            // It may be a different file each time.
            SlideLocation::Address(_) => format!("{stamp}-{number}"),
        };
        // A server may recover, and a file may become readable; other errors are permanent.
        let is_lasting = match (&slide, slide_location) {
            (Ok(_), _) => true,
            (Err(_), SlideLocation::Address(_)) => false,
            (Err(error), SlideLocation::File { .. }) => matches!(
                error,
                Error::Malformed { .. }
                    | Error::Unsupported { .. }
                    | Error::Limit { .. }
                    | Error::LargeTiles { .. }
            ),
        };
        let has_own_stamp =
            matches!(slide_location, SlideLocation::File { .. }) && has_own_stamp(&location);
        let opened = match slide {
            Ok(slide) => Ok(Arc::new(Open {
                converts: converts(&slide, id),
                number,
                id: id.to_owned(),
                levels: slide.levels(),
                rendering: (!slide.channels().is_empty()).then(|| Arc::new(slide.rendering())),
                host: web_limits::host(&location),
                location,
                identity: match has_own_stamp {
                    true => Some(stamp.clone()),
                    false => slide.state().map(str::to_owned),
                },
                slide,
                stamp,
                changed: AtomicBool::new(false),
            })),
            Err(error) => {
                tracing::warn!(slide = id, "{error}");
                Err(Failure::of_slide(&error, id, &location))
            }
        };
        (opened, is_lasting)
    }

    /// Changes whenever one of the slide's files does.
    fn stamp(&self, slide_location: &SlideLocation, location: &str) -> String {
        match (slide_location, std::fs::metadata(location)) {
            (SlideLocation::File { .. }, Ok(data)) => {
                let of = Stamp::of(&data).to_string();
                match beside(location) {
                    Some(directory) => format!("{of}-{}", stamps::all(&directory)),
                    None if data.is_dir() => format!("{of}-{}", stamps::image(location.as_ref())),
                    None => of,
                }
            }
            _ => format!("{}", self.started),
        }
    }
}

/// The directory with the other files of a slide, if it may have several. Blocks.
fn beside(location: &str) -> Option<PathBuf> {
    let instances = library::instances(location).map(Path::to_owned);
    instances.or_else(|| stamps::companions(location.as_ref()))
}

/// True if the stamp is only of files that belong to the slide. Blocks.
fn has_own_stamp(location: &str) -> bool {
    let file = Path::new(location);
    let companions = stamps::companions(file);
    library::instances(location).is_none()
        && companions.is_none_or(|directory| Some(&*directory) != file.parent())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::work;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn a_name_that_a_client_makes_up_takes_no_thread() {
        let directory = tempfile::tempdir().unwrap();
        let library = SlideLibrary::new(&[directory.path().to_str().unwrap().to_owned()]).unwrap();
        let (web, counters) = (Arc::new(Web::new(4, 4, 4)), Arc::new(Counters::default()));
        let slides = SlideCache::new(library, NonZeroUsize::MIN, work::limits(), web, counters);
        let slides = Arc::new(slides);
        // If the last scan was long ago, there may be a new slide.
        let is_refused = (0..100).any(|number| {
            slides.library().list();
            let refused = slides.get(&format!("{number}.svs")).now_or_never();
            refused.is_some_and(|opened| opened.is_err())
        });
        assert!(is_refused);
    }

    #[test]
    fn the_other_files_of_a_slide_are_part_of_its_state() {
        let directory = tempfile::tempdir().unwrap();
        let library = SlideLibrary::new(&[directory.path().to_str().unwrap().to_owned()]).unwrap();
        let (web, counters) = (Arc::new(Web::new(4, 4, 4)), Arc::new(Counters::default()));
        let slides = SlideCache::new(library, NonZeroUsize::MIN, work::limits(), web, counters);
        let path = |name: &str| directory.path().join(name);
        std::fs::create_dir(path("other")).unwrap();
        for (name, data, is_part) in [
            ("a.mrxs", "a/Slidedat.ini", true),
            ("b.MRXS", "b/Data0000.dat", true),
            ("c.vms", "c-1.jpg", true),
            ("d.vmu", "d.opt", true),
            ("e.ndpi", "e/e.dat", false),
            ("f.mrxs", "other/f.dat", false),
        ] {
            std::fs::write(path(name), "").unwrap();
            let location = SlideLocation::File { path: path(name), within: None };
            let stamp = || slides.stamp(&location, path(name).to_str().unwrap());
            let mut before = stamp();
            std::fs::create_dir_all(path(data).parent().unwrap()).unwrap();
            // The files come after the one that names them, and may be replaced.
            for bytes in ["1", "22"] {
                std::fs::write(path(data), bytes).unwrap();
                let after = stamp();
                assert_eq!(after != before, is_part, "{name}: {data}");
                before = after;
            }
        }
    }
}
